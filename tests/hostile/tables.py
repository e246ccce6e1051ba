"""Odd tables: rows, names, cells, encodings and packings as they come, and files that are no tables at all."""

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

NAMES = [
    "a",
    "b",
    "y",
    "",
    " ",
    "a",
    "../x",
    "/etc/passwd",
    "..",
    ".",
    "C:\\x",
    "<script>alert(1)</script>",
    '"><img src=x onerror=y>',
]
NAMES += [
    "=1+1",
    "Größe",
    "列",
    "🙂",
    "\u202egnp.exe",
    "a\0b",
    "x" * 5000,
    "chain",
    "draw",
    "position",
    "mean",
    "NaN",
    "1",
    "1.5",
    "-",
    "'; --",
    "%s",
    "{0}",
    "\\N",
    "`a`",
]

CELLS = [
    "1",
    "2.5",
    "-3",
    "0",
    "",
    "NA",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    "1e308",
    "1e-400",
    "1,5",
    "1.234,5",
    "1 000",
    "0x10",
    "1_000",
    "٣",
    "²",
]
CELLS += [
    "abc",
    "<b>",
    '"',
    "a\nb",
    "a,b",
    ";",
    "\t",
    "True",
    "None",
    "1e",
    "--1",
    "+",
    "1/2",
    "12:30",
    "2026-01-01",
    "$5",
    "5%",
    "x" * 140_000,
    "\ufeff1",
    "\x1b[31m",
]

_number = st.floats(-5, 5).map(lambda x: f"{x:.3f}")


@st.composite
def _cells(draw):
    """Mostly numbers, so that some tables are read."""
    return draw(_number) if draw(st.integers(0, 19)) else draw(st.sampled_from(CELLS))


@st.composite
def texts(draw) -> str:
    """A table as text: rows of some width, more or less equal."""
    width, height = draw(st.integers(1, 5)), draw(st.integers(0, 9))
    sign, line = (
        draw(st.sampled_from([",", ",", ";", "\t", "|", " "])),
        draw(st.sampled_from(["\n", "\n", "\r\n", "\r"])),
    )
    names = ["a", "b", "y", "c", "d"][:width]
    if draw(st.integers(0, 2)) == 0:
        names = draw(st.lists(st.sampled_from(NAMES), min_size=width, max_size=width))
    rows = [names] if draw(st.integers(0, 4)) else []
    for _ in range(height):
        row = draw(st.lists(_cells(), min_size=width, max_size=width))
        if draw(st.integers(0, 15)) == 0:
            row = row[: len(row) // 2] if draw(st.booleans()) else [*row, "9", "x"]
        rows.append(row)
    is_quoted = draw(st.booleans())

    def written(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if is_quoted and any(c in cell for c in '",;\n\t|') else cell

    return line.join(sign.join(map(written, row)) for row in rows) + (line if draw(st.booleans()) else "")


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype == object)
    return stream.getvalue()


def bomb() -> bytes:
    """A small archive whose directory says that it unpacks to four gigabytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(2**20))
    return stream.getvalue().replace((2**20).to_bytes(4, "little"), (2**32 - 2).to_bytes(4, "little"))


SPECIAL = {
    "empty": (b"", ".csv"),
    "one newline": (b"\n", ".csv"),
    "byte order mark alone": (b"\xef\xbb\xbf", ".csv"),
    "nothing but delimiters": (b",,,\n,,,\n", ".csv"),
    "nothing but quotes": (b'"""""""\n"', ".csv"),
    "open quote": (b'a,b\n1,"2\n3,4\n' * 50, ".csv"),
    "NUL bytes": (b"a,b\n1,\0\n3,4\n", ".csv"),
    "UTF-16 without mark": ("a,b\n1,2\n3,4\n".encode("utf-16-le"), ".csv"),
    "odd UTF-16": (b"\xff\xfea,b", ".csv"),
    "UTF-32": ("a,b\n1,2\n3,5\n4,4\n".encode("utf-32"), ".csv"),
    "Latin-1": ("Größe,b\n1,2\n3,5\n4,4\n".encode("latin-1"), ".csv"),
    "random bytes": (np.random.default_rng(0).bytes(4000), ".csv"),
    "thousands of columns": (
        (",".join(f"c{i}" for i in range(5000)) + "\n" + ",".join(["1"] * 5000) + "\n").encode(),
        ".csv",
    ),
    "a long line": (b"1" * 300_000, ".csv"),
    "a long cell": (b"a,b\n" + b"x" * 200_000 + b",2\n3,4\n", ".csv"),
    "pickle": (b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07builtin\x94.", ".csv"),
    "zip": (_npz({"a": np.ones(3)}), ".csv"),
    "damaged gzip": (gzip.compress(b"a,b\n1,2\n3,4\n")[:-5], ".csv.gz"),
    "gzip of rubbish": (b"\x1f\x8b" + bytes(50), ".csv.gz"),
    "gzip within gzip": (gzip.compress(gzip.compress(b"a,b\n1,2\n")), ".csv.gz"),
    "npy": (_npy(np.random.default_rng(0).standard_normal((6, 3))), ".npy"),
    "npy of objects": (_npy(np.array([{"a": 1}, None], dtype=object)), ".npy"),
    "npy of complex numbers": (_npy(np.ones((3, 2), complex)), ".npy"),
    "npy of three axes": (_npy(np.ones((3, 2, 2))), ".npy"),
    "npy without axes": (_npy(np.ones(())), ".npy"),
    "npy without rows": (_npy(np.ones((0, 3))), ".npy"),
    "npy with NaN": (_npy(np.full((5, 2), np.nan)), ".npy"),
    "npy with infinity": (_npy(np.full((5, 2), np.inf)), ".npy"),
    "npy of dates": (_npy(np.zeros((3, 2), "M8[s]")), ".npy"),
    "npy that lies about its shape": (_npy(np.ones((3, 2))).replace(b"(3, 2)", b"(3,9**9)"[:6]), ".npy"),
    "npy with a huge shape": (_npy(np.ones((3, 2))).replace(b"(3, 2), }", b"(9999999999999, ), }"[:9]), ".npy"),
    "npy cut short": (_npy(np.ones((30, 2)))[:-100], ".npy"),
    "npy with code in its header": (_npy(np.ones(3)).replace(b"{'descr'", b"__import"), ".npy"),
    "npz of odd names": (_npz({"../x": np.ones(4), "/etc/y": np.arange(4.0), "<script>": np.arange(4.0) ** 2}), ".npz"),
    "npz of unequal rows": (_npz({"a": np.ones(4), "b": np.ones(3)}), ".npz"),
    "npz without arrays": (_npz({}), ".npz"),
    "npz cut short": (_npz({"a": np.ones(400)})[:-30], ".npz"),
    "npz that says it is large": (bomb(), ".npz"),
    "text called npy": (b"a,b\n1,2\n", ".npy"),
}
"""Contents and endings of files that a generator of rows would not come upon."""


@st.composite
def contents(draw) -> tuple[bytes, str]:
    """The contents and the ending of a file."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from(sorted(SPECIAL.items())))[1]
    if kind == 1:
        return draw(st.binary(max_size=200)), draw(st.sampled_from([".csv", ".npy", ".npz", ".csv.gz", ""]))
    text = draw(texts())
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-32"]))
    raw = text.encode(encoding, "replace")
    if kind == 2:
        place = draw(st.integers(0, max(len(raw) - 1, 0)))
        raw = raw[:place] + draw(st.binary(min_size=1, max_size=3)) + raw[place + 1 :]
    if kind == 3:
        return gzip.compress(raw), ".csv.gz"
    return raw, draw(st.sampled_from([".csv", ".csv", ".tsv", ".txt", ""]))


def write(folder: Path, raw: bytes, ending: str) -> Path:
    """A file with these contents."""
    path = folder / f"table{ending}"
    path.write_bytes(raw)
    return path
