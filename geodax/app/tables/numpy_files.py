"""Reads `.npy` and `.npz` files into columns."""

import io
import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.tables.columns import Column, numeric_column
from geodax.app.tables.names import are_nameless
from geodax.app.tables.number_forms import number_parser
from geodax.app.tables.text_files import LARGEST_UNPACKED
from geodax.data.errors import TableError, short

_HEADERS: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_size(archive: Any, most: int) -> None:
    """Raise ValueError if a zip archive, a path or an open file, would unpack to more bytes than ``most``.

    Damaged archives raise the errors of the standard library.
    """
    with zipfile.ZipFile(archive) as members:
        total = sum(member.file_size for member in members.infolist())
    if total > most:
        raise ValueError(f"it unpacks to {total:,} bytes: expected at most {most:,}")


def check_arrays(archive: Any, most: int) -> None:
    """Check the sizes of the arrays in an `.npz` archive, before any of them is unpacked.

    Raises ValueError if the archive is too large (:func:`check_size`), or an array declares another size than it has.
    """
    check_size(archive, most)
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            with members.open(member) as file:
                read = _HEADERS.get(np.lib.format.read_magic(file))
                shape, _, dtype = read(file) if read else ((), False, np.dtype(object))
                if dtype.hasobject or math.prod(shape) * dtype.itemsize + file.tell() != member.file_size:
                    raise ValueError(
                        f"{member.filename} has {member.file_size:,} bytes, but says that it is an array of shape "
                        f"{shape} and type {dtype}"
                    )


def read_numpy(path: Path, raw: bytes, missing: Sequence[str]) -> tuple[list[Column], bool]:
    """Read `.npy` and `.npz` files, never with pickle; return the columns, and whether they have names.

    Numbers listed in `missing` are missing, in any notation.
    """
    try:
        if raw.startswith(b"PK"):
            check_arrays(io.BytesIO(raw), LARGEST_UNPACKED)
        loaded: Any = np.load(io.BytesIO(raw), allow_pickle=False)
        arrays = dict(loaded) if isinstance(loaded, np.lib.npyio.NpzFile) else {"": loaded}
    except Exception as error:  # a damaged file can raise anything
        raise TableError(f"{path} holds no plain NumPy arrays ({error}). Object arrays are not read") from error
    shapes = ", ".join(f"{k or 'array'} {a.dtype} {a.shape}" for k, a in arrays.items()) or "nothing"
    rows = {a.shape[0] if a.ndim else 0 for a in arrays.values()}
    if len(rows) != 1 or rows == {0} or any(a.ndim > 2 for a in arrays.values()):
        raise TableError(f"{path}: expected arrays with one or two axes and the same number of rows, found {shapes}")
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
    parsed = map(number_parser(".", None), missing)
    holes = [number for number in parsed if number is not None]
    for name, a in parts:
        if a.ndim != 1 or a.dtype.kind not in "biufUS":
            raise TableError(f"{path}: column {name!r} must hold real numbers or text, found {a.dtype} {a.shape[1:]}")
        if a.dtype.kind in "US":
            text = tuple(c.decode("utf-8", "replace") if isinstance(c, bytes) else str(c) for c in a.tolist())
            columns.append(Column(name, None, text, f"text, such as {short(text[0])}"))
            continue
        values = a.astype(np.float64)
        values[np.isin(values, holes)] = np.nan
        columns.append(numeric_column(name, values, a if a.dtype.kind in "iu" else None))
    return columns, not are_nameless([column.name for column in columns])
