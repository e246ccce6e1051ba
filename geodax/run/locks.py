"""One run at a time in a folder.

The lock is the operating system's, on an open file: it ends with the process that holds it, however that ends, so that
nothing is left to be removed by hand after a kill. Reading is never locked out.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import jax

from geodax._files import links_in, open_own
from geodax.run.errors import FolderInUseError, StorageError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None


@contextlib.contextmanager
def exclusive(file: Path, folder: Path, purpose: str) -> Iterator[None]:
    """Hold a folder for this run alone, for as long as the block lasts.

    In a run of several processes under ``jax.distributed`` the first one holds it for all. File systems and operating
    systems that know no such locks let everybody in.

    Args:
        file: The file that is locked; made if it is missing, with its folder. It stays.
        folder: The folder that it stands for.
        purpose: What the run wants there, for the messages: ``"keep checkpoints in"``.

    Raises:
        FolderInUseError: If another run holds it, in this process or another.
        StorageError: If the file cannot be made, or is a symbolic link.
    """
    if jax.process_index() != 0:
        yield
        return
    if file.is_symlink():
        require_no_links(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = open_own(file, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StorageError(f"Cannot {purpose} {folder}: {error}.") from error
    try:
        _take(descriptor, folder, purpose)
        yield
    finally:
        os.close(descriptor)


def require_no_links(folder: Path) -> None:
    """Refuse a folder in which a run would write, or remove something, through a symbolic link.

    Args:
        folder: A folder whose whole contents are the run's, or a file.

    Raises:
        StorageError: If it is a link, or one is in it or its subfolders.
    """
    links = links_in(folder)
    if links:
        raise StorageError(
            f"{links[0]} is a symbolic link, through which a run would write elsewhere. Remove the link, or use "
            "another folder."
        )


def _take(descriptor: int, folder: Path, purpose: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        raise FolderInUseError(
            f"Cannot {purpose} {folder}: another run is at work there ({holder or 'of unknown name'}). Wait for its "
            "end, stop it, or use another folder."
        ) from error
    except OSError:  # this file system has no locks
        return
    with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
