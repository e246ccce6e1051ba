"""Versions of what a benchmark's figures depend on."""

from importlib.metadata import PackageNotFoundError, version

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
