"""An experiment as pieces of work whose figures are kept in one JSON file.

A piece is named by its labels (method, setting, seed, ...). The file is written anew, atomically, after each piece,
and a piece that it holds already is not run again, so an experiment may be interrupted at any time and extended by
seeds later.
"""

import contextlib
import dataclasses
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

Labels = dict[str, Any]
Figures = dict[str, Any]

RESULTS = Path(__file__).resolve().parents[1] / "results"
_VERSIONS = ("geodax", "jax", "jaxlib", "numpy", "scipy", "arviz")
_MAY_GROW = "seeds"


class ConfigError(ValueError):
    """The record on disk was made with another configuration."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a table or a figure of a paper is made of.

    Attributes:
        name: Folder and name of the record, ``"orthogonal_hmc/table_1_2"``.
        config: A frozen dataclass of JSON values, at the size that is reported.
        smoke: The same at a size for tests, some seconds in all.
        pieces: From a configuration to the labels of the pieces, in the order in which they are run.
        measure: From a configuration and a piece's labels to its figures, JSON values or NumPy arrays.
        tables: Markdown tables by name, made from a record.
        pictures: Matplotlib figures by name, made from a record.
    """

    name: str
    config: Any
    smoke: Any
    pieces: Callable[[Any], Iterable[Labels]]
    measure: Callable[[Any, Labels], Figures]
    tables: Mapping[str, Callable[["Record"], str]] = dataclasses.field(default_factory=dict)
    pictures: Mapping[str, Callable[["Record"], Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Record:
    """Everything an experiment has measured so far.

    Attributes:
        experiment: Its name.
        config: Its configuration.
        pieces: For each finished piece ``labels``, ``figures``, ``wall_time`` in seconds, ``versions``, ``machine``.
    """

    experiment: str
    config: dict[str, Any]
    pieces: list[dict[str, Any]]

    def rows(self, **labels: Any) -> list[dict[str, Any]]:
        """Labels and figures, side by side, of the pieces that carry the given labels."""
        rows = [piece["labels"] | piece["figures"] for piece in self.pieces]
        return [row for row in rows if all(row.get(name) == value for name, value in labels.items())]

    def row(self, **labels: Any) -> dict[str, Any]:
        """The one piece with the given labels."""
        rows = self.rows(**labels)
        if len(rows) != 1:
            raise LookupError(f"{self.experiment}: {len(rows)} pieces carry the labels {labels}, expected one.")
        return rows[0]

    def values(self, name: str, **labels: Any) -> np.ndarray:
        """One figure of all the pieces with the given labels."""
        return np.asarray([row[name] for row in self.rows(**labels)])


def path_of(experiment: Experiment, results: Path = RESULTS) -> Path:
    """Where an experiment's record lies."""
    return results / f"{experiment.name}.json"


def load(experiment: Experiment, results: Path = RESULTS) -> Record:
    """Read an experiment's record.

    Raises:
        FileNotFoundError: If there is none.
    """
    return Record(**json.loads(path_of(experiment, results).read_text()))


def run(
    experiment: Experiment,
    config: Any,
    *,
    results: Path = RESULTS,
    report: Callable[[str], None] = print,
) -> Record:
    """Measure what is not measured yet.

    Args:
        experiment: The experiment.
        config: Its configuration; that of an earlier record may differ in ``seeds`` alone.
        results: Folder of the records.
        report: Receives a line for each piece.

    Returns:
        The record, as it is on disk.

    Raises:
        ConfigError: If the record on disk was made with another configuration.
    """
    path = path_of(experiment, results)
    settings = json.loads(json.dumps(dataclasses.asdict(config)))
    record = load(experiment, results) if path.exists() else Record(experiment.name, settings, [])
    _require_same(record, settings, path)
    record.config = settings
    done = {_identity(piece["labels"]) for piece in record.pieces}
    pieces = [labels for labels in experiment.pieces(config) if _identity(labels) not in done]
    for number, labels in enumerate(pieces, start=1):
        started = time.perf_counter()
        figures = _plain(experiment.measure(config, labels))  # waits for what JAX still computes
        seconds = time.perf_counter() - started
        record.pieces.append(
            {
                "labels": labels,
                "figures": figures,
                "wall_time": round(seconds, 3),
                "versions": installed_versions(),
                "machine": machine(),
            }
        )
        write_atomically(path, json.dumps(dataclasses.asdict(record), indent=1) + "\n")
        named = ", ".join(f"{name} {value}" for name, value in labels.items())
        report(f"{experiment.name} {number}/{len(pieces)}: {named}: {seconds:.1f} s")
    return record


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content so that a reader, or a crash, sees the old or the new one and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp's files are the owner's alone
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def installed_versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    found = {}
    for name in _VERSIONS:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found | {"python": platform.python_version()}


def machine() -> str:
    """The machine in a few words."""
    threads = "one thread" if "intra_op_parallelism_threads=1" in os.environ.get("XLA_FLAGS", "") else "all threads"
    return f"{platform.machine()}, {os.cpu_count()} cores, {threads}"


def _identity(labels: Labels) -> str:
    return json.dumps(labels, sort_keys=True)


def _require_same(record: Record, settings: dict[str, Any], path: Path) -> None:
    names = sorted((record.config.keys() | settings.keys()) - {_MAY_GROW})
    changed = [name for name in names if record.config.get(name) != settings.get(name)]
    if changed:
        raise ConfigError(
            f"{path} was made with another configuration: "
            + ", ".join(f"{name} is {record.config.get(name)!r} there, {settings.get(name)!r} here" for name in changed)
            + ". Remove the file, or keep its configuration."
        )


def _plain(value: Any) -> Any:
    """JSON values from NumPy's and JAX's."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None  # JSON knows no infinity
    return value
