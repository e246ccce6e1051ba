"""Citations of the methods: each entry of ``citations.bib`` lists its methods as keywords."""

import functools
import re
from importlib import resources


@functools.cache
def _entries() -> tuple[tuple[frozenset[str], str], ...]:
    text = resources.files("geodax.app").joinpath("citations.bib").read_text(encoding="utf-8")
    found = []
    for entry in text.strip().split("\n\n"):
        keywords = re.findall(r"keywords = \{(.*)\}", entry)[0]
        found.append((frozenset(keywords.split(", ")), entry))
    return tuple(found)


def methods() -> tuple[str, ...]:
    """Return the names that :func:`citation` accepts."""
    return tuple(sorted(set().union(*(names for names, _ in _entries()))))


def citation(method: str) -> str:
    """Return the BibTeX entries, separated by blank lines, for one of :func:`methods` in upper or lower case.

    Raises ValueError, which lists the known names, for another one.
    """
    found = [text for names, text in _entries() if method.lower() in names]
    if not found:
        raise ValueError(f"There is no citation for {method!r}. Known names: {', '.join(methods())}.")
    return "\n\n".join(found)
