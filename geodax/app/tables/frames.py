"""Reads Excel workbooks and Parquet files, with optional libraries."""

import csv
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from geodax.app.tables.columns import Column, as_cells, numeric_column, read_column
from geodax.app.tables.dates import DATES, days
from geodax.app.tables.number_forms import number_parser
from geodax.app.tables.numpy_files import check_size
from geodax.app.tables.rows import unique
from geodax.app.tables.text_files import LARGEST_UNPACKED, TextFile, contents
from geodax.data.errors import TableError, listed, nearest, short

_HEAD = 100  # rows in which a table begins
CELL_END = "\x1f"
"""The delimiter of a workbook converted to text."""


def is_workbook(path: Path, head: bytes) -> bool:
    """Return whether a file begins as an Excel workbook."""
    return head.startswith(b"PK") and (b"xl/" in head or (path.suffix == ".xlsx" and b"[Content_Types].xml" in head))


def read_workbook(path: Path, sheet: str | None, notes: list[str]) -> TextFile:
    """Return one sheet of a workbook as text: by default the first with two rows of at least two cells."""
    _require("openpyxl", "excel", path, "an Excel workbook")
    import pandas as pd

    raw = contents(path)
    try:
        check_size(io.BytesIO(raw), LARGEST_UNPACKED)
        with pd.ExcelFile(io.BytesIO(raw), engine="openpyxl") as book:
            sheets = [str(name) for name in book.sheet_names]
            asked = [name for name in sheets if sheet in (None, name)]
            each = (pd.read_excel(book, sheet_name=name, header=None, dtype=object, na_filter=False) for name in asked)
            read = []
            for name, cells in zip(asked, each, strict=True):
                read.append((name, cells))
                if _is_table(cells):
                    break
    except Exception as error:  # of openpyxl, zipfile and XML
        raise TableError(f"{path} is a damaged Excel workbook ({error}). Save it again, or as CSV") from error
    if not read:
        raise TableError(
            f"{path} has no sheet {sheet!r}{nearest(str(sheet), sheets)}. Its sheets are {listed(sheets)}."
        )
    chosen, cells = read[-1] if _is_table(read[-1][1]) else read[0]
    if sheet is None and len(sheets) > 1:
        others = listed([name for name in sheets if name != chosen])
        notes.append(f"The sheet {chosen!r} of the workbook was read. The others are {others} (--sheet NAME).")
    text = io.StringIO()
    csv.writer(text, delimiter=CELL_END, lineterminator="\n").writerows(cells.itertuples(index=False, name=None))
    return TextFile(path, data=text.getvalue().encode("utf-8", "replace"))


def _is_table(cells) -> bool:
    return sum(sum(str(cell).strip() != "" for cell in row) > 1 for row in cells.head(_HEAD).to_numpy(object)) > 1


def read_parquet(path: Path, missing: Sequence[str], earlier_forms: Mapping[str, str]) -> list[Column]:
    """Return the columns of a Parquet file; strings are numbers only with a unit, or as dates or booleans.

    An index of pandas is a column, unless it has no name and only counts rows. ``earlier_forms`` are how columns of an
    earlier table were converted.
    """
    _require("pyarrow", "parquet", path, "a Parquet file")
    import pandas as pd

    try:
        frame = pd.read_parquet(io.BytesIO(contents(path)), engine="pyarrow")
    except Exception as error:  # of pyarrow
        raise TableError(f"{path} is a damaged Parquet file ({error}). Write it again, or as CSV") from error
    if any(frame.index.names) or not pd.api.types.is_integer_dtype(frame.index):
        frame = frame.reset_index(allow_duplicates=True)
    columns = []
    names = unique([str(name) for name in frame.columns], [])
    for name, (_, column) in zip(names, frame.items(), strict=True):
        if pd.api.types.is_datetime64_any_dtype(column):
            text = tuple(column.astype("string").fillna("").tolist())
            columns.append(Column(name, days(pd.DatetimeIndex(column)), text, form=DATES))
        elif pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            whole = column.to_numpy() if column.dtype.kind in "iu" and not column.hasnans else None
            columns.append(numeric_column(name, column.to_numpy(np.float64, na_value=np.nan), whole))
        else:
            text = tuple("" if hole else str(x) for x, hole in zip(column, column.isna(), strict=True))
            cells = as_cells(text).without_unit(missing)
            lines, number = range(1, len(text) + 1), number_parser(".", None)
            earlier = earlier_forms.get(name, "")
            found = read_column(name, cells, lines, missing, number, unit="row", earlier=earlier)
            if found.numbers is not None and found.form:
                columns.append(found._replace(text=text))
            else:
                columns.append(Column(name, None, text, f"text, such as {short(next(filter(None, text), ''))}"))
    if not len(frame) or not columns:
        raise TableError(f"{path} is empty: expected columns of numbers")
    return columns


def _require(library: str, extra: str, path: Path, kind: str) -> None:
    if find_spec(library) is None:
        raise TableError(
            f"{path} is {kind}. Reading it needs {library}, which is not installed. Install it with "
            f"`pip install 'geodax[{extra}]'`, or save the table as CSV"
        )
