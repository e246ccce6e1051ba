r"""Small dense linear algebra that the manifolds stand on.

All functions act on the last two axes; leading axes are independent copies. Complex arrays are allowed, and then
"transpose" is the conjugate transpose and "skew" is skew-Hermitian.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Inexact

from geodax._types import Array, PyTree

# Numerator coefficients of the diagonal [7/7] Pade approximant of exp, from the constant upwards.
_PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_LARGEST_UNROLLED = 10  # beyond this size elimination goes block by block
_BLOCK = 8
_LARGEST_LOOPED = 40  # and beyond this one by halves
_PADE_7_RADIUS = 0.95  # one-norm below which [7/7] is exact to float64 rounding (Higham 2005, table 2.3)
_MOST_NEWTON_STEPS = 100
# Multiplications, n p min(n, p) a matrix. JAX 0.10 shares batches out from about 32,000 on.
_LEAST_SHARED_OUT = 8_000


def adjoint(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch p n"]:
    """Conjugate transpose of the last two axes."""
    return jnp.conj(jnp.swapaxes(x, -1, -2)) if jnp.iscomplexobj(x) else jnp.swapaxes(x, -1, -2)


def sym(m: Inexact[Array, "*batch p p"]) -> Inexact[Array, "*batch p p"]:
    """Symmetric (Hermitian) part."""
    return 0.5 * (m + adjoint(m))


def skew(m: Inexact[Array, "*batch p p"]) -> Inexact[Array, "*batch p p"]:
    """Skew-symmetric (skew-Hermitian) part."""
    return 0.5 * (m - adjoint(m))


def eye_like(m: Inexact[Array, "*batch n p"]) -> Inexact[Array, "p p"]:
    """Identity of the size of the last axis, with the dtype of ``m``."""
    return jnp.eye(m.shape[-1], dtype=m.dtype)


def solve_accretive(m: Inexact[Array, "*batch k k"], b: Inexact[Array, "*batch k j"]) -> Inexact[Array, "*batch k j"]:
    """Solve ``m x = b`` for a matrix with positive definite symmetric part, such as the identity plus a skew matrix.

    Such a matrix needs no pivoting (Golub and Van Loan 1979), and its blocks and Schur complements are of the same
    kind. So systems are eliminated by a few fused vector operations, block by block, or half by half, which is nearly
    all products, without a call to LAPACK, whose threads wait for each other where many chains solve at once.

    Args:
        m: The matrices. Their symmetric part must be positive definite.
        b: Right-hand sides.

    Returns:
        The solutions.
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
    """Solve for the upper half of the unknowns in terms of the lower half, which solves the Schur complement."""
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
    """The solution of :func:`solve_accretive` for real matrices of a few rows, and the logarithm of the determinant.

    Args:
        m: The matrices; up to 40 rows without LAPACK. Their symmetric part must be positive definite.
        b: Right-hand sides.

    Returns:
        The solutions, and ``log det m``.
    """
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


def expm_skew(s: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Exponential of a small skew matrix, orthogonal (unitary) to rounding.

    A diagonal Pade approximant maps skew matrices to orthogonal ones exactly, and squaring keeps them so; the
    number of squarings follows the norm. Differentiable in forward mode.

    Args:
        s: Skew-symmetric or skew-Hermitian matrices.

    Returns:
        ``exp(s)``. Non-finite input gives non-finite output.
    """
    real = jnp.finfo(s.dtype).dtype
    norm = jnp.max(jnp.sum(jnp.abs(s), axis=-2), initial=0.0)
    radius = jnp.asarray(_PADE_7_RADIUS, real)
    halvings = jnp.ceil(jnp.log2(jnp.maximum(norm, radius) / radius))
    halvings = jnp.where(jnp.isfinite(halvings), halvings, 0)
    s = s * (0.5**halvings).astype(s.dtype)
    s2 = s @ s
    s4 = s2 @ s2
    s6 = s4 @ s2
    b = _PADE_7
    identity = jnp.broadcast_to(eye_like(s), s.shape)
    odd = s @ (b[7] * s6 + b[5] * s4 + b[3] * s2 + b[1] * identity)
    even = b[6] * s6 + b[4] * s4 + b[2] * s2 + b[0] * identity
    exponential = solve_accretive(even - odd, even + odd)
    return jax.lax.fori_loop(0, halvings.astype(jnp.int32), lambda _, e: e @ e, exponential)


def cayley_skew(s: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Cayley transform ``(I - s/2)^-1 (I + s/2)`` of a small skew matrix: orthogonal, ``exp(s)`` to second order."""
    identity = jnp.broadcast_to(eye_like(s), s.shape)
    return solve_accretive(identity - 0.5 * s, identity + 0.5 * s)


def cholesky(m: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Lower triangular ``l`` with ``l l^* = m``, for symmetric (Hermitian) positive definite matrices.

    Up to 40 rows column by column, in fused vector operations, without LAPACK's threads, which can wait for each other
    for ever (see :func:`in_pieces`).

    Args:
        m: The matrices; of each the symmetric part is used.

    Returns:
        The factors. Where ``m`` is not positive definite, they have entries that are NaN.
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
    """Solve ``l x = b`` or ``l^* x = b`` with lower triangular matrices; up to 40 rows without LAPACK, as `cholesky`.

    Args:
        lower: The matrices. What stands above their diagonals is not looked at.
        b: Right-hand sides.
        transpose: Whether to solve with the (conjugate) transpose.

    Returns:
        The solutions.
    """
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


def in_pieces(function: Callable[[Array], PyTree], m: Inexact[Array, "*batch n p"]) -> PyTree:
    """``function(m)`` for a LAPACK routine that no thread waits in.

    On CPUs, JAX shares the matrices of a large batch out to the thread pool that also runs the operations of a program
    side by side, and waits for them there. Where every thread of the pool waits (on a machine of two cores that takes
    two such calls that do not depend on each other, or two devices), none is left to work, and the program never ends.
    Batches of that size are therefore handed over in pieces so small that the calling thread does them by itself.

    Args:
        function: A function of the last two axes. Derivatives are its own, with the whole batch at once.
        m: The matrices; more may come by ``jax.vmap``.

    Returns:
        What ``function`` returns, the same numbers in any case.
    """
    if jax.default_backend() != "cpu":
        return function(m)
    cut = jax.custom_jvp(_cut(function))
    cut.defjvp(lambda primals, tangents: jax.jvp(function, primals, tangents))
    return cut(m)


def _cut(function: Callable[[Array], PyTree]) -> Callable[[Array], PyTree]:
    @jax.custom_batching.custom_vmap
    def apply(m: Array) -> PyTree:
        batch, (n, p) = m.shape[:-2], m.shape[-2:]
        if math.prod(batch) == 1 or math.prod(batch) * n * p * min(n, p) < _LEAST_SHARED_OUT:
            return function(m)
        out = jax.lax.map(function, m.reshape(-1, n, p), batch_size=max(1, _LEAST_SHARED_OUT // (n * p * min(n, p))))
        return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), out)

    @apply.def_vmap
    def _(axis_size: int, in_batched: list[bool], m: Array) -> tuple[PyTree, PyTree]:
        out = _cut(function)(m)
        return out, jax.tree.map(lambda _: True, out)

    return apply


def newton_schulz(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    """One Newton-Schulz step ``x (3 I - x^T x) / 2`` towards the nearest orthonormal matrix.

    The distance from orthonormality is squared, so one step removes the rounding errors of a trajectory.
    """
    return 1.5 * x - 0.5 * (x @ (adjoint(x) @ x))


def inverse_sqrt_correction(e: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    r"""``(I + e)^(-1/2) - I`` by products alone, for ``I + e`` symmetric (Hermitian) and positive definite.

    The first polynomial, :math:`-e/2 + 3 e^2 / 8`, is all that a small ``e`` needs: two products. What it leaves of
    ``e`` is cubed in each further round. Where the norm is not below one, ``I + e`` is scaled first.

    Args:
        e: The matrices. The difference from the identity is asked for, and returned, because it is small, and would
            lose its digits in a sum.

    Returns:
        The corrections, to eight roundings in each direction. Not finite where ``e`` is not.
    """
    identity = jnp.broadcast_to(eye_like(e), e.shape)
    least = 8.0 * jnp.finfo(e.dtype).eps

    def size(squared: Array) -> Array:
        """At least the spectral norm, from the square: the fourth root of the sum of the eigenvalues' fourth powers."""
        return jnp.max(jnp.sqrt(jnp.linalg.norm(squared, axis=(-2, -1))), initial=0.0)

    squared = e @ e
    shrink = jnp.where(size(squared) < 1.0, 1.0, 1.0 / (1.0 + size(squared))).astype(e.dtype)
    scaled = shrink * e - (1.0 - shrink) * identity
    squared = shrink**2 * squared - 2.0 * shrink * (1.0 - shrink) * e + (1.0 - shrink) ** 2 * identity
    first = 0.375 * squared - 0.5 * scaled

    def is_open(carry):
        count, *_, left = carry
        return (count < _MOST_NEWTON_STEPS) & (left > least)

    def improve(carry):
        count, found, rest, step, _ = carry
        # what is left is turned by each step from both sides, so that rounding errors need not commute with it
        turned = step + rest @ step
        rest = rest + turned + adjoint(turned) + step @ turned
        squared = rest @ rest
        step = 0.375 * squared - 0.5 * rest
        return count + 1, found + step + found @ step, rest, step, 0.625 * size(squared) ** 3

    start = (0, first, scaled, first, 0.625 * size(squared) ** 3)
    found = jax.lax.while_loop(is_open, improve, start)[1]
    root = jnp.sqrt(shrink)
    return root * found - (1.0 - root) * identity


@jax.custom_jvp
def polar_factor(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    r"""Orthonormal factor of the polar decomposition: the orthonormal matrix nearest to ``x`` in Frobenius norm.

    With :math:`x = u\, \mathrm{diag}(s)\, v^*` it is :math:`q = u v^*`, and its derivative, which needs no two singular
    values to differ,

    .. math::
        dq = u \left[\frac{(a - a^*)_{ij}}{s_i + s_j}\right] v^* + (I - u u^*)\, dx\, v s^{-1} v^*
        + u s^{-1} u^* dx\, (I - v v^*), \qquad a = u^* dx\, v .
    """
    u, _, vh = _thin_svd(x)
    return u @ vh


@polar_factor.defjvp
def _polar_factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    u, s, vh = _thin_svd(x)
    uh, v = adjoint(u), adjoint(vh)
    a = uh @ dx @ v
    s = s.astype(x.dtype)
    turned = (a - adjoint(a)) / (s[..., :, None] + s[..., None, :])
    left, right = dx @ v - u @ a, uh @ dx - a @ vh
    change = u @ turned @ vh + (left / s[..., None, :]) @ vh + u @ (right / s[..., :, None])
    return u @ vh, change


def _thin_svd(x: Inexact[Array, "*batch n p"]) -> tuple[Array, Array, Array]:
    u, s, vh = in_pieces(lambda m: tuple(jnp.linalg.svd(m, full_matrices=False)), x)
    return u, s, vh


def qr_positive(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    """Orthonormal QR factor with the sign (phase) that makes the diagonal of R positive.

    Without that fix the factor of a Gaussian matrix is not Haar distributed (Mezzadri 2007).
    """
    q, r = jnp.linalg.qr(x)
    diagonal = jnp.diagonal(r, axis1=-2, axis2=-1)
    phase = jnp.where(diagonal == 0, jnp.ones_like(diagonal), diagonal / jnp.abs(diagonal).astype(diagonal.dtype))
    return q * phase[..., None, :]


def inverse_root(
    m: Inexact[Array, "*batch k k"], power: int, epsilon: float, method: str = "eigh"
) -> Inexact[Array, "*batch k k"]:
    """``m ** (-1 / power)`` of symmetric positive semidefinite matrices.

    Args:
        m: The matrices.
        power: A positive whole number; a power of two for ``"newton"``.
        epsilon: Eigenvalues below it count as it (``"eigh"``), or it is added to all (``"newton"``). In the dtype's
            precision nothing below the rounding error of the largest eigenvalue can be told apart, which is the least
            bound in any case.
        method: ``"eigh"``, or ``"newton"`` for the coupled Newton iteration (Iannazzo 2006), made of products only.

    Returns:
        The roots, symmetric to rounding.
    """
    rounding = m.shape[-1] * jnp.finfo(m.dtype).eps
    if method == "eigh":
        values, vectors = in_pieces(lambda m: tuple(jnp.linalg.eigh(m)), m)
        least = jnp.maximum(rounding * values[..., -1:], epsilon)
        scaled = vectors * (jnp.maximum(values, least) ** (-1.0 / power))[..., None, :]
        return scaled @ jnp.swapaxes(vectors, -1, -2)
    identity = jnp.broadcast_to(eye_like(m), m.shape)
    norm = jnp.sqrt(jnp.sum(m * m, axis=(-1, -2), keepdims=True))
    shifted = m + jnp.maximum(rounding * norm, epsilon) * identity
    # eigenvalues of z * shifted in (0, 1): the iteration converges from below
    z = 1.0 / (norm + jnp.maximum(rounding * norm, epsilon))
    start = (identity * z ** (1.0 / power), shifted * z)

    def is_open(carry):
        count, _, _, error = carry
        return (count < _MOST_NEWTON_STEPS) & (error > 10 * rounding)

    def improve(carry):
        count, root, residual, _ = carry
        step = ((power + 1.0) * identity - residual) / power
        new = root @ step
        raised = step
        for _ in range(power.bit_length() - 1):
            raised = raised @ raised
        residual = raised @ residual
        return count + 1, new, residual, jnp.max(jnp.abs(residual - identity))

    first = jnp.max(jnp.abs(start[1] - identity))
    _, root, _, _ = jax.lax.while_loop(is_open, improve, (0, *start, first))
    return 0.5 * (root + jnp.swapaxes(root, -1, -2))
