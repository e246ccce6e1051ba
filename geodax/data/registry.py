"""The registry of named data sets: the terms, addresses and file checksums of each set.

The entries are stored in `registry.json` next to this file.
"""

import difflib
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from geodax.data.errors import DataError


class Source(NamedTuple):
    """One registry entry; `files` maps a path to [checksum of contents, size, checksum as compressed]."""

    name: str
    title: str
    aliases: list[str]
    reader: str
    shape: str
    licence: str
    terms: str
    citation: str
    url: str
    feature_names: list[str]
    class_names: list[str]
    notes: list[str]
    either: dict[str, list[str]]
    downloads: list[dict[str, Any]]
    files: dict[str, list[Any]]


@functools.cache
def entries() -> dict[str, Source]:
    """Return all entries by name."""
    content = json.loads((Path(__file__).parent / "registry.json").read_text(encoding="utf-8"))
    return {name: Source(name=name, **entry) for name, entry in content.items()}


def entry(name: str) -> Source:
    """Return the entry of a name or alias, ignoring `uci/`, case and underscores."""
    registry = entries()
    known = {alias.casefold(): s for s in registry.values() for alias in (s.name, *s.aliases)}
    known |= {s.name.removeprefix("uci/").casefold(): s for s in registry.values()}
    key = str(name).strip().casefold().replace("_", "-")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"; did you mean {known[near[0]].name!r}?" if near else ";"
        raise DataError(f"no data set is named {name!r}{hint} The sets are {', '.join(registry)}")
    return known[key]
