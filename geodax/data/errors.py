"""Errors about data and tables, and helpers for their messages."""

import difflib
from collections.abc import Sequence


class DataError(ValueError):
    """A data set is unavailable: an unknown name, or a missing or damaged file."""


class ChecksumError(DataError):
    """A file's checksum differs from the registry's."""


class DownloadError(DataError):
    """None of a publisher's addresses returned the file."""


class LicenceNotice(UserWarning):
    """Warning, issued once, that a downloaded set has restrictive terms."""


class TableError(ValueError):
    """A table cannot be read, or lacks what a model needs."""


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the first `most` names in quotation marks, and the number of remaining ones."""
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def near(name: str, known: Sequence[str]) -> str | None:
    """Return the closest known name, ignoring case, or None when none is close."""
    folded = {k.casefold(): k for k in known}
    found = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return folded[found[0]] if found else None


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a "did you mean" hint for the closest known name, or an empty string."""
    found = near(name, known)
    return "" if found is None else f" (did you mean {found!r}?)"


def short(cell: str) -> str:
    """Return the cell in quotation marks, truncated if long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
