"""Parses the cells of a text table: numbers with pandas, text unchanged, and detects the separators in numbers."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.app.tables.assembly import Asked
from geodax.app.tables.columns import READ_AS_TEXT, Cells, Column, as_cells, read_column
from geodax.app.tables.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.app.tables.number_forms import CURRENCIES, PLAIN, is_numeric, number_parser, sign
from geodax.app.tables.rows import Layout, row_lines
from geodax.app.tables.text_files import TextFile
from geodax.data.errors import TableError

_CHUNK = 2**20  # cells per chunk
_LEADING_ZERO = re.compile(r"0[0-9]+")
WITH_COMMA = {"decimal comma", "decimal comma with groups"}
UNUSUAL = {*WITH_COMMA, "comma?", "comma groups"}
_OF_THE_FIT = "numbers of the fitted table have a decimal {!r}"


class Seen(NamedTuple):
    """A number of the table, with its place."""

    row: int
    cell: str
    column: str


class Parsed(NamedTuple):
    """The cells of a text.

    Attributes:
        numbers: The columns of plain numbers, NaN where a cell is missing.
        places: The file's column indices of ``numbers``.
        has_points: Which of these columns have a decimal separator.
        texts: The other columns, without percent and currency signs.
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
    """Read the numeric and text columns with pandas.

    An empty row has line 0; ``decimal`` is the decimal separator of plain numbers, and ``as_text`` are columns to read
    as text.
    """
    import pandas as pd

    def is_text(j: int) -> bool:
        head = (cells[j] for cells in layout.head if j < len(cells) and cells[j] not in missing)
        return j in as_text or not all(PLAIN.fullmatch(cell.replace(decimal, ".")) for cell in head)

    holes = list(missing)
    numbers_for_holes = [x for x in map(number_parser(decimal, None), missing) if x is not None]
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
                na_values={j: holes for j in places} if texts else holes,  # type: ignore[arg-type]
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
                kinds = np.array([dtype.kind for dtype in frame.dtypes])[places]
                is_plain = np.isin(kinds, list("iuf"))
                plain = np.array(places, int)[is_plain]
                values = np.full((len(frame), len(places)), np.nan)
                values[:, is_plain] = frame.iloc[:, plain] if len(plain) < width else frame
                is_plain &= ~np.isinf(values).any(axis=0)
                odd.update(places[k] for k in np.flatnonzero(~is_plain))
                has_points |= kinds == "f"
                num_kept = int(is_kept.sum())
                numbers[row : row + num_kept] = values[is_kept]
                row += num_kept
                for j, column in cells.items():
                    column += frame[j].to_numpy(object)[is_kept].tolist()
        if first != len(is_row):
            raise TableError(f"{file.path}: quotation marks are not used consistently. Remove those inside cells")
        if odd:  # columns with plain numbers in the first rows only
            texts |= odd
            continue
        if numbers_for_holes:  # in any form
            numbers[np.isin(numbers, numbers_for_holes)] = np.nan
        found = {j: as_cells(column) for j, column in cells.items()}
        found = {j: column if j in as_text else column.without_unit(missing) for j, column in found.items()}
        return Parsed(numbers, places, has_points, found, lines[is_row])


def read_columns(
    file: TextFile,
    layout: Layout,
    missing: Sequence[str],
    said: Separators | None,
    notes: list[str],
    asked: Asked,
    *,
    earlier: Separators,
    earlier_forms: Mapping[str, str],
    imposed: str,
) -> tuple[list[Column], list[int], Separators, Separators]:
    """Read the columns of a text, and detect the separators in its numbers unless they are ``said``.

    Plain numbers are read with the decimal separator of the first rows. If that turns out to be wrong, they are read
    again. Numbers in the columns that are needed determine the separators. The ``earlier`` ones are of the table that
    this one belongs to, and ``earlier_forms`` are how its columns were converted. ``imposed`` advises on a number
    with other separators than those said.

    Returns the columns, the line of each row, the separators used, and those that the table shows. Raises TableError if
    numbers are ambiguous, or the text is not a table.
    """
    names, lines = layout.names, np.array(row_lines(file, layout, notes))
    as_text = {j for j, name in enumerate(names) if name in asked.text}
    if said is not None:
        separators = shown = said
        parsed = parse(file, layout, lines, missing, said.decimal or ".", as_text)
    else:
        counting = [j for j, name in enumerate(names) if name in asked.needed and j not in as_text]
        parsed, seen, guess = _parse_and_classify(file, layout, lines, missing, as_text, counting, earlier)
        separators, shown = decide_separators(
            file.path, seen, parsed.lines, layout.delimiter, notes, others=asked.others, earlier=earlier
        )
        if separators.decimal != guess:
            parsed = parse(file, layout, lines, missing, separators.decimal or ".", as_text)
    for j in parsed.places:
        zeros = [row[j] for row in layout.head if j < len(row) and _LEADING_ZERO.fullmatch(row[j])]
        if zeros and names[j] in asked.needed:
            notes.append(f"Column {names[j]!r} was read as numbers, but has leading zeros, like codes ({zeros[0]!r}).")
    number = number_parser(separators.decimal or ".", separators.thousands)
    columns = {j: Column(names[j], parsed.numbers[:, k]) for k, j in enumerate(parsed.places)}
    for j, cells in parsed.texts.items():
        if j in as_text:
            columns[j] = Column(names[j], None, cells.as_text(), READ_AS_TEXT)
        else:
            before = earlier_forms.get(names[j], "")
            columns[j] = read_column(names[j], cells, parsed.lines, missing, number, imposed=imposed, earlier=before)
    return [columns[j] for j in range(len(names))], parsed.lines.tolist(), separators, shown


def _parse_and_classify(
    file: TextFile,
    layout: Layout,
    lines: np.ndarray,
    missing: Sequence[str],
    as_text: Collection[int],
    counting: Sequence[int],
    earlier: Separators,
) -> tuple[Parsed, dict[str, Seen], str]:
    """Read a text with the decimal separator of its first rows, and classify the numbers of the columns that count.

    Returns the cells, the classes of :func:`signs`, and the separator.
    """

    def classes(columns: Mapping[int, Cells]) -> dict[str, Seen]:
        return signs({layout.names[j]: cells for j, cells in columns.items()}, missing)

    found = {j: as_cells(row[j] if j < len(row) else "" for row in layout.head) for j in counting}
    seen = classes(found)
    is_comma = WITH_COMMA & seen.keys() or (earlier.decimal == "," and "decimal point" not in seen)
    guess = "," if is_comma else "."
    parsed = parse(file, layout, lines, missing, guess, as_text)
    if parsed.texts:
        found |= {j: cells for j, cells in parsed.texts.items() if j in found}
        seen = classes(found)
    unclear = not WITH_COMMA & seen.keys() if is_comma else "decimal point" not in seen and UNUSUAL & seen.keys()
    with_signs = {j for j, has in zip(parsed.places, parsed.has_points, strict=True) if has and j in found}
    if unclear and with_signs:  # also look below the first rows
        below = parse(file, layout, lines, missing, guess, {*as_text, *with_signs}).texts
        seen = classes(found | {j: below[j] for j in with_signs})
    return parsed, seen, guess


def signs(columns: Mapping[str, Cells], missing: Iterable[str]) -> dict[str, Seen]:
    """Classify the numbers in mostly numeric columns; each class has its first number."""
    seen: dict[str, Seen] = {}
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
                    seen[kind] = Seen(int(np.argmax(codes == k)), distinct[k], name)
    return seen


def decide_separators(
    path: Path,
    seen: Mapping[str, Seen],
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
        return f"{seen[kind].cell!r} (line {lines[seen[kind].row]}, column {seen[kind].column!r})"

    german = next((k for k in ("decimal comma", "decimal comma with groups") if k in seen), None)
    english = next((k for k in ("comma groups", "decimal point") if k in seen), None)
    if german and english:
        raise TableError(
            f"{path}: {where(german)} has a decimal comma, but {where(english)} has not. Write all numbers the same "
            f"way{f', or {others}' if others else ''}"
        )
    if german or (earlier.decimal == "," and not english and seen.keys() & {"comma?", "point?"}):
        return _decimal_commas(path, seen, where, german, delimiter, earlier, notes)
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


def _decimal_commas(
    path: Path,
    seen: Mapping[str, Seen],
    where: Callable[[str], str],
    shown_by: str | None,
    delimiter: str,
    earlier: Separators,
    notes: list[str],
) -> tuple[Separators, Separators]:
    """Read numbers with decimal commas: the class ``shown_by`` shows them, or else those of the fit have them."""
    has_groups = "decimal comma with groups" in seen
    # programs with decimal commas rarely separate cells by commas
    are_groups_of_fit = earlier == Separators(",", ".") and delimiter != ","
    if "point?" in seen and not has_groups and not are_groups_of_fit:
        why = f"numbers have decimal commas, such as {where(shown_by)}" if shown_by else _OF_THE_FIT.format(",")
        raise TableError(
            f"{path}: {why}, so the point in {where('point?')} is ambiguous. Use --decimal , if it "
            "separates thousands" + (", or write a comma" if shown_by else ", or --decimal . if it is a decimal point")
        )
    unlike = f", unlike those of the fit: {_OF_THE_FIT.format('.')}" if earlier.decimal == "." else ""
    first = shown_by or ("comma?" if "comma?" in seen else "")
    like = ", as in the fit" if first and not shown_by else ""
    such = f", such as {where(first)}" if first else ""
    group = ""
    if "point?" in seen and not has_groups:
        value = seen["point?"].cell.replace(".", "")
        group = f"; {where('point?')} was read as {value}, as in the fit"
    notes.append(f"Numbers were read with a decimal comma{like}{such}{unlike}{group}.")
    shown = Separators(",", "." if has_groups else None) if shown_by else NOTHING_SHOWN
    return Separators(",", "."), shown
