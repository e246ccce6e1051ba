"""What a user names to be written: nothing needed is written over, nothing is left half written."""

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geodax._files import replaced
from geodax.app.run_folder.files import RunFolderError, file_digest, fitted_table
from geodax.app.run_folder.own import NAMES

STANDARD_OUTPUT = Path("-")
"""What a user says for the standard output instead of the name of a file."""
_OPEN_FILE = re.compile(r"(?:/proc/self|/dev)/fd/([0-9]+)")
_MOST_LINKS = 40


def require_free_place(path: Path, run: Path, config: Mapping[str, Any], name: str, file: Path | None = None) -> None:
    """Refuse to write over a table, over another file of the run, or where no file can be.

    Args:
        path: The file to write.
        run: The run folder.
        config: Its configuration.
        name: What such a file in the run folder is called.
        file: The table that is read for it, or None.

    Raises:
        RunFolderError: If something would be lost, or there is no folder for the file.
    """
    if path == STANDARD_OUTPUT:
        return
    if path.is_dir():
        raise RunFolderError(
            f"--out {path} is a folder; name a file in it, such as --out {shlex.quote(str(path / name))}."
        )
    if not path.parent.is_dir():
        raise RunFolderError(f"--out {path}: there is no folder {path.parent}; make it first, or choose another --out.")
    if file is not None and path.exists() and _is_same(path, file):
        raise RunFolderError(f"{path} is the table to predict for, which would be lost; choose another --out.")
    if _is_fitted(path, config):
        raise RunFolderError(f"{path} is the table that was fitted, which would be lost; choose another --out.")
    if path.is_symlink() and _real(path.parent).is_relative_to(_real(run)):
        raise RunFolderError(
            f"{path} is a symbolic link out of the run folder, through which nothing is written. Remove it, or name "
            "the file that it leads to."
        )
    for own in set(NAMES) - {name}:
        if _is_same(path, run / own) or _real(path).is_relative_to(_real(run / own)):
            raise RunFolderError(f"{path} belongs to the run in {run}, which needs it; choose another --out.")


@contextlib.contextmanager
def replaced_at_the_end(path: Path) -> Iterator[Path]:
    """A file to write that replaces another one when all is written.

    A pipe, a device, and what this process has open, such as ``/dev/stdout``, be it a file or not, are added to when
    all is written.

    Args:
        path: Where the file is to be; ``-`` is the standard output.

    Yields:
        Where to write it.
    """
    sink: int | Path | None = open_descriptor(path)
    whole = _real(path)
    if sink is None and whole.exists() and not whole.is_file():
        sink = path
    if sink is None:
        with replaced(whole) as partial:
            yield partial
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "whole"
        _add(Path(folder) / "whole", sink)


def open_descriptor(path: Path) -> int | None:
    """The number under which this process has a file open that is named by it.

    Args:
        path: A path, such as ``-``, ``/dev/stdout`` or ``/dev/fd/3``, or a link to one.

    Returns:
        The number, or None for the path of a file.
    """
    if path == STANDARD_OUTPUT:
        return 1
    at = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        found = _OPEN_FILE.fullmatch(at.replace(f"/proc/{os.getpid()}/", "/proc/self/"))
        if found:
            return int(found[1])
        if not os.path.islink(at):
            return None
        at = os.path.normpath(os.path.join(os.path.dirname(at), os.readlink(at)))
    return None


def _add(file: Path, sink: int | Path) -> None:
    """Write a file to what is open; a reader that has had enough may close it before."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()  # what was said before comes before
        with open(file, "rb") as source, open(sink, "wb", closefd=isinstance(sink, Path)) as target:
            shutil.copyfileobj(source, target)


def _is_fitted(path: Path, config: Mapping[str, Any]) -> bool:
    """Whether a path leads to the table that was fitted: where it was then, or to where it has been moved since."""
    if not path.exists():
        return False
    if _is_same(path, fitted_table(config)):
        return True
    try:
        return path.is_file() and file_digest(path) == config["sha256"]
    except OSError:  # it cannot be read
        return False


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return _real(one) == _real(other) or one.samefile(other)
    except OSError:  # one of them is not there
        return False


def _real(path: Path) -> Path:
    """Where a path leads, through symbolic links."""
    return Path(os.path.realpath(path))
