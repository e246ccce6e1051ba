"""What the command line says about mistyped commands, and about errors of the library, which speak of arguments."""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence

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

_NAMES = {field.name for family in FAMILIES.values() for field in dataclasses.fields(family.options)}
_OWNER = re.compile(r"^\w+(?:\.\w+)*: ")
_VALUE = re.compile(r"(?<![\w.-])(" + "|".join(sorted(_NAMES, key=len, reverse=True)) + r")=('[^']*'|[\w.]+)")
_LONG = re.compile(
    r"(?<![\w.-])(" + "|".join(name for name in sorted(_NAMES, key=len, reverse=True) if "_" in name) + r")\b"
)
_SHORT = re.compile(
    r"^(" + "|".join(name for name in _NAMES if "_" not in name) + r")(?= '?[\w-]*'? ?(?:must|needs)\b)"
)
_RETOLD = (
    (
        re.compile(r".*tunes its step size during warm-up, but num_warmup is 0.*", re.DOTALL),
        "--num-warmup 0 leaves no iterations to find a step size in. Use at least 500, or leave --num-warmup out.",
    ),
    (re.compile(r", or rules as for gx\.nn\.Priors"), ""),
    (re.compile(r", or a metric such as gx\.metrics\.\w+\([^)]*\)"), ""),
    (re.compile(r", or a configured inference such as \w+\([^)]*\)"), ""),
    (re.compile(r"data with n_features = (\d+)"), r"\1 columns"),
    (re.compile(r"n_features"), "the number of columns"),
    (re.compile(r"orthogonal=True and rank=\.\.\. put them"), "--rank puts them"),
    (re.compile(r" Start from a point where it is finite, and check the density at that point by hand\."), " Check the "
     "table for extreme values, and the scales among the options."),
    (re.compile(r"; set a least scale, such as [^.]*\(.*\)"), "; use --prior local-horseshoe"),
)  # fmt: skip


def mistyped(words: Sequence[str]) -> str:
    """Say what is wrong with the name of a command.

    Args:
        words: The words of the command line.

    Returns:
        One or two sentences; empty if the command exists, or none was named.
    """
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


def as_options(message: str) -> str:
    """Rewrite a message of the library, which names arguments of Python, with the options of the command line.

    Args:
        message: The message of an error.

    Returns:
        The message with ``--num-samples`` instead of ``num_samples``, and without the name of a class.
    """
    for pattern, words in _RETOLD:
        message = pattern.sub(words, message)
    message = _OWNER.sub("", message)
    message = _VALUE.sub(lambda found: f"{_option(found[1])} {found[2].strip(chr(39))}", message)
    return _SHORT.sub(lambda found: _option(found[1]), _LONG.sub(lambda found: _option(found[1]), message))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
