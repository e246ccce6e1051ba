r"""Orthonormal matrices as products of reflections by Gaussian vectors.

.. math:: Q = F(x_1) \begin{pmatrix} 1 & \\ & F(x_2) \end{pmatrix} \cdots\, I_{n,p}, \qquad x_i \in R^{n-i+1}

:math:`F(x) = 2 u u^T - I` with :math:`u` in the middle between :math:`x` and :math:`e_1` maps :math:`e_1` to
:math:`x / |x|`. With independent standard normal :math:`x_i` the product is uniformly distributed (Stewart 1980, SIAM
Journal on Numerical Analysis 17, 403); this is the reference distribution, and the lengths of the vectors are
redundant.

The product is computed in one step. With :math:`F = D (I - 2uu^T)`, :math:`D` the change of sign of the rows from
:math:`i` on, which commutes with all later factors,

.. math:: Q = (I - U T U^T)\, I_{n,p}\, \mathrm{diag}(-1, 1, -1, \dots), \qquad
    T^{-1} = \tfrac12 I + \mathrm{striu}(U^T U),

where the columns of :math:`U` are the vectors :math:`u_i` (Schreiber and Van Loan 1989).
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax._precision import with_full_precision
from geodax._types import Array, Float, Scalar
from geodax.geometry.linalg import solve_lower
from geodax.geometry.transforms.base import AbstractTransform, check_matrix, check_size, check_vector
from geodax.geometry.transforms.polar import standard_normal_log_density


@with_full_precision
class Householder(AbstractTransform):
    """Product of ``p`` reflections by vectors of standard normal entries; redundant.

    The vector holds ``x_1`` with n entries, ``x_2`` with n - 1, and so on. The map is smooth except for vectors ``x_i``
    on the negative half of the first axis, which a path avoids unless the vector has two entries or fewer. All square
    matrices are covered; the last vector is then a number, and the determinant jumps with its sign.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.

    Raises:
        ValueError: Unless ``n >= p >= 1``.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)

    def __init__(self, n: int, p: int):
        n, p = check_size("Householder", n, p)
        self.n, self.p = n, p

    @property
    def num_unconstrained(self) -> int:
        """One more for each column than the dimension of the manifold."""
        return self.n * self.p - self.p * (self.p - 1) // 2

    @property
    def is_injective(self) -> bool:
        """False: the lengths of the vectors are redundant."""
        return False

    def forward(self, z: Float[Array, " k"]) -> Float[Array, "n p"]:
        z = check_vector(self, z)
        places, is_there = _places(self.n, self.p)
        x = jnp.where(is_there, z[places], 0)
        u = _mirrors(x, x[: self.p])
        overlaps = jnp.triu(u.T @ u, 1) + 0.5 * jnp.eye(self.p, dtype=z.dtype)
        signs = jnp.asarray((-1.0) ** np.arange(1, self.p + 1), z.dtype)
        turned = u @ solve_lower(overlaps.T, u[: self.p].T, transpose=True)
        return (jnp.eye(self.n, self.p, dtype=z.dtype) - turned) * signs[None, :]

    def log_volume(self, z: Float[Array, " k"]) -> Scalar:
        z = check_vector(self, z)
        return standard_normal_log_density(z)

    def inverse(self, q: Float[Array, "n p"]) -> Float[Array, " k"]:
        """Return vectors whose squared lengths are the means ``n``, ``n - 1``, and so on."""
        q = check_matrix(self, q)
        row = jnp.arange(self.n)

        def column(rest, i):
            x = jnp.where(row >= i, rest[:, i], 0)
            u = _mirrors(x[:, None], jax.lax.dynamic_slice(x, (i,), (1,))[:, None], i)[:, 0]
            turned = jnp.where((row >= i)[:, None], 2 * jnp.outer(u, u @ rest) - rest, 0)
            return turned, x

        _, vectors = jax.lax.scan(column, q, jnp.arange(self.p))
        lengths = np.sqrt(self.n - np.arange(self.p))
        columns, rows = np.nonzero(_places(self.n, self.p)[1].T)
        return (jnp.asarray(lengths, q.dtype)[:, None] * vectors)[columns, rows]


def _mirrors(x: Array, top: Array, first: Array | int = 0) -> Array:
    """Unit vectors ``u_i`` in the middle between columns ``x_i`` and the axes ``first + i``; zero if opposite."""
    count = x.shape[1]
    diagonal = jnp.diagonal(top)
    is_axis = jnp.arange(x.shape[0])[:, None] == first + jnp.arange(count)[None, :]
    length = jnp.sqrt(jnp.sum(x * x, axis=0))
    below = jnp.sum(jnp.where(is_axis, 0, x) ** 2, axis=0)
    # |x| + x_i without cancellation
    pivot = jnp.where(diagonal > 0, length + diagonal, below / jnp.where(diagonal > 0, 1, length - diagonal))
    is_opposite = pivot == 0
    norm = jnp.sqrt(jnp.where(is_opposite, 1, 2 * length * pivot))
    mirrors = jnp.where(is_axis, pivot[None, :], x) / norm[None, :]
    return jnp.where(is_opposite[None, :], 0, mirrors)


@functools.cache
def _places(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Index in the vector of each entry of the lower trapezoid, and a mask of these entries."""
    row, column = np.ogrid[:n, :p]
    is_there = row >= column
    starts = column * (2 * n - column + 1) // 2
    return np.where(is_there, starts + row - column, 0), is_there
