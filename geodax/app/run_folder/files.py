"""The files of a run folder: configuration, data, summary and log. Each is written atomically, except the log."""

import contextlib
import csv
import dataclasses
import datetime
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from geodax._files import open_own, replaced
from geodax._version import __version__
from geodax.app.tables.dialect import Dialect, RunDialect
from geodax.app.tables.names import apart
from geodax.app.tables.numpy_files import check_arrays
from geodax.app.tables.read import Table
from geodax.app.tables.text_files import LARGEST_UNPACKED, STANDARD_INPUT, read_standard_input
from geodax.diagnostics.summary import Summary
from geodax.run.errors import StorageError
from geodax.run.progress import Progress, Reporter, at_times, progress_bar

FORMAT = 1
_MARKER = "geodax_run"
"""Which version of run folders a folder is; nothing but geodax writes it into a ``config.json``."""
_LARGEST_RATIO = 100  # of a table of zeros and ones; deflate reaches 1,000
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
    """A folder is not a run, or not in the required state."""


def read_config(run: Path, models: Collection[str]) -> dict[str, Any]:
    """Read the configuration of a run; raises RunFolderError if the folder is not a run or has an unknown format."""
    path = run / "config.json"
    if not path.is_file():
        if run.is_file():
            raise RunFolderError(f"{run} is a file. Give the folder that `geodax fit` wrote, and a table after it.")
        raise RunFolderError(
            f"{run} is not a run folder: it has no config.json. Make one with `geodax fit ... --out "
            f"{shlex.quote(str(run))}`."
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        is_known = config["format"] == FORMAT and config["model"] in models
        wrong = [name for name, kind in _FACTS.items() if is_known and not isinstance(config.get(name), kind)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} missing or of the wrong type")
        digest = config.pop("digest", None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged ({type(error).__name__}: {error}).") from error
    if digest is not None and digest != _config_digest(config):
        raise RunFolderError(
            f"{path} was changed after geodax wrote it: its contents do not match their checksum. Restore the file, "
            "or fit again with other options in another folder."
        )
    if not is_known:
        raise RunFolderError(
            f"{path} has format {config['format']} and model {config['model']!r}, which this version of geodax does "
            "not support."
        )
    return config


def is_run(run: Path) -> bool:
    """Whether a folder is a run folder: its ``config.json`` has geodax's mark, or the checksum of earlier versions."""
    path = run / "config.json"
    if path.is_symlink() or not path.is_file():
        return False
    try:
        config = json.loads(path.read_bytes())
        is_marked = type(config.get(_MARKER)) is int
        return is_marked or ({"format", "model"} <= config.keys() and config.pop("digest") == _config_digest(config))
    except (ValueError, KeyError, AttributeError, RecursionError):
        return False


def write_config(run: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration of a run, with a checksum that :func:`read_config` verifies."""
    marked = {_MARKER: 1, **config}
    whole = marked | {"digest": _config_digest(marked)}
    with replaced(run / "config.json") as partial:
        partial.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def new_config(
    file: Path,
    model: str,
    options: Any,
    seed: int,
    columns: tuple[str, ...] | None,
    dialect: Dialect,
    noted: RunDialect,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Make the configuration of a new run, the argument of :func:`write_config`.

    The columns and the dialect are those that were asked for, ``noted`` has what was found in the table, and ``facts``
    are what else is known of the data.
    """
    return {
        "format": FORMAT,
        "model": model,
        "options": dataclasses.asdict(options),
        "seed": seed,
        "file": str(file),
        "absolute_file": str(file if str(file) == STANDARD_INPUT else file.absolute()),
        "asked_columns": columns,
        "dialect": dataclasses.asdict(dialect),
        "separators": noted.shown[-1]._asdict() if noted.shown else {},
        "forms": noted.forms,
        "sha256": file_digest(file),
        **facts,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"geodax": __version__, **{name: version(name) for name in ("jax", "numpy", "equinox", "xarray")}},
    }


def config_of_now(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the configuration of an earlier version, which stored a decimal point that the user had not given."""
    kept = config.get("dialect", {})
    if "separators" in config or kept.get("decimal") != ".":
        return config
    return {**config, "dialect": {**kept, "decimal": None}}


def write_summary(path: Path, summary: Summary) -> None:
    """Write the summary of a run atomically."""
    with replaced(path) as partial:
        summary.to_csv(partial)


def _config_digest(config: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(config))  # as it will be read back: keys are strings
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's contents, or of standard input."""
    if str(path) == STANDARD_INPUT:
        return hashlib.sha256(read_standard_input()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_data(path: Path, digest: str | None) -> None:
    """Raise StorageError if a run's data file is missing or has another SHA-256; without one there is no check."""
    try:
        found = file_digest(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}. A run needs its original data.") from error
    if digest is not None and found != digest:
        raise StorageError(
            f"{path} was changed or damaged after the run started (its SHA-256 begins with {found[:12]}, config.json "
            f"has {digest[:12]}). Restore the file, or fit again."
        )


def fitted_table(config: Mapping[str, Any]) -> Path:
    """Return the absolute path of the fitted table; in runs of earlier versions, the path as it was given."""
    return Path(config.get("absolute_file", config["file"]))


def table_note(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note if the fitted table has changed since the fit."""
    file = fitted_table(config)
    try:
        is_changed = file.is_file() and file_digest(file) != config["sha256"]
    except OSError:
        is_changed = False
    if not is_changed:
        return ()
    return (
        f"{file} has changed since the run started. The run continues with its original data. Fit again to use the "
        "new data.",
    )


def save_arrays(path: Path, **arrays: Any) -> None:
    """Keep arrays by name; large ones as they are, for compression takes long and saves little of most numbers."""
    total = sum(np.asarray(array).nbytes for array in arrays.values())
    (np.savez_compressed if total <= _MOST_COMPRESSED else np.savez)(path, **arrays)


def save_data(path: Path, data: Any) -> None:
    """Keep the fields of a dataclass as plain arrays, but those that are None."""
    save_arrays(path, **{name: x for name, x in dataclasses.asdict(data).items() if x is not None})


def load_data(path: Path, kind: type, **earlier: Any) -> Any:
    """Read a dataclass that :func:`save_data` kept; StorageError if it is damaged.

    Fields that are not in the file have the values that earlier versions stand for, or else their defaults.
    """
    with kept_arrays(path) as file:
        found = {
            field.name: _as_field(field.type, file[field.name])
            for field in dataclasses.fields(kind)
            if field.name in file or field.default is field.default_factory is dataclasses.MISSING
        }
        return kind(**earlier | found)


def _as_field(kind: Any, array: np.ndarray) -> Any:
    if kind == tuple[str, ...]:
        return tuple(map(str, array.tolist()))
    if kind == tuple[tuple[str, str], ...]:
        return tuple((str(a), str(b)) for a, b in array.tolist())
    return kind(array) if kind in (str, float, bool) else array


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
    with kept_arrays(path) as file:
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


@contextlib.contextmanager
def kept_arrays(path: Path) -> Iterator[Any]:
    """Yield the open file, a mapping, of the arrays of ``data.npz``, which may come from somebody else.

    Raises StorageError if it is damaged, or unpacks to a gigabyte and to a hundred times its size.
    """
    try:
        check_arrays(path, max(LARGEST_UNPACKED, _LARGEST_RATIO * path.stat().st_size))
        with np.load(path, allow_pickle=False) as file:
            yield file
    except Exception as error:
        raise StorageError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def number_text(value: Any) -> str:
    """Format a number as a table cell: the shortest round-trip form, integers without a point, NaN as an empty cell."""
    return "" if np.isnan(value) else str(value).removesuffix(".0")


def write_rows(path: Path, heading: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of texts and numbers as CSV."""
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(heading)
        writer.writerows([cell if isinstance(cell, str) else number_text(cell) for cell in row] for row in rows)


def write_numbered(
    path: Path,
    texts: Mapping[str, Sequence[str]],
    heading: Sequence[str],
    columns: Sequence[np.ndarray],
    numbers: Sequence[int] | None = None,
) -> None:
    """Write rows as CSV: their numbers (by default from 1), their texts by column, and columns of predictions."""
    numbers = range(1, len(columns[0]) + 1) if numbers is None else numbers
    rows = zip(numbers, *texts.values(), *columns, strict=True)
    write_rows(path, ["row", *apart(texts, ["row", *heading]), *heading], rows)


@contextlib.contextmanager
def opened_log(path: Path) -> Iterator[Callable[[str], None]]:
    """Open the run's log file for appending, and yield a function that writes a line with its time.

    A line that cannot be written is dropped: on a full disk, the error comes from writing the draws.
    """
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with open(descriptor, "ab", buffering=0) as file:  # unbuffered

        def log(message: str) -> None:
            stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            with contextlib.suppress(OSError):
                file.write(f"{stamp} {message}\n".encode())

        yield log


@contextlib.contextmanager
def reporting_to(log: Callable[[str], None], show: bool) -> Iterator[Reporter]:
    """Yield a function that writes the progress to the log, about every ten seconds, and shows a bar."""
    to_log = at_times(log, 10.0)
    with progress_bar(stderr=True) if show else contextlib.nullcontext(lambda _: None) as bar:

        def report(progress: Progress) -> None:
            to_log(progress)
            bar(progress)

        yield report
