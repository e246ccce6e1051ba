"""Weights and groups of the rows of a fit, and which of them are held out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

from geodax import _checks
from geodax._wording import argument

_LEAST_WEIGHT = 2.0  # of all rows together: weights that add up to 1 are shares


def row_weights(
    owner: str, inputs: np.ndarray, targets: np.ndarray, sample_weight: Any, class_weight: Any
) -> Float[np.ndarray, " rows"] | None:
    """Return the weight of each row, the product of its own and of its class's; None if none were given."""
    if sample_weight is None and class_weight is None:
        return None
    weights = np.ones(len(inputs))
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64, ensure_non_negative=True)
    if isinstance(class_weight, Mapping):
        classes, numbers = np.unique(targets, return_inverse=True)
        weights = weights * compute_class_weight(dict(class_weight), classes=classes, y=targets)[numbers]
    elif isinstance(class_weight, str) and class_weight == "balanced":
        numbers = np.unique(targets, return_inverse=True)[1]
        totals = np.bincount(numbers, weights=weights)
        shares = np.divide(1.0, totals, where=totals > 0, out=np.zeros_like(totals))
        weights = weights * (weights.sum() / np.sum(totals > 0) * shares)[numbers]
    elif class_weight is not None:
        raise TypeError(
            f"{owner}: {argument('class_weight')} must be a dict of weights by class, 'balanced' or None, found "
            f"{_checks.described(class_weight)}."
        )
    if not (weights > 0).any() or (weights < 0).any():
        raise ValueError(f"{owner}: expected weights of at least zero, some of them positive.")
    if weights.sum() < _LEAST_WEIGHT:
        _checks.warn(
            f"{owner}: the weights add up to {weights.sum():.3g}, and all {len(weights)} rows count as that many, so "
            "that the posterior is hardly more than the prior. If they only say which rows matter more, divide them by "
            "their mean."
        )
    return weights


def row_groups(owner: str, groups: Any, num_rows: int) -> Int[np.ndarray, " rows"]:
    """Return the number of each row's group; raises ValueError unless each row has a label that is not missing."""
    labels = _checks.labels(owner, "groups", groups)
    if labels.shape != (num_rows,):
        found = _checks.described(groups)
        raise ValueError(f"{owner}: groups must be {num_rows} labels, one for each row, found {found}.")
    return np.unique(labels, return_inverse=True)[1]


def whole_groups(
    groups: Shaped[np.ndarray, " rows"], number: int, generator: np.random.Generator | None = None
) -> Bool[np.ndarray, " rows"]:
    """Choose the rows of random groups, without a generator of the last ones: at least one, about ``number`` rows.

    Random groups are not much larger than that, unless all are.
    """
    _, own, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.arange(len(sizes))[::-1]
    if generator is not None:
        order = generator.permutation(len(sizes))
        order = order[sizes[order] <= max(2 * number, sizes.min())]
    nearest = int(np.abs(np.cumsum(sizes[order]) - number).argmin())
    return np.isin(own, order[: nearest + 1 if number else 0])


def held_out_rows(owner: str, rows: Any, num_rows: int) -> Bool[np.ndarray, " rows"]:
    """Return whether each row is held out, from Booleans or from numbers of rows; raises ValueError for others."""
    found, is_held_out = np.asarray(rows), np.zeros(num_rows, bool)
    is_mask = found.dtype == bool and found.shape == (num_rows,)
    are_numbers = found.ndim == 1 and found.dtype.kind in "iu" and np.all((found >= 0) & (found < num_rows))
    if not (is_mask or are_numbers) or (are_numbers and len(np.unique(found)) < len(found)):  # zeros and ones
        raise ValueError(
            f"{owner}: calibration must be {num_rows} Booleans, one for each row, or numbers of rows from 0 to "
            f"{num_rows - 1}, each once, found {_checks.described(rows)}."
        )
    is_held_out[found] = True
    return is_held_out
