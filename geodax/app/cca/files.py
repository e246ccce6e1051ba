"""Reads rows of two views in groups from a user's file."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import as_names, in_order
from geodax.app.tables.read import Table, match_columns, read_table
from geodax.data.errors import TableError, listed, nearest


@dataclass(frozen=True)
class GroupedTable:
    """Rows of two views, with their groups.

    Attributes:
        values: Both views side by side, NaN where a cell is missing.
        groups: The group of each row.
        first: Column names of view 1.
        second: Column names of view 2.
        group: Name of the group column; empty if all rows are one group.
        notes: Decisions made while reading the data.
    """

    values: Float[np.ndarray, "m n"]
    groups: np.ndarray
    first: tuple[str, ...]
    second: tuple[str, ...]
    group: str
    notes: tuple[str, ...] = ()


def read_grouped(path: Path, *, group: str, first: str, second: str, dialect: Dialect = FOUND) -> GroupedTable:
    """Read both views and the groups of rows that have their group and a cell, from a file with a header.

    An empty group column takes the first text column with repeated entries, or one group of all rows. View 1 is given
    by comma-separated names or patterns such as ``protein*``; view 2 too, or if empty by all other numeric columns.
    Raises TableError if columns cannot be found, or there is no such row.
    """

    def needed(names: Sequence[str]) -> Sequence[str]:
        found = [
            _chosen(path, words, names, option)
            for words, option in ((first, "--first-view"), (second, "--second-view"))
            if words
        ]
        return [*_named(group), *(name for names in found for name in names)] if second else names

    table = read_table(
        path,
        text=lambda names: [name for name in names if name == group],
        needed=needed,
        others="" if second else "name the columns of the second view too (--second-view)",
        **dialect.options(),
    )
    kinds = [] if group else [name for name, cells in table.text.items() if len(np.unique(cells)) < len(cells)]
    if kinds:  # again, so that the notes do not call the column left out
        return read_grouped(path, group=kinds[0], first=first, second=second, dialect=dialect)
    if group and group not in table.file_columns:
        raise TableError(
            f"{path}: --group must name the column of the groups, found {group!r}"
            f"{nearest(group, table.file_columns)}. The columns are {', '.join(table.file_columns)}."
        )
    chosen, rest = _views(path, table, group, first, second)
    matched = match_columns(table, [*chosen, *rest])
    values, labels = matched.values, _groups(table, group, dialect)
    is_kept = np.isfinite(values).any(axis=1) & (labels != "")
    if not is_kept.any():
        lack = "its group or all" if group else "all"
        raise TableError(f"{path}: every row lacks {lack} cells of {', '.join([*chosen, *rest])}.")
    values, labels = values[is_kept], labels[is_kept]
    groups = np.unique(labels).tolist()
    notes = [note for note in matched.notes if note in table.notes]  # without the notes about new data
    notes += [
        f"First view: {', '.join(chosen)}.",
        f"Second view: {', '.join(rest)}.",
        f"Groups ({group}): "
        + ", ".join(f"{groups[g]} ({(labels == groups[g]).sum()})" for g in in_order(groups))
        + "."
        if group
        else "All rows are one group; --group names a column of groups.",
    ]
    if len(values) < len(table.values):
        num_rows = len(table.values)
        notes.append(f"{num_rows - len(values)} of {num_rows} rows left out: they lack their group or all cells.")
    if (lacking := int(np.isnan(values).any(axis=1).sum())) > 0:
        notes.append(f"{lacking} of {len(values)} rows have missing cells; the fit uses their other cells.")
    return GroupedTable(values, labels, tuple(chosen), tuple(rest), group, tuple(notes))


def _views(path: Path, table: Table, group: str, first: str, second: str) -> tuple[list[str], list[str]]:
    numeric = [name for name in table.names if name != group]
    if not first:
        raise TableError(
            f"{path}: --first-view must name the columns of one view, or patterns such as 'protein*', comma-separated. "
            f"The numeric columns are {', '.join(numeric)}."
        )
    what = "numeric column that varies"
    chosen = _chosen(path, first, numeric, "--first-view", what)
    others = [name for name in numeric if name not in (*chosen, *table.days)]
    rest = _chosen(path, second, numeric, "--second-view", what) if second else others
    both = [name for name in chosen if name in rest]
    if both:
        raise TableError(f"{path}: column {both[0]!r} cannot belong to both views.")
    for option, names in (("--first-view", chosen), ("--second-view", rest)):
        if len(names) < 2:
            raise TableError(
                f"{path}: each view needs at least two numeric columns that vary, found {listed(names) or 'none'} for "
                f"{option}. The numeric columns are {listed(numeric)}."
            )
    return chosen, rest


class NewRows(NamedTuple):
    """Rows to predict for.

    Attributes:
        groups: Their groups; empty where one is missing.
        parts: Matrices by view number.
        is_known: Which rows have their group and a cell.
        notes: Decisions made while reading the data.
    """

    groups: np.ndarray
    parts: dict[int, np.ndarray]
    is_known: Bool[np.ndarray, " m"]
    notes: tuple[str, ...]


def read_new_rows(path: Path, fitted: GroupedTable, dialect: Dialect = FOUND) -> NewRows:
    """Read rows to predict for, of both views or of one; a view without any number in the file counts as absent.

    Raises TableError if the groups or both views are missing.
    """

    def needed(names: Sequence[str]) -> Sequence[str]:
        found = [name for name in names if name in (*fitted.first, *fitted.second)]
        if not found:
            raise TableError(_no_view(path, fitted, "columns", [name for name in names if name != fitted.group]))
        return [*_named(fitted.group), *found]

    table = read_table(
        path,
        text=lambda names: [name for name in names if name == fitted.group],
        needed=needed,
        keep_constant=True,
        **dialect.options(),
    )
    if fitted.group and fitted.group not in table.file_columns:
        raise TableError(f"{path}: there is no column {fitted.group!r}, which holds the group of each row.")
    there, views = _numeric(table), {1: fitted.first, 2: fitted.second}
    for view, names in views.items():
        _require_whole_or_absent(
            table, view, names, [name for name in there if name not in fitted.first + fitted.second]
        )
    found = {view: names for view, names in views.items() if names[0] in there}
    if not found:
        raise TableError(_no_view(path, fitted, "numeric columns", there))
    matched = match_columns(table, [name for names in found.values() for name in names])
    place = {name: i for i, name in enumerate(matched.names)}
    parts = {view: matched.values[:, [place[name] for name in names]] for view, names in found.items()}
    empty = [view for view, part in parts.items() if np.isnan(part).all()]
    if len(empty) == 1 and len(parts) == 2:
        del parts[empty[0]]
    groups = _groups(table, fitted.group, dialect, np.unique(fitted.groups).tolist())
    is_known = (groups != "") & np.isfinite(np.concatenate(list(parts.values()), axis=1)).any(axis=1)
    lacking = int((~is_known).sum())
    note = f"{lacking} of {len(groups)} rows lack their group or all cells and have no prediction."
    return NewRows(groups, parts, is_known, (*matched.notes, *((note,) if lacking else ())))


def _no_view(path: Path, fitted: GroupedTable, what: str, there: Sequence[str]) -> str:
    found = (nearest(name, there) for name in (*fitted.first, *fitted.second))
    return (
        f"{path}: expected the columns of one view, {', '.join(fitted.first)}, or the other, "
        f"{', '.join(fitted.second)}. The {what} are {', '.join(there) or 'none'}{next(filter(None, found), '')}."
    )


def _require_whole_or_absent(table: Table, view: int, names: Sequence[str], others: Sequence[str]) -> None:
    """Raise TableError if a file has some columns of a view but not all; others are its columns in neither view."""
    there = _numeric(table)
    lacking = [name for name in names if name not in there]
    if not lacking or len(lacking) == len(names):
        return
    name = lacking[0]
    is_other = name in table.file_columns
    what = table.dropped.get(name, "not numeric") if is_other else f"not there{nearest(name, others)}"
    raise TableError(
        f"{table.path}: column {name!r} of view {view} is {what}, but "
        f"{listed([name for name in names if name in there], 4)} of that view "
        f"{'is' if len(names) - len(lacking) == 1 else 'are'}. Rename or add the missing ones of {listed(names)}, or "
        "leave out the whole view, which is then predicted from the other one."
    )


def _named(group: str) -> list[str]:
    return [group] if group else []


def _groups(table: Table, group: str, dialect: Dialect, known: Sequence[str] = ()) -> np.ndarray:
    """The group of each row, or one name for all rows if no column holds them."""
    return as_names(table.text[group], dialect, known) if group else np.full(len(table.values), "all")


def _numeric(table: Table) -> list[str]:
    return [name for name in table.file_columns if name in table.names or name in table.set_aside]


def _chosen(path: Path, words: str, names: Sequence[str], option: str, what: str = "column") -> list[str]:
    """Columns that match comma-separated names or patterns; raises TableError if one of these matches none."""
    found: list[str] = []
    for word in (w.strip() for w in words.split(",")):
        fitting = [word] if word in names else [name for name in names if fnmatchcase(name, word)]
        if not fitting:
            alike = [name for name in names if fnmatchcase(name.casefold(), word.casefold())]
            meant = nearest(alike[0], alike) if alike else nearest(word.strip("*?"), names)
            raise TableError(
                f"{path}: {option} has {word!r}, which matches no {what}{meant}. The columns are {listed(names)}."
            )
        found += [name for name in fitting if name not in found]
    return found
