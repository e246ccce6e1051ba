"""Statistics of blocks of variables (variable, chain, draw), without checks: ranks, autocorrelation, R-hat.

:mod:`geodax.diagnostics.convergence` has the definitions and sources.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special
from scipy.fft import irfft, next_fast_len, rfft

Values = Float[np.ndarray, "variable chain draw"]
Sorted = Float[np.ndarray, "variable place"]
Order = Int[np.ndarray, "variable place"]

LARGEST_RHAT = 1.01
LARGEST_BOUND = 1.05  # an R-hat that is reported whatever the effective draws
_MOST_BY_CHANCE = 1.3  # R-hat of ranks grows little beyond it, however far apart the chains are
_FALSE_ALARMS = 0.01  # fraction of checks of independent draws that may report that chains disagree


def split(x: Values) -> Float[np.ndarray, "variable half_chain half_draw"]:
    """The halves of all chains as separate chains; the middle draw of an odd number is left out."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=1)


def fold(x: Values) -> Values:
    """Distances from the median."""
    return np.abs(x - np.median(x, axis=(1, 2), keepdims=True))


class Ranks(NamedTuple):
    """Rank-normalised draws, the same of the distances from the median, and the draws in ascending order."""

    scores: Values
    folded: Values
    ascending: Sorted

    @classmethod
    def of(cls, x: Values) -> "Ranks":
        """Compute all three with one sort."""
        ascending, order = _ordered(x)
        size = ascending.shape[1]
        median = ascending[:, (size - 1) // 2 : size // 2 + 1].mean(axis=1, keepdims=True)
        distance = np.abs(ascending - median)
        inner = np.argsort(distance, axis=1, kind="stable")  # merges a falling and a rising sequence
        distance, places = (np.take_along_axis(values, inner, axis=1) for values in (distance, order))
        folded = _scores(distance, places).reshape(x.shape)
        return cls(_scores(ascending, order).reshape(x.shape), folded, ascending)

    def larger_of(self, statistic: Callable[[Values], np.ndarray]) -> np.ndarray:
        """The maximum of a statistic of both."""
        bulk, folded = statistic(self.scores), statistic(self.folded)
        return np.where(folded > bulk, folded, bulk)


def rank_normalise(x: Values) -> Values:
    """Normal scores of the ranks over all chains, ties at their average rank, with Blom's offset 3/8."""
    return _scores(*_ordered(x)).reshape(x.shape)


def _ordered(x: Values) -> tuple[Sorted, Order]:
    flat = x.reshape(len(x), -1)
    order = np.argsort(flat, axis=1)
    return np.take_along_axis(flat, order, axis=1), order


def _scores(ascending: Sorted, order: Order) -> Sorted:
    size = ascending.shape[1]
    twice_the_rank = np.arange(2, 2 * size + 1)
    score = special.ndtri((twice_the_rank / 2 - 3 / 8) / (size + 1 / 4))
    scores = np.empty_like(ascending)
    np.put_along_axis(scores, order, score[None, ::2], axis=1)
    row, place = np.nonzero(ascending[:, 1:] == ascending[:, :-1])
    if len(row):
        pair = row * size + place
        begins = np.diff(pair, prepend=-2) != 1
        first, last = pair[begins], pair[np.append(begins[1:], True)] + 1
        tied = np.concatenate([pair, last])
        values = score[first % size + last % size]
        values = np.concatenate([values[np.cumsum(begins) - 1], values])
        scores.reshape(-1)[tied - tied % size + order.reshape(-1)[tied]] = values
    if np.isnan(ascending[:, -1]).any():
        known = np.where(np.isnan(ascending), np.nan, np.take_along_axis(scores, order, axis=1))
        np.put_along_axis(scores, order, known, axis=1)
    return scores


def ess_of_quantile(x: Values, prob: float, ascending: Sorted | None = None) -> Float[np.ndarray, " variable"]:
    """Effective sample size of an indicator of a type 7 quantile, rounded as in ArviZ."""
    ascending = np.sort(x.reshape(len(x), -1), axis=1) if ascending is None else ascending
    size = ascending.shape[1]
    place = size * prob + (1 + prob * -1.0)
    below = int(np.floor(np.clip(place, 1, size - 1)))
    weight = np.clip(place - below, 0, 1)
    quantile = (1 - weight) * ascending[:, below - 1] + weight * ascending[:, below]
    return effective_size(split((x <= quantile[:, None, None]).astype(np.float64)))


def ess_of_median_absolute_deviation(x: Values) -> Float[np.ndarray, " variable"]:
    """Effective sample size of an indicator of the median absolute deviation."""
    distance = fold(x)
    is_near = distance <= np.median(distance, axis=(1, 2), keepdims=True)
    return effective_size(rank_normalise(split(is_near.astype(np.float64))))


def mcse_of_sd(x: Values) -> Float[np.ndarray, " variable"]:
    """Monte Carlo standard error of the standard deviation."""
    squares = (x - x.mean(axis=(1, 2), keepdims=True)) ** 2
    variance = squares.mean(axis=(1, 2))
    variance_of_variance = ((squares**2).mean(axis=(1, 2)) - variance**2) / effective_size(split(squares))
    return np.sqrt(variance_of_variance / variance / 4)


def mcse_of_quantile(x: Values, prob: float) -> Float[np.ndarray, " variable"]:
    """Half the width of the order statistics' interval that has the coverage of one standard error."""
    ascending = np.sort(x.reshape(len(x), -1), axis=1)
    effective = ess_of_quantile(x, prob, ascending)
    size = ascending.shape[1]
    lower, upper = (
        special.betaincinv(effective * prob + 1, effective * (1 - prob) + 1, coverage) * size - 1
        for coverage in (0.1586553, 0.8413447)
    )
    lower = np.floor(np.fmax(lower, 0)).astype(int)
    upper = np.ceil(np.fmin(upper, size - 1)).astype(int)
    row = np.arange(len(x))
    return (ascending[row, upper] - ascending[row, lower]) / 2


def plain_rhat(x: Values) -> Float[np.ndarray, " variable"]:
    """R-hat of chains as they are."""
    num_draws = x.shape[-1]
    stands_still = (x == x[..., :1]).all(axis=-1)
    within = np.where(stands_still, 0.0, x.var(axis=-1, ddof=1)).mean(axis=1)
    between = num_draws * x.mean(axis=-1).var(axis=-1, ddof=1)
    return np.sqrt((between / within + num_draws - 1) / num_draws)


def plain_nested_rhat(x: Values, num_superchains: int) -> Float[np.ndarray, " variable"]:
    """Nested R-hat of chains as they are."""
    num_variables, num_chains, num_draws = x.shape
    chain_means = x.mean(axis=-1).reshape(num_variables, num_superchains, -1)
    within = np.zeros((num_variables, num_superchains))
    if num_chains > num_superchains:
        within += chain_means.var(axis=-1, ddof=1)
    if num_draws > 1:
        within += x.var(axis=-1, ddof=1).reshape(chain_means.shape).mean(axis=-1)
    between = chain_means.mean(axis=-1).var(axis=-1, ddof=1)
    return np.sqrt(1 + between / within.mean(axis=-1))


def effective_size(x: Values) -> Float[np.ndarray, " variable"]:
    """Effective sample size of the mean of each row's chains, without splitting."""
    num_variables, num_chains, num_draws = x.shape
    size = num_chains * num_draws
    autocovariance = _mean_autocovariance(x)
    within = autocovariance[:, :1] * num_draws / (num_draws - 1)
    total = within * (num_draws - 1) / num_draws
    if num_chains > 1:
        total += x.mean(axis=-1).var(axis=-1, ddof=1, keepdims=True)
    autocorrelation = 1 - (within - autocovariance) / total
    autocorrelation[:, 0] = 1

    num_pairs = num_draws // 2
    even = autocorrelation[:, : 2 * num_pairs : 2]
    pairs = even + autocorrelation[:, 1 : 2 * num_pairs : 2]
    last_pair = max(0, (num_draws - 3) // 2)
    stops = ~(pairs[:, : last_pair + 1] > 0)
    stops[:, last_pair] = True
    stop = stops.argmax(axis=1)
    row = np.arange(num_variables)
    sums = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    sum_before_stop = np.where(stop > 0, sums[row, stop - 1], 0.0)
    counts_at_stop = (even[row, stop] > 0) | (pairs[row, stop] >= 0)
    tau = -1 + 2 * sum_before_stop + np.where(counts_at_stop, even[row, stop], 0.0)
    tau = np.where(np.isnan(pairs[:, 0]), np.nan, np.maximum(tau, 1 / np.log10(size)))
    # equal up to rounding: relative to the values, so that their unit does not matter
    width, size_of_values = np.ptp(x, axis=(1, 2)), np.abs(x).max(axis=(1, 2))
    is_constant = np.isfinite(width) & (width <= np.finfo(np.float64).resolution * size_of_values)
    return np.where(is_constant, size, size / tau)


def effective_size_within(x: Values) -> Float[np.ndarray, " variable"]:
    """Effective sample size of the mean of chains of one distribution, from the draws about the mean of each chain.

    The means of independent chains vary by what the autocovariance about them lacks. That is put in their place, so
    that chains that disagree, or agree by chance, count as others.
    """
    num_chains, deviations = x.shape[1], x - x.mean(axis=-1, keepdims=True)
    effective = np.maximum(effective_size(deviations) / num_chains, 2.0)
    places = np.linspace(-1.0, 1.0, num_chains)[:, None] / np.linspace(-1.0, 1.0, num_chains).std(ddof=1)
    spread = np.sqrt(deviations.var(axis=-1).mean(axis=1) / (effective - 1.0))
    return effective_size(deviations + places * spread[:, None, None])


def _mean_autocovariance(x: Values) -> Float[np.ndarray, "variable draw"]:
    """Autocovariance at every lag, divided by the number of draws and averaged over the chains."""
    num_draws = x.shape[-1]
    length = next_fast_len(2 * num_draws, real=True)
    spectrum: Any = rfft(x - x.mean(axis=-1, keepdims=True), n=length, axis=-1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance: Any = irfft(power, n=length, axis=-1)
    return covariance[..., :num_draws] / num_draws


def _largest_ratio(num_groups: int, size: Any, false_alarms: float) -> Any:
    """What n times the variance of means of k groups of n independent draws, over that within, seldom exceeds."""
    return special.fdtri(num_groups - 1, num_groups * (size - 1), 1 - false_alarms)


def rhat_bound(num_groups: int, num_draws: int, effective: Any, false_alarms: float) -> Any:
    """The value that R-hat of chains of one distribution exceeds with a given probability.

    Of the N draws of each half of a chain n are effective. Their mean has n times less variance than a draw, and the
    variance about it is smaller by (n - 1) / n: R-hat is ``sqrt(1 + (F (N - 1) / (n - 1) - 1) / N)``.
    """
    largest = _largest_ratio(num_groups, effective, false_alarms)
    return np.sqrt(1 + (largest * (num_draws - 1) / (effective - 1) - 1) / num_draws)


def rhat_bounds(
    rhats: Float[np.ndarray, " number"],
    effective_draws: Float[np.ndarray, " number"],
    num_chains: int,
    num_draws: int,
    num_superchains: int | None,
) -> tuple[Float[np.ndarray, " number"], Float[np.ndarray, " number"]]:
    """The bound for each R-hat, such that the maximum over all exceeds it at most once in a hundred checks.

    Beside the bounds, there are those that more of the values may reach by chance, as the effective draws are few.
    """
    false_alarms = _FALSE_ALARMS / (2 * max(1, int(np.isfinite(rhats).sum())))  # each is the maximum of two
    if num_superchains is not None:
        size = num_chains * num_draws // num_superchains
        least = np.sqrt(1 + _largest_ratio(num_superchains, size, false_alarms) / size)  # or less
        bounds = np.full(len(rhats), max(LARGEST_RHAT, float(least)))
        return bounds, bounds
    num_groups, size = 2 * num_chains, num_draws // 2
    effective = effective_draws / num_groups
    effective = np.clip(np.where(np.isnan(effective), size, effective), 2, max(size, 2))
    by_effect = rhat_bound(num_groups, size, effective, false_alarms)
    least = max(LARGEST_RHAT, float(rhat_bound(num_groups, size, size, false_alarms)))
    bounds, by_chance = (np.maximum(np.minimum(by_effect, most), least) for most in (LARGEST_BOUND, _MOST_BY_CHANCE))
    return bounds, by_chance
