"""What a stochastic-gradient sampler reports of an iteration, beside its draw."""

from typing import NamedTuple

from geodax._types import Array, Scalar


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
