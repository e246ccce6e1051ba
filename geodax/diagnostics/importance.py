r"""How far an approximate posterior is from its target, by importance weights with Pareto-smoothed tails.

Draws :math:`z_i` of a density q have the weights :math:`w_i = p(z_i) / q(z_i)` for a target p. The shape k of a
generalised Pareto distribution fitted to their tail says how many moments the weights have, those below 1/k. Below 0.7
means under the smoothed weights are reliable; above it, q misses too much of p to be corrected.

Sources:
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto smoothed importance sampling. JMLR 25.
    Yao, Vehtari, Simpson and Gelman (2018), Yes, but did it work? Evaluating variational inference. ICML.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Position, PRNGKey, Scalar
from geodax.diagnostics.arviz import pareto_smoothed
from geodax.run.programs import compiled

_LEAST_DRAWS = 100


class ImportanceWeights(NamedTuple):
    """Weighted draws of an approximate posterior.

    Attributes:
        draws: Positions with a leading axis.
        log_weights: Logarithms of their smoothed weights, which sum to 1.
        pareto_k: Shape of the tail of the weights; the approximation is good below 0.5, and usable below 0.7.
        log_evidence: Estimate of the logarithm of the target's integral.
    """

    draws: Position
    log_weights: Float[np.ndarray, " draw"]
    pareto_k: float
    log_evidence: float

    @property
    def effective_sample_size(self) -> float:
        """The number of independent draws of the target that estimate a mean as well."""
        return float(np.exp(-np.logaddexp.reduce(2.0 * self.log_weights)))

    def expectation(self, function: Callable[[Position], Any]) -> Any:
        """Estimate the target's mean of a function of the position."""
        weights = np.exp(self.log_weights)
        return jax.tree.map(lambda x: np.tensordot(weights, np.asarray(x), 1), jax.vmap(function)(self.draws))


def importance_weights(
    rng_key: PRNGKey, approximation: Any, logdensity_fn: Callable[[Position], Scalar], *, num_draws: int = 2000
) -> ImportanceWeights:
    """Compare an approximate posterior with its target. Needs ArviZ.

    Args:
        rng_key: PRNG key of the draws.
        approximation: An object with ``sample(key)`` and ``log_prob(position)``: the ``network`` of a fit of
            :class:`geodax.vi.GaussianOver` or by :func:`geodax.vi.noisy_kfac`, or a family of :mod:`geodax.vi`.
        logdensity_fn: Log density of the target, up to a constant, such as ``posterior.full(data)``; for
            :class:`~geodax.vi.GaussianOver` with its normal prior.
        num_draws: Number of draws.

    Returns:
        The draws with their weights.

    Raises:
        TypeError: If the approximation lacks a method, as networks with variational layers do.
        ValueError: If there are fewer than 100 draws, or a log density is not finite at a draw (minus infinity is).
        ImportError: If ArviZ is not installed.
    """
    num_draws = _checks.whole("importance_weights", "num_draws", num_draws, least=_LEAST_DRAWS)
    if not all(callable(getattr(approximation, name, None)) for name in ("sample", "log_prob")):
        raise TypeError(
            "importance_weights: expected an approximation with sample(key) and log_prob(position), such as a fit of "
            f"gx.vi.GaussianOver, found {_checks.described(approximation)}."
        )

    def draw(key: PRNGKey) -> tuple[Position, Scalar, Scalar]:
        position = approximation.sample(key)
        return position, logdensity_fn(position), approximation.log_prob(position)

    keys = jax.random.split(_checks.random_key("importance_weights", rng_key), num_draws)
    draws, target, density = compiled(jax.vmap(draw), keys)(keys)
    log_weights = np.asarray(target, np.float64) - np.asarray(density, np.float64)
    is_wrong = np.isnan(log_weights) | (log_weights == np.inf)
    if is_wrong.any():
        raise ValueError(
            f"importance_weights: the log density of the target or of the approximation is not finite at "
            f"{int(is_wrong.sum())} of {num_draws} draws. Check the target there, and the fit."
        )
    smoothed, k = pareto_smoothed(log_weights)
    evidence = np.logaddexp.reduce(log_weights) - np.log(num_draws)
    return ImportanceWeights(draws, smoothed, k, float(evidence))
