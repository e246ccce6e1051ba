"""Figure of what the data say about the number of components."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from geodax.app.pca.number import Evidence
from geodax.app.report.drawing import NORMAL, SMALL, WIDTH, finish, logarithmic, new_figure, styled
from geodax.app.report.page import INK, SERIES
from geodax.models.pca.held_out import HeldOutCells

_MOST_EIGENVALUES = 20
_LEAST_SHOWN = 1e-3  # of the largest eigenvalue


def number_figure(found: Evidence, p: int) -> Figure | None:
    """Plot the predictions of held-out cells, and the eigenvalues of the data beside those of simulated tables.

    Returns None if there is nothing to show.
    """
    number = (found.held_out is not None) + (found.observed is not None)
    if not number:
        return None
    figure = new_figure(WIDTH, 3.0)
    if found.held_out is not None:
        _draw_held_out(styled(figure.add_subplot(1, number, 1)), found.held_out, p)
    if found.observed is not None:
        _draw_eigenvalues(styled(figure.add_subplot(1, number, number)), found.observed, found.replicated, p)
    return finish(figure)


def _draw_held_out(ax: Axes, held_out: HeldOutCells, p: int) -> None:
    at, values = np.arange(len(held_out.predicted)), 100 * held_out.predicted
    ax.errorbar(at, values, 100 * held_out.standard_error, color=SERIES[0], marker="o", markersize=4, linewidth=1.2)
    lowest = max(float(values.min()), -10.0)
    ax.set_ylim(lowest - 4, float(values.max()) + 6)
    ring = {"color": SERIES[1], "markersize": 9, "fillstyle": "none", "label": "smallest about as good as the best"}
    ax.plot([held_out.chosen], [values[held_out.chosen]], marker="o", linestyle="none", **ring)
    _mark_fit(ax, float(p))
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.set_xlabel("number of components", fontsize=NORMAL, color=INK)
    ax.set_title("variance of held-out cells predicted, in %", fontsize=NORMAL, color=INK, loc="left")
    ax.legend(frameon=False, fontsize=SMALL, labelcolor=INK, loc="lower right")


def _draw_eigenvalues(ax: Axes, observed: np.ndarray, replicated: np.ndarray | None, p: int) -> None:
    shown = min(len(observed), _MOST_EIGENVALUES)
    at = np.arange(1, shown + 1)
    if replicated is not None:
        q5, q25, q75, q95 = np.quantile(replicated[:, :shown], (0.05, 0.25, 0.75, 0.95), axis=0)
        ax.vlines(at, q5, q95, color=SERIES[0], linewidth=2.0, alpha=0.6, label="simulated tables, 50 % and 90 %")
        ax.vlines(at, q25, q75, color=SERIES[0], linewidth=5.0, alpha=0.6)
    ax.plot(at, observed[:shown], "D", color=SERIES[1], markersize=4.5, label="the data (classical PCA)")
    ax.set_ylim(bottom=0.6 * max(float(observed[shown - 1]), _LEAST_SHOWN * float(observed[0]), 1e-12))
    logarithmic(ax, "y")
    _mark_fit(ax, p + 0.5, "components of this fit")
    ax.set_xticks(range(1, shown + 1, max(1, shown // 8)))
    ax.set_xlabel("component", fontsize=NORMAL, color=INK)
    ax.set_title("eigenvalue of the covariance (logarithmic)", fontsize=NORMAL, color=INK, loc="left")
    ax.legend(frameon=False, fontsize=SMALL, labelcolor=INK)


def _mark_fit(ax: Axes, place: float, label: str = "this fit") -> None:
    ax.axvline(place, color=INK, linewidth=0.9, linestyle=":", label=label)
