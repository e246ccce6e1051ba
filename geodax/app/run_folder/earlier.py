"""The run that another one replaces in its folder: kept beside it until the new one has begun.

It is moved into a folder of its own within the run folder, ``config.json`` last, and moved back in the opposite order.
So that folder holds a ``config.json`` exactly while all of the earlier run is there and the rest of the run folder
belongs to the new one, and whatever moment a process dies at, nothing is lost and :func:`put_back` knows what to do.
"""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from geodax.app.run_folder.files import RunFolderError

EARLIER = "earlier-run"
"""Where the run that is replaced lies until then."""
REMOVED = "earlier-run.removed"
"""Where it lies while it is removed."""
OWN = (
    "config.json",
    "config.json.partial",
    "data.npz",
    "posterior.zarr",
    "posterior.zarr.lock",
    "checkpoint",
    "log",
    "summary.csv",
)
"""What a fit writes into its folder, beside the lock."""
_STAYS = ("lock", EARLIER, REMOVED)


def clear(run: Path) -> None:
    """Remove what is in a run folder, but for the lock; its configuration last, so that it is a run folder until then.

    Args:
        run: The run folder.
    """
    for path in _in_order(run):
        _remove(path)


def set_aside(run: Path) -> None:
    """Move a run out of the way of the one that is to replace it; what is no run is removed.

    Args:
        run: The run folder, whose lock is held.
    """
    if not (run / "config.json").exists():
        clear(run)
        return
    (run / EARLIER).mkdir()
    for path in _in_order(run):
        os.replace(path, run / EARLIER / path.name)


def put_back(run: Path) -> bool:
    """Make a run folder what it was before a run was set aside; nothing happens where none was.

    Args:
        run: The run folder, whose lock is held.

    Returns:
        Whether there was one.
    """
    shutil.rmtree(run / REMOVED, ignore_errors=True)
    aside = run / EARLIER
    if not aside.is_dir():
        return False
    if (aside / "config.json").exists():  # what is beside it is of the new run
        for path in _in_order(run):
            if path.name in OWN or (aside / path.name).exists():
                _remove(path)
        os.replace(aside / "config.json", run / "config.json")
    for path in sorted(aside.iterdir()):
        os.replace(path, run / path.name)
    aside.rmdir()
    return True


def forget(run: Path) -> None:
    """Remove a run that was set aside.

    Args:
        run: The run folder, whose lock is held.
    """
    if (run / EARLIER).is_dir():
        os.replace(run / EARLIER, run / REMOVED)  # at one blow: from here on the new run is the folder's
        shutil.rmtree(run / REMOVED, ignore_errors=True)


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


def _in_order(run: Path) -> list[Path]:
    """What is in a run folder and is neither its lock nor an earlier run, the configuration last."""
    found = sorted(run.iterdir(), key=lambda path: path.name == "config.json")
    return [path for path in found if path.name not in _STAYS]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
