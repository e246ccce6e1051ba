"""The stochastic gradient: what a sampler asks of a target at one position, with one batch."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, LogDensity, Position, PRNGKey, PyTree, Scalar
from geodax.data.parts import DATA_AXIS, Part, mean_over_parts, own_examples
from geodax.posterior import Posterior
from geodax.sgmcmc.precision import scalar_dtype

Perturbation = Callable[[PRNGKey, PyTree], PyTree]


class Target(NamedTuple):
    """A posterior or a plain log density, behind one interface.

    Attributes:
        logdensity: ``(position, batch) -> scalar``, an estimate of the log density.
        num_data: Number of examples over which the log density sums; 1 for a plain density.
        needs_batch: Whether it is a posterior.
        perturb: Noise that is added to the ambient gradient, or None.
        log_likelihood: ``(position, batch) -> (B,)``, that of each example of a batch; None for a plain density.
    """

    logdensity: Callable[[Position, PyTree], Scalar]
    num_data: int
    needs_batch: bool
    perturb: Perturbation | None
    log_likelihood: Callable[[Position, PyTree], Array] | None = None

    def gradient(self, key: PRNGKey, position: Position, batch: PyTree) -> tuple[Scalar, PyTree]:
        """Estimate of the potential (minus the log density) and the ambient gradient of the *log density*."""

        def of_part(part: PyTree) -> tuple[Scalar, PyTree]:
            return jax.value_and_grad(self.logdensity)(position, own_examples(part))

        value, gradient = mean_over_parts(of_part, batch)
        gradient = jax.tree.map(lambda g: jnp.conj(g) if jnp.iscomplexobj(g) else g, gradient)
        if self.perturb is not None:
            gradient = self.perturb(key, gradient)
        return -value, gradient

    def batch_noise(self, above: Position, below: Position, batch: PyTree) -> Scalar:
        """Variance that drawing batches brings to the difference of the log density between two positions.

        The differences of the examples of this batch say what it is for examples that are drawn independently of each
        other; 0 where a batch is all the data.
        """
        log_likelihood = self.log_likelihood
        if log_likelihood is None:
            return jnp.zeros((), scalar_dtype(above))
        shares = batch.share(DATA_AXIS)[1] if isinstance(batch, Part) else 1

        def moments(part: PyTree) -> tuple[Scalar, Scalar, Scalar]:
            examples = own_examples(part)
            changes = _tree.widened(log_likelihood(above, examples)) - _tree.widened(log_likelihood(below, examples))
            return jnp.mean(changes), jnp.mean(changes**2), jnp.asarray(float(changes.size), changes.dtype)

        mean, square, size = mean_over_parts(moments, batch)
        size = size * shares
        # of one example the square has to do: near the mode the mean is small beside it
        spread = jnp.where(size > 1, (square - mean**2) * size / jnp.maximum(size - 1, 1), square)
        variance = jnp.maximum(spread, 0.0) * float(self.num_data) ** 2 / size
        return jnp.where(size < self.num_data, variance, jnp.zeros_like(variance))


def as_target(name: str, posterior: Posterior | LogDensity, perturb_gradient: Perturbation | None) -> Target:
    """Bring what a user hands over to one form.

    Args:
        name: The sampler's name, for error messages.
        posterior: A posterior, or a log density of a position.
        perturb_gradient: ``(key, gradient) -> gradient``, or None.

    Returns:
        The target.

    Raises:
        TypeError: If one of them is no function.
    """
    if perturb_gradient is not None and not callable(perturb_gradient):
        raise TypeError(
            f"{name}: perturb_gradient must be a function (key, gradient) -> gradient, found a "
            f"{type(perturb_gradient).__name__}."
        )
    if isinstance(posterior, Posterior):

        def of_batch(position: Position, batch: PyTree) -> Scalar:
            if batch is None:
                raise TypeError(
                    f"{name}: the target is a Posterior, so step needs a batch: step(rng_key, state, batch), or "
                    "sample(..., batches=gx.data.batches(data, batch_size=...)). For all the data in each step give "
                    "posterior.full(data) in place of the posterior."
                )
            return posterior.logdensity(position, batch)

        return Target(of_batch, posterior.num_data, True, perturb_gradient, posterior.log_likelihood)
    if not callable(posterior):
        raise TypeError(
            f"{name}: expected a Posterior or a log density, a function of the position, found a "
            f"{type(posterior).__name__}."
        )
    return Target(lambda position, batch: _scalar(name, posterior(position)), 1, False, perturb_gradient)


def inner_batch(name: str, batch: PyTree, index, num_inner_steps: int) -> PyTree:
    """The batch of one inner step; with several of them the batches are stacked along the first axis."""
    if num_inner_steps == 1 or batch is None:
        return batch
    for leaf in jax.tree.leaves(batch):
        if leaf.ndim == 0 or leaf.shape[0] != num_inner_steps:
            raise ValueError(
                f"{name}: an iteration has {num_inner_steps} inner steps and takes a batch for each, so every array of "
                f"the batch needs a leading axis of {num_inner_steps}; found shape {leaf.shape}."
            )
    return jax.tree.map(lambda leaf: leaf[index], batch)


def looks_finite(tree: PyTree) -> Array:
    """Whether every entry is finite and its square does not overflow; a dot product, four times faster than a look."""
    flags = [jnp.isfinite(_squared_length(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(flags)) if flags else jnp.array(True)


def _squared_length(leaf: Array) -> Scalar:
    # in half precision the sum over many entries overflows
    return jnp.vdot(leaf, leaf, preferred_element_type=jnp.float32 if _tree.is_half(leaf) else None).real


def _scalar(name: str, value) -> Scalar:
    value = jnp.asarray(value)
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"{name}: the log density must return a real floating-point scalar, found shape {value.shape} and dtype "
            f"{value.dtype}; sum over the entries."
        )
    return value
