"""How far chains are from the truth, and how much they are worth."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from geodax.diagnostics.findings import ess


class Truth(NamedTuple):
    """Expectations of some statistics, their standard errors, and the standard deviation of one draw."""

    mean: np.ndarray
    error: np.ndarray
    spread: np.ndarray


def from_draws(draws: np.ndarray) -> Truth:
    """The truth from independent exact draws (draw, statistic)."""
    spread = draws.std(axis=0, ddof=1)
    return Truth(draws.mean(axis=0), spread / np.sqrt(len(draws)), spread)


def effective_sample_sizes(draws: np.ndarray) -> np.ndarray:
    """ESS of the mean, each chain by itself: (chain, statistic) from (chain, draw, statistic)."""
    return np.array([ess(chain[None], method="mean") for chain in draws])


def worth(draws: np.ndarray) -> dict[str, np.ndarray]:
    """What a chain (1, draw, coordinate) says: means and effective sample sizes of the coordinates and their squares."""
    draws = with_squares(draws)
    return {"means": draws[0].mean(axis=0), "sizes": effective_sample_sizes(draws)[0]}


def with_squares(draws: np.ndarray) -> np.ndarray:
    """The coordinates, then their squares."""
    return np.concatenate([draws, draws**2], axis=-1)


def pooled(rows: Sequence[dict], target: dict) -> dict[str, Any]:
    """Several chains of one sampler, against the truth.

    Args:
        rows: Each with ``means`` and ``sizes`` as :func:`worth` gives them.
        target: A :class:`Truth` as a dict, of the coordinates and their squares.

    Returns:
        ``min`` and ``median``: effective sample sizes over the coordinates, for each chain. ``z``: the largest
        difference from the truth, in standard errors (the truth's own included), of the mean over all chains.
        ``bias``: the largest difference in standard deviations of one draw.
    """
    means, sizes = (np.array([row[name] for row in rows]) for name in ("means", "sizes"))
    of_coordinates = sizes[:, : sizes.shape[1] // 2]
    difference = means.mean(axis=0) - target["mean"]
    error = np.sqrt(np.square(target["spread"]) / sizes.sum(axis=0) + np.square(target["error"]))
    return {
        "min": of_coordinates.min(axis=1),
        "median": np.median(of_coordinates, axis=1),
        "z": np.abs(difference / error).max(),
        "bias": np.abs(difference / target["spread"]).max(),
    }
