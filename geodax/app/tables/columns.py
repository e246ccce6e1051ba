"""A column of cells: numbers if all cells are numbers in a known form, text otherwise."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from geodax.app.tables.dates import not_dated
from geodax.app.tables.number_forms import coded, is_numeric, near_numbers, several_units, without_unit
from geodax.data.errors import short

WITHOUT = "without its "  # the form of numbers with a unit
SEVERAL_UNITS = "numbers with different units"
READ_AS_TEXT = "read as text"  # the reason if the caller requested text
_LONGEST_TEXT = 1000  # characters kept of a text cell: all cells take the space of the longest


class Column(NamedTuple):
    """A column: numbers, or text with the reason why it is not numeric; both if text of a typed file was converted."""

    name: str
    numbers: np.ndarray | None
    text: tuple[str, ...] = ()
    reason: str = ""
    is_mistake: bool = False  # mostly numbers: the text cells are probably typos, or one is infinite
    whole: np.ndarray | None = None  # the integers of an integer array, without rounding to floats
    form: str = ""  # how other forms were converted to numbers

    def as_text(self) -> "Column":
        """Convert the column to text: integers without a point, missing numbers as empty cells."""
        if self.numbers is None or self.text:
            return self._replace(numbers=None, reason=READ_AS_TEXT)
        cells = (self.numbers if self.whole is None else self.whole).tolist()
        is_missing = np.isnan(self.numbers).tolist()
        text = tuple(
            "" if m else str(int(x)) if x == int(x) else repr(x) for m, x in zip(is_missing, cells, strict=True)
        )
        return Column(self.name, None, text, READ_AS_TEXT)


def numeric_column(name: str, values: np.ndarray, whole: np.ndarray | None) -> Column:
    """Make a column of numbers of a typed file, or of text if one is infinite."""
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        reason = f"row {row + 1}, column {name!r}: expected a finite number, found {values[row]}"
        return Column(name, None, tuple(map(str, values.tolist())), reason, True)
    return Column(name, values, whole=whole)


class Cells(NamedTuple):
    """The cells of a text column: distinct cells, the index of each cell among them, and the unit that was removed."""

    distinct: list[str]
    codes: np.ndarray
    unit: str = ""

    def as_text(self) -> tuple[str, ...]:
        """Return all cells, with long ones cut."""
        kept = [cell if len(cell) <= _LONGEST_TEXT else cell[: _LONGEST_TEXT - 3] + "..." for cell in self.distinct]
        return tuple(kept[code] for code in self.codes.tolist())

    def without_unit(self, missing: Iterable[str]) -> "Cells":
        """Remove the unit or currency sign if all present cells with digits have the same one, and are most."""
        holes, counts = set(missing), np.bincount(self.codes, minlength=len(self.distinct))
        present = [cell for cell in self.distinct if cell not in holes]
        digits = [cell for cell in present if re.search(r"[0-9]", cell)]
        number = dict(zip(self.distinct, counts.tolist(), strict=True))
        are_most = 2 * sum(number[cell] for cell in digits) > sum(number[cell] for cell in present)
        numbers, unit = (are_most and without_unit(digits)) or ((), "")
        new = dict(zip(digits, numbers, strict=False))
        return Cells([new.get(cell, cell) for cell in self.distinct], self.codes, unit) if unit else self


def as_cells(cells: Iterable[str]) -> Cells:
    """Make the cells of a text column, stripped and with uniform line ends."""
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells], np.int64)
    return Cells([cell.strip().replace("\r\n", "\n").replace("\r", "\n") for cell in places], codes)


def read_column(
    name: str,
    cells: Cells,
    lines: Any,
    missing: Iterable[str],
    number: Callable[[str], float | None],
    *,
    unit: str = "line",
    imposed: str = "",
    earlier: str = "",
) -> Column:
    """Convert the cells of one column to numbers, or give the reason why they are text.

    ``number`` converts a cell to a number, or to None; ``unit`` is what ``lines`` counts; ``imposed`` is advice for a
    number with other separators than those given; ``earlier`` is how the column of an earlier table was converted.
    """
    distinct, codes, removed = cells
    missing, holes = set(missing), set(map(number, missing)) - {None}
    expected = "a number"
    values, is_odd, is_present = np.full(len(distinct), np.nan), *np.zeros((2, len(distinct)), bool)
    for k, cell in enumerate(distinct):
        value = None if cell in missing else number(cell)
        if cell not in missing and value not in holes:
            is_present[k], is_odd[k] = True, value is None
            values[k] = np.nan if value is None else value
    if is_odd.any():
        present = np.flatnonzero(is_present)
        code = coded([distinct[k] for k in present], earlier)
        if code and code[0] is None:
            return Column(name, None, cells.as_text(), code[1])
        if code:
            values[present] = code[0]
            return Column(name, values[codes], form=code[1])
        odd_dates = not_dated([distinct[k] for k in present])
        if odd_dates is not None:
            is_odd[present] = odd_dates
            expected = f"a date or time like {short(distinct[present[np.argmin(odd_dates)]])}"
    infinite = np.flatnonzero(np.isinf(values[codes]))
    odd = np.flatnonzero(is_odd[codes])
    if not len(odd) and len(infinite):
        i = int(infinite[0])
        reason = f"{unit} {lines[i]}, column {name!r}: expected a finite number, found {short(distinct[int(codes[i])])}"
        return Column(name, None, cells.as_text(), reason, True)
    if not len(odd):
        return Column(name, values[codes], form=WITHOUT + removed if removed else "")
    wrong = [k for k in np.flatnonzero(is_odd) if imposed and is_numeric(distinct[k])]
    i = int(np.argmax(codes == wrong[0])) if wrong else int(odd[0])
    cell, num_present = distinct[int(codes[i])], int(is_present[codes].sum())
    near = np.zeros(len(distinct), bool)
    near[is_present] = near_numbers([distinct[k] for k in np.flatnonzero(is_present)])
    different = several_units([distinct[k] for k in np.flatnonzero(is_present)])
    if different and not near[is_odd].any() and not wrong:
        return Column(name, None, cells.as_text(), f"{SEVERAL_UNITS}, {different}: write all in one")
    mistake = 2 * int((is_odd & ~near)[codes].sum()) < num_present
    reason = f"text, such as {short(cell)} on {unit} {lines[i]}"
    if mistake:
        others = f" ({len(odd)} such cell{'s' * (len(odd) > 1)} of {num_present})"
        reason = f"{unit} {lines[i]}, column {name!r}: expected {expected}, found {short(cell)}{others}"
        if not is_odd[codes[1:-2]].any():
            reason += ". If the line is a second header, a total or a note, remove it"
        if near[codes[i]]:
            reason += ". Write plain numbers, such as -12 for (12) if it is negative, and 12000 for 12k"
    return Column(name, None, cells.as_text(), f"{reason}; {imposed}" if wrong else reason, mistake)
