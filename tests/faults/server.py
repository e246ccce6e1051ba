"""A process that forks a child for each run it is asked for, and kills it where it is told to.

A child finds everything imported and no program compiled, as a new process would, and is there within milliseconds; this
process computes nothing itself, so that there are no threads to be lost in a fork. Requests and replies are lines of JSON.

A request names the ``kind`` of run (see ``runs.py``), its ``folder`` and a ``result`` file; ``delay`` kills the child after so many
seconds, ``event`` before its so many-th change of a file or folder below ``folder`` (an opening for writing, a renaming, a
removal, ...: the moments between a temporary file and its final name among them). The reply has the exit ``code`` as of
``subprocess``, the ``seconds`` it took, and of a run that was not killed the number of ``events``.
"""

import itertools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

_CHANGES = {
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.move",
    "shutil.rmtree",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def is_change(event: str, arguments: tuple, folder: str) -> bool:
    """Whether an audit event is a change of a file or folder below a folder."""
    if event not in _CHANGES and (event != "open" or not (arguments[2] or 0) & _WRITING):
        return False
    try:
        name = os.fsdecode(arguments[0])
    except TypeError:  # a file descriptor
        return False
    # names within an open folder are relative
    return not os.path.isabs(name) or name.startswith(folder)


def watch(folder: str, last: int | None) -> "itertools.count[int]":
    """Count the changes below a folder from here on, and die before the one with the number ``last``."""
    counter = itertools.count(1)

    def hook(event: str, arguments: tuple) -> None:
        if is_change(event, arguments, folder) and next(counter) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return counter


def child(request: dict) -> int:
    """Run what was asked for; the exit code."""
    import numpy as np

    from tests.faults.runs import KINDS, chunks_of_one

    counter = watch(request["folder"], request.get("event"))
    try:
        with chunks_of_one():
            arrays = KINDS[request["kind"]](Path(request["folder"]))
    except BaseException:
        Path(request["result"]).with_suffix(".error").write_text(traceback.format_exc())
        return 1
    np.savez(request["result"], events=next(counter) - 1, **arrays)
    return 0


def serve() -> None:
    """Answer requests until there are no more."""
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
    # what a run loads in its course
    import matplotlib.figure  # noqa: F401
    import orbax.checkpoint  # noqa: F401
    import xarray  # noqa: F401
    import zarr.codecs  # noqa: F401

    import tests.faults.runs  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = child(request)
            finally:
                os._exit(code)
        deadline = None if request.get("delay") is None else started + request["delay"]
        while True:
            # not waited for until it is dead: its number is its own until then
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if deadline is not None and time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = None
            time.sleep(0.002)
        reply = {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - started}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    serve()
