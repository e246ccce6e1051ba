"""Decides what commas and points mean inside the numbers of a table."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from geodax.app.tables.columns import Cells
from geodax.app.tables.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.app.tables.number_forms import CURRENCIES, is_numeric, sign
from geodax.data.errors import TableError

WITH_COMMA = {"decimal comma", "decimal comma with groups"}
UNUSUAL = {*WITH_COMMA, "comma?", "comma groups"}

_OF_THE_FIT = "numbers of the fitted table have a decimal {!r}"


def signs(columns: Mapping[str, Cells], missing: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """Classify the numbers in mostly numeric columns; each class has the row, cell and column of its first number."""
    seen: dict[str, tuple[int, str, str]] = {}
    holes = set(missing)
    for name, (distinct, codes, unit) in columns.items():
        counts = np.bincount(codes, minlength=len(distinct))
        numbers = [k for k, cell in enumerate(distinct) if cell not in holes and is_numeric(cell)]
        present = sum(counts[k] for k, cell in enumerate(distinct) if cell not in holes)
        if 2 * counts[numbers].sum() > present:
            for k in numbers:
                kind = sign(distinct[k])
                if unit in CURRENCIES:  # amounts of money have no three decimals
                    kind = {"point?": "decimal comma with groups", "comma?": "comma groups"}.get(kind, kind)
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
    """Decide what commas and points inside numbers mean.

    Returns the separators to read the table with, and those that it shows. The classes of the numbers that were
    ``seen`` are those of :func:`signs`. ``others`` says in messages how a caller can leave out a column; separators of
    an ``earlier`` table that this one belongs to count if this one shows none. Raises TableError if numbers are
    ambiguous.
    """

    def where(kind: str) -> str:
        row, cell, name = seen[kind]
        return f"{cell!r} (line {lines[row]}, column {name!r})"

    german = next((k for k in ("decimal comma", "decimal comma with groups") if k in seen), None)
    english = next((k for k in ("comma groups", "decimal point") if k in seen), None)
    if german and english:
        raise TableError(
            f"{path}: {where(german)} has a decimal comma, but {where(english)} has not. Write all numbers the same "
            f"way{f', or {others}' if others else ''}"
        )
    # programs with decimal commas rarely separate cells by commas
    are_groups_of_fit = earlier == Separators(",", ".") and delimiter != ","
    are_groups = "decimal comma with groups" in seen or are_groups_of_fit
    if german or (earlier.decimal == "," and not english and seen.keys() & {"comma?", "point?"}):
        if "point?" in seen and not are_groups:
            why = f"numbers have decimal commas, such as {where(german)}" if german else _OF_THE_FIT.format(",")
            raise TableError(
                f"{path}: {why}, so the point in {where('point?')} is ambiguous. Use --decimal , if it "
                "separates thousands"
                + (", or write a comma" if german else ", or --decimal . if it is a decimal point")
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
        notes.append(f"Commas in numbers were read as thousands separators, such as in {where(first)}{why}.")
        return Separators(".", ","), Separators(".", ",") if is_shown else NOTHING_SHOWN
    if "comma?" in seen:
        raise TableError(f"{path}: the comma in {where('comma?')} is ambiguous. Use --decimal , or --thousands ,")
    return POINT, POINT if english else NOTHING_SHOWN
