"""Targets in a user's table: numbers, or classes by name."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geodax.app.run_folder.files import number_text
from geodax.app.tables.columns import as_cells, read_column
from geodax.app.tables.dialect import Dialect, Separators
from geodax.app.tables.names import as_names, in_order
from geodax.app.tables.number_forms import number_parser, sign
from geodax.app.tables.read import Table
from geodax.data.errors import TableError, counted

LEFT_OUT = "The target {!r} was left out: {}."
_MOST_CLASSES = 200
_LARGEST_WHOLE = 2.0**53  # from here on different integers can be the same float
_LISTED = 12  # number of classes in a note


def numbers(path: Path, table: Table, name: str) -> np.ndarray:
    """Return numeric targets, NaN where one is missing."""
    if name in table.text:
        raise TableError(
            f"{path}: the target {name!r} is {table.dropped[name]}. A regressor needs numbers. For classes use "
            "`geodax fit classifier`."
        )
    return table.numbers(name)


def classes(path: Path, table: Table, name: str, dialect: Dialect) -> np.ndarray:
    """Return the classes of the fitted rows, empty where one is missing."""
    labels = as_names(table.text[name], dialect)
    found = np.unique(labels[labels != ""]).tolist()
    values = _values(found, table.separators)
    are_numbers = len(values) == len(found)
    broken = next((k for k, v in values.items() if v != np.round(v) or (are_numbers and np.isinf(v))), None)
    if broken is not None:
        raise TableError(
            f"{path}: the target {name!r} holds numbers that are not integers, such as {broken}. A classifier needs "
            "names or integers. For numbers use `geodax fit regressor`."
        )
    unit, lines = ("line", table.lines) if table.lines else ("row", range(1, len(labels) + 1))
    slip = read_column(name, as_cells(labels.tolist()), lines, {""}, values.get, unit=unit)
    if values and slip.is_mistake:
        raise TableError(
            f"{path}, {slip.reason}. Correct the cell, or count it as missing with --missing. If it is a "
            "class, give the others names too"
        )
    if not 2 <= len(found) <= _MOST_CLASSES:
        raise TableError(
            f"{path}: the target {name!r} has {counted(len(found), 'different value')}. A classifier needs 2 to "
            f"{_MOST_CLASSES} classes."
        )
    return labels


def class_counts(labels: np.ndarray) -> str:
    """List the classes with their numbers of rows."""
    names, counts = np.unique(labels, return_counts=True)
    found = [f"{names[i]} ({counts[i]:,})" for i in in_order(names.tolist())]
    more = f" and {len(found) - _LISTED} more, {len(found)} in all" if len(found) > _LISTED else ""
    return f"Classes: {', '.join(found[:_LISTED])}{more}."


def observed_classes(
    table: Table, name: str, dialect: Dialect, fitted: np.ndarray, is_as_written: bool
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return the classes of new rows by the names of the fit, or None if they are not classes, and notes.

    ``is_as_written``: whether the classes of the fitted rows are named as in the file.
    """
    known = np.unique(fitted).tolist()
    labels = as_names(table.text[name], dialect, known)
    cells = np.unique(labels[labels != ""]).tolist()
    values = _values(cells, table.separators)
    named: dict[str, str] = {}
    if not is_as_written and len(values) == len(cells):
        named = {label: number_text(value + 0.0) for label, value in values.items()}
    elif values.keys() - set(known):
        alike: dict[float, list[str]] = {}
        for label, value in _values(known, table.separators).items():
            alike.setdefault(value, []).append(label)
        exact = {label: value for label, value in values.items() if label not in known and abs(value) < _LARGEST_WHOLE}
        others = {label: alike.get(value, []) for label, value in exact.items()}
        named = {label: names[0] for label, names in others.items() if len(names) == 1}
    found = {named.get(label, label) for label in cells}
    why = ""
    if len(found) > _MOST_CLASSES:
        why = f"it has {len(found)} different values, but there are at most {_MOST_CLASSES} classes"
    broken = next((label for label, value in values.items() if value != np.round(value)), None)
    if broken is not None and found.isdisjoint(known):
        why = f"it holds numbers that are not integers, such as {broken}, and no class of the fit"
    if why:
        return None, (LEFT_OUT.format(name, why),)
    return np.array([named.get(label, label) for label in labels.tolist()], str), ()


def _values(labels: Sequence[str], separators: Separators) -> dict[str, float]:
    values = {label: _value(label, separators) for label in labels}
    return {label: value for label, value in values.items() if value is not None}


def _value(cell: str, separators: Separators) -> float | None:
    """Return the value of a number, whose separators may differ from those of other columns; None for other cells."""
    kind = sign(cell)
    if kind.startswith("decimal comma"):
        separators = Separators(",", ".")
    elif kind in ("decimal point", "comma groups"):
        separators = Separators(".", ",")
    return number_parser(separators.decimal or ".", separators.thousands)(cell)
