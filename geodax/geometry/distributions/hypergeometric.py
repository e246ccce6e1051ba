r"""The normalising constants of the von Mises-Fisher, the matrix Langevin and the Bingham distributions.

With respect to the uniform probability measure, the constant of ``exp(f^T x)`` on the unit sphere of :math:`R^n` is

.. math:: {}_0F_1(n/2;\, \kappa^2/4) = \Gamma(\nu + 1) (\kappa/2)^{-\nu} I_\nu(\kappa), \qquad \nu = n/2 - 1,
          \quad \kappa = |f|,

and that of ``exp(tr(f^T x))`` on orthonormal n x p matrices is the same function of the matrix :math:`f^T f / 4`.
These functions take squared norms, in which they are smooth, including at zero. The constant of ``exp(x^T a x)`` on the
sphere is :math:`{}_1F_1(1/2;\, n/2;\, a)`, a function of the eigenvalues of ``a``.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Float

from geodax._types import Array, Scalar
from geodax.geometry.distributions.directions import gaussian_envelope

_SWITCH = 30.0  # value of sqrt(order^2 + argument^2) from which the asymptotic expansion is accurate to 1e-13
_NUM_POWERS = 80  # of the power series; sufficient below the switch
_NUM_DEBYE = 12
_NUM_PAIR_TERMS = 120
_TAIL = 8.5  # standard deviations of a bell beyond which it is below rounding
_NUM_CONTOUR_POINTS = 64
_CONTOUR_END = 5.4  # widths of the integrand of a Bingham constant beyond which it is below rounding
_NUM_PAIR_POWERS = 20  # of the power series for two columns; its terms fall faster than 1 / k!^2


def _debye_polynomials(num: int) -> np.ndarray:
    """Coefficients in ``t^2`` of ``u_k(t) / t^k``, row by row (Digital Library of Mathematical Functions, 10.41.9)."""
    polynomials = [{0: Fraction(1)}]
    for _ in range(num):
        following: dict[int, Fraction] = {}
        for power, c in polynomials[-1].items():
            up = c * (Fraction(power, 2) + Fraction(1, 8) / (power + 1))
            down = -c * (Fraction(power, 2) + Fraction(5, 8) / (power + 3))
            following[power + 1] = following.get(power + 1, Fraction(0)) + up
            following[power + 3] = following.get(power + 3, Fraction(0)) + down
        polynomials.append(following)
    return np.array([[float(u.get(k + 2 * j, 0)) for j in range(num + 1)] for k, u in enumerate(polynomials)])


_DEBYE = _debye_polynomials(_NUM_DEBYE)


def _powers(x: Float[Array, "*shape"], num: int) -> Float[Array, "*shape num"]:
    powers = [jnp.ones_like(x)]
    for _ in range(num - 1):
        powers.append(powers[-1] * x)
    return jnp.stack(powers, axis=-1)


def _log_debye_sum(order: Float[Array, "*shape"], s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Logarithm of ``sum_k u_k(order / s) / order^k``."""
    in_t, in_s = _powers((order / s) ** 2, _NUM_DEBYE + 1), _powers(1.0 / s, _NUM_DEBYE + 1)
    return jnp.log(jnp.einsum("...k,kj,...j->...", in_s, jnp.asarray(_DEBYE, s.dtype), in_t))


@jax.custom_jvp
def _log_series(c: Float[Array, "*shape"], y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Logarithm of the power series of ``0F1(c; y / 4)``, whose terms are all positive."""

    def add(i, total):
        k = (_NUM_POWERS - i).astype(y.dtype)
        return 1.0 + 0.25 * y / (k * (c + k - 1.0)) * total

    return jnp.log(jax.lax.fori_loop(0, _NUM_POWERS, add, jnp.ones_like(y + c)))


@_log_series.defjvp
def _log_series_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """With the derivative ``0F1(c + 1; y / 4) / (4 c)`` of the series; ``c`` is never differentiated."""
    (c, y), (_, tangent) = primals, tangents
    value = _log_series(c, y)
    return value, jnp.exp(_log_series(c + 1.0, y) - value) / (4.0 * c) * tangent


def log_0f1(n: int, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""Logarithm of :math:`{}_0F_1(n/2; y/4)`, the mean of ``exp(f^T x)`` over the unit sphere, ``y = |f|^2``.

    It uses a power series of positive terms, and from ``sqrt((n/2 - 1)^2 + y) = 30`` Debye's expansion, which is
    uniform in the order and the argument (Digital Library of Mathematical Functions, 10.41.3). It is accurate to
    rounding in both precisions for every ``n`` and ``y``, and differentiable any number of times.

    Args:
        n: Dimension of the ambient space, at least 1 (the "sphere" is then the two points 1 and -1).
        y: Squared concentration.

    Returns:
        The logarithms.
    """
    order = 0.5 * n - 1.0
    is_large = order * order + y >= _SWITCH**2
    small_y = jnp.where(is_large, jnp.zeros_like(y), y)
    large_y = jnp.where(is_large, y, jnp.full_like(y, _SWITCH**2))
    s = jnp.sqrt(order * order + large_y)
    tail = _log_debye_sum(jnp.full_like(s, order), s)
    if order < 1.0:
        # one logarithm: XLA on CPUs (JAX 0.10) confuses two of them in a fused loop over many numbers
        logs = jnp.log((0.5 * (order + s)) ** order * jnp.sqrt(2 * math.pi * s))
        large = math.lgamma(0.5 * n) - logs + s + tail
    else:  # the same, without the large terms of Stirling's formula
        stirling = math.lgamma(0.5 * n) - order * math.log(order) + order - 0.5 * math.log(2 * math.pi * order)
        excess = large_y / (s + order)
        growth = excess - order * jnp.log1p(0.5 * excess / order) - 0.5 * jnp.log(s / order)
        large = stirling + growth + tail
    return jnp.where(is_large, large, _log_series(jnp.full_like(y, 0.5 * n), small_y))


def mean_resultant_length(n: int, concentration: Scalar) -> Scalar:
    r"""Mean of ``mu^T x`` under the von Mises-Fisher distribution, :math:`I_{n/2}(\kappa) / I_{n/2-1}(\kappa)`."""
    return 2.0 * concentration * jax.grad(lambda y: log_0f1(n, y))(concentration * concentration)


def log_0f1_columns(f: Float[Array, "n 2"]) -> Scalar:
    r"""Logarithm of :math:`{}_0F_1(n/2; f^T f / 4)`, the mean of ``exp(tr(f^T x))`` over orthonormal n x 2 matrices."""
    squares = jnp.sum(f**2, axis=0)
    order = jnp.where(squares[0] < squares[1], jnp.array([1, 0]), jnp.array([0, 1]))
    first, second = f[:, order[0]], f[:, order[1]]
    square = first @ first
    is_tiny = square < jnp.finfo(f.dtype).tiny ** 0.25  # then the determinant rounds to zero
    rest = second - first * ((first @ second) / jnp.where(is_tiny, 1.0, square))
    return log_0f1_pair(f.shape[0], jnp.sum(f**2), square * (rest @ rest))


def log_0f1_pair(n: int, trace: Scalar, determinant: Scalar) -> Scalar:
    r"""Logarithm of :math:`{}_0F_1(n/2; G/4)` for a 2 x 2 matrix :math:`G = f^T f` with this trace and determinant.

    With :math:`c = n/2`, and ``a``, ``b`` the eigenvalues of :math:`G/4` (Muirhead 1975, Annals of Statistics 3, 1005),

    .. math:: {}_0F_1(c; G/4) = \sum_k \frac{(a b)^k}{(c - 1/2)_k (c)_{2k}\, k!}\, {}_0F_1(c + 2k;\, a + b).

    The terms are positive and, as a function of ``k``, bell-shaped with a width that grows with the concentration. 120
    terms around the largest cover the bell; if it is wide, they are h apart and have the weight h, which is accurate to
    rounding for such a bell, up to singular values of about 10^5.
    """
    # if both singular values are small, or one is small compared with the other, their logarithms are not smooth
    is_few = determinant <= 4.0 * jnp.maximum(trace, 16.0)
    spaced, stride = _spaced_terms(n, jnp.where(is_few, 64.0, trace), jnp.where(is_few, 1024.0, determinant))
    k = jnp.where(is_few, jnp.arange(_NUM_PAIR_TERMS, dtype=trace.dtype), spaced)
    log_factors = gammaln(jnp.stack([0.5 * n + 2.0 * k, 0.5 * n - 0.5 + k, k + 1.0]))
    logs = _log_0f1_of_orders(0.5 * n - 1.0 + 2.0 * k, trace, log_factors[0])
    few = _power_series(n, logs, jnp.where(is_few, trace, 1.0), jnp.where(is_few, determinant, 0.0))
    log_terms = k * jnp.log(jnp.where(is_few, 1024.0, determinant) / 16.0) - jnp.sum(log_factors, axis=0) + logs
    many = math.lgamma(0.5 * n) + math.lgamma(0.5 * n - 0.5) + logsumexp(log_terms) + jnp.log(stride)
    return jnp.where(is_few, few, many)


def _spaced_terms(n: int, trace: Scalar, determinant: Scalar) -> tuple[Float[Array, "k"], Scalar]:
    """Terms around the largest, and their distance."""
    c = 0.5 * n
    # the largest term is where k (k + c) (w + sqrt(w^2 + trace))^2 = determinant / 4, with w = c + 2 k
    size, product = jax.lax.stop_gradient((trace, determinant))
    square = size + 2.0 * c * c + 2.0 * jnp.sqrt(c * c * size + c**4 + product)
    w = jnp.sqrt(c * c + product / square)
    center = 0.5 * product / (square * (w + c))
    deviation = (1.0 / center + 1.0 / (center + c) + 4.0 / jnp.sqrt(w * w + size)) ** -0.5
    first = jnp.floor(jnp.maximum(center - _TAIL * deviation - 2.0, 0.0))
    stride = jnp.maximum((center + _TAIL * deviation + 20.0 - first) / _NUM_PAIR_TERMS, 1.0)
    return first + stride * jnp.arange(_NUM_PAIR_TERMS, dtype=trace.dtype), stride


def _power_series(n: int, logs: Float[Array, "k"], trace: Scalar, determinant: Scalar) -> Scalar:
    """The sum as a power series in the determinant, relative to its first term."""
    k = np.arange(1, _NUM_PAIR_POWERS)
    gamma = np.vectorize(math.lgamma)
    factors = gamma(0.5 * n - 0.5 + k) - math.lgamma(0.5 * n - 0.5) + gamma(0.5 * n + 2 * k) - math.lgamma(0.5 * n)
    scale = jnp.maximum(0.25 * trace, 4.0)  # large compared with the determinant when the series is used
    relative = logs[1:_NUM_PAIR_POWERS] - logs[0] + jnp.asarray(k, scale.dtype) * jnp.log(scale)
    weights = jnp.exp(relative - jnp.asarray(factors + gamma(k + 1.0), scale.dtype))
    x = determinant / (16.0 * scale)
    return logs[0] + jnp.log1p(jnp.sum(weights * _powers(x, _NUM_PAIR_POWERS)[1:]))


def _log_0f1_of_orders(order: Float[Array, "k"], y: Scalar, log_gamma: Float[Array, "k"]) -> Float[Array, "k"]:
    """Logarithms of :math:`{}_0F_1(order + 1; y / 4)`; the orders need not be static."""
    is_large = order * order + y >= _SWITCH**2
    small_y = jnp.where(is_large, 0.0, y)
    large_y = jnp.where(is_large, y, _SWITCH**2)
    above = jnp.maximum(order, 1e-20)  # so that quotients and logarithms are finite
    s = jnp.sqrt(order * order + large_y)
    excess = large_y / (s + order)
    growth = excess - above * jnp.log1p(0.5 * excess / above) - 0.5 * jnp.log(2 * math.pi * s)
    large = (log_gamma + above - above * jnp.log(above)) + growth + _log_debye_sum(order, s)
    return jnp.where(is_large, large, _log_series(order + 1.0, small_y))


def log_1f1(values: Float[Array, "n"]) -> Scalar:
    r"""Logarithm of :math:`{}_1F_1(1/2; n/2; a)`, the mean of ``exp(x^T a x)`` over unit vectors, by eigenvalues of a.

    With :math:`\lambda` the largest eigenvalue minus the eigenvalues, Laplace's transform of the mean over spheres of
    all radii, which is Gaussian, has the inverse

    .. math:: {}_1F_1(1/2; n/2; -\lambda)
              = \frac{\Gamma(n/2)}{2 \pi i} \int e^s \prod_j (s + \lambda_j)^{-1/2}\, ds.

    The path is a hyperbola through the saddle point of the integrand. It bends by 45 degrees at most: the integrand
    then falls all along it, whatever the eigenvalues. The trapezoidal rule is accurate to 1e-13 up to some hundred
    dimensions, and to 1e-8 in 10,000.
    """
    top = jnp.max(values)
    penalty = top - values
    # a path has no derivative: the integral is the same along all of them
    saddle, fixed = jax.lax.stop_gradient((0.5 * gaussian_envelope(penalty), penalty))
    spacing = _CONTOUR_END / _NUM_CONTOUR_POINTS / jnp.linalg.norm(saddle / (saddle + fixed))
    at = (jnp.arange(_NUM_CONTOUR_POINTS, dtype=values.dtype) + 0.5) * spacing
    extent = saddle / (math.sqrt(2.0) - 1.0)
    back, up = extent * (1.0 - jnp.cosh(at)), extent * jnp.sinh(at)  # the path is saddle + back + i up
    rate = 1.0 / (saddle + penalty)
    real, imaginary = 1.0 + jnp.outer(back, rate), jnp.outer(up, rate)
    size = jnp.exp(back - 0.25 * jnp.sum(jnp.log(real**2 + imaginary**2), axis=1))
    angle = up - 0.5 * jnp.sum(jnp.arctan2(imaginary, real), axis=1)
    speed = jnp.cosh(at) * jnp.cos(angle) - jnp.sinh(at) * jnp.sin(angle)
    integral = jnp.sum(size * speed) * (extent * spacing / math.pi)
    half = 0.5 * values.shape[0]  # relative to the saddle of equal eigenvalues, which leaves small terms
    at_saddle = saddle - half - 0.5 * jnp.sum(jnp.log((saddle + penalty) / half))
    stirling = math.lgamma(half) + half - half * math.log(half)
    return top + stirling + at_saddle + jnp.log(integral)
