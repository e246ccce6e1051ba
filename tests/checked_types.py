"""Types of arguments and results, which are checked in tests."""

from collections import Counter
from collections.abc import Callable

from beartype import beartype

_MOST = 8
_made: Counter[tuple[str, str]] = Counter()


def checked(function: Callable) -> Callable:
    """Check calls as beartype does; where a function makes functions, calls of the first few.

    To decorate every function that a loop, a trace or a block of draws makes would take a tenth of the tests' time.
    """
    name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    _made[name] += 1
    return function if "<locals>" in name[1] and _made[name] > _MOST else beartype(function)
