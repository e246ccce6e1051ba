"""The files of a run folder: configuration, table, log; each written so that a reader finds it whole."""

import datetime
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.tables import Table
from geodax.run.errors import StorageError
from geodax.run.progress import Progress, ProgressBar

FORMAT = 1


class RunFolderError(ValueError):
    """A folder is not a run, or not in the state that was asked for."""


def read_config(run: Path, models: Collection[str]) -> dict[str, Any]:
    """The configuration of a run; RunFolderError if the folder is not a run, or one this version does not know."""
    path = run / "config.json"
    if not path.is_file():
        raise RunFolderError(
            f"{run} is not a run folder: it has no config.json. Make one with `geodax fit ... --out {run}`."
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        is_known = config["format"] == FORMAT and config["model"] in models
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path} is damaged ({type(error).__name__}: {error}).") from error
    if not is_known:
        raise RunFolderError(
            f"{path} is of format {config['format']} and model {config['model']!r}, which this version of "
            "geodax does not know."
        )
    return config


def save_table(path: Path, table: Table) -> None:
    """Keep a table as plain arrays."""
    np.savez_compressed(
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
    except (OSError, ValueError, KeyError) as error:
        raise StorageError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a small file so that it is there in full or not at all."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


class Log:
    """The run's log file: lines with their times, opened for appending."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> "Log":
        self._file = open(self._path, "a", encoding="utf-8")
        return self

    def __call__(self, message: str) -> None:
        """Write one line."""
        stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._file.write(f"{stamp} {message}\n")
        self._file.flush()

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
