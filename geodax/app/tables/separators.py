"""What commas and points mean inside the numbers of a table."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from geodax.app.tables.columns import Cells
from geodax.app.tables.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.app.tables.number_forms import is_numeric, sign
from geodax.data.errors import TableError

WITH_COMMA = {"decimal comma", "decimal comma with groups"}
UNUSUAL = {*WITH_COMMA, "comma?", "comma groups"}

_OF_THE_FIT = "numbers of the table that was fitted have a decimal {!r}"


def signs(columns: Mapping[str, Cells], missing: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """Kinds of signs that the numbers in columns of mostly numbers have, with row, cell and column of the first."""
    seen: dict[str, tuple[int, str, str]] = {}
    holes = set(missing)
    for name, (distinct, codes, _) in columns.items():
        counts = np.bincount(codes, minlength=len(distinct))
        numbers = [k for k, cell in enumerate(distinct) if cell not in holes and is_numeric(cell)]
        present = sum(counts[k] for k, cell in enumerate(distinct) if cell not in holes)
        if 2 * counts[numbers].sum() > present:
            for k in numbers:
                kind = sign(distinct[k])
                if kind not in seen:
                    seen[kind] = (int(np.argmax(codes == k)), distinct[k], name)
    return seen


def decide_separators(
    path: Path,
    seen: Mapping[str, tuple[int, str, str]],
    lines: np.ndarray,
    delimiter: str,
    notes: list[str],
    *,
    others: str = "",
    earlier: Separators = NOTHING_SHOWN,
) -> tuple[Separators, Separators]:
    """Decide what commas inside numbers mean.

    Args:
        path: The file.
        seen: What its numbers show.
        lines: The line of each row.
        delimiter: The sign between cells.
        notes: Takes what was decided.
        others: How a caller leaves out one of the columns, if that is possible.
        earlier: What the table has shown to which this one belongs; it counts where this one shows nothing.

    Returns:
        The separators to read the table with, and those that it shows.

    Raises:
        TableError: If numbers may mean one thing or another.
    """

    def where(kind: str) -> str:
        row, cell, name = seen[kind]
        return f"{cell!r} (line {lines[row]}, column {name!r})"

    german = next((k for k in ("decimal comma", "decimal comma with groups") if k in seen), None)
    english = next((k for k in ("comma groups", "decimal point") if k in seen), None)
    if german and english:
        raise TableError(
            f"{path}: {where(german)} has a decimal comma, but {where(english)} has not: write all numbers "
            f"alike{f', or {others}' if others else ''}"
        )
    # cells between commas are seldom written by a program that has decimal commas
    are_groups_of_fit = earlier == Separators(",", ".") and delimiter != ","
    are_groups = "decimal comma with groups" in seen or are_groups_of_fit
    if german or (earlier.decimal == "," and not english and seen.keys() & {"comma?", "point?"}):
        if "point?" in seen and not are_groups:
            why = f"numbers have decimal commas, such as {where(german)}" if german else _OF_THE_FIT.format(",")
            raise TableError(
                f"{path}: {why}, so {where('point?')} may "
                "be a thousand or a fraction: say decimal=',' (--decimal ,) if its point "
                "parts thousands, or write a comma" + ("" if german else "; decimal='.' (--decimal .) if it is one")
            )
        unlike = f", unlike those of the fit: {_OF_THE_FIT.format('.')}" if earlier.decimal == "." else ""
        first = german or ("comma?" if "comma?" in seen else "")
        like = ", as in the fit" if first and not german else ""
        such = f", such as {where(first)}" if first else ""
        group = ""
        if "point?" in seen and "decimal comma with groups" not in seen:
            value = seen["point?"][1].replace(".", "")
            group = f"; {where('point?')} was read as {value}, as in the fit"
        notes.append(f"Numbers were read with a decimal comma{like}{such}{unlike}{group}.")
        shown = Separators(",", "." if "decimal comma with groups" in seen else None) if german else NOTHING_SHOWN
        return Separators(",", "."), shown
    if english and earlier.decimal == ",":
        notes.append(
            f"Numbers were read with a decimal point, such as {where(english)}, unlike those of the fit: "
            f"{_OF_THE_FIT.format(',')}."
        )
    is_thousand = english or delimiter == "," or earlier.decimal == "."
    if "comma groups" in seen or ("comma?" in seen and is_thousand):
        first = "comma groups" if "comma groups" in seen else "comma?"
        is_shown = first == "comma groups" or english or delimiter == ","
        why = "" if is_shown else f": {_OF_THE_FIT.format('.')}"
        notes.append(f"Commas in numbers were taken as thousands separators, such as in {where(first)}{why}.")
        return Separators(".", ","), Separators(".", ",") if is_shown else NOTHING_SHOWN
    if "comma?" in seen:
        raise TableError(
            f"{path}: {where('comma?')} may be a thousand or a fraction: say decimal=',' (--decimal ,) or "
            "thousands=',' (--thousands ,)"
        )
    return POINT, POINT if english else NOTHING_SHOWN
