"""Figures of the dense networks: predictions, curves of classifiers, importance and partial dependence of inputs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve

from geodax.app.mlp.importance import Dependence
from geodax.app.report.drawing import (
    NARROW,
    SMALL,
    as_dates,
    finish,
    grid,
    labelled,
    logarithmic,
    panel,
    say,
    short,
    styled,
)
from geodax.app.report.page import INK, SERIES
from geodax.predict.held_out import Score
from geodax.predict.scores import relative_weights

_MOST_POINTS = 600
_MOST_LINES = 4
_MOST_BARS = 30
_MOST_UPRIGHT = 6  # labels of categories below an axis
_DASHES = ("-", "--", ":", "-.")


def calibration_figure(ranks: np.ndarray, weights: np.ndarray | None = None) -> Figure:
    """Plot the fraction of rows below each quantile of their prediction.

    Ranks are predictive probabilities of at most the observed value.
    """
    figure, ax = panel(3.4, NARROW)
    levels = np.linspace(0, 1, 101)
    w = relative_weights("calibration_figure", weights, len(ranks))
    shares = np.mean(w[:, None] * (ranks[:, None] <= levels[None]), axis=0)
    error = 2 * np.sqrt(levels * (1 - levels) * np.mean(w * w) / len(ranks))
    band = np.clip([levels - error, levels + error], 0, 1)
    ax.fill_between(levels, *band, color=INK, alpha=0.15, linewidth=0)
    ax.plot([0, 1], [0, 1], ":", color=INK, linewidth=0.9)
    ax.plot(levels, shares, color=SERIES[0], linewidth=1.4)
    labelled(ax, x="level of the quantile", y="fraction of rows below it")
    return finish(figure)


def curves_figure(curves: Mapping[str, tuple[np.ndarray, np.ndarray]], weights: np.ndarray | None = None) -> Figure:
    """Plot ROC and precision-recall curves of whether a row has a class, and of its predicted probability, by label."""
    figure, (left, right) = grid(2, height=3.0)
    for i, (label, (is_in, p)) in enumerate(curves.items()):
        style = {"color": SERIES[i % len(SERIES)], "linestyle": _DASHES[i % len(_DASHES)], "linewidth": 1.4}
        false, true, _ = roc_curve(is_in, p, sample_weight=weights)
        left.plot(false, true, label=short(label, 24), **style)
        precision, recall, _ = precision_recall_curve(is_in, p, sample_weight=weights)
        area = average_precision_score(is_in, p, sample_weight=weights)
        right.plot(recall, precision, drawstyle="steps-post", label=f"{short(label, 24)}: {area:.3f}", **style)
    left.plot([0, 1], [0, 1], ":", color=INK, linewidth=0.9)
    labelled(left, x="false positive rate", y="true positive rate (recall)")
    left.legend(frameon=False, fontsize=SMALL, loc="lower right")
    labelled(right, x="recall", y="precision")
    right.set_ylim(0, 1.03)
    right.legend(frameon=False, fontsize=SMALL, loc="lower left", title="average precision", title_fontsize=SMALL)
    return finish(figure)


def importance_figure(scores: Mapping[str, Score], quantity: str) -> Figure:
    """Plot importances by input with 90 % intervals, the largest first."""
    shown = list(scores.items())[:_MOST_BARS]
    figure, ax = panel(0.75 + 0.24 * len(shown))
    places = np.arange(len(shown))
    values = np.array([score.value for _, score in shown])
    half = 1.645 * np.nan_to_num([score.error for _, score in shown])
    ax.barh(places, values, height=0.6, color=SERIES[0], alpha=0.55)
    ax.hlines(places, values - half, values + half, color=SERIES[0], linewidth=1.6)
    ax.axvline(0, color=INK, linewidth=0.7)
    ax.set_yticks(places, [short(name) for name, _ in shown], parse_math=False)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    labelled(ax, x=quantity)
    return finish(figure)


def dependence_figure(
    parts: Sequence[Dependence], quantity: str, classes: Sequence[str], *, is_log: bool = False
) -> Figure:
    """Plot partial dependences: medians and 90 % intervals over the draws, on vertical axes that may be logarithmic.

    ``classes`` are those of the curves' last axis that are shown; empty for a regressor.
    """
    has_long_labels = any(isinstance(p.values[0], str) and len(p.values) > _MOST_UPRIGHT for p in parts)
    figure, axes = grid(len(parts), height=2.5 if has_long_labels else 2.0)
    lowest, highest = np.inf, -np.inf
    for ax, part in zip(axes, parts, strict=True):
        curves = part.curves if classes else part.curves[..., None]
        is_category = isinstance(part.values[0], str)
        at = np.arange(len(part.values)) if is_category else np.asarray(part.values, float)
        num_lines = curves.shape[-1]
        for k in range(num_lines):
            low, middle, high = np.quantile(curves[..., k], (0.05, 0.5, 0.95), axis=0)
            lowest, highest = min(lowest, low.min()), max(highest, high.max())
            style = {"color": SERIES[k % len(SERIES)], "label": short(classes[k], 18) if classes else None}
            if is_category:
                places = at + 0.12 * (k - (num_lines - 1) / 2)
                ax.vlines(places, low, high, color=style["color"], linewidth=2)
                ax.plot(places, middle, "o", markersize=4.2, **style)
            else:
                ax.fill_between(at, low, high, color=style["color"], alpha=0.2, linewidth=0)
                ax.plot(at, middle, linewidth=1.4, linestyle=_DASHES[k % len(_DASHES)], **style)
        if is_category:
            most, rotation = (40 // len(at), 0) if len(at) <= _MOST_UPRIGHT else (12, 90)
            ax.set_xticks(at, [short(str(value), most) for value in part.values], rotation=rotation, parse_math=False)
            ax.set_xlim(-0.5, len(at) - 0.5)
        if part.is_date:
            as_dates(ax)
        labelled(ax, title=short(part.name, 40))
        labelled(ax, y=short(quantity, 24), size=SMALL)
    margin = 0.04 * (highest - lowest) or 1.0
    for ax in axes:
        if is_log:
            ax.set_ylim(0.9 * lowest, 1.1 * highest)
            logarithmic(ax, "y")
        else:
            ax.set_ylim(lowest - margin, highest + margin)
    if len(classes) > 1:
        axes[0].legend(frameon=False, fontsize=SMALL)
    if not parts:
        say(styled(figure.add_subplot()), "no inputs")
    return finish(figure)
