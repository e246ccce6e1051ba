"""From a text to columns of numbers: the signs of decimals and thousands, and the type of every column."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geodax.data.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.data.errors import TableError, short
from geodax.data.number_forms import PLAIN, coded, is_numeric, number_parser, sign, without_unit
from geodax.data.rows import Layout, row_lines
from geodax.data.text_files import TextFile

READ_AS_TEXT = "read as text"  # the reason of a column that the caller wants so
_OF_THE_FIT = "numbers of the table that was fitted have a decimal {!r}"
_COMMAS = {"decimal comma", "decimal comma with groups"}
_ODD = {*_COMMAS, "comma?", "comma groups"}
_CHUNK = 2**20  # cells that are parsed together
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


def as_cells(cells: Iterable[str]) -> Cells:
    """The cells of a column of text, without blanks around them, and with one sign at the end of lines."""
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells], np.int64)
    return Cells([cell.strip().replace("\r\n", "\n").replace("\r", "\n") for cell in places], codes)


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
    lines: np.ndarray


def parse(
    file: TextFile, layout: Layout, lines: np.ndarray, missing: Sequence[str], decimal: str, as_text: Collection[int]
) -> Parsed:
    """Read the columns of plain numbers and those of text by pandas.

    Args:
        file: The text.
        layout: Where its cells are.
        lines: The line of each row, 0 for one that is empty.
        missing: What a missing cell may hold.
        decimal: The decimal sign of plain numbers.
        as_text: Columns that are text, whatever they hold.

    Returns:
        All cells.
    """
    import pandas as pd

    def is_text(j: int) -> bool:
        head = (cells[j] for cells in layout.head if j < len(cells) and cells[j] not in missing)
        return j in as_text or not all(PLAIN.fullmatch(cell.replace(decimal, ".")) for cell in head)

    holes = [x for x in map(number_parser(decimal, None), missing) if x is not None]
    is_row, width = lines > 0, len(layout.names)
    texts = {j for j in range(width) if is_text(j)}
    while True:
        places = [j for j in range(width) if j not in texts]
        numbers, has_points, odd = np.empty((int(is_row.sum()), len(places))), np.zeros(len(places), bool), set()
        cells: dict[int, list[str]] = {j: [] for j in sorted(texts)}
        first = row = 0
        with file.open(layout.start) as text:
            for frame in pd.read_csv(
                text,
                sep=r"\s+" if layout.delimiter == " " else layout.delimiter,
                header=None,
                names=range(width),  # type: ignore[arg-type]
                usecols=range(width),  # type: ignore[arg-type] - rows may end in further empty cells
                index_col=False,
                dtype=dict.fromkeys(texts, str),  # type: ignore[arg-type]
                na_values={j: list(missing) for j in places},  # type: ignore[arg-type]
                keep_default_na=False,
                skipinitialspace=True,
                skip_blank_lines=False,
                decimal=decimal,
                low_memory=False,
                chunksize=max(_CHUNK // width, 1),
            ):
                is_kept = is_row[first : first + len(frame)]
                first += len(frame)
                if len(is_kept) < len(frame):
                    break
                kinds = np.array([frame.dtypes[j].kind for j in places])
                is_plain = np.isin(kinds, list("iuf"))
                values = np.full((len(frame), len(places)), np.nan)
                values[:, is_plain] = frame[[j for j, plain in zip(places, is_plain, strict=True) if plain]]
                is_plain &= ~np.isinf(values).any(axis=0)
                odd.update(places[k] for k in np.flatnonzero(~is_plain))
                has_points |= kinds == "f"
                num_kept = int(is_kept.sum())
                numbers[row : row + num_kept] = values[is_kept]
                row += num_kept
                for j, column in cells.items():
                    column += frame[j].to_numpy(object)[is_kept].tolist()
        if first != len(is_row):
            raise TableError(f"{file.path}: quotation marks are not used consistently: remove those inside cells")
        if odd:  # of which the first rows were plain numbers
            texts |= odd
            continue
        if holes:
            numbers[np.isin(numbers, holes)] = np.nan
        found = {j: as_cells(column) for j, column in cells.items()}
        return Parsed(numbers, places, has_points, found, lines[is_row])


def signs(columns: Mapping[str, Cells], missing: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """Kinds of signs that the numbers in columns of mostly numbers have, with row, cell and column of the first."""
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
            column = read_column(names[j], self.texts[j], self.parsed.lines, missing, number, imposed=imposed)
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
    lines = np.array(row_lines(file, layout))
    names, as_text = layout.names, {j for j, name in enumerate(layout.names) if name in set(text)}

    def read(decimal: str) -> tuple[Parsed, dict[int, Cells], dict[int, str]]:
        parsed = parse(file, layout, lines, missing, decimal, as_text)
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
        more = parse(file, layout, lines, missing, guess, as_text | with_signs).texts
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
    distinct, codes = cells
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
