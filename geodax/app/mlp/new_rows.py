"""Reads new rows of a user's file, for predictions by a fitted network."""

import dataclasses
from pathlib import Path

import numpy as np

from geodax.app.mlp import inputs as encoding
from geodax.app.mlp.inputs import OTHER, levels_of
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.targets import LEFT_OUT, observed_classes
from geodax.app.tables.assembly import OnMissing, missing_by_column
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import as_names
from geodax.app.tables.read import Table, if_all_there, match_columns, read_table
from geodax.data.errors import TableError, listed


def read_new(
    path: Path, data: LabelledTable, *, are_classes: bool, dialect: Dialect = FOUND
) -> tuple[Table, np.ndarray | None]:
    """Read the inputs of new rows, and the targets if the file has some of them.

    A missing target is NaN or an empty name; classes have the names of the fit, several targets are rows x targets. A
    category that the fit has not seen is :data:`OTHER` if the fit has that category, otherwise missing. Targets of
    another kind than in the fit are left out, with a note. Raises TableError if a column is missing, or a numeric
    column holds text.
    """
    names = tuple(dict.fromkeys(name for name, _ in data.categories))
    inputs = data.numbers
    needed = if_all_there([*inputs, *names], [] if are_classes else data.target_names)
    of_fit = [*inputs, *names]
    read = read_table(path, text=names, needed=needed, keep_constant=True, of_fit=of_fit, **dialect.options())
    table = match_columns(read, inputs)
    if names and table.is_by_position:
        raise TableError(
            f"{path}: expected the columns {listed([*inputs, *names])}, found {listed(read.file_columns)}. With "
            "categories, columns are not matched by position. Name them as in the fit."
        )
    cells = {name: _known_categories(read, name, data, dialect) for name in names}
    notes = [note for note in table.notes if not isinstance(note, OnMissing)]
    for name, labels in cells.items():
        levels = levels_of(data.categories, name)
        is_new = encoding.unknown(labels, levels)
        if is_new.any():
            which = ("rare or new values", OTHER) if OTHER in levels else ("new values", "missing")
            notes.append(
                f"{int(is_new.sum())} of {len(labels)} rows have {which[0]} of {name!r}, such as "
                f"{str(labels[is_new][0])!r}; they count as {which[1]}."
            )
    num_rows = len(table.values)
    days = {name: table.values[:, inputs.index(name)] for name, _ in data.dates}
    parts = (encoding.waves(days, data.dates, num_rows), encoding.indicators(cells, data.categories, num_rows))
    values = np.hstack([table.values, *parts])
    if np.isnan(values).any():
        rows, counts = int(np.isnan(values).any(axis=1).sum()), missing_by_column(data.missing(values))
        notes.append(
            f"{rows} of {num_rows} rows have missing inputs ({counts}); their predictions average over draws of the "
            "missing cells."
        )
    table = dataclasses.replace(table, names=data.names, values=values, notes=tuple(notes))
    there = [name for name in data.target_names if name in read.file_columns]
    if table.is_by_position or not there:
        return table, None
    if are_classes:
        asked = {"columns": (), "text": (data.target,), "needed": inputs, "of_fit": of_fit}
        read = read_table(path, **asked, **dialect.options())
        targets, about = observed_classes(read, data.target, dialect, data.targets, data.is_as_written)
    else:
        about = tuple(LEFT_OUT.format(name, f"it is {read.dropped[name]}") for name in there if name in read.text)
        cells = {name: read.numbers(name) for name in there if name not in read.text}
        lacking = np.full(num_rows, np.nan)
        targets = np.column_stack([cells.get(name, lacking) for name in data.target_names]) if cells else None
        if targets is not None and not data.several:
            targets = targets[:, 0]
    return dataclasses.replace(table, notes=(*table.notes, *about)), targets


def _known_categories(table: Table, name: str, data: LabelledTable, dialect: Dialect) -> np.ndarray:
    if data.is_as_written:
        return as_names(table.text[name], dialect, levels_of(data.categories, name))
    return np.array([cell if cell not in dialect.blank else "" for cell in map(str.strip, table.text[name])])
