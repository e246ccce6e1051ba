"""Figures of Bayesian principal components: scales, angles, loadings, scores."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from geodax.app.pca.number import Evidence
from geodax.app.report.drawing import (
    MARKERS,
    SMALL,
    WIDTH,
    draw_intervals,
    finish,
    labelled,
    legend,
    logarithmic,
    new_figure,
    panel,
    short,
    styled,
)
from geodax.app.report.page import INK, SERIES
from geodax.models.pca.held_out import HeldOutCells

MOST_ELLIPSES = 24
"""Largest number of ellipses in one plot of scores."""
MOST_ARROWS = 14
"""Largest number of arrows in a biplot."""
_FOLD = math.sqrt(-2 * math.log(1 - 0.9))  # radius of the 90 % ellipse of two standard normal variables
_Z90 = 1.6449
_MOST_EIGENVALUES = 20
_LEAST_SHOWN = 1e-3  # of the largest eigenvalue


def scale_figure(
    scale: Float[np.ndarray, "draw p"], share: Float[np.ndarray, "draw p"], noise: np.ndarray, limit: np.ndarray
) -> Figure:
    """Plot draws of the scales against those of the noise and the limit of detection, and the fractions of variance.

    The last two are one for all components (draw, 1), or one for each.
    """
    p = scale.shape[1]
    figure = new_figure(WIDTH, 1.35 + 0.24 * min(p, 40))
    labels = [f"component {j + 1}" for j in range(min(p, 40))]
    left, right = (styled(figure.add_subplot(1, 2, i)) for i in (1, 2))
    draw_intervals(left, labels, list(scale.T[:40]))
    low, middle, high = np.quantile(noise[:, :40], (0.05, 0.5, 0.95), axis=0)
    bottom, top = left.get_ylim()
    edges = np.linspace(top, bottom, len(middle) + 1)  # of components, or of the axes
    for start, end, *interval in zip(edges[:-1], edges[1:], low, high, strict=True):
        left.fill_betweenx([start, end], *interval, color=SERIES[1], alpha=0.25, linewidth=0)
    line = left.vlines(middle, edges[:-1], edges[1:], color=SERIES[1], linewidth=1.4)
    limits = np.median(limit[:, :40], axis=0)
    dotted = left.vlines(limits, edges[:-1], edges[1:], color=SERIES[3], linewidth=1.4, linestyle="--")
    left.set_xlim(left=0)
    labelled(left, x="standard deviation of the scores")
    draw_intervals(right, labels, [100 * values for values in share.T[:40]], colour=SERIES[2])
    right.tick_params(axis="y", labelleft=False)  # beside each other; a phone shows them
    right.set_xlim(left=0)
    labelled(right, x="fraction of the total variance, in\u00a0%")
    legend(figure, [line, dotted], ["noise (band: 90 % interval)", "limit of detection"], 2, "left")
    return finish(figure)


def angle_figure(
    subspace: Float[np.ndarray, "draw k"], component: Float[np.ndarray, "draw p"], at_random: float
) -> Figure:
    """Plot the largest principal angle as a histogram, and the angles of the components to their mean directions.

    Angles are in degrees, those to the mean subspace the largest first; k may be 0. ``at_random`` is the median largest
    angle of a random subspace.
    """
    p = component.shape[1]
    figure = new_figure(WIDTH, max(2.5, 1.2 + 0.24 * min(p, 30)))
    left, right = (styled(figure.add_subplot(1, 2, i)) for i in (1, 2))
    largest = subspace[:, 0] if subspace.shape[1] else np.zeros(len(subspace))
    bins = max(8, min(40, round(2 * len(largest) ** 0.5)))
    left.hist(largest, bins=bins, color=SERIES[0], alpha=0.55, histtype="stepfilled", density=True)
    left.set_yticks([])
    left.spines["left"].set_visible(False)
    highest = float(np.max(largest, initial=0.0))
    left.set_xlim(0, 1.05 * highest or 1.0)
    if 0 < at_random < 2.5 * highest:
        left.set_xlim(0, 1.05 * max(highest, at_random))
        left.axvline(at_random, color=SERIES[1], linewidth=1.4, linestyle="--")
        left.text(
            at_random,
            1.0,
            "a random\nsubspace ",
            transform=left.get_xaxis_transform(),
            ha="right",
            va="top",
            fontsize=8,
            color=SERIES[1],
        )
    labelled(left, x="largest angle to the mean subspace (degrees)")
    labels = [f"component {j + 1}" for j in range(min(p, 30))]
    draw_intervals(right, labels, list(component.T[:30]), colour=SERIES[2])
    right.set_xlim(left=0)
    labelled(right, x="angle to its mean direction (degrees)")
    return finish(figure)


def loading_map(
    median: Float[np.ndarray, "row p"], is_clear: Bool[np.ndarray, "row p"], names: Sequence[str]
) -> Figure:
    """Plot a map of median loadings: the colour shows the sign, its strength the size.

    Numbers whose 90 % interval excludes zero are bold.
    """
    num_rows, p = median.shape
    cell_height, cell_width = 0.21, min(1.0, 6.4 / p)
    width = min(WIDTH, 2.4 + cell_width * p)
    figure, ax = panel(0.55 + cell_height * num_rows, width)
    largest = max(float(np.abs(median).max()), 1e-12)
    for i, j in np.ndindex(num_rows, p):
        value = float(median[i, j])
        colour = SERIES[0] if value > 0 else SERIES[1]
        alpha = round(0.03 + 0.62 * abs(value) / largest, 2)
        ax.add_patch(Rectangle((j - 0.49, i - 0.47), 0.98, 0.94, color=colour, alpha=alpha, linewidth=0))
        if cell_width > 0.35:
            weight = "bold" if is_clear[i, j] else "normal"
            text = f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, color=INK, fontweight=weight)
    ax.set_xlim(-0.5, p - 0.5)
    ax.set_ylim(num_rows - 0.5, -0.5)
    ax.set_yticks(range(num_rows), [short(name) for name in names], parse_math=False)
    step = math.ceil(p / 20)
    ax.set_xticks(range(0, p, step), [str(j + 1) for j in range(0, p, step)])
    ax.xaxis.tick_top()
    labelled(ax, x="component")
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return finish(figure)


def loading_intervals(
    loadings: Float[np.ndarray, "draw n p"], median: Float[np.ndarray, "n p"], names: Sequence[str]
) -> Figure:
    """Plot intervals of the largest aligned loadings of the first components, one panel each."""
    p = min(loadings.shape[2], 4)
    num_columns = 1 if p == 1 else 2
    num_rows = math.ceil(p / num_columns)
    shown = min(15, loadings.shape[1])
    figure = new_figure(WIDTH, num_rows * (0.75 + 0.2 * shown))
    for j in range(p):
        ax = styled(figure.add_subplot(num_rows, num_columns, j + 1))
        order = np.argsort(-np.abs(median[:, j]), kind="stable")[:shown]
        samples = [loadings[:, i, j] for i in order.tolist()]
        draw_intervals(ax, [str(names[i]) for i in order.tolist()], samples, colour=SERIES[j % len(SERIES)])
        ax.axvline(0, color=INK, linewidth=0.8)
        labelled(ax, title=f"component {j + 1}")
    return finish(figure)


def score_figure(
    mean: Float[np.ndarray, "row p"],
    covariance: Float[np.ndarray, "row p p"],
    group: Int[np.ndarray, " row"],
    group_names: Sequence[str],
) -> Figure:
    """Plot posterior mean scores with 90 % ellipses (for one component, 90 % intervals in order).

    More than ``MOST_ELLIPSES`` ellipses would hide each other and the points, so only rows evenly spaced along the
    first score have one then. Groups are indices into the names; without names there is one colour and no legend.
    """
    pairs = [(0, 1), (0, 2)][: max(0, mean.shape[1] - 1)]
    figure = new_figure(WIDTH, 4.3 if pairs else 3.0)
    outlined = np.zeros(len(mean), bool)
    spaced = np.linspace(0, len(mean) - 1, min(MOST_ELLIPSES, len(mean))).round().astype(int)
    outlined[np.argsort(mean[:, 0], kind="stable")[spaced]] = True
    groups = [(label, group == label) for label in range(max(len(group_names), 1))]
    if not pairs:
        ax = styled(figure.add_subplot())
        place = np.argsort(np.argsort(mean[:, 0], kind="stable"), kind="stable")
        for label, own in groups:
            points = _points(label)
            half = _Z90 * np.sqrt(np.maximum(covariance[own, 0, 0], 0))
            bars = [[(x, y - h), (x, y + h)] for x, y, h in zip(place[own], mean[own, 0], half, strict=True)]
            ax.add_collection(LineCollection(bars, colors=points["color"], linewidths=0.8, alpha=0.5))
            ax.plot(place[own], mean[own, 0], markersize=3, **points)
        ax.autoscale_view()
        ax.set_xticks([])
        labelled(ax, x="rows, ordered by score", y="score on component 1")
    for number, (a, b) in enumerate(pairs):
        ax = styled(figure.add_subplot(1, max(len(pairs), 1), number + 1))
        for label, own in groups:
            points, some = _points(label), own & outlined
            outlines = _ellipses(mean[some][:, [a, b]], covariance[some][:, [a, b]][:, :, [a, b]])
            ax.add_collection(LineCollection(list(outlines), colors=points["color"], linewidths=0.7, alpha=0.5))
            ax.plot(mean[own, a], mean[own, b], markersize=3, alpha=0.9, **points)
        ax.autoscale_view()
        ax.axhline(0, color=INK, linewidth=0.5, alpha=0.4)
        ax.axvline(0, color=INK, linewidth=0.5, alpha=0.4)
        if len(pairs) == 1:
            ax.set_aspect("equal", adjustable="datalim")
        labelled(ax, x=f"score on component {a + 1}", y=f"score on component {b + 1}")
    if group_names:
        handles = [figure.axes[0].plot([], [], markersize=5, **_points(i))[0] for i in range(len(group_names))]
        legend(figure, handles, [short(name, 22) for name in group_names], min(4, len(group_names)), "left")
    return finish(figure)


def residual_figure(
    residual: Float[np.ndarray, "some n"], noise: Float[np.ndarray, " draw"], names: Sequence[str]
) -> Figure:
    """Plot draws of the residual of each shown column, and the noise."""
    figure = noise_figure(residual, names, "residual standard deviation (line: the noise)")
    (ax,) = figure.axes
    low, high = np.quantile(noise, (0.05, 0.95))
    ax.axvspan(float(low), float(high), color=SERIES[1], alpha=0.25, linewidth=0)
    ax.axvline(float(np.median(noise)), color=SERIES[1], linewidth=1.4)
    return figure


def noise_figure(
    noise: Float[np.ndarray, "some n"], names: Sequence[str], label: str = "standard deviation of the noise"
) -> Figure:
    """Plot draws of the noise of each shown column."""
    figure, ax = panel(0.9 + 0.22 * len(names))
    draw_intervals(ax, names, list(noise.T))
    ax.set_xlim(left=0)
    labelled(ax, x=label)
    return finish(figure)


def biplot(
    scores: Float[np.ndarray, "row 2"],
    loadings: Float[np.ndarray, "draw n 2"],
    group: Int[np.ndarray, " row"],
    names: Sequence[str],
) -> Figure:
    """Plot scores on the first two components as points, and the largest loadings as arrows with 90 % ellipses.

    Scores are posterior means, loadings aligned draws; the arrows are lengthened by one factor.
    """
    mean = loadings.mean(axis=0)
    length = np.linalg.norm(mean, axis=1)
    chosen = np.argsort(-length, kind="stable")[:MOST_ARROWS]
    factor = 0.95 * float(np.quantile(np.linalg.norm(scores, axis=1), 0.97)) / max(float(length.max()), 1e-12)
    figure, ax = panel(5.6)
    for label in np.unique(group).tolist():
        ax.plot(*scores[group == label].T, markersize=3, alpha=0.35, **_points(label))
    centred = loadings[:, chosen] - mean[chosen]
    covariance = np.einsum("dni,dnj->nij", centred, centred) / len(centred)
    outlines = _ellipses(factor * mean[chosen], factor**2 * covariance)
    ax.add_collection(LineCollection(list(outlines), colors=INK, linewidths=0.6, alpha=0.6))
    for i in chosen:
        ax.annotate("", factor * mean[i], (0, 0), arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.1})
    ends, at = factor * mean[chosen], factor * mean[chosen] * 1.06
    step = 0.055 * float(np.ptp(np.concatenate([scores[:, 1], ends[:, 1]])))
    for side in (ends[:, 0] < 0, ends[:, 0] >= 0):  # labels of one side below each other
        order = np.flatnonzero(side)[np.argsort(at[side, 1], kind="stable")]
        for below, above in itertools.pairwise(order):
            at[above, 1] = max(at[above, 1], at[below, 1] + step)
    for i, (x, y) in zip(chosen, at, strict=True):
        align = "right" if x < 0 else "left"
        ax.text(x, y, short(str(names[i]), 22), ha=align, va="center", fontsize=SMALL, color=INK, fontweight="bold")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    labelled(ax, x="score on component 1", y="score on component 2")
    return finish(figure)


def _points(label: int) -> dict[str, Any]:
    return {"marker": MARKERS[label % len(MARKERS)], "color": SERIES[label % len(SERIES)], "linestyle": "none"}


def _ellipses(
    mean: Float[np.ndarray, "row 2"], covariance: Float[np.ndarray, "row 2 2"]
) -> Float[np.ndarray, "row 25 2"]:
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    turn = np.linspace(0, 2 * np.pi, 25)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    return mean[:, None, :] + _FOLD * np.swapaxes(root @ circle, -1, -2)


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
    labelled(ax, x="number of components", title="variance of held-out cells predicted, in %")
    ax.legend(frameon=False, fontsize=SMALL, loc="lower right")


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
    labelled(ax, x="component", title="eigenvalue of the covariance (logarithmic)")
    ax.legend(frameon=False, fontsize=SMALL)


def _mark_fit(ax: Axes, place: float, label: str = "this fit") -> None:
    ax.axvline(place, color=INK, linewidth=0.9, linestyle=":", label=label)
