r"""Small dense linear algebra that the manifolds stand on.

All functions act on the last two axes; leading axes are independent copies. Complex arrays are allowed, and then
"transpose" is the conjugate transpose and "skew" is skew-Hermitian.
"""

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
        pivot_row = rows[..., k : k + 1, :] / rows[..., k : k + 1, k : k + 1]
        rows = rows - rows[..., :, k : k + 1] * pivot_row
        rows = rows.at[..., k : k + 1, :].set(pivot_row)
    return rows


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


def one_by_one(function: Callable[[Array], PyTree], m: Inexact[Array, "*batch n p"]) -> PyTree:
    """``function(m)`` for a LAPACK routine, safe where several CPU devices compute side by side.

    JAX's LAPACK calls share the matrices of a batch out to the thread pool on which the devices' programs run, and wait
    for them. Where every thread runs a device's program and waits, none is left to work. Within ``jax.shard_map`` on
    CPUs the matrices are therefore handed over one at a time, which the calling thread does by itself.

    Args:
        function: A function of the last two axes. It is not differentiated in reverse mode there.
        m: The matrices.

    Returns:
        What ``function`` returns, the same numbers in either case.
    """
    if jax.sharding.get_abstract_mesh().empty or jax.default_backend() != "cpu":
        return function(m)
    single = jax.custom_batching.sequential_vmap(function)
    if m.ndim == 2:
        return single(m)
    batch = m.shape[:-2]
    out = jax.vmap(single)(m.reshape(-1, *m.shape[-2:]))
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), out)


def newton_schulz(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    """One Newton-Schulz step ``x (3 I - x^T x) / 2`` towards the nearest orthonormal matrix.

    The distance from orthonormality is squared, so one step removes the rounding errors of a trajectory.
    """
    return 1.5 * x - 0.5 * (x @ (adjoint(x) @ x))


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
    u, s, vh = one_by_one(lambda m: tuple(jnp.linalg.svd(m, full_matrices=False)), x)
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
        values, vectors = one_by_one(lambda m: tuple(jnp.linalg.eigh(m)), m)
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
