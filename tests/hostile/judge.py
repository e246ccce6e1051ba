"""What becomes of a hostile case: it works, or it is refused by a `raise` of the library in a documented type."""

import ast
import functools
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import geodax

PACKAGE = Path(geodax.__file__).resolve().parent
HERE = Path(__file__).resolve().parent
DOCUMENTED = (ValueError, TypeError, OSError, RuntimeError)
"""The roots of all errors of docs/errors.md; OSError and RuntimeError only by geodax's own classes."""
SECONDS, WAITING = 120, 1800
"""Of the processor, and by the clock (other programs may be at work), after which a case counts as hanging."""


class Verdict(NamedTuple):
    """What became of a case.

    Attributes:
        outcome: "works", "refused", "passed on" (an error of a function that the user gave), or what is wrong.
        error: The type of the error, or nothing.
        message: Its message, and where it was raised.
    """

    outcome: str
    error: str = ""
    message: str = ""

    @property
    def is_fine(self) -> bool:
        return self.outcome in ("works", "refused", "passed on")


class TimeOver(BaseException):
    """A case took too long."""


@contextmanager
def time_limit():
    """Raise TimeOver in the main thread of a process that computes or waits for too long."""

    def stop(number, frame):
        raise TimeOver

    clocks = ((signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, WAITING))
    before = [signal.signal(number, stop) for number, _, _ in clocks]
    for _, clock, seconds in clocks:
        signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        for (number, clock, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


def judged(call: Callable[[], Any], *, validators: tuple[str, ...] = ()) -> Verdict:
    """Run a case.

    Args:
        call: The case.
        validators: Parts of paths of other libraries that may raise too, since the docs name them: scikit-learn's
            checks of tables.

    Returns:
        The verdict.
    """
    try:
        with time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except TimeOver:
        return Verdict("hangs")
    except MemoryError as error:
        return Verdict("runs out of memory", "MemoryError", where(error))
    except Exception as error:
        name, message = type(error).__name__, str(error)
        if is_of_users_function(error):
            return Verdict("passed on", name, message)
        if not isinstance(error, DOCUMENTED) or (
            isinstance(error, OSError | RuntimeError) and not type(error).__module__.startswith("geodax")
        ):
            return Verdict("error of an undocumented type", name, f"{message[:300]} [{where(error)}]")
        if not is_raised_by_library(error.__traceback__, validators):
            return Verdict("error from inside another library", name, f"{message[:300]} [{where(error)}]")
        if len(message) < 10 or "Traced<" in message or "\n    at " in message:
            return Verdict("message that explains nothing", name, message[:300])
        return Verdict("refused", name, message)
    return Verdict("works")


def where(error: BaseException) -> str:
    """The last lines of the package on the way to an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(PACKAGE))]
    return " < ".join(f"{Path(f.filename).relative_to(PACKAGE)}:{f.lineno}" for f in reversed(frames[-3:]))


def is_of_users_function(error: BaseException) -> bool:
    """Whether the package called a function of the tests, and that failed."""
    files = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    inside = next((i for i, name in enumerate(files) if name.startswith(str(PACKAGE))), len(files))
    return any(name.startswith(str(HERE)) for name in files[inside:])


def is_raised_by_library(trace: TracebackType | None, validators: tuple[str, ...] = ()) -> bool:
    """Whether the innermost frame belongs to the package and stands on a `raise`."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    path = trace.tb_frame.f_code.co_filename
    if any(part in path for part in validators):
        return True
    return path.startswith(str(PACKAGE)) and trace.tb_lineno in _lines_of_raises(path)


@functools.cache
def _lines_of_raises(path: str) -> frozenset[int]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    raises = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return frozenset(line for node in raises for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
