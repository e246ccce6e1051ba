"""Reads the bytes and the text of users' tables: compression, encoding, and detection of files that are not text."""

import codecs
import contextlib
import functools
import gzip
import io
import re
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from geodax.data.errors import TableError, nearest

LARGEST_UNPACKED = 2**30
"""Largest unpacked size of a compressed table, in bytes."""

STANDARD_INPUT = "-"
"""The name of a table on standard input."""

_TOO_LARGE = "{} unpacks to more than {:,} bytes: expected a table that fits in memory. If it does, unpack it first"
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_KINDS = {
    b"PK\x03\x04": "a zip archive. Unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook (.xls). Save it as .xlsx or CSV",
    b"\xfd7zXZ": "an xz archive. Unpack it first",
    b"BZh": "a bzip2 archive. Unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive. Unpack it first",
    b"7z\xbc\xaf": "a 7z archive. Unpack it first",
    b"\x89HDF": "an HDF5 file. Write its table as CSV or .npy",
    b"ARROW1": "an Arrow file. Write it as CSV or Parquet",
    b"SQLite format 3": "an SQLite database. Write the table as CSV",
    b"%PDF": "a PDF document. Get the table as CSV",
    b"\x89PNG": "a PNG image",
    b"\x80\x04": "a Python pickle, which is never opened. Write it as CSV or .npy",
    b"\x80\x05": "a Python pickle, which is never opened. Write it as CSV or .npy",
}

_JSON = re.compile(rb'\s*(\{\s*"[^"]*"\s*:|\[\s*[\[{])')
_MARKUP = re.compile(rb"\s*<(!doctype|\?xml|html|table)\b", re.IGNORECASE)
_NETWORKX = re.compile(rb"(#.*\n)*[^\s,]+[ ,\t][^\s,]+[ ,\t]\{.*\}\r?(\n|$)")


class TextFile(NamedTuple):
    """A table as text.

    Attributes:
        data: Its bytes, if they do not come from the path.
    """

    path: Path
    encoding: str = "utf-8"
    data: bytes | None = None

    def open(self, start: int = 0) -> io.TextIOWrapper:
        """Open it for reading after the first ``start`` lines."""
        file = io.TextIOWrapper(unpacked(self.path, self.data), self.encoding, newline="")
        for _ in range(start):
            file.readline()
        return file


@functools.cache
def read_standard_input() -> bytes:
    """Return all bytes of standard input, which can be read only once."""
    return sys.stdin.buffer.read()


def unpacked(path: Path, data: bytes | None = None) -> Any:
    """Open a file for reading bytes, decompressing gzip."""
    if data is None and str(path) == STANDARD_INPUT:
        data = read_standard_input()
    raw = path.open("rb") if data is None else io.BytesIO(data)
    if raw.read(2) == b"\x1f\x8b":
        raw.close()
        return gzip.open(path if data is None else io.BytesIO(data))
    raw.seek(0)
    return raw


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file; raises TableError if it cannot be read."""
    try:
        if path.is_dir():
            raise TableError(f"{path} is a folder. Name the file in it")
        if path.exists() and not path.is_file():
            raise TableError(f"{path} is not a regular file but a device, a pipe or a socket. Pipe it in as -")
        with unpacked(path) as file:
            return file.read(65536)
    except TableError:
        raise
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise TableError(f"there is no file {path}{nearest(path.name, near)}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file ({error}). Get a new copy") from error
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, AttributeError) as error:  # a NUL in its name; no standard input
        raise TableError(f"{str(path)!r} cannot be read: {error}") from None


def contents(path: Path) -> bytes:
    """Return all bytes of a file, decompressing gzip."""
    try:
        with unpacked(path) as file:
            raw = file.read(LARGEST_UNPACKED + 1) if isinstance(file, gzip.GzipFile) else file.read()
            if isinstance(file, gzip.GzipFile) and len(raw) > LARGEST_UNPACKED:
                raise TableError(_TOO_LARGE.format(path, LARGEST_UNPACKED))
            return raw
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} cannot be read: {error}") from error


def text_file(path: Path, head: bytes, encoding: str | None, notes: list[str]) -> TextFile:
    """Detect the encoding of a file and validate the text; raises TableError if it is not text."""
    given = encoding
    if (given or "").lower() in ("utf-8", "utf8") and head.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    if given is None:
        encoding = next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")
        kind = next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), "")
        if kind:
            raise TableError(f"{path} is {kind}")
        if _JSON.match(head):
            raise TableError(f"{path} is JSON. Write it as CSV or Parquet")
        if _MARKUP.match(head):
            raise TableError(f"{path} is HTML or XML, whatever its name ends with. Save its table as .xlsx or CSV")
        if _NETWORKX.match(head):
            raise TableError(
                f"{path} has a dictionary in each line, as networkx.write_edgelist does. Write it with "
                "data=['weight'], or with data=False for edges without weights"
            )
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
                        f"{path}, line {line}: expected text, found NUL bytes. It is a binary file, or UTF-16 without "
                        "a byte order mark (then use encoding='utf-16-le')"
                    )
                decode(raw)
            decode(b"", True)
    except LookupError:
        raise TableError(f"unknown encoding {encoding!r}. Use 'utf-8', 'latin-1' or 'utf-16'") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path} is a damaged gzip file ({error}). Get a new copy") from error
    except UnicodeError as error:
        if given is None and encoding == "utf-8":
            notes.append("The file is not UTF-8 and was read as Windows-1252 or Latin-1. Check names with accents.")
            with contextlib.suppress(TableError):  # five bytes have no character there
                return text_file(path, head, "cp1252", notes)
            return text_file(path, head, "latin-1", notes)
        raise TableError(f"{path}, line {line}: not {encoding} ({error}). Use another encoding") from error
    return TextFile(path, encoding or "utf-8")
