"""From rows of text to columns of numbers: the signs of decimals and thousands, and the type of every column."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.data.errors import TableError, short
from geodax.data.number_forms import is_numeric, sign
from geodax.data.rows import Row

READ_AS_TEXT = "read as text"  # the reason of a column that the caller wants so
_LONGEST_TEXT = 1000  # signs of a cell of text that are kept: for labels, and all cells take the room of the longest


class Column(NamedTuple):
    """A column as read: numbers, or text with the reason why it is not numbers."""

    name: str
    numbers: np.ndarray | None
    text: tuple[str, ...] = ()
    reason: str = ""
    is_mistake: bool = False  # mostly numbers: the text cells are probably slips
    whole: np.ndarray | None = None  # of an array of whole numbers: these themselves, of which floats lose digits

    def as_text(self) -> "Column":
        """The column as text: whole numbers without a point, and nothing where a number is missing."""
        if self.numbers is None:
            return self._replace(reason=READ_AS_TEXT)
        cells = (self.numbers if self.whole is None else self.whole).tolist()
        text = tuple("" if x != x else str(int(x)) if x == int(x) else repr(x) for x in cells)
        return Column(self.name, None, text, READ_AS_TEXT)


def decide_separators(
    path: Path,
    names: list[str],
    rows: list[Row],
    missing: set[str],
    columns: Sequence[str] | None,
    delimiter: str,
    notes: list[str],
) -> tuple[str, str | None]:
    """Decide what commas inside numbers mean, or refuse to guess."""
    if not any("," in cell or cell.count(".") > 1 for row in rows for cell in row.cells):
        return ".", None
    seen: dict[str, tuple[int, str, str]] = {}
    for j, name in enumerate(names):
        if columns is not None and name not in columns:
            continue
        cells = [(row.line, row.cells[j]) for row in rows if row.cells[j] not in missing]
        numbers = [(line, cell) for line, cell in cells if is_numeric(cell)]
        if 2 * len(numbers) > len(cells):
            for line, cell in numbers:
                seen.setdefault(sign(cell), (line, cell, name))

    def where(kind: str) -> str:
        line, cell, name = seen[kind]
        return f"{cell!r} (line {line}, column {name!r})"

    german = next((k for k in ("decimal comma", "decimal comma with groups") if k in seen), None)
    english = next((k for k in ("comma groups", "decimal point") if k in seen), None)
    if german and english:
        raise TableError(
            f"{path}: {where(german)} has a decimal comma, but {where(english)} has not: write all numbers "
            "alike, or name the columns to read in columns (--columns)"
        )
    if german:
        if "point?" in seen and "decimal comma with groups" not in seen:
            raise TableError(
                f"{path}: numbers have decimal commas, such as {where(german)}, so {where('point?')} may "
                "be a thousand or a fraction: say decimal=',' (--decimal ,) if its point "
                "parts thousands, or write a comma"
            )
        notes.append(f"Numbers were read with a decimal comma, such as {where(german)}.")
        return ",", "."
    if "comma groups" in seen or ("comma?" in seen and (english or delimiter == ",")):
        notes.append("Commas in numbers were taken as thousands separators.")
        return ".", ","
    if "comma?" in seen:
        raise TableError(
            f"{path}: {where('comma?')} may be a thousand or a fraction: say decimal=',' (--decimal ,) or "
            "thousands=',' (--thousands ,)"
        )
    return ".", None


def shortened(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Cells of text as they are kept: long ones are cut."""
    return tuple(cell if len(cell) <= _LONGEST_TEXT else cell[: _LONGEST_TEXT - 3] + "..." for cell in cells)


def read_column(
    path: Path,
    name: str,
    cells: tuple[str, ...],
    lines: list[int],
    missing: set[str],
    parse: Callable[[str], float | None],
    is_wanted: bool,
) -> Column:
    """Turn the cells of one column into numbers, or say why they are text."""
    values = np.full(len(cells), np.nan)
    odd: list[tuple[int, str]] = []
    present = 0
    for i, cell in enumerate(cells):
        if cell in missing:
            continue
        present += 1
        number = parse(cell)
        if number is None:
            odd.append((lines[i], cell))
        else:
            values[i] = number
    infinite = np.flatnonzero(np.isinf(values))
    if not odd and len(infinite):
        i = int(infinite[0])
        reason = f"line {lines[i]}, column {name!r}: expected a finite number, found {short(cells[i])}"
        if is_wanted:
            raise TableError(f"{path}, {reason}. Correct it, or list it in missing (--missing)")
        return Column(name, None, cells, reason)
    if not odd:
        return Column(name, values)
    cells = shortened(cells)
    line, cell = odd[0]
    mistake = 2 * len(odd) < present
    reason = f"text, such as {short(cell)} on line {line}"
    if mistake:
        others = f" ({len(odd)} such cells of {present})" if len(odd) > 1 else f" (the others of {present} are numbers)"
        reason = f"line {line}, column {name!r}: expected a number, found {short(cell)}{others}"
    return Column(name, None, cells, reason, mistake)
