"""Contacts between people as counts between classes in windows of time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from geodax import _arguments
from geodax.data.dialect import FOUND, Dialect
from geodax.data.errors import TableError
from geodax.data.sources import load
from geodax.data.tables import read_table
from geodax.models.network_files import as_names, column

_OUT_OF_CLASS = "Teachers"


@dataclass(frozen=True)
class ContactWindows:
    """Counts between classes, window after window.

    Attributes:
        counts: Symmetric matrices; a contact within a class adds one to the diagonal.
        names: The classes.
        starts: When each window begins, in the unit of the times.
        width: The length of a window.
        notes: What was decided about the data.
    """

    counts: Float[np.ndarray, "T C C"]
    names: tuple[str, ...]
    starts: Float[np.ndarray, " T"]
    width: float
    notes: tuple[str, ...] = ()


_MOST_COUNTS = 100_000_000


def count_windows(times: Any, first: Any, second: Any, *, width: float) -> ContactWindows:
    """Count contacts between classes in consecutive windows from the first contact on.

    The last window is left out unless it is full, so that all windows are alike.

    Args:
        times: When each contact was.
        first: The class of one side of each contact.
        second: The class of the other.
        width: The length of a window, in the unit of the times.

    Returns:
        The counts.

    Raises:
        ValueError: If the arrays differ in length, are empty, or no window is full.
    """
    times = _arguments.numbers("count_windows", "times", times)
    classes = [_as_classes(side) for side in (first, second)]
    if times.ndim != 1 or not len(times) or any(side.shape != times.shape for side in classes):
        raise ValueError(
            "count_windows: expected a time and two classes for each contact, found arrays of shapes "
            f"{times.shape}, {classes[0].shape} and {classes[1].shape}."
        )
    width = _arguments.number("count_windows", "width", width, above=0.0)
    if not np.isfinite(times).all():
        raise ValueError("count_windows: a time is missing or infinite.")
    begin, end = times.min(), times.max()
    num_windows = int((end - begin) // width)
    if num_windows < 1:
        raise ValueError(
            f"count_windows: contacts last from {begin:g} to {end:g}, which is no full window of {width:g}; choose a "
            "shorter one."
        )
    names, index = np.unique(np.concatenate(classes), return_inverse=True)
    if num_windows * len(names) ** 2 > _MOST_COUNTS:
        raise ValueError(
            f"count_windows: contacts last from {begin:g} to {end:g}, {num_windows:.3g} windows of {width:g} with "
            f"{len(names)} x {len(names)} counts each, more than {_MOST_COUNTS:,} in all; choose a longer one."
        )
    i, j = index.reshape(2, -1)
    window = ((times - begin) // width).astype(int)
    is_kept = window < num_windows
    counts = np.zeros((num_windows, len(names), len(names)))
    np.add.at(counts, (window[is_kept], np.minimum(i, j)[is_kept], np.maximum(i, j)[is_kept]), 1.0)
    counts = counts + np.swapaxes(np.triu(counts, 1), 1, 2)
    notes = []
    if not is_kept.all():
        left = int((~is_kept).sum())
        notes.append(f"{left} contact{'' if left == 1 else 's'} after the last full window left out.")
    return ContactWindows(
        counts, tuple(names.tolist()), begin + width * np.arange(num_windows), float(width), tuple(notes)
    )


def primary_school(*, minutes: float = 11.0, teachers: bool = True) -> ContactWindows:
    """The face-to-face contacts of a primary school (Stehlé et al. 2011), counted between classes.

    The set has ten classes (1A to 5B) and the teachers, over two days with the night between them. Windows of 11
    minutes make 177, the number of Pourzanjani et al. (section 6.4); they speak of twelve classes and of one day.

    Args:
        minutes: The length of a window.
        teachers: Whether the teachers are a class.

    Returns:
        The counts; times are in seconds.
    """
    arrays = load("primary-school").arrays
    classes = arrays["groups"][arrays["pairs"]]
    windows = count_windows(arrays["times"], classes[:, 0], classes[:, 1], width=60.0 * minutes)
    if teachers:
        return windows
    kept = np.array([name != _OUT_OF_CLASS for name in windows.names])
    names = tuple(name for name in windows.names if name != _OUT_OF_CLASS)
    return ContactWindows(windows.counts[:, kept][:, :, kept], names, windows.starts, windows.width, windows.notes)


def read_contacts(path: str | Path, *, width: float, dialect: Dialect = FOUND) -> ContactWindows:
    """Read contacts from a file and count them.

    Args:
        path: A table with the columns time, one side, other side, and, if sides are people that belong to classes, the
            class of one and of the other: three columns or five, with a header or without.
        width: The length of a window, in the unit of the times.
        dialect: How the file is written.

    Returns:
        The counts.

    Raises:
        TableError: If the table has other columns.
        ValueError: As :func:`count_windows`.
    """
    table = read_table(path, **dialect.options())
    names = table.file_columns
    if len(names) not in (3, 5):
        raise TableError(
            f"{path} has {len(names)} columns; expected time, i, j, or time, i, j, class of i, class of j. "
            f"Found {', '.join(names[:8])}."
        )
    times = np.asarray(column(table, names[0]), dtype=np.float64)
    first, second = (as_names(column(table, name)) for name in names[-2:])
    return count_windows(times, first, second, width=width)


def _as_classes(side: Any) -> np.ndarray:
    try:
        return np.asarray(side).astype(str)
    except (TypeError, ValueError) as error:
        raise TypeError(f"count_windows: expected one class for each contact: {error}.") from error
