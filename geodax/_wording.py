"""How messages name arguments: as in Python, or as another front end of the library names them.

An error that names an argument makes the name by :func:`argument`; a front end that calls the library within
:func:`named_by` chooses the form, and the message is in its terms from the start.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

LABELS = "labels must be from 0 to the number of outputs minus one"

UNSET: Any = object()
"""Stands for an argument whose value a message does not give."""


def _in_python(name: str, value: Any) -> str:
    return name if value is UNSET else f"{name}={value!r}"


_RENAMED: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("renamed", default=MappingProxyType({}))
_FORM: contextvars.ContextVar[Callable[[str, Any], str]] = contextvars.ContextVar("form", default=_in_python)


def argument(name: str, value: Any = UNSET) -> str:
    """Return the name of an argument, with its value if one is given, as in Python or in the front end's form."""
    return _FORM.get()(_RENAMED.get().get(name, name), value)


def in_python(text: str, otherwise: str = "") -> str:
    """Return ``text`` for callers in Python, and ``otherwise`` for those of another front end."""
    return text if _FORM.get() is _in_python else otherwise


@contextlib.contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Let a part of the library that calls another put its own arguments in place of the other's in messages."""
    token = _RENAMED.set(names)
    try:
        yield
    finally:
        _RENAMED.reset(token)


@contextlib.contextmanager
def named_by(form: Callable[[str, Any], str]) -> Iterator[None]:
    """Let a front end name the arguments in messages, by a function with the arguments of :func:`argument`."""
    token = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(token)
