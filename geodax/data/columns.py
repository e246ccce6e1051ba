"""From a text to columns of numbers: the signs of decimals and thousands, and the type of every column."""

import io
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.data.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.data.errors import TableError, short
from geodax.data.number_forms import coded, is_numeric, number_parser, sign, without_unit
from geodax.data.rows import Chunk, Layout, TextFile, chunks

READ_AS_TEXT = "read as text"  # the reason of a column that the caller wants so
_OF_THE_FIT = "numbers of the table that was fitted have a decimal {!r}"
_COMMAS = {"decimal comma", "decimal comma with groups"}
_ODD = {*_COMMAS, "comma?", "comma groups"}
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
    """The cells of a column of text: the distinct ones, and the place of each cell among them."""

    distinct: Sequence[str]
    codes: np.ndarray

    def as_text(self) -> tuple[str, ...]:
        """All cells as they are kept: long ones are cut."""
        kept = [cell if len(cell) <= _LONGEST_TEXT else cell[: _LONGEST_TEXT - 3] + "..." for cell in self.distinct]
        return tuple(kept[code] for code in self.codes.tolist())


class _Collector:
    """Cells of a column of text, as they come."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.parts: list[np.ndarray] = []

    def add(self, cells: Iterable[str]) -> None:
        places = self.places
        codes = [places.setdefault(cell, len(places)) for cell in cells]
        self.parts.append(np.array(codes, np.int32))

    def cells(self) -> Cells:
        return Cells(list(self.places), np.concatenate(self.parts or [np.empty(0, np.int32)]))


def as_cells(cells: Iterable[str]) -> Cells:
    """The cells of a column of text."""
    collector = _Collector()
    collector.add(cells)
    return collector.cells()


class Parsed(NamedTuple):
    """The cells of a text.

    Attributes:
        numbers: Those of the columns that are plain numbers, NaN where one is missing.
        places: The columns of ``numbers`` by their numbers in the file.
        has_points: Which of them have numbers with a decimal sign.
        texts: The other columns.
        lines: The line of each row.
    """

    numbers: np.ndarray
    places: list[int]
    has_points: np.ndarray
    texts: dict[int, Cells]
    lines: Sequence[int]


def parse(file: TextFile, layout: Layout, missing: Sequence[str], decimal: str, as_text: Iterable[int]) -> Parsed:
    """Read the columns of plain numbers by pandas, and the others as text.

    Args:
        file: The text.
        layout: Where its cells are.
        missing: What a missing cell may hold.
        decimal: The decimal sign of plain numbers.
        as_text: Columns that are text, whatever they hold.

    Returns:
        All cells.

    Raises:
        TableError: If a row is wider or narrower than the others, or a quotation mark is not closed.
    """
    texts, late = set(as_text), set()
    while True:
        texts |= late
        late, places = set(), [j for j in range(len(layout.names)) if j not in texts]
        collectors = {j: _Collector() for j in texts}
        values, lines, has_points = np.empty(0), array("q"), np.zeros(len(layout.names), bool)
        for chunk in chunks(file, layout):
            numbers, is_plain, with_points = _plain_numbers(file.path, layout, chunk, places, missing, decimal)
            odd = [j for j, plain in zip(places, is_plain, strict=True) if not plain]
            has_points[places] |= with_points
            if lines:
                late.update(odd)  # what they held above is lost
            else:
                collectors |= {j: _Collector() for j in odd}
            places = [j for j in places if j not in odd]
            for j, cells in chunk.columns(collectors):
                collectors[j].add(cells)
            lines.extend(chunk.lines)
            if not late:  # in place, where the system can
                values.resize((len(lines), len(places)), refcheck=False)
                values[-len(chunk.lines) :] = numbers[:, is_plain]
        if not late:
            found = {j: collector.cells() for j, collector in sorted(collectors.items())}
            return Parsed(values, places, has_points[places], found, lines)


def _plain_numbers(
    path: Path, layout: Layout, chunk: Chunk, places: list[int], missing: Sequence[str], decimal: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of some columns of a chunk, which of them hold nothing else, and which have decimal signs."""
    if not places:
        return np.empty((len(chunk.lines), 0)), np.empty(0, bool), np.empty(0, bool)
    import pandas as pd

    try:
        frame = pd.read_csv(
            io.StringIO(chunk.text, newline=""),
            sep=layout.delimiter,
            header=None,
            names=range(len(layout.names)),  # type: ignore[arg-type]
            usecols=places,
            index_col=False,
            na_values=list(missing),
            keep_default_na=False,
            skipinitialspace=layout.delimiter != " ",
            skip_blank_lines=False,
            decimal=decimal,
            low_memory=False,
        )
    except pd.errors.ParserError as error:
        raise TableError(f"{path}, below line {chunk.lines[0]}: {error}") from None
    if len(frame) != len(chunk.lines):
        raise TableError(f"{path}, below line {chunk.lines[0]}: quotation marks are not used consistently")
    kinds = [dtype.kind for dtype in frame.dtypes]
    is_plain = np.array([kind in "iuf" for kind in kinds])
    numbers = np.full(frame.shape, np.nan)
    numbers[:, is_plain] = frame.iloc[:, np.flatnonzero(is_plain)].to_numpy(np.float64)
    is_plain &= ~np.isinf(numbers).any(axis=0)
    holes = _holes(missing, number_parser(decimal, None))
    if holes:
        numbers[np.isin(numbers, list(holes))] = np.nan
    return numbers, is_plain, np.array([kind == "f" for kind in kinds])


def _holes(missing: Iterable[str], number: Callable[[str], float | None]) -> set[float]:
    """Numbers that stand for missing cells, in whatever form."""
    return {x for x in map(number, missing) if x is not None}


def signs(columns: Mapping[str, Cells], missing: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """What the numbers in columns of mostly numbers show: kinds of signs, with the row, cell and column of the first."""
    seen: dict[str, tuple[int, str, str]] = {}
    holes = set(missing)
    for name, (distinct, codes) in columns.items():
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
    lines: Sequence[int],
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


class TextCells(NamedTuple):
    """The cells of a text, and what the signs in its numbers mean.

    Attributes:
        parsed: The cells.
        texts: Columns of text by their numbers, without percent and currency signs.
        forms: How numbers were read that carry such signs.
        separators: The separators to read the table with.
        shown: The separators that it shows.
    """

    parsed: Parsed
    texts: dict[int, Cells]
    forms: dict[int, str]
    separators: Separators
    shown: Separators

    @property
    def lines(self) -> Sequence[int]:
        """The line of each row."""
        return self.parsed.lines

    def columns(
        self, names: Sequence[str], as_text: Collection[str], missing: Sequence[str], imposed: str
    ) -> list[Column]:
        """All columns, of numbers where their cells are numbers."""
        number = number_parser(self.separators.decimal or ".", self.separators.thousands)
        found = {j: Column(names[j], self.parsed.numbers[:, k]) for k, j in enumerate(self.parsed.places)}
        for j, cells in self.parsed.texts.items():
            if names[j] in as_text:
                found[j] = Column(names[j], None, cells.as_text(), READ_AS_TEXT)
                continue
            column = read_column(names[j], self.texts[j], self.lines, missing, number, imposed=imposed)
            found[j] = column._replace(form=self.forms.get(j, column.form))
        return [found[j] for j in range(len(names))]


def read_cells(
    file: TextFile,
    layout: Layout,
    missing: Sequence[str],
    said: Separators | None,
    notes: list[str],
    *,
    text: Collection[str],
    needed: Collection[str],
    others: str,
    earlier: Separators,
) -> TextCells:
    """Read a text, and find the separators inside its numbers where they are not said.

    Plain numbers with the decimal sign of the first rows are read at once; if that sign is not the right one, they are
    read again.

    Args:
        file: The text.
        layout: Where its cells are.
        missing: What a missing cell may hold.
        said: The separators, if they are said.
        notes: Takes what was decided.
        text: Columns to be read as text.
        needed: Columns whose numbers show what the signs mean.
        others: How a caller leaves out one of these columns, if that is possible.
        earlier: What the table has shown to which this one belongs.

    Returns:
        The cells.

    Raises:
        TableError: If numbers may mean one thing or another, or the text is not a table.
    """
    names, as_text = layout.names, {j for j, name in enumerate(layout.names) if name in set(text)}

    def read(decimal: str) -> tuple[Parsed, dict[int, Cells], dict[int, str]]:
        parsed = parse(file, layout, missing, decimal, as_text)
        texts, forms = {j: cells for j, cells in parsed.texts.items() if j not in as_text}, {}
        for j, cells in texts.items():
            present = [cell for cell in cells.distinct if cell not in missing]
            plain = without_unit(present)
            if plain:
                new = dict(zip(present, plain[0], strict=True))
                texts[j], forms[j] = Cells([new.get(cell, cell) for cell in cells.distinct], cells.codes), plain[1]
        return parsed, texts, forms

    if said is not None:
        return TextCells(*read(said.decimal or "."), said, said)
    counting = [j for j, name in enumerate(names) if name in needed and j not in as_text]
    of_head = {j: as_cells(row[j] if j < len(row) else "" for row in layout.head) for j in counting}
    seen = signs({names[j]: cells for j, cells in of_head.items()}, missing)
    is_comma = _COMMAS & seen.keys() or (earlier.decimal == "," and "decimal point" not in seen)
    guess = "," if is_comma else "."
    parsed, texts, forms = read(guess)
    seen = signs({names[j]: texts.get(j, of_head[j]) for j in counting}, missing)
    unclear = not _COMMAS & seen.keys() if is_comma else "decimal point" not in seen and _ODD & seen.keys()
    with_signs = {j for j, has in zip(parsed.places, parsed.has_points, strict=True) if has}.intersection(counting)
    if unclear and with_signs:  # what signs have the numbers below the first rows?
        more = parse(file, layout, missing, guess, as_text | with_signs).texts
        seen = signs({names[j]: texts.get(j) or more.get(j) or of_head[j] for j in counting}, missing)
    separators, shown = decide_separators(
        file.path, seen, parsed.lines, layout.delimiter, notes, others=others, earlier=earlier
    )
    if separators.decimal != guess:
        parsed, texts, forms = read(separators.decimal or ".")
    return TextCells(parsed, texts, forms, separators, shown)


def read_column(
    name: str,
    cells: Cells,
    lines: Sequence[int],
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
    distinct, codes = cells
    missing, holes = set(missing), _holes(missing, number)
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
        reason = f"{unit} {lines[i]}, column {name!r}: expected a finite number, found {short(distinct[codes[i]])}"
        return Column(name, None, cells.as_text(), reason, True)
    if not len(odd):
        return Column(name, values[codes])
    wrong = [k for k in np.flatnonzero(is_odd) if imposed and is_numeric(distinct[k])]
    i = int(np.argmax(codes == wrong[0])) if wrong else int(odd[0])
    cell, num_present = distinct[codes[i]], int(is_present[codes].sum())
    mistake = 2 * len(odd) < num_present
    reason = f"text, such as {short(cell)} on {unit} {lines[i]}"
    if mistake:
        others = f" (the others of {num_present} are numbers)"
        if len(odd) > 1:
            others = f" ({len(odd)} such cells of {num_present})"
        reason = f"{unit} {lines[i]}, column {name!r}: expected a number, found {short(cell)}{others}"
    return Column(name, None, cells.as_text(), f"{reason}; {imposed}" if wrong else reason, mistake)
