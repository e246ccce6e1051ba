"""The pictures of the matrix toys: draws on pairs of coordinates over the true density, as the paper's figures have them."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter

from experiments.common.rendering import INK, panels
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture, coordinate_names, exact_coordinates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# entries of X = QR, where the modes are apart, and coordinates that the sampler sees
PAIRS = (("x11", "x21"), ("x12", "x22"), ("r11", "r22"), ("q21", "r11"), ("q21", "r22"), ("r12", "r22"))
TRUTH = "#2b6cb0"
_NUM_CELLS = 110
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)  # of the probability within a contour


def scatter(mixture: MatrixMixture, draws: dict[str, tuple[np.ndarray, str]], num_exact: int = 2_000_000) -> "Figure":
    """One row of panels a sampler and three pairs of coordinates.

    Args:
        mixture: The target; its contours come from exact draws.
        draws: Draws (draw, coordinate) and a colour, by the sampler's name.
        num_exact: Exact draws behind the contours.

    Returns:
        The figure.
    """
    exact = _columns(mixture, exact_coordinates(mixture, np.random.default_rng(2019), num_exact))
    rows = [(name, pairs) for name in draws for pairs in (PAIRS[:3], PAIRS[3:])]
    figure, axes = panels(len(rows), 3, height=2.4)
    for line, (name, pairs) in zip(axes, rows, strict=True):
        points, colour = _columns(mixture, draws[name][0]), draws[name][1]
        for ax, (horizontal, vertical) in zip(line, pairs, strict=True):
            ranges = [_range(exact[c], 1.0 if c[0] == "q" else np.inf) for c in (horizontal, vertical)]
            _contours(ax, exact[horizontal], exact[vertical], ranges)
            ax.plot(
                points[horizontal], points[vertical], ".", color=colour, markersize=2.6, markeredgewidth=0, alpha=0.75
            )
            ax.set_xlabel(_label(horizontal), fontsize=9, color=INK, labelpad=1)
            ax.set_ylabel(_label(vertical), fontsize=9, color=INK, labelpad=1)
        if pairs == PAIRS[:3]:
            line[0].set_title(name, fontsize=9, loc="left", color=INK)
    return figure


def _label(name: str) -> str:
    return f"${name[0].upper()}_{{{name[1:]}}}$"


def _columns(mixture: MatrixMixture, draws: np.ndarray) -> dict[str, np.ndarray]:
    """Coordinates, and the entries of X = QR, by name."""
    columns = dict(zip(coordinate_names(mixture), draws.T, strict=True))
    for i in range(1, mixture.n + 1):
        for j in range(1, mixture.p + 1):
            columns[f"x{i}{j}"] = sum(columns[f"q{i}{k}"] * columns[f"r{k}{j}"] for k in range(1, j + 1))
    return columns


def _range(values: np.ndarray, bound: float) -> tuple[float, float]:
    """Nearly all of the values, with a margin, within a bound for their size."""
    low, high = np.quantile(values, [0.0005, 0.9995])
    margin = 0.05 * (high - low)
    return max(low - margin, -bound), min(high + margin, bound)


def _contours(ax: Any, x: np.ndarray, y: np.ndarray, ranges: list[tuple[float, float]]) -> None:
    """Regions of highest density that hold given shares of the probability."""
    density, x_edges, y_edges = np.histogram2d(x, y, bins=_NUM_CELLS, range=ranges)
    density = gaussian_filter(density, 1.2, mode="nearest")
    ordered = np.sort(density.ravel())[::-1]
    levels = np.interp(_SHARES, np.cumsum(ordered) / ordered.sum(), ordered)
    centres = [0.5 * (edges[1:] + edges[:-1]) for edges in (x_edges, y_edges)]
    ax.contour(*centres, density.T, levels=np.unique(levels), colors=TRUTH, linewidths=0.7, alpha=0.85)
