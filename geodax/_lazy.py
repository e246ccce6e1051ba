"""Names of a package, and modules, that are imported on first access."""

import importlib
import importlib.util
import pkgutil
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def names_from(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package (PEP 562), and set its ``__dir__``: names, or modules if it has no names.

    A module defines its names, or has such a name itself; it is relative to the package, so that one that begins with a
    point is beside it.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name in places:
            module = importlib.import_module(f".{places[name]}", package)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}"):
            module = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(module, name, module) if name in places else module
        setattr(sys.modules[package], name, found)
        return found

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *(places or (found.name for found in pkgutil.iter_modules(module.__path__)))})

    vars(sys.modules[package])["__dir__"] = names
    return get


def defer(name: str) -> None:
    """Let the first access to its attributes import a module, instead of an ``import`` that never uses it."""
    sys.modules.setdefault(name, _Deferred(name))


class _Deferred(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
