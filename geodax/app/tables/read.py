"""Reading a user's table: text, arrays or a workbook, into the numeric columns a model can use.

`read_table` finds the encoding, the delimiter, the header and the decimal sign, and says in `Table.notes` what it
decided. What it cannot decide raises `TableError`, which names file, line and column, what was expected, what was
found, and what to do.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from geodax.app.tables.assembly import ASKED_FOR, COUNTS, Names, Table, assemble, stacked, what_is_asked
from geodax.app.tables.cells import read_columns
from geodax.app.tables.dialect import MISSING, NOTHING_SHOWN, Separators
from geodax.app.tables.frames import CELL_END, is_workbook, read_parquet, read_workbook
from geodax.app.tables.numpy_files import read_numpy
from geodax.app.tables.rows import find_layout
from geodax.app.tables.text_files import beginning, contents, text_file
from geodax.data.errors import TableError, listed, near, nearest

__all__ = ["ASKED_FOR", "Table", "if_all_there", "match_columns", "notes_on_reading", "read_table"]

_ON_READING = ("Numbers were read with", "Commas in numbers were", "The file is not UTF-8", "Read as numbers")
_MOST_SOUGHT = 12  # names for which a similar one is sought, which takes long among thousands
_IMPOSED = {
    sign: f"numbers were read with decimal={sign!r} (--decimal {sign}): for a {word} say decimal={other!r} (--decimal "
    f"{other})"
    for sign, word, other in ((".", "comma", ","), (",", "point", "."))
}
"""What to say of a number that cannot be read with the decimal sign that was said."""


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
        asked = what_is_asked([column.name for column in read], columns, text, needed, others, of_text)
        read = [column.as_text() if column.name in asked.text else column for column in read]
        return assemble(at, read, None, notes, has_header, asked, keep_constant)
    if is_workbook(at, head):
        file, delimiter = read_workbook(at, notes), CELL_END
    else:
        file = text_file(at, head, encoding, notes)
    layout = find_layout(file, delimiter, header, missing, notes, of_fit)
    asked = what_is_asked(layout.names, columns, text, needed, others, of_text)
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
        text=set(asked.text),
        needed=asked.needed,
        others=asked.others,
        earlier=earlier,
        imposed=imposed,
    )
    if shown is not None and not imposed:
        shown.append(found)
    table = assemble(at, read, lines, notes, layout.has_header, asked, keep_constant, imposed)
    return replace(table, separators=separators, lines=lines)


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
    notes = [note for note in table.notes if COUNTS not in note]  # the columns are chosen by now
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
        values=stacked([pool[name] for name in names], len(table.values)),
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
