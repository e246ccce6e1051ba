"""Contacts between people, counted between classes in time windows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from geodax import _checks
from geodax.app.network.files import DOUBLE, in_both_directions, with_held_out
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import as_names, numbered
from geodax.app.tables.read import notes_on_reading, read_table
from geodax.data.errors import TableError, counted
from geodax.data.sources import load

_OUT_OF_CLASS = "Teachers"


@dataclass(frozen=True)
class ContactWindows:
    """Counts between classes in consecutive windows.

    Attributes:
        counts: Symmetric matrices; a contact within a class adds one to the diagonal.
        names: The classes.
        starts: Start time of each window.
        width: Length of a window.
        notes: Decisions made while reading the data.
        is_test: Which counts are held out, symmetric; None for none.
        is_date: Whether times are days since 1970-01-01.
    """

    counts: Float[np.ndarray, "T C C"]
    names: tuple[str, ...]
    starts: Float[np.ndarray, " T"]
    width: float
    notes: tuple[str, ...] = ()
    is_test: Bool[np.ndarray, "T C C"] | None = None
    is_date: bool = False

    @property
    def fitted(self) -> Float[np.ndarray, "T C C"]:
        """The counts, NaN where they are held out."""
        return self.counts if self.is_test is None else np.where(self.is_test, np.nan, self.counts)


_MOST_COUNTS = 100_000_000
_TIMES = ("time", "times", "timestamp", "date", "datetime", "day", "unixtime", "t")  # usual names of their column
_USUAL_WINDOWS = 100


def count_windows(
    times: Any, first: Any, second: Any, *, width: float | None = None, start: float | None = None
) -> ContactWindows:
    """Count contacts between classes in consecutive windows.

    An incomplete last window is left out, so that all windows have the same length. If the times advance in steps,
    such as full minutes, the last contact lasts until the next step.

    Args:
        times: Time of each contact.
        first: Class of one side of each contact.
        second: Class of the other side.
        width: Length of a window, in the unit of the times; None chooses 1, 2 or 5 times a power of ten, for 100
            to 250 windows.
        start: Start of the first window; None is the time of the first contact. Earlier contacts are left out.

    Raises:
        ValueError: If the arrays differ in length or are empty, or no window is complete.
    """
    times = _checks.numbers("count_windows", "times", times)
    classes = [_as_classes(side) for side in (first, second)]
    if times.ndim != 1 or not len(times) or any(side.shape != times.shape for side in classes):
        raise ValueError(
            "count_windows: expected a time and two classes for each contact, found arrays of shapes "
            f"{times.shape}, {classes[0].shape} and {classes[1].shape}."
        )
    if not np.isfinite(times).all():
        raise ValueError("count_windows: a time is missing or infinite.")
    notes, step = [], _step(times)
    begin = times.min() if start is None else _checks.number("count_windows", "start", start)
    is_before = times < begin
    if is_before.all():
        raise ValueError(f"count_windows: all contacts are before the start {begin:g}. Choose an earlier start.")
    if is_before.any():
        notes.append(f"{counted(int(is_before.sum()), 'contact')} before the start {begin:g} left out.")
        times, classes = times[~is_before], [side[~is_before] for side in classes]
    end = times.max()
    if begin == end:
        raise ValueError(f"count_windows: all contacts have the time {end:g}. Windows need contacts at several times.")
    if width is None:
        width = _round_width(begin, end + step, step)
        notes.append(f"The length of the windows, {width:g}, was chosen by their number. Use --window for another.")
    width = _checks.number("count_windows", "width", width, above=0.0)
    num_windows = int(_windows(np.append(times, end + min(step, width)), begin, width)[-1])
    if num_windows < 1:
        raise ValueError(
            f"count_windows: contacts last from {begin:g} to {end:g}, less than one full window of {width:g}. Choose "
            "a shorter window."
        )
    names, index = numbered(np.concatenate(classes))
    if num_windows * len(names) ** 2 > _MOST_COUNTS:
        raise ValueError(
            f"count_windows: contacts last from {begin:g} to {end:g}, {num_windows:.3g} windows of {width:g} with "
            f"{len(names)} x {len(names)} counts each, more than {_MOST_COUNTS:,} in total. Choose a longer window."
        )
    i, j = index.reshape(2, -1)
    window = _windows(times, begin, width).astype(int)
    is_kept = window < num_windows
    counts = np.zeros((num_windows, len(names), len(names)))
    np.add.at(counts, (window[is_kept], np.minimum(i, j)[is_kept], np.maximum(i, j)[is_kept]), 1.0)
    counts = counts + np.swapaxes(np.triu(counts, 1), 1, 2)
    if not is_kept.all():
        notes.append(f"{counted(int((~is_kept).sum()), 'contact')} after the last full window left out.")
    return ContactWindows(
        counts, tuple(names.tolist()), begin + width * np.arange(num_windows), float(width), tuple(notes)
    )


def hold_out_counts(
    windows: ContactWindows, fraction: float, *, diagonal: bool = True, seed: int = 0
) -> ContactWindows:
    """Hold out counts of pairs in windows as :func:`geodax.app.network.files.with_held_out`.

    Counts within a class are among them if ``diagonal``.
    """
    is_open = np.triu(np.ones(windows.counts.shape, bool), 0 if diagonal else 1)
    return with_held_out(windows, windows.counts, is_open, fraction, "counts", seed)


def primary_school(*, minutes: float = 11.0, teachers: bool = True) -> ContactWindows:
    """Face-to-face contacts in a primary school (Stehlé et al. 2011), counted between classes.

    The data set has ten classes (1A to 5B) and the teachers, over two days with the night between them. Windows of 11
    minutes give 177 windows, the number of Pourzanjani et al. (section 6.4), who mention twelve classes and one day.
    Times are in seconds; ``teachers`` tells whether the teachers are a class.
    """
    arrays = load("primary-school").arrays
    classes = arrays["groups"][arrays["pairs"]]
    windows = count_windows(arrays["times"], classes[:, 0], classes[:, 1], width=60.0 * minutes)
    if teachers:
        return windows
    kept = np.array([name != _OUT_OF_CLASS for name in windows.names])
    names = tuple(name for name in windows.names if name != _OUT_OF_CLASS)
    return replace(windows, counts=windows.counts[:, kept][:, :, kept], names=names)


def read_contacts(
    path: str | Path, *, width: float | None = None, start: float | None = None, dialect: Dialect = FOUND
) -> ContactWindows:
    """Read contacts from a file and count them by :func:`count_windows`, which also describes ``width`` and ``start``.

    The table has the columns time, one side, other side and, if the sides are people who belong to classes, the classes
    of both: three or five columns, with or without a header. A column named time, timestamp, date or the like may have
    any place. Rows with a time and both classes count; contacts that are all listed in both directions count once.
    Raises TableError if the table has other columns, or times are not numbers.
    """
    table = read_table(path, text=lambda names: _time_first(names)[1:], keep_constant=True, **dialect.options())
    names = _time_first(table.file_columns)
    if len(names) not in (3, 5):
        raise TableError(
            f"{path}: expected the columns time, i, j, or time, i, j, class of i, class of j. "
            f"Found {len(names)} columns: {', '.join(names[:8])}."
        )
    if names[0] in table.text:
        raise TableError(
            f"{path}: times must be numbers, such as seconds since any moment, but column {names[0]!r} is "
            f"{table.dropped[names[0]]}. Write times as numbers, or as dates such as 2026-01-31 12:30, which "
            "are read as days."
        )
    times = table.numbers(names[0])
    if names[0].lower() not in _TIMES and _ascends(table.text[names[-1]]) and not _ascends(times):
        raise TableError(
            f"{path}: the first column should hold the times, but {names[-1]!r} is in ascending order and {names[0]!r} "
            f"is not. Put the times first, or name their column 'time'. If {names[0]!r} has the times, sort the rows "
            "by it."
        )
    first, second = (as_names(table.text[name], dialect) for name in names[-2:])
    is_whole = np.isfinite(times) & (first != "") & (second != "")
    if not is_whole.any():
        raise TableError(f"{path}: no row has a time and both classes.")
    people = np.unique(np.stack([as_names(table.text[name], dialect) for name in names[1:3]]), return_inverse=True)[1]
    i, j = people.reshape(2, -1)
    is_double = in_both_directions(i[is_whole], j[is_whole], times[is_whole])
    is_used = is_whole & (i < j) if is_double else is_whole
    is_date = names[0] in table.dates and bool(times[is_whole].max() > 1)  # not times of a day
    try:
        windows = count_windows(times[is_used], first[is_used], second[is_used], width=width, start=start)
    except ValueError as error:
        if not is_date or width is None:
            raise
        minutes = f"a window of {width:g} days has {1440 * width:.4g} minutes"
        raise TableError(f"{path}: times are dates, counted in days, so that {minutes}. {error}") from error
    notes = notes_on_reading(table)
    if len(names) == 3:
        notes.append("There are no columns with the classes of the two sides: each name is a class of its own.")
    if not is_whole.all():
        notes.append(f"{int((~is_whole).sum())} of {len(times)} rows lack a time or a class and are left out.")
    if is_double:
        notes.append(DOUBLE.format("contact"))
    if is_date:
        notes.append(f"Times are in days: a window of {windows.width:g} days has {1440 * windows.width:.4g} minutes.")
    return replace(windows, notes=(*notes, *windows.notes), is_date=is_date)


def _time_first(names: Sequence[str]) -> list[str]:
    """The columns in their order, but the first with a usual name of times before the others."""
    time = next((name for name in names if name.lower() in _TIMES), None)
    return sorted(names, key=lambda name: name != time)


def _ascends(values: Any) -> bool:
    """Whether the values are numbers in ascending order, neither all equal nor missing."""
    try:
        steps = np.diff(np.asarray(values, np.float64))
    except ValueError:
        return False
    return bool(np.all(steps >= 0) and np.any(steps > 0))


def _windows(times: np.ndarray, begin: float, width: float) -> np.ndarray:
    """Window index of each time; a time that rounding has moved just below its window still belongs to it."""
    rounding = min(1e-9 + 4 * np.finfo(np.float64).eps * np.abs(times).max() / width, 1e-3)
    return np.floor((times - begin) / width + rounding)


def _step(times: np.ndarray) -> float:
    """The common step of times that are all multiples of it apart, and mostly one, such as a minute; 0 without one."""
    gaps = np.diff(np.unique(times))
    if not len(gaps):
        return 0.0
    multiples = gaps / gaps.min()
    is_grid = np.allclose(multiples, np.round(multiples), rtol=0, atol=1e-3) and np.mean(multiples < 1.5) > 0.5
    return float(gaps.min()) if is_grid else 0.0


def _round_width(begin: float, end: float, step: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that gives the usual number of windows, or the step."""
    least = max((end - begin) / _USUAL_WINDOWS, np.finfo(np.float64).tiny)
    power = 10.0 ** np.floor(np.log10(least))
    return max(step, float(max(k * power for k in (1.0, 2.0, 5.0) if k * power <= least * (1 + 1e-9))))


def _as_classes(side: Any) -> np.ndarray:
    try:
        return np.asarray(side).astype(str)
    except (TypeError, ValueError) as error:
        raise TypeError(f"count_windows: expected one class for each contact: {error}.") from error
