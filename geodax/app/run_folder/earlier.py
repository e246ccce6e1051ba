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
    """Remove the files of a run except the lock, the configuration last.

    Args:
        run: The run folder; the caller holds its lock.
    """
    remove(run, lambda name: name not in _STAYS)


def set_aside(run: Path) -> None:
    """Move a run aside before it is replaced; files that are not a complete run are removed.

    Args:
        run: The run folder; the caller holds its lock.
    """
    if not is_run(run):
        clear(run)
        return
    (run / EARLIER).mkdir()
    for path in contents(run).own:
        if path.parent == run and path.name not in _STAYS:
            os.replace(path, run / EARLIER / path.name)


def put_back(run: Path) -> bool:
    """Restore a run that was set aside, if there is one.

    Args:
        run: The run folder; the caller holds its lock.

    Returns:
        Whether there was one.

    Raises:
        RunFolderError: If the set-aside files were not written by geodax.
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
    """Restore the earlier run if a fit that should replace it was killed before it started.

    Args:
        run: The run folder.
        purpose: What the command does there, for the message if another process holds the lock.

    Returns:
        One sentence about it, or none.
    """
    require_no_links(run)
    if not is_left(run):
        return ()
    with exclusive(run / "lock", run, purpose):
        is_back = put_back(run)
    return ("A fit with --overwrite was stopped before it started; the run it should replace was restored.",) * is_back


def forget(run: Path) -> None:
    """Remove a run that was set aside.

    Args:
        run: The run folder; the caller holds its lock.
    """
    if (run / EARLIER).is_dir():
        os.replace(run / EARLIER, run / REMOVED)  # atomic: from here on the folder belongs to the new run
        remove(run, lambda name: name == REMOVED)


def is_left(run: Path) -> bool:
    """Whether a folder holds a run that a fit has set aside.

    Args:
        run: The run folder.
    """
    return (run / EARLIER).is_dir() or (run / REMOVED).is_dir()


def require_settled(run: Path) -> None:
    """Raise RunFolderError if the run in a folder is being replaced.

    Args:
        run: The run folder.

    Raises:
        RunFolderError: If an earlier run is set aside there.
    """
    if (run / EARLIER).is_dir():
        raise RunFolderError(
            f"A fit with --overwrite has moved the run in {run} to {run / EARLIER} and has not started yet. If it is "
            f"no longer running, `geodax resume {shlex.quote(str(run))}` restores the earlier run and continues it."
        )


@contextlib.contextmanager
def kept_until_begun(run: Path, is_keeper: bool) -> Iterator[None]:
    """Restore a run that was set aside if the block fails before :func:`forget` was called.

    Args:
        run: The run folder; the caller holds its lock.
        is_keeper: Whether this process writes to the folder.
    """
    try:
        yield
    except BaseException:
        if is_keeper:
            put_back(run)
        raise
