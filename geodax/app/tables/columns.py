"""From rows of text to columns of numbers: the signs of decimals and thousands, and the type of every column."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.app.tables.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.app.tables.number_forms import is_numeric, sign
from geodax.app.tables.rows import Row
from geodax.data.errors import TableError, short

READ_AS_TEXT = "read as text"  # the reason of a column that the caller wants so
_OF_THE_FIT = "numbers of the table that was fitted have a decimal {!r}"
_LONGEST_TEXT = 1000  # signs of a cell of text that are kept: for labels, and all cells take the room of the longest


class Column(NamedTuple):
    """A column as read: numbers, or text with the reason why it is not numbers."""

    name: str
    numbers: np.ndarray | None
    text: tuple[str, ...] = ()
    reason: str = ""
    is_mistake: bool = False  # mostly numbers: the text cells are probably slips, or one is infinite
    whole: np.ndarray | None = None  # of an array of whole numbers: these themselves, of which floats lose digits

    def as_text(self) -> "Column":
        """The column as text: whole numbers without a point, and nothing where a number is missing."""
        if self.numbers is None:
            return self._replace(reason=READ_AS_TEXT)
        cells = (self.numbers if self.whole is None else self.whole).tolist()
        is_missing = np.isnan(self.numbers).tolist()
        text = tuple(
            "" if m else str(int(x)) if x == int(x) else repr(x) for m, x in zip(is_missing, cells, strict=True)
        )
        return Column(self.name, None, text, READ_AS_TEXT)


def decide_separators(
    path: Path,
    names: Sequence[str],
    rows: list[Row],
    missing: set[str],
    delimiter: str,
    notes: list[str],
    *,
    needed: Collection[str],
    others: str = "",
    earlier: Separators = NOTHING_SHOWN,
) -> tuple[Separators, Separators]:
    """Decide what commas inside numbers mean, or refuse to guess.

    Args:
        path: The file.
        names: Its columns.
        rows: Its rows.
        missing: What a missing cell may hold.
        delimiter: The sign between cells.
        notes: Takes what was decided.
        needed: The columns whose numbers are looked at.
        others: How a caller leaves out one of these columns, if that is possible.
        earlier: What the table has shown to which this one belongs; it counts where this one shows nothing.

    Returns:
        The separators to read the table with, and those that it shows.

    Raises:
        TableError: If numbers may mean one thing or another.
    """
    counting = [j for j, name in enumerate(names) if name in needed]
    is_odd = any("," in cell or cell.count(".") > 1 for row in rows for cell in row.cells)
    if not is_odd and earlier.decimal != ",":
        with_point = (j for j in counting if any("." in row.cells[j] for row in rows))
        shows_point = any(sign(cell) == "decimal point" for j in with_point for _, cell in _numbers(rows, j, missing))
        return POINT, POINT if shows_point else NOTHING_SHOWN
    seen: dict[str, tuple[int, str, str]] = {}
    for j in counting:
        for line, cell in _numbers(rows, j, missing):
            seen.setdefault(sign(cell), (line, cell, names[j]))

    def where(kind: str) -> str:
        line, cell, name = seen[kind]
        return f"{cell!r} (line {line}, column {name!r})"

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


def _numbers(rows: list[Row], j: int, missing: set[str]) -> list[tuple[int, str]]:
    """Lines and cells of the numbers of a column that holds mostly numbers; none of another one."""
    cells = [(row.line, row.cells[j]) for row in rows if row.cells[j] not in missing]
    numbers = [(line, cell) for line, cell in cells if is_numeric(cell)]
    return numbers if 2 * len(numbers) > len(cells) else []


def shortened(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Cells of text as they are kept: long ones are cut."""
    return tuple(cell if len(cell) <= _LONGEST_TEXT else cell[: _LONGEST_TEXT - 3] + "..." for cell in cells)


def read_column(
    name: str,
    cells: tuple[str, ...],
    lines: Sequence[int],
    missing: set[str],
    parse: Callable[[str], float | None],
    *,
    unit: str = "line",
    imposed: str = "",
) -> Column:
    """Turn the cells of one column into numbers, or say why they are text.

    Args:
        name: The column.
        cells: What it holds.
        lines: Where each cell is.
        missing: What a missing cell may hold.
        parse: From a cell to a number, or None.
        unit: What is counted in ``lines``.
        imposed: What to say of a cell that is a number with other separators than those that were said.

    Returns:
        The column.
    """
    values = np.full(len(cells), np.nan)
    holes = {number for number in map(parse, missing) if number is not None}
    odd: list[tuple[int, str]] = []
    present = 0
    for i, cell in enumerate(cells):
        if cell in missing:
            continue
        number = parse(cell)
        if number in holes:  # a sign of missing cells that is a number, in another form
            continue
        present += 1
        if number is None:
            odd.append((lines[i], cell))
        else:
            values[i] = number
    infinite = np.flatnonzero(np.isinf(values))
    if not odd and len(infinite):
        i = int(infinite[0])
        reason = f"{unit} {lines[i]}, column {name!r}: expected a finite number, found {short(cells[i])}"
        return Column(name, None, shortened(cells), reason, True)
    if not odd:
        return Column(name, values)
    cells = shortened(cells)
    line, cell = next((pair for pair in odd if imposed and is_numeric(pair[1])), odd[0])
    mistake = 2 * len(odd) < present
    reason = f"text, such as {short(cell)} on {unit} {line}"
    if mistake:
        others = f" ({len(odd)} such cells of {present})" if len(odd) > 1 else f" (the others of {present} are numbers)"
        reason = f"{unit} {line}, column {name!r}: expected a number, found {short(cell)}{others}"
    hint = f"; {imposed}" if imposed and is_numeric(cell) else ""
    return Column(name, None, cells, reason + hint, mistake)
