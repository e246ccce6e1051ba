"""Regions of highest density of draws of two numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import gaussian_kde

_NUM_CELLS = 80


def contours(ax: Any, x: np.ndarray, y: np.ndarray, shares: Sequence[float], colour: str) -> None:
    """Outline the smallest regions that hold given shares of the draws, by a kernel estimate of their density.

    Args:
        ax: Matplotlib's axes.
        x: First numbers.
        y: Second numbers.
        shares: Shares of the probability.
        colour: Of the lines.
    """
    estimate = gaussian_kde(np.stack([x, y]))
    levels = np.quantile(estimate(np.stack([x, y])), 1 - np.sort(np.asarray(shares))[::-1])
    grids = [np.linspace(v.min() - 0.2 * np.ptp(v), v.max() + 0.2 * np.ptp(v), _NUM_CELLS) for v in (x, y)]
    density = estimate(np.stack([g.ravel() for g in np.meshgrid(*grids)])).reshape(_NUM_CELLS, _NUM_CELLS)
    ax.contour(*grids, density, levels=np.unique(levels), colors=colour, linewidths=1.2)
