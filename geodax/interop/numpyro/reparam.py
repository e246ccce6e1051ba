r"""Reparametrisers for the redundant transforms: a site becomes a function of an auxiliary vector.

The site ``W`` with density :math:`\pi` becomes a deterministic function :math:`W = Q(z)` of a new site ``W_polar`` (or
``W_householder``, ``W_circle``) with density :math:`\pi(Q(z)) \exp\ell(z)`, where :math:`\ell` is the transform's log
volume. So the site keeps its prior, whatever it is, and ``Predictive`` draws from it too: the parts of :math:`z` that
do not affect :math:`Q` are independent of :math:`Q`, so a draw of :math:`W` is completed by draws of them.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import Distribution, constraints
from numpyro.infer.reparam import Reparam

from geodax._types import Array, Float, PRNGKey
from geodax.geometry.transforms import AbstractTransform, Givens, Householder, Polar
from geodax.geometry.transforms.rotations import num_angles, pairs
from geodax.interop.numpyro.constraints import over_leading_axes
from geodax.interop.numpyro.distributions import _typed


class _Redundant(Distribution):
    pytree_data_fields = ("base_dist", "transform")
    arg_constraints = {}  # noqa: RUF012

    def __init__(self, base_dist: Distribution, transform: AbstractTransform, *, validate_args: bool | None = None):
        self.base_dist, self.transform = base_dist, transform
        super().__init__(base_dist.batch_shape, (transform.num_unconstrained,), validate_args=validate_args)

    @property
    def support(self) -> Any:
        return constraints.real_vector

    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        matrix, log_volume = over_leading_axes(self.transform.forward_and_log_volume, 1)(value)
        return self.base_dist.log_prob(matrix) + log_volume

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        key_matrix, key_rest = jax.random.split(_typed(key))
        matrices = jnp.asarray(self.base_dist.sample(key_matrix, sample_shape))
        keys = jax.random.split(key_rest, math.prod(matrices.shape[:-2])).reshape(matrices.shape[:-2])
        return jnp.vectorize(complete(self.transform), signature="(),(n,p)->(k)")(keys, matrices)


class _RedundantReparam(Reparam):
    suffix: str

    def transform(self, n: int, p: int) -> AbstractTransform:
        """Return the transform to n x p matrices."""
        raise NotImplementedError

    def __call__(self, name: str, fn: Distribution, obs: Any) -> tuple[None, Array]:
        """Implement NumPyro's protocol: return a site without distribution, and its value."""
        kind = type(self).__name__
        if obs is not None:
            raise ValueError(
                f"{kind}: the site {name!r} has a value, so it is observed, or is the output of a scan; only latent "
                "sites can be reparametrised, those of a scan by the handler inside the scanned function."
            )
        inner, expand_shape, event_dim = self._unwrap(fn)
        chart = getattr(inner.support, "chart", None)
        if chart is None:
            raise ValueError(
                f"{kind}: the site {name!r} has a {type(inner).__name__} with support {inner.support!r}; expected a "
                "distribution on stiefel(n, p)."
            )
        transform = self.transform(*chart.shape)
        auxiliary = self._wrap(_Redundant(inner, transform), expand_shape, event_dim - 1)
        z = numpyro.sample(f"{name}_{self.suffix}", auxiliary)
        return None, over_leading_axes(transform.forward, 1)(z)


class PolarReparam(_RedundantReparam):
    """``W`` is the polar factor of the n x p matrix whose rows are concatenated in the site ``W_polar``.

    It is smooth everywhere for ``p < n``: the first choice for NumPyro's NUTS if the posterior is wide or has modes on
    both sides of a chart's cuts. Square matrices of both determinants are covered.

    Example::

        model = numpyro.handlers.reparam(model, config={"W": PolarReparam()})
    """

    suffix = "polar"

    def transform(self, n: int, p: int) -> AbstractTransform:
        return Polar(n, p)


class HouseholderReparam(_RedundantReparam):
    """``W`` is a product of reflections by the vectors that are concatenated in the site ``W_householder``."""

    suffix = "householder"

    def transform(self, n: int, p: int) -> AbstractTransform:
        return Householder(n, p)


class CircleReparam(_RedundantReparam):
    """Givens angles whose longitudes are directions of pairs, so that chains can move around the circle.

    The site ``W_circle`` is the unconstrained vector of ``Givens(n, p, wrap="circle")``.
    """

    suffix = "circle"

    def transform(self, n: int, p: int) -> AbstractTransform:
        return Givens(n, p, wrap="circle")


def complete(transform: AbstractTransform) -> Callable[[PRNGKey, Float[Array, "n p"]], Float[Array, " k"]]:
    """Return ``(key, matrix) -> vector``, which draws the part of the vector that does not affect the matrix.

    For a matrix with density pi the vector has the density ``pi(Q(z)) exp(log_volume(z))``. The transform is ``Polar``,
    ``Householder`` or ``Givens`` with ``wrap="circle"``.
    """

    def polar(key: PRNGKey, q: Array) -> Array:
        x = jax.random.normal(key, q.shape, q.dtype)
        return (q @ (transform.forward(x.ravel()).T @ x)).ravel()

    def lengths(key: PRNGKey, q: Array) -> Array:
        z, groups = transform.inverse(q), _groups(transform)
        count, places = int(groups.max()) + 1, np.maximum(groups, 0)

        def squares(x: Array) -> Array:
            return jax.ops.segment_sum(jnp.where(groups >= 0, x * x, 0), places, count)

        ratio = jnp.sqrt(squares(jax.random.normal(key, z.shape, z.dtype)) / squares(z))
        return jnp.where(groups >= 0, ratio[places] * z, z)

    return polar if isinstance(transform, Polar) else lengths


def _groups(transform: AbstractTransform) -> np.ndarray:
    """For each entry of the vector the index of its direction, or -1."""
    n, p = transform.shape
    if isinstance(transform, Householder):
        return np.repeat(np.arange(p), n - np.arange(p))
    i, j = pairs(n, p)
    longitudes = np.flatnonzero(j == i + 1)
    groups = np.full(transform.num_unconstrained, -1)
    groups[longitudes] = groups[num_angles(n, p) :] = np.arange(longitudes.size)
    return groups
