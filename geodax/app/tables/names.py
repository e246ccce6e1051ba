"""Cells that name things: users, items, nodes, classes and groups."""

import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from geodax.app.tables.dialect import FOUND, MISSING, Dialect
from geodax.app.tables.number_forms import is_numeric

_WHOLE_WITH_POINT = re.compile(r"(0|-?[1-9][0-9]*)\.(0{0,2}|0{4,})")  # three zeros may be a thousand
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,999}")


def as_names(cells: Iterable[str], dialect: Dialect = FOUND, known: Collection[str] = ()) -> np.ndarray:
    """Cells as names, by a rule that looks at each cell alone, so that it is the same in every file.

    A name is what its cell holds, as it is written: ``007`` is not ``7``, ``1e3`` is not ``1000``, and a number keeps
    all its digits, however long it is. There is one exception: a whole number with a point and nothing but zeros after
    it (``17.``, ``17.0``, ``17.00``), as programs write it that turn a column with missing cells into floating-point
    numbers, is that number; but not ``17.000``, which may be seventeen thousand.

    Args:
        cells: The cells.
        dialect: What a missing cell may hold. A point or a hyphen alone is missing where the other cells are numbers.
        known: The names of an earlier table to which this one belongs, if there is one; then a point or a hyphen alone
            is missing unless it is one of them.

    Returns:
        The names; an empty one where a cell is missing.
    """
    stripped, blank = [cell.strip() for cell in cells], set(dialect.blank)
    of_numbers = blank.union(set(MISSING).difference(known))
    others = [cell for cell in stripped if cell not in of_numbers]
    if known or (others and all(map(is_numeric, others))):
        blank = of_numbers
    return np.array(["" if blank & {cell, _name(cell)} else _name(cell) for cell in stripped], str)


def in_order(names: Sequence[str]) -> list[int]:
    """Places of names in the order in which a reader looks for them: whole numbers by their size, then the others.

    Args:
        names: The names.

    Returns:
        The place of the first one, of the second one and so on.
    """

    def rank(place: int) -> tuple[bool, int, str]:
        name = str(names[place])
        return (False, int(name), "") if _WHOLE.fullmatch(name) else (True, 0, name)

    return sorted(range(len(names)), key=rank)


def apart(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Names of columns that are written beside others.

    Args:
        names: The names.
        others: Those of the others.

    Returns:
        The names; one that is there already gets a number, as in the reading of a table.
    """
    taken, found = set(others), []
    for name in names:
        new, k = name, 2
        while new in taken:
            new, k = f"{name} ({k})", k + 1
        taken.add(new)
        found.append(new)
    return found


def in_one_cell(names: Iterable[str]) -> str:
    """Names in one cell, parted by a semicolon and a blank.

    Args:
        names: The names.

    Returns:
        The names; one with a semicolon or a quotation mark stands in quotation marks, those in it doubled, as in a line
        of a CSV file.
    """
    quoted = (f'"{name.replace(chr(34), 2 * chr(34))}"' if {";", '"'} & set(name) else name for name in names)
    return "; ".join(quoted)


def _name(cell: str) -> str:
    whole = _WHOLE_WITH_POINT.fullmatch(cell)
    return whole[1] if whole else cell
