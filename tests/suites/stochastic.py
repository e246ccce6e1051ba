"""Many independent chains of a stochastic-gradient sampler, and their averages in units of the target's spread."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx


class SquaredDistance(gx.metrics.AbstractMetric):
    """The diagonal metric 1 + x^2 of the current position, with its divergence in closed form."""

    has_exact_drift = True

    def init(self, position):
        return position

    def update(self, state, position, grad):
        return position

    def apply_inverse(self, state, u):
        return u / (1 + state**2)

    def apply_inverse_sqrt(self, state, z):
        return z / jnp.sqrt(1 + state**2)

    def drift(self, state, position, curvature=None):
        return -2 * state / (1 + state**2) ** 2


class Bias(NamedTuple):
    """Averages of independent chains against the truth, each in units of the target's standard deviation.

    Attributes:
        bias: Difference from the truth.
        error: Its Monte Carlo standard error, over chains.
    """

    bias: np.ndarray
    error: np.ndarray


def chain_means(algorithm, starts, statistics, key, *, num_steps: int, num_discarded: int, data=None) -> np.ndarray:
    """Each chain's averages of the statistics over the iterations that are kept, (chain, statistic).

    Args:
        algorithm: A pair of ``init`` and ``step``.
        starts: Starting points, stacked along the first axis of every leaf.
        statistics: From a position to a vector.
        key: Random key.
        num_steps: Iterations that are kept.
        num_discarded: Iterations before them.
        data: From a key to a batch, where the sampler wants one.
    """

    def chain(key, position):
        def iterate(carry, iteration):
            state, total = carry
            key_step, key_data = jax.random.split(jax.random.fold_in(key, iteration))
            state, _ = (
                algorithm.step(key_step, state) if data is None else algorithm.step(key_step, state, data(key_data))
            )
            return (state, total + jnp.where(iteration >= num_discarded, statistics(state.position), 0)), None

        start = (algorithm.init(position), jnp.zeros_like(statistics(position)))
        return jax.lax.scan(iterate, start, jnp.arange(num_discarded + num_steps))[0][1] / num_steps

    num_chains = jax.tree.leaves(starts)[0].shape[0]
    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(key, num_chains), starts), np.float64)


def bias(means: np.ndarray, truth, spread) -> Bias:
    """Compare chain averages with the truth."""
    spread = np.asarray(spread)
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    return Bias((means.mean(0) - np.asarray(truth)) / spread, error / spread)
