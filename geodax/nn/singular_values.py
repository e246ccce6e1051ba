"""The prior distribution of the singular values of a low-rank weight."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.nn.densities import AbstractStructuredPrior, check_scale, drawn_in, python_number, rounded


def _size(value: Any) -> int:
    return _checks.whole("SingularValues", "a size", value)


class SingularValues(AbstractStructuredPrior):
    r"""Singular values of a Gaussian m x n matrix of rank r, in the coordinates ``log_gaps``.

    The density :math:`\exp(-|W|^2 / 2\sigma^2)` with respect to the volume of the manifold of matrices of rank r makes
    U and V uniform and independent of the ordered singular values, whose density is proportional to

    .. math::
        \prod_i s_i^{m + n - 2r} e^{-s_i^2 / 2\sigma^2} \prod_{i < j} (s_i^2 - s_j^2):

    the density of the singular values of an ordinary Gaussian matrix r x (m + n - r). With r = min(m, n) all entries of
    W are independent normal. The coordinates are the logarithms of :math:`s_1 - s_2, \dots, s_{r-1} - s_r, s_r`.

    Args:
        num_rows: m.
        num_columns: n, the fan-in.
        scale: :math:`\sigma`, or ``"fan_in"``: then :math:`E|W|^2 = 2m` as for full matrices.
    """

    num_rows: int = eqx.field(static=True, converter=_size)
    num_columns: int = eqx.field(static=True, converter=_size)
    scale: float | str = eqx.field(static=True, default="fan_in", converter=python_number)

    def __check_init__(self):
        check_scale(self.scale, "SingularValues")

    def log_density(self, x: Float[Array, " r"]) -> Scalar:
        r = x.shape[0]
        wide, sigma = self.num_rows + self.num_columns - r, self._sigma(r)
        x = _tree.widened(x)
        gaps = jnp.exp(x)
        s = ordered_scales(x)
        upper = jnp.arange(r)[:, None] < jnp.arange(r)[None]
        # a sum is at least its first gap, even after rounding
        differences = jnp.maximum(s[:, None] - s[None], gaps[:, None])
        products = jnp.where(upper, differences * (s[:, None] + s[None]), 1.0)
        log_constant = (
            0.5 * r * r * math.log(math.pi)
            - 0.5 * r * wide * math.log(2.0)
            - _log_multigamma(0.5 * wide, r)
            - _log_multigamma(0.5 * r, r)
            + r * math.log(2.0)
            - r * wide * math.log(sigma)
        )
        energy = 0.5 * jnp.sum(s * s) / sigma**2
        return log_constant - energy + (wide - r) * jnp.sum(jnp.log(s)) + jnp.sum(jnp.log(products)) + jnp.sum(x)

    def sample(self, key: PRNGKey, like: Float[Array, " r"]) -> Float[Array, " r"]:
        r = like.shape[0]
        wide = self.num_rows + self.num_columns - r
        s = self._sigma(r) * jnp.linalg.svd(jax.random.normal(key, (r, wide), drawn_in(like)), compute_uv=False)
        return rounded(jnp.log(s - jnp.append(s[1:], jnp.zeros(1, s.dtype))), like)

    def _sigma(self, r: int) -> float:
        if not 1 <= r <= min(self.num_rows, self.num_columns):
            raise ValueError(
                f"SingularValues: a {self.num_rows} x {self.num_columns} matrix has between 1 and "
                f"{min(self.num_rows, self.num_columns)} singular values, found {r}."
            )
        if isinstance(self.scale, str):
            return math.sqrt(2.0 * self.num_rows / (r * (self.num_rows + self.num_columns - r)))
        return self.scale


def ordered_scales(log_gaps: Float[Array, " r"]) -> Float[Array, " r"]:
    """Convert log gaps to descending positive numbers, by cumulative sums from the smallest upwards."""
    return jnp.cumsum(jnp.exp(log_gaps)[::-1])[::-1]


def _log_multigamma(a: float, r: int) -> float:
    return 0.25 * r * (r - 1) * math.log(math.pi) + sum(math.lgamma(a - 0.5 * j) for j in range(r))
