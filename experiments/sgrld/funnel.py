r"""The funnel of Yu, Hartmann, Williams and Klami (2023), section 4.2, and how far draws are from it.

.. math::
    \theta_D \sim N(0, \sigma^2), \qquad \theta_1 \mid \theta_D \sim N(\mu, \log(1 + e^{\theta_D})),

the softplus a *variance*, as the paper's notation has it. The marginal distribution of :math:`\theta_D` is normal, so the distance
from the truth is exact: Kolmogorov-Smirnov and first Wasserstein distance of the draws from a normal distribution
function.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import geodax as gx
from geodax.sgmcmc.metrics import AbstractMetric, Curvature

MEAN = 2.0
START = (1.0, 1.0)  # theta_1, theta_D
NECK = -5.0  # a draw below it is in the narrow part


def log_density(variance: float):
    """The log density of (theta_1, theta_D) for a variance of theta_D."""

    def evaluate(theta: jax.Array) -> jax.Array:
        width = jax.nn.softplus(theta[1])
        return -0.5 * ((theta[0] - MEAN) ** 2 / width + jnp.log(width) + theta[1] ** 2 / variance)

    return evaluate


class WithFallbackState(NamedTuple):
    """The metric's states after and for this step, and the factor of the identity in its place (0 for none)."""

    learnt: Any
    used: Any
    factor: jax.Array


class WithFallback(AbstractMetric):
    """A metric, and a multiple of the identity where the preconditioned gradient would be longer than a limit.

    The paper resorts to "the identity metric up to a scaling" where :math:`|G^{-1} g|` exceeds 1,000: here
    :math:`G = (|g| / 1000) I`, which shortens the step to the limit and its noise accordingly. A divergence longer than
    the limit is shortened to it: deep in the neck one step along it would leave the range of floating-point numbers.

    Args:
        metric: The metric.
        limit: The largest length of the preconditioned gradient.
    """

    metric: AbstractMetric
    limit: float = eqx.field(static=True, default=1000.0)

    @property
    def has_exact_drift(self) -> bool:
        """That of the metric."""
        return self.metric.has_exact_drift

    @property
    def needs_curvature(self) -> bool:
        """That of the metric."""
        return self.metric.needs_curvature

    @property
    def is_lagged(self) -> bool:
        """The fallback sees the current gradient; which gradients the metric sees is in its state."""
        return False

    def init(self, position):
        """The metric's, in use."""
        state = self.metric.init(position)
        return WithFallbackState(state, state, jnp.zeros((), position.dtype))

    def update(self, state, position, grad):
        """Learn, and look at the gradient."""
        learnt = self.metric.update(state.learnt, position, grad)
        used = state.learnt if self.metric.is_lagged else learnt
        moved = self.metric.apply_inverse(used, grad)
        is_long = ~(jnp.vdot(moved, moved) <= self.limit**2)
        factor = jnp.where(is_long, jnp.sqrt(jnp.vdot(grad, grad)) / self.limit, 0.0)
        return WithFallbackState(learnt, used, factor)

    def apply_inverse(self, state, u):
        """That of the metric, or of the multiple of the identity."""
        safe = jnp.where(state.factor > 0, state.factor, 1.0)
        return jnp.where(state.factor > 0, u / safe, self.metric.apply_inverse(state.used, u))

    def apply_inverse_sqrt(self, state, z):
        """That of the metric, or of the multiple of the identity."""
        safe = jnp.sqrt(jnp.where(state.factor > 0, state.factor, 1.0))
        return jnp.where(state.factor > 0, z / safe, self.metric.apply_inverse_sqrt(state.used, z))

    def drift(self, state, position, curvature: Curvature | None = None):
        """That of the metric, of limited length; none for the identity."""
        drift = self.metric.drift(state.used, position, curvature)
        length = jnp.sqrt(jnp.vdot(drift, drift))
        short = jnp.where(length <= self.limit, drift, drift * (self.limit / jnp.where(length > 0, length, 1.0)))
        return jnp.where((state.factor > 0) | ~jnp.isfinite(length), 0.0, short)


def metrics() -> dict[str, tuple[AbstractMetric, float]]:
    """Metrics and step sizes: the paper's (appendix A.4), then Monge's with its divergence."""
    monge = {"alpha2": 0.1, "decay": 0.7, "exact": True}
    return {
        "Identity": (gx.metrics.Identity(), 0.001),
        "RMSprop": (gx.metrics.RMSProp(decay=0.995, epsilon=0.0), 0.0025),
        "Monge": (gx.metrics.Monge(gamma="none", lag=False, **monge), 0.003),
        "Shampoo": (gx.metrics.Shampoo(decay=0.9995, epsilon=1e-6, statistics_every=1, update_every=1), 0.003),
        "Monge, paper's Γ": (gx.metrics.Monge(gamma="a2", lag=False, **monge), 0.003),
        "Monge, Γ": (gx.metrics.Monge(gamma="full", lag=False, **monge), 0.003),
        "Monge, Γ and lag": (gx.metrics.Monge(gamma="full", lag=True, **monge), 0.003),
        "Monge, averaged Γ": (gx.metrics.Monge(gamma="averaged", lag=True, **monge), 0.003),
    }


def distances(draws: np.ndarray, variance: float) -> dict[str, float]:
    """How far draws of theta_D are from their distribution.

    Args:
        draws: Of shape (draw,).
        variance: Of the truth.

    Returns:
        ``ks`` and ``w1``, the distances of Kolmogorov and Smirnov and of Wasserstein, with ``mean``, ``sd``, ``min`` and
        ``neck``, the share below -5.
    """
    scale = np.sqrt(variance)
    ordered = np.sort(draws)
    count = len(ordered)
    levels = stats.norm.cdf(ordered, scale=scale)
    steps = np.arange(count)
    quantiles = stats.norm.ppf((steps + 0.5) / count, scale=scale)
    return {
        "ks": float(max((levels - steps / count).max(), ((steps + 1) / count - levels).max())),
        "w1": float(np.abs(ordered - quantiles).mean()),
        "mean": float(draws.mean()),
        "sd": float(draws.std()),
        "min": float(ordered[0]),
        "neck": float((draws < NECK).mean()),
    }


def independent_of_the_neck(key: int, num_chains: int, num_draws: int, spacing: float, variance: float) -> np.ndarray:
    """Chains of theta_D that Langevin dynamics would make if there were no theta_1: exact, and as slow.

    The distances of these chains from the truth are what so short a run leaves to chance.

    Args:
        key: Seed.
        num_chains: Chains.
        num_draws: Draws of each.
        spacing: Time between draws: step size times steps.
        variance: Of the distribution.

    Returns:
        Draws (chain, draw), from the start of the samplers' chains.
    """
    rng = np.random.default_rng(key)
    kept = np.exp(-spacing / variance)
    noise = np.sqrt(variance * (1 - kept**2)) * rng.standard_normal((num_draws, num_chains))
    draws = np.empty((num_draws, num_chains))
    current = np.full(num_chains, START[1])
    for i in range(num_draws):
        current = kept * current + noise[i]
        draws[i] = current
    return draws.T
