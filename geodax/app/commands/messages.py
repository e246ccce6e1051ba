"""What the command line says about mistyped commands, and how it names the arguments in errors of the library."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from geodax._wording import UNSET
from geodax.app.families import FAMILIES

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "fit": tuple(FAMILIES),
    "show": (),
    "report": (),
    "resume": (),
    "predict": (),
    "data": ("list", "fetch"),
    "citation": (),
    "completion": (),
}
"""The commands, each with its own commands."""

_OPTIONS = {field.name for family in FAMILIES.values() for field in dataclasses.fields(family.options)}


def mistyped(words: Sequence[str]) -> str:
    """Say in one or two sentences what is wrong with the name of a command; empty if it exists, or none was named."""
    before, known = "geodax", tuple(COMMANDS)
    for word in words[:2]:
        if word.startswith("-") or not known:
            return ""
        if word not in known:
            near = difflib.get_close_matches(word.casefold(), known, n=1)
            meant = "fit " + word if before == "geodax" and word in FAMILIES else next(iter(near), "")
            hint = f"; did you mean `{before} {meant}`?" if meant else "."
            return f"`{before}` has no command {word!r}{hint} Its commands are {', '.join(known)}."
        before, known = f"{before} {word}", COMMANDS.get(word, ())
    return ""


def as_option(name: str, value: Any = UNSET) -> str:
    """Name an argument of the library as the option of a command, where it is one: `--num-samples 0`."""
    if name not in _OPTIONS:
        return name if value is UNSET else f"{name} {value}"
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return option if value else f"--no-{option[2:]}"
    return option if value is UNSET else f"{option} {value}"


def without_owner(message: str) -> str:
    """Return a message of the library without the class or function at its beginning, as in ``sample: ...``."""
    owner, _, rest = message.partition(": ")
    return rest if rest and owner.replace(".", "").isidentifier() else message
