"""Which rows of a table are held out, and what they weigh."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geodax.app.tables.dialect import Dialect
from geodax.app.tables.names import as_names
from geodax.app.tables.read import Table
from geodax.data.errors import TableError, counted
from geodax.models.mlp.weights import whole_groups

_LEAST_FITTED = 2
_MANY_COPIES = 0.1  # of the held-out rows
_DISTINCT = 0.5  # of the fitted rows


def weights_of(path: Path, table: Table, name: str) -> np.ndarray:
    """Read the weights of all rows."""
    if name in table.text:
        raise TableError(f"{path}: --weights {name!r} is {table.dropped[name]}. Weights must be numbers of at least 0.")
    found = table.numbers(name)
    is_wrong = ~(np.isfinite(found) & (found >= 0))
    if is_wrong.any():
        number, what = int(np.flatnonzero(is_wrong)[0]), found[is_wrong][0]
        raise TableError(
            f"{path}: --weights {name!r} has {'no weight' if np.isnan(what) else f'{what:g}'} in row {number + 1} "
            f"({counted(int(is_wrong.sum()), 'such row')}). Weights must be numbers of at least 0; 0 leaves a row out."
        )
    return found


def groups_of(path: Path, table: Table, name: str, dialect: Dialect) -> np.ndarray:
    """Read the group of each row."""
    found = as_names(table.text[name], dialect)
    if len(without := np.flatnonzero(found == "")):
        raise TableError(
            f"{path}: --groups {name!r} has no group in row {without[0] + 1} ({counted(len(without), 'such row')}). "
            "Every row needs a group; give rows that stand alone one of their own."
        )
    return found


def times_of(path: Path, table: Table, name: str) -> np.ndarray:
    """Read the time of each row."""
    if name in table.text:
        raise TableError(f"{path}: --time {name!r} is {table.dropped[name]}. Times must be dates or numbers.")
    found = table.numbers(name)
    if len(without := np.flatnonzero(~np.isfinite(found))):
        raise TableError(
            f"{path}: --time {name!r} has no time in row {without[0] + 1} ({counted(len(without), 'such row')})."
        )
    return found


def choose_held_out(
    targets: np.ndarray,
    groups: np.ndarray | None,
    are_classes: bool,
    test_fraction: float,
    seed: int,
    *,
    are_times: bool = False,
) -> np.ndarray:
    """Choose held-out rows, the same fraction of each class; or whole groups with about as many rows.

    If groups are times, those are the latest.
    """
    count, random = len(targets), np.random.default_rng(seed)
    number = round(test_fraction * count)
    if groups is None:
        order = random.permutation(count)
        if are_classes:
            order = order[np.argsort(targets[order], kind="stable")]
            chosen = order[((np.arange(number) + 0.5) * count / max(number, 1)).astype(int)]
        else:
            chosen = order[:number]
        is_test = np.isin(np.arange(count), chosen)
    else:
        is_test = whole_groups(groups, number, None if are_times else random)
    if (~is_test).sum() < _LEAST_FITTED:
        raise TableError(
            f"--test-fraction {test_fraction} leaves {int((~is_test).sum())} of {count} rows to fit. At least "
            f"{_LEAST_FITTED} are needed."
        )
    return is_test


def about_held_out(
    is_test: np.ndarray, group: np.ndarray | None, groups: str, time: str, dates: Sequence[str]
) -> list[str]:
    """Say how many rows are held out, and how they were chosen; ``dates`` are the inputs that are dates."""
    if not is_test.any():
        return []
    which = f", the latest by {time!r}," if time else ""
    if group is not None:
        which = f", those of {len(set(group[is_test]))} of {len(set(group))} groups by {groups!r},"
    notes = [f"{int(is_test.sum()):,} of {len(is_test):,} rows{which} are held out and predicted in the report."]
    if dates and not which:
        notes.append(
            "They are chosen at random. If the rows are a series in time, most of them lie between fitted rows, and "
            f"their scores are not those of forecasts: --time {dates[0]} holds out the latest rows."
        )
    return notes


def about_copies(inputs: np.ndarray, targets: np.ndarray, is_test: np.ndarray) -> list[str]:
    """Say how many held-out rows are equal to fitted ones, if they are many in a table of mostly different rows."""
    import pandas as pd
    from pandas.util import hash_pandas_object

    rows = pd.concat([pd.DataFrame(inputs + 0.0), pd.DataFrame(targets)], axis=1)  # -0.0 becomes 0.0
    keys = hash_pandas_object(rows, index=False).to_numpy()  # type: ignore[operator] - loaded on access
    known, held = np.unique(keys[~is_test]), keys[is_test]
    number = int(np.isin(held, known).sum())
    if len(known) < _DISTINCT * (~is_test).sum() or number < _MANY_COPIES * len(held) or not number:
        return []
    return [
        f"{number:,} of {len(held):,} held-out rows have the inputs and the target of a fitted row. If they are copies "
        "of one observation, the scores are too good: remove the copies first."
    ]
