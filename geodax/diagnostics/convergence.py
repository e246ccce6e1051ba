r"""Effective sample size, R-hat, Monte Carlo standard errors and E-BFMI of sampled chains.

All functions take draws with the axes (chain, draw, ...) and are vectorised over the trailing axes. With
the autocorrelation rho_t pooled over the halves of the chains, the effective sample size of S draws is

    S / tau,    tau = -1 + 2 sum_{k<K} P_k + rho_{2K},    P_k = rho_{2k} + rho_{2k+1},

where the sum stops at the first pair that is not positive and the pairs are made to decrease: the initial
monotone sequence of Geyer (1992). "Bulk" and R-hat use rank-normalised draws, "tail" indicators of the
5 % and the 95 % quantile. The definitions, including edge cases, are those of ArviZ 0.23, with one exception: draws
count as constant if they are equal up to rounding, relative to their size, and not if they differ by less than 1e-15.

Sources:
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an
    improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2).
    Geyer (1992), Practical Markov chain Monte Carlo. Statistical Science 7(4).
    Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman (2022), Nested R-hat: assessing the convergence of
    Markov chain Monte Carlo when running many short chains.
    Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Real
from scipy import special
from scipy.fft import irfft, next_fast_len, rfft

from geodax import _checks
from geodax.run.blocks import number_blocks

MINIMUM_DRAWS = 4
"""Number of draws per chain below which every statistic is NaN: each half of a chain needs a variance."""

_BLOCK_SIZE = 2**20
"""Number of values processed at once: it bounds the memory of the transforms and keeps them in cache."""

_NUM_THREADS = min(4, os.cpu_count() or 1)

_Draws = Real[np.ndarray, "chain draw *shape"] | xr.DataArray
_Values = Float[np.ndarray, "variable chain draw"]
_Statistic = Callable[[_Values], Float[np.ndarray, " variable"]]

EssMethod = Literal["bulk", "tail", "mean", "sd", "median", "mad", "quantile", "folded", "identity"]
McseMethod = Literal["mean", "sd", "median", "quantile"]


def ess(draws: _Draws, *, method: EssMethod = "bulk", prob: float | None = None) -> Float[np.ndarray, "*shape"]:
    """Compute the effective sample size of every variable (Vehtari et al. 2021).

    Args:
        draws: The draws; any real type, converted to double precision.
        method: The quantity to estimate. "bulk": the centre of the distribution, on rank-normalised draws.
            "tail": the smaller one of the 5 % and the 95 % quantile. "mean", "sd", "median", "mad" (median
            absolute deviation) and "quantile": that functional. "folded": rank-normalised distances from the
            median. "identity": the mean, without splitting the chains in halves.
        prob: The probability of "quantile"; no other method takes it.

    Returns:
        One number per variable. NaN if a draw is NaN or a chain has fewer than 4 draws; the number of draws
        if all draws are equal. Values above the number of draws are correct for anti-correlated chains.
    """
    statistics: dict[str, _Statistic] = {
        "bulk": lambda x: _ess(_rank_normalise(_split(x))),
        "tail": lambda x: np.minimum(_ess_quantile(x, 0.05), _ess_quantile(x, 0.95)),
        "mean": lambda x: _ess(_split(x)),
        "sd": lambda x: _ess(_split((x - x.mean(axis=(1, 2), keepdims=True)) ** 2)),
        "median": lambda x: _ess_quantile(x, 0.5),
        "mad": _ess_median_absolute_deviation,
        "quantile": lambda x: _ess_quantile(x, _check_prob(prob)),
        "folded": lambda x: _ess(_rank_normalise(_fold(_split(x)))),
        "identity": _ess,
    }
    _check_method("ess", method, statistics, prob)
    return _for_each_variable(statistics[method], draws)


def rhat(draws: _Draws) -> Float[np.ndarray, "*shape"]:
    """Compute rank-normalised split R-hat of every variable: the maximum of bulk and folded (Vehtari et al. 2021).

    Args:
        draws: The draws of at least two chains; any real type, converted to double precision.

    Returns:
        One number per variable, near 1 if the chains agree in location (bulk) and in scale (folded). NaN
        if a draw is NaN, all draws are equal, there is one chain, or a chain has fewer than 4 draws.
        Infinite if every half of a chain is constant, but not all at the same value.
    """

    def larger_of_bulk_and_folded(x: _Values) -> Float[np.ndarray, " variable"]:
        halves = _split(x)
        return _larger_rhat(halves, _rank_normalise(halves))

    return _for_each_variable(larger_of_bulk_and_folded, draws, minimum_chains=2)


def nested_rhat(draws: _Draws, *, num_superchains: int, is_ranked: bool = True) -> Float[np.ndarray, "*shape"]:
    r"""Compute nested R-hat of every variable, for many chains of one or more draws (Margossian et al. 2022).

    The chains form K superchains of M chains with N draws each; the chains of a superchain start at the same
    point. With the mean of a chain, of a superchain and of all,

        B = variance of the K superchain means,
        W = mean over superchains of (variance of the M chain means + mean variance of the N draws of a chain),

    nested R-hat is ``sqrt(1 + B / W)``, all variances with the divisor K - 1, M - 1, N - 1, and zero for a single
    chain or draw. It needs no long chains, since the remaining influence of the initial positions enters B only.
    At stationarity B / W is about one over the effective draws of a superchain, so 1.01 corresponds to 50 of them.

    Args:
        draws: The draws; chains 0, ..., M - 1 are the first superchain, and so on: the order in which
            :func:`geodax.sample` stores them. Any real type, converted to double precision.
        num_superchains: K, at least 2; it divides the number of chains.
        is_ranked: Whether to return the maximum of the values for rank-normalised draws and for their folded form,
            as :func:`rhat` does, which detects heavy tails and differences of scale. False is the plain formula.

    Returns:
        One number per variable. NaN if a draw is NaN or all draws are equal; infinite if every superchain is
        constant, but not all at the same value.

    Raises:
        ValueError: If the chains do not form superchains of two or more chains or draws.
    """
    draws = _as_array("nested_rhat", draws)
    num_superchains = _checks.superchains(draws.shape[0] if draws.ndim else 0, num_superchains, "nested_rhat")
    if draws.ndim >= 2 and draws.shape[0] == num_superchains and draws.shape[1] < 2:
        raise ValueError(
            f"nested_rhat: {num_superchains} superchains of one chain with {draws.shape[1]} draws have no variance "
            "within; use fewer superchains or more draws."
        )

    def plain(x: _Values) -> Float[np.ndarray, " variable"]:
        return _nested_rhat(x, num_superchains)

    def larger_of_bulk_and_folded(x: _Values) -> Float[np.ndarray, " variable"]:
        bulk, folded = plain(_rank_normalise(x)), plain(_rank_normalise(_fold(x)))
        return np.where(folded > bulk, folded, bulk)

    statistic = larger_of_bulk_and_folded if is_ranked else plain
    return _for_each_variable(statistic, draws, minimum_chains=2, minimum_draws=1)


def mcse(draws: _Draws, *, method: McseMethod = "mean", prob: float | None = None) -> Float[np.ndarray, "*shape"]:
    """Compute the Monte Carlo standard error of an estimate from the draws (Vehtari et al. 2021).

    Args:
        draws: The draws; any real type, converted to double precision.
        method: The estimate: the "mean", the "sd", the "median" or a "quantile".
        prob: The probability of "quantile"; no other method takes it.

    Returns:
        One number per variable, in the units of the draws. NaN if a draw is NaN or a chain has fewer than 4
        draws.
    """
    statistics: dict[str, _Statistic] = {
        "mean": lambda x: x.std(axis=(1, 2), ddof=1) / np.sqrt(_ess(_split(x))),
        "sd": _mcse_sd,
        "median": lambda x: _mcse_quantile(x, 0.5),
        "quantile": lambda x: _mcse_quantile(x, _check_prob(prob)),
    }
    _check_method("mcse", method, statistics, prob)
    return _for_each_variable(statistics[method], draws)


def e_bfmi(energy: Real[np.ndarray, "chain draw"]) -> Float[np.ndarray, " chain"]:
    """Compute the estimated Bayesian fraction of missing information of each chain (Betancourt 2016).

    It is the mean squared change of the energy divided by its variance. Below about 0.3 the momentum refreshments are
    too small to cross the energies of the target, and the tails are explored slowly.

    Args:
        energy: The total energy after every iteration.

    Returns:
        One number per chain; NaN if the energy is constant or non-finite.
    """
    energy = _checks.plain("e_bfmi", "energy", energy)
    if energy.ndim != 2 or energy.shape[1] < 2:
        raise ValueError(
            f"e_bfmi: expected energies of shape (chain, draw) with 2 or more draws, found {energy.shape}. "
            "Pass sample_stats['energy'] as stored; give a single chain a leading axis with energy[None]."
        )
    energy = energy.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.var(energy, axis=1, ddof=1)


class Convergence(NamedTuple):
    """The statistics of a summary, one number per variable each; see :func:`ess`, :func:`mcse` and :func:`rhat`."""

    mcse_mean: Float[np.ndarray, "*shape"]
    ess_bulk: Float[np.ndarray, "*shape"]
    ess_tail: Float[np.ndarray, "*shape"]
    rhat: Float[np.ndarray, "*shape"]


def convergence(draws: _Draws) -> Convergence:
    """Compute the statistics of a summary at once, which takes half the time of separate calls.

    Args:
        draws: The draws; any real type, converted to double precision.
    """

    def all_at_once(x: _Values) -> Float[np.ndarray, "statistic variable"]:
        halves = _split(x)
        ranked = _rank_normalise(halves)
        standard_error = x.std(axis=(1, 2), ddof=1) / np.sqrt(_ess(halves))
        tail = np.minimum(*(_ess(_split((x <= q).astype(np.float64))) for q in _quantiles(x, (0.05, 0.95))))
        agreement = _larger_rhat(halves, ranked) if x.shape[1] > 1 else np.full(len(x), np.nan)
        return np.stack([standard_error, _ess(ranked), tail, agreement])

    return Convergence(*_for_each_variable(all_at_once, draws, num_statistics=4))


def _for_each_variable(
    statistic: Callable[[_Values], np.ndarray],
    draws: Any,
    *,
    minimum_chains: int = 1,
    minimum_draws: int = MINIMUM_DRAWS,
    num_statistics: int | None = None,
) -> np.ndarray:
    """Apply a statistic, or several on a leading axis, to blocks of variables; NaN where it is undefined."""
    draws = _as_array("diagnostics", draws)
    if draws.ndim < 2:
        raise ValueError(
            f"Expected draws of shape (chain, draw, ...), found shape {draws.shape}. "
            "Give a single chain a leading axis with draws[None]."
        )
    if draws.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected real draws, found dtype {draws.dtype}. "
            "For complex draws pass draws.real and draws.imag separately."
        )
    num_chains, num_draws, *shape = draws.shape
    leading = () if num_statistics is None else (num_statistics,)
    result = np.full((*leading, math.prod(shape)), np.nan)
    if num_chains >= minimum_chains and num_draws >= minimum_draws:
        length = max(1, _BLOCK_SIZE // (num_chains * num_draws))

        def fill(first: int, columns: np.ndarray) -> None:
            x = np.ascontiguousarray(np.moveaxis(columns, -1, 0), dtype=np.float64)
            is_number = ~np.isnan(x).any(axis=(1, 2))
            if is_number.any():
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    result[..., first : first + len(x)][..., is_number] = statistic(
                        x if is_number.all() else x[is_number]
                    )

        with ThreadPoolExecutor(_NUM_THREADS) as pool:  # NumPy's sorts and transforms release the interpreter's lock
            for chosen, columns in number_blocks(draws):
                starts = range(0, columns.shape[-1], length)
                jobs = [(chosen.start + start, columns[..., start : start + length]) for start in starts]
                if len(jobs) == 1:
                    fill(*jobs[0])
                else:
                    list(pool.map(lambda job: fill(*job), jobs))
    return result.reshape((*leading, *shape))


def _check_method(function: str, method: str, statistics: dict[str, _Statistic], prob: float | None) -> None:
    if not isinstance(method, str) or method not in statistics:
        found = _checks.described(method)
        raise ValueError(f"{function}: expected one of the methods {', '.join(statistics)}, found method={found}.")
    if method == "quantile":
        _check_prob(prob)
    elif prob is not None:
        raise ValueError(
            f"{function}: prob is only used with method='quantile', found method={method!r}, prob={prob}. "
            "Leave prob out or use method='quantile'."
        )


def _check_prob(prob: float | None) -> float:
    if prob is None:
        raise ValueError("method='quantile' expects prob between 0 and 1, found None. Pass for instance prob=0.9.")
    return _checks.number("diagnostics", "prob", prob, above=0.0, below=1.0)


def _as_array(function: str, draws: Any) -> Any:
    """The draws as an array, or as a variable that is read when it is indexed; TypeError for anything else."""
    if isinstance(draws, xr.DataArray):
        return draws
    try:
        return np.asarray(draws)
    except (TypeError, ValueError) as error:
        found = _checks.described(draws)
        raise TypeError(f"{function}: expected draws of shape (chain, draw, ...), found {found}: {error}.") from error


def _split(x: _Values) -> Float[np.ndarray, "variable half_chain half_draw"]:
    """The halves of all chains as separate chains; the middle draw of an odd number is left out."""
    half = x.shape[-1] // 2
    return np.concatenate([x[..., :half], x[..., -half:]], axis=1)


def _fold(x: _Values) -> _Values:
    return np.abs(x - np.median(x, axis=(1, 2), keepdims=True))


def _rank_normalise(x: _Values) -> _Values:
    """Normal scores of the ranks over all chains, ties at their average rank, with Blom's offset 3/8."""
    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    order = np.argsort(flat, axis=1)
    ascending = np.take_along_axis(flat, order, axis=1)
    differs = ascending[:, 1:] != ascending[:, :-1]
    twice_the_rank = np.arange(2, 2 * size + 1)
    score = special.ndtri((twice_the_rank / 2 - 3 / 8) / (size + 1 / 4))
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, score[None, ::2], axis=1)
    ties = np.flatnonzero(~differs.all(axis=1))
    if len(ties):
        differs, edge = differs[ties], np.ones((len(ties), 1), bool)
        position = np.arange(size)
        first = np.maximum.accumulate(np.where(np.hstack([edge, differs]), position, 0), axis=1)
        last = np.where(np.hstack([differs, edge]), position, size)
        last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
        tied = np.empty_like(flat[ties])
        np.put_along_axis(tied, order[ties], score[first + last], axis=1)
        scores[ties] = tied
        scores[np.isnan(flat)] = np.nan
    return scores.reshape(x.shape)


def _quantiles(x: _Values, probs: tuple[float, ...]) -> list[Float[np.ndarray, "variable 1 1"]]:
    """Type 7 quantiles over all chains, rounded as in ArviZ: draws are compared with them."""
    flat = x.reshape(len(x), -1)
    size = flat.shape[1]
    places = [size * prob + (1 + prob * -1.0) for prob in probs]
    lower = [int(np.floor(np.clip(place, 1, size - 1))) for place in places]
    ordered = np.partition(flat, sorted({k for below in lower for k in (below - 1, below)}), axis=1)
    weights = [np.clip(place - below, 0, 1) for place, below in zip(places, lower, strict=True)]
    return [
        ((1 - weight) * ordered[:, below - 1] + weight * ordered[:, below])[:, None, None]
        for weight, below in zip(weights, lower, strict=True)
    ]


def _ess_quantile(x: _Values, prob: float) -> Float[np.ndarray, " variable"]:
    return _ess(_split((x <= _quantiles(x, (prob,))[0]).astype(np.float64)))


def _ess_median_absolute_deviation(x: _Values) -> Float[np.ndarray, " variable"]:
    distance = _fold(x)
    is_near = distance <= np.median(distance, axis=(1, 2), keepdims=True)
    return _ess(_rank_normalise(_split(is_near.astype(np.float64))))


def _mcse_sd(x: _Values) -> Float[np.ndarray, " variable"]:
    squares = (x - x.mean(axis=(1, 2), keepdims=True)) ** 2
    variance = squares.mean(axis=(1, 2))
    variance_of_variance = ((squares**2).mean(axis=(1, 2)) - variance**2) / _ess(_split(squares))
    return np.sqrt(variance_of_variance / variance / 4)


def _mcse_quantile(x: _Values, prob: float) -> Float[np.ndarray, " variable"]:
    """Half the width of the order statistics' interval that has the coverage of one standard error."""
    effective = _ess_quantile(x, prob)
    ascending = np.sort(x.reshape(len(x), -1), axis=1)
    size = ascending.shape[1]
    lower, upper = (
        special.betaincinv(effective * prob + 1, effective * (1 - prob) + 1, coverage) * size - 1
        for coverage in (0.1586553, 0.8413447)
    )
    lower = np.floor(np.fmax(lower, 0)).astype(int)
    upper = np.ceil(np.fmin(upper, size - 1)).astype(int)
    row = np.arange(len(x))
    return (ascending[row, upper] - ascending[row, lower]) / 2


def _rhat(x: _Values) -> Float[np.ndarray, " variable"]:
    num_draws = x.shape[-1]
    stands_still = (x == x[..., :1]).all(axis=-1)
    within = np.where(stands_still, 0.0, x.var(axis=-1, ddof=1)).mean(axis=1)
    between = num_draws * x.mean(axis=-1).var(axis=-1, ddof=1)
    return np.sqrt((between / within + num_draws - 1) / num_draws)


def _larger_rhat(halves: _Values, ranked: _Values) -> Float[np.ndarray, " variable"]:
    """The maximum of bulk and folded; the halves are also given rank-normalised."""
    bulk, folded = _rhat(ranked), _rhat(_rank_normalise(_fold(halves)))
    return np.where(folded > bulk, folded, bulk)


def _nested_rhat(x: _Values, num_superchains: int) -> Float[np.ndarray, " variable"]:
    num_variables, num_chains, num_draws = x.shape
    chain_means = x.mean(axis=-1).reshape(num_variables, num_superchains, -1)
    within = np.zeros((num_variables, num_superchains))
    if num_chains > num_superchains:
        within += chain_means.var(axis=-1, ddof=1)
    if num_draws > 1:
        within += x.var(axis=-1, ddof=1).reshape(chain_means.shape).mean(axis=-1)
    between = chain_means.mean(axis=-1).var(axis=-1, ddof=1)
    return np.sqrt(1 + between / within.mean(axis=-1))


def _ess(x: _Values) -> Float[np.ndarray, " variable"]:
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


def _mean_autocovariance(x: _Values) -> Float[np.ndarray, "variable draw"]:
    """Autocovariance at every lag, divided by the number of draws and averaged over the chains."""
    num_draws = x.shape[-1]
    length = next_fast_len(2 * num_draws, real=True)
    spectrum: Any = rfft(x - x.mean(axis=-1, keepdims=True), n=length, axis=-1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance: Any = irfft(power, n=length, axis=-1)
    return covariance[..., :num_draws] / num_draws
