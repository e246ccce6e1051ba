"""The files of a run folder: configuration, table, log; each written so that a reader finds it whole."""

import contextlib
import datetime
import hashlib
import json
import os
import shlex
import time
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.tables import Table
from geodax.run.errors import StorageError
from geodax.run.progress import Progress, ProgressBar

FORMAT = 1
_MOST_COMPRESSED = 1 << 24  # bytes
_FACTS: dict[str, type] = {
    "options": dict,
    "seed": int,
    "file": str,
    "sha256": str,
    "notes": list,
    "created": str,
    "versions": dict,
}


class RunFolderError(ValueError):
    """A folder is not a run, or not in the state that was asked for."""


def read_config(run: Path, models: Collection[str]) -> dict[str, Any]:
    """The configuration of a run; RunFolderError if the folder is not a run, or one this version does not know."""
    path = run / "config.json"
    if not path.is_file():
        raise RunFolderError(
            f"{run} is not a run folder: it has no config.json. Make one with `geodax fit ... --out "
            f"{shlex.quote(str(run))}`."
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        is_known = config["format"] == FORMAT and config["model"] in models
        wrong = [name for name, kind in _FACTS.items() if is_known and not isinstance(config.get(name), kind)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} missing or of another kind")
        digest = config.pop("digest", None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged ({type(error).__name__}: {error}).") from error
    if digest is not None and digest != _config_digest(config):
        raise RunFolderError(
            f"{path} was changed since it was written: its contents do not match their checksum. Put the file back as "
            "it was, or fit again with other options in another folder."
        )
    if not is_known:
        raise RunFolderError(
            f"{path} is of format {config['format']} and model {config['model']!r}, which this version of "
            "geodax does not know."
        )
    return config


def write_config(run: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration of a run, with a checksum that :func:`read_config` looks at."""
    whole = dict(config) | {"digest": _config_digest(config)}
    write_text(run / "config.json", json.dumps(whole, indent=2) + "\n")


def _config_digest(config: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(config))  # as it will be read: keys are strings
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_data(path: Path, digest: str | None) -> None:
    """Refuse data that are not those with which a run was begun.

    Args:
        path: The file of the data in the run folder.
        digest: Its SHA-256 when it was written; None lets everything pass.

    Raises:
        StorageError: If it is gone, or another.
    """
    try:
        found = file_digest(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}. A run needs the data it was begun with.") from error
    if digest is not None and found != digest:
        raise StorageError(
            f"{path} is not what the run was begun with (its SHA-256 begins with {found[:12]}, config.json says "
            f"{digest[:12]}): it was changed or damaged. Put the file back as it was, or fit again."
        )


def fitted_table(config: Mapping[str, Any]) -> Path:
    """Where the table of a run was when it was fitted.

    Args:
        config: The configuration of the run.

    Returns:
        Its path from the root, whatever folder the fit was called in; as it was named, in a run of an earlier version.
    """
    return Path(config.get("absolute_file", config["file"]))


def table_note(config: Mapping[str, Any]) -> tuple[str, ...]:
    """A word if the table that was fitted is another one by now.

    Args:
        config: The configuration of the run.

    Returns:
        One sentence, or none.
    """
    file = fitted_table(config)
    try:
        is_changed = file.is_file() and file_digest(file) != config["sha256"]
    except OSError:
        is_changed = False
    if not is_changed:
        return ()
    return (
        f"{file} has changed since the run was begun; the run goes on with the data it was begun with. Fit again to "
        "use the new ones.",
    )


def save_arrays(path: Path, **arrays: Any) -> None:
    """Keep arrays by name; large ones as they are, for compression takes long and saves little of most numbers."""
    total = sum(np.asarray(array).nbytes for array in arrays.values())
    (np.savez_compressed if total <= _MOST_COMPRESSED else np.savez)(path, **arrays)


def save_table(path: Path, table: Table) -> None:
    """Keep a table as plain arrays."""
    save_arrays(
        path,
        values=table.values,
        names=np.array(table.names, dtype=str),
        row_labels=np.array(table.row_labels, dtype=str),
        text_names=np.array(list(table.text), dtype=str),
        text_values=np.array(list(table.text.values()), dtype=str),
        notes=np.array(table.notes, dtype=str),
    )


def load_table(path: Path) -> Table:
    """Read a table that :func:`save_table` kept; StorageError if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            text = {
                str(name): tuple(map(str, values))
                for name, values in zip(file["text_names"], file["text_values"], strict=True)
            }
            return Table(
                path=str(path),
                names=tuple(map(str, file["names"])),
                values=file["values"],
                row_labels=tuple(map(str, file["row_labels"])),
                text=text,
                notes=tuple(map(str, file["notes"])),
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise StorageError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it is there in full or not at all."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def number_text(value: Any) -> str:
    """A number as a cell of a table.

    Args:
        value: A number of Python or NumPy.

    Returns:
        The fewest digits from which the same number is read again, whole numbers without a point; nothing for NaN.
    """
    return "" if np.isnan(value) else str(value).removesuffix(".0")


class Log:
    """The run's log file: lines with their times, opened for appending.

    A line for which there is no room is left out: a full disk ends a run where its draws cannot be written, and with a
    message about them.
    """

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> "Log":
        self._file = open(self._path, "ab", buffering=0)  # nothing waits to be written at the end
        return self

    def __call__(self, message: str) -> None:
        """Write one line."""
        stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            self._file.write(f"{stamp} {message}\n".encode())

    def __exit__(self, *exception: object) -> None:
        self._file.close()


class Reporter:
    """A function of the progress that writes the log (at most once in ten seconds) and moves the bar."""

    def __init__(self, log: Callable[[str], None], show: bool):
        self._log = log
        self._bar = ProgressBar() if show else None
        self._logged_at = 0.0

    def __enter__(self) -> "Reporter":
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __call__(self, progress: Progress) -> None:
        """Log and show."""
        now = time.monotonic()
        if now - self._logged_at > 10 or progress.iteration in (progress.num_warmup, progress.num_iterations):
            self._logged_at = now
            self._log(str(progress))
        if self._bar is not None:
            self._bar(progress)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*exception)
