"""Columns of a table as inputs of a network: categories as columns of 0 and 1, and the parts of dates."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from geodax.data.errors import TableError, counted

OTHER = "(other)"
"""The category of all values that are too rare for one of their own."""
_MANY_CATEGORIES, _MOST_CATEGORIES, _ROWS_OF_EACH, _MOST_CELLS = 100, 1_000, 100, 50_000_000
_MANY_ROWS, _LEAST_OF_MANY, _LEAST_OF_FEW = 30, 3, 2  # rows of a category
_PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}

Pairs = Sequence[tuple[str, str]]


def asked_levels(path: Path, name: str, labels: np.ndarray) -> list[str]:
    """Return the categories of a column of ``--categories``; raises TableError if there are too few or too many."""
    present = labels[labels != ""]
    levels = np.unique(present).tolist()
    most = _room(len(present))
    if not 2 <= len(levels) <= min(most, max(2, len(present) // 2)):
        such = f", such as {levels[0]!r}" if levels else ""
        raise TableError(
            f"{path}: column {name!r} has {counted(len(levels), 'different value')} in {len(present)} rows{such}. "
            f"--categories expects 2 to {most} values, and at least twice as many rows."
        )
    return levels


def found_levels(labels: np.ndarray) -> list[str]:
    """Return the categories of a text column, or none if it looks like names or free text.

    These are the values of at least 3 rows (2 of less than 30 rows), at most 100 or one for each 100 rows, and
    :data:`OTHER` if there are others; none if these are less than half of all rows and all values have less than 100
    rows each.
    """
    levels, counts = np.unique(labels[labels != ""], return_counts=True)
    total = int(counts.sum())
    is_often = counts >= (_LEAST_OF_MANY if total >= _MANY_ROWS else _LEAST_OF_FEW)
    most = max(_MANY_CATEGORIES, min(total // _ROWS_OF_EACH, _room(total)))
    chosen = [k for k in np.argsort(-counts, kind="stable")[:most] if is_often[k]]
    are_names = 2 * counts[chosen].sum() < total < _ROWS_OF_EACH * len(levels)
    if len(levels) < 2 or are_names:
        return []
    return [*sorted(levels[chosen].tolist()), *[OTHER] * (len(chosen) < len(levels))]


def _room(num_rows: int) -> int:
    return max(_MANY_CATEGORIES, min(_MOST_CATEGORIES, _MOST_CELLS // max(num_rows, 1)))


def levels_of(categories: Pairs, name: str) -> list[str]:
    """Return the categories of one column."""
    return [level for column, level in categories if column == name]


def indicators(cells: Mapping[str, np.ndarray], categories: Pairs, num_rows: int) -> np.ndarray:
    """Make one column of 0 and 1 for each category.

    All of a column's categories are NaN where its cell is missing, or has an unknown value and there is no category for
    others.
    """
    found = np.zeros((num_rows, len(categories)))
    for name in dict.fromkeys(name for name, _ in categories):
        places = {level: k for k, (column, level) in enumerate(categories) if column == name}
        values, which = np.unique(cells[name], return_inverse=True)
        own = np.array([-1 if v == "" else places.get(str(v), places.get(OTHER, -1)) for v in values], int)[which]
        found[own >= 0, own[own >= 0]] = 1.0
        found[np.ix_(own < 0, np.array([*places.values()]))] = np.nan
    return found


def unknown(labels: np.ndarray, levels: Sequence[str]) -> np.ndarray:
    """Return which cells have a value that is not one of the categories."""
    return (labels != "") & ~np.isin(labels, levels)


def parts_of_dates(dates: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
    """Choose the periods that dates, days by column, cover: pairs of a column and "year", "week" or "day".

    The dates span 1.5 periods (times of a day: half a day) and mostly follow each other within half a period.
    """
    found = []
    for name, cells in dates.items():
        days = np.unique(cells[~np.isnan(cells)])
        are_times = bool(len(days)) and days[0] >= 0 and days[-1] < 1
        for part, period in _PERIODS.items():
            phases = np.unique(np.round(days / period % 1.0, 2) % 1.0)
            if len(days) < 3 or len(phases) < 3 or (are_times and part != "day"):
                continue
            if np.ptp(days) >= (0.5 if are_times else 1.5 * period) and np.median(np.diff(days)) < period / 2:
                found.append((name, part))
    return found


def waves(dates: Mapping[str, np.ndarray], parts: Pairs, num_rows: int) -> np.ndarray:
    """Make a sine and a cosine of each date's place in each of its periods, in the order of :func:`wave_names`."""
    angles = [2 * np.pi * dates[name] / _PERIODS[part] for name, part in parts]
    columns = [function(angle) for angle in angles for function in (np.sin, np.cos)]
    return np.array(columns, float).reshape(2 * len(parts), num_rows).T


def wave_names(parts: Pairs) -> list[str]:
    """Return the names of the columns of :func:`waves`."""
    return [f"{name} ({part} {function})" for name, part in parts for function in ("sin", "cos")]
