"""Runs one command and reports errors."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geodax._version import __version__
from geodax._wording import named_by
from geodax.app.commands.commands import app
from geodax.app.commands.messages import as_option, mistyped, without_owner
from geodax.app.commands.terminal import complain, say

_PACKAGE = Path(__file__).parents[2]
_DESCRIPTION = "Bayesian inference on curved and structured spaces. `geodax --version` prints the version."


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
    with named_by(as_option), _termination_as_interruption():
        app.cli(prog="geodax", args=words, description=_DESCRIPTION)


@contextlib.contextmanager
def _termination_as_interruption() -> Iterator[None]:
    """Handle SIGTERM like SIGINT, so that partially written files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)


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
