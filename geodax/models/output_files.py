"""Files that a user names for reports and predictions: nothing needed is written over, nothing is left half written."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from geodax.models import earlier_run
from geodax.models.run_files import RunFolderError


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
    if path.is_dir():
        raise RunFolderError(f"--out {path} is a folder; name a file in it, such as --out {path / name}.")
    if not path.parent.is_dir():
        raise RunFolderError(f"--out {path}: there is no folder {path.parent}; make it first, or choose another --out.")
    for table, what in ((file, "the table to predict for"), (Path(config["file"]), "the table that was fitted")):
        if table is not None and path.exists() and _is_same(path, table):
            raise RunFolderError(f"{path} is {what}, which would be lost; choose another --out.")
    outputs = {"predictions.csv", "report.html"} - {name}
    for own in (*earlier_run.OWN, "lock", earlier_run.EARLIER, earlier_run.REMOVED, *outputs):
        if _is_same(path, run / own) or _real(path).is_relative_to(_real(run / own)):
            raise RunFolderError(f"{path} belongs to the run in {run}, which needs it; choose another --out.")


@contextlib.contextmanager
def replaced_at_the_end(path: Path) -> Iterator[Path]:
    """A file to write that replaces another one when all is written; a pipe or a device is written itself.

    Args:
        path: Where the file is to be.

    Yields:
        Where to write it.
    """
    whole = _real(path)
    if whole.exists() and not whole.is_file():
        yield path
        return
    partial = whole.with_name(f".geodax-{os.getpid()}.partial")
    try:
        yield partial
        if whole.exists():
            shutil.copymode(whole, partial)
        os.replace(partial, whole)
    finally:
        partial.unlink(missing_ok=True)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return _real(one) == _real(other) or one.samefile(other)
    except OSError:  # one of them is not there
        return False


def _real(path: Path) -> Path:
    """Where a path leads, through symbolic links."""
    return Path(os.path.realpath(path))
