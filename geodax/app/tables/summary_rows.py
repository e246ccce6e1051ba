"""Finds the rows of totals and means below a table, which are no data."""

from collections.abc import Sequence

import numpy as np

from geodax.app.tables.columns import Column
from geodax.app.tables.dates import DATES, TIMES
from geodax.data.errors import short

_MOST_ROWS = 3
_LEAST_ABOVE = 5  # rows
_CHANCE = 1e-4  # of a row of data that looks like the means


def without_summary(
    read: Sequence[Column], lines: Sequence[int], notes: list[str]
) -> tuple[list[Column], Sequence[int]]:
    """Leave out the last rows, with a note, if they begin with the sums or the means of the rows above."""
    columns = [c.numbers for c in read if c.numbers is not None and c.form not in (DATES, TIMES)]
    total = len(lines)
    for first in range(max(total - _MOST_ROWS, _LEAST_ABOVE), total):
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers above 1e154
            is_summary = _is_summary([x[:first] for x in columns], [float(x[first]) for x in columns])
        if is_summary:
            label = next((c.text[first] for c in read if c.text and c.text[first]), "")
            notes.append(
                f"Left out as sums or means of the rows above: line {lines[first]}{f' ({short(label)})' * bool(label)}"
                f"{' and the lines below it' * (first < total - 1)}."
            )
            rows = slice(first)
            cut = [
                c._replace(
                    numbers=None if c.numbers is None else c.numbers[rows],
                    text=c.text[rows],
                    whole=None if c.whole is None else c.whole[rows],
                )
                for c in read
            ]
            return cut, lines[rows]
    return list(read), lines


def _is_summary(above: Sequence[np.ndarray], row: Sequence[float]) -> bool:
    """Whether half of the numbers of a row are sums, or all are means, and not by chance."""
    num_cells, num_sums, num_means, chance = 0, 0, 0, 1.0
    for column, cell in zip(above, row, strict=True):
        x = column[~np.isnan(column)]
        if np.isnan(cell) or len(x) < _LEAST_ABOVE or np.ptp(x) == 0:
            continue
        num_cells += 1
        total, mean, spread = float(x.sum()), float(x.mean()), float(x.std())
        digits = next((d for d in range(7) if np.isclose(round(cell, d), cell, rtol=1e-12, atol=0)), 7)
        error = 0.5001 * 10.0**-digits
        if abs(total) > 2 * np.abs(x).max() and abs(cell - total) <= error + 1e-3 * abs(total):  # of unrounded numbers
            num_sums += 1
            continue
        error += 1e-9 * abs(mean)
        if abs(cell - mean) <= error:
            num_means += 1
            chance *= min(1.0, 2 * error / spread)
    are_sums = num_sums > 0 and 2 * (num_sums + num_means) >= num_cells
    return are_sums or (num_means == num_cells > 0 and chance < _CHANCE)  # some means are in rows that were imputed
