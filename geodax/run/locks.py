"""Allow one run at a time in a folder.

The operating system locks an open file and releases the lock when the process ends for any reason, so nothing must be
removed by hand after a kill. Reading needs no lock.
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
except ImportError:  # this system has no such locks
    fcntl = None


@contextlib.contextmanager
def exclusive(file: Path, folder: Path, purpose: str) -> Iterator[None]:
    """Lock a folder for this run within the block, by a file that is created if it is missing, and not removed.

    In a run of several processes under ``jax.distributed`` the first one holds the lock for all. File systems and
    operating systems without such locks do not exclude other runs. The purpose is for messages: ``"keep checkpoints
    in"``. Raises FolderInUseError if another run holds the lock, StorageError if the file cannot be created or is a
    symbolic link.
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


def beside(folder: Path) -> Path:
    """The lock of a folder that contains none itself."""
    return folder.with_name(f"{folder.name}.lock")


def require_no_links(folder: Path) -> None:
    """Raise StorageError if a folder or file of a run is or contains a symbolic link: the run would write elsewhere."""
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
    with contextlib.suppress(OSError):  # full disk: the lock still holds, without the name
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
