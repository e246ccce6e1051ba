"""The run that another one replaces in its folder: kept beside it until the new one has begun.

It is moved into a folder of its own within the run folder, ``config.json`` last, and moved back in the opposite order.
So that folder holds a ``config.json`` exactly while all of the earlier run is there and the rest of the run folder
belongs to the new one, and whatever moment a process dies at, nothing is lost and :func:`put_back` knows what to do.
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
    """Remove the files of a run, but for the lock; its configuration last, so that it is a run folder until then.

    Args:
        run: The run folder, whose lock is held.
    """
    remove(run, lambda name: name not in _STAYS)


def set_aside(run: Path) -> None:
    """Move a run out of the way of the one that is to replace it; what is no run is removed.

    Args:
        run: The run folder, whose lock is held.
    """
    if not is_run(run):
        clear(run)
        return
    (run / EARLIER).mkdir()
    for path in contents(run).own:
        if path.parent == run and path.name not in _STAYS:
            os.replace(path, run / EARLIER / path.name)


def put_back(run: Path) -> bool:
    """Make a run folder what it was before a run was set aside; nothing happens where none was.

    Args:
        run: The run folder, whose lock is held.

    Returns:
        Whether there was one.

    Raises:
        RunFolderError: If geodax did not write what lies there.
    """
    remove(run, lambda name: name == REMOVED)
    aside = run / EARLIER
    if not aside.is_dir():
        return False
    is_whole = (aside / "config.json").exists()
    strange = [path for path in contents(run).others if path.is_relative_to(aside)]
    if strange or not is_run(aside if is_whole else run):
        raise RunFolderError(
            f"{strange[0] if strange else aside} is not of a run that a fit with --overwrite has set aside. Move it "
            "out of the run folder."
        )
    if is_whole:  # what is beside it is of the new run
        clear(run)
        os.replace(aside / "config.json", run / "config.json")
    for path in sorted(aside.iterdir()):
        os.replace(path, run / path.name)
    aside.rmdir()
    return True


def settle(run: Path, purpose: str) -> tuple[str, ...]:
    """Put back the run that a fit set aside that was killed before it began.

    Args:
        run: The run folder.
        purpose: What the command wants there, for the message where another one is at work.

    Returns:
        One sentence about it, or none.
    """
    require_no_links(run)
    if not is_left(run):
        return ()
    with exclusive(run / "lock", run, purpose):
        is_back = put_back(run)
    return ("A fit with --overwrite had ended before it began; the run it was to replace was put back.",) * is_back


def forget(run: Path) -> None:
    """Remove a run that was set aside.

    Args:
        run: The run folder, whose lock is held.
    """
    if (run / EARLIER).is_dir():
        os.replace(run / EARLIER, run / REMOVED)  # at one blow: from here on the new run is the folder's
        remove(run, lambda name: name == REMOVED)


def is_left(run: Path) -> bool:
    """Whether a folder holds what a fit has set aside that is at work there, or was killed.

    Args:
        run: The run folder.

    Returns:
        Whether it does.
    """
    return (run / EARLIER).is_dir() or (run / REMOVED).is_dir()


def require_settled(run: Path) -> None:
    """Refuse to read a folder whose run is being replaced.

    Args:
        run: The run folder.

    Raises:
        RunFolderError: If an earlier run is set aside there.
    """
    if (run / EARLIER).is_dir():
        raise RunFolderError(
            f"A fit with --overwrite has set the run in {run} aside, in {run / EARLIER}, and not yet begun. If it is "
            f"no longer at work, `geodax resume {shlex.quote(str(run))}` puts the run back and goes on with it."
        )


@contextlib.contextmanager
def kept_until_begun(run: Path, is_keeper: bool) -> Iterator[None]:
    """Put a run that was set aside back where the block fails before :func:`forget` was called.

    Args:
        run: The run folder, whose lock is held.
        is_keeper: Whether this process keeps the folder.
    """
    try:
        yield
    except BaseException:
        if is_keeper:
            put_back(run)
        raise
