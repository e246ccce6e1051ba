r"""Distributions of orthonormal matrices defined by distributions of their Givens angles.

With angles :math:`\theta` of density :math:`q` the matrix :math:`Q(\theta)` has the density

.. math:: q(\theta) \Big/ \prod_{i<j} \cos^{j-i-1}\theta_{ij}

with respect to the uniform measure, up to the constant of the volume element. Priors on angles can be hierarchical,
for instance to shrink the subspaces of several groups towards a common one (Pourzanjani et al. 2021, section 6.3).
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro import distributions as dist

from geodax._types import Array, Float
from geodax.geometry.transforms import Givens
from geodax.geometry.transforms.rotations import num_angles, pairs
from geodax.interop.numpyro.constraints import ChartTransform, event_support, over_leading_axes

_SLACK = 1e-5  # bounds in single precision can lie beyond pi


class GivensAngles(dist.TransformedDistribution):
    """Orthonormal n x p matrices whose Givens angles have a given distribution.

    The angles are ordered 12, ..., 1n, 23, ..., 2n, ..., pn. Those of neighbours, 12, 23 and so on, are longitudes,
    within pi of ``shift``; all others are latitudes, between -pi/2 and pi/2. Under the uniform distribution of the
    matrix they are independent, longitudes uniform and latitudes with a density proportional to
    ``cos(angle) ** (j - i - 1)``.

    With ``numpyro.handlers.reparam(config={"W": TransformReparam()})`` the angles themselves become the site
    ``W_base``. Sample them in this way, since it avoids the inverse map from the matrix.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.
        angles: A distribution of vectors of ``n p - p (p + 1) / 2`` angles, or of single angles with this last batch
            axis; its support must be an interval. Bounds that are known only at run time, as under ``jit``, are not
            checked.
        shift: Middle of the ranges of the longitudes, one number or one for each of them.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: If the number of angles is wrong, or they can leave their ranges.
        TypeError: If ``angles`` is not a distribution of numbers in an interval.
    """

    arg_constraints = {}  # noqa: RUF012
    pytree_data_fields = ()

    def __init__(self, n: int, p: int, angles: Any, *, shift: Any = 0.0, validate_args: bool | None = None):
        if not isinstance(angles, dist.Distribution):
            raise TypeError(f"GivensAngles({n}, {p}): angles must be a NumPyro distribution, found {angles!r}.")
        if not angles.event_shape and angles.batch_shape:
            angles = angles.to_event(1)
        _check_ranges(n, p, angles, shift)
        chart = Givens(n, p, shift=shift if np.any(shift) else None)
        super().__init__(angles, AngleTransform(chart), validate_args=validate_args)

    @classmethod
    def normal(cls, n: int, p: int, loc: Any, scale: Any, *, shift: Any = 0.0) -> "GivensAngles":
        """Independent normal angles, truncated to their ranges.

        Example:
            A hierarchical prior of the subspaces of eight groups::

                mean = numpyro.sample("mean", GivensAngles.uniform_angles(n, p))
                spread = numpyro.sample("spread", dist.HalfNormal(0.5))
                with numpyro.plate("groups", 8):
                    W = numpyro.sample("W", GivensAngles.normal(n, p, mean, spread))

        Args:
            n: Number of rows.
            p: Number of columns.
            loc: Locations, of shape (..., n p - p (p + 1) / 2), or one for all.
            scale: Standard deviations before truncation, of the same shape, or one for all.
            shift: Middle of the ranges of the longitudes, one number or one for each of them.

        Returns:
            The distribution.
        """
        dtype = jnp.result_type(loc, scale, float)
        arrays = [jnp.atleast_1d(jnp.asarray(x, dtype)) for x in (loc, scale, *angle_ranges(n, p, shift))]
        shape = jnp.broadcast_shapes(*(x.shape for x in arrays))
        loc, scale, lower, upper = (jnp.broadcast_to(x, shape) for x in arrays)
        return cls(n, p, dist.TruncatedNormal(loc, scale, low=lower, high=upper).to_event(1), shift=shift)

    @staticmethod
    def uniform_angles(n: int, p: int, *, shift: Any = 0.0) -> Any:
        """Return the distribution of the angles (not of the matrix) that is uniform over their ranges."""
        lower, upper = angle_ranges(n, p, shift)
        return dist.Uniform(jnp.asarray(lower, float), jnp.asarray(upper, float)).to_event(1)


class AngleTransform(ChartTransform):
    """Transform from Givens angles to the matrix.

    Args:
        chart: A Givens transform; its shift determines which of the equivalent longitudes the inverse returns.
    """

    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch n p"]:
        return over_leading_axes(self.chart.compose, 1)(x)

    def _inverse(self, y: Float[Array, "*batch n p"]) -> Float[Array, "*batch d"]:
        theta = over_leading_axes(self.chart.decompose, 2)(y)
        if self.chart.shift is None:
            return theta
        places = _longitudes(self.chart.n, self.chart.p)
        turns = (theta[..., places] - self.chart.shift.astype(theta.dtype)) / (2 * math.pi)
        return theta.at[..., places].add(-2 * math.pi * jnp.round(turns))

    def log_abs_det_jacobian(self, x: Float[Array, "*batch d"], y: Any, intermediates: Any = None) -> Any:
        """Logarithm of the volume element of the uniform probability measure."""
        return angle_log_volume(x, self.chart.n, self.chart.p)


def angle_ranges(n: int, p: int, shift: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds of the angles, in the order 12, ..., 1n, 23, ..., pn.

    Args:
        n: Number of rows.
        p: Number of columns.
        shift: Middle of the ranges of the longitudes, one number or one for each of them.

    Returns:
        Two vectors.
    """
    places = _longitudes(n, p)
    half = np.full(num_angles(n, p), math.pi / 2)
    half[places] = math.pi
    middle = np.zeros_like(half)
    middle[places] = shift
    return middle - half, middle + half


def angle_log_volume(theta: Float[Array, "*batch d"], n: int, p: int) -> Float[Array, "*batch"]:
    """Compute the log density of Givens angles under the uniform distribution of the matrix.

    Args:
        theta: The angles, inside their ranges.
        n: Number of rows.
        p: Number of columns.

    Returns:
        The sum of ``(j - i - 1) log cos theta_ij`` and of the normalising constant.
    """
    i, j = pairs(n, p)
    distance = (j - i - 1).astype(float)
    is_latitude = distance > 0
    cosines = jnp.where(is_latitude, jnp.abs(jnp.cos(theta)), 1)
    return jnp.sum(jnp.asarray(distance, theta.dtype) * jnp.log(cosines), axis=-1) + _log_constant(n, p)


@functools.cache
def _log_constant(n: int, p: int) -> float:
    """Log density of zero angles; for square matrices the determinant is 1, which is half of the distribution."""
    i, j = pairs(n, p)
    distance = (j - i)[j - i > 1]
    latitudes = sum(math.lgamma(0.5) + math.lgamma(d / 2) - math.lgamma((d + 1) / 2) for d in distance)
    return -latitudes - min(p, n - 1) * math.log(2 * math.pi) - (math.log(2) if n == p else 0.0)


@functools.cache
def _longitudes(n: int, p: int) -> np.ndarray:
    i, j = pairs(n, p)
    return np.flatnonzero(j == i + 1)


def _check_ranges(n: int, p: int, angles: Any, shift: Any) -> None:
    """Raise unless the support of the angles is inside their ranges, as far as it is known."""
    name, count = f"GivensAngles({n}, {p})", num_angles(n, p)
    if angles.event_shape != (count,):
        raise ValueError(
            f"{name}: expected a distribution of vectors of {count} angles, found event shape {angles.event_shape} and "
            f"batch shape {angles.batch_shape}."
        )
    support = event_support(angles)
    lower, upper = (getattr(support, bound, None) for bound in ("lower_bound", "upper_bound"))
    if lower is None or upper is None:
        raise TypeError(
            f"{name}: the angles must lie in intervals, as those of dist.Uniform or dist.TruncatedNormal with low and "
            f"high do, but the support of {type(angles).__name__} is {support!r}."
        )
    if isinstance(lower, Tracer) or isinstance(upper, Tracer):
        return
    least, greatest = angle_ranges(n, p, shift)
    lower, upper = (np.broadcast_to(b, (*np.shape(b)[:-1], count)).reshape(-1, count) for b in (lower, upper))
    lower, upper = lower.min(axis=0), upper.max(axis=0)
    is_outside = (lower < least - _SLACK) | (upper > greatest + _SLACK)
    if is_outside.any():
        place = int(np.argmax(is_outside))
        i, j = (int(x[place]) + 1 for x in pairs(n, p))
        raise ValueError(
            f"{name}: expected angle {i}{j} in the range {least[place]:.6g} to {greatest[place]:.6g}, in which each "
            f"matrix has one vector of angles; found {lower[place]:.6g} to {upper[place]:.6g}."
            + (" Longitudes can be moved by shift=..." if j == i + 1 else "")
        )
