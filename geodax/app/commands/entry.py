"""Runs one command and reports errors, which name arguments of the library as options."""

import contextlib
import dataclasses
import difflib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from geodax._version import __version__
from geodax._wording import UNSET, named_by
from geodax.app import interrupted_by
from geodax.app.commands.commands import app
from geodax.app.commands.terminal import complain, say
from geodax.app.families import FAMILIES

_PACKAGE = Path(__file__).parents[2]
_DESCRIPTION = "Bayesian inference on curved and structured spaces. `geodax --version` prints the version."
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


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command, by default that of the process, and return its exit code.

    This is 0 on success, 1 after an expected error, 3 after an unexpected one, 130 after an interruption, 141 if the
    reader of a pipe has closed it. Unknown commands and options raise SystemExit(2), as argument parsers do.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words == ["--version"]:
            say(f"geodax {__version__}")
        else:
            _run(words)
        print(end="", flush=True)  # nothing where the standard output is closed
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 141
    except KeyboardInterrupt as interruption:
        complain(str(interruption) or "Interrupted.", style="yellow")
        return 130
    except Exception as error:
        if os.environ.get("GEODAX_TRACEBACK"):
            raise
        module = _module_of_ours(error)
        if Path(traceback.extract_tb(error.__traceback__)[-1].filename).name == "xla_bridge.py":
            complain(_no_device(error))
            return 1
        if module is None:
            complain(_unexplained(error))
            return 3
        complain(f"geodax: {error if 'app' in module.parts else without_owner(str(error))}")
        return 1
    return 0


def _run(words: list[str]) -> None:
    wrong = mistyped(words)
    if wrong:
        complain(f"geodax: {wrong}")
        raise SystemExit(2)
    # interrupted, so that partially written files are removed
    with named_by(as_option), plain_warnings(), interrupted_by(signal.SIGTERM):
        app.cli(prog="geodax", args=words, description=_DESCRIPTION)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings to the user without the line of code that they are about."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            complain(f"warning: {without_owner(str(message))}", style="yellow")
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def _module_of_ours(error: Exception) -> Path | None:
    """Where an expected error was raised: in the library, in scikit-learn's checks of a table, or about a file."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    place = last.relative_to(_PACKAGE) if last.is_relative_to(_PACKAGE) else Path(last.name)
    if isinstance(error, OSError):
        return place
    is_ours = last.is_relative_to(_PACKAGE) or "sklearn" in last.parts
    return place if is_ours and isinstance(error, (ValueError, TypeError, RuntimeError)) else None


def _no_device(error: Exception) -> str:
    platforms = os.environ.get("JAX_PLATFORMS")
    return (
        f"geodax: JAX finds no device{f' for JAX_PLATFORMS={platforms}' if platforms else ''} on this machine: "
        f"{str(error) or type(error).__name__:.300}. Set JAX_PLATFORMS=cpu, or install the jax package for the device."
    )


def _unexplained(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "geodax: not enough memory for this table and these options."
    first = (str(error).splitlines() or [""])[0]
    return (
        f"geodax: unexpected error: {type(error).__name__}: {first:.300}. This is a bug in geodax. Please report it "
        "with the output of GEODAX_TRACEBACK=1."
    )


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
