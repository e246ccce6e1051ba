"""CSV text cells that spreadsheets take for formulas."""

import contextlib
import csv
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_FIRST = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)")


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet takes a cell for a formula: it begins like one and is not a number."""
    return cell[:1] in _FIRST and not _NUMBER.fullmatch(cell)


def formulas_as_text(path: Path) -> None:
    """Replace a CSV file by one with an apostrophe before each cell that a spreadsheet would take for a formula."""
    marked = path.with_name(f"{path.name}.text")
    try:
        with _rows(path) as rows, open(marked, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([f"'{cell}" if is_formula(cell) else cell for cell in row] for row in rows)
        os.replace(marked, path)
    finally:
        marked.unlink(missing_ok=True)


def about_formulas(path: Path) -> tuple[str, ...]:
    """Return a note if a spreadsheet would take cells of a CSV file for formulas."""
    number, example = 0, ""
    with _rows(path) as rows:
        for cell in filter(is_formula, itertools.chain.from_iterable(rows)):
            number, example = number + 1, example or cell
    if not number:
        return ()
    return (
        f"Text cells that a spreadsheet takes for formulas: {number}, such as {example[:40]!r}. They are written "
        "unchanged; --spreadsheet writes an apostrophe before them.",
    )


@contextlib.contextmanager
def _rows(path: Path) -> Iterator[Iterator[list[str]]]:
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with open(path, newline="", encoding="utf-8") as file:
            yield csv.reader(file)
    finally:
        csv.field_size_limit(limit)
