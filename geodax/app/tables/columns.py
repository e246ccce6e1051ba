"""A column of cells: numbers where all of them are numbers in a form that is known, and text otherwise."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from geodax.app.tables.number_forms import coded, is_numeric, without_unit
from geodax.data.errors import short

READ_AS_TEXT = "read as text"  # the reason of a column that the caller wants so
_LONGEST_TEXT = 1000  # signs of a cell of text that are kept: for labels, and all cells take the room of the longest


class Column(NamedTuple):
    """A column as read: numbers, or text with the reason why it is not numbers."""

    name: str
    numbers: np.ndarray | None
    text: tuple[str, ...] = ()
    reason: str = ""
    is_mistake: bool = False  # mostly numbers: the text cells are probably slips, or one is infinite
    whole: np.ndarray | None = None  # of an array of integers: these themselves, of which floats lose digits
    form: str = ""  # how cells that are not plain numbers were read as numbers

    def as_text(self) -> "Column":
        """The column as text: integers without a point, and nothing where a number is missing."""
        if self.numbers is None:
            return self._replace(reason=READ_AS_TEXT)
        cells = (self.numbers if self.whole is None else self.whole).tolist()
        is_missing = np.isnan(self.numbers).tolist()
        text = tuple(
            "" if m else str(int(x)) if x == int(x) else repr(x) for m, x in zip(is_missing, cells, strict=True)
        )
        return Column(self.name, None, text, READ_AS_TEXT)


class Cells(NamedTuple):
    """The cells of a column of text: the distinct ones, the place of each cell among them, and the unit they had."""

    distinct: list[str]
    codes: np.ndarray
    form: str = ""

    def as_text(self) -> tuple[str, ...]:
        """All cells as they are kept: long ones are cut."""
        kept = [cell if len(cell) <= _LONGEST_TEXT else cell[: _LONGEST_TEXT - 3] + "..." for cell in self.distinct]
        return tuple(kept[code] for code in self.codes.tolist())

    def without_unit(self, missing: Iterable[str]) -> "Cells":
        """The cells without the percent or currency sign that all of them carry that are not missing."""
        present = [cell for cell in self.distinct if cell not in missing]
        numbers, form = without_unit(present) or ((), "")
        new = dict(zip(present, numbers, strict=False))
        return Cells([new.get(cell, cell) for cell in self.distinct], self.codes, form) if form else self


def as_cells(cells: Iterable[str]) -> Cells:
    """The cells of a column of text, without blanks around them, and with one sign at the end of lines."""
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
) -> Column:
    """Turn the cells of one column into numbers, or say why they are text.

    Args:
        name: The column.
        cells: What it holds.
        lines: Where each cell is.
        missing: What a missing cell may hold.
        number: From a cell to a number, or None.
        unit: What is counted in ``lines``.
        imposed: What to say of a cell that is a number with other separators than those that were said.

    Returns:
        The column.
    """
    distinct, codes, form = cells
    missing, holes = set(missing), set(map(number, missing)) - {None}
    values, is_odd, is_present = np.full(len(distinct), np.nan), *np.zeros((2, len(distinct)), bool)
    for k, cell in enumerate(distinct):
        value = None if cell in missing else number(cell)
        if cell not in missing and value not in holes:
            is_present[k], is_odd[k] = True, value is None
            values[k] = np.nan if value is None else value
    if is_odd.any():
        present = np.flatnonzero(is_present)
        code = coded([distinct[k] for k in present])
        if code:
            values[present] = code[0]
            return Column(name, values[codes], form=code[1])
    infinite = np.flatnonzero(np.isinf(values[codes]))
    odd = np.flatnonzero(is_odd[codes])
    if not len(odd) and len(infinite):
        i = int(infinite[0])
        reason = f"{unit} {lines[i]}, column {name!r}: expected a finite number, found {short(distinct[int(codes[i])])}"
        return Column(name, None, cells.as_text(), reason, True)
    if not len(odd):
        return Column(name, values[codes], form=form)
    wrong = [k for k in np.flatnonzero(is_odd) if imposed and is_numeric(distinct[k])]
    i = int(np.argmax(codes == wrong[0])) if wrong else int(odd[0])
    cell, num_present = distinct[int(codes[i])], int(is_present[codes].sum())
    mistake = 2 * len(odd) < num_present
    reason = f"text, such as {short(cell)} on {unit} {lines[i]}"
    if mistake:
        others = f" (the others of {num_present} are numbers)"
        if len(odd) > 1:
            others = f" ({len(odd)} such cells of {num_present})"
        reason = f"{unit} {lines[i]}, column {name!r}: expected a number, found {short(cell)}{others}"
    return Column(name, None, cells.as_text(), f"{reason}; {imposed}" if wrong else reason, mistake)
