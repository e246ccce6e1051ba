"""Forms of numbers in text cells: recognition, separators and values."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from geodax.app.tables.dates import dated

CURRENCIES = ("$", "€", "£", "¥", "₹", "USD", "EUR", "GBP", "CHF")
PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}([ \u00a0\u202f\u2009'’][0-9]{3})+([.,][0-9]*)?")
_POINT_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_COMMA_DECIMAL = re.compile(r"[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]*),[0-9]+([eE][+-]?[0-9]+)?")
_COMMA_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?")
_EITHER_COMMA = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_EITHER_POINT = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")
_INFINITE = re.compile(r"[+-]?(inf(inity)?|∞)", re.IGNORECASE)
_BOOLEANS = (("false", "true"), ("no", "yes"))
BOOLEAN_FORMS = tuple(f"{yes} as 1, {no} as 0" for no, yes in _BOOLEANS)
_CURRENCY = "|".join(map(re.escape, CURRENCIES))
_LETTERS = r"(?:[^\W\d_]|[%°])[^\d\s:;,.][^\d:;,]{0,12}?[23²³]?|(?:[^\W\d_]|[%°])[23²³]?"  # kg, sq ft, m2, %
_UNIT = re.compile(rf"([+\-−]?)\s*({_CURRENCY})?\s*([+\-−]?[0-9.,].*?)\s*({_CURRENCY}|{_LETTERS})?")
_NEAR = re.compile(
    rf"\(({_CURRENCY})?(?P<negative>.+?)({_CURRENCY})?\)|(?P<bound>[<>≤≥]=?\s*)(?P<end>.+)|"
    rf"({_CURRENCY})?(?P<number>.+?)\s*(-|−|\*+|[kKM]|bn|Mio\.?|Mrd\.?)({_CURRENCY})?"
)


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
    """Remove the unit or currency sign that all cells share; return the numbers and the unit."""
    found = [_UNIT.fullmatch(cell) for cell in cells]
    units = {match and " and ".join(filter(None, (match[2], match[4]))) for match in found}
    unit = units.pop() if len(units) == 1 else None
    if not unit or all(map(is_numeric, cells)):
        return None
    numbers = [match[1] + match[3] for match in found if match]
    return (numbers, unit) if all(map(is_numeric, numbers)) else None


def several_units(cells: Sequence[str]) -> str:
    """Return an example if all cells are numbers, and two or three units, or none, come with them; otherwise ""."""
    found = {cell: _UNIT.fullmatch(cell) for cell in cells}
    units = {"".join(filter(None, (match[2], match[4]))): cell for cell, match in found.items() if match}
    are_numbers = all(match and is_numeric(match[1] + match[3]) for match in found.values())
    return " and ".join(map(repr, list(units.values())[:2])) if are_numbers and 1 < len(units) < 4 else ""


def near_numbers(cells: Sequence[str]) -> list[bool]:
    """Return which cells are numbers with a sign whose meaning is open, such as (12), 12- or 12k, or <12 beside 12."""
    has_numbers, found = any(map(is_numeric, cells)), [_NEAR.fullmatch(cell) for cell in cells]
    return [
        match is not None
        and (has_numbers or not match["bound"])
        and is_numeric(match["negative"] or match["end"] or match["number"])
        for match in found
    ]


def coded(cells: Sequence[str], earlier: str = "") -> tuple[np.ndarray | None, str] | None:
    """Convert booleans, dates or times to numbers; return as :func:`geodax.app.tables.dates.dated`."""
    for (no, yes), form in zip(_BOOLEANS, BOOLEAN_FORMS, strict=True):
        if cells and {cell.casefold() for cell in cells} <= {no, yes}:
            return np.array([cell.casefold() == yes for cell in cells], float), form
    return dated(cells, earlier)
