"""What the likelihood of probabilistic PCA needs of a table: sums over complete rows, and few rows of each pattern."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from geodax._types import Array


class Observations(NamedTuple):
    """Sufficient statistics of the complete rows, and the incomplete rows themselves.

    Attributes:
        scatter: Centred sum of squares and products of the complete rows, n x n; with fewer of them than n, the centred
            rows F themselves, so that it is F^T F. For diagonal noise always such an F.
        rows: The incomplete rows; missing cells hold zero. Many rows of one pattern are replaced by a root of their
            scatter matrix and their average times the root of their number, which have the same quadratic forms.
        multiples: How many means are in each of these rows.
        patterns: The distinct patterns of observed cells in the incomplete rows.
        pattern_of_row: Index of the pattern of each of these rows.
        counts: Number of incomplete rows of each pattern.
    """

    num_complete: float
    average: Float[Array | np.ndarray, " n"]
    scatter: Float[Array | np.ndarray, "k n"]
    rows: Float[np.ndarray, "m n"]
    multiples: Float[np.ndarray, " m"]
    patterns: Bool[np.ndarray, "patterns n"]
    pattern_of_row: Int[np.ndarray, " m"]
    counts: Float[np.ndarray, " patterns"]


def observations(data: Float[np.ndarray, "rows n"], *, is_diagonal: bool = False) -> Observations:
    """Reduce standardised data, NaN where a cell is missing, to the statistics that the likelihood needs."""
    is_observed = ~np.isnan(data)
    is_complete = is_observed.all(axis=1)
    complete, incomplete = data[is_complete], data[~is_complete]
    average = complete.mean(axis=0) if len(complete) else np.zeros(data.shape[1])
    centred: Any = complete - average
    if len(centred) >= data.shape[1]:
        centred = np.linalg.qr(centred, mode="r") if is_diagonal else centred.T @ centred
    patterns, pattern_of_row, counts = np.unique(
        is_observed[~is_complete], axis=0, return_inverse=True, return_counts=True
    )
    in_order = np.nan_to_num(incomplete)[np.argsort(pattern_of_row.reshape(-1), kind="stable")]
    rows, multiples = [in_order[:0]], [np.zeros(0)]
    for own, pattern in zip(np.split(in_order, np.cumsum(counts))[:-1], patterns, strict=True):
        few, multiple = _reduced_rows(own, pattern)
        rows.append(few)
        multiples.append(multiple)
    return Observations(
        float(len(complete)),
        average,
        centred,
        np.concatenate(rows),
        np.concatenate(multiples),
        patterns,
        np.repeat(np.arange(len(patterns)), [len(few) for few in rows[1:]]),
        counts.astype(float),
    )


def _reduced_rows(rows: Float[np.ndarray, "m n"], pattern: Bool[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """As few rows as possible with the quadratic forms of rows of one pattern, and the multiple of the mean in each."""
    if len(rows) <= pattern.sum() + 1:
        return rows, np.ones(len(rows))
    average, root = rows.mean(axis=0), np.sqrt(len(rows))
    scatter = np.zeros((pattern.sum(), len(pattern)))
    scatter[:, pattern] = np.linalg.qr((rows - average)[:, pattern], mode="r")
    return np.vstack([scatter, root * average]), np.append(np.zeros(len(scatter)), root)
