"""From the bytes of a table to rows of text: packing, encoding, delimiter, header and the names of the columns."""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from geodax.app.tables.number_forms import PLAIN, is_numeric
from geodax.data.errors import TableError, nearest, short

LARGEST_UNPACKED = 2**30
"""Bytes that a packed table may have once it is unpacked."""

_DELIMITERS = ("\t", ";", "|", ",")
_NAMES = " If the first line holds names, say header=True (--header True)."
_COMMENTS = re.compile(r"\ufeff?(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))+")  # lines with # above a table
_KINDS = (
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook (.xls): save it as CSV in the spreadsheet program"),
    (b"\xfd7zXZ", "an xz archive: unpack it first"),
    (b"BZh", "a bzip2 archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"7z\xbc\xaf", "a 7z archive: unpack it first"),
    (b"\x89HDF", "an HDF5 file: write its table as CSV or .npy"),
    (b"PAR1", "a Parquet file: write it as CSV"),
    (b"ARROW1", "an Arrow file: write it as CSV"),
    (b"SQLite format 3", "an SQLite database: write the table as CSV"),
    (b"%PDF", "a PDF document: get the table as CSV"),
    (b"\x89PNG", "a PNG image"),
    (b"\x80\x04", "a Python pickle, which is never opened: write it as CSV or .npy"),
    (b"\x80\x05", "a Python pickle, which is never opened: write it as CSV or .npy"),
)


class Row(NamedTuple):
    """The cells of one row, and the line of the file on which it begins."""

    line: int
    cells: list[str]


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file, unpacked where it is gzip."""
    try:
        if path.is_dir():
            raise TableError(f"{path} is a folder: name the file in it")
        if path.exists() and not path.is_file():
            raise TableError(
                f"{path} is no ordinary file but a device, a pipe or a socket: copy what it gives to a file"
            )
        raw = path.read_bytes()
    except ValueError as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{str(path)!r} can be no name of a file: {error}") from None
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise TableError(f"there is no file {path}{nearest(path.name, near)}") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    if raw.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = packed.read(LARGEST_UNPACKED + 1)
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise TableError(f"{path} is a damaged gzip file ({error}): get it again") from error
        if len(raw) > LARGEST_UNPACKED:
            raise TableError(
                f"{path} unpacks to more than {LARGEST_UNPACKED:,} bytes: expected a table that fits in memory. If it "
                "is one, unpack it first"
            )
    return raw


def decode(path: Path, raw: bytes, encoding: str | None, notes: list[str]) -> str:
    """Return the text of a file, or refuse what is no text."""
    if encoding is None:
        marks = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"))
        marks += ((b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
        encoding = next((name for mark, name in marks if raw.startswith(mark)), None)
    if encoding is None:
        for magic, kind in _KINDS:
            if raw.startswith(magic):
                if magic == b"PK\x03\x04" and b"xl/" in raw:
                    kind = "an Excel workbook (.xlsx): save it as CSV in the spreadsheet program"
                raise TableError(f"{path} is {kind}")
        if b"\0" in raw[:65536]:
            raise TableError(
                f"{path} holds NUL bytes: expected text, found a binary file, or UTF-16 without its mark "
                "(then give encoding='utf-16-le')"
            )
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            notes.append("The file is not UTF-8 and was read as Latin-1: check names with accents.")
            encoding = "latin-1"
    try:
        return raw.decode(encoding)
    except LookupError:
        raise TableError(f"no encoding is named {encoding!r}: try 'utf-8', 'latin-1' or 'utf-16'") from None
    except UnicodeError as error:
        line = raw[: getattr(error, "start", 0)].count(b"\n") + 1
        raise TableError(f"{path}, line {line}: not {encoding} ({error}); give another encoding") from error


def _parse(text: str, delimiter: str, strict: bool = False) -> list[Row]:
    if delimiter == " ":
        text = "\n".join(re.sub(r"[ \t]+", " ", line.strip()) for line in text.splitlines())
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=strict, skipinitialspace=delimiter != " "
    )
    rows, line = [], 1
    has_returns = "\r" in text
    for cells in reader:
        if has_returns:  # in quotation marks; how a program ends its lines is no part of a name
            cells = [cell.replace("\r\n", "\n").replace("\r", "\n") for cell in cells]
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            rows.append(Row(line, stripped))
        line = reader.line_num + 1
    return rows


def _sniff(text: str) -> str:
    sample = "\n".join(text[:200_000].splitlines()[:200])
    best, delimiter = 0.6, ""
    for candidate in (*_DELIMITERS, " "):
        widths = [len(row.cells) for row in _parse(sample, candidate)]
        width, count = Counter(widths).most_common(1)[0] if widths else (0, 0)
        alike = count / max(len(widths), 1)
        if widths and width > 1 and widths[0] not in (width, max(width - 1, 2)):
            alike /= 2  # the header does not fit: the sign belongs to the cells
        if candidate == " ":  # blanks only as the last resort: names may hold them
            alike = alike if not delimiter and alike == 1 and _blanks_part_numbers(sample) else 0
        if width > 1 and alike > best:
            best, delimiter = alike, candidate
    return delimiter or next((d for d in (",", ";", "\t") if d not in sample), "\x1f")


def _blanks_part_numbers(sample: str) -> bool:
    cells = _parse(sample, " ")[-1].cells
    return 2 * sum(bool(PLAIN.fullmatch(cell)) for cell in cells) > len(cells)


def split_rows(path: Path, text: str, delimiter: str | None, notes: list[str] | None = None) -> tuple[list[Row], str]:
    """Return the rows of a text and the delimiter, which is found when not given.

    Args:
        path: the file.
        text: its text.
        delimiter: the sign between cells, if it is given.
        notes: takes a sentence on comments that were left out.

    Returns:
        The rows that are not empty, and the delimiter.

    Raises:
        TableError: the text is no table.
    """
    try:
        return _split_rows(path, text, delimiter, [] if notes is None else notes)
    except csv.Error as error:
        raise TableError(
            f"{path} is no table: {error}. Expected cells of at most {csv.field_size_limit():,} signs"
        ) from None


def _split_rows(path: Path, text: str, delimiter: str | None, notes: list[str]) -> tuple[list[Row], str]:
    if not text.strip("\ufeff,;|\"' \t\r\n"):
        raise TableError(f"{path} is empty: expected a line of column names and lines of numbers")
    named = re.match(r"\ufeff?sep=(.)\r?\n", text)
    skipped = 0
    if named:
        delimiter, text, skipped = delimiter or named[1], text[named.end() :], 1
    delimiter = {"\\t": "\t", "tab": "\t", None: None}.get(delimiter, delimiter)
    comments = _COMMENTS.match(text)
    table = text[comments.end() :] if comments else ""
    if delimiter is None:
        delimiter = _sniff(table if table.strip() else text)
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"delimiter must be one sign such as ',', ';', 'tab' or '|', got {delimiter!r}")
    if comments and table.strip():
        text = _without_comments(comments[0], table, delimiter, notes) + table
    try:
        rows = _parse(text, delimiter, strict=True)
    except csv.Error as error:
        if "unexpected end of data" in str(error) or "field larger" in str(error):
            line = skipped + (_parse_until_error(text, delimiter) or 1)
            raise TableError(
                f"{path}, line {line}: a quotation mark opens here and is not closed: close or remove it"
            ) from None
        rows = _parse(text, delimiter)
    if not rows:
        raise TableError(f"{path} is empty but for delimiters")
    return [Row(row.line + skipped, row.cells) for row in rows], delimiter


def _without_comments(comments: str, table: str, delimiter: str, notes: list[str]) -> str:
    """Empty those of the lines with # above a table that have another number of cells than it: no names, but comments.

    A line of names may begin with # too, as those that NumPy writes do; between blanks the sign is a cell of its own.
    """
    below = _parse("\n".join(table[:200_000].splitlines()[:200]), delimiter)
    if not below:
        return comments
    whole = [len(row.cells) for row in below]
    filled = [max(j + 1 for j, cell in enumerate(row.cells) if cell) for row in below]  # lines may end in delimiters
    width = Counter(whole).most_common(1)[0][0]
    widths = {width, Counter(filled).most_common(1)[0][0], whole[0]}
    if any(map(is_numeric, below[0].cells)):
        widths.add(width - 1)  # the names of columns beside names of rows

    def kept(line: str) -> str:
        row = _parse(line, delimiter, strict=True)
        if not row:
            return line
        if delimiter == " " and row[0].cells[0] == "#" and len(row[0].cells) - 1 == width:
            return line.lstrip().removeprefix("#")
        return line if len(row[0].cells) in widths else ""

    lines = re.split(r"(\r\n|\r|\n)", comments)  # and what ends them, so that lines keep their numbers
    try:
        new = [line if j % 2 else kept(line) for j, line in enumerate(lines)]
    except csv.Error:  # a quotation mark opens here, and the cell may go on below
        return comments
    left_out = [line.strip() for line, rest in zip(lines, new, strict=True) if line.strip() and not rest.strip()]
    if left_out:
        many = f" and {len(left_out) - 1} more above the table" if len(left_out) > 1 else ""
        notes.append(
            "Left out as comments, since they begin with # and have other numbers of cells than the rows below: "
            f"{short(left_out[0])}{many}."
        )
    return "".join(new)


def _parse_until_error(text: str, delimiter: str) -> int:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error:
        pass
    return line


def _has_header(first: list[str], rest: list[Row], missing: set[str]) -> bool:
    texts = [j for j, cell in enumerate(first) if cell not in missing and not is_numeric(cell)]
    if not texts or not rest:
        return bool(texts)

    def numeric_below(j: int) -> bool:
        cells = [row.cells[j] for row in rest[:200] if j < len(row.cells)]
        present = [cell for cell in cells if cell not in missing]
        return 2 * sum(map(is_numeric, present)) > len(present)

    if any(numeric_below(j) for j in texts):
        return True
    return not any(numeric_below(j) for j, cell in enumerate(first) if is_numeric(cell))


def take_names(
    path: Path,
    rows: list[Row],
    header: bool | None,
    missing: Sequence[str],
    notes: list[str],
    of_fit: Sequence[str] = (),
) -> tuple[list[str], list[Row], bool]:
    """Take the header off, make the rows equally wide, and give every column a name of its own."""
    first = rows[0]
    by_row_name = len(rows) > 1 and all(len(row.cells) == len(first.cells) + 1 and row.cells[-1] for row in rows[1:])
    if header is None:
        header = by_row_name or _has_header(first.cells, rows[1:], set(missing))
        if not header and of_fit and set(of_fit) <= {re.sub(r"\s+", " ", cell) for cell in first.cells}:
            header = True
            notes.append(
                f"Line {first.line} was read as names, since it holds those of the fit: if it is a row, say "
                "header=False (--header False)."
            )
    names = list(first.cells) if header else [""] * len(first.cells)
    if header and by_row_name:
        names = ["row", *names]
        notes.append("The header has one name less than the rows have cells: the first column was named 'row'.")
    rows = rows[1:] if header else rows
    if not rows:
        raise TableError(f"{path} has a header and no rows: expected lines of numbers below line {first.line}")
    while names and not names[-1] and all("".join(row.cells[len(names) - 1 :]) == "" for row in rows):
        names.pop()  # a delimiter at the end of every line
    width = len(names)
    for row in rows:
        if len(row.cells) < width or any(row.cells[width:]):
            raise TableError(
                f"{path}, line {row.line}: expected {width} cells as on line {first.line}, found "
                f"{len(row.cells)}. Quote a cell that holds the delimiter; leave a missing cell empty "
                "between two delimiters; or name the delimiter if another one was meant"
            )
    if not header:
        notes.append(f"No header line was found: columns are named by their position.{_NAMES}")
    seen: set[str] = set()
    for j, name in enumerate(names):
        name = re.sub(r"\s+", " ", name) or f"column {j + 1}"
        new, k = name, 2
        while new in seen or (new != name and new in names):
            new, k = f"{name} ({k})", k + 1
        if new != name:
            notes.append(f"Column {j + 1} has the name {name!r} of an earlier one and is called {new!r} here.")
        seen.add(new)
        names[j] = new
    return names, [Row(row.line, row.cells[:width]) for row in rows], bool(header)
