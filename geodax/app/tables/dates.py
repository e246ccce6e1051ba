"""Dates and times in text cells, as days."""

import itertools
import re
from collections.abc import Sequence

import numpy as np

from geodax.data.errors import short

DATES = "dates as days since 1970-01-01"
"""How dates were converted."""
TIMES = "times as fractions of a day"
"""How times were converted."""
_ORDERS = {"%d": f"{DATES}, day first", "%m": f"{DATES}, month first"}
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_QUARTER = re.compile(r"([0-9]{4})[ -]?[Qq]([1-4])|[Qq]([1-4])[ /-]?([0-9]{4})")
_LIKE = re.compile(
    r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{2,4}(?![0-9]).*|.*[^\W\d_]{3}.*[0-9]{2,4}.*|[0-9]{1,2}:[0-9]{2}\b.*"
    rf"|[0-9]{{4}}[/-][0-9]{{2}}|{_QUARTER.pattern}"
)
_DAYS = (
    *("%Y/%m/%d", "%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%m-%d-%Y", "%d-%m-%Y"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%b-%d-%Y"),
)
_MONTHS = ("%Y-%m", "%Y/%m", "%b %Y", "%B %Y", "%b-%Y", "%b-%y")
_CLOCK = ("%H:%M", "%H:%M:%S", "%I:%M %p")
_FORMATS = (
    *((form, TIMES) for form in _CLOCK),
    *(
        (day + clock, _ORDERS[day[:2]] if re.fullmatch("%[dm][/-]%[dm].*", day) else DATES)
        for day, clock in itertools.product(_DAYS, ("", *(f" {form}" for form in _CLOCK)))
    ),
)
_TRIED = 50  # cells


def are_dates(form: str) -> bool:
    """Return whether numbers converted from text in this way are dates or times."""
    return form.startswith((DATES, TIMES))


def dated(cells: Sequence[str], earlier: str = "") -> tuple[np.ndarray | None, str] | None:
    """Convert dates or times of one format to numbers, and say how they were read; return None for other cells.

    If day and month cannot be told apart, their order is that of ``earlier``, how an earlier table was read; otherwise
    the reason is returned with None instead of the numbers.
    """
    if not _are_mostly_dates(cells[:_TRIED]) or all(map(_is_season, cells)):
        return None
    cells = [_QUARTER.sub(_first_month, cell) for cell in cells]
    if all(map(_ISO.fullmatch, cells)):
        times = _parsed(cells, "ISO8601")
        return None if times is None else (days(times), DATES)
    found = []
    for form, kind in (*_FORMATS, *((form, DATES) for form in _MONTHS)):
        times = None if _parsed(cells[:_TRIED], form) is None else _parsed(cells, form)
        if times is not None:
            found.append((days(times, since=times.normalize() if kind == TIMES else None), kind))
    found = [each for each in found if each[1] == earlier] or found
    if any(not np.array_equal(found[0][0], values) for values, _ in found[1:]):
        return None, f"dates whose day and month cannot be told apart, such as {short(cells[0])}: write 2024-12-31"
    return found[0] if found else None


def not_dated(cells: Sequence[str]) -> np.ndarray | None:
    """Find the cells that are no days or times where most are, of one format; months and quarters may be codes.

    Returns None if most of the first cells have no such format.
    """
    head = cells[:_TRIED]
    if not _are_mostly_dates(head):
        return None
    odd = np.array([_ISO.fullmatch(cell) is None for cell in cells]) | np.asarray(_times(cells, "ISO8601").isna())
    counts = {form: int(np.sum(_times(head, form).isna())) for form, _ in _FORMATS}
    best = min(counts, key=counts.__getitem__)
    if counts[best] < odd[: len(head)].sum():
        odd = np.asarray(_times(cells, best).isna())
    return odd if 2 * odd[: len(head)].sum() < len(head) else None


def days(times, since=None):
    """Convert dates and times to days since 1970-01-01, or since other times."""
    import pandas as pd

    since = pd.Timestamp(0, tz=times.tz) if since is None else since
    return np.asarray((times - since) / pd.Timedelta(days=1), float)


def _are_mostly_dates(head: Sequence[str]) -> bool:
    return 2 * sum(_LIKE.fullmatch(cell) is not None for cell in head) > len(head)


def _is_season(cell: str) -> bool:
    """Whether a cell is two years in a row, such as 2009-10, which is no month."""
    years = re.fullmatch("([0-9]{4})[/-]([0-9]{2})", cell)
    return years is not None and (int(years[1]) + 1) % 100 == int(years[2])


def _first_month(quarter: re.Match) -> str:
    year, number = quarter[1] or quarter[4], int(quarter[2] or quarter[3])
    return f"{year}-{3 * number - 2:02d}"


def _times(cells: Sequence[str], form: str):
    import pandas as pd

    return pd.to_datetime(list(cells), format=form, utc=True, errors="coerce")


def _parsed(cells: Sequence[str], form: str):
    times = _times(cells, form)
    return None if times.hasnans else times
