r"""Angles in an interval from unconstrained numbers, by the logistic function.

.. math:: \theta = L\,(2\sigma(z) - 1) = L \tanh(z/2), \qquad
    \log\frac{d\theta}{dz} = \log 2L + \log\sigma(z) + \log\sigma(-z)

All quantities are computed from :math:`\varphi = \pi/2 - |\theta|`, in which the tails keep their relative precision:
close to a right angle the cosine is as small as :math:`2L e^{-|z|}`, also in single precision, and its logarithm never
overflows. Sines and cosines are their Taylor polynomials in :math:`\varphi/2`, exact to rounding for
:math:`|\varphi| \le \pi/2`; XLA vectorises them on a CPU, unlike its own sine and cosine.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from geodax._types import Array, Float

_NUM_TERMS = 9  # of x^(2k): the next is below 1e-17 at pi/4
_SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(_NUM_TERMS)]
_COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(_NUM_TERMS)]


class Cut(NamedTuple):
    """Angles in intervals.

    Attributes:
        log_cosine: Logarithms of the cosines if the interval does not extend beyond a right angle.
    """

    cosine: Float[Array, " k"]
    sine: Float[Array, " k"]
    log_cosine: Float[Array, " k"]
    log_slope: Float[Array, " k"]


def cut_angles(z: Float[Array, " k"], widths: np.ndarray) -> Cut:
    """Compute angles in the intervals ``(-width, width)``, each at most a half turn, from unconstrained numbers."""
    dtype = z.dtype
    margin = jnp.asarray(math.pi / 2 - widths, dtype)
    log_lengths = jnp.asarray(np.log(2 * widths), dtype)
    sign = jnp.where(z < 0, jnp.asarray(-1, dtype), jnp.asarray(1, dtype))
    size = sign * z
    small = jnp.exp(-size)
    log_tail = -size - jnp.log1p(small)  # log sigma(-|z|)
    angle = margin + jnp.asarray(2 * widths, dtype) * (small / (1 + small))
    half = 0.5 * angle
    sine_ratio, cosine_half = _polynomial(half * half, _SINE), _polynomial(half * half, _COSINE)
    ratio = sine_ratio * cosine_half  # sin(angle) / angle
    sine_half = half * sine_ratio
    # without a margin the logarithm of the angle is known even if the angle itself underflows
    has_margin = widths < math.pi / 2
    is_short = widths <= math.pi / 2
    log_angle = log_lengths + log_tail
    if has_margin.any():
        log_angle = jnp.where(has_margin, jnp.log(jnp.where(is_short, angle, 1)), log_angle)
    return Cut(
        cosine=angle * ratio,
        sine=sign * (1 - 2 * sine_half * sine_half),
        log_cosine=jnp.where(is_short, log_angle + jnp.log(ratio), 0),
        log_slope=log_lengths + log_tail - jnp.log1p(small),
    )


def angles(z: Float[Array, " k"], widths: np.ndarray) -> Float[Array, " k"]:
    """Compute only the angles."""
    return jnp.asarray(widths, z.dtype) * jnp.tanh(0.5 * z)


def unconstrained(theta: Float[Array, " k"], widths: np.ndarray) -> Float[Array, " k"]:
    """Compute the inverse of :func:`angles`; an angle outside its interval is moved inside."""
    ends = jnp.asarray(widths, theta.dtype)
    below, above = ends + theta, ends - theta
    nearest = 2 * ends * jnp.finfo(theta.dtype).eps
    return jnp.log(jnp.maximum(below, nearest)) - jnp.log(jnp.maximum(above, nearest))


def _polynomial(y: Array, coefficients: list[float]) -> Array:
    value = jnp.full_like(y, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * y + coefficient
    return value
