r"""The horseshoe prior, with its scales integrated out or as parameters.

.. math::
    \theta \mid \lambda \sim N(0, \sigma^2 \lambda^2), \qquad \lambda \sim \mathrm{C}^+(0, 1),

with one :math:`\lambda` per array (*shared*; Fortuin et al. 2021) or per entry (*local*; Carvalho et al. 2009). The
half-Cauchy distribution has location 0 and scale 1; it has neither mean nor variance.

**Integrated out.** Integrating out a local scale gives, with :math:`x = \theta^2 / 2\sigma^2` and the exponential
integral :math:`E_1`,

.. math::
    p(\theta) = (2\pi^3)^{-1/2}\, \sigma^{-1}\, e^x E_1(x),

which has a pole at zero and tails like :math:`\theta^{-2}`. Integrating out a shared scale gives, with
:math:`q = |\theta|^2 / \sigma^2`, D entries and :math:`u = \lambda^{-2}`,

.. math::
    p(\theta) = (2\pi\sigma^2)^{-D/2}\, \frac{1}{\pi} \int_0^\infty \frac{u^{(D-1)/2}}{1 + u}\, e^{-qu/2}\, du,

with an integrand log-concave in :math:`\log u`, evaluated by a quadrature of fixed size around its maximum. Both give
the same distribution of :math:`\theta` as sampling the scales too, without a funnel between an array and its scale. The
shared form has a pole :math:`|\theta|^{1 - D}` at zero. Its power :math:`1 / \tau` is integrable only at temperatures
:math:`\tau > 1 - 1/D`.

**As parameters.** :math:`\lambda = \log(1 + e^\rho)`, and :math:`\rho` is sampled together with the array.

**Without the pole.** A sampler with steps of size :math:`h` and no acceptance test moves an entry at distance
:math:`x` from the pole of a local scale by about :math:`h / x`, and the probability of coming that close is
proportional to :math:`x`. Per unit of time there are then as many kicks beyond a given length with small steps as with
large ones, and the stationary distribution has Cauchy tails for any step size. With

.. math::
    p(\lambda) \propto \frac{e^{-\epsilon^2 / 2\lambda^2}}{1 + \lambda^2}

scales far below :math:`\epsilon` are excluded, densities are bounded, and such a chain converges. The only changes are
that :math:`\epsilon^2` is added to :math:`\theta^2 / \sigma^2`, or to :math:`|\theta|^2 / \sigma^2`, and a factor
:math:`e^{\epsilon^2 / 2}\, \mathrm{erfc}(\epsilon / \sqrt 2)` per scale.

Sources:
    Carvalho, Polson and Scott (2009), Handling sparsity via the horseshoe. AISTATS.
    Fortuin, Garriga-Alonso, van der Wilk and Aitchison (2021), BNNpriors: a library for Bayesian neural network
    inference with different prior distributions. Software Impacts 9.
    Ghosh, Yao and Doshi-Velez (2019), Model selection in Bayesian neural networks via horseshoe priors. JMLR 20.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.nn.densities import AbstractPrior, Scale, check_scale, drawn_in, resolve_scale, rounded

_NODES = np.linspace(-4.6, 4.6, 161)  # trapezoidal rule in the arsinh of the distance from the maximum


def _least_scale(value: Any) -> float:
    return _checks.number("horseshoe", "least_scale", value, least=0.0, most=10.0)


class AbstractHierarchicalPrior(eqx.Module):
    """The distribution of one array together with its scales, which are also parameters."""

    @abc.abstractmethod
    def initial_scales(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return initial unconstrained scale parameters for an array like ``x``."""

    @abc.abstractmethod
    def log_density(self, x: Float[Array, "..."], scales: Float[Array, "..."]) -> Scalar:
        """Compute the joint log density of the array and the unconstrained scale parameters."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Draw an array like ``like`` and its scale parameters."""


class _AbstractHorseshoe(eqx.Module):
    """The distribution of the scales, and what it means for samplers."""

    scale: Scale = eqx.field(static=True, default="fan_in")
    local: bool = eqx.field(static=True, default=False)
    least_scale: float = eqx.field(static=True, default=0.0, converter=_least_scale)

    def __check_init__(self):
        check_scale(self.scale, type(self).__name__)

    def least_temperature(self, num_entries: int) -> float:
        """Return the highest temperature at which an array of this many entries collapses to zero.

        Up to that temperature the tempered density is not integrable at the pole; with a least scale the density is
        bounded, but nearly all mass is next to zero.
        """
        return 0.0 if self.local else 1.0 - 1.0 / num_entries

    def has_kicks(self, num_entries: int) -> bool:
        """Whether samplers without an acceptance test have Cauchy tails, for an array of this many entries."""
        return self.least_scale == 0 and (self.local or num_entries <= 2)


class Horseshoe(_AbstractHorseshoe, AbstractPrior):
    r"""The horseshoe with its scales integrated out.

    Args:
        scale: :math:`\sigma`: a number, ``"fan_in"``, or a function of the shape.
        local: One half-Cauchy scale for each entry instead of one for the whole array.
        least_scale: :math:`\epsilon`, from 0 to 10; scales far below it are excluded. 0 is the original horseshoe. It
            should not be used with samplers without an acceptance test (:func:`geodax.sgrld`, :func:`geodax.sghmc`) if
            a scale belongs to one or two entries. Their step sizes have to satisfy
            :math:`\sqrt h \lesssim \epsilon \sigma`.
    """

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Compute the marginal log density, in at least single precision: half-precision sums overflow."""
        x = _tree.widened(x)
        sigma = resolve_scale(self.scale, x.shape, "Horseshoe")
        z = x / sigma
        floor = self.least_scale**2
        if self.local or x.size == 1:
            constant = -math.log(sigma) - 0.5 * math.log(2.0 * math.pi**3) - _log_share(self.least_scale)
            return jnp.sum(log_scaled_exp1(0.5 * (z * z + floor))) + x.size * constant
        constant = -x.size * (math.log(sigma) + 0.5 * math.log(2.0 * math.pi)) - math.log(math.pi)
        return _log_mixture(jnp.sum(z * z) + floor, x.size) + constant - _log_share(self.least_scale)

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        return HierarchicalHorseshoe(self.scale, self.local, self.least_scale).sample(key, like)[0]


class HierarchicalHorseshoe(_AbstractHorseshoe, AbstractHierarchicalPrior):
    r"""The horseshoe with its scales as parameters.

    Args:
        scale: :math:`\sigma`: a number, ``"fan_in"``, or a function of the shape.
        local: One half-Cauchy scale for each entry instead of one for the whole array.
        least_scale: As for :class:`Horseshoe`.
    """

    def initial_scales(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return scale parameters at which all scales are 1."""
        return jnp.full(x.shape if self.local else (), math.log(math.e - 1.0), x.dtype)

    def log_density(self, x: Float[Array, "..."], scales: Float[Array, "..."]) -> Scalar:
        """Compute the joint log density of the array and its scale parameters, in at least single precision."""
        x, scales = _tree.widened(x), _tree.widened(scales)
        sigma = resolve_scale(self.scale, x.shape, "HierarchicalHorseshoe")
        scale = jax.nn.softplus(scales)
        z = x / (sigma * scale)
        copies = 1 if self.local else x.size
        log_normal = (
            -0.5 * jnp.sum(z * z)
            - copies * jnp.sum(jnp.log(scale))
            - x.size * (math.log(sigma) + 0.5 * math.log(2.0 * math.pi))
        )
        log_cauchy = jnp.sum(jax.nn.log_sigmoid(scales) - jnp.log1p(scale * scale))
        log_cauchy = log_cauchy - 0.5 * jnp.sum((self.least_scale / scale) ** 2)
        return log_normal + log_cauchy + scales.size * (math.log(2.0 / math.pi) - _log_share(self.least_scale))

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        sigma = resolve_scale(self.scale, like.shape, "HierarchicalHorseshoe")
        key_scale, key_normal = jax.random.split(key)
        dtype = drawn_in(like)
        scale = self._scales(key_scale, like.shape if self.local else (), dtype)
        x = sigma * scale * jax.random.normal(key_normal, like.shape, dtype)
        return rounded(x, like), rounded(scale + jnp.log(-jnp.expm1(-scale)), like)

    def _scales(self, key: PRNGKey, shape: tuple[int, ...], dtype: Any) -> Array:
        """Draw by rejection; the exponential is the acceptance probability."""

        def draw(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            round_, scale, is_open = carry
            key_cauchy, key_accept = jax.random.split(jax.random.fold_in(key, round_))
            proposed = jnp.abs(jax.random.cauchy(key_cauchy, shape, dtype))
            chance = jnp.exp(-0.5 * (self.least_scale / proposed) ** 2)
            is_accepted = jax.random.uniform(key_accept, shape, dtype) < chance
            return round_ + 1, jnp.where(is_open, proposed, scale), is_open & ~is_accepted

        start = (jnp.zeros((), jnp.int32), jnp.ones(shape, dtype), jnp.ones(shape, bool))
        return jax.lax.while_loop(lambda carry: carry[2].any(), draw, start)[1]


def _log_share(least_scale: float) -> float:
    """Log expectation of the exponential factor of the scales' density under the half-Cauchy distribution."""
    return math.log(special.erfcx(least_scale / math.sqrt(2.0)))


@jax.custom_jvp
def log_scaled_exp1(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Compute :math:`\log(e^x E_1(x))` elementwise, accurate for all positive x in the precision of ``x``.

    Uses a power series below 2 and Stieltjes' continued fraction above (Abramowitz and Stegun, 5.1.11 and 5.1.22). At
    zero, where the value is infinite, returns the value at the smallest normal number, with zero derivative.
    """
    x = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    low, high = jnp.minimum(x, 2.0), jnp.maximum(x, 2.0)
    return jnp.where(x < 2.0, low + jnp.log(_exp1_series(low)), -jnp.log(high + _fraction(high)))


@log_scaled_exp1.defjvp
def _log_scaled_exp1_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    value = log_scaled_exp1(x)
    tiny = jnp.finfo(x.dtype).tiny
    safe = jnp.maximum(x, tiny)
    high = jnp.maximum(safe, 2.0)
    # 1 - 1 / (x e^x E_1(x)), without cancellation for large x
    low_slope = 1.0 - jnp.exp(-value - jnp.log(safe))
    slope = jnp.where(safe < 2.0, low_slope, -_fraction(high) / high)
    return value, jnp.where(x < tiny, 0.0, slope) * tangent


def _exp1_series(x: Array) -> Array:
    """E_1 for x up to 2."""
    num_terms = 16 if x.dtype == jnp.float32 else 28
    total = jnp.zeros_like(x)
    for k in range(num_terms, 0, -1):
        total = (total - (-1.0) ** k / (k * math.factorial(k))) * x
    return total - jnp.log(x) - np.euler_gamma


def _fraction(x: Array) -> Array:
    """The g with e^x E_1(x) = 1 / (x + g), for x of at least 2."""
    num_levels = 12 if x.dtype == jnp.float32 else 48
    tail = x + (2.0 * num_levels + 1.0)
    for k in range(num_levels - 1, 0, -1):
        tail = x + (2.0 * k + 1.0) - (k + 1.0) ** 2 / tail
    return 1.0 - 1.0 / tail


def _log_mixture(q: Scalar, num_entries: int) -> Scalar:
    """Logarithm of the integral over u, for at least two entries."""
    a = 0.5 * (num_entries + 1)

    @jax.custom_jvp
    def log_integral(q: Scalar) -> Scalar:
        top, _, log_weights = _nodes(q, a)
        peak = a * jnp.log(top) - 0.5 * q * top - jnp.log1p(top)
        return peak + jax.nn.logsumexp(log_weights)

    @log_integral.defjvp
    def _jvp(primals, tangents):
        (q,), (tangent,) = primals, tangents
        top, shifts, log_weights = _nodes(q, a)
        mean = top * jnp.sum(jax.nn.softmax(log_weights) * jnp.exp(shifts))
        return log_integral(q), -0.5 * mean * tangent

    return log_integral(jnp.maximum(q, float(jnp.finfo(q.dtype).tiny) ** 0.75))


def _nodes(q: Scalar, a: float) -> tuple[Scalar, Array, Array]:
    """Maximum of the integrand in u, distances of nodes from its logarithm, and log weights relative to it."""
    b = a - 1.0 - 0.5 * q
    root = jnp.hypot(b, jnp.sqrt(2.0 * a * q))  # squares overflow far out in the tail
    # positive root of (q/2) u^2 - b u - a = 0, in the form without cancellation
    top = jnp.where(b > 0, (b + root) / q, 2.0 * a / jnp.where(b > 0, 1.0, root - b))
    share = top / (1.0 + top)
    pull = a - share  # q top / 2 at the maximum
    width = jax.lax.rsqrt(pull + share / (1.0 + top))
    nodes = jnp.asarray(_NODES, q.dtype)
    shifts = width * jnp.sinh(nodes)
    bend = jnp.where(jnp.abs(shifts) < 0.1, _small_bend(shifts), jnp.expm1(shifts) - shifts)
    rise = jax.nn.softplus(jnp.log(top) + shifts) - jnp.log1p(top)
    spacing = float(_NODES[1] - _NODES[0])
    log_weights = share * shifts - pull * bend - rise + jnp.log(width * jnp.cosh(nodes) * spacing)
    return top, shifts, log_weights


def _small_bend(x: Array) -> Array:
    """e^x - 1 - x for small x."""
    return x * x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x / 40320))))))
