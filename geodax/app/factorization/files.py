"""Reads ratings of items by users from a user's file."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from geodax.app.families import RatingsOptions
from geodax.app.tables.chosen_rows import choose_held_out, times_of
from geodax.app.tables.codes import better_likelihood
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import as_names, no_column
from geodax.app.tables.read import Table, notes_on_reading, read_table
from geodax.data.errors import TableError, listed, nearest

_LEAST = 4
_MOST_BY_POSITION = 5  # columns: an index, user, item, rating and time
_LONG_TAIL = 10  # largest rating over the median, which grades do not reach
_CALLED: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "users", "userid", "customer", "customerid", "reviewer", "reviewerid", "member", "memberid"),
    "item": (
        *("item", "items", "itemid", "product", "productid", "movie", "movieid", "film", "filmid", "book", "bookid"),
        *("isbn", "asin", "song", "songid", "track", "trackid", "artist", "artistid", "business", "businessid"),
    ),
    "rating": ("rating", "ratings", "stars", "score", "plays", "playcount"),
}
"""Usual column names, in lower case and without separators."""


@dataclasses.dataclass(frozen=True)
class RatingTable:
    """Ratings.

    Attributes:
        pairs: Names of user and item, shape (rows, 2).
        ratings: The rating of each row.
        columns: Names of the columns of user, item and rating.
        is_test: Which rows are held out.
        notes: Decisions made while reading the data.
        in_file: The same columns in file order; empty in runs of earlier versions.
    """

    pairs: np.ndarray
    ratings: np.ndarray
    columns: tuple[str, ...]
    is_test: np.ndarray
    notes: tuple[str, ...]
    in_file: tuple[str, ...] = ()


def read_ratings(path: Path, options: RatingsOptions, *, seed: int = 0, dialect: Dialect = FOUND) -> RatingTable:
    """Read ratings from a file with one row per rating.

    An empty column name takes one with a matching name: (user, user_id, userId, customer, ...), (item, movieId,
    productId, ...), (rating, stars, ...). If no column is given and no name matches, the first three columns are users,
    items and ratings, of five at most. The latest ratings by a column of times are held out; without one the seed
    chooses pairs, all of whose ratings are held out. The rows without missing cells remain; users and items are named
    by :func:`geodax.app.tables.names.as_names`.

    Raises:
        TableError: If columns cannot be found, or ratings are not numbers, too few to fit, or all the same.
    """
    time, test_fraction = options.time, options.test_fraction
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be at least 0 and below 1, found {test_fraction}.")
    asked = {"user": options.user, "item": options.item, "rating": options.rating, "time": time}
    table = read_table(
        path,
        text=lambda names: _roles(path, names, asked)[:2],
        needed=lambda names: (*_roles(path, names, asked), *filter(None, [time])),
        **dialect.options(),
    )
    columns, others = _roles(path, table.file_columns, asked), table.file_columns[1:4]
    is_index = table.has_index and columns[0] not in (*others, options.user)
    if is_index and len(others) == 3:  # by position, beside the index
        by_position = dataclasses.replace(options, **dict(zip(_CALLED, others, strict=True)))
        return read_ratings(path, by_position, seed=seed, dialect=dialect)
    pairs, ratings = _pairs(table, columns, dialect), _ratings(path, table, columns[2])
    is_whole = np.isfinite(ratings) & (pairs != "").all(axis=1)
    count = int(is_whole.sum())
    if count < _LEAST:
        raise TableError(f"{path}: {count} of {len(ratings)} rows have user, item and rating. A fit needs {_LEAST}.")
    notes = [f"Users are in column {columns[0]!r}, items in {columns[1]!r}, ratings in {columns[2]!r}."]
    notes += notes_on_reading(table)
    if count < len(ratings):
        notes.append(f"{len(ratings) - count} of {len(ratings)} rows have missing values and are left out.")
    pairs, ratings = pairs[is_whole], ratings[is_whole]
    if len(np.unique(ratings)) == 1:
        raise TableError(
            f"{path}: every rating in {columns[2]!r} is {ratings[0]:g}, and so would be every prediction. For likes or "
            "purchases add pairs that were offered but not taken, with the rating 0."
        )
    middle, largest = np.median(ratings), ratings.max()
    if largest > _LONG_TAIL * (middle or 1) and (better := better_likelihood(ratings)):
        logarithms = "logarithms" if better == "log-normal" else "logarithms of 1 + the counts"
        notes.append(
            f"{columns[2]!r} is very skewed: median {middle:g}, largest value {largest:g}. The model has normal noise, "
            f"which suits the {logarithms} better."
        )
    _, group = np.unique(pairs, axis=0, return_inverse=True)
    repeated = count - len(np.unique(group))
    if repeated:
        notes.append(f"{repeated} rows rate a pair again. Each counts as a separate rating.")
    together = times_of(path, table, time)[is_whole] if time else group.reshape(count)
    is_test = choose_held_out(ratings, together, False, test_fraction, seed, are_times=bool(time))
    if is_test.any():
        which = f", the latest by {time!r}," if time else ""
        notes.append(f"{int(is_test.sum())} of {count} ratings{which} are held out and predicted in the report.")
    in_file = tuple(name for name in table.file_columns if name in columns)
    return RatingTable(pairs, ratings, columns, is_test, tuple(notes), in_file)


def read_new_pairs(
    path: Path, data: RatingTable, dialect: Dialect = FOUND
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...]]:
    """Read names of user and item, empty where one is missing, ratings if the file has them, and notes.

    The file has the columns of the fit; or without a header, two or three columns in the order of the fit, with the
    rating if there are three. Raises TableError if columns cannot be found.
    """
    table = read_table(
        path,
        text=lambda names: _as_in_fit(data, names)[:2] or names[:2],
        needed=lambda names: _as_in_fit(data, names) or names[:3],
        keep_constant=True,
        **dialect.options(),
    )
    names, notes = list(data.columns), notes_on_reading(table)
    if _are_nameless(table.file_columns):
        names = [*_as_in_fit(data, table.file_columns), ""][:3]
        told = [f"{new!r} as {old!r}" for old, new in zip(data.columns, names, strict=True) if new not in ("", old)]
        if told:
            notes.append(f"Columns without names were read in the order of the fit: {', '.join(told)}.")
    for name in names[:2]:
        if name not in table.file_columns:
            raise TableError(
                f"{path}: expected the columns {listed(names[:2])}, but {name!r} is missing"
                f"{nearest(name, table.file_columns)}. The file has {listed(table.file_columns)}."
            )
    pairs, has_ratings = _pairs(table, names, dialect, data.pairs), names[2] in table.file_columns
    lacking = int((pairs == "").any(axis=1).sum())
    if lacking:
        notes.append(f"{lacking} of {len(pairs)} rows lack a user or an item and have no prediction.")
    return pairs, _ratings(path, table, names[2]) if has_ratings else None, tuple(notes)


def _roles(path: Path, names: Sequence[str], asked: Mapping[str, str]) -> tuple[str, ...]:
    """Columns of users, items and ratings: as requested, else by their names, else by position."""
    for role, name in asked.items():
        if name and name not in names:
            raise no_column(path, name, names, f"Use --{role} with one of")
    names = [name for name in names if name != asked["time"]]
    called = {re.sub(r"[\W_]", "", name.casefold()): name for name in reversed(names)}
    found = {
        role: asked[role] or next((called[alias] for alias in aliases if alias in called), "")
        for role, aliases in _CALLED.items()
    }
    open_roles, rest = [role for role in found if not found[role]], [n for n in names if n not in found.values()]
    if len(open_roles) == 3 and len(names) > _MOST_BY_POSITION:
        raise TableError(
            f"{path}: expected one row per rating, but there are {len(names)} columns: {listed(names)}. Use --user, "
            "--item and --rating with their names. If the columns are items, write one row for each user and item."
        )
    if len(open_roles) == 3 and len(names) >= 3:
        return tuple(names[:3])
    if len(open_roles) == len(rest) == 1:
        found[open_roles[0]] = rest[0]
    elif open_roles:
        raise TableError(
            f"{path}: no column has a usual name for {' or '.join(open_roles)}. Use "
            f"{', '.join(f'--{role} NAME' for role in open_roles)}, with names among {listed(names)}."
        )
    columns = tuple(found.values())
    if len(set(columns)) < 3:
        raise TableError(
            f"{path}: user, item and rating must be three columns, found {listed(columns)}. Use --user, --item and "
            f"--rating with three of {listed(names)}."
        )
    return columns


def _are_nameless(names: Sequence[str]) -> bool:
    """Whether these are two or three columns of a file without a header."""
    return len(names) in (2, 3) and list(names) == [f"column {k + 1}" for k in range(len(names))]


def _as_in_fit(data: RatingTable, names: Sequence[str]) -> list[str]:
    """Columns of user, item and rating among those of new data, as far as they exist."""
    if not _are_nameless(names):
        return [name for name in data.columns if name in names]
    in_file = data.in_file or data.columns
    found = dict(zip([name for name in in_file if len(names) == 3 or name != data.columns[2]], names, strict=True))
    return [found[name] for name in data.columns if name in found]


def _pairs(table: Table, columns: Sequence[str], dialect: Dialect, fitted: np.ndarray | None = None) -> np.ndarray:
    known = ((), ()) if fitted is None else [set(side.tolist()) for side in fitted.T]
    named = [as_names(table.text[name], dialect, each) for name, each in zip(columns[:2], known, strict=True)]
    return np.stack(named, axis=1)


def _ratings(path: Path, table: Table, name: str) -> np.ndarray:
    if name in table.text:
        raise TableError(f"{path}: ratings must be numbers, but column {name!r} is {table.dropped[name]}.")
    return table.numbers(name)
