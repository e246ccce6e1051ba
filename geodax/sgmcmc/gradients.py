"""The stochastic gradient of a target at a position, estimated from one batch."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, LogDensity, Position, PRNGKey, PyTree, Scalar
from geodax.data.parts import (
    DATA_AXIS,
    Part,
    gradients_over_parts,
    mean_over_parts,
    own_examples,
    value_and_gradient,
    whole,
)
from geodax.posterior import Posterior
from geodax.sgmcmc.control_variates import Controlled
from geodax.sgmcmc.precision import LeafDtypes, dot, norm, scalar_dtype, scaled

Perturbation = Callable[[PRNGKey, PyTree], PyTree]
_OfBatch = Callable[[Position, PyTree], Array]


class Control(NamedTuple):
    """The control variates of a target.

    Attributes:
        slope: Gradient of the log likelihood of all data at the centre.
        total: The log likelihood of all data there.
        logdensity: ``(position, batch) -> scalar``, an estimate of the log likelihood of all data.
    """

    center: Position
    slope: PyTree
    total: Scalar
    logdensity: _OfBatch


class Target(NamedTuple):
    """A posterior or a plain log density behind one interface.

    Attributes:
        logdensity: ``(position, batch) -> scalar``, an estimate of the log density, without control variates.
        num_data: Number of examples over which the log density sums; 1 for a plain density.
        needs_batch: Whether the target is a posterior.
        perturb: Noise added to the ambient gradient, or None.
        log_likelihood: ``(position, batch) -> (B,)``, that of each example; None for a plain density.
        control: Control variates, or None.
    """

    logdensity: Callable[[Position, PyTree], Scalar]
    num_data: int
    needs_batch: bool
    perturb: Perturbation | None
    log_likelihood: Callable[[Position, PyTree], Array] | None = None
    control: Control | None = None

    def changed(self, change: Callable[[_OfBatch], _OfBatch]) -> "Target":
        """The same target with other functions of a position and a batch."""
        log_likelihood = None if self.log_likelihood is None else change(self.log_likelihood)
        control = None if self.control is None else self.control._replace(logdensity=change(self.control.logdensity))
        return self._replace(logdensity=change(self.logdensity), log_likelihood=log_likelihood, control=control)

    def taking(self, dtypes: LeafDtypes) -> "Target":
        """The same target of positions that are kept in other dtypes than the log density takes."""
        if not dtypes.names:
            return self
        return self.changed(lambda function: lambda position, batch: function(dtypes.cast(position), batch))

    def gradient(self, key: PRNGKey, position: Position, batch: PyTree) -> tuple[Scalar, PyTree]:
        """Estimate the potential (minus the log density) and the ambient gradient of the *log density*."""
        (value,), (gradient,) = self.gradients(batch, position)
        gradient = jax.tree.map(lambda g: jnp.conj(g) if jnp.iscomplexobj(g) else g, gradient)
        if self.perturb is not None:
            gradient = self.perturb(key, gradient)
        return -value, gradient

    def gradients(self, batch: PyTree, *positions: Position) -> tuple[tuple[Scalar, ...], tuple[PyTree, ...]]:
        """Estimate the log density and its derivatives, without noise of the user's, at some positions."""
        control = self.control
        functions, points = [self.logdensity] * len(positions), positions
        if control is not None:
            functions, points = [*functions, control.logdensity], (*positions, _like(positions[0], control.center))

        def of_part(part: PyTree, *points: Position) -> tuple[tuple[Scalar, ...], tuple[PyTree, ...]]:
            def found(function: _OfBatch, point: Position) -> tuple[Scalar, PyTree]:
                return value_and_gradient(lambda position: function(position, own_examples(part)), part, point)

            values, gradients = zip(*map(found, functions, points), strict=True)
            return values, gradients

        values, gradients = gradients_over_parts(of_part, batch, *points)
        if control is None:
            return values, gradients
        (*values, there), (*gradients, of_batch), center = values, gradients, points[-1]
        slope = _tree.subtract(_like(of_batch, control.slope), of_batch)
        changes = [control.total.astype(there.dtype) - there + _along(slope, x, center, there) for x in positions]
        values = tuple(value + change.astype(value.dtype) for value, change in zip(values, changes, strict=True))
        return values, tuple(_tree.add(gradient, slope) for gradient in gradients)

    def batch_noise(self, above: Position, below: Position, batch: PyTree) -> Scalar:
        """Variance of the difference of the log density between two positions due to the choice of the batch.

        It is estimated from the differences of the examples in this batch, assuming that examples are drawn
        independently; 0 if a batch is all the data.
        """
        log_likelihood, control = self.log_likelihood, self.control
        if log_likelihood is None:
            return jnp.zeros((), scalar_dtype(above))
        centers = () if control is None else (_like(above, control.center),)

        def moments(part: PyTree, *points: Position) -> tuple[Scalar, Scalar, Scalar]:
            examples = own_examples(part)
            above, below, *centers = (whole(part, point) for point in points)
            higher, lower = (_tree.widened(log_likelihood(end, examples)) for end in (above, below))
            changes = higher - lower
            for center in centers:
                apart = (_tree.subtract(above, below),)
                along = jax.jvp(lambda c: log_likelihood(c, examples), (center,), apart)[1]
                changes = changes - _tree.widened(along)
            shares = part.share(DATA_AXIS, *part.model_axes)[1] if isinstance(part, Part) else 1
            size = jnp.asarray(float(changes.size * shares), changes.dtype)
            return jnp.mean(changes), jnp.mean(changes**2), size

        mean, square, size = mean_over_parts(moments, batch, above, below, *centers)
        if control is not None:
            shift = _along(_like(above, control.slope), above, below, mean) / self.num_data
            mean, square = mean + shift, square + shift * (2.0 * mean + shift)
        # with one example use the square: near the mode the mean is small compared with it
        spread = jnp.where(size > 1, (square - mean**2) * size / jnp.maximum(size - 1, 1), square)
        variance = jnp.maximum(spread, 0.0) * float(self.num_data) ** 2 / size
        return jnp.where(size < self.num_data, variance, jnp.zeros_like(variance))


def as_target(name: str, posterior: Posterior | LogDensity, perturb_gradient: Perturbation | None) -> Target:
    """Convert a posterior or log density to a target; raises TypeError if an argument is not a function."""
    if perturb_gradient is not None:
        _checks.function(name, "perturb_gradient", perturb_gradient, "a function (key, gradient) -> gradient")
    if isinstance(posterior, Posterior):
        control, controlled = None, posterior.log_likelihood
        if isinstance(controlled, Controlled):
            posterior = eqx.tree_at(lambda p: p.log_likelihood, posterior, controlled.posterior.log_likelihood)
            none = eqx.tree_at(lambda p: p.log_prior, posterior, lambda x: jnp.zeros((), _tree.real_dtype(x)))
            control = Control(controlled.center, controlled.slope, controlled.total, none.logdensity)

        def of_batch(position: Position, batch: PyTree) -> Scalar:
            if batch is None:
                raise TypeError(
                    f"{name}: the target is a Posterior, so step needs a batch: step(rng_key, state, batch), or "
                    "sample(..., batches=gx.data.batches(data, batch_size=...)). To use all the data in each step, "
                    "pass posterior.full(data) instead of the posterior."
                )
            return posterior.logdensity(position, batch)

        return Target(of_batch, posterior.num_data, True, perturb_gradient, posterior.log_likelihood, control)
    _checks.function(name, "posterior", posterior, "a Posterior or a log density, a function of the position")
    return Target(lambda position, batch: _scalar(name, posterior(position)), 1, False, perturb_gradient)


def clipped(gradient: PyTree, largest: float | None, num_data: int) -> tuple[PyTree, Scalar]:
    """Shorten a gradient so that the norm of the mean gradient is at most ``largest``; return it and its factor."""
    dtype = scalar_dtype(gradient)
    scale = jnp.ones((), dtype)
    if largest is None:
        return gradient, scale
    length = norm(gradient) / num_data
    scale = jnp.minimum(scale, largest / jnp.maximum(length, jnp.finfo(dtype).tiny)).astype(dtype)
    return scaled(scale, gradient), scale


def inner_batch(batch: PyTree, index, num_inner_steps: int) -> PyTree:
    """The batch of one inner step; batches of several inner steps are stacked along the first axis."""
    if num_inner_steps == 1 or batch is None:
        return batch
    for leaf in jax.tree.leaves(batch):
        if leaf.ndim == 0 or leaf.shape[0] != num_inner_steps:
            raise ValueError(
                f"sghmc: an iteration has {num_inner_steps} inner steps and takes a batch for each, so every array of "
                f"the batch needs a leading axis of {num_inner_steps}; found shape {leaf.shape}."
            )
    return jax.tree.map(lambda leaf: leaf[index], batch)


def _like(position: Position, tree: PyTree) -> PyTree:
    """A tree in the dtypes of a position, which are wider than those of the log density in half precision."""
    return jax.tree.map(lambda x, y: y.astype(x.dtype), position, tree)


def _along(slope: PyTree, position: Position, center: Position, like: Scalar) -> Scalar:
    return dot(slope, _tree.subtract(position, center)).astype(like.dtype)


def looks_finite(tree: PyTree) -> Array:
    """Whether every entry and its square are finite; a dot product is four times faster than ``isfinite``."""

    def squared_length(leaf: Array) -> Scalar:
        # in half precision the sum over many entries would overflow
        return jnp.vdot(leaf, leaf, preferred_element_type=jnp.float32 if _tree.is_half(leaf) else None).real

    return _tree.is_finite(jax.tree.map(squared_length, tree))


def _scalar(name: str, value) -> Scalar:
    value = jnp.asarray(value)
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"{name}: the log density must return a real floating-point scalar, found shape {value.shape} and dtype "
            f"{value.dtype}; sum over the entries."
        )
    return value
