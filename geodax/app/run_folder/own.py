"""The files that geodax writes into a run folder. No other file in it is ever replaced, moved or removed."""

import contextlib
import dataclasses
import itertools
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from geodax.app.run_folder.files import RunFolderError, is_run

EARLIER = "earlier-run"
"""Subfolder of the replaced run until the new one has started."""
REMOVED = "earlier-run.removed"
"""Its name while it is removed."""
NAMES = (
    "config.json",
    "config.json.partial",
    "data.npz",
    "posterior.zarr",
    "posterior.zarr.lock",
    "checkpoint",
    "log",
    "lock",
    "summary.csv",
    "report.html",
    "predictions.csv",
    EARLIER,
    REMOVED,
)
"""Names of geodax's files in a run folder."""
_TREES = r"posterior\.zarr|checkpoint"
_RUN = r"(?:earlier-run(?:\.removed)?/)?"
_FOLDERS = re.compile(rf"earlier-run(?:\.removed)?|{_RUN}(?:{_TREES})(?:/.*)?", re.DOTALL)
_KEPT = r"checkpoint(?:/fit-\d+)?"
_HEX = r"[0-9a-f]{32}"
_ARRAYS = rf"(?:ocdbt\.process_\d+/)?(?:manifest\.ocdbt|d/{_HEX})(?:\.__lock)?"
_FILES = re.compile(
    rf"""{_RUN}(?:
        {"|".join(re.escape(name) for name in NAMES if not re.fullmatch(f"{_TREES}|earlier-run.*", name))}
      | \.{{1,2}}geodax-[^/]*  # a temporary file that a killed process left
      | posterior\.zarr/(?:[^/]+/)*(?:zarr\.json|zarr\.{_HEX}\.partial|c(?:/\d+)*(?:\.{_HEX}\.partial)?)
      | {_KEPT}/lock
      | {_KEPT}/steps/\d+[^/]*/(?:_CHECKPOINT_METADATA|commit_success\.txt)
      | {_KEPT}/steps/\d+[^/]*/(?:facts|state)[^/]*/
        (?:metadata|_METADATA|_sharding|_strings\.json|commit_success\.txt|array_metadatas/process_\d+|{_ARRAYS})
    )""",
    re.VERBOSE | re.DOTALL,
)
_LOCK = re.compile(rb"(?:process \d+ on [^\n]*\n)?")
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Contents:
    """Contents of a run folder.

    Attributes:
        own: Files and folders that geodax wrote: each folder after its contents, ``config.json`` last.
        others: Everything else; of a folder that geodax did not create, only the folder itself.
        links: Symbolic links in places where geodax writes; they are among ``others`` too.
    """

    own: tuple[Path, ...]
    others: tuple[Path, ...]
    links: tuple[Path, ...]


def contents(run: Path) -> Contents:
    """List what geodax wrote in a folder, which may be missing, and everything else, by names and kinds of files."""
    own: list[Path] = []
    others: list[Path] = []
    links: list[Path] = []

    def look(folder: Path, prefix: str) -> None:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: (entry.name == "config.json", entry.name))
        for entry in found:
            name, path = prefix + entry.name, folder / entry.name
            if entry.is_dir(follow_symlinks=False) and _FOLDERS.fullmatch(name):
                look(path, f"{name}/")
                own.append(path)
            elif entry.is_file(follow_symlinks=False) and _FILES.fullmatch(name):
                own.append(path)
            else:
                others.append(path)
            if entry.is_symlink() and (prefix or _FOLDERS.fullmatch(name) or _FILES.fullmatch(name)):
                links.append(path)

    if run.is_dir():
        look(run, "")
    return Contents(tuple(own), tuple(others), tuple(links))


def remove(run: Path, is_meant: Callable[[str], bool]) -> None:
    """Remove files that geodax wrote, and folders that are then empty; the caller holds the lock.

    ``is_meant`` says whether to remove a name directly in the run folder, with everything below it.
    """
    for path in contents(run).own:
        if is_meant(path.relative_to(run).parts[0]):
            _delete(path)


def require_no_links(run: Path) -> None:
    """Raise RunFolderError if a file of a run, or one in its draws or checkpoints, is a symbolic link."""
    links = contents(run).links
    if links:
        raise RunFolderError(
            f"{_listed(links)}: expected a file or folder that geodax wrote, found a symbolic link, which could make "
            "geodax write outside the run folder. Remove the link, or replace it with a copy of its target."
        )


def new_folder(model: str, file: str | Path) -> Path:
    """Make the folder of a run for which none was named: ``runs/MODEL-TABLE``, with a number from 2 if that exists."""
    stem = Path(file).name.partition(".")[0].strip("-") or "table"
    for number in itertools.count(1):
        folder = Path("runs") / "-".join([model, stem, *([str(number)] if number > 1 else [])])
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


def require_free_folder(out: Path, overwrite: bool) -> None:
    """Raise RunFolderError if a folder holds a run that may not be replaced, or anything that geodax did not write."""
    if not out.exists():
        return
    if not out.is_dir():
        raise RunFolderError(f"{out} exists already. It is not a folder. Choose another --out.")
    require_no_links(out)
    found = contents(out)
    if not (found.own or found.others) or _is_beginning(out, found):
        return
    if not is_run(out):
        raise RunFolderError(
            f"{out} exists already. It is not a run folder: it has no config.json that geodax wrote. Choose another "
            "--out."
        )
    if not overwrite:
        raise RunFolderError(
            f"{out} exists already. It holds a run: continue with `geodax resume {shlex.quote(str(out))}`, replace it "
            "with --overwrite, or choose another --out."
        )
    if found.others:
        raise RunFolderError(
            f"{out} holds files that geodax did not write: {_listed(found.others)}. --overwrite replaces only the "
            "files of a run. Move the others elsewhere, or choose another --out."
        )


def _is_beginning(out: Path, found: Contents) -> bool:
    """Whether a folder holds only what a fit leaves if it is killed before it writes config.json."""
    names = {path.name for path in found.own if not path.name.startswith(".geodax-")}
    if found.others or "lock" not in names or not names <= {"lock", "data.npz", "config.json.partial"}:
        return False
    with open(out / "lock", "rb") as lock:
        return _LOCK.fullmatch(lock.read(1000)) is not None


def _listed(paths: tuple[Path, ...]) -> str:
    further = f" and {len(paths) - _SHOWN} more" * (len(paths) > _SHOWN)
    return ", ".join(f"{path}{'/' * (path.is_dir() and not path.is_symlink())}" for path in paths[:_SHOWN]) + further


def _delete(path: Path) -> None:
    if path.is_dir():
        with contextlib.suppress(OSError):  # not empty
            path.rmdir()
    else:
        path.unlink()
