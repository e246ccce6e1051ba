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
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import xarray as xr
from jaxtyping import Float, Real

from geodax import _checks
from geodax.diagnostics.chain_statistics import (
    Ranks,
    Values,
    effective_size,
    effective_size_within,
    ess_of_median_absolute_deviation,
    ess_of_quantile,
    mcse_of_quantile,
    mcse_of_sd,
    plain_nested_rhat,
    plain_rhat,
    rank_normalise,
    split,
)
from geodax.run.blocks import number_blocks

MINIMUM_DRAWS = 4
"""Number of draws per chain below which every statistic is NaN: each half of a chain needs a variance."""
FEW_DRAWS = 100
"""Number of draws per chain below which the statistics are themselves uncertain."""

_BLOCK_SIZE = 2**17
"""Number of values processed at once: it bounds the memory of the transforms and keeps them in cache."""

_NUM_THREADS = min(4, os.cpu_count() or 1)

T = TypeVar("T")
_Draws = Real[np.ndarray, "chain draw *shape"] | xr.DataArray
_Statistic = Callable[[Values], Float[np.ndarray, " variable"]]

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
        "bulk": lambda x: effective_size(rank_normalise(split(x))),
        "tail": lambda x: np.minimum(ess_of_quantile(x, 0.05), ess_of_quantile(x, 0.95)),
        "mean": lambda x: effective_size(split(x)),
        "sd": lambda x: effective_size(split((x - x.mean(axis=(1, 2), keepdims=True)) ** 2)),
        "median": lambda x: ess_of_quantile(x, 0.5),
        "mad": ess_of_median_absolute_deviation,
        "quantile": lambda x: ess_of_quantile(x, _check_prob(prob)),
        "folded": lambda x: effective_size(Ranks.of(split(x)).folded),
        "identity": effective_size,
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
    return _for_each_variable(lambda x: Ranks.of(split(x)).larger_of(plain_rhat), draws, minimum_chains=2)


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

    def plain(x: Values) -> Float[np.ndarray, " variable"]:
        return plain_nested_rhat(x, num_superchains)

    statistic: _Statistic = (lambda x: Ranks.of(x).larger_of(plain)) if is_ranked else plain
    return _for_each_variable(statistic, draws, minimum_chains=2, minimum_draws=1)


def ess_of_agreement(draws: _Draws) -> Float[np.ndarray, "*shape"]:
    """The effective sample size that R-hat of chains of one distribution depends on, of bulk or folded draws.

    R-hat compares centres and spreads, and draws of NUTS often have more effective ones of a centre than of a spread.
    """

    def smaller(x: Values) -> Float[np.ndarray, " variable"]:
        ranks = Ranks.of(split(x))
        return np.minimum(effective_size_within(ranks.scores), effective_size_within(ranks.folded))

    return _for_each_variable(smaller, draws)


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
        "mean": lambda x: x.std(axis=(1, 2), ddof=1) / np.sqrt(effective_size(split(x))),
        "sd": mcse_of_sd,
        "median": lambda x: mcse_of_quantile(x, 0.5),
        "quantile": lambda x: mcse_of_quantile(x, _check_prob(prob)),
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
    """Compute the statistics of a summary at once, which takes half the time of separate calls."""

    def all_at_once(x: Values) -> Float[np.ndarray, "statistic variable"]:
        halves = split(x)
        ranks = Ranks.of(halves)
        ascending = ranks.ascending if x.shape[2] % 2 == 0 else None
        return np.stack(
            [
                x.std(axis=(1, 2), ddof=1) / np.sqrt(effective_size(halves)),
                effective_size(ranks.scores),
                np.minimum(*(ess_of_quantile(x, prob, ascending) for prob in (0.05, 0.95))),
                ranks.larger_of(plain_rhat) if x.shape[1] > 1 else np.full(len(x), np.nan),
            ]
        )

    return Convergence(*_for_each_variable(all_at_once, draws, num_statistics=4))


def over_pieces(function: Callable[[np.ndarray], T], block: np.ndarray) -> list[T]:
    """Apply a function to pieces (chain, draw, number) of a block in threads: NumPy's sorts free Python's lock."""
    length = max(1, _BLOCK_SIZE // (block.shape[0] * block.shape[1]))
    pieces = [block[..., start : start + length] for start in range(0, block.shape[-1], length)]
    if len(pieces) == 1:
        return [function(pieces[0])]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        return list(pool.map(function, pieces))


def _for_each_variable(
    statistic: Callable[[Values], np.ndarray],
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

        def of_piece(columns: np.ndarray) -> np.ndarray:
            x = np.ascontiguousarray(np.moveaxis(columns, -1, 0), dtype=np.float64)
            found, is_number = np.full((*leading, len(x)), np.nan), ~np.isnan(x).any(axis=(1, 2))
            if is_number.any():
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    found[..., is_number] = statistic(x if is_number.all() else x[is_number])
            return found

        for chosen, columns in number_blocks(draws):
            result[..., chosen] = np.concatenate(over_pieces(of_piece, columns), axis=-1)
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
    _checks.one_variable(function, draws)
    try:
        return np.asarray(draws)
    except (TypeError, ValueError) as error:
        found = _checks.described(draws)
        raise TypeError(f"{function}: expected draws of shape (chain, draw, ...), found {found}: {error}.") from error
