"""Reads rows with inputs and a target from a user's file."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.network.files import column
from geodax.app.run_folder.files import kept_arrays, number_text, save_arrays
from geodax.app.tables.columns import as_cells, read_column
from geodax.app.tables.dialect import FOUND, Dialect, Separators
from geodax.app.tables.names import as_names, in_order
from geodax.app.tables.number_forms import number_parser, sign
from geodax.app.tables.read import ASKED_FOR, Table, if_all_there, match_columns, read_table
from geodax.data.errors import TableError, counted, listed, nearest

_MOST_CLASSES = 200
_MOST_CATEGORIES = 100
_LEAST_ROWS = 4
_LEAST_FITTED = 2
_TEXTS = ("names", "notes")
_LARGEST_WHOLE = 2.0**53  # from here on different integers can be the same float
_LISTED = 12  # number of classes in a note
_LEFT_OUT = "The target {!r} was left out: {}."


@dataclasses.dataclass(frozen=True)
class LabelledTable:
    """Complete rows of a table.

    Attributes:
        inputs: Rows x columns: numbers, then one 0/1 column for each category of the categorical columns.
        targets: Numbers, or names of classes.
        names: Names of the columns of ``inputs``.
        categories: The file's column and the category of each of the last columns.
        is_as_written: Whether classes and categories are named by :func:`geodax.app.tables.names.as_names`; in runs of
            earlier versions numeric classes are named by their values.
        target: Name of the target.
        is_test: Which rows are held out.
        notes: Decisions made while reading the data.
    """

    inputs: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...]
    target: str
    is_test: np.ndarray
    notes: tuple[str, ...]
    categories: tuple[tuple[str, str], ...] = ()
    is_as_written: bool = True

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the fitted rows."""
        return self.inputs[~self.is_test], self.targets[~self.is_test]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the held-out rows."""
        return self.inputs[self.is_test], self.targets[self.is_test]


def read_labelled(
    path: Path,
    target: str,
    columns: tuple[str, ...] | None,
    *,
    categories: tuple[str, ...] = (),
    are_classes: bool,
    test_fraction: float,
    dialect: Dialect = FOUND,
) -> LabelledTable:
    """Read inputs and a target.

    Args:
        path: The file.
        target: Column of the target.
        columns: Columns of the inputs; None takes all other numeric columns that vary.
        categories: Categorical columns that are also inputs.
        are_classes: Whether the target holds classes: text or integers.
        test_fraction: Fraction of the rows to hold out, the same rows each time.
        dialect: Format of the file.

    Returns:
        The rows without missing cells.

    Raises:
        TableError: If columns cannot be found or have the wrong contents.
    """
    if not target:
        raise TableError(f"{path}: expected the column to predict. Use --target NAME.")
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be at least 0 and below 1, found {test_fraction}.")
    categories = tuple(dict.fromkeys(categories))
    if target in categories:
        raise TableError(f"{path}: --categories includes the target {target!r}, which cannot be an input.")
    wanted = None if columns is None else tuple(name for name in columns if name not in (target, *categories))
    if wanted == () and not categories:
        raise TableError(f"{path}: --columns includes only the target. Add columns to predict it from.")

    def as_text(there: Sequence[str]) -> list[str]:
        return [*categories, *[target] * (are_classes and target in there)]

    needed = None if wanted is None else (*wanted, target)
    advice = "Text columns can be inputs with --categories NAME"
    table = read_table(path, columns=wanted, text=as_text, needed=needed, of_text=advice, **dialect.options())
    if target not in table.file_columns:
        raise TableError(
            f"{path} has no column {target!r}{nearest(target, table.file_columns)}. Use --target with one of "
            f"{listed(table.file_columns)}."
        )
    names = [name for name in table.names if name != target]
    if not names and not categories:
        others = "; ".join(f"{name!r}: {why}" for name, why in list(table.dropped.items())[:6] if name != target)
        raise TableError(
            f"{path}: expected a numeric column that varies besides the target {target!r}, found "
            f"{others or 'none'}. Text columns can be inputs with --categories NAME."
        )
    inputs = match_columns(table, names).values
    if len(inputs) < _LEAST_ROWS:
        raise TableError(
            f"{path} has {len(inputs)} {'row' if len(inputs) == 1 else 'rows'}. A fit needs at least {_LEAST_ROWS} "
            "without missing cells."
        )
    targets = _classes(path, table, target, dialect) if are_classes else _numbers(path, table, target)
    is_known = targets != "" if are_classes else ~np.isnan(targets)
    cells = {name: as_names(table.text[name], dialect) for name in categories}
    is_whole = is_known & ~np.isnan(inputs).any(axis=1)
    for labels in cells.values():
        is_whole &= labels != ""
    count, total = int(is_whole.sum()), len(inputs)
    if count < _LEAST_ROWS:
        raise TableError(
            f"{path}: {count} of {total} rows have a value in all of {listed([*names, *categories, target])}. At least "
            f"{_LEAST_ROWS} are needed. Choose columns with fewer missing cells by --columns."
        )
    levels = [(name, level) for name, labels in cells.items() for level in _levels(path, name, labels[is_whole])]
    inputs = np.hstack([inputs, _indicators(cells, levels, total)])
    names += [f"{name}={level}" for name, level in levels]
    unsaid = ("Columns left out", f"Column {target!r} counts the rows")
    notes = [note for note in table.notes if not note.startswith(unsaid)]
    others = [name for name in table.dropped if name != target and table.dropped[name] not in ASKED_FOR]
    if others:
        notes.append(f"Columns left out: {', '.join(f'{n!r} ({table.dropped[n]})' for n in others[:12])}.")
        possible = [name for name in others if name in table.text and _may_be_categories(as_names(table.text[name]))]
        if possible:
            notes.append(f"Text columns can be inputs: --categories {' '.join(map(shlex.quote, possible))}.")
    if are_classes:
        notes.append(_counts(targets[is_whole]))
    if count < total:
        notes.append(f"{total - count} of {total} rows have missing values and are left out.")
    is_test = np.zeros(count, bool)
    is_test[np.random.default_rng(0).permutation(count)[: round(test_fraction * count)]] = True
    if (~is_test).sum() < _LEAST_FITTED:
        raise TableError(
            f"--test-fraction {test_fraction} leaves {int((~is_test).sum())} of {count} rows to fit. At least "
            f"{_LEAST_FITTED} are needed."
        )
    if is_test.any():
        notes.append(f"{int(is_test.sum())} of {count} rows are held out and predicted in the report.")
    return LabelledTable(
        inputs[is_whole], targets[is_whole], tuple(names), target, is_test, tuple(notes), tuple(levels)
    )


def read_new(
    path: Path, data: LabelledTable, *, are_classes: bool, dialect: Dialect = FOUND
) -> tuple[Table, np.ndarray, np.ndarray | None]:
    """Read new rows.

    Args:
        path: The file.
        data: The fitted data.
        are_classes: Whether the target holds classes.
        dialect: Format of the file.

    Returns:
        The table of inputs, which rows are complete, and the targets if the file has them: NaN or an empty name where
        one is missing, classes by the names of the fit. A category that the fit has not seen counts as a missing input.
        Targets of another kind than in the fit are left out, with a note.

    Raises:
        TableError: If an input is missing, or a numeric column holds text.
    """
    names = tuple(dict.fromkeys(name for name, _ in data.categories))
    inputs = list(data.names[: len(data.names) - len(data.categories)])
    needed = if_all_there([*inputs, *names], [] if are_classes else [data.target])
    of_fit = [*inputs, *names]
    read = read_table(path, text=names, needed=needed, keep_constant=True, of_fit=of_fit, **dialect.options())
    table = match_columns(read, inputs)
    if names and table.is_by_position:
        raise TableError(
            f"{path}: expected the columns {listed([*inputs, *names])}, found {listed(read.file_columns)}. With "
            "categories, columns are not matched by position. Name them as in the fit."
        )
    is_whole = np.asarray(~np.isnan(table.values).any(axis=1))
    cells, notes = {name: _categories(read, name, data, dialect) for name in names}, list(table.notes)
    for name, labels in cells.items():
        is_blank = labels == ""
        is_new = ~is_blank & ~np.isin(labels, [level for column, level in data.categories if column == name])
        is_whole &= ~(is_blank | is_new)
        if is_new.any():
            notes.append(
                f"{int(is_new.sum())} of {len(labels)} rows have no prediction: column {name!r} holds categories that "
                f"were not in the fit, such as {str(labels[is_new][0])!r}."
            )
    values = np.hstack([table.values, _indicators(cells, data.categories, len(table.values))])
    table = dataclasses.replace(table, names=data.names, values=values, notes=tuple(notes))
    if table.is_by_position or data.target not in read.file_columns:
        return table, is_whole, None
    if are_classes:
        asked = {"columns": (), "text": (data.target,), "needed": inputs, "of_fit": of_fit}
        read = read_table(path, **asked, **dialect.options())
        targets, about = _observed(read, data.target, dialect, data)
    elif data.target in read.text:
        targets, about = None, (_LEFT_OUT.format(data.target, f"it is {read.dropped[data.target]}"),)
    else:
        targets, about = np.asarray(column(read, data.target), np.float64), ()
    return dataclasses.replace(table, notes=(*table.notes, *about)), is_whole, targets


def save_labelled(path: Path, data: LabelledTable) -> None:
    """Keep the rows as plain arrays."""
    save_arrays(path, **dataclasses.asdict(data))


def load_labelled(path: Path) -> LabelledTable:
    """Read what :func:`save_labelled` kept; StorageError if it is damaged."""
    with kept_arrays(path) as file:
        texts: dict[str, Any] = {name: tuple(map(str, file[name].tolist())) for name in _TEXTS}
        arrays = {name: file[name] for name in ("inputs", "targets", "is_test")}
        pairs = file["categories"].tolist() if "categories" in file else []  # an earlier version has none
        categories = tuple((str(name), str(level)) for name, level in pairs)
        return LabelledTable(
            **arrays,
            **texts,
            target=str(file["target"]),
            categories=categories,
            is_as_written="is_as_written" in file and bool(file["is_as_written"]),
        )


def _categories(table: Table, name: str, data: LabelledTable, dialect: Dialect) -> np.ndarray:
    """Return the categories in a column of new data, empty where one is missing."""
    if data.is_as_written:
        return as_names(table.text[name], dialect, [level for column, level in data.categories if column == name])
    return np.array([cell if cell not in dialect.blank else "" for cell in map(str.strip, table.text[name])])


def _levels(path: Path, name: str, labels: np.ndarray) -> list[str]:
    """Return the categories of a column."""
    levels = np.unique(labels).tolist()
    if not 2 <= len(levels) <= min(_MOST_CATEGORIES, max(2, len(labels) // 2)):
        raise TableError(
            f"{path}: column {name!r} has {counted(len(levels), 'different value')} in {len(labels)} rows, such as "
            f"{levels[0]!r}. --categories expects 2 to {_MOST_CATEGORIES} values, and at least twice as many rows."
        )
    return levels


def _may_be_categories(labels: np.ndarray) -> bool:
    """Whether values repeat often enough to be categories rather than row names."""
    return 2 <= len(np.unique(labels)) <= min(_MOST_CATEGORIES, len(labels) // 4)


def _indicators(cells: Mapping[str, np.ndarray], levels: Sequence[tuple[str, str]], num_rows: int) -> np.ndarray:
    """Make one 0/1 column for each category."""
    return np.array([cells[name] == level for name, level in levels], float).reshape(len(levels), num_rows).T


def _numbers(path: Path, table: Table, name: str) -> np.ndarray:
    """Return numeric targets, NaN where one is missing."""
    if name in table.text:
        raise TableError(
            f"{path}: the target {name!r} is {table.dropped[name]}. A regressor needs numbers. For classes use "
            "`geodax fit classifier`."
        )
    return np.asarray(column(table, name), np.float64)


def _classes(path: Path, table: Table, name: str, dialect: Dialect) -> np.ndarray:
    """Return the classes of the fitted rows, empty where one is missing."""
    labels = as_names(table.text[name], dialect)
    classes = np.unique(labels[labels != ""]).tolist()
    values = _values(classes, table.separators)
    are_numbers = len(values) == len(classes)
    broken = next((k for k, v in values.items() if v != np.round(v) or (are_numbers and np.isinf(v))), None)
    if broken is not None:
        raise TableError(
            f"{path}: the target {name!r} holds numbers that are not integers, such as {broken}. A classifier needs "
            "names or integers. For numbers use `geodax fit regressor`."
        )
    unit, lines = ("line", table.lines) if table.lines else ("row", range(1, len(labels) + 1))
    slip = read_column(name, as_cells(labels.tolist()), lines, {""}, values.get, unit=unit)
    if slip.is_mistake:
        raise TableError(
            f"{path}, {slip.reason}. Correct the cell, or add it to missing (--missing on the command line). If it is "
            "a class, give the others names too"
        )
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise TableError(
            f"{path}: the target {name!r} has {counted(len(classes), 'different value')}. A classifier needs 2 to "
            f"{_MOST_CLASSES} classes."
        )
    return labels


def _counts(labels: np.ndarray) -> str:
    """List the classes with their numbers of rows."""
    classes, counts = np.unique(labels, return_counts=True)
    found = [f"{classes[i]} ({counts[i]})" for i in in_order(classes.tolist())]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"Classes: {', '.join(found[:_LISTED])}{more}."


def _observed(
    table: Table, name: str, dialect: Dialect, fitted: LabelledTable
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Return the classes of new rows by the names of the fit, or None if they are not classes, and notes."""
    known = np.unique(fitted.targets).tolist()
    labels = as_names(table.text[name], dialect, known)
    classes = np.unique(labels[labels != ""]).tolist()
    values = _values(classes, table.separators)
    named: dict[str, str] = {}
    if not fitted.is_as_written and len(values) == len(classes):
        named = {label: number_text(value + 0.0) for label, value in values.items()}
    elif values.keys() - set(known):
        alike: dict[float, list[str]] = {}
        for label, value in _values(known, table.separators).items():
            alike.setdefault(value, []).append(label)
        exact = {label: value for label, value in values.items() if label not in known and abs(value) < _LARGEST_WHOLE}
        others = {label: alike.get(value, []) for label, value in exact.items()}
        named = {label: found[0] for label, found in others.items() if len(found) == 1}
    classes = {named.get(label, label) for label in classes}
    why = ""
    if len(classes) > _MOST_CLASSES:
        why = f"it has {len(classes)} different values, but there are at most {_MOST_CLASSES} classes"
    broken = next((label for label, value in values.items() if value != np.round(value)), None)
    if broken is not None and classes.isdisjoint(known):
        why = f"it holds numbers that are not integers, such as {broken}, and no class of the fit"
    if why:
        return None, (_LEFT_OUT.format(name, why),)
    return np.array([named.get(label, label) for label in labels.tolist()], str), ()


def _values(labels: Sequence[str], separators: Separators) -> dict[str, float]:
    """Return the values of those labels that are numbers."""
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
