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
from geodax.app.commands.commands import app
from geodax.app.commands.terminal import errors, say

_PACKAGE = Path(__file__).parents[2]
_DESCRIPTION = "Bayesian inference on curved and structured spaces. `geodax --version` prints the version."


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Command-line words; None takes those of the process.

    Returns:
        0 on success, 1 after an expected error, 3 after an unexpected one, 130 after an interruption. Unknown commands
        raise SystemExit(2), as argument parsers do.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        say(f"geodax {__version__}")
        return 0
    try:
        with _termination_as_interruption():
            app.cli(prog="geodax", args=words, description=_DESCRIPTION)
    except KeyboardInterrupt as interruption:
        message = str(interruption) or "Interrupted."
        errors.print(message, style="yellow", markup=False, highlight=False, soft_wrap=True)
        return 130
    except Exception as error:
        if os.environ.get("GEODAX_TRACEBACK"):
            raise
        is_explained = _is_explained(error)
        errors.print(
            f"geodax: {error}" if is_explained else _unexplained(error),
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1 if is_explained else 3
    return 0


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


def _is_explained(error: Exception) -> bool:
    """Whether an error is from the library, from scikit-learn's checks of a table, or from the system about a file."""
    if isinstance(error, OSError):
        return True
    if not isinstance(error, (ValueError, TypeError, RuntimeError)):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(last).is_relative_to(_PACKAGE) or "sklearn" in Path(last).parts


def _unexplained(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "geodax: not enough memory for this table and these options."
    first = (str(error).splitlines() or [""])[0]
    return (
        f"geodax: unexpected error: {type(error).__name__}: {first:.300}. This is a bug in geodax. Please report it "
        "with the output of GEODAX_TRACEBACK=1."
    )
