"""Detects the layout of a text table: delimiter, comments, column names, and the line of each row."""

import csv
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from geodax.app.tables.number_forms import PLAIN, is_numeric
from geodax.app.tables.text_files import TextFile
from geodax.data.errors import TableError, counted, short

_DELIMITERS = ("\t", ";", "|", ",")
_HEAD_ROWS, _HEAD_SIZE = 200, 200_000  # size of the sample for the layout, in rows and characters
_LEAST_HEAD = 20  # least rows of the sample
_MOST_TITLES = 20
_UNCLOSED = "{}, line {}: a quotation mark opens here and is not closed. Close or remove it"


class Layout(NamedTuple):
    """The layout of a text table.

    Attributes:
        has_header: Whether the first line gave the names.
        start: Number of lines above the first row.
        first_line: The line that determines the number of cells.
        head: The cells of the first rows.
    """

    delimiter: str
    names: list[str]
    has_header: bool
    start: int
    first_line: int
    head: list[list[str]]


def find_layout(
    file: TextFile,
    delimiter: str | None,
    header: bool | None,
    missing: Sequence[str],
    notes: list[str],
    of_fit: Sequence[str] = (),
) -> Layout:
    """Detect delimiter, comments, header and names of a text from its first lines, as far as they are not given.

    A first line with all columns ``of_fit``, those of an earlier table, is a header. The list ``notes`` receives notes
    for the user. Raises TableError if the text is not a table.
    """
    head, size = [], 0
    with file.open() as lines:
        while (line := lines.readline()) and len(head) < (_HEAD_ROWS if size < _HEAD_SIZE else _LEAST_HEAD):
            head.append(line)
            size += len(line)
    if not "".join(head).strip("\ufeff,;|\"' \t\r\n"):
        raise TableError(f"{file.path} is empty: expected a line of column names and lines of numbers")
    start = 0
    named = re.fullmatch(r"sep=(.)\s*", head[0])
    if named:
        delimiter, start = delimiter or named[1], 1
    comments = next((i for i in range(start, len(head)) if head[i].strip() and head[i].lstrip()[0] != "#"), 0)
    delimiter = {"\\t": "\t", "tab": "\t", None: None}.get(delimiter, delimiter)
    try:
        delimiter = _sniff(head[max(comments, start) :]) if delimiter is None else delimiter
        if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise TableError(
                f"delimiter must be one ASCII character such as ',', ';', 'tab' or '|', found {delimiter!r}"
            )
        if comments > start:
            _empty_comments(head, start, comments, delimiter, notes)
        rows = [(start + line, row) for line, row in _parse(head[start:], delimiter)]
    except csv.Error as error:
        raise TableError(f"{file.path} is not a table: {error}") from None
    if not rows:
        raise TableError(f"{file.path} is empty except for delimiters")
    if len(rows) == 1:
        _require_closed(file.path, rows[0][0], head[start:], delimiter)
    if len(rows) >= _LEAST_HEAD:
        del rows[-1]  # it may continue below
    if header is None:
        rows = _without_titles(rows, set(missing), notes)
    return _named(file.path, rows, delimiter, header, missing, notes, of_fit)


def row_lines(file: TextFile, layout: Layout, notes: list[str]) -> array:
    """Return the line on which each row below the header begins, 0 for one with only empty cells or below the table.

    The list ``notes`` receives notes on rows without a value, and on single texts below the table. Raises TableError if
    a row has more or fewer cells than the others, or a quotation mark is not closed.
    """
    width, found, held, row = len(layout.names), array("q"), [], []
    line, end = 0, layout.start
    below: list[tuple[int, str]] = []
    hollow: list[int] = []  # lines of delimiters alone

    def watched(lines: Iterable[str]) -> Iterator[str]:
        for text in lines:
            held.append(text)
            yield text

    with file.open(layout.start) as lines:
        reader = _reader(watched(_squeezed(lines) if layout.delimiter == " " else lines), layout.delimiter)
        try:
            for cells in reader:
                row = held.copy()
                held.clear()
                line, end = end + 1, layout.start + reader.line_num
                is_row = any(map(str.strip, cells))
                is_short = len(cells) < width and (len(cells) == 1 or len(below) > 0)
                is_text = is_row and is_short and not is_numeric(cells[0].strip())
                if is_text:
                    _require_closed(file.path, line, row, layout.delimiter)
                    below.append((line, cells[0].strip()))
                elif is_row and (below or len(cells) < width or any(map(str.strip, cells[width:]))):
                    _require_closed(file.path, line, row, layout.delimiter)
                    wrong, number = (below[0][0], 1) if below else (line, len(cells))
                    raise TableError(
                        f"{file.path}, line {wrong}: expected {width} cells as on line {layout.first_line}, found "
                        f"{number}. Quote cells that contain the delimiter, leave missing cells empty between two "
                        "delimiters, or set the delimiter if it is another one. If the line is no row, remove it"
                    )
                elif not is_row and len(cells) > 1:
                    hollow.append(line)
                found.append(line if is_row and not is_text else 0)
        except csv.Error:  # a cell that is too long
            raise TableError(_UNCLOSED.format(file.path, end + 1)) from None
    _require_closed(file.path, line, row, layout.delimiter)
    inside = [line for line in hollow if line < max(found, default=0)]
    if inside:
        rows = f"{counted(len(inside), 'row')} without a value, on line {inside[0]}{' and below' * (len(inside) > 1)}"
        notes.append(f"Left out: {rows}. Rows are counted without {'it' if len(inside) == 1 else 'them'}.")
    if below:
        many = f" and {len(below) - 1} more" * (len(below) > 1)
        notes.append(f"Left out below the table: {short(below[0][1])} on line {below[0][0]}{many}.")
    return found


def _require_closed(path: Path, line: int, row: Iterable[str], delimiter: str) -> None:
    """Raise TableError if the text of a row ends within quotation marks."""
    try:
        list(csv.reader(row, delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise TableError(_UNCLOSED.format(path, line)) from None


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " ")


def _squeezed(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with cells separated by one space."""
    return (re.sub(r"[ \t]+", " ", line.strip()) for line in lines)


def _parse(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    reader = _reader(_squeezed(lines) if delimiter == " " else lines, delimiter)
    rows, line = [], 1
    for cells in reader:
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            rows.append((line, stripped))
        line = reader.line_num + 1
    return rows


def _sniff(head: Sequence[str]) -> str:
    best, delimiter = 0.6, ""
    for candidate in (*_DELIMITERS, " "):
        try:
            rows = _parse(head, candidate)
        except csv.Error:  # a cell is too long, as for a wrong delimiter
            rows = []
        widths = [len(cells) for _, cells in rows]
        width, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
        alike = count / max(len(widths), 1)
        titles = _num_titles(rows, set()) if width > 1 else 0
        if width > 1 and widths[titles] not in (width, max(width - 1, 2)):
            alike /= 2  # the header does not fit: the character belongs to the cells
        if candidate == " ":  # spaces only as the last resort: names may contain them
            are_alike = width > 1 and count == len(widths) - (widths[titles] == width - 1)  # R names a column fewer
            alike = alike if not delimiter and are_alike and _part_numbers([cells for _, cells in rows]) else 0
        if width > 1 and alike > best:
            best, delimiter = alike, candidate
    text = "".join(head)
    return delimiter or next((d for d in (",", ";", "\t") if d not in text), "\x1f")


def _part_numbers(rows: Sequence[Sequence[str]]) -> bool:
    """Whether most cells are numbers, or the last of up to three is one below a header, as in an edge list."""
    is_last = len(rows) > 1 and all(len(cells) <= 3 and PLAIN.fullmatch(cells[-1]) for cells in rows[1:])
    return is_last or 2 * sum(bool(PLAIN.fullmatch(cell)) for cell in rows[-1]) > len(rows[-1])


def _empty_comments(head: list[str], start: int, end: int, delimiter: str, notes: list[str]) -> None:
    """Blank out the # lines above a table that have another number of cells than its rows.

    A header may also begin with #, as in files written by NumPy; between spaces the # is a separate cell.
    """
    below = [cells for _, cells in _parse(head[end:], delimiter)]
    filled = [max(j + 1 for j, cell in enumerate(cells) if cell) for cells in below]  # lines may end in delimiters
    width = Counter(map(len, below)).most_common(1)[0][0]
    widths = {width, Counter(filled).most_common(1)[0][0], len(below[0])}
    if any(map(is_numeric, below[0])):
        widths.add(width - 1)  # column names beside row names
    left_out = []
    for i in range(start, end):
        if head[i].count('"') % 2:  # the cell continues below
            break
        cells = next((cells for _, cells in _parse([head[i]], delimiter)), [])
        if delimiter == " " and cells[:1] == ["#"] and len(cells) - 1 == width:
            head[i] = head[i].lstrip().removeprefix("#")
        elif cells and len(cells) not in widths:
            left_out.append(head[i].strip())
            head[i] = "\n"
    if left_out:
        many = f" and {len(left_out) - 1} more above the table" if len(left_out) > 1 else ""
        notes.append(
            "Left out as comments, because they begin with # and have another number of cells than the rows below: "
            f"{short(left_out[0])}{many}."
        )


def _has_header(first: Sequence[str], rest: Sequence[Sequence[str]], missing: set[str]) -> bool:
    texts = [j for j, cell in enumerate(first) if cell not in missing and not is_numeric(cell)]
    if not texts or not rest:
        return bool(texts)
    if _with_years(first) and not _with_years(rest[0]):
        return True

    def numeric_below(j: int) -> bool:
        present = [cells[j] for cells in rest if j < len(cells) and cells[j] not in missing]
        return 2 * sum(map(is_numeric, present)) > len(present)

    if any(numeric_below(j) for j in texts):
        return True
    return not any(numeric_below(j) for j, cell in enumerate(first) if is_numeric(cell))


def _with_years(cells: Sequence[str]) -> bool:
    """Whether the numbers of a row are years that follow each other in equal steps, as names of columns."""
    years = [int(cell) if re.fullmatch("(1[5-9]|20)[0-9]{2}", cell) else 0 for cell in filter(is_numeric, cells)]
    steps = {later - year for year, later in pairwise(years)}
    return len(years) > 2 and min(years) > 0 and len(steps) == 1 and steps != {0}


def _num_titles(rows: Sequence[tuple[int, list[str]]], missing: set[str]) -> int:
    """Number of rows with a single text, or a name and its value, above a row of names with numbers below it."""
    cells = [cells for _, cells in rows]
    width = Counter(sum(map(bool, row)) for row in cells).most_common(1)[0][0] if cells else 0
    for i, first in enumerate(cells[:_MOST_TITLES]):
        present = [cell for cell in first if cell]
        is_pair = len(present) == 2 < width and present == first[:2] and not is_numeric(present[0])
        if len(present) > 1 and not is_pair:
            below = cells[i + 1 :]
            is_table = any(is_numeric(cell) for row in below for cell in row) and _has_header(first, below, missing)
            return i if is_table and not any(map(is_numeric, present)) else 0
        if not present or is_numeric(present[0]):
            break
    return 0


def _without_titles(
    rows: list[tuple[int, list[str]]], missing: set[str], notes: list[str]
) -> list[tuple[int, list[str]]]:
    number = _num_titles(rows, missing)
    if number:
        title = next(cell for cell in rows[0][1] if cell)
        more = f" and {number - 1} more" if number > 1 else ""
        notes.append(f"Left out as a title above the table: {short(title)}{more}. If it is a row, use --header False.")
    return rows[number:]


def _named(
    path: Path,
    rows: list[tuple[int, list[str]]],
    delimiter: str,
    header: bool | None,
    missing: Sequence[str],
    notes: list[str],
    of_fit: Sequence[str],
) -> Layout:
    """Split the header off the first rows, and give every column a unique name."""
    line, first = rows[0]
    rest = [cells for _, cells in rows[1:]]
    by_row_name = bool(rest) and all(len(cells) == len(first) + 1 and cells[-1] for cells in rest)
    if header is None:
        header = by_row_name or _has_header(first, rest, set(missing))
        if header and _with_years(first):
            notes.append(f"Line {line} was read as names, because it holds years. If it is a row, use --header False.")
        if not header and of_fit and set(of_fit) <= {re.sub(r"\s+", " ", cell) for cell in first}:
            header = True
            notes.append(
                f"Line {line} was read as names, because it holds those of the fit. If it is a row, use --header False."
            )
    names = list(first) if header else [""] * len(first)
    if header and by_row_name:
        names = ["row", *names]
        notes.append("The header has one name fewer than the rows have cells. The first column was named 'row'.")
    if header and not rest:
        raise TableError(f"{path} has a header and no rows: expected lines of numbers below line {line}")
    head = rest if header else [first, *rest]
    while names and not names[-1] and not any("".join(cells[len(names) - 1 :]) for cells in head):
        names.pop()  # a delimiter at the end of every line
    if not header:
        notes.append(
            "No header line was found: columns are named by their position. If the first line holds names, use "
            "--header True."
        )
    start = (rows[1] if header else rows[0])[0] - 1
    return Layout(delimiter, unique(names, notes), bool(header), start, line, head)


def unique(names: Sequence[str], notes: list[str]) -> list[str]:
    """Make column names unique; an empty name becomes its position."""
    seen: dict[str, None] = {}
    given = set(names)
    for j, name in enumerate(names):
        name = re.sub(r"\s+", " ", name) or f"column {j + 1}"
        new, k = name, 2
        while new in seen or (new != name and new in given):
            new, k = f"{name} ({k})", k + 1
        if new != name:
            notes.append(f"Column {j + 1} repeats the name {name!r} and is called {new!r} here.")
        seen[new] = None
    return list(seen)
