"""The named data sets: which there are, and their files, on disk or downloaded from their publishers.

Light to import: it reads no array.
"""

from pathlib import Path
from typing import NamedTuple

from geodax.data import registry
from geodax.data.downloads import ensure
from geodax.data.stored_files import digest_matches, locate, verified


class DatasetInfo(NamedTuple):
    """One row of the table of data sets."""

    name: str
    title: str
    shape: str
    licence: str
    url: str
    present: bool
    where: str


def available() -> tuple[str, ...]:
    """Return the names accepted by `load` and `fetch`."""
    return tuple(registry.entries())


def describe(name: str | None = None) -> list[DatasetInfo]:
    """Return one row per data set, or one set's row: shape, licence, publisher, whether it is on disk and where.

    `present` means only that the files exist; checksums are verified by `load` and `fetch`.
    """
    rows = []
    for s in registry.entries().values() if name is None else [registry.entry(name)]:
        found, missing = locate(s)
        where = "" if missing else str(next(iter(found.values())).parent)
        rows.append(DatasetInfo(s.name, s.title, s.shape, s.licence, s.url, not missing, where))
    return rows


def fetch(name: str) -> list[Path]:
    """Ensure that all files of a set are on disk and verified, downloading missing ones.

    Args:
        name: one of `available()`, or an alias such as `"ml-100k"`.

    Returns:
        The paths of the files.

    Raises:
        DataError: the name is unknown, no address returned a file, or a checksum differs.
    """
    source = registry.entry(name)
    found = ensure(source)
    for path, at in found.items():
        raw = at.read_bytes()
        pins = source.files[path]
        if len(pins) < 3 or not digest_matches(raw, pins[2]):
            verified(source, path, raw, at)
    return list(found.values())
