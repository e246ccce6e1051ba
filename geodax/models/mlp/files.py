"""Rows with inputs and a target, from a user's file."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.dialect import FOUND, Dialect
from geodax.data.errors import TableError, listed, nearest
from geodax.data.tables import ASKED_FOR, Table, match_columns, read_table
from geodax.models.network_files import column
from geodax.models.run_files import number_text
from geodax.run.errors import StorageError

_MOST_CLASSES = 200
_MOST_CATEGORIES = 100
_LEAST_ROWS = 4
_LEAST_FITTED = 2
_TEXTS = ("names", "notes")


@dataclasses.dataclass(frozen=True)
class LabelledTable:
    """Complete rows of a table.

    Attributes:
        inputs: Rows x columns: numbers, then 0 and 1 for each category of the columns that hold categories.
        targets: Numbers, or names of classes.
        names: Of the columns of inputs.
        categories: The last of them: the column of the file, and the category that is 1.
        target: Name of the target.
        is_test: Which rows are held out from the fit.
        notes: What was decided about the data.
    """

    inputs: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...]
    target: str
    is_test: np.ndarray
    notes: tuple[str, ...]
    categories: tuple[tuple[str, str], ...] = ()

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the rows that are fitted."""
        return self.inputs[~self.is_test], self.targets[~self.is_test]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the rows that are held out."""
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
        categories: Columns that hold categories, inputs too.
        are_classes: Whether the target names classes: text, or whole numbers.
        test_fraction: Share of the rows to hold out, the same rows each time.
        dialect: How the file is written.

    Returns:
        The rows without missing cells.

    Raises:
        TableError: If columns cannot be found, or do not hold what they should.
    """
    if not target:
        raise TableError(f"{path}: say which column is to be predicted: --target NAME.")
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be a share from 0 to below 1, found {test_fraction}.")
    categories = tuple(dict.fromkeys(categories))
    if target in categories:
        raise TableError(f"{path}: --categories names the target {target!r}, which is predicted and is no input.")
    wanted = None if columns is None else tuple(name for name in columns if name not in (target, *categories))
    if wanted == () and not categories:
        raise TableError(f"{path}: --columns names the target alone; nothing is left to predict it from.")
    table = read_table(path, columns=wanted, text=categories, **dialect.options())
    if target not in table.file_columns:
        raise TableError(
            f"{path} has no column {target!r}{nearest(target, table.file_columns)}: say --target NAME, one of "
            f"{listed(table.file_columns)}."
        )
    names = [name for name in table.names if name != target]
    if not names and not categories:
        raise TableError(
            f"{path}: {target!r} is the only numeric column; nothing is left to predict it from. Columns of text can "
            "be inputs too: --categories NAME."
        )
    inputs = match_columns(table, names).values
    if len(inputs) < _LEAST_ROWS:
        raise TableError(
            f"{path} has {len(inputs)} {'row' if len(inputs) == 1 else 'rows'}; at least {_LEAST_ROWS} without missing "
            "cells are needed for a fit."
        )
    targets, is_known = _targets(path, table, target, are_classes, dialect)
    cells = {name: _labels(table, name) for name in categories}
    is_whole = is_known & ~np.isnan(inputs).any(axis=1)
    for labels in cells.values():
        is_whole &= ~np.isin(labels, dialect.blank)
    count, total = int(is_whole.sum()), len(inputs)
    if count < _LEAST_ROWS:
        raise TableError(
            f"{path}: {count} of {total} rows have a value in all of {listed([*names, *categories, target])}; at least "
            f"{_LEAST_ROWS} are needed; choose columns with fewer holes by --columns."
        )
    levels = [(name, level) for name, labels in cells.items() for level in _levels(path, name, labels[is_whole])]
    inputs = np.hstack([inputs, _indicators(cells, levels, total)])
    names += [f"{name}={level}" for name, level in levels]
    unsaid = ("Columns left out", f"Column {target!r} counts the rows")
    notes = [note for note in table.notes if not note.startswith(unsaid)]
    others = [name for name in table.dropped if name != target and table.dropped[name] not in ASKED_FOR]
    if others:
        notes.append(f"Columns left out: {', '.join(f'{n!r} ({table.dropped[n]})' for n in others[:12])}.")
        possible = [name for name in others if name in table.text and _may_be_categories(_labels(table, name))]
        if possible:
            notes.append(f"Columns of text can be inputs: --categories {' '.join(map(shlex.quote, possible))}.")
    if count < total:
        notes.append(f"{total - count} of {total} rows lack a value and are left out.")
    is_test = np.zeros(count, bool)
    is_test[np.random.default_rng(0).permutation(count)[: round(test_fraction * count)]] = True
    if (~is_test).sum() < _LEAST_FITTED:
        raise TableError(
            f"--test-fraction {test_fraction} leaves {int((~is_test).sum())} of {count} rows to fit; at least "
            f"{_LEAST_FITTED} are needed."
        )
    if is_test.any():
        notes.append(f"{int(is_test.sum())} of {count} rows are held out from the fit, to be predicted in the report.")
    return LabelledTable(
        inputs[is_whole], targets[is_whole], tuple(names), target, is_test, tuple(notes), tuple(levels)
    )


def read_new(
    path: Path, data: LabelledTable, *, are_classes: bool, dialect: Dialect = FOUND
) -> tuple[Table, np.ndarray, np.ndarray | None]:
    """Read new rows.

    Args:
        path: The file.
        data: What the model was fitted to.
        are_classes: Whether the target names classes.
        dialect: How the file is written.

    Returns:
        The table of inputs, which rows lack none of them, and the targets where the file has them: NaN or an empty name
        where one is missing. A row with a category that the fit has not seen lacks that input.

    Raises:
        TableError: If an input is missing, or numbers are text.
    """
    names = tuple(dict.fromkeys(name for name, _ in data.categories))
    read = read_table(path, text=names, keep_constant=True, **dialect.options())
    table = match_columns(read, list(data.names[: len(data.names) - len(data.categories)]))
    is_whole = np.asarray(~np.isnan(table.values).any(axis=1))
    cells, notes = {name: _labels(read, name) for name in names}, list(table.notes)
    for name, labels in cells.items():
        is_blank = np.isin(labels, dialect.blank)
        is_new = ~is_blank & ~np.isin(labels, [level for column, level in data.categories if column == name])
        is_whole &= ~(is_blank | is_new)
        if is_new.any():
            notes.append(
                f"{int(is_new.sum())} of {len(labels)} rows have no prediction: column {name!r} holds categories that "
                f"were not in the fit, such as {str(labels[is_new][0])!r}."
            )
    values = np.hstack([table.values, _indicators(cells, data.categories, len(table.values))])
    table = dataclasses.replace(table, names=data.names, values=values, notes=tuple(notes))
    if data.target not in read.file_columns:
        return table, is_whole, None
    targets, is_known = _targets(path, read, data.target, are_classes, dialect, least=0)
    return table, is_whole, np.where(is_known, targets, "" if are_classes else np.nan)


def save_labelled(path: Path, data: LabelledTable) -> None:
    """Keep the rows as plain arrays."""
    np.savez_compressed(path, **dataclasses.asdict(data))


def load_labelled(path: Path) -> LabelledTable:
    """Read what :func:`save_labelled` kept; StorageError if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            texts: dict[str, Any] = {name: tuple(map(str, file[name].tolist())) for name in _TEXTS}
            arrays = {name: file[name] for name in ("inputs", "targets", "is_test")}
            pairs = file["categories"].tolist() if "categories" in file else []  # an earlier version has none
            categories = tuple((str(name), str(level)) for name, level in pairs)
            return LabelledTable(**arrays, **texts, target=str(file["target"]), categories=categories)
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _labels(table: Table, name: str) -> np.ndarray:
    """Cells of a column of text."""
    return np.array([cell.strip() for cell in table.text[name]])


def _levels(path: Path, name: str, labels: np.ndarray) -> list[str]:
    """Categories of a column."""
    levels = np.unique(labels).tolist()
    if not 2 <= len(levels) <= min(_MOST_CATEGORIES, max(2, len(labels) // 2)):
        raise TableError(
            f"{path}: column {name!r} has {len(levels)} different values in {len(labels)} rows, such as "
            f"{levels[0]!r}; --categories takes columns with 2 to {_MOST_CATEGORIES}, in twice as many rows or more."
        )
    return levels


def _may_be_categories(labels: np.ndarray) -> bool:
    """Whether values come back often enough to be categories rather than names of rows."""
    return 2 <= len(np.unique(labels)) <= min(_MOST_CATEGORIES, len(labels) // 4)


def _indicators(cells: Mapping[str, np.ndarray], levels: Sequence[tuple[str, str]], num_rows: int) -> np.ndarray:
    """A column of 0 and 1 for each category."""
    return np.array([cells[name] == level for name, level in levels], float).reshape(len(levels), num_rows).T


def _targets(
    path: Path, table: Table, name: str, are_classes: bool, dialect: Dialect, *, least: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Targets of all rows, and which of them are known."""
    cells = column(table, name)
    if not are_classes:
        if name in table.text:
            raise TableError(
                f"{path}: the target {name!r} is {table.dropped[name]}; a regressor needs numbers. For classes there "
                "is `geodax fit classifier`."
            )
        values = np.asarray(cells, np.float64)
        return values, ~np.isnan(values)
    if name in table.text:
        labels = _labels(table, name)
        is_known = ~np.isin(labels, dialect.blank)
    else:
        values = np.asarray(cells, np.float64)
        is_known = ~np.isnan(values)
        if (values[is_known] != np.round(values[is_known])).any():
            raise TableError(
                f"{path}: the target {name!r} holds numbers that are not whole, such as "
                f"{values[is_known][values[is_known] != np.round(values[is_known])][0]:g}; a classifier needs names or "
                "whole numbers. For numbers there is `geodax fit regressor`."
            )
        labels = np.array([number_text(value) for value in np.where(is_known, values, 0.0) + 0.0], str)
    classes = np.unique(labels[is_known])
    if not least <= len(classes) <= _MOST_CLASSES:
        raise TableError(
            f"{path}: the target {name!r} has {len(classes)} different values; a classifier needs from 2 to "
            f"{_MOST_CLASSES} classes."
        )
    return labels, is_known
