"""Many short independent chains of an algorithm, and how their averages are compared with the truth."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Chains(NamedTuple):
    """What independent chains have seen.

    Attributes:
        means: Each chain's averages of the statistics, (chain, statistic).
        acceptance_rate: Average over all chains.
        num_divergent: Number of divergent iterations.
        num_steps: Leapfrog steps of one iteration, on average.
    """

    means: np.ndarray
    acceptance_rate: float
    num_divergent: int
    num_steps: float


def run_chains(algorithm, start, statistics, key, *, num_iterations: int, num_discarded: int = 0) -> Chains:
    """Run one chain from each starting point and average the statistics over the iterations that are kept.

    Args:
        algorithm: A pair of ``init`` and ``step``.
        start: Starting points, stacked along the first axis of every leaf.
        statistics: From a position to a vector.
        key: Random key.
        num_iterations: Iterations that are kept.
        num_discarded: Iterations before them.
    """
    num_chains = jax.tree.leaves(start)[0].shape[0]

    def chain(key, position):
        def iterate(carry, iteration):
            state, totals = carry
            state, info = algorithm.step(jax.random.fold_in(key, iteration), state)
            values = (
                statistics(state.position),
                info.acceptance_rate,
                info.is_divergent.astype(jnp.float32),
                info.num_integration_steps.astype(jnp.float32),
            )
            is_kept = iteration >= num_discarded
            totals = jax.tree.map(lambda total, value: total + jnp.where(is_kept, value, 0), totals, values)
            return (state, totals), None

        state = algorithm.init(position)
        like = jax.eval_shape(statistics, position)
        none = jnp.zeros((), jnp.float32)
        totals = (jnp.zeros(like.shape, like.dtype), jnp.zeros((), state.logdensity.dtype), none, none)
        (_, totals), _ = jax.lax.scan(iterate, (state, totals), jnp.arange(num_discarded + num_iterations))
        return totals

    means, acceptance, divergent, steps = jax.jit(jax.vmap(chain))(jax.random.split(key, num_chains), start)
    return Chains(
        np.asarray(means, np.float64) / num_iterations,
        float(np.mean(acceptance)) / num_iterations,
        int(np.sum(divergent)),
        float(np.mean(steps)) / num_iterations,
    )


def assert_agree(
    means: np.ndarray,
    truth,
    *,
    spread=None,
    truth_error=0.0,
    max_bias: float | None = None,
    again: Callable[[], np.ndarray] | None = None,
) -> None:
    """Averages of independent chains within 4 standard errors of the truth, and small against the target's own spread.

    Args:
        means: (chain, statistic).
        truth: The expected values.
        spread: Standard deviation of one draw of each statistic; needed for ``max_bias``.
        truth_error: Standard errors of the truth, where it is itself an average.
        max_bias: Bound for the difference in units of ``spread``.
        again: Gives the averages of other chains. Among thousands of statistics one is beyond a bound by chance; if one is,
            these are added and all chains judged, in which what is wrong stands out more.
    """
    truth = np.asarray(truth, np.float64)
    bound = np.inf if max_bias is None else max_bias * np.asarray(spread)

    def deviations() -> tuple[np.ndarray, np.ndarray, bool]:
        difference = means.mean(0) - truth
        error = np.sqrt(means.var(0, ddof=1) / len(means) + np.asarray(truth_error) ** 2)
        z = difference / np.maximum(error, 1e-12)
        return difference, z, bool(np.all((np.abs(z) < 4) & (np.abs(difference) < bound)))

    difference, z, agree = deviations()
    if again is not None and not agree:
        means = np.concatenate([means, again()])
        difference, z, agree = deviations()
    assert agree, f"{np.round(z, 1)} standard errors away, by {difference}, where at most {bound} is right"
