"""What the numbers of a column are: no quantities, but codes, groups or dates; or quantities with a long tail."""

import re
from collections.abc import Iterable

import numpy as np
from scipy import stats

from geodax.app.tables.assembly import counts_rows

_SKEWED = 1.0  # skewness
_MANY_GROUPS = 10
_FEW = 0.1  # of the groups may be out of order
_CODE = re.compile(r"(.*[\W_])?(?i:ids?|codes?|zip|zipcode|postcode|plz|fips|sku|isbn|phone|number|no|nr)|.*[a-z]I[dD]")


def codes(names: Iterable[str], values: np.ndarray) -> dict[str, tuple[str, str]]:
    """Find the numeric columns, of cells rows x columns, whose integers look like codes or dates.

    Returns what they look like, "dates", "groups" of adjacent rows or "codes", and a description.
    """
    found = {}
    for place, (name, cells) in enumerate(zip(names, values.T, strict=True)):
        x = cells[~np.isnan(cells)]
        if not len(x) or np.any(x != np.round(x)):
            continue
        month, day = x // 100 % 100, x % 100
        if np.all((x > 1e7) & (x < 1e8) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)):
            description = f"dates; write {x[0]:.0f} as {x[0] // 1e4:.0f}-{month[0]:02.0f}-{day[0]:02.0f}"
            found[name] = ("dates", description)
        elif size := _rows_of_each(cells, np.delete(values, place, axis=1)):
            found[name] = ("groups", f"numbers of groups of {size} adjacent rows")
        elif _CODE.fullmatch(name) and not counts_rows(cells):  # which has a note of its own
            found[name] = ("codes", "codes")
    return found


def _rows_of_each(x: np.ndarray, others: np.ndarray) -> str:
    """Return the sizes of the groups if the cells x look like numbers of groups of adjacent rows, else nothing.

    Numbers of groups of one size are consecutive, or many and ascending in uneven steps: even steps are those of a
    grid. Groups of several sizes are many, and one of the other columns is constant in each of them but does not rise
    or fall from group to group: none does so with a quantity by which the table is sorted.
    """
    first = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
    sizes, steps = np.diff(np.append(first, len(x))), np.diff(x[first])
    are_many = len(steps) >= _MANY_GROUPS
    if len(sizes) < 3 or 2 * len(sizes) > len(x):
        return ""
    if np.all(sizes[:-1] == sizes[0]) and sizes[-1] <= sizes[0]:
        is_uneven = are_many and bool(np.all(steps > 0)) and np.ptp(steps) > 0
        return str(sizes[0]) if is_uneven or np.all(steps == 1) else ""
    if not are_many or len(sizes) > (1 + _FEW) * len(np.unique(x)) or np.mean(steps < 0) > _FEW:
        return ""
    are_constant, changes = np.all(others == np.repeat(others[first], sizes, axis=0), axis=0), np.diff(others[first].T)
    is_told = np.any(are_constant & (np.mean(changes < 0, axis=1) > _FEW) & (np.mean(changes > 0, axis=1) > _FEW))
    return f"{sizes.min()} to {sizes.max()}" if is_told else ""


def better_likelihood(y: np.ndarray) -> str:
    """The likelihood for numbers with a long right tail, or for many counts near zero; empty for other numbers."""
    if np.ptp(y) == 0 or y.min() < 0 or (skewness := stats.skew(y)) < _SKEWED:
        return ""
    if y.min() > 0:
        return "log-normal" if abs(stats.skew(np.log(y))) < 0.5 * skewness else ""
    return "negative-binomial" if np.all(y == np.round(y)) else ""
