"""Names of a package that are imported on first access (PEP 562)."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names_from(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package.

    Args:
        package: ``__name__`` of the package.
        places: For each name, the submodule that defines it, or that has this name itself.

    Returns:
        The function.
    """

    def get(name: str) -> Any:
        if name in places:
            module = importlib.import_module(f"{package}.{places[name]}")
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            module = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(module, name, module) if name in places else module
        setattr(sys.modules[package], name, found)
        return found

    return get
