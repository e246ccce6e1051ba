"""Log likelihoods of each example of a batch, for :class:`geodax.Posterior`.

A batch is a pair ``(x, y)``. A position that is a network is called once for each row of ``x`` under ``jax.vmap``; for
any other, ``apply(position, x)`` returns the outputs for all rows. Of outputs in half precision the log likelihood is
computed in single precision: one minus the probability of a label that is likely, which is its gradient, would be zero.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks as _arguments
from geodax import _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.nn.densities import python_number
from geodax.vi.modules import Rows

Apply = Callable[[Position, PyTree], Array]


def apply_network(network: Callable[[Array], Array], x: Array) -> Array:
    """Outputs of a network of one example for the rows of ``x``; one with drawn weights draws others for each row."""
    if isinstance(network, Rows):
        return network.rows(x)
    if not callable(network):
        raise TypeError(
            f"nn: expected a position that is a network, a function of one example, found "
            f"{_arguments.described(network)}; for any other give apply=..., a function (position, x) -> outputs."
        )
    return jax.vmap(network)(x)


class CategoricalLikelihood(eqx.Module):
    """Classes with integer labels; the network's outputs are logits.

    Args:
        apply: ``(position, x) -> logits (B, classes)``; None for positions that are networks of one example.
    """

    apply: Apply = eqx.field(static=True, default=apply_network)

    def __call__(self, position: Position, batch: tuple[PyTree, Array]) -> Float[Array, " B"]:
        """Log probability of each label.

        Args:
            position: The parameters.
            batch: Inputs, and labels from 0 of shape (B,).

        Returns:
            One number for each example; NaN for a label that is no class.

        Raises:
            TypeError: If the labels are no whole numbers.
            ValueError: If the shapes do not fit, or there is one class only.
        """
        x, labels = batch
        labels = jnp.asarray(labels)
        if not jnp.issubdtype(labels.dtype, jnp.integer):
            raise TypeError(f"CategoricalLikelihood: labels must be whole numbers, found dtype {labels.dtype}.")
        logits = _tree.widened(self.apply(position, x))
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                "CategoricalLikelihood: expected logits of shape (B, classes) and labels of shape (B,), found "
                f"{logits.shape} and {labels.shape}."
            )
        if logits.shape[1] == 1:
            raise ValueError(
                "CategoricalLikelihood: expected a logit for each class, two at least, found one, whose probability "
                "would be 1 whatever it is. For two classes give the network two outputs, or let apply= return "
                "jnp.concatenate([jnp.zeros_like(z), z], -1) for one output z, the logit of label 1."
            )
        if labels.dtype.itemsize < 4:
            labels = labels.astype(jnp.int32)  # the number of classes need not fit into eight bits
        # a negative label would count from the end
        safe = jnp.where(labels < 0, logits.shape[1], labels)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), safe[:, None], axis=1, mode="fill")[:, 0]


class GaussianLikelihood(eqx.Module):
    """Real targets with normal noise, known or learned.

    Args:
        noise: Standard deviation of the noise; None where the position is a :class:`WithNoise`, which holds it: one of
            the two, not both.
        apply: ``(position, x) -> means``; None for positions that are networks of one example.
    """

    noise: float | None = eqx.field(static=True, default=None, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        if self.noise is not None:
            _arguments.number("GaussianLikelihood", "noise", self.noise, above=0.0)

    def __call__(self, position: Position, batch: tuple[PyTree, Any]) -> Float[Array, " B"]:
        """Log density of each target, summed over its entries.

        Args:
            position: The parameters.
            batch: Inputs, and targets with the shape of the means; a list of numbers becomes an array.

        Returns:
            One number for each example.

        Raises:
            ValueError: If the shapes differ, or the noise is nowhere or given twice.
        """
        if self.noise is not None and _noise_holders(position):
            raise ValueError(
                f"GaussianLikelihood: the noise is given, as {self.noise:g}, and a parameter of the position too, a "
                "nn.WithNoise, which the data would tell nothing of. Leave noise out, or give the network without it."
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

    def log_noise(self, position: Position, like: Array) -> Scalar:
        """Logarithm of the noise's standard deviation, as given or at a position, in the dtype of ``like``."""
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
    """A network together with the logarithm of a noise standard deviation; called, it is the network.

    Args:
        network: The network.
        log_noise: Logarithm of the standard deviation, a scalar array or a number.
        dtype: Of a ``log_noise`` that is a number.
    """

    network: PyTree
    log_noise: Scalar

    def __init__(self, network: PyTree, log_noise: Any = 0.0, *, dtype: Any = jnp.float32):
        self.network = network
        if not (isinstance(log_noise, jax.Array) and jnp.issubdtype(log_noise.dtype, jnp.floating)):
            log_noise = _arguments.number("WithNoise", "log_noise", log_noise)
        self.log_noise = jnp.asarray(log_noise, getattr(log_noise, "dtype", dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network."""
        return self.network(*args, **kwargs)


def _noise_holders(position: Position) -> list[WithNoise]:
    """The position, or the network in it, where that has a noise of its own."""
    return [holder for holder in (position, getattr(position, "network", None)) if isinstance(holder, WithNoise)]
