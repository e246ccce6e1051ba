"""Rows of sums and means, which tables for people have below their rows or between groups of them."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from geodax.app.tables.columns import Column
from geodax.app.tables.dates import are_dates
from geodax.data.errors import counted, short

_MOST_SUMMARY_ROWS = 3
_LEAST_ABOVE = 5  # rows above them
_MOST_TOTALS = 1000
_CHANCE = 1e-4  # of a row of data that looks like the means
_TOTAL = re.compile(
    r"(sub|grand|zwischen|teil|gesamt)?[ -]?(totals?|sums?|summe|suma|somme)\b|.*\b(sub)?totals?$", re.I
)


def without_summary(
    read: Sequence[Column], lines: Sequence[int], notes: list[str]
) -> tuple[list[Column], Sequence[int]]:
    """Leave out, with notes, totals of groups of rows, and last rows that begin with sums or means of those above."""
    read, lines = _without_totals(read, lines, notes)
    columns, total = _numbers(read), len(lines)
    for first in range(max(total - _MOST_SUMMARY_ROWS, _LEAST_ABOVE), total):
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers above 1e154
            is_summary = _is_summary([x[:first] for x in columns], [float(x[first]) for x in columns])
        if is_summary:
            notes.append(
                f"Left out as sums or means of the rows above: {_line(read, lines, first)}"
                f"{' and the lines below it' * (first < total - 1)}."
            )
            return _rows_of(read, lines, range(first))
    return list(read), lines


def _without_totals(
    read: Sequence[Column], lines: Sequence[int], notes: list[str]
) -> tuple[list[Column], Sequence[int]]:
    """Leave out rows that are called totals and are sums of the rows since the last one, or of all rows above.

    Those at the end alone are rows of sums like any other.
    """
    named = sorted({row for c in read if c.numbers is None for row in _called_totals(c.text)})
    columns, is_total, begin = _numbers(read), np.zeros(len(lines), bool), 0
    for row in named[:_MOST_TOTALS]:
        since, all_above = np.arange(begin, row), np.flatnonzero(~is_total[:row])
        cells = [float(x[row]) for x in columns]
        with np.errstate(over="ignore", invalid="ignore"):
            is_total[row] = any(
                _is_summary([x[rows] for x in columns], cells, is_named=True) for rows in (since, all_above)
            )
        begin = row + 1 if is_total[row] else begin
    totals = np.flatnonzero(is_total)
    if not len(totals) or totals[0] >= len(lines) - _MOST_SUMMARY_ROWS:
        return list(read), lines
    others = f" and {counted(len(totals) - 1, 'other')}" if len(totals) > 1 else ""
    notes.append(f"Left out as sums of groups of rows above: {_line(read, lines, int(totals[0]))}{others}.")
    return _rows_of(read, lines, np.flatnonzero(~is_total).tolist())


def _called_totals(text: Sequence[str]) -> list[int]:
    """The rows that a column calls totals, if it names rows: of categories, such as female, male and total, none."""
    found = [row for row, cell in enumerate(text) if _TOTAL.match(cell.strip())]
    others = set(text).difference(text[row] for row in found)
    return found if 2 * len(others) > len(text) - len(found) else []


def _numbers(read: Sequence[Column]) -> list[np.ndarray]:
    return [c.numbers for c in read if c.numbers is not None and not are_dates(c.form)]


def _line(read: Sequence[Column], lines: Sequence[int], row: int) -> str:
    """The line of a row and its first text."""
    label = next((c.text[row] for c in read if c.text and c.text[row]), "")
    return f"line {lines[row]}{f' ({short(label)})' * bool(label)}"


def _rows_of(read: Sequence[Column], lines: Sequence[int], rows: Iterable[int]) -> tuple[list[Column], Sequence[int]]:
    kept = list(rows)
    columns = [
        c._replace(
            numbers=None if c.numbers is None else c.numbers[kept],
            text=tuple(c.text[row] for row in kept) if c.text else (),
            whole=None if c.whole is None else c.whole[kept],
        )
        for c in read
    ]
    return columns, [lines[row] for row in kept]


def _is_summary(above: Sequence[np.ndarray], row: Sequence[float], *, is_named: bool = False) -> bool:
    """Whether half of the numbers of a row are sums, or all are means, and not by chance.

    Of a row that is named a total, sums of two rows are enough, and means are not.
    """
    num_cells, num_sums, num_means, chance = 0, 0, 0, 1.0
    least, several = (2, 1) if is_named else (_LEAST_ABOVE, 2)
    for column, cell in zip(above, row, strict=True):
        x = column[~np.isnan(column)]
        if np.isnan(cell) or len(x) < least or (np.ptp(x) == 0 and not is_named):
            continue
        num_cells += 1
        total, mean, spread = float(x.sum()), float(x.mean()), float(x.std())
        digits = next((d for d in range(7) if np.isclose(round(cell, d), cell, rtol=1e-12, atol=0)), 7)
        error = 0.5001 * 10.0**-digits
        is_large = abs(total) > several * np.abs(x).max()
        if is_large and abs(cell - total) <= error + 1e-3 * abs(total):  # of unrounded numbers
            num_sums += 1
            continue
        error += 1e-9 * abs(mean)
        if abs(cell - mean) <= error:
            num_means += 1
            chance *= min(1.0, 2 * error / spread) if spread else 1.0
    are_sums = num_sums > 0 and 2 * (num_sums + num_means) >= num_cells
    # some means are in rows that were imputed
    return are_sums or (not is_named and num_means == num_cells > 0 and chance < _CHANCE)
