"""Versions of what a benchmark's figures depend on."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import geodax as gx


def installed(*names: str) -> dict[str, str]:
    """geodax's version, and those of the named packages that are installed."""
    found = {"geodax": gx.__version__}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def rows_so_far(path: Path, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file with which a benchmark goes on, which must be of the same effort and versions."""
    if not path.exists():
        return []
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if any(earlier[name] != facts[name] for name in ("effort", "versions")):
        raise SystemExit(f"{path} is of another effort or of other versions; remove it first.")
    return earlier["rows"]
