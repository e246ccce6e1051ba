r"""Envelopes for exact rejection sampling of unit vectors: von Mises-Fisher, Bingham and Fisher-Bingham distributions.

The envelopes are

* the von Mises-Fisher envelope of Wood (1994, Communications in Statistics: Simulation and Computation 23, 157), in the
  form of a random stereographic projection, which loses no precision at high concentrations;
* the angular central Gaussian envelope of Kent, Ganeiber and Mardia (2018, Journal of Computational and Graphical
  Statistics 27, 291) for the Bingham distribution, and its matrix version.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.distributions.rejection import Proposal, first_accepted
from geodax.geometry.linalg import polar_factor


def off(basis: Float[Array, "n k"], z: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    """Part of ``z`` orthogonal to the columns of ``basis``, each orthonormal or zero; repeated against rounding."""
    z = z - basis @ (basis.T @ z)
    return z - basis @ (basis.T @ z)


def normalized(z: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    """The directions of the columns of ``z``."""
    return z / jnp.maximum(jnp.linalg.norm(z, axis=0, keepdims=True), jnp.finfo(z.dtype).tiny)


def _projection_scale(concentration: Scalar, freedom: int) -> Scalar:
    """Wood's ``b``: the scale of the stereographic projection with the best envelope for the concentration."""
    m = float(freedom - 1)
    return m / (2.0 * concentration + jnp.hypot(2.0 * concentration, m))


def excess_of_envelope(concentration: Scalar, freedom: int) -> Scalar:
    r"""Logarithm of the maximal ratio of ``exp(f^T x)`` to Wood's envelope, minus ``|f|``.

    The envelope is the spherical Cauchy density :math:`(1 - c^2)^{m/2} (1 - c t)^{-m}` of the cosine t, with :math:`m`
    the dimension of the sphere and the ``c`` that minimises the constant :math:`e^{\kappa c} (1 - c^2)^{m/2}`. The
    logarithm grows with :math:`\kappa = |f|`; without :math:`\kappa` it is small and keeps its precision.
    """
    if freedom == 1:
        return jnp.log1p(jnp.exp(-2.0 * concentration)) - math.log(2.0)
    b = _projection_scale(concentration, freedom)
    return -2.0 * concentration * b / (1.0 + b) + (freedom - 1) * (0.5 * jnp.log(4.0 * b) - jnp.log1p(b))


def propose_von_mises_fisher(
    normal: Float[Array, "n 2"], f: Float[Array, "n"], basis: Float[Array, "n k"], freedom: int
) -> tuple[Float[Array, "n"], Scalar, Scalar]:
    """Propose from the envelope of the density ``exp(f^T x)`` of the unit vectors orthogonal to ``basis``.

    ``normal`` are standard normal variates. The columns of the basis are orthonormal or zero, and ``f``, of which the
    part in their span is ignored, is the mean direction times the concentration. ``freedom`` is ``n`` minus the number
    of non-zero columns, at least 1.

    Returns the proposal, the logarithm of its acceptance probability, and the concentration, the norm of the part of
    ``f`` orthogonal to ``basis``.
    """
    axis = jax.nn.one_hot(jnp.argmin(jnp.sum(basis * basis, axis=1)), f.shape[0], dtype=f.dtype)
    outside = off(basis, jnp.stack([f, axis], axis=1))
    f = outside[:, 0]
    mean, fallback = off(basis, normalized(outside)).T
    fallback = normalized(fallback)
    if freedom == 1:
        length = fallback @ f
        is_up = jax.scipy.special.ndtr(normal[0, 0]) < jax.nn.sigmoid(2.0 * length)
        return jnp.where(is_up, fallback, -fallback), jnp.zeros_like(length), jnp.abs(length)
    concentration = jnp.linalg.norm(f)
    mean = jnp.where(concentration > 0, normalized(mean), fallback)
    m = float(freedom - 1)
    b = _projection_scale(concentration, freedom)
    base = 2.0 * b / (1.0 + b)  # one minus the cosine at which the envelope touches
    across = off(jnp.concatenate([basis, mean[:, None]], axis=1), normal)
    g, h = jnp.sum(across * across, axis=0)
    total = jnp.maximum(h + b * g, jnp.finfo(f.dtype).tiny)
    fall = 2.0 * b * g / total  # one minus the cosine of the angle to the mean
    log_ratio = concentration * (base - fall) + m * jnp.log((base + (1.0 - base) * fall) * (1.0 + b) / (2.0 * base))
    x = (1.0 - fall) * mean + (2.0 * jnp.sqrt(b * h) / total) * across[:, 0]
    x = off(basis, x)
    return x / jnp.linalg.norm(x), log_ratio, concentration


def gaussian_envelope(penalty: Float[Array, "n"]) -> Scalar:
    r"""The ``b`` with :math:`\sum_i 1/(b + 2 \lambda_i) = 1`, which gives the tightest envelope of the Bingham density.

    Any ``b`` between 0 and n gives a valid envelope, so a few bisection steps are sufficient.
    """
    one = jnp.ones((), penalty.dtype)

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        is_low = jnp.sum(1.0 / (middle + 2.0 * penalty)) > 1.0
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    low, high = jax.lax.fori_loop(0, 30, halve, (one, one * penalty.shape[0]))
    return 0.5 * (low + high)


def log_gaussian_acceptance(t: Float[Array, "*shape"], b: Scalar, n: int) -> Float[Array, "*shape"]:
    r"""Logarithm of :math:`e^{-t} (1 + 2t/b)^{n/2}` over its maximum."""
    return -t + 0.5 * n * jnp.log1p(2.0 * t / b) + 0.5 * (n - b) - 0.5 * n * jnp.log(n / b)


def propose_bingham(a: Float[Array, "n n"], p: int) -> Proposal:
    r"""Build proposals for the density ``exp(tr(x^T a x))`` of orthonormal n x p matrices.

    With :math:`\Lambda` the largest eigenvalue minus ``a`` and :math:`\Omega = I + 2 \Lambda / b`, the proposal is the
    polar factor of :math:`\Omega^{-1/2} Z` with Gaussian Z, whose density is :math:`|x^T \Omega x|^{-n/2}`.
    """
    n = a.shape[0]
    values, vectors = jnp.linalg.eigh(a)
    penalty = values[-1] - values
    b = gaussian_envelope(penalty)
    root = jnp.sqrt(1.0 + 2.0 * penalty / b)

    def propose(key: PRNGKey) -> tuple[Array, Scalar]:
        z = jax.random.normal(key, (n, p), a.dtype) / root[:, None]
        y = z / jnp.linalg.norm(z) if p == 1 else polar_factor(z)
        gram = y.T @ (penalty[:, None] * y)
        t = gram[0] if p == 1 else jnp.maximum(jnp.linalg.eigvalsh(gram), 0.0)
        return vectors @ y, jnp.sum(log_gaussian_acceptance(t, b, n))

    return propose


def draw_fisher_bingham(
    key: PRNGKey, f: Float[Array, "m"], a: Float[Array, "m m"], max_proposals: int
) -> Float[Array, "m"]:
    """Sample a unit vector with density proportional to ``exp(f^T x + x^T a x)``; see `propose_fisher_bingham`."""
    if f.shape[0] == 1:
        is_up = jax.random.bernoulli(key, jax.nn.sigmoid(2.0 * f[0]))
        return jnp.where(is_up, jnp.ones_like(f), -jnp.ones_like(f))
    return first_accepted(key, propose_fisher_bingham(f, a), max_proposals)


def propose_fisher_bingham(f: Float[Array, "m"], a: Float[Array, "m m"]) -> Proposal:
    r"""Build proposals for the density ``exp(f^T x + x^T a x)`` of unit vectors, ``m >= 2``.

    Up to the sign of x, which is drawn last, the density is :math:`\cosh(f^T x) e^{x^T a x}`. The logarithm of
    :math:`\cosh(\kappa t)` is concave in :math:`t^2` (Jaakkola and Jordan 2000, Statistics and Computing 10, 25). So
    with its tangent at any :math:`t_0^2` the Bingham density of :math:`a + \lambda \mu \mu^T`, :math:`\lambda =
    \kappa \tanh(\kappa t_0) / (2 t_0)`, is an envelope. :math:`t_0^2` is chosen near the mean of :math:`(\mu^T x)^2`.
    """
    concentration = jnp.linalg.norm(f)
    mean = normalized(f)

    def slope(touch: Scalar) -> Scalar:
        return 0.5 * concentration * jnp.tanh(concentration * touch) / touch

    def shifted(touch: Scalar) -> Float[Array, "m m"]:
        return a + slope(touch) * mean[:, None] * mean[None, :]

    def refine(_, touch: Scalar) -> Scalar:
        values, vectors = jnp.linalg.eigh(shifted(touch))
        penalty = values[-1] - values
        variance = 1.0 / (1.0 + 2.0 * penalty / gaussian_envelope(penalty))
        second_moment = jnp.sum(variance * (vectors.T @ mean) ** 2) / jnp.sum(variance)
        return jnp.sqrt(jnp.clip(second_moment, 1e-4, 1.0))

    touch = jax.lax.fori_loop(0, 4, refine, jnp.ones((), f.dtype))
    propose_axis = propose_bingham(shifted(touch), 1)

    def propose(key: PRNGKey) -> tuple[Array, Scalar]:
        key_axis, key_sign = jax.random.split(key)
        axis, log_probability = propose_axis(key_axis)
        x = axis[:, 0]
        # log cosh and its tangent are as large as the concentration, and most of their digits cancel
        t = jnp.abs(mean @ x)
        step, far, near = t - touch, jnp.exp(-2.0 * concentration * t), jnp.exp(-2.0 * concentration * touch)
        bend = 2.0 * near / (1.0 + near) - jnp.tanh(concentration * touch) * step / (2.0 * touch)
        gain = concentration * step * bend + jnp.log1p(far) - jnp.log1p(near)
        is_up = jax.random.bernoulli(key_sign, jax.nn.sigmoid(2.0 * (f @ x)))
        return jnp.where(is_up, x, -x), log_probability + gain

    return propose
