"""Checked counts between classes in windows, in the form used by the hidden Markov network model."""

from typing import Any, Literal, NamedTuple, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

from geodax import _checks

CountLikelihood = Literal["poisson", "negative-binomial"]
COUNT_LIKELIHOODS: tuple[CountLikelihood, ...] = ("poisson", "negative-binomial")


class NetworkCounts(NamedTuple):
    """Counts in the form used by the likelihood: one row per window, one column per pair.

    Attributes:
        values: Counts, zero where missing.
        pairs: The two classes of each column.
        log_factorials: Sum of log y! in each window.
        levels: The distinct counts; None for Poisson counts.
        tally: Number of times each of them occurs in each window; None for Poisson counts.
    """

    values: Float[np.ndarray, "T m"]
    is_observed: Bool[np.ndarray, "T m"]
    pairs: tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]
    num_classes: int
    log_factorials: Float[np.ndarray, " T"]
    levels: Int[np.ndarray, " u"] | None
    tally: Float[np.ndarray, "T u"] | None


def observations(
    counts: Float[np.ndarray, "T C C"], *, diagonal: bool = True, likelihood: CountLikelihood = "poisson"
) -> NetworkCounts:
    """Extract the pairs of symmetric matrices of counts, one per window, NaN where a count is missing."""
    rows, columns = np.triu_indices(counts.shape[1], 0 if diagonal else 1)
    values = counts[:, rows, columns]
    is_observed, values = ~np.isnan(values), np.nan_to_num(values)
    levels = tally = None
    if likelihood == "negative-binomial":
        levels, place = np.unique(values.astype(np.int64), return_inverse=True)
        tally = np.zeros((len(values), len(levels)))
        # missing counts are stored as zeros, which add nothing
        np.add.at(tally, (np.arange(len(values))[:, None], place.reshape(values.shape)), 1.0)
    constant = gammaln(values + 1.0).sum(axis=1)
    return NetworkCounts(values, is_observed, (rows, columns), counts.shape[1], constant, levels, tally)


def checked_counts(X: Any) -> Float[np.ndarray, "T C C"]:
    """Check symmetric counts, windows x classes x classes, NaN where missing; return them in double precision.

    Raises ValueError if they are not symmetric integers.
    """
    counts = _checks.numbers("NetworkHMM", "X", X)
    if counts.ndim != 3 or counts.shape[1] != counts.shape[2] or counts.shape[1] < 2 or len(counts) < 1:
        raise ValueError(
            f"NetworkHMM: expected counts of shape (windows, classes, classes) with at least two classes, found shape "
            f"{counts.shape}."
        )
    differs = ~np.isclose(counts, np.swapaxes(counts, 1, 2), rtol=0, atol=0, equal_nan=True)
    if differs.any():
        t, i, j = (int(k) for k in np.argwhere(differs)[0])
        raise ValueError(
            f"NetworkHMM: counts must be symmetric, but in window {t} entry ({i}, {j}) is {counts[t, i, j]} and "
            f"({j}, {i}) is {counts[t, j, i]}."
        )
    values = counts[~np.isnan(counts)]
    wrong = (values < 0) | (values != np.round(values)) | ~np.isfinite(values)
    if wrong.any():
        raise ValueError(f"NetworkHMM: counts must be 0, 1, 2, ..., or NaN where missing; found {values[wrong][0]}.")
    return counts


def checked_likelihood(name: str) -> CountLikelihood:
    """Return the distribution of the counts; raises ValueError for an unknown name."""
    return cast(CountLikelihood, _checks.chosen("NetworkHMM", "counts", name, COUNT_LIKELIHOODS))
