r"""An orthogonal matrix whose first columns are given, stored as a product of reflections.

:math:`G = (I - V T V^T) D` with :math:`V` of :math:`p` columns (Schreiber and Van Loan 1989) costs ``O(n p^2)`` to
apply to an ``n x p`` matrix, while a dense one costs ``O(n^2 p)``.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.core import Tracer

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._types import Array, Float
from geodax.geometry.linalg import polar_factor


@with_full_precision
class Completion(eqx.Module):
    """Orthogonal ``n x n`` matrix whose first ``p`` columns are a given frame."""

    vectors: Float[Array, "n p"]
    triangle: Float[Array, "p p"]
    signs: Float[Array, " n"]

    def apply(self, y: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Multiply a matrix."""
        vectors, triangle, signs = self._cast(y)
        y = signs[:, None] * y
        return y - vectors @ (triangle @ (vectors.T @ y))

    def apply_transpose(self, y: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Multiply a matrix by the transpose."""
        vectors, triangle, signs = self._cast(y)
        return signs[:, None] * (y - vectors @ (triangle.T @ (vectors.T @ y)))

    def _cast(self, like: Array) -> tuple[Array, Array, Array]:
        return self.vectors.astype(like.dtype), self.triangle.astype(like.dtype), self.signs.astype(like.dtype)


def complete(frame: Float[Array, "n p"]) -> Completion:
    """Reduce a frame to columns of the identity with signs by Householder reflections."""
    n, p = frame.shape
    rest, vectors, signs = frame, [], []
    for i in range(p):
        column = jnp.where(jnp.arange(n) >= i, rest[:, i], 0)
        sign = jnp.where(column[i] < 0, -1.0, 1.0).astype(frame.dtype)
        vector = column.at[i].add(sign * jnp.linalg.norm(column))
        vector = vector / jnp.linalg.norm(vector)
        rest = rest - 2.0 * jnp.outer(vector, vector @ rest)
        vectors.append(vector)
        signs.append(-sign)
    v = jnp.stack(vectors, axis=1)
    inverse = jnp.triu(v.T @ v, 1) + 0.5 * jnp.eye(p, dtype=frame.dtype)
    triangle = jnp.linalg.inv(inverse)
    return Completion(v, triangle, jnp.ones(n, frame.dtype).at[:p].set(jnp.stack(signs)))


def middle(frames: Float[Array, "*batch n p"]) -> Float[Array, "n p"]:
    """The orthonormal matrix nearest to the mean of some frames."""
    return polar_factor(jnp.mean(frames.reshape(-1, *frames.shape[-2:]), axis=0))


def check_center(name: str, center: Any, shape: tuple[int, int]) -> Array:
    """Convert the center of a chart to an array; ValueError unless it is an orthonormal matrix of the shape."""
    center = _checks.array(name, "center", center, half=False)
    if center.shape != shape or not jnp.issubdtype(center.dtype, jnp.floating):
        raise ValueError(
            f"{name}: center must be a real orthonormal matrix of shape {shape}, found shape {center.shape} and dtype "
            f"{center.dtype}."
        )
    if not isinstance(center, Tracer):
        defect = float(jnp.max(jnp.abs(center.T @ center - jnp.eye(shape[1], dtype=center.dtype))))
        if not defect < 1e3 * jnp.finfo(center.dtype).eps:
            raise ValueError(
                f"{name}: center must have orthonormal columns, but center^T center differs from the identity by "
                f"{defect:.2g}; gx.Stiefel().nearest gives the nearest orthonormal matrix."
            )
    return center
