"""Cells that hold names: users, items, nodes, classes and groups."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from geodax.app.tables.dialect import FOUND, MISSING, Dialect
from geodax.app.tables.number_forms import is_numeric
from geodax.data.errors import TableError, listed, nearest

_WHOLE_WITH_POINT = re.compile(r"(0|-?[1-9][0-9]*)\.(0{0,2}|0{4,})")  # three zeros may be a thousand
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,999}")


def as_names(cells: Iterable[str], dialect: Dialect = FOUND, known: Collection[str] = ()) -> np.ndarray:
    """Convert cells to names, by a rule that treats each cell alone, so that it gives the same names in every file.

    A name is the cell's text: ``007`` is not ``7``, ``1e3`` is not ``1000``, and a number keeps all its digits. There
    is one exception: an integer followed by a point and only zeros (``17.``, ``17.0``, ``17.00``) is that integer,
    because programs that convert a column with missing cells to floats write it so. ``17.000`` is not, since it may
    mean seventeen thousand. Accents that are characters of their own, as macOS writes them, are combined with their
    letters (NFC).

    A missing cell, with a value that the dialect gives, has an empty name. So has a lone point or hyphen if the other
    cells are numbers; or, if the names of an earlier table are ``known``, unless it is one of these.
    """
    stripped, blank = [cell.strip() for cell in cells], set(dialect.blank)
    of_numbers = blank.union(set(MISSING).difference(known))
    others = [cell for cell in stripped if cell not in of_numbers]
    if known or (others and all(map(is_numeric, others))):
        blank = of_numbers
    earlier = {unicodedata.normalize("NFC", name): name for name in known}  # an earlier version kept accents apart
    names = [_name(cell) for cell in stripped]
    return np.array(["" if blank & {c, n} else earlier.get(n, n) for c, n in zip(stripped, names, strict=True)], str)


def in_order(names: Sequence[str]) -> list[int]:
    """Return the indices that sort names: integers by value, then the others alphabetically."""

    def rank(place: int) -> tuple[bool, int, str]:
        name = str(names[place])
        return (False, int(name), "") if _WHOLE.fullmatch(name) else (True, 0, name)

    return sorted(range(len(names)), key=rank)


def numbered(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct names in their order, as :func:`in_order`, and the index of each name among them."""
    distinct, index = np.unique(names, return_inverse=True)
    order = in_order(distinct.tolist())
    return distinct[order], np.argsort(order)[index]


def apart(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Make column names unique beside other columns: a number is appended to names that are taken, as in a table."""
    taken, found = set(others), []
    for name in names:
        new, k = name, 2
        while new in taken:
            new, k = f"{name} ({k})", k + 1
        taken.add(new)
        found.append(new)
    return found


def are_nameless(names: Sequence[str]) -> bool:
    """Whether columns are named by their position, because the table has no header."""
    return all(re.fullmatch(r"column [0-9]+", name) for name in names)


def no_column(path: Path, name: str, names: Sequence[str], use: str = "Its columns are") -> TableError:
    """Make an error that a table has no column of this name, but others, introduced by ``use``."""
    header = " No header line was found; if the first line holds names, use --header True." * are_nameless(names)
    return TableError(f"{path} has no column {name!r}{nearest(name, names)}. {use} {listed(names)}.{header}")


def in_one_cell(names: Iterable[str]) -> str:
    """Join names by a semicolon and a space; those with a semicolon or a quotation mark are quoted as in CSV."""
    quoted = (f'"{name.replace(chr(34), 2 * chr(34))}"' if {";", '"'} & set(name) else name for name in names)
    return "; ".join(quoted)


def _name(cell: str) -> str:
    whole = _WHOLE_WITH_POINT.fullmatch(cell)
    return whole[1] if whole else unicodedata.normalize("NFC", cell)
