"""The style of figures, and their common elements."""

import itertools
import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, ScalarFormatter, StrMethodFormatter

from geodax.app.report.page import INK, SERIES

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Markers of groups of points, in this order."""

WIDTH = 8.8
"""Width of a full-width figure, in inches."""

NARROW = 3.7
"""Width of a figure on a phone, in inches: 400 pixels, less the margins of the page, make 8 points 11 pixels."""

SMALL = 8.0
"""Font size of tick labels and legends, in points."""

NORMAL = 9.0
"""Font size of titles and axis labels, in points."""

_NARROW_LINE = 46  # characters of a label that fit into the width of a phone
_MOST_TICKS, _MOST_NARROW_TICKS = 7, 5  # intervals of horizontal axes, so that 100,000 and its neighbours fit
_SHORT_SPAN = 5  # days
_FEW_DECADES = 500  # ratio of the ends of a logarithmic axis
_LEAST_PARTED = 10_000  # from here on commas part the thousands of an axis
_NARROW_LABEL = 34  # the same beside labels of rows
_HANDLE = 8  # width of a handle of a legend, in characters


def new_figure(width: float = WIDTH, height: float = 3.0) -> Figure:
    """Make an empty figure in the report's style, in inches; text is laid out for the default width."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    return figure


def panel(height: float, width: float = WIDTH) -> tuple[Figure, Any]:
    """Make a figure of one panel, in inches; return the figure and its axes."""
    figure = new_figure(width, height)
    return figure, styled(figure.add_subplot())


class _Numbers(ScalarFormatter):
    """Numbers of axes as people write them: commas in five digits and more, without offsets and powers of ten."""

    def __init__(self):
        super().__init__(useOffset=False)
        self.set_powerlimits((-5, 10))
        self._largest = 0.0

    def set_locs(self, locs: Any) -> None:
        super().set_locs(locs)
        self._largest = float(np.max(np.abs(locs), initial=0.0))

    def __call__(self, x: Any, pos: Any = None) -> str:
        whole, point, decimals = super().__call__(x, pos).partition(".")
        if self._largest < _LEAST_PARTED:  # years, too
            return whole + point + decimals
        return re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", whole) + point + decimals


def styled(ax: Any) -> Any:
    """Apply the report's style to axes; return them."""
    ax.patch.set_alpha(0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(_Numbers())
    ax.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))
    for side, spine in ax.spines.items():
        spine.set_color(INK)
        spine.set_linewidth(0.7)
        spine.set_visible(side in ("left", "bottom"))
    ax.tick_params(colors=INK, labelsize=SMALL, width=0.7, length=3)
    return ax


def logarithmic(ax: Any, names: str) -> None:
    """Make axes ("x", "y" or "xy") logarithmic, labelled with plain numbers. Call it after plotting."""
    for name in names:
        getattr(ax, f"set_{name}scale")("log")
        axis = getattr(ax, f"{name}axis")
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < _FEW_DECADES * low else (1,), numticks=8))
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axis.set_minor_locator(NullLocator())


def as_dates(ax: Any) -> None:
    """Label the horizontal axis, of days since 1970-01-01, with dates, and with times if it is a few days long."""
    low, high = ax.get_xlim()
    is_short = high - low < _SHORT_SPAN
    ax.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=3 if is_short else 4))
    ax.xaxis.set_major_formatter(DateFormatter("%Y-%m-%d %H:%M" if is_short else "%Y-%m-%d"))


def finish(figure: Figure) -> Figure:
    """Turn off math in the texts of a figure, so that dollar signs are printed, and black, which dark pages would hide.

    Returns the figure.
    """
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
        if str(text.get_color()) == "black":  # type: ignore[attr-defined]
            text.set_color(INK)  # type: ignore[attr-defined]
    return figure


def is_wide(figure: Figure) -> bool:
    """Whether the text of a figure would be too small on a phone."""
    return bool(figure.get_figwidth() > NARROW)


def narrowed(figure: Figure) -> Figure:
    """Lay a figure out again for a phone: panels below each other, long labels in several lines; return the figure."""
    columns = 1
    panels = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    shapes = {ax.get_subplotspec().get_gridspec() for ax in panels}  # type: ignore[union-attr]
    if len(panels) > 1 and max((shape.ncols for shape in shapes), default=1) > 1:
        rows = max(shape.nrows for shape in shapes)
        columns = len(panels) / rows
        below = GridSpec(len(panels), 1, figure)
        for i, ax in enumerate(panels):
            ax.set_subplotspec(below[i])
            ax.tick_params(axis="y", labelleft=True)
        for ax, next_ax in itertools.pairwise(panels):
            if ax.get_xlabel() == next_ax.get_xlabel():
                ax.set_xlabel("")
    figure.set_size_inches(NARROW, figure.get_figheight() * columns)
    for ax in figure.axes:
        if isinstance(ax.xaxis.get_major_locator(), MaxNLocator):
            ax.locator_params(axis="x", nbins=_MOST_NARROW_TICKS)
    for wide in list(figure.legends):
        labels, handles = [text.get_text() for text in wide.get_texts()], wide.legend_handles
        longest = max(map(len, labels), default=0) + _HANDLE
        wide.remove()
        legend(figure, handles, labels, max(1, int(_NARROW_LINE // longest)))
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), SMALL))  # type: ignore[attr-defined]
        if len(text.get_text()) > _NARROW_LINE:  # type: ignore[attr-defined]
            text.set_text(textwrap.fill(text.get_text(), _NARROW_LINE))  # type: ignore[attr-defined]
    for ax in figure.axes:
        ax.set_xlabel(textwrap.fill(ax.get_xlabel(), _NARROW_LABEL))
    return finish(figure)


def labelled(ax: Any, *, x: str = "", y: str = "", title: str = "", size: float = NORMAL) -> None:
    """Name the axes, and write a title on the left."""
    if x:
        ax.set_xlabel(x, fontsize=size)
    if y:
        ax.set_ylabel(y, fontsize=size)
    if title:
        ax.set_title(title, fontsize=size, loc="left")


def legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str], ncols: int, side: str = "right") -> None:
    """Add a legend above the figure."""
    place: Any = f"outside upper {side}"
    figure.legend(handles, labels, loc=place, ncols=ncols, frameon=False, fontsize=SMALL, labelcolor=INK)


def short(name: str, most: int = 28) -> str:
    """Shorten a name for an axis: one line, no control characters, cut in the middle."""
    name = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in name)
    name = " ".join(name.split())
    if len(name) <= most:
        return name
    return f"{name[: most - most // 3 - 1].rstrip()}…{name[-(most // 3) :].lstrip()}"


def draw_intervals(ax: Axes, labels: Sequence[str], samples: Sequence[np.ndarray], *, colour: str = SERIES[0]) -> None:
    """Draw median, 50 % and 90 % interval of the finite values of each sample into axes, the first at the top."""
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


def grid(number: int, *, height: float) -> tuple[Figure, list[Any]]:
    """Make a figure of panels of this height in inches, in two columns; a single panel has the full width.

    Returns the axes row by row.
    """
    num_columns = 1 if number == 1 else 2
    num_rows = max(1, math.ceil(number / num_columns))
    figure = new_figure(WIDTH, 0.45 + height * num_rows)
    axes = [styled(figure.add_subplot(num_rows, num_columns, i + 1)) for i in range(number)]
    return figure, axes


def say(ax: Any, words: str) -> None:
    """Write a text into axes that have nothing to show."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=INK, fontsize=NORMAL)
