"""Factors and linear systems of small matrices in fused vector operations.

LAPACK's threads wait for each other if many chains solve at once, and can deadlock (see
:func:`~geodax.geometry.linalg.in_pieces`); so it is called only for more than 40 rows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Inexact

from geodax._types import Array
from geodax.geometry.linalg.parts import adjoint, sym

_LARGEST_UNROLLED = 10  # above this size elimination proceeds by blocks
_BLOCK = 8
_LARGEST_LOOPED = 40  # and above this one by halves


def solve_accretive(m: Inexact[Array, "*batch k k"], b: Inexact[Array, "*batch k j"]) -> Inexact[Array, "*batch k j"]:
    """Solve ``m x = b`` for a matrix with positive definite symmetric part, such as the identity plus a skew matrix.

    Such a matrix needs no pivoting (Golub and Van Loan 1979), and its blocks and Schur complements are of the same
    kind. So systems are eliminated by a few fused vector operations, block by block or half by half, mostly by
    products, without calling LAPACK, whose threads wait for each other if many chains solve at once.
    """
    size = m.shape[-1]
    if size > _LARGEST_LOOPED:
        return _solve_by_halves(m, b)
    rows = jnp.concatenate([m, b], axis=-1)
    if size <= _LARGEST_UNROLLED:
        return _eliminate(rows)[..., size:]
    padding = -size % _BLOCK
    if padding:  # with rows and columns of an identity
        last = jnp.broadcast_to(jnp.eye(padding, dtype=m.dtype), (*m.shape[:-2], padding, padding))
        right, below = jnp.zeros_like(m[..., :padding]), jnp.zeros_like(rows[..., :padding, :])
        rows = jnp.concatenate([rows[..., :size], right, rows[..., size:]], axis=-1)
        rows = jnp.concatenate([rows, jnp.concatenate([below[..., :size], last, below[..., size:]], axis=-1)], axis=-2)

    def eliminate_block(k: Array, rows: Array) -> Array:
        start = k * _BLOCK
        pivot_rows = jax.lax.dynamic_slice_in_dim(rows, start, _BLOCK, axis=-2)
        pivot = jax.lax.dynamic_slice_in_dim(pivot_rows, start, _BLOCK, axis=-1)
        solved = _eliminate(jnp.concatenate([pivot, pivot_rows], axis=-1))[..., _BLOCK:]
        rows = rows - jax.lax.dynamic_slice_in_dim(rows, start, _BLOCK, axis=-1) @ solved
        return jax.lax.dynamic_update_slice_in_dim(rows, solved, start, axis=-2)

    rows = jax.lax.fori_loop(0, (size + padding) // _BLOCK, eliminate_block, rows)
    return rows[..., :size, size + padding :]


def _solve_by_halves(m: Inexact[Array, "*batch k k"], b: Inexact[Array, "*batch k j"]) -> Inexact[Array, "*batch k j"]:
    """Eliminate the upper half of the unknowns and solve the Schur complement for the lower half."""
    size = m.shape[-1]
    half = -(-size // (2 * _BLOCK)) * _BLOCK
    solved = solve_accretive(m[..., :half, :half], jnp.concatenate([m[..., :half, half:], b[..., :half, :]], axis=-1))
    left = jnp.concatenate([m[..., half:, half:], b[..., half:, :]], axis=-1) - m[..., half:, :half] @ solved
    lower = solve_accretive(left[..., : size - half], left[..., size - half :])
    upper = solved[..., size - half :] - solved[..., : size - half] @ lower
    return jnp.concatenate([upper, lower], axis=-2)


def _eliminate(rows: Inexact[Array, "*batch k j"]) -> Inexact[Array, "*batch k j"]:
    """Gauss-Jordan elimination of the first k columns."""
    for k in range(rows.shape[-2]):
        rows = _eliminate_column(rows, k)
    return rows


def _eliminate_column(rows: Inexact[Array, "*batch k j"], k: int) -> Inexact[Array, "*batch k j"]:
    pivot_row = rows[..., k : k + 1, :] / rows[..., k : k + 1, k : k + 1]
    rows = rows - rows[..., :, k : k + 1] * pivot_row
    return rows.at[..., k : k + 1, :].set(pivot_row)


def solve_accretive_and_log_det(
    m: Inexact[Array, "*batch k k"], b: Inexact[Array, "*batch k j"]
) -> tuple[Inexact[Array, "*batch k j"], Inexact[Array, "*batch"]]:
    """Solve as :func:`solve_accretive` for real matrices, and compute ``log det m``; up to 40 rows without LAPACK."""
    size = m.shape[-1]
    if size > _LARGEST_LOOPED:
        factors = jax.scipy.linalg.lu_factor(m)
        log_diagonal = jnp.log(jnp.abs(jnp.diagonal(factors[0], axis1=-2, axis2=-1)))
        return jax.scipy.linalg.lu_solve(factors, b), jnp.sum(log_diagonal, axis=-1)
    rows = jnp.concatenate([m, b], axis=-1)
    log_determinant = jnp.zeros(m.shape[:-2], m.dtype)
    for k in range(size):
        log_determinant = log_determinant + jnp.log(rows[..., k, k])
        rows = _eliminate_column(rows, k)
    return rows[..., size:], log_determinant


def cholesky(m: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Compute the lower triangular ``l`` with ``l l^* = m``, for symmetric (Hermitian) positive definite matrices.

    Up to 40 rows it works column by column in fused vector operations, without LAPACK's threads, which can deadlock
    (see :func:`~geodax.geometry.linalg.in_pieces`). The symmetric part of ``m`` is used; if it is not positive
    definite, ``l`` contains NaN.
    """
    size = m.shape[-1]
    if size > _LARGEST_LOOPED:
        return jnp.linalg.cholesky(m)
    rest, columns = sym(m), []
    for k in range(size):
        column = rest[..., :, :1] / jnp.sqrt(rest[..., :1, :1])
        below = column[..., 1:, :]
        rest = rest[..., 1:, 1:] - below * adjoint(below)
        columns.append(jnp.concatenate([jnp.zeros((*column.shape[:-2], k, 1), m.dtype), column], axis=-2))
    return jnp.concatenate(columns, axis=-1)


def solve_lower(
    lower: Inexact[Array, "*batch k k"], b: Inexact[Array, "*batch k j"], *, transpose: bool = False
) -> Inexact[Array, "*batch k j"]:
    """Solve ``l x = b`` or ``l^* x = b`` with lower triangular matrices; up to 40 rows without LAPACK."""
    size = lower.shape[-1]
    if size > _LARGEST_LOOPED:
        return jax.lax.linalg.triangular_solve(
            lower, b, left_side=True, lower=True, transpose_a=transpose, conjugate_a=transpose
        )
    unknowns, rest = [], b
    for k in reversed(range(size)) if transpose else range(size):
        diagonal = lower[..., k : k + 1, k : k + 1]
        if transpose:
            unknowns.insert(0, rest[..., -1:, :] / jnp.conj(diagonal))
            rest = rest[..., :-1, :] - adjoint(lower[..., k : k + 1, :k]) * unknowns[0]
        else:
            unknowns.append(rest[..., :1, :] / diagonal)
            rest = rest[..., 1:, :] - lower[..., k + 1 :, k : k + 1] * unknowns[-1]
    return jnp.concatenate(unknowns, axis=-2)
