"""Signals that ask a run to stop, and how they are answered while compiled code is at work."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax

PATIENCE = 3.0
"""Seconds for which the iterations that are under way are waited for after a signal."""

_T = TypeVar("_T")
_left: list[Callable[[], bool]] = []


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; a second SIGINT does what it always does."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def remember(number: int, _frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def interruptible(function: Callable[..., _T], *args: Any, **options: Any) -> _T:
    """Call a long function of compiled code so that a signal is answered at once, not after it.

    Python handles signals in its main thread, between its own instructions; there it waits while another thread
    computes. If a handler raises, that thread is left behind (:func:`is_computing`).

    Args:
        function: A function that lets other threads run, as those of NumPy and XLA do.
        *args: Its arguments.
        **options: Its options.

    Returns:
        What it returns.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **options)
    found: list[_T] = []
    raised: list[BaseException] = []
    is_done = threading.Event()

    def call() -> None:
        try:
            found.append(function(*args, **options))
        except BaseException as error:
            raised.append(error)
        finally:
            is_done.set()

    threading.Thread(target=call, daemon=True).start()
    try:
        is_done.wait()
    except BaseException:
        _left.append(is_done.is_set)
        raise
    if raised:
        raise raised[0]
    return found[0]


def wait(arrays: Any, signals: Sequence[int], seconds: float = PATIENCE) -> bool:
    """Wait for the results of a compiled program, after a signal for so many seconds only.

    Args:
        arrays: A pytree of arrays of JAX.
        signals: The signals so far, from :func:`stop_signals`.
        seconds: How long to wait after the first of them.

    Returns:
        Whether they are there. If not, the program is left behind (:func:`is_computing`).
    """
    results: list[Any] = [array for array in jax.tree.leaves(arrays) if isinstance(array, jax.Array)]

    def are_ready() -> bool:
        return all(array.is_ready() for array in results)

    began, asked = time.monotonic(), None
    try:
        while not are_ready():
            now = time.monotonic()
            asked = now if signals and asked is None else asked
            if asked is not None and now - asked > seconds:
                _left.append(are_ready)
                return False
            time.sleep(min(0.02, 0.0005 + (now - began) / 50))
    except BaseException:
        _left.append(are_ready)
        raise
    return True


def is_computing() -> bool:
    """Whether something that was left behind at a signal is still at work; the end of a process would wait for it."""
    return not all(is_done() for is_done in _left)
