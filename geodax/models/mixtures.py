"""Quantiles and probabilities of normal mixtures, one per row, for ensemble predictions."""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from geodax import _checks

_MOST_ITERATIONS = 60
_LAST_STEP = 1e-7  # in units of the narrowest component
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
    """Compute quantiles of each row's mixture, by Newton's method within a bracket.

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
    if level in (0.0, 1.0):
        return np.full(means.shape[1], np.inf if level else -np.inf)
    each = means + ndtri(level) * deviations
    low, high = each.min(axis=0), each.max(axis=0)
    width = high - low
    unit = np.minimum(width, deviations.min(axis=0))
    # the quantile of the normal distribution with the moments of the mixture
    found = means.mean(axis=0) + ndtri(level) * np.sqrt((deviations**2).mean(axis=0) + means.var(axis=0))
    found = np.clip(found, low, high)
    rows, step = np.flatnonzero(width > 0), 2.0 * width
    means, deviations = (means, deviations) if len(rows) == len(width) else (means[:, rows], deviations[:, rows])
    for _ in range(_MOST_ITERATIONS):
        here, below, above = found[rows], low[rows], high[rows]
        distance = (here - means) / deviations
        excess = ndtr(distance).mean(axis=0) - level
        density = (np.exp(-0.5 * distance**2) / deviations).mean(axis=0) / np.sqrt(2.0 * np.pi)
        below, above = np.where(excess < 0, here, below), np.where(excess < 0, above, here)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            new = here - excess / density
        # bisect where Newton's steps leave the bracket or hardly narrow it
        is_newton = (new > below) & (new < above) & (np.abs(new - here) < 0.5 * step[rows])
        new = np.where(is_newton, new, 0.5 * (below + above))
        found[rows], low[rows], high[rows], step[rows] = new, below, above, np.abs(new - here)
        # the error after a step of Newton's is about its square
        is_open = step[rows] > np.where(is_newton, _LAST_STEP * unit[rows], _LAST_STEP**2 * width[rows])
        if not is_open.any():
            break
        if is_open.mean() < 0.5:
            rows, means, deviations = rows[is_open], means[:, is_open], deviations[:, is_open]
    return found
