"""Log likelihoods of the examples of a batch, for :class:`geodax.Posterior`.

A batch is a pair ``(x, y)``. A position that is a network is called on each row of ``x`` under ``jax.vmap``; for other
positions ``apply(position, x)`` returns the outputs for all rows. For half-precision outputs the log likelihood is
computed in single precision: one minus the probability of a likely label, which is its gradient, would round to zero.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.nn.densities import python_number
from geodax.vi.modules import Rows

Apply = Callable[[Position, PyTree], Array]


def apply_network(network: Callable[[Array], Array], x: Array) -> Array:
    """Apply a network to the rows of ``x``; a network with random weights draws new weights for each row."""
    if isinstance(network, Rows):
        return network.rows(x)
    if not callable(network):
        raise TypeError(
            f"nn: expected a network, a function of one example, as the position, found "
            f"{_checks.described(network)}; for other positions pass apply=..., a function (position, x) -> outputs."
        )
    return jax.vmap(network)(x)


class CategoricalLikelihood(eqx.Module):
    """Classes with integer labels; the network's outputs are logits.

    Args:
        apply: ``(position, x) -> logits (B, classes)``; None if positions are networks that take one example.
    """

    apply: Apply = eqx.field(static=True, default=apply_network)

    def __call__(self, position: Position, batch: tuple[PyTree, Array]) -> Float[Array, " B"]:
        """Compute the log probability of each label.

        Args:
            position: The parameters.
            batch: Inputs, and labels from 0 of shape (B,).

        Returns:
            One number for each example; NaN for a label out of range.

        Raises:
            TypeError: If the labels are not integers.
            ValueError: If the shapes do not match, or there is only one class.
        """
        x, labels = batch
        labels = jnp.asarray(labels)
        if not jnp.issubdtype(labels.dtype, jnp.integer):
            raise TypeError(f"CategoricalLikelihood: labels must be integers, found dtype {labels.dtype}.")
        logits = _tree.widened(self.apply(position, x))
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                "CategoricalLikelihood: expected logits of shape (B, classes) and labels of shape (B,), found "
                f"{logits.shape} and {labels.shape}."
            )
        if logits.shape[1] == 1:
            raise ValueError(
                "CategoricalLikelihood: expected a logit for each of at least two classes, found one, whose "
                "probability would always be 1. For two classes use a network with two outputs, or let apply= return "
                "jnp.concatenate([jnp.zeros_like(z), z], -1) for one output z, the logit of label 1."
            )
        if labels.dtype.itemsize < 4:
            labels = labels.astype(jnp.int32)  # the number of classes may exceed eight bits
        # a negative label would index from the end
        safe = jnp.where(labels < 0, logits.shape[1], labels)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), safe[:, None], axis=1, mode="fill")[:, 0]

    def sample(self, key: PRNGKey, position: Position, batch: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        """Return the batch with labels drawn from the network's distribution in place of its own."""
        x, _ = batch
        return x, jax.random.categorical(key, _tree.widened(self.apply(position, x)))


class GaussianLikelihood(eqx.Module):
    """Real targets with normal noise, known or learned.

    Args:
        noise: Standard deviation of the noise; None if the position is a :class:`WithNoise`, which contains it. Exactly
            one of the two is required.
        apply: ``(position, x) -> means``; None if positions are networks that take one example.
    """

    noise: float | None = eqx.field(static=True, default=None, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        if self.noise is not None:
            _checks.number("GaussianLikelihood", "noise", self.noise, above=0.0)

    def __call__(self, position: Position, batch: tuple[PyTree, Any]) -> Float[Array, " B"]:
        """Compute the log density of each target, summed over its entries.

        Args:
            position: The parameters.
            batch: Inputs, and targets with the shape of the means; lists of numbers are converted to arrays.

        Returns:
            One number for each example.

        Raises:
            ValueError: If the shapes differ, or the noise is missing or given twice.
        """
        if self.noise is not None and _noise_holders(position):
            raise ValueError(
                f"GaussianLikelihood: the noise is given, as {self.noise:g}, and the position has a noise parameter "
                "too (nn.WithNoise), which would not affect the likelihood. Leave out noise=, or the nn.WithNoise."
            )
        x, targets = batch
        means = _tree.widened(self.apply(position, x))
        targets = _tree.widened(targets if hasattr(targets, "shape") else jnp.asarray(targets, means.dtype))
        if means.shape != targets.shape:
            raise ValueError(
                f"GaussianLikelihood: the network's outputs have shape {means.shape}, but the targets "
                f'{targets.shape}; a network with out_features="scalar" has outputs of shape (B,).'
            )
        log_noise = _tree.widened(self.log_noise(position, means))
        z = (targets - means) / jnp.exp(log_noise)
        each = -0.5 * z * z - log_noise - 0.5 * math.log(2.0 * math.pi)
        return jnp.sum(each.reshape(each.shape[0], -1), axis=1)

    def sample(self, key: PRNGKey, position: Position, batch: tuple[PyTree, Any]) -> tuple[PyTree, Array]:
        """Return the batch with targets drawn from the network's distribution in place of its own."""
        x, _ = batch
        means = _tree.widened(self.apply(position, x))
        noise = jax.random.normal(key, means.shape, means.dtype)
        return x, means + jnp.exp(_tree.widened(self.log_noise(position, means))) * noise

    def log_noise(self, position: Position, like: Array) -> Scalar:
        """Return the log standard deviation of the noise, fixed or from the position, in the dtype of ``like``."""
        if self.noise is not None:
            return jnp.asarray(math.log(self.noise), like.dtype)
        held = _noise_holders(position)
        if held:
            return held[0].log_noise
        raise ValueError(
            "GaussianLikelihood: the noise is neither given nor a parameter; give noise=..., or sample "
            "nn.WithNoise(network)."
        )


class WithNoise(eqx.Module):
    """A network with the logarithm of a noise standard deviation; calling it calls the network.

    Args:
        network: The network.
        log_noise: Logarithm of the standard deviation, a scalar array or a number.
        dtype: Dtype of ``log_noise`` if it is a number.
    """

    network: PyTree
    log_noise: Scalar

    def __init__(self, network: PyTree, log_noise: Any = 0.0, *, dtype: Any = jnp.float32):
        self.network = network
        if not (isinstance(log_noise, jax.Array) and jnp.issubdtype(log_noise.dtype, jnp.floating)):
            log_noise = _checks.number("WithNoise", "log_noise", log_noise)
        self.log_noise = jnp.asarray(log_noise, getattr(log_noise, "dtype", dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network."""
        return self.network(*args, **kwargs)


def _noise_holders(position: Position) -> list[WithNoise]:
    """The position, or the networks in it, that have a noise parameter."""
    return [holder for holder in (position, getattr(position, "network", None)) if isinstance(holder, WithNoise)]
