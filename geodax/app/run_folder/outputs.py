"""Output files named by the user: they are written atomically and never overwrite a file that is needed."""

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geodax._files import replaced
from geodax.app.run_folder.files import RunFolderError, file_digest, fitted_table
from geodax.app.run_folder.own import NAMES

STANDARD_OUTPUT = Path("-")
"""The file name that stands for standard output."""
_OPEN_FILE = re.compile(r"(?:/proc/self|/dev)/fd/([0-9]+)")
_MOST_LINKS = 40


def require_free_place(path: Path, run: Path, config: Mapping[str, Any], name: str, file: Path | None = None) -> None:
    """Raise RunFolderError if an output would overwrite a table or another file of the run, or cannot be written.

    The name is the output's default in the run folder, and the file its input table, if any.
    """
    if path == STANDARD_OUTPUT:
        return
    if path.is_dir():
        raise RunFolderError(
            f"--out {path} is a folder. Name a file in it, such as --out {shlex.quote(str(path / name))}."
        )
    if not path.parent.is_dir():
        raise RunFolderError(f"--out {path}: there is no folder {path.parent}. Create it, or choose another --out.")
    if file is not None and path.exists() and _is_same(path, file):
        raise RunFolderError(f"{path} is the table to predict for and would be overwritten. Choose another --out.")
    if _is_fitted(path, config):
        raise RunFolderError(f"{path} is the table that was fitted and would be overwritten. Choose another --out.")
    if path.is_symlink() and _real(path.parent).is_relative_to(_real(run)):
        raise RunFolderError(
            f"{path} is a symbolic link in the run folder; geodax does not write through links there. Remove it, or "
            "name the file that it points to."
        )
    for own in set(NAMES) - {name}:
        if _is_same(path, run / own) or _real(path).is_relative_to(_real(run / own)):
            raise RunFolderError(f"{path} belongs to the run in {run}, which needs it. Choose another --out.")


@contextlib.contextmanager
def replaced_at_the_end(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces an output at the end of the block; ``-`` is standard output.

    For a pipe, a device, or a file that this process has open, such as ``/dev/stdout``, the contents are copied to it
    at the end.
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
    """Return the file descriptor that ``-``, ``/dev/stdout``, ``/dev/fd/3`` or a link to one names; None for a file."""
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
    """Copy a file to an open sink; ignore a reader that closes it early."""
    with contextlib.suppress(BrokenPipeError):
        print(end="", flush=True)  # earlier output comes first
        with open(file, "rb") as source, open(sink, "wb", closefd=isinstance(sink, Path)) as target:
            shutil.copyfileobj(source, target)


def _is_fitted(path: Path, config: Mapping[str, Any]) -> bool:
    """Whether a path leads to the fitted table, at its original place or elsewhere with the same contents."""
    if not path.exists():
        return False
    if _is_same(path, fitted_table(config)):
        return True
    try:
        return path.is_file() and file_digest(path) == config["sha256"]
    except OSError:  # unreadable
        return False


def _is_same(one: Path, other: Path) -> bool:
    try:
        return _real(one) == _real(other) or one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
