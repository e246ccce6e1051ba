"""Reads `.npy` and `.npz` files into columns."""

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.tables.columns import Column
from geodax.app.tables.number_forms import number_parser
from geodax.app.tables.text_files import LARGEST_UNPACKED
from geodax.data.errors import TableError, short


def check_packed(path: Path, raw: bytes) -> None:
    """Raise TableError for an archive that would unpack to too many bytes."""
    if not raw.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            total = sum(member.file_size for member in archive.infolist())
    except Exception as error:
        raise TableError(f"{path} is a damaged archive ({error}). Get a new copy") from error
    if total > LARGEST_UNPACKED:
        raise TableError(
            f"{path} unpacks to {total:,} bytes: expected at most {LARGEST_UNPACKED:,}. If it is a table, save it as "
            ".npy"
        )


def read_numpy(path: Path, raw: bytes, missing: Sequence[str]) -> tuple[list[Column], bool]:
    """Read `.npy` and `.npz` files, never with pickle; return the columns, and whether they have names.

    Numbers listed in `missing` are missing, in any notation.
    """
    check_packed(path, raw)
    try:
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
        if np.isinf(values).any():
            row = int(np.flatnonzero(np.isinf(values))[0]) + 1
            reason = f"row {row}, column {name!r}: expected a finite number, found {values[row - 1]}"
            columns.append(Column(name, None, tuple(map(str, a.tolist())), reason, True))
            continue
        columns.append(Column(name, values, whole=a if a.dtype.kind in "iu" else None))
    named = any(not re.fullmatch(r"column [0-9]+", c.name) for c in columns)
    return columns, named
