"""Markdown tables and pictures from records."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#33373d"
SERIES = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#97266d", "#718096")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], align: str | None = None) -> str:
    """A Markdown table.

    Args:
        header: Column names.
        rows: Cells; numbers are rounded by :func:`number`, None is left empty.
        align: One of ``l``, ``r`` a column; the first column is left-aligned and the others right by default.

    Returns:
        The table, ending with a newline.
    """
    align = align or "l" + "r" * (len(header) - 1)
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"table: {len(header)} columns {list(header)}, but a row of {len(row)} cells {list(row)}.")
    marks = {"l": ":---", "r": "---:"}
    lines = [_line(header), _line([marks[a] for a in align]), *(_line([cell(c) for c in row]) for row in rows)]
    return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """What stands in a table for a value."""
    if value is None:
        return ""
    return value if isinstance(value, str) else number(value)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, thousands grouped, no exponent for ordinary sizes."""
    value = float(value)
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= digits - 1:
        return f"{value:,.0f}"
    if size < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits - 1 - size}f}"


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard deviation of repeated measurements."""
    values = np.asarray(values, np.float64)
    mean = number(values.mean(), digits)
    return f"{mean} ± {number(values.std(ddof=1), 2)}" if len(values) > 1 else mean


def with_error(value: float, error: float) -> str:
    """A value to the digits that its standard error leaves."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return number(value)
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:+.{decimals}f} ± {error:.{decimals}f}"


def blank(**options: Any) -> "Figure":
    """An empty figure; Matplotlib is loaded here, so that experiments run where it is missing.

    Args:
        **options: Of :class:`matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    return Figure(**options)


def panels(num_rows: int, num_columns: int, *, width: float = 8.8, height: float = 2.9) -> "tuple[Figure, np.ndarray]":
    """A figure of equal panels in the house style.

    Args:
        num_rows: Rows of panels.
        num_columns: Columns of panels.
        width: Of the figure, in inches.
        height: Of a row, in inches.

    Returns:
        The figure and its axes, (row, column).
    """
    figure = blank(figsize=(width, height * num_rows), layout="constrained", dpi=120)
    axes = np.asarray(figure.subplots(num_rows, num_columns, squeeze=False))
    for ax in axes.ravel():
        ax.tick_params(colors=INK, labelsize=8, width=0.7, length=3)
        for side, spine in ax.spines.items():
            spine.set_color(INK)
            spine.set_linewidth(0.7)
            spine.set_visible(side in ("left", "bottom"))
    return figure, axes


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
