"""Signals that stop a run, and how they are handled while compiled code is running."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax

PATIENCE = 3.0
"""Seconds to wait for the running iterations after a signal."""

_T = TypeVar("_T")
_left: list[Callable[[], bool]] = []


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of ending the process; a second SIGINT has its usual effect."""
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
    """Call a long compiled function, which releases the GIL, so that signals are handled while it runs.

    Python handles signals in its main thread, between bytecode instructions. The main thread waits while another thread
    computes. If a handler raises, that thread is abandoned (:func:`is_computing`).
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
    """Whether the results of a compiled program are ready, after waiting for a limited time after the first signal.

    If not, the program is abandoned (:func:`is_computing`). The signals are those of :func:`stop_signals`.
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
    """Whether an abandoned program is still running; the process would wait for it at exit."""
    return not all(is_done() for is_done in _left)
