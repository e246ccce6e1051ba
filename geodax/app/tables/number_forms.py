"""Forms of numbers in text cells: recognition, separators and values."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from geodax.app.tables.dates import dated

CURRENCIES = ("$", "€", "£")
PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([ \u00a0\u202f\u2009'’][0-9]{3})+([.,][0-9]*)?")
_POINT_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_COMMA_DECIMAL = re.compile(r"[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]*),[0-9]+([eE][+-]?[0-9]+)?")
_COMMA_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?")
_EITHER_COMMA = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_EITHER_POINT = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")
_INFINITE = re.compile(r"[+-]?(inf(inity)?|∞)", re.IGNORECASE)
_UNIT = re.compile(r"([+\-−]?)\s*([$€£]?)\s*([+\-−]?[0-9.,].*?)\s*([$€£%]?)")

_WITH_LETTERS = re.compile(r"[+\-−]?[0-9][0-9.,]*\s*([^\W\d_][^\s\d,;.]{0,9})")
NUMBERS_WITH = "numbers with the unit"


def is_numeric(cell: str) -> bool:
    """Return whether the cell is a number in any known form."""
    if PLAIN.fullmatch(cell):
        return True
    cell = cell.replace("−", "-")
    forms = (PLAIN, _POINT_GROUPED, _COMMA_DECIMAL, _COMMA_GROUPED, _GROUPED, _INFINITE)
    return any(form.fullmatch(cell) for form in forms)


def sign(cell: str) -> str:
    """Classify what the commas and points of a number show."""
    cell = cell.replace("−", "-")
    if "," not in cell and cell.count(".") < 2:
        return "point?" if _EITHER_POINT.fullmatch(cell) else "decimal point" if "." in cell else "whole"
    if _EITHER_COMMA.fullmatch(cell):
        return "comma?"
    if _POINT_GROUPED.fullmatch(cell):
        return "comma groups"
    return "decimal comma with groups" if "." in cell else "decimal comma"


def number_parser(decimal: str, thousands: str | None) -> Callable[[str], float | None]:
    """Return a function that converts a cell to a number, or to None if it is not one."""
    grouped = {",": _POINT_GROUPED, ".": _COMMA_GROUPED}.get(thousands or "")

    def parse(cell: str) -> float | None:
        if decimal == "." and PLAIN.fullmatch(cell):
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
        return float(cell) if PLAIN.fullmatch(cell) else None

    return parse


def without_unit(cells: Sequence[str]) -> tuple[list[str], str] | None:
    """Remove the percent or currency sign that all cells share; return the numbers and how they were read."""
    found = [_UNIT.fullmatch(cell) for cell in cells]
    units = {match and match[2] + match[4] for match in found}
    unit = units.pop() if len(units) == 1 else None
    if not unit or len(unit) > 1:
        return None
    numbers = [match[1] + match[3] for match in found if match]
    return (numbers, f"without its {unit}") if all(map(is_numeric, numbers)) else None


def with_letters(cells: Sequence[str]) -> str:
    """Return the unit in letters that all cells have behind a number, such as kg; empty if there is none."""
    found = [_WITH_LETTERS.fullmatch(cell) for cell in cells]
    units = {match and match[1] for match in found}
    return (units.pop() or "") if len(units) == 1 else ""


def coded(cells: Sequence[str]) -> tuple[np.ndarray | None, str] | None:
    """Convert booleans, dates or times to numbers; return as :func:`geodax.app.tables.dates.dated`."""
    for no, yes in (("false", "true"), ("no", "yes")):
        if cells and {cell.casefold() for cell in cells} <= {no, yes}:
            return np.array([cell.casefold() == yes for cell in cells], float), f"{yes} as 1, {no} as 0"
    return dated(cells)
