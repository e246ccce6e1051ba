"""Quantiles and probabilities of normal mixtures, one per row, for ensemble predictions."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from geodax import _checks

_NUM_HALVINGS = 40
_MOST_CELLS = 1 << 22


def as_levels(owner: str, levels: Any) -> tuple[float, ...]:
    """Return quantile levels as a tuple of numbers.

    Args:
        owner: Name used in error messages.
        levels: The argument to check.

    Returns:
        The levels.

    Raises:
        TypeError: If ``levels`` is not a sequence of numbers.
        ValueError: If a level is not between 0 and 1.
    """
    try:
        each = None if isinstance(levels, str | bytes) else tuple(levels)
    except TypeError:
        each = None
    if each is None:
        raise TypeError(
            f"{owner}: levels must be a sequence of probabilities such as (0.05, 0.95), found "
            f"{_checks.described(levels)}."
        )
    return tuple(_checks.number(owner, "a level", level, least=0.0, most=1.0) for level in each)


def mixture_probability(
    values: Float[np.ndarray, " rows"],
    means: Float[np.ndarray, "draw rows"],
    deviations: Float[np.ndarray, "draw rows"],
) -> Float[np.ndarray, " rows"]:
    """Compute the probability of at most the given value, row by row.

    Args:
        values: One value per row.
        means: Means of the draws.
        deviations: Standard deviations of the draws.

    Returns:
        Probabilities.
    """
    return ndtr((values - means) / deviations).mean(axis=0)


def mixture_quantiles(
    levels: tuple[float, ...], means: Float[np.ndarray, "draw rows"], deviations: Float[np.ndarray, "draw rows"]
) -> Float[np.ndarray, "levels rows"]:
    """Compute quantiles of each row's mixture, by bisection between the extremes of its components' quantiles.

    Args:
        levels: Probabilities between 0 and 1.
        means: Means of the draws.
        deviations: Standard deviations of the draws.

    Returns:
        One quantile per level and row.
    """
    size = max(1, _MOST_CELLS // len(means))
    blocks = [slice(i, i + size) for i in range(0, means.shape[1], size)]
    return np.array(
        [np.concatenate([_quantile(level, means[:, b], deviations[:, b]) for b in blocks]) for level in levels]
    ).reshape(len(levels), means.shape[1])


def _quantile(level: float, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    each = means + ndtri(level) * deviations
    low, high = each.min(axis=0), each.max(axis=0)
    for _ in range(_NUM_HALVINGS):
        middle = 0.5 * (low + high)
        is_below = mixture_probability(middle, means, deviations) < level
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return 0.5 * (low + high)
