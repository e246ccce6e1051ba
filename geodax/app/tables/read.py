"""Reads users' tables: text, arrays or workbooks, into the numeric columns a model can use.

`read_table` detects the encoding, delimiter, header and decimal separator, and records its decisions in `Table.notes`.
Ambiguous tables raise `TableError`, which names the file, line and column, what was expected, what was found, and what
to do.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from geodax.app.tables.assembly import ASKED_FOR, Names, OnCounting, Table, assemble, stacked, what_is_asked
from geodax.app.tables.cells import read_columns
from geodax.app.tables.columns import WITHOUT, Column
from geodax.app.tables.dates import DATES
from geodax.app.tables.dialect import MISSING, NOTHING_SHOWN, Separators
from geodax.app.tables.frames import CELL_END, is_workbook, read_parquet, read_workbook
from geodax.app.tables.names import are_nameless
from geodax.app.tables.number_forms import BOOLEAN_FORMS
from geodax.app.tables.numpy_files import read_numpy
from geodax.app.tables.rows import find_layout
from geodax.app.tables.summary_rows import without_summary
from geodax.app.tables.text_files import beginning, contents, text_file
from geodax.data.errors import TableError, listed, near, nearest

__all__ = ["ASKED_FOR", "Table", "if_all_there", "match_columns", "notes_on_reading", "read_table"]

_ON_READING = ("Numbers were read with", "Commas in numbers were", "The file is not UTF-8", "Read as numbers")
_MOST_SOUGHT = 12  # names for which similar ones are searched; slow for thousands
_IMPOSED = {
    sign: f"numbers were read with --decimal {sign}. For a {word} use --decimal {other}"
    for sign, word, other in ((".", "comma", ","), (",", "point", "."))
}
"""Advice for a number that cannot be read with the given decimal separator."""


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    header: bool | None = None,
    sheet: str | None = None,
    missing: Sequence[str] = MISSING,
    text: Names = (),
    needed: Names | None = None,
    others: str = "",
    may_be_text: bool = False,
    leave_out: str = "name the other columns with --columns",
    keep_constant: bool = False,
    of_fit: Sequence[str] = (),
    earlier: Separators = NOTHING_SHOWN,
    shown: list[Separators] | None = None,
    earlier_forms: Mapping[str, str] | None = None,
    forms: dict[str, str] | None = None,
) -> Table:
    """Read the numeric columns of a table.

    The file may be text (`.csv`, `.tsv`, `.txt`, optionally gzipped), NumPy arrays (`.npy`, `.npz`), a sheet of
    an Excel workbook (`.xlsx`), or a Parquet file; `-` is standard input. Columns of numbers with one unit or currency,
    dates, times, or booleans (true/false, yes/no) are converted to numbers, with a note.

    Lines above a text table are left out, with a note, if they begin with # and have another number of cells, or have a
    single cell above a line of names. Up to three last rows are left out, with a note, if they begin with the sums or
    means of the rows above, and so are sums of groups of rows that are called totals, unless `keep_constant`.

    Args:
        path: The file.
        columns: Numeric columns to keep, in this order; by default all that vary. Repeated names count once, with a
            note.
        delimiter: Delimiter between cells; by default detected among comma, semicolon, tab, bar and spaces.
        encoding: Encoding; by default UTF-8, UTF-16 or UTF-32 by the byte order mark, else Windows-1252 or Latin-1.
        decimal: "." or ","; by default detected if unambiguous.
        thousands: "," or ".", the separator between groups of three digits; by default the one that is not `decimal`,
            or detected with it.
        header: Whether the first line holds names; by default detected.
        sheet: Sheet of a workbook; by default the first that holds a table.
        missing: Values of missing cells.
        text: Columns to read as text, or a function that chooses them among all column names. Without other numeric
            columns, `values` has no columns.
        needed: The columns that count, or a function that chooses them: their cells determine the separators and must
            be numbers; other columns with a typo or an infinite number are left out. By default `columns`, or all
            columns.
        others: Advice in messages, besides `needed`, on how to leave out a column that counts.
        may_be_text: Whether `columns` may include text columns; they are in `text`, not in `values`.
        leave_out: Advice in notes on how to leave out a column.
        keep_constant: Whether to keep constant columns and rows of sums too, as for new data to predict for.
        of_fit: Columns of an earlier table that this one should have. A first line with all of them is a header, even
            if they are numbers such as years.
        earlier: Separators of an earlier table that this one belongs to, such as that of the fit. They decide where
            numbers of this table are ambiguous; if this table shows others, a note says so.
        shown: List that receives the separators this table shows, for `earlier`.
        earlier_forms: How columns of the earlier table were converted to numbers. If units are there in one table only,
            a note says so.
        forms: Receives how columns of this table were converted to numbers, for `earlier_forms`.

    Returns:
        The table.

    Raises:
        TableError: If the file cannot be read, needs a decision by the user, or has other units than the earlier one.
    """
    at = Path(path)
    notes: list[str] = []
    if columns is not None:
        twice = [name for name, times in Counter(columns).items() if times > 1]
        notes += [f"Column {name!r} was requested more than once and counts once." for name in twice]
        columns = list(dict.fromkeys(columns))
    if decimal not in (None, ".", ",") or thousands not in (None, ".", ",") or (thousands and thousands == decimal):
        raise TableError(
            f"decimal must be '.' or ',' and thousands the other one or None, found {decimal!r} and {thousands!r}"
        )
    head = beginning(at)
    is_numpy = head.startswith(b"\x93NUMPY") or (head.startswith(b"PK") and at.suffix == ".npz")
    if is_numpy or head.startswith(b"PAR1"):
        read, has_header = (
            read_numpy(at, contents(at), missing)
            if is_numpy
            else (read_parquet(at, missing, earlier_forms or {}), True)
        )
        asked = what_is_asked([column.name for column in read], columns, text, needed, others, may_be_text, leave_out)
        read = [column.as_text() if column.name in asked.text else column for column in read]
        _compare_forms(at, read, asked.needed, earlier_forms, forms, notes)
        return assemble(at, read, None, notes, has_header, asked, keep_constant)
    if is_workbook(at, head):
        file, delimiter = read_workbook(at, sheet, notes), CELL_END
    else:
        file = text_file(at, head, encoding, notes)
    layout = find_layout(file, delimiter, header, missing, notes, of_fit)
    asked = what_is_asked(layout.names, columns, text, needed, others, may_be_text, leave_out)
    separators, imposed = None, ""
    if decimal or thousands:
        other = {".": ",", ",": "."}
        separators = Separators(decimal or other[thousands or ","], thousands or other[decimal or "."])
        imposed = _IMPOSED[separators.decimal or "."]
    read, lines, separators, found = read_columns(
        file,
        layout,
        missing,
        separators,
        notes,
        asked,
        earlier=earlier,
        earlier_forms=earlier_forms or {},
        imposed=imposed,
    )
    _compare_forms(at, read, asked.needed, earlier_forms, forms, notes)
    if shown is not None and not imposed:
        shown.append(found)
    if not keep_constant:
        read, lines = without_summary(read, lines, notes)
    table = assemble(at, read, lines, notes, layout.has_header, asked, keep_constant, imposed)
    return replace(table, separators=separators, lines=lines)


def _compare_forms(
    path: Path,
    read: Sequence[Column],
    needed: Collection[str],
    earlier: Mapping[str, str] | None,
    found: dict[str, str] | None,
    notes: list[str],
) -> None:
    """Keep the forms of columns; note units that only one of two tables has, and raise for forms that differ."""
    if found is not None:
        found.update({column.name: column.form for column in read if column.form})
    if earlier is None or are_nameless([column.name for column in read]):
        return
    for name, numbers, new in ((c.name, c.numbers, c.form) for c in read if c.name in needed):
        old, present = earlier.get(name, ""), np.empty(0) if numbers is None else numbers[~np.isnan(numbers)]
        if not len(present) or old == new or all(not form or form in BOOLEAN_FORMS for form in (old, new)):
            continue
        if old.startswith(DATES) and new.startswith(DATES):
            if old != DATES != new:
                notes.append(f"Column {name!r} was read as {new}; the fitted table had {old}.")
            continue
        unit, had = new.removeprefix(WITHOUT), old.removeprefix(WITHOUT)
        if not new and had != old:
            number = f"{present[0]:g}"
            notes.append(
                f"Column {name!r} had the unit {had} in the fit and has none here: {number} counts as {number} {had}."
            )
        elif not old and unit != new:
            notes.append(f"Column {name!r} has the unit {unit} here, but had none in the fit: only the numbers count.")
        else:
            had, unit = (form.replace(WITHOUT, "numbers with ", 1) or "plain numbers" for form in (old, new))
            raise TableError(
                f"{path}: column {name!r} was read as {had} in the fit, found {unit}. Write it as in the fitted table"
            )


def if_all_there(names: Sequence[str], also: Sequence[str] = ()) -> Callable[[Sequence[str]], Sequence[str]]:
    """Make a function from a file's columns to those that count for a model that needs ``names`` and can use ``also``.

    If a needed one is missing, it returns all columns when `match_columns` may match by position; otherwise the
    existing ones and those with similar names, which the error will mention; or all columns if there are none of these.
    """

    def chosen(there: Sequence[str]) -> Sequence[str]:
        present, known = set(there), set(names)
        lacking = [name for name in names if name not in present]
        if lacking and (are_nameless(names) or are_nameless(there)):
            return there
        others = [name for name in there if name not in known]
        similar = {near(name, others) for name in lacking[:_MOST_SOUGHT]}
        found = [*(name for name in names if name in present), *(name for name in others if name in similar)]
        return [*found, *(name for name in also if name in present)] if found or not lacking else there

    return chosen


def notes_on_reading(table: Table) -> list[str]:
    """Return the notes about encoding and number formats, which apply whatever the cells are used for."""
    return [note for note in table.notes if note.startswith(_ON_READING)]


def match_columns(table: Table, names: Sequence[str]) -> Table:
    """Match new data to the columns that a model was fitted to.

    The result has the columns of the training data, in their order. Columns are matched by name, or by position if one
    of the two files has no header and both have the same number of numeric columns. Further columns are left out with a
    note. Raises TableError if a column is missing or holds text.
    """
    pool = dict(zip(table.names, table.values.T, strict=True)) | dict(table.set_aside)
    numeric = [name for name in table.file_columns if name in pool]
    notes = [note for note in table.notes if not isinstance(note, OnCounting)]  # the columns are already chosen
    lacking = [name for name in names if name not in pool]
    nameless = not table.has_header or are_nameless(names)
    is_by_position = bool(lacking) and nameless and len(numeric) == len(names)
    if is_by_position:
        notes.append(f"The {len(names)} numeric columns were matched by position: {', '.join(names)}.")
        pool = {new: pool[old] for new, old in zip(names, numeric, strict=True)}
        numeric = list(names)
    elif lacking:
        absent = [name for name in lacking if name not in table.file_columns]
        if not absent:
            name = lacking[0]
            raise TableError(f"{table.path}: column {name!r} must be numeric, but is {table.dropped[name]}")
        raise TableError(
            f"{table.path}: expected the columns {listed(names)}, but {listed(absent)} "
            f"{'is' if len(absent) == 1 else 'are'} missing{_nearest(table, absent[0], numeric, names)}. Its numeric "
            f"columns are {listed(numeric) or 'none'}. Rename or add the missing columns"
        )
    extra = [name for name in numeric if name not in names]
    if unsaid := [name for name in extra if name not in table.dropped]:
        notes.append(f"Left out, because the model does not use them: {listed(unsaid)}.")
    return replace(
        table,
        names=tuple(names),
        values=stacked([pool[name] for name in names], len(table.values)),
        dropped={k: v for k, v in table.dropped.items() if k not in names} | dict.fromkeys(extra, "not in the model"),
        notes=tuple(notes),
        set_aside={name: pool[name] for name in extra},
        is_by_position=is_by_position,
    )


def _nearest(table: Table, name: str, numeric: Sequence[str], names: Sequence[str]) -> str:
    """Find the nearest name among unmatched numeric columns, or else among the others."""
    free = [other for other in table.file_columns if other not in names]
    return nearest(name, [other for other in free if other in numeric]) or nearest(name, free)
