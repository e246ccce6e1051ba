"""Ratings of items by users, from a user's file."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.dialect import FOUND, Dialect
from geodax.data.errors import TableError, listed, nearest
from geodax.data.tables import Table, read_table
from geodax.models.network_files import as_names, column
from geodax.run.errors import StorageError

_LEAST = 4


@dataclasses.dataclass(frozen=True)
class RatingTable:
    """Ratings.

    Attributes:
        pairs: Names of user and item, rows x 2.
        ratings: One a row.
        columns: Names of the columns of user, item and rating.
        is_test: Which rows are held out from the fit.
        notes: What was decided about the data.
    """

    pairs: np.ndarray
    ratings: np.ndarray
    columns: tuple[str, ...]
    is_test: np.ndarray
    notes: tuple[str, ...]


def read_ratings(
    path: Path, *, user: str, item: str, rating: str, test_fraction: float, dialect: Dialect = FOUND
) -> RatingTable:
    """Read ratings.

    Args:
        path: A file with a row for each rating.
        user: Column of the users; empty takes one called user (users, user_id, userId), or the first one.
        item: Column of the items, likewise; the second one.
        rating: Column of the ratings, likewise; the third one.
        test_fraction: Share of the rows to hold out, the same rows each time.
        dialect: How the file is written.

    Returns:
        The rows in which nothing is missing.

    Raises:
        TableError: If columns cannot be found, or ratings are no numbers.
    """
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be a share from 0 to below 1, found {test_fraction}.")
    table = read_table(path, **dialect.options())
    wanted = (("user", user), ("item", item), ("rating", rating))
    columns = tuple(_found(path, table, kind, given, place) for place, (kind, given) in enumerate(wanted))
    if len(set(columns)) < 3:
        raise TableError(
            f"{path}: user, item and rating must be three columns, found {listed(columns)}; say --user, --item and "
            f"--rating, three of {listed(table.file_columns)}."
        )
    pairs, ratings = _pairs(table, columns), _ratings(path, table, columns[2])
    is_whole = np.isfinite(ratings) & ~np.isin(pairs, dialect.blank).any(axis=1)
    count = int(is_whole.sum())
    if count < _LEAST:
        raise TableError(f"{path}: {count} of {len(ratings)} rows have user, item and rating; a fit needs {_LEAST}.")
    notes = [f"Users are in column {columns[0]!r}, items in {columns[1]!r}, ratings in {columns[2]!r}."]
    if count < len(ratings):
        notes.append(f"{len(ratings) - count} of {len(ratings)} rows lack a value and are left out.")
    pairs, ratings = pairs[is_whole], ratings[is_whole]
    repeated = count - len(np.unique(pairs, axis=0))
    if repeated:
        notes.append(f"{repeated} rows rate a pair again; each counts as a rating of its own.")
    is_test = np.zeros(count, bool)
    is_test[np.random.default_rng(0).permutation(count)[: round(test_fraction * count)]] = True
    if is_test.any():
        notes.append(f"{int(is_test.sum())} of {count} ratings are held out, to be predicted in the report.")
    return RatingTable(pairs, ratings, columns, is_test, tuple(notes))


def read_new_pairs(
    path: Path, data: RatingTable, dialect: Dialect = FOUND
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Read pairs of user and item.

    Args:
        path: A file with the columns of the fit, or without a header and with two or three columns.
        data: What the model was fitted to.
        dialect: How the file is written.

    Returns:
        Names of user and item, ratings where the file has them, and notes.

    Raises:
        TableError: If columns cannot be found.
    """
    table = read_table(path, **dialect.options())
    names = list(data.columns)
    if not table.has_header and len(table.file_columns) in (2, 3):
        names = [*table.file_columns, ""][:3]
    for name in names[:2]:
        if name not in table.file_columns:
            raise TableError(
                f"{path}: expected the columns {listed(names[:2])}, but {name!r} is not there"
                f"{nearest(name, table.file_columns)}; it has {listed(table.file_columns)}."
            )
    has_ratings = names[2] in table.file_columns
    return _pairs(table, tuple(names)), _ratings(path, table, names[2]) if has_ratings else None, ()


def save_ratings(path: Path, data: RatingTable) -> None:
    """Keep the ratings as plain arrays."""
    np.savez_compressed(path, **dataclasses.asdict(data))


def load_ratings(path: Path) -> RatingTable:
    """Read what :func:`save_ratings` kept; StorageError if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, Any] = {name: file[name] for name in ("pairs", "ratings", "is_test")}
            texts: dict[str, Any] = {name: tuple(map(str, file[name].tolist())) for name in ("columns", "notes")}
            return RatingTable(**arrays, **texts)
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _found(path: Path, table: Table, kind: str, given: str, place: int) -> str:
    """The column of users, items or ratings."""
    names = table.file_columns
    if given:
        if given not in names:
            raise TableError(
                f"{path} has no column {given!r}{nearest(given, names)}: say --{kind} NAME, one of {listed(names)}."
            )
        return given
    called = {name.casefold().replace("_", ""): name for name in reversed(names)}
    for word in (kind, f"{kind}s", f"{kind}id"):
        if word in called:
            return called[word]
    if len(names) < 3:
        raise TableError(f"{path} has {len(names)} columns ({listed(names)}); expected user, item and rating.")
    return names[place]


def _pairs(table: Table, columns: tuple[str, ...]) -> np.ndarray:
    return np.stack([_names(column(table, name)) for name in columns[:2]], axis=1)


def _names(cells: Any) -> np.ndarray:
    """Cells as names, an empty one where a number is missing."""
    values = np.asarray(cells)
    if values.dtype.kind != "f":
        return np.char.strip(values.astype(str))
    is_there = np.isfinite(values)
    return np.where(is_there, as_names(np.where(is_there, values, 0.0)), "")


def _ratings(path: Path, table: Table, name: str) -> np.ndarray:
    if name in table.text:
        raise TableError(f"{path}: ratings must be numbers, but column {name!r} is {table.dropped[name]}.")
    return np.asarray(column(table, name), np.float64)
