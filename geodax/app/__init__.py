"""The command line: argument parsing and printing.

geodax fit pca data.csv --n-components 2 --out runs/pca
geodax fit eigenmodel network.csv --rank 2 --out runs/eigenmodel
geodax fit network contacts.csv --window 660 --out runs/network
geodax fit unit-network data.csv --target y --n-hidden 4 --out runs/network
geodax fit cca patients.csv --group injury --first-view "protein*" --out runs/cca
geodax fit classifier data.csv --target y --out runs/classifier
geodax fit regressor data.csv --target y --out runs/regressor
geodax fit factorization ratings.csv --rank 10 --out runs/factorization
geodax report runs/pca
geodax resume runs/pca
geodax predict runs/pca new.csv
geodax data list
geodax data fetch mnist
geodax citation nuts
"""

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from geodax._lazy import defer


def main(arguments: list[str] | None = None) -> int:
    """Run one command, by default that of the process.

    Returns the exit code, see :func:`geodax.app.commands.entry.run_command`; a process of the command's own may end
    here.
    """
    if arguments is None:  # the process is the command's own; by the default a tenth of a short fit collects garbage
        gc.set_threshold(100_000, 20, 100)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported; fits in Python do the same
        # of scikit-learn, three times; the note on the classes of a table counts them
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
    defer("scipy.stats")  # 0.7 seconds; scikit-learn's base class imports it and uses nothing of it
    try:  # the imports take a second or more, in which one can think better of it
        with interrupted_by(signal.SIGINT) as received:
            from geodax.app.commands.entry import run_command
        if received:  # a library that is imported may pass over it
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    code = run_command(arguments)
    signals = sys.modules.get("geodax.run.signals")  # no command that computes goes without it
    is_computing = signals is not None and signals.is_computing()  # nothing of it is needed
    if is_computing or (arguments is None and "jax" in sys.modules):  # half a second to take all modules apart
        if not is_computing:  # JAX would wait for it
            atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed before the start
            stream.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def interrupted_by(number: signal.Signals) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at a signal; the value has those received."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def interrupt(number: int, _frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    previous = signal.signal(number, interrupt)
    try:
        yield received
    finally:
        signal.signal(number, usual if previous is None else previous)
