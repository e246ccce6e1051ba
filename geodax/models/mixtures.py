"""Quantiles and probabilities of mixtures of normal laws, one mixture a row: predictions of an ensemble."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from geodax import _arguments

_NUM_HALVINGS = 40
_MOST_CELLS = 1 << 22


def as_levels(owner: str, levels: Any) -> tuple[float, ...]:
    """Levels of quantiles as numbers.

    Args:
        owner: Whose argument they are, for the message.
        levels: What was handed over.

    Returns:
        The levels.

    Raises:
        TypeError: If they are no sequence of numbers.
        ValueError: If one is not from 0 to 1.
    """
    try:
        each = None if isinstance(levels, str | bytes) else tuple(levels)
    except TypeError:
        each = None
    if each is None:
        raise TypeError(
            f"{owner}: levels must be a sequence of probabilities such as (0.05, 0.95), found "
            f"{_arguments.described(levels)}."
        )
    return tuple(_arguments.number(owner, "a level", level, least=0.0, most=1.0) for level in each)


def mixture_probability(
    values: Float[np.ndarray, " rows"],
    means: Float[np.ndarray, "draw rows"],
    deviations: Float[np.ndarray, "draw rows"],
) -> Float[np.ndarray, " rows"]:
    """Probability of at most the given value, row by row.

    Args:
        values: One value a row.
        means: Means of the draws.
        deviations: Standard deviations of the draws.

    Returns:
        Probabilities.
    """
    return ndtr((values - means) / deviations).mean(axis=0)


def mixture_quantiles(
    levels: tuple[float, ...], means: Float[np.ndarray, "draw rows"], deviations: Float[np.ndarray, "draw rows"]
) -> Float[np.ndarray, "levels rows"]:
    """Quantiles of each row's mixture, between the least and the largest of its parts' quantiles.

    Args:
        levels: Probabilities between 0 and 1.
        means: Means of the draws.
        deviations: Standard deviations of the draws.

    Returns:
        One quantile a level and row.
    """
    size = max(1, _MOST_CELLS // len(means))
    blocks = [slice(i, i + size) for i in range(0, means.shape[1], size)]
    return np.array(
        [np.concatenate([_quantile(level, means[:, b], deviations[:, b]) for b in blocks]) for level in levels]
    ).reshape(len(levels), means.shape[1])


def _quantile(level: float, means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Newton's method, with a bisection where it would leave the bracket."""
    each = means + ndtri(level) * deviations
    low, high = each.min(axis=0), each.max(axis=0)
    middle = 0.5 * (low + high)
    precision = (high - low) * 2.0**-_NUM_HALVINGS
    for _ in range(2 * _NUM_HALVINGS):
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (middle - means) / deviations
            excess = ndtr(z).mean(axis=0) - level
            slope = (np.exp(-0.5 * z**2) / deviations).mean(axis=0) / np.sqrt(2.0 * np.pi)
            newton = middle - excess / slope
        low, high = np.where(excess < 0, middle, low), np.where(excess < 0, high, middle)
        is_found = np.abs(newton - middle) <= precision
        is_within = is_found | ((newton > low) & (newton < high))
        following = np.where(is_within, newton, 0.5 * (low + high))
        is_found |= high - low <= precision
        middle = following
        if is_found.all():
            break
    return middle
