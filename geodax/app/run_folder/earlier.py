"""Keeps a run that is being replaced until the new run has started.

The earlier run is moved into a subfolder of the run folder, ``config.json`` last, and moved back in the opposite order.
So the subfolder holds a ``config.json`` exactly while it contains the complete earlier run and the rest of the run
folder belongs to the new one. Nothing is lost if a process dies at any moment: :func:`put_back` can restore the run.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from geodax.app.run_folder.files import RunFolderError, is_run
from geodax.app.run_folder.own import EARLIER, REMOVED, contents, remove, require_no_links
from geodax.run.locks import exclusive

_STAYS = ("lock", EARLIER, REMOVED)


def clear(run: Path) -> None:
    """Remove the files of a run except the lock, which the caller holds, the configuration last."""
    remove(run, lambda name: name not in _STAYS)


def set_aside(run: Path) -> None:
    """Move a run aside before it is replaced, or remove what is no complete run; the caller holds the lock."""
    if not is_run(run):
        clear(run)
        return
    (run / EARLIER).mkdir()
    for path in contents(run).own:
        if path.parent == run and path.name not in _STAYS:
            os.replace(path, run / EARLIER / path.name)


def put_back(run: Path) -> bool:
    """Restore a run that was set aside, and return whether there was one; the caller holds the lock.

    Raises RunFolderError if the set-aside files were not written by geodax.
    """
    remove(run, lambda name: name == REMOVED)
    aside = run / EARLIER
    if not aside.is_dir():
        return False
    is_whole = (aside / "config.json").exists()
    strange = [path for path in contents(run).others if path.is_relative_to(aside)]
    if strange or not is_run(aside if is_whole else run):
        raise RunFolderError(
            f"{strange[0] if strange else aside} does not belong to a run that `--overwrite` has set aside. Move it "
            "out of the run folder."
        )
    if is_whole:  # the files beside it belong to the new run
        clear(run)
        os.replace(aside / "config.json", run / "config.json")
    for path in sorted(aside.iterdir()):
        os.replace(path, run / path.name)
    aside.rmdir()
    return True


def settle(run: Path, purpose: str) -> tuple[str, ...]:
    """Restore the earlier run, and say so, if a fit that should replace it was killed before it started.

    The purpose of the command is for the message if another process holds the lock.
    """
    require_no_links(run)
    if not is_left(run):
        return ()
    with exclusive(run / "lock", run, purpose):
        is_back = put_back(run)
    return ("A fit with --overwrite was stopped before it started; the run it should replace was restored.",) * is_back


def forget(run: Path) -> None:
    """Remove a run that was set aside; the caller holds the lock."""
    if (run / EARLIER).is_dir():
        os.replace(run / EARLIER, run / REMOVED)  # atomic: from here on the folder belongs to the new run
        remove(run, lambda name: name == REMOVED)


def is_left(run: Path) -> bool:
    """Whether a folder holds a run that a fit has set aside."""
    return (run / EARLIER).is_dir() or (run / REMOVED).is_dir()


def require_settled(run: Path) -> None:
    """Raise RunFolderError if the run in a folder is being replaced: an earlier one is set aside there."""
    if (run / EARLIER).is_dir():
        raise RunFolderError(
            f"A fit with --overwrite has moved the run in {run} to {run / EARLIER} and has not started yet. If it is "
            f"no longer running, `geodax resume {shlex.quote(str(run))}` restores the earlier run and continues it."
        )


@contextlib.contextmanager
def kept_until_begun(run: Path, is_keeper: bool) -> Iterator[None]:
    """Restore a run that was set aside if the block fails before :func:`forget` was called, in the process that writes.

    The caller holds the lock.
    """
    try:
        yield
    except BaseException:
        if is_keeper:
            put_back(run)
        raise
