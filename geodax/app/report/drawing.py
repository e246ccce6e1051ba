"""The house style of figures, and what several of them are drawn with."""

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from geodax.app.report.page import INK, SERIES

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Groups of points, in this order, beside their colours."""

WIDTH = 8.8
"""Of a figure as wide as the page, in inches."""

SMALL = 8.0
"""Points of tick labels and legends."""

NORMAL = 9.0
"""Points of titles and axis labels."""


def new_figure(width: float = WIDTH, height: float = 3.0) -> Figure:
    """An empty figure in the house style.

    Args:
        width: In inches; text is laid out for the default.
        height: In inches.

    Returns:
        The figure.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def styled(ax: Any) -> Any:
    """Give axes the house style.

    Args:
        ax: The axes.

    Returns:
        The same axes.
    """
    ax.patch.set_alpha(0)
    for side, spine in ax.spines.items():
        spine.set_color(INK)
        spine.set_linewidth(0.7)
        spine.set_visible(side in ("left", "bottom"))
    ax.tick_params(colors=INK, labelsize=SMALL, width=0.7, length=3)
    return ax


def finish(figure: Figure) -> Figure:
    """Make every text of a figure plain: a dollar sign in a name is no mathematics.

    Args:
        figure: The figure.

    Returns:
        The same figure.
    """
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
    return figure


def short(name: str, most: int = 28) -> str:
    """A name that fits beside an axis: on one line, without control characters, cut in the middle.

    Args:
        name: The name.
        most: Its most characters.

    Returns:
        The name, or its beginning and end.
    """
    name = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in name)
    name = " ".join(name.split())
    if len(name) <= most:
        return name
    return f"{name[: most - most // 3 - 1].rstrip()}…{name[-(most // 3) :].lstrip()}"


def draw_intervals(ax: Axes, labels: Sequence[str], samples: Sequence[np.ndarray], *, colour: str = SERIES[0]) -> None:
    """Draw median, 50 % and 90 % interval of each sample into axes, the first at the top.

    Args:
        ax: The axes.
        labels: The rows' names.
        samples: One array a row; values that are not finite are left out.
        colour: Of all marks.
    """
    for row, sample in enumerate(samples):
        values = np.asarray(sample, dtype=np.float64)
        values = values[np.isfinite(values)]
        if values.size == 0:
            continue
        q5, q25, q50, q75, q95 = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
        ax.plot([q5, q95], [row, row], color=colour, linewidth=1.2, solid_capstyle="butt")
        ax.plot([q25, q75], [row, row], color=colour, linewidth=3.6, solid_capstyle="butt")
        ax.plot([q50], [row], "o", color=colour, markersize=4.2)
    ax.set_yticks(range(len(labels)), [short(label) for label in labels], parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.grid(axis="x", color=INK, alpha=0.18, linewidth=0.6)
    ax.tick_params(axis="y", length=0)


def chain_legend(figure: Figure, number: int, word: str = "chain") -> None:
    """Name the colours of chains above the figure, where there are 2 to 8 of them.

    Args:
        figure: The figure.
        number: The number of chains.
        word: What one is called.
    """
    if 2 <= number <= len(SERIES):
        handles = [figure.axes[0].plot([], [], color=SERIES[i], linewidth=2)[0] for i in range(number)]
        figure.legend(
            handles,
            [f"{word} {i + 1}" for i in range(number)],
            loc="outside upper right",
            ncols=number,
            frameon=False,
            fontsize=SMALL,
            labelcolor=INK,
        )


def grid(number: int, *, height: float) -> tuple[Figure, list[Any]]:
    """A figure of panels in two columns; a single one fills the width.

    Args:
        number: The panels.
        height: Of one, in inches.

    Returns:
        The figure and its axes, row by row.
    """
    num_columns = 1 if number == 1 else 2
    num_rows = max(1, math.ceil(number / num_columns))
    figure = new_figure(WIDTH, 0.45 + height * num_rows)
    axes = [styled(figure.add_subplot(num_rows, num_columns, i + 1)) for i in range(number)]
    return figure, axes


def say(ax: Any, words: str) -> None:
    """Write words into axes that have nothing to show.

    Args:
        ax: The axes.
        words: Why.
    """
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=INK, fontsize=NORMAL)
