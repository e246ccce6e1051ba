"""Columns of integers that are no quantities: codes, numbers of groups, dates without separators."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from geodax.app.tables.assembly import counts_rows

_MANY_GROUPS = 10
_CODE = re.compile(r"(.*[\W_])?(?i:ids?|codes?|zip|zipcode|postcode|plz|fips|sku|isbn|phone|number|no|nr)|.*[a-z]I[dD]")


class Codes(NamedTuple):
    """A guess at what the integers of a column are.

    Attributes:
        kind: "dates", "groups" of adjacent rows, or "codes".
        description: A description for messages.
    """

    kind: str
    description: str


def codes(names: Iterable[str], values: np.ndarray) -> dict[str, Codes]:
    """Find the numeric columns, of cells rows x columns, whose integers look like codes or dates."""
    found = {}
    for name, cells in zip(names, values.T, strict=True):
        x = cells[~np.isnan(cells)]
        if not len(x) or np.any(x != np.round(x)):
            continue
        month, day = x // 100 % 100, x % 100
        if np.all((x > 1e7) & (x < 1e8) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)):
            description = f"dates; write {x[0]:.0f} as {x[0] // 1e4:.0f}-{month[0]:02.0f}-{day[0]:02.0f}"
            found[name] = Codes("dates", description)
        elif (size := _rows_of_each(cells)) > 1:
            found[name] = Codes("groups", f"numbers of groups of {size} adjacent rows")
        elif _CODE.fullmatch(name) and not counts_rows(cells):  # which has a note of its own
            found[name] = Codes("codes", "codes")
    return found


def _rows_of_each(x: np.ndarray) -> int:
    """Return k if the cells look like numbers of groups of k adjacent rows, else 0.

    The numbers are consecutive, or many and ascending in uneven steps: even steps are those of a grid.
    """
    size = int(np.argmax(x != x[0]))
    if not (0 < 2 * size < len(x) and np.array_equal(x, np.repeat(x[::size], size)[: len(x)])):
        return 0
    steps = np.diff(x[::size])
    is_uneven = len(steps) >= _MANY_GROUPS and bool(np.all(steps > 0)) and np.ptp(steps) > 0
    return size if is_uneven or np.all(steps == 1) else 0
