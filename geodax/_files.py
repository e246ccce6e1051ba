"""Files that are written atomically, and never through a symbolic link."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


def open_own(path: Path, flags: int) -> int:
    """Open a file that geodax writes, with flags of ``os.open``, unless it is a symbolic link (OSError).

    Child processes do not inherit the descriptor.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)


def links_in(folder: Path) -> list[Path]:
    """Return the symbolic links in a folder and its subfolders, or the folder itself if it is a link."""
    if folder.is_symlink():
        return [folder]
    below = (Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))
    return [path for path in below if path.is_symlink()]


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a path, with the suffix of ``path``, that replaces it when the block ends without an error.

    If the file cannot be written, the OSError names ``path``, which stays unchanged.
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
    """Add the name of a file, or its partial one, to an OSError that lacks it, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, partial, str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
