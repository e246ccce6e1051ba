"""Reading a user's table: CSV and its relatives, or NumPy arrays, into the numeric columns a model can use.

`read_table` works out the encoding, the delimiter, the header and the decimal sign, says in `Table.notes`
what it decided, and refuses with a `TableError` what it cannot decide: file, line, column, what was expected,
what was found, and the way out.
"""

import csv
import difflib
import gzip
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_MISSING = ("", "NA", "NaN", "nan", "null", "?", ".", "-")
_DELIMITERS = ("\t", ";", "|", ",")
_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([ \u00a0\u202f\u2009'’][0-9]{3})+([.,][0-9]*)?")
_POINT_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_COMMA_DECIMAL = re.compile(r"[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]*),[0-9]+([eE][+-]?[0-9]+)?")
_COMMA_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?")
_EITHER_COMMA = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_EITHER_POINT = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")
_INFINITE = re.compile(r"[+-]?(inf(inity)?|∞)", re.IGNORECASE)
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


class TableError(ValueError):
    """A table cannot be read, or does not hold what a model needs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """The numeric columns of a table, and what was left out.

    Attributes:
        path: the file.
        names: names of the numeric columns.
        values: float64, one row a line and one column a name; NaN where a cell is missing.
        dropped: why each other column was left out.
        row_labels: the first text column, or the line numbers.
        text: the text columns, for colouring points in a report.
        notes: sentences for the user: what was decided, left out, or looks odd.
        has_header: whether the first line gave the names.
        set_aside: numeric columns left out of `values` (constant, empty, not asked for), for `match_columns`.
        file_columns: the names of all columns in the order of the file.
    """

    path: str
    names: tuple[str, ...]
    values: np.ndarray
    dropped: Mapping[str, str] = field(default_factory=dict)
    row_labels: tuple[str, ...] = ()
    text: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_header: bool = True
    set_aside: Mapping[str, np.ndarray] = field(default_factory=dict)
    file_columns: tuple[str, ...] = ()


class _Row(NamedTuple):
    line: int
    cells: list[str]


class _Column(NamedTuple):
    """A column as read: numbers, or text with the reason why it is not numbers."""

    name: str
    numbers: np.ndarray | None
    text: tuple[str, ...] = ()
    reason: str = ""
    is_mistake: bool = False  # mostly numbers: the text cells are probably slips


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
    header: bool | None = None,
    missing: Sequence[str] = _MISSING,
) -> Table:
    """Read the numeric columns of a `.csv`, `.tsv`, `.txt`, `.csv.gz`, `.npy` or `.npz` file.

    Args:
        path: the file.
        columns: the numeric columns to keep, in this order; all that vary when not given.
        delimiter: the sign between cells; found among comma, semicolon, tab, bar and blanks when not given.
        encoding: found when not given: UTF-8, UTF-16 or UTF-32 by their marks, else Latin-1.
        decimal: "." or ",". With ".", a file whose commas can only be decimal ones is read so, with a note.
        thousands: "," or ".": the sign between groups of three digits; found when not given, if certain.
        header: whether the first line holds names; found when not given.
        missing: what a missing cell may hold.

    Returns:
        The table.

    Raises:
        TableError: the file cannot be read, or something in it needs a decision.
    """
    at = Path(path)
    raw = _read_bytes(at)
    if raw.startswith(b"\x93NUMPY") or (raw.startswith(b"PK") and at.suffix == ".npz"):
        read, labels, notes, has_header = _read_numpy(at, raw)
        return _assemble(at, read, labels, notes, has_header, columns)
    if decimal not in (".", ",") or thousands not in (None, ".", ",") or thousands == decimal:
        raise TableError(
            f"decimal must be '.' or ',' and thousands the other or None; got {decimal!r} and {thousands!r}"
        )
    notes = []
    text = _decode(at, raw, encoding, notes)
    rows, delimiter = _split(at, text, delimiter)
    names, rows, has_header = _names(at, rows, header, missing, notes)
    if thousands is None and decimal == ".":
        decimal, thousands = _separators(at, names, rows, set(missing), columns, delimiter, notes)
    elif thousands is None:
        thousands = "."
    lines = [row.line for row in rows]
    cells = zip(*(row.cells for row in rows), strict=True)
    wanted = set(names if columns is None else columns)
    parse = _parser(decimal, thousands)
    read = [_column(at, n, c, lines, set(missing), parse, n in wanted) for n, c in zip(names, cells, strict=True)]
    return _assemble(at, read, [str(line) for line in lines], notes, has_header, columns)


def match_columns(table: Table, names: Sequence[str]) -> Table:
    """Bring new data to the columns that a model was fitted to.

    Columns are matched by name, or by position when one of the two files has no header and both have equally
    many numeric columns. Further columns are left out with a note.

    Args:
        table: the new data.
        names: the columns of the training data, in order.

    Returns:
        A table whose names are `names`.

    Raises:
        TableError: a column is missing, or holds text.
    """
    pool = dict(zip(table.names, table.values.T, strict=True)) | dict(table.set_aside)
    numeric = [name for name in table.file_columns if name in pool]
    notes = list(table.notes)
    lacking = [name for name in names if name not in pool]
    nameless = not table.has_header or all(re.fullmatch(r"column [0-9]+", name) for name in names)
    if lacking and nameless and len(numeric) == len(names):
        notes.append(f"The {len(names)} numeric columns were matched by position: {', '.join(names)}.")
        pool = {new: pool[old] for new, old in zip(names, numeric, strict=True)}
        numeric = list(names)
    elif lacking:
        name = lacking[0]
        if name in table.text:
            raise TableError(f"{table.path}: column {name!r} must be numeric, but is {table.dropped[name]}")
        raise TableError(
            f"{table.path}: expected the columns {_listed(names)}, but {_listed(lacking)} "
            f"{'is' if len(lacking) == 1 else 'are'} not there{_nearest(name, numeric)}. Its numeric columns "
            f"are {_listed(numeric) or 'none'}: rename or add what is lacking"
        )
    extra = [name for name in numeric if name not in names]
    if extra:
        notes.append(f"Left out, since the model does not know them: {_listed(extra)}.")
    return replace(
        table,
        names=tuple(names),
        values=np.stack([pool[name] for name in names], axis=1),
        dropped={k: v for k, v in table.dropped.items() if k not in names} | dict.fromkeys(extra, "not in the model"),
        notes=tuple(notes),
        set_aside={name: pool[name] for name in extra},
    )


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _nearest(name: str, known: Sequence[str]) -> str:
    folded = {k.casefold(): k for k in known}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f" (did you mean {folded[near[0]]!r}?)" if near else ""


# --- bytes and text ----------------------------------------------------------------------------------------


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise TableError(f"{path} is a folder: name the file in it")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise TableError(f"there is no file {path}{_nearest(path.name, near)}") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    if raw.startswith(b"\x1f\x8b"):
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, ValueError) as error:
            raise TableError(f"{path} is a damaged gzip file ({error}): get it again") from error
    return raw


def _decode(path: Path, raw: bytes, encoding: str | None, notes: list[str]) -> str:
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


# --- rows --------------------------------------------------------------------------------------------------


def _parse(text: str, delimiter: str, strict: bool = False) -> list[_Row]:
    if delimiter == " ":
        text = "\n".join(re.sub(r"[ \t]+", " ", line.strip()) for line in text.splitlines())
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=strict, skipinitialspace=delimiter != " "
    )
    rows, line = [], 1
    for cells in reader:
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            rows.append(_Row(line, stripped))
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
    return 2 * sum(bool(_PLAIN.fullmatch(cell)) for cell in cells) > len(cells)


def _split(path: Path, text: str, delimiter: str | None) -> tuple[list[_Row], str]:
    if not text.strip("\ufeff,;|\"' \t\r\n"):
        raise TableError(f"{path} is empty: expected a line of column names and lines of numbers")
    named = re.match(r"\ufeff?sep=(.)\r?\n", text)
    skipped = 0
    if named:
        delimiter, text, skipped = delimiter or named[1], text[named.end() :], 1
    delimiter = {"\\t": "\t", "tab": "\t", None: None}.get(delimiter, delimiter)
    if delimiter is None:
        delimiter = _sniff(text)
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise TableError(f"delimiter must be one sign such as ',', ';', 'tab' or '|', got {delimiter!r}")
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
    return [_Row(row.line + skipped, row.cells) for row in rows], delimiter


def _parse_until_error(text: str, delimiter: str) -> int:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error:
        pass
    return line


def _is_numeric(cell: str) -> bool:
    cell = cell.replace("−", "-")
    forms = (_PLAIN, _POINT_GROUPED, _COMMA_DECIMAL, _COMMA_GROUPED, _GROUPED, _INFINITE)
    return any(form.fullmatch(cell) for form in forms)


def _has_header(first: list[str], rest: list[_Row], missing: set[str]) -> bool:
    texts = [j for j, cell in enumerate(first) if cell not in missing and not _is_numeric(cell)]
    if not texts or not rest:
        return bool(texts)

    def numeric_below(j: int) -> bool:
        cells = [row.cells[j] for row in rest[:200] if j < len(row.cells)]
        present = [cell for cell in cells if cell not in missing]
        return 2 * sum(map(_is_numeric, present)) > len(present)

    if any(numeric_below(j) for j in texts):
        return True
    return not any(numeric_below(j) for j, cell in enumerate(first) if _is_numeric(cell))


def _names(
    path: Path, rows: list[_Row], header: bool | None, missing: Sequence[str], notes: list[str]
) -> tuple[list[str], list[_Row], bool]:
    """Take the header off, make the rows equally wide, and give every column a name of its own."""
    first = rows[0]
    by_row_name = len(rows) > 1 and all(len(row.cells) == len(first.cells) + 1 and row.cells[-1] for row in rows[1:])
    if header is None:
        header = by_row_name or _has_header(first.cells, rows[1:], set(missing))
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
        notes.append("No header line was found: columns are named by their position.")
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
    return names, [_Row(row.line, row.cells[:width]) for row in rows], bool(header)


# --- numbers -----------------------------------------------------------------------------------------------


def _sign(cell: str) -> str:
    """Say what the commas and points of one number show."""
    if "," not in cell and cell.count(".") < 2:
        return "point?" if _EITHER_POINT.fullmatch(cell) else "decimal point" if "." in cell else "whole"
    if _EITHER_COMMA.fullmatch(cell):
        return "comma?"
    if _POINT_GROUPED.fullmatch(cell):
        return "comma groups"
    return "decimal comma with groups" if "." in cell else "decimal comma"


def _separators(
    path: Path,
    names: list[str],
    rows: list[_Row],
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
        numbers = [(line, cell) for line, cell in cells if _is_numeric(cell)]
        if 2 * len(numbers) > len(cells):
            for line, cell in numbers:
                seen.setdefault(_sign(cell), (line, cell, name))

    def where(kind: str) -> str:
        line, cell, name = seen[kind]
        return f"{cell!r} (line {line}, column {name!r})"

    german = next((k for k in ("decimal comma", "decimal comma with groups") if k in seen), None)
    english = next((k for k in ("comma groups", "decimal point") if k in seen), None)
    if german and english:
        raise TableError(
            f"{path}: {where(german)} has a decimal comma, but {where(english)} has not: write all numbers "
            "alike, or name the columns to read with columns=[...]"
        )
    if german:
        if "point?" in seen and "decimal comma with groups" not in seen:
            raise TableError(
                f"{path}: numbers have decimal commas, such as {where(german)}, so {where('point?')} may "
                "be a thousand or a fraction: say decimal=',' if its point parts thousands, or write a comma"
            )
        notes.append(f"Numbers were read with a decimal comma, such as {where(german)}.")
        return ",", "."
    if "comma groups" in seen or ("comma?" in seen and (english or delimiter == ",")):
        notes.append("Commas in numbers were taken as thousands separators.")
        return ".", ","
    if "comma?" in seen:
        raise TableError(f"{path}: {where('comma?')} may be a thousand or a fraction: say decimal=',' or thousands=','")
    return ".", None


def _parser(decimal: str, thousands: str | None) -> Callable[[str], float | None]:
    """Return a function from a cell to a number, or None when the cell is none."""
    grouped = {",": _POINT_GROUPED, ".": _COMMA_GROUPED}.get(thousands or "")

    def parse(cell: str) -> float | None:
        if decimal == "." and _PLAIN.fullmatch(cell):
            return float(cell)
        cell = cell.replace("−", "-")
        if _GROUPED.fullmatch(cell):
            cell = re.sub(r"[ \u00a0\u202f\u2009'’]", "", cell)
        if grouped and thousands and grouped.fullmatch(cell):
            cell = cell.replace(thousands, "")
        if decimal == ",":
            if "." in cell:
                return None
            cell = cell.replace(",", ".")
        if _INFINITE.fullmatch(cell):
            return -np.inf if cell.startswith("-") else np.inf
        return float(cell) if _PLAIN.fullmatch(cell) else None

    return parse


def _column(
    path: Path,
    name: str,
    cells: tuple[str, ...],
    lines: list[int],
    missing: set[str],
    parse: Callable[[str], float | None],
    is_wanted: bool,
) -> _Column:
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
        reason = f"line {lines[i]}, column {name!r}: expected a finite number, found {_short(cells[i])}"
        if is_wanted:
            raise TableError(f"{path}, {reason}. Correct it, or list it in missing=[...]")
        return _Column(name, None, cells, reason)
    if not odd:
        return _Column(name, values)
    line, cell = odd[0]
    mistake = 2 * len(odd) < present
    reason = f"text, such as {_short(cell)} on line {line}"
    if mistake:
        others = f" ({len(odd)} such cells of {present})" if len(odd) > 1 else f" (the others of {present} are numbers)"
        reason = f"line {line}, column {name!r}: expected a number, found {_short(cell)}{others}"
    return _Column(name, None, cells, reason, mistake)


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


# --- arrays and assembly -----------------------------------------------------------------------------------


def _read_numpy(path: Path, raw: bytes) -> tuple[list[_Column], list[str], list[str], bool]:
    """Read `.npy` and `.npz`, never with pickle; return columns, labels, notes, whether names were given."""
    try:
        loaded: Any = np.load(io.BytesIO(raw), allow_pickle=False)
        arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {"": loaded}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"{path} holds no plain NumPy arrays ({error}); arrays of objects are not read") from error
    shapes = ", ".join(f"{k or 'array'} {a.dtype} {a.shape}" for k, a in arrays.items()) or "nothing"
    rows = {a.shape[0] if a.ndim else 0 for a in arrays.values()}
    if len(rows) != 1 or rows == {0} or any(a.ndim > 2 for a in arrays.values()):
        raise TableError(f"{path}: expected arrays of one or two axes with equally many rows, found {shapes}")
    parts: list[tuple[str, np.ndarray]] = []
    for key, a in arrays.items():
        if a.dtype.names:
            parts += [(name, a[name]) for name in a.dtype.names]
        elif a.ndim == 1:
            parts.append((key or "column 1", a))
        else:
            stem = f"{key} " if key and len(arrays) > 1 else "column "
            parts += [(f"{stem}{j + 1}", a[:, j]) for j in range(a.shape[1])]
    columns = []
    for name, a in parts:
        if a.ndim != 1 or a.dtype.kind not in "biufUS":
            raise TableError(f"{path}: column {name!r} must hold real numbers or text, found {a.dtype} {a.shape[1:]}")
        if a.dtype.kind in "US":
            text = tuple(c.decode("utf-8", "replace") if isinstance(c, bytes) else str(c) for c in a.tolist())
            columns.append(_Column(name, None, text, f"text, such as {_short(text[0])}"))
            continue
        values = a.astype(np.float64)
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0]) + 1
            raise TableError(f"{path}, row {row}, column {name!r}: expected a finite number, found {values[row - 1]}")
        columns.append(_Column(name, values))
    named = any(not re.fullmatch(r"column [0-9]+", c.name) for c in columns)
    return columns, [str(i + 1) for i in range(rows.pop())], [], named


def _assemble(
    path: Path,
    read: list[_Column],
    labels: list[str],
    notes: list[str],
    has_header: bool,
    columns: Sequence[str] | None,
) -> Table:
    """Choose the columns a model can use and say what was left out."""
    names = [c.name for c in read]
    by_name = {c.name: c for c in read}
    for name in columns or ():
        if name not in by_name:
            raise TableError(f"{path} has no column {name!r}{_nearest(name, names)}: it has {_listed(names)}")
        if by_name[name].numbers is None:
            c = by_name[name]
            raise TableError(f"{path}, {c.reason}" if c.is_mistake else f"{path}: column {name!r} is {c.reason}")
    slips = [c.reason for c in read if c.is_mistake]
    if slips and columns is None:
        raise TableError(
            f"{path}, {slips[0]}. Correct the cell, list it in missing=[...], or name the columns to read "
            "with columns=[...]"
        )
    dropped: dict[str, str] = {}
    kept: dict[str, np.ndarray] = {}
    aside: dict[str, np.ndarray] = {}
    for c in read:
        x = c.numbers
        if x is None:
            dropped[c.name] = c.reason
            continue
        seen = x[~np.isnan(x)]
        state = ""
        if not len(seen):
            state = "all cells are missing"
        elif len(x) > 1 and np.all(seen == seen[0]):
            state = f"constant, always {seen[0]:g}"
        if columns is not None and c.name not in columns:
            dropped[c.name], aside[c.name] = "not asked for", x
        elif state and columns is None:
            dropped[c.name], aside[c.name] = state, x
        else:
            kept[c.name] = x
            if state:
                notes.append(f"Column {c.name!r} was asked for and is kept: {state}.")
    order = list(columns) if columns is not None else list(kept)
    if not order:
        found = "; ".join(f"{name!r}: {why}" for name, why in list(dropped.items())[:6])
        raise TableError(
            f"{path} has no numeric column that varies: found {found}. If the cells are not parted rightly, "
            "name the delimiter; if numbers have a decimal comma, say decimal=','"
        )
    values = np.stack([kept[name] for name in order], axis=1)
    text = {c.name: c.text for c in read if c.numbers is None}
    _remark(order, values, dropped, notes)
    return Table(
        path=str(path),
        names=tuple(order),
        values=values,
        dropped=dropped,
        row_labels=next(iter(text.values()), tuple(labels)),
        text=text,
        notes=tuple(notes),
        has_header=has_header,
        set_aside=aside,
        file_columns=tuple(names),
    )


def _remark(names: list[str], values: np.ndarray, dropped: Mapping[str, str], notes: list[str]) -> None:
    """Add what a careful reader of the table would want to know."""
    left_out = [f"{name!r} ({why})" for name, why in dropped.items() if why != "not asked for"]
    if left_out:
        more = f" and {len(left_out) - 12} more" if len(left_out) > 12 else ""
        notes.append(f"Columns left out: {', '.join(left_out[:12])}{more}.")
    holes = np.isnan(values)
    if holes.any():
        where = [f"{name!r} {n}" for name, n in zip(names, holes.sum(axis=0), strict=True) if n]
        rows = int(holes.all(axis=1).sum())
        whole = f"; in {rows} rows every cell is missing" if rows else ""
        notes.append(f"{holes.sum()} of {holes.size} cells are missing ({', '.join(where[:12])}){whole}.")
    if len(values) == 1:
        notes.append("There is one row only: enough to predict for, not enough to fit a model.")
    for name, x in zip(names, values.T, strict=True):
        if len(x) > 2 and not np.isnan(x).any() and x[0] in (0, 1) and np.all(np.diff(x) == 1):
            notes.append(f"Column {name!r} counts the rows: name the others with columns=[...] to leave it out.")
        if np.nanmax(np.abs(x), initial=0) > 1e18:
            notes.append(f"Column {name!r} has values above 1e18, whose squares overflow in single precision.")
