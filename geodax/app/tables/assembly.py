"""Assembles a table of numbers: chooses columns and writes notes for the user."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.app.tables.columns import READ_AS_TEXT, Column
from geodax.app.tables.dates import are_dates
from geodax.app.tables.dialect import POINT, Separators
from geodax.app.tables.names import no_column
from geodax.data.errors import TableError, counted

ASKED_FOR = ("not asked for", READ_AS_TEXT)
"""Reasons in `Table.dropped` that come from the caller's request."""

_INDEX = ("column 1", "Unnamed: 0", "row")  # a first column without a name, as R and pandas write the names of rows
_OTHERS = "name the columns to read with --columns, if the command has it"

_LISTED = 12  # columns in a note
_MANY_ROWS = 10  # from which different integers in any order, as of shuffled rows, are no chance
_COMMA = ". If numbers have a decimal comma, use --decimal ,"


class OnMissing(str):
    """The note on missing cells; callers may have one of their own."""


class OnCounting(str):
    """A note on a column that counts the rows, of interest while columns are chosen."""


Names = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""Column names, or a function that chooses them from all column names."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """The numeric columns of a table, and what was left out.

    Attributes:
        path: The file.
        names: Names of the numeric columns.
        values: float64 of shape (rows, columns); NaN where a cell is missing.
        dropped: Why each other column was left out.
        row_labels: The first text column, or the line numbers.
        text: The text columns, for colouring points in a report.
        notes: Sentences for the user about decisions, left-out columns and oddities.
        has_header: Whether the first line gave the names.
        set_aside: Numeric columns left out of `values` (constant, empty, not requested), for `match_columns`.
        file_columns: The names of all columns in file order.
        dates: Columns of dates or times, as days.
        separators: The decimal and grouping separators of the numbers.
        lines: The line of each row in the file; empty if the file has no lines.
        is_by_position: Whether columns were matched to those of a model by position, so that their names in the file
            mean nothing.
    """

    path: str
    names: tuple[str, ...]
    values: np.ndarray
    dropped: Mapping[str, str] = field(default_factory=dict)
    row_labels: tuple[str, ...] = ()
    text: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_header: bool = True
    set_aside: Mapping[str, np.ndarray] = field(default_factory=dict)
    file_columns: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    separators: Separators = POINT
    lines: Sequence[int] = ()
    is_by_position: bool = False

    @property
    def days(self) -> tuple[str, ...]:
        """The numeric columns that are dates, without those that are times of a day."""
        cells = dict(zip(self.names, self.values.T, strict=True))
        return tuple(name for name in self.dates if name in cells and np.nanmax(cells[name]) > 1)

    @property
    def has_index(self) -> bool:
        """Whether the first column, read as text, has no name in the header and numbers the rows."""
        first = self.file_columns[0]
        return self.has_header and _is_index(first, self.text.get(first, ()))

    def numbers(self, name: str) -> np.ndarray:
        """Return the cells of a numeric column, also of a constant one; raises TableError if it could not be read."""
        if name in self.names:
            return self.values[:, self.names.index(name)]
        if name in self.set_aside:
            return np.asarray(self.set_aside[name], np.float64)
        raise TableError(f"{self.path}: column {name} was left out: {self.dropped.get(name, 'unknown reason')}.")


class Asked(NamedTuple):
    """The caller's request for columns."""

    columns: list[str] | None
    text: list[str]
    needed: set[str]
    others: str
    may_be_text: bool
    leave_out: str


def what_is_asked(
    names: Sequence[str],
    columns: Sequence[str] | None,
    text: Names,
    needed: Names | None,
    others: str,
    may_be_text: bool,
    leave_out: str,
) -> Asked:
    """Resolve the requested columns among the names of all columns."""
    if needed is None:
        counting = names if columns is None else columns
    else:
        counting = [*(needed(names) if callable(needed) else needed), *(columns or ())]
    chosen = list(text(names) if callable(text) else text)
    return Asked(
        None if columns is None else list(columns),
        chosen,
        set(counting),
        _OTHERS if needed is None else others,
        may_be_text,
        leave_out,
    )


def assemble(
    path: Path,
    read: list[Column],
    lines: Sequence[int] | None,
    notes: list[str],
    has_header: bool,
    asked: Asked,
    keep_constant: bool,
    imposed: str = "",
) -> Table:
    """Choose the columns a model can use and note what was left out."""
    _check_requested(path, read, asked)
    columns, as_text = asked.columns, asked.text
    kept, aside, dropped = _sorted_out(read, asked, has_header, keep_constant)
    notes += [f"Column {name!r} was requested and is kept: {state}." for name, (_, state) in kept.items() if state]
    order = list(kept) if columns is None else [name for name in columns if name in kept]
    if not order and not as_text and not (asked.may_be_text and any(c.numbers is None for c in read)):
        found = "; ".join(f"{name!r}: {why}" for name, why in list(dropped.items())[:6])
        wanted = "numeric column" if keep_constant else "numeric column that varies"
        raise TableError(
            f"{path} has no {wanted}: found {found}. If the cells are not split correctly, "
            f"use --delimiter{'' if imposed else _COMMA}"
        )
    num_rows = len(lines) if lines else len(read[0].text if read[0].numbers is None else read[0].numbers)
    values = stacked([kept[name][0] for name in order], num_rows)
    text = {c.name: c.text for c in read if c.numbers is None and (c.name in as_text or not c.is_mistake)}
    if forms := [f"{c.name!r} ({c.form})" for c in read if c.form and c.name in order]:
        notes.append(f"Read as numbers: {some_of(forms)}.")
    dates = tuple(c.name for c in read if are_dates(c.form))
    _remark(order, values, dropped, dates, notes, asked.leave_out)
    return Table(
        path=str(path),
        names=tuple(order),
        values=values,
        dropped=dropped,
        row_labels=next(iter(text.values()), ()) or tuple(map(str, lines or range(1, num_rows + 1))),
        text=text,
        notes=tuple(notes),
        has_header=has_header,
        set_aside=aside,
        file_columns=tuple(c.name for c in read),
        dates=dates,
    )


def _check_requested(path: Path, read: list[Column], asked: Asked) -> None:
    by_name = {c.name: c for c in read}
    for name in (*(asked.columns or ()), *asked.text):
        if name not in by_name:
            raise no_column(path, name, list(by_name))
        c = by_name[name]
        if c.numbers is None and name not in asked.text and not c.is_mistake and not asked.may_be_text:
            raise TableError(f"{path}: column {name!r} is {c.reason}")
    slips = [c.reason for c in read if c.is_mistake and c.name in asked.needed and c.name not in asked.text]
    if slips:
        cell, missing = "Correct the cell", "count it as missing with --missing"
        ways = f"{cell}, {missing}, or {asked.others}" if asked.others else f"{cell}, or {missing}"
        raise TableError(f"{path}, {slips[0]}. {ways}")


def _sorted_out(
    read: list[Column], asked: Asked, has_header: bool, keep_constant: bool
) -> tuple[dict[str, tuple[np.ndarray, str]], dict[str, np.ndarray], dict[str, str]]:
    """Divide the columns.

    Returns those to keep, with what a default choice would leave them out for; the numbers of those left out; and the
    reason for each left out.
    """
    requested = set(asked.columns or ())
    kept, aside, dropped = {}, {}, {}
    for c in read:
        if c.numbers is None:
            dropped[c.name] = c.reason
            continue
        is_default = asked.columns is None and not keep_constant
        state = _uninformative(c.numbers)
        if not state and is_default and has_header and _is_index(c.name, c.numbers):
            state = f"without a name; it {'counts' if counts_rows(c.numbers) else 'numbers'} the rows"
        if asked.columns is not None and c.name not in requested:
            dropped[c.name], aside[c.name] = "not asked for", c.numbers
        elif state and is_default:
            dropped[c.name], aside[c.name] = state, c.numbers
        else:
            kept[c.name] = c.numbers, state if asked.columns is not None else ""
    return kept, aside, dropped


def _uninformative(x: np.ndarray) -> str:
    """Say why a column has no information, or return an empty string."""
    seen = x[~np.isnan(x)]
    if not len(seen):
        return "all cells are missing"
    return f"constant, always {seen[0]:g}" if len(x) > 1 and np.all(seen == seen[0]) else ""


def stacked(columns: list[np.ndarray], num_rows: int) -> np.ndarray:
    """Stack columns side by side."""
    return np.stack(columns, axis=1) if columns else np.empty((num_rows, 0))


def some_of(items: Sequence[str]) -> str:
    """List the first items, and the number of the others."""
    return ", ".join(items[:_LISTED]) + (f" and {len(items) - _LISTED} more" if len(items) > _LISTED else "")


def missing_by_column(counts: Mapping[str, int]) -> str:
    """List columns with their missing cells; those of further columns are added up."""
    listed, others = list(counts.items())[:_LISTED], list(counts.values())[_LISTED:]
    more = f" and {sum(others)} in {counted(len(others), 'other column')}" if others else ""
    return ", ".join(f"{name!r} {n}" for name, n in listed) + more


def missing_counts(names: Sequence[str], values: np.ndarray) -> dict[str, int]:
    """Count the missing cells of the first columns by name, without those that have none."""
    return {name: int(n) for name, n in zip(names, np.isnan(values).sum(axis=0), strict=False) if n}


def about_missing(inputs: np.ndarray, counts: Mapping[str, int]) -> str:
    """Say in two sentences how many inputs are missing, also by column, and what a model does that draws them."""
    return (
        f"{int(np.isnan(inputs).any(axis=1).sum())} of {len(inputs)} rows have missing inputs "
        f"({missing_by_column(counts)}). They are drawn from a joint normal distribution of the inputs, and likelihood "
        "and predictions average over the draws."
    )


def _is_index(name: str, cells: Sequence[str] | np.ndarray) -> bool:
    """Whether a column has no name and numbers the rows, also those of a larger table that this one is a part of."""
    try:
        x = np.asarray(cells, np.float64)
    except ValueError:  # text
        return False
    if name not in _INDEX or len(x) < 3 or not np.all((x >= 0) & (x == np.round(x))):
        return False
    return bool(np.all(np.diff(x) > 0)) or (len(x) >= _MANY_ROWS and len(np.unique(x)) == len(x))


def counts_rows(x: np.ndarray) -> bool:
    """Whether a column counts the rows, from any integer on."""
    return len(x) > 2 and bool(x[0] == np.round(x[0])) and np.array_equal(x, x[0] + np.arange(len(x)))


def _code_for_missing(x: np.ndarray) -> float | None:
    """Return a number such as -99 or 9999 that occurs repeatedly, and farther from the others than these are apart."""
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    if len(values) < 3:
        return None
    for end, beside, others in ((0, 1, values[1:]), (-1, -2, values[:-1])):
        is_code = re.fullmatch(r"-9+|999+|-?9{2,}\.9", f"{values[end]:g}") is not None
        if is_code and counts[end] > 1 and abs(values[end] - values[beside]) > np.ptp(others):
            return float(values[end])
    return None


def _remark(
    names: list[str],
    values: np.ndarray,
    dropped: Mapping[str, str],
    dates: Sequence[str],
    notes: list[str],
    leave_out: str,
) -> None:
    """Add notes about left-out columns, missing cells and suspicious values."""
    left_out = [f"{name!r} ({why})" for name, why in dropped.items() if why not in ASKED_FOR]
    if left_out:
        notes.append(f"Columns left out: {some_of(left_out)}.")
    holes = np.isnan(values)
    if holes.any():
        counts = missing_counts(names, values)
        rows = int(holes.all(axis=1).sum())
        whole = f"; {rows} rows have no value" if rows else ""
        cells = f"{holes.sum()} of {holes.size} cells are missing"
        notes.append(OnMissing(f"{cells} ({missing_by_column(counts)}){whole}."))
    if len(values) == 1:
        notes.append("There is only one row: enough for a prediction, not enough to fit a model.")
    for name, x in zip(names, values.T, strict=True):
        if counts_rows(x) and name not in dates:
            start = "" if x[0] in (0, 1) else f" from {x[0]:.0f} on"
            notes.append(OnCounting(f"Column {name!r} counts the rows{start}. To leave it out, {leave_out}."))
        if (code := _code_for_missing(x)) is not None:
            times = int(np.sum(x == code))
            notes.append(
                f"Column {name!r} has {code:g} in {times} rows, far from its other values. If it means a missing cell, "
                f"use --missing={code:g}."
            )
        if np.nanmax(np.abs(x), initial=0) > 1e18:
            notes.append(f"Column {name!r} has values above 1e18, whose squares overflow in single precision.")
