"""Reading a user's table: CSV and its relatives, or NumPy arrays, into the numeric columns a model can use.

`read_table` works out the encoding, the delimiter, the header and the decimal sign, says in `Table.notes`
what it decided, and refuses with a `TableError` what it cannot decide: file, line, column, what was expected,
what was found, and the way out.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from geodax.data.columns import READ_AS_TEXT, Column, read_cells
from geodax.data.dialect import MISSING, NOTHING_SHOWN, POINT, Separators
from geodax.data.errors import TableError, listed, near, nearest
from geodax.data.frames import CELL_END, is_workbook, read_parquet, read_workbook
from geodax.data.numpy_files import read_numpy
from geodax.data.rows import find_layout
from geodax.data.text_files import beginning, contents, text_file

ASKED_FOR = ("not asked for", READ_AS_TEXT)
"""Reasons in `Table.dropped` that are the caller's."""

_COUNTS = "counts the rows"
_ON_READING = ("Numbers were read with", "Commas in numbers were", "The file is not UTF-8", "Read as numbers")
_OTHERS = "name the columns to read in columns (--columns, where the command has it)"

_MOST_SOUGHT = 12  # names for which a similar one is sought, which takes long among thousands
_COMMA = "; if numbers have a decimal comma, decimal=',' (--decimal ,)"
_IMPOSED = {
    sign: f"numbers were read with decimal={sign!r} (--decimal {sign}): for a {word} say decimal={other!r} (--decimal "
    f"{other})"
    for sign, word, other in ((".", "comma", ","), (",", "point", "."))
}
"""What to say of a number that cannot be read with the decimal sign that was said."""

Names = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""Columns of a table, or a function that chooses them among the names of all columns."""


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
        separators: the decimal sign and the sign between groups with which numbers were read.
        lines: the line of each row in the file; none where the file has no lines.
        is_by_position: whether columns were matched to those of a model by their places, so that their names in the
            file mean nothing.
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
    separators: Separators = POINT
    lines: Sequence[int] = ()
    is_by_position: bool = False


def read_table(
    path: str | PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    header: bool | None = None,
    missing: Sequence[str] = MISSING,
    text: Names = (),
    needed: Names | None = None,
    others: str = "",
    of_text: str = "",
    keep_constant: bool = False,
    of_fit: Sequence[str] = (),
    earlier: Separators = NOTHING_SHOWN,
    shown: list[Separators] | None = None,
) -> Table:
    """Read the numeric columns of a table.

    It is text (`.csv`, `.tsv`, `.txt`, packed by gzip or not), NumPy arrays (`.npy`, `.npz`), the first sheet of an
    Excel workbook (`.xlsx`), or a Parquet file; `-` is the standard input. Columns whose cells are all percentages,
    amounts in one currency, ISO dates, or true and false (yes and no) are read as numbers too, with a note.

    Lines above a text table that begin with # and have another number of cells are left out, with a note.

    Args:
        path: the file.
        columns: the numeric columns to keep, in this order; all that vary when not given. One that is named again
            counts once, with a note.
        delimiter: the sign between cells; found among comma, semicolon, tab, bar and blanks when not given.
        encoding: found when not given: UTF-8, UTF-16 or UTF-32 by their marks, else Latin-1.
        decimal: "." or ","; found when not given, if certain.
        thousands: "," or ".": the sign between groups of three digits; when not given, the other one than `decimal`,
            or found with it.
        header: whether the first line holds names; found when not given.
        missing: what a missing cell may hold.
        text: columns to read as text, whatever they hold, or a function that chooses them among the names of all
            columns; without numeric columns beside them `values` has no column.
        needed: the columns that count, or a function that chooses them: their cells show what commas and points mean,
            and must be numbers; others with a slip or an infinite number are left out. `columns` when not given, and
            all where they are not given either.
        others: what a message advises, beside `needed`, to leave out a column that counts.
        of_text: what a message adds where one of `columns` is text.
        keep_constant: whether to keep columns that do not vary too, as new data to predict for may not.
        of_fit: columns of an earlier table that this one should have; a first line with all of them holds names, be
            they numbers such as years.
        earlier: the separators that an earlier table has shown to which this one belongs, such as that of the fit. They
            count where numbers of this one may mean one thing or another; where it shows others itself, a note says so.
        shown: takes the separators that this table shows, for `earlier`.

    Returns:
        The table.

    Raises:
        TableError: the file cannot be read, or something in it needs a decision.
    """
    at = Path(path)
    notes: list[str] = []
    if columns is not None:
        twice = [name for name, times in Counter(columns).items() if times > 1]
        notes += [f"Column {name!r} was asked for more than once and counts once." for name in twice]
        columns = list(dict.fromkeys(columns))
    if decimal not in (None, ".", ",") or thousands not in (None, ".", ",") or (thousands and thousands == decimal):
        raise TableError(
            f"decimal must be '.' or ',' and thousands the other or None; got {decimal!r} and {thousands!r}"
        )
    head = beginning(at)
    is_numpy = head.startswith(b"\x93NUMPY") or (head.startswith(b"PK") and at.suffix == ".npz")
    if is_numpy or head.startswith(b"PAR1"):
        read, has_header = read_numpy(at, contents(at), missing) if is_numpy else (read_parquet(at), True)
        asked = _asked([column.name for column in read], columns, text, needed, others, of_text)
        read = [column.as_text() if column.name in asked.text else column for column in read]
        return _assemble(at, read, None, notes, has_header, asked, keep_constant)
    if is_workbook(at, head):
        file, delimiter = read_workbook(at, notes), CELL_END
    else:
        file = text_file(at, head, encoding, notes)
    layout = find_layout(file, delimiter, header, missing, notes, of_fit)
    asked = _asked(layout.names, columns, text, needed, others, of_text)
    separators, imposed = None, ""
    if decimal or thousands:
        other = {".": ",", ",": "."}
        separators = Separators(decimal or other[thousands or ","], thousands or other[decimal or "."])
        imposed = _IMPOSED[separators.decimal or "."]
    cells = read_cells(
        file, layout, missing, separators, notes, text=asked.text, needed=asked.needed, others=asked.others,
        earlier=earlier,
    )  # fmt: skip
    if shown is not None and separators is None:
        shown.append(cells.shown)
    lines = cells.parsed.lines.tolist()
    read = cells.columns(layout.names, asked.text, missing, imposed)
    table = _assemble(at, read, lines, notes, layout.has_header, asked, keep_constant, imposed)
    return replace(table, separators=cells.separators, lines=lines)


def if_all_there(names: Sequence[str], also: Sequence[str] = ()) -> Callable[[Sequence[str]], Sequence[str]]:
    """Which columns of new data count for a model.

    Args:
        names: Those that the model needs.
        also: Those that it can use.

    Returns:
        A function from the columns of a file to these. Where one that is needed is not among them, it is to all of
        them if `match_columns` may go by their places, and otherwise to those that are there, and those of similar
        names, which it will name; to all of them too if there is none of these.
    """

    def chosen(there: Sequence[str]) -> Sequence[str]:
        present, known = set(there), set(names)
        lacking = [name for name in names if name not in present]
        if lacking and (_are_nameless(names) or _are_nameless(there)):
            return there
        others = [name for name in there if name not in known]
        similar = {near(name, others) for name in lacking[:_MOST_SOUGHT]}
        found = [*(name for name in names if name in present), *(name for name in others if name in similar)]
        return [*found, *(name for name in also if name in present)] if found or not lacking else there

    return chosen


def notes_on_reading(table: Table) -> list[str]:
    """The notes of a table that say how its cells were read, whatever is made of them.

    Args:
        table: The table.

    Returns:
        Those about its encoding and about the signs inside numbers.
    """
    return [note for note in table.notes if note.startswith(_ON_READING)]


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
    notes = [note for note in table.notes if _COUNTS not in note]  # the columns are chosen by now
    lacking = [name for name in names if name not in pool]
    nameless = not table.has_header or _are_nameless(names)
    is_by_position = bool(lacking) and nameless and len(numeric) == len(names)
    if is_by_position:
        notes.append(f"The {len(names)} numeric columns were matched by position: {', '.join(names)}.")
        pool = {new: pool[old] for new, old in zip(names, numeric, strict=True)}
        numeric = list(names)
    elif lacking:
        name = lacking[0]
        if name in table.dropped:
            raise TableError(f"{table.path}: column {name!r} must be numeric, but is {table.dropped[name]}")
        raise TableError(
            f"{table.path}: expected the columns {listed(names)}, but {listed(lacking)} "
            f"{'is' if len(lacking) == 1 else 'are'} not there{_nearest(table, name, numeric, names)}. Its numeric "
            f"columns are {listed(numeric) or 'none'}: rename or add what is lacking"
        )
    extra = [name for name in numeric if name not in names]
    if extra:
        notes.append(f"Left out, since the model does not know them: {listed(extra)}.")
    return replace(
        table,
        names=tuple(names),
        values=_stacked([pool[name] for name in names], len(table.values)),
        dropped={k: v for k, v in table.dropped.items() if k not in names} | dict.fromkeys(extra, "not in the model"),
        notes=tuple(notes),
        set_aside={name: pool[name] for name in extra},
        is_by_position=is_by_position,
    )


def _are_nameless(names: Sequence[str]) -> bool:
    return all(re.fullmatch(r"column [0-9]+", name) for name in names)


def _nearest(table: Table, name: str, numeric: Sequence[str], names: Sequence[str]) -> str:
    """The nearest name among the numeric columns that are not matched, or else among the others."""
    free = [other for other in table.file_columns if other not in names]
    return nearest(name, [other for other in free if other in numeric]) or nearest(name, free)


class _Asked(NamedTuple):
    """What a caller wants of the columns."""

    columns: list[str] | None
    text: list[str]
    needed: set[str]
    others: str
    of_text: str


def _asked(
    names: Sequence[str],
    columns: Sequence[str] | None,
    text: Names,
    needed: Names | None,
    others: str,
    of_text: str,
) -> _Asked:
    if needed is None:
        counting = names if columns is None else columns
    else:
        counting = [*(needed(names) if callable(needed) else needed), *(columns or ())]
    chosen = list(text(names) if callable(text) else text)
    return _Asked(
        None if columns is None else list(columns),
        chosen,
        set(counting),
        _OTHERS if needed is None else others,
        of_text,
    )


def _assemble(
    path: Path,
    read: list[Column],
    lines: Sequence[int] | None,
    notes: list[str],
    has_header: bool,
    asked: _Asked,
    keep_constant: bool,
    imposed: str = "",
) -> Table:
    """Choose the columns a model can use and say what was left out."""
    columns, as_text = asked.columns, asked.text
    wanted = set(columns or ())
    names = [c.name for c in read]
    by_name = {c.name: c for c in read}
    for name in (*(columns or ()), *as_text):
        if name not in by_name:
            raise TableError(f"{path} has no column {name!r}{nearest(name, names)}: it has {listed(names)}")
        c = by_name[name]
        if c.numbers is None and name not in as_text and not c.is_mistake:
            raise TableError(f"{path}: column {name!r} is {c.reason}{f'; {asked.of_text}' if asked.of_text else ''}")
    slips = [c.reason for c in read if c.is_mistake and c.name in asked.needed and c.name not in as_text]
    if slips:
        cell, missing = "Correct the cell", "list it in missing (--missing on the command line)"
        ways = f"{cell}, {missing}, or {asked.others}" if asked.others else f"{cell}, or {missing}"
        raise TableError(f"{path}, {slips[0]}. {ways}")
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
        if columns is not None and c.name not in wanted:
            dropped[c.name], aside[c.name] = "not asked for", x
        elif state and columns is None and not keep_constant:
            dropped[c.name], aside[c.name] = state, x
        else:
            kept[c.name] = x
            if state and columns is not None:
                notes.append(f"Column {c.name!r} was asked for and is kept: {state}.")
    order = list(kept) if columns is None else [name for name in columns if name not in as_text]
    if not order and not as_text:
        found = "; ".join(f"{name!r}: {why}" for name, why in list(dropped.items())[:6])
        wanted = "numeric column" if keep_constant else "numeric column that varies"
        raise TableError(
            f"{path} has no {wanted}: found {found}. If the cells are not parted rightly, "
            f"say the delimiter (--delimiter on the command line){'' if imposed else _COMMA}"
        )
    num_rows = len(lines) if lines else len(read[0].text if read[0].numbers is None else read[0].numbers)
    values = _stacked([kept[name] for name in order], num_rows)
    text = {c.name: c.text for c in read if c.numbers is None and (c.name in as_text or not c.is_mistake)}
    forms = [f"{c.name!r} ({c.form})" for c in read if c.form and c.name in order]
    if forms:
        notes.append(f"Read as numbers: {', '.join(forms[:12])}{f' and {len(forms) - 12} more' * (len(forms) > 12)}.")
    _remark(order, values, dropped, notes)
    return Table(
        path=str(path),
        names=tuple(order),
        values=values,
        dropped=dropped,
        row_labels=next(iter(text.values()), ()) or tuple(map(str, lines or range(1, num_rows + 1))),
        text=text,
        notes=tuple(notes),
        has_header=has_header,
        set_aside=aside,
        file_columns=tuple(names),
    )


def _stacked(columns: list[np.ndarray], num_rows: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.empty((num_rows, 0))


def _remark(names: list[str], values: np.ndarray, dropped: Mapping[str, str], notes: list[str]) -> None:
    """Add what a careful reader of the table would want to know."""
    left_out = [f"{name!r} ({why})" for name, why in dropped.items() if why not in ASKED_FOR]
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
        if len(x) > 2 and x[0] == np.round(x[0]) and np.array_equal(x, x[0] + np.arange(len(x))):
            start = "" if x[0] in (0, 1) else f" from {x[0]:.0f} on"
            notes.append(f"Column {name!r} {_COUNTS}{start}: to leave it out, name the others in columns (--columns).")
        if np.nanmax(np.abs(x), initial=0) > 1e18:
            notes.append(f"Column {name!r} has values above 1e18, whose squares overflow in single precision.")
