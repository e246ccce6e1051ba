"""Errors about data and tables, and the words that their messages share."""

import difflib
from collections.abc import Sequence


class DataError(ValueError):
    """A data set cannot be had: an unknown name, a missing or damaged file."""


class ChecksumError(DataError):
    """A file is not the one that the registry pins."""


class DownloadError(DataError):
    """No address of a publisher gave the file."""


class LicenceNotice(UserWarning):
    """Said once when a set with restrictive terms is downloaded."""


class TableError(ValueError):
    """A table cannot be read, or does not hold what a model needs."""


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the names in quotation marks, the first `most` of them, and how many more there are."""
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, noun: str) -> str:
    """Return a number and what is counted, in the singular where it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def near(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that is nearest, whatever its capital letters, or None when none is near."""
    folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return folded[found[0]] if found else None


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the question whether the nearest known name was meant, or nothing when none is near."""
    found = near(name, known)
    return "" if found is None else f" (did you mean {found!r}?)"


def short(cell: str) -> str:
    """Return the cell in quotation marks, cut where it is long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
