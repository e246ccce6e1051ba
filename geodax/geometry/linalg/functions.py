"""Functions of small matrices: exponentials, Cayley transforms, orthonormal factors and inverse roots."""

import jax
import jax.numpy as jnp
from jaxtyping import Inexact

from geodax._precision import in_full_precision
from geodax._types import Array, Scalar
from geodax.geometry.linalg.parts import adjoint, eye_like, longest_row
from geodax.geometry.linalg.pieces import in_pieces, unless
from geodax.geometry.linalg.systems import solve_accretive

# Numerator coefficients of the diagonal [7/7] Pade approximant of exp, starting with the constant.
_PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_PADE_7_RADIUS = 0.95  # one-norm below which [7/7] is exact to float64 rounding (Higham 2005, table 2.3)
_MOST_NEWTON_STEPS = 100


@in_full_precision
def expm_skew(s: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Compute the exponential of a small skew matrix, orthogonal (unitary) to rounding.

    A diagonal Pade approximant maps skew matrices to orthogonal ones exactly, and squaring preserves this; the
    number of squarings depends on the norm. Differentiable in forward mode.
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


@in_full_precision
def cayley_skew(s: Inexact[Array, "*batch k k"]) -> Inexact[Array, "*batch k k"]:
    """Cayley transform ``(I - s/2)^-1 (I + s/2)`` of a small skew matrix: orthogonal, ``exp(s)`` to second order."""
    identity = jnp.broadcast_to(eye_like(s), s.shape)
    return solve_accretive(identity - 0.5 * s, identity + 0.5 * s)


@in_full_precision
def newton_schulz(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    """One Newton-Schulz step ``x (3 I - x^T x) / 2`` towards the nearest orthonormal matrix.

    The distance from orthonormality is squared, so one step removes the rounding errors of a trajectory.
    """
    return 1.5 * x - 0.5 * (x @ (adjoint(x) @ x))


@in_full_precision
def sqrt_corrections(
    e: Inexact[Array, "*batch k k"],
) -> tuple[Inexact[Array, "*batch k k"], Inexact[Array, "*batch k k"]]:
    r"""Compute ``(I + e)^(-1/2) - I`` and ``(I + e)^(1/2) - I`` by matrix products.

    One product, the square of ``e``, is sufficient for small ``e``, and two with the cube for larger ones. The entries
    of the first power left out are bounded by those of the powers at hand (Cauchy-Schwarz). Beyond, each round of
    :func:`_inverse_sqrt_by_rounds` cubes the remainder.

    ``I + e`` is symmetric (Hermitian) and positive definite. The differences from the identity are passed and returned
    because they are small and would lose their digits in a sum; their entries are those of the first to eight
    roundings.
    """
    least = 8.0 * jnp.finfo(e.dtype).eps
    squared = e @ e
    length = longest_row(squared)
    is_small, is_moderate = 0.625 * length * longest_row(e) <= least, 0.55 * length**2 <= least

    def cubic() -> tuple[Array, Array]:
        cubed = squared @ e
        return inverse - 0.3125 * cubed, root + 0.0625 * cubed

    def by_rounds() -> tuple[Array, Array]:
        inverse = _inverse_sqrt_by_rounds(e, squared)
        return inverse, inverse + e + e @ inverse

    inverse, root = 0.375 * squared - 0.5 * e, 0.5 * e - 0.125 * squared
    inverse, root = unless(is_small, cubic, (inverse, root))
    return unless(is_small | is_moderate, by_rounds, (inverse, root))


def _size(squared: Array) -> Array:
    """Upper bound of the spectral norm, given the square: the fourth root of the sum of its eigenvalues' squares."""
    return jnp.max(jnp.sqrt(jnp.linalg.norm(squared, axis=(-2, -1))), initial=0.0)


def _inverse_sqrt_by_rounds(e: Array, squared: Array) -> Array:
    """``(I + e)^(-1/2) - I``; if the norm of ``e`` is not below one, ``I + e`` is scaled first."""
    identity = jnp.broadcast_to(eye_like(e), e.shape)
    least = 8.0 * jnp.finfo(e.dtype).eps
    shrink = jnp.where(_size(squared) < 1.0, 1.0, 1.0 / (1.0 + _size(squared))).astype(e.dtype)
    scaled = shrink * e - (1.0 - shrink) * identity
    squared = shrink**2 * squared - 2.0 * shrink * (1.0 - shrink) * e + (1.0 - shrink) ** 2 * identity
    first = 0.375 * squared - 0.5 * scaled

    def is_open(carry):
        count, *_, left = carry
        return (count < _MOST_NEWTON_STEPS) & (left > least)

    def improve(carry):
        count, found, rest, step, _ = carry
        # each step multiplies the remainder from both sides, since rounding errors need not commute with it
        turned = step + rest @ step
        rest = rest + turned + adjoint(turned) + step @ turned
        squared = rest @ rest
        step = 0.375 * squared - 0.5 * rest
        return count + 1, found + step + found @ step, rest, step, 0.625 * _size(squared) ** 3

    start = (0, first, scaled, first, 0.625 * _size(squared) ** 3)
    found = jax.lax.while_loop(is_open, improve, start)[1]
    root = jnp.sqrt(shrink)
    return root * found - (1.0 - root) * identity


@jax.custom_jvp
@in_full_precision
def polar_factor(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
    r"""Orthonormal factor of the polar decomposition: the orthonormal matrix nearest to ``x`` in Frobenius norm.

    With :math:`x = u\, \mathrm{diag}(s)\, v^*` it is :math:`q = u v^*`, and its derivative, which does not require
    distinct singular values,

    .. math::
        dq = u \left[\frac{(a - a^*)_{ij}}{s_i + s_j}\right] v^* + (I - u u^*)\, dx\, v s^{-1} v^*
        + u s^{-1} u^* dx\, (I - v v^*), \qquad a = u^* dx\, v .
    """
    u, _, vh = _thin_svd(x)
    return u @ vh


@polar_factor.defjvp
@in_full_precision
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

    Without this choice the factor of a Gaussian matrix is not Haar distributed (Mezzadri 2007).
    """
    q, r = jnp.linalg.qr(x)
    diagonal = jnp.diagonal(r, axis1=-2, axis2=-1)
    phase = jnp.where(diagonal == 0, jnp.ones_like(diagonal), diagonal / jnp.abs(diagonal).astype(diagonal.dtype))
    return q * phase[..., None, :]


@in_full_precision
def inverse_root(
    m: Inexact[Array, "*batch k k"], power: int, epsilon: float | Scalar, method: str = "eigh"
) -> Inexact[Array, "*batch k k"]:
    """Compute ``m ** (-1 / power)`` of symmetric positive semidefinite matrices, symmetric to rounding.

    Methods are ``"eigh"``, and ``"newton"``, the coupled Newton iteration (Iannazzo 2006), which uses matrix products
    only and needs a power of two. ``epsilon`` is a lower bound of the eigenvalues (``"eigh"``), or the number added to
    all of them (``"newton"``). It is at least the rounding error of the largest eigenvalue, below which eigenvalues
    cannot be distinguished in the dtype's precision.
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
