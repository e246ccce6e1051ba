"""What a stochastic-gradient sampler reports of an iteration, beside its draw."""

from typing import NamedTuple

import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, Position, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.sgmcmc.gradients import looks_finite
from geodax.sgmcmc.precision import scalar_dtype


class StochasticInfo(NamedTuple):
    """Scalars that describe one iteration of a stochastic-gradient sampler.

    Attributes:
        potential: Minus the log density at the last gradient, estimated from the last batch.
        step_size: Step size of the iteration; zero while only the metric learns.
        temperature: Temperature of the iteration.
        residual: Distance of the draw from the manifold.
        is_finite: Whether the potential and the draw are finite; :func:`geodax.sample` stops if they are not.
        gradient_scale: Smallest factor by which clipping multiplied a gradient; 1 without clipping.
    """

    potential: Scalar
    step_size: Scalar
    temperature: Scalar
    residual: Scalar
    is_finite: Array
    gradient_scale: Scalar


def info_of(
    manifold: AbstractManifold,
    position: Position,
    potential: Scalar,
    step_size: Scalar,
    temperature: Scalar,
    scale: Scalar,
) -> StochasticInfo:
    """Describe the iteration that led to a position; ``scale`` is the ``gradient_scale``."""
    return StochasticInfo(
        potential=potential.astype(scalar_dtype(position)),
        step_size=step_size,
        temperature=temperature,
        residual=_tree.widened(manifold.residual(position)),
        is_finite=jnp.isfinite(potential) & looks_finite(position),
        gradient_scale=scale,
    )
