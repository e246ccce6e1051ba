"""Signals that ask a run to stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")


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
    computes. What a handler raises leaves that thread behind.

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

    def call() -> None:
        try:
            found.append(function(*args, **options))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]
