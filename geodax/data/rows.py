"""From a text file to rows of cells: packing, encoding, delimiter, comments, and the names of the columns."""

import codecs
import csv
import functools
import gzip
import io
import re
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from geodax.data.errors import TableError, nearest, short
from geodax.data.number_forms import PLAIN, is_numeric

LARGEST_UNPACKED = 2**30
"""Bytes that a packed table may have once it is unpacked."""

STANDARD_INPUT = "-"
"""The name of a table that comes from the standard input."""

_DELIMITERS = ("\t", ";", "|", ",")
_CHUNK = 2**20  # cells that are parsed together
_HEAD_ROWS, _HEAD_SIZE = 200, 200_000  # of the sample from which the layout is found: all these rows, or so many signs
_LEAST_HEAD = 20  # rows of the sample, however long they are
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_PICKLE = "a Python pickle, which is never opened: write it as CSV or .npy"
_TOO_LARGE = "{} unpacks to more than {:,} bytes: expected a table that fits in memory. If it is one, unpack it first"
_UNCLOSED = "{}, line {}: a quotation mark opens here and is not closed: close or remove it"
_KINDS = (
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls): save it as .xlsx or CSV in the spreadsheet program"),
    (b"\xfd7zXZ", "an xz archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive: unpack it first"),
    (b"\x89HDF", "an HDF5 file: write its table as CSV or .npy"),
    (b"ARROW1", "an Arrow file: write it as CSV or Parquet"),
    (b"SQLite format 3", "an SQLite database: write the table as CSV"),
    (b"%PDF", "a PDF document: get the table as CSV"),
    (b"\x89PNG", "a PNG image"),
    (b"\x80\x04", _PICKLE),
    (b"\x80\x05", _PICKLE),
)


class TextFile(NamedTuple):
    """A table as text.

    Attributes:
        path: The file.
        encoding: Its encoding.
        data: Its bytes, where they do not come from the path.
    """

    path: Path
    encoding: str = "utf-8"
    data: bytes | None = None

    def lines(self, delimiter: str = "", start: int = 0) -> Iterator[str]:
        """Lines from one on, counted from 0; where cells are parted by blanks, with one blank between them."""
        with io.TextIOWrapper(unpacked(self.path, self.data), self.encoding, newline="") as file:
            for i, line in enumerate(islice(file, start, None)):
                if not i + start:
                    line = line.removeprefix("\ufeff")
                yield re.sub(r"[ \t]+", " ", line.strip()) + "\n" if delimiter == " " else line


class Layout(NamedTuple):
    """Where the cells of a text are.

    Attributes:
        delimiter: The sign between cells.
        names: The columns.
        has_header: Whether the first line gave the names.
        start: Lines above the first row.
        first_line: The line that says how many cells a row has.
        head: The cells of the first rows.
    """

    delimiter: str
    names: list[str]
    has_header: bool
    start: int
    first_line: int
    head: list[list[str]]


class Chunk(NamedTuple):
    """The text of rows that follow each other, and the line on which each begins."""

    text: str
    lines: Sequence[int]
    delimiter: str

    def columns(self, places: Iterable[int]) -> Iterator[tuple[int, Iterator[str]]]:
        """The cells of some columns, without blanks around them, and with the same line ends on all systems."""
        places = list(places)
        rows = list(_reader(io.StringIO(self.text, newline=""), self.delimiter)) if places else []
        for j in places:
            yield j, (row[j].strip().replace("\r\n", "\n").replace("\r", "\n") for row in rows)


@functools.cache
def read_standard_input() -> bytes:
    """Return all bytes of the standard input, which can be read once only."""
    return sys.stdin.buffer.read()


def unpacked(path: Path, data: bytes | None = None) -> Any:
    """Open a file for reading bytes; what is packed by gzip comes unpacked."""
    if data is None and str(path) == STANDARD_INPUT:
        data = read_standard_input()
    raw = open(path, "rb") if data is None else io.BytesIO(data)
    if raw.read(2) == b"\x1f\x8b":
        raw.close()
        return gzip.open(path if data is None else io.BytesIO(data))
    raw.seek(0)
    return raw


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file; TableError if it cannot be read."""
    try:
        if path.is_dir():
            raise TableError(f"{path} is a folder: name the file in it")
        if path.exists() and not path.is_file():
            raise TableError(f"{path} is not a regular file but a device, a pipe or a socket: pipe it in as -")
        with unpacked(path) as file:
            return file.read(65536)
    except TableError:
        raise
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise TableError(f"there is no file {path}{nearest(path.name, near)}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file ({error}): get it again") from error
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, AttributeError) as error:  # a NUL in its name; no standard input
        raise TableError(f"{str(path)!r} cannot be read: {error}") from None


def contents(path: Path) -> bytes:
    """Return all bytes of a file, unpacked where it is packed by gzip."""
    try:
        with unpacked(path) as file:
            raw = file.read(LARGEST_UNPACKED + 1) if isinstance(file, gzip.GzipFile) else file.read()
            if isinstance(file, gzip.GzipFile) and len(raw) > LARGEST_UNPACKED:
                raise TableError(_TOO_LARGE.format(path, LARGEST_UNPACKED))
            return raw
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read: {error}") from error


def text_file(path: Path, head: bytes, encoding: str | None, notes: list[str]) -> TextFile:
    """Find the encoding of a file and read it once; TableError if it is not text."""
    given = encoding
    if given is None:
        encoding = next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")
        kind = next((kind for magic, kind in _KINDS if head.startswith(magic)), "")
        if kind:
            raise TableError(f"{path} is {kind}")
    is_wide = any(bits in (encoding or "") for bits in ("16", "32"))
    line, size = 0, 0
    try:
        decode = codecs.getincrementaldecoder(encoding or "utf-8")().decode
        with unpacked(path) as file:
            is_packed = isinstance(file, gzip.GzipFile)
            for line, raw in enumerate(file, 1):
                size += len(raw)
                if is_packed and size > LARGEST_UNPACKED:
                    raise TableError(_TOO_LARGE.format(path, LARGEST_UNPACKED))
                if b"\0" in raw and not is_wide:
                    raise TableError(
                        f"{path}, line {line}: expected text, found NUL bytes: it is a binary file, or UTF-16 without "
                        "its mark (then give encoding='utf-16-le')"
                    )
                decode(raw)
            decode(b"", True)
    except LookupError:
        raise TableError(f"no encoding is named {encoding!r}: try 'utf-8', 'latin-1' or 'utf-16'") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file ({error}): get it again") from error
    except UnicodeError as error:
        if given is None and encoding == "utf-8":
            notes.append("The file is not UTF-8 and was read as Latin-1: check names with accents.")
            return text_file(path, head, "latin-1", notes)
        raise TableError(f"{path}, line {line}: not {encoding} ({error}); give another encoding") from error
    return TextFile(path, encoding or "utf-8")


def find_layout(
    file: TextFile,
    delimiter: str | None,
    header: bool | None,
    missing: Sequence[str],
    notes: list[str],
    of_fit: Sequence[str] = (),
) -> Layout:
    """Find delimiter, comments, header and names of a text from its first lines.

    Args:
        file: The text.
        delimiter: The sign between cells, if it is given.
        header: Whether the first line holds names, if that is given.
        missing: What a missing cell may hold.
        notes: Takes what was decided.
        of_fit: Columns of an earlier table: a first line with all of them holds names.

    Returns:
        The layout.

    Raises:
        TableError: The text is not a table.
    """
    head, size = [], 0
    for line in file.lines():
        head.append(line)
        size += len(line)
        if len(head) == _HEAD_ROWS or (size > _HEAD_SIZE and len(head) >= _LEAST_HEAD):
            break
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
            raise TableError(f"delimiter must be one sign (ASCII) such as ',', ';', 'tab' or '|', got {delimiter!r}")
        if comments > start:
            _empty_comments(head, start, comments, delimiter, notes)
        rows = [(start + line, row) for line, row in _parse(head[start:], delimiter)]
    except csv.Error as error:
        raise TableError(f"{file.path} is not a table: {error}") from None
    if not rows:
        raise TableError(f"{file.path} is empty but for delimiters")
    if len(rows) >= _LEAST_HEAD:
        del rows[-1]  # it may go on below
    return _named(file.path, rows, delimiter, header, missing, notes, of_fit)


def chunks(file: TextFile, layout: Layout) -> Iterator[Chunk]:
    """Rows below the names of the columns, each as wide as these, without those in which every cell is empty."""
    width, at_once, path = len(layout.names), max(_CHUNK // len(layout.names), 1), file.path
    held: list[str] = []

    def noted() -> Iterator[str]:
        for line in file.lines(layout.delimiter, layout.start):
            held.append(line)
            yield line

    reader = _reader(noted(), layout.delimiter)
    texts, lines, row = [], array("q"), ""
    last = line = layout.start + 1
    try:
        for cells in reader:
            row = "".join(held)
            held.clear()
            if any(map(str.strip, cells)):
                if len(cells) != width and (len(cells) < width or any(map(str.strip, cells[width:]))):
                    _require_closed(path, line, row, layout.delimiter)
                    raise TableError(
                        f"{path}, line {line}: expected {width} cells as on line {layout.first_line}, found "
                        f"{len(cells)}. Quote a cell that holds the delimiter; leave a missing cell empty between two "
                        "delimiters; or name the delimiter if another one was meant"
                    )
                texts.append(row)
                lines.append(line)
            if len(lines) == at_once:
                yield Chunk("".join(texts), lines, layout.delimiter)
                texts, lines = [], array("q")
            last, line = line, layout.start + reader.line_num + 1
    except csv.Error:  # a cell that is too long
        raise TableError(_UNCLOSED.format(path, line)) from None
    _require_closed(path, last, row, layout.delimiter)
    if lines:
        yield Chunk("".join(texts), lines, layout.delimiter)


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != " ")


def _require_closed(path: Path, line: int, row: str, delimiter: str) -> None:
    """Raise a TableError if the text of a row ends within quotation marks."""
    try:
        list(csv.reader(io.StringIO(row, newline=""), delimiter=delimiter, strict=True) if '"' in row else ())
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise TableError(_UNCLOSED.format(path, line)) from None


def _parse(lines: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows that are not empty, with the line of each, counted from 1."""
    if delimiter == " ":
        lines = [re.sub(r"[ \t]+", " ", line.strip()) for line in lines]
    reader = _reader(lines, delimiter)
    rows, line = [], 1
    for cells in reader:
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            rows.append((line, stripped))
        line = reader.line_num + 1
    return rows


def _widths(lines: Sequence[str], delimiter: str) -> list[int]:
    """Numbers of cells of the rows; none where a cell is too long, as if this were not the delimiter."""
    try:
        return [len(cells) for _, cells in _parse(lines, delimiter)]
    except csv.Error:
        return []


def _sniff(head: Sequence[str]) -> str:
    best, delimiter = 0.6, ""
    for candidate in (*_DELIMITERS, " "):
        widths = _widths(head, candidate)
        width, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
        alike = count / max(len(widths), 1)
        if widths and width > 1 and widths[0] not in (width, max(width - 1, 2)):
            alike /= 2  # the header does not fit: the sign belongs to the cells
        if candidate == " ":  # blanks only as the last resort: names may hold them
            alike = alike if not delimiter and alike == 1 and _blanks_part_numbers(head) else 0
        if width > 1 and alike > best:
            best, delimiter = alike, candidate
    text = "".join(head)
    return delimiter or next((d for d in (",", ";", "\t") if d not in text), "\x1f")


def _blanks_part_numbers(head: Sequence[str]) -> bool:
    cells = _parse(head, " ")[-1][1]
    return 2 * sum(bool(PLAIN.fullmatch(cell)) for cell in cells) > len(cells)


def _empty_comments(head: list[str], start: int, end: int, delimiter: str, notes: list[str]) -> None:
    """Empty those of the lines with # above a table that have another number of cells than it: they are comments.

    A line of names may begin with # too, as those that NumPy writes do; between blanks the sign is a cell of its own.
    """
    below = [cells for _, cells in _parse(head[end:], delimiter)]
    filled = [max(j + 1 for j, cell in enumerate(cells) if cell) for cells in below]  # lines may end in delimiters
    width = Counter(map(len, below)).most_common(1)[0][0]
    widths = {width, Counter(filled).most_common(1)[0][0], len(below[0])}
    if any(map(is_numeric, below[0])):
        widths.add(width - 1)  # the names of columns beside names of rows
    left_out = []
    for i in range(start, end):
        if head[i].count('"') % 2:  # the cell goes on below
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
            "Left out as comments, since they begin with # and have other numbers of cells than the rows below: "
            f"{short(left_out[0])}{many}."
        )


def _has_header(first: Sequence[str], rest: Sequence[Sequence[str]], missing: set[str]) -> bool:
    texts = [j for j, cell in enumerate(first) if cell not in missing and not is_numeric(cell)]
    if not texts or not rest:
        return bool(texts)

    def numeric_below(j: int) -> bool:
        present = [cells[j] for cells in rest if j < len(cells) and cells[j] not in missing]
        return 2 * sum(map(is_numeric, present)) > len(present)

    if any(numeric_below(j) for j in texts):
        return True
    return not any(numeric_below(j) for j, cell in enumerate(first) if is_numeric(cell))


def _named(
    path: Path,
    rows: list[tuple[int, list[str]]],
    delimiter: str,
    header: bool | None,
    missing: Sequence[str],
    notes: list[str],
    of_fit: Sequence[str],
) -> Layout:
    """Take the header off the first rows, and give every column a name of its own."""
    line, first = rows[0]
    rest = [cells for _, cells in rows[1:]]
    by_row_name = bool(rest) and all(len(cells) == len(first) + 1 and cells[-1] for cells in rest)
    if header is None:
        header = by_row_name or _has_header(first, rest, set(missing))
        if not header and of_fit and set(of_fit) <= {re.sub(r"\s+", " ", cell) for cell in first}:
            header = True
            notes.append(
                f"Line {line} was read as names, since it holds those of the fit: if it is a row, say header=False "
                "(--header False)."
            )
    names = list(first) if header else [""] * len(first)
    if header and by_row_name:
        names = ["row", *names]
        notes.append("The header has one name less than the rows have cells: the first column was named 'row'.")
    if header and not rest:
        raise TableError(f"{path} has a header and no rows: expected lines of numbers below line {line}")
    head = rest if header else [first, *rest]
    while names and not names[-1] and not any("".join(cells[len(names) - 1 :]) for cells in head):
        names.pop()  # a delimiter at the end of every line
    if not header:
        notes.append(
            "No header line was found: columns are named by their position. If the first line holds names, say "
            "header=True (--header True)."
        )
    start = (rows[1] if header else rows[0])[0] - 1
    return Layout(delimiter, unique(names, notes), bool(header), start, line, head)


def unique(names: Sequence[str], notes: list[str]) -> list[str]:
    """Names of columns that differ from each other; one that is empty is its place."""
    seen: dict[str, None] = {}
    given = set(names)
    for j, name in enumerate(names):
        name = re.sub(r"\s+", " ", name) or f"column {j + 1}"
        new, k = name, 2
        while new in seen or (new != name and new in given):
            new, k = f"{name} ({k})", k + 1
        if new != name:
            notes.append(f"Column {j + 1} has the name {name!r} of an earlier one and is called {new!r} here.")
        seen[new] = None
    return list(seen)
