"""Files that are written in full or not at all, and never through a symbolic link."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


def open_own(path: Path, flags: int) -> int:
    """Open a file of geodax's own.

    Args:
        path: The file; OSError if it is a symbolic link.
        flags: As for ``os.open``.

    Returns:
        The descriptor, which child processes do not inherit.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)


def links_in(folder: Path) -> list[Path]:
    """The symbolic links in a folder and its subfolders, and the folder itself if it is one."""
    if folder.is_symlink():
        return [folder]
    below = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))
    return [path for path in below if path.is_symlink()]


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary file that replaces another one when the block ends without an error.

    Args:
        path: The file to replace or to make.

    Yields:
        The path to write, with the same suffix.

    Raises:
        OSError: If the file cannot be written; it names ``path``, which stays as it was.
    """
    partial = path.with_name(f".geodax-{secrets.token_hex(8)}{path.suffix}")
    try:
        with named(path, partial):
            os.close(open_own(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            yield partial
            if path.exists():
                shutil.copymode(path, partial)
            os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def named(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Let errors of a file say which one it is: those of a full disk do not.

    Args:
        path: The file.
        partial: A temporary file that is written for it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, partial, str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
