"""The reliability diagram of predicted classes."""

import numpy as np
from matplotlib.figure import Figure

from geodax.app.report.drawing import NARROW, SMALL, finish, labelled, new_figure, say, styled
from geodax.app.report.page import INK, SERIES
from geodax.predict.scores import Reliability


def reliability_plot(bins: Reliability) -> Figure:
    """Plot accuracy against confidence, and the fraction of examples at each confidence.

    Each bin of :func:`geodax.predict.scores.reliability` is a dot with Wilson's interval of two binomial standard
    errors. On the dotted line predictions are calibrated; below it they are over-confident.
    """
    figure = new_figure(NARROW, 3.9)
    grid = figure.add_gridspec(2, 1, height_ratios=(3.2, 1))
    upper = styled(figure.add_subplot(grid[0]))
    lower = styled(figure.add_subplot(grid[1], sharex=upper))
    upper.plot([0, 1], [0, 1], ":", color=INK, linewidth=0.9)
    is_used = bins.counts > 0
    if not is_used.any():
        say(upper, "no examples")
        return finish(figure)
    counts, confidence, accuracy, shares = (a[is_used] for a in bins[1:])
    # Wilson (1927), z = 2: fractions at most two of their standard errors away from the observed one
    centre = (counts * accuracy + 2) / (counts + 4)
    half = 2 * np.sqrt(counts * accuracy * (1 - accuracy) + 1) / (counts + 4)
    upper.vlines(confidence, centre - half, centre + half, color=SERIES[0], linewidth=1.2)
    upper.plot(confidence, accuracy, "o", color=SERIES[0], markersize=4.2)
    gap = float((shares * np.abs(accuracy - confidence)).sum())
    labelled(upper, y="accuracy", title=f"expected calibration error {gap:.3f} in {len(bins.counts)} bins")
    upper.set_ylim(0, 1.02)
    upper.tick_params(labelbottom=False)
    lower.bar(bins.edges[:-1], bins.shares, np.diff(bins.edges), align="edge", color=SERIES[0], alpha=0.55)
    labelled(lower, y="fraction", size=SMALL)
    labelled(lower, x="confidence")
    first = float(bins.edges[:-1][is_used].min())
    lower.set_xlim(max(0.0, first - 0.02), 1.01)
    return finish(figure)
