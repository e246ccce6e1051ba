"""An experiment as pieces of work whose figures are kept in one JSON file.

A piece is named by its labels (method, setting, seed, ...). The file is written anew, atomically, after each piece,
and a piece that it holds already is not run again, so an experiment may be interrupted at any time and extended by
seeds later. Long pieces keep checkpoints in a folder of their own and go on from them. Several processes may work at
one experiment: each takes pieces that no other has in hand, and adds to the file what it has measured.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from geodax import __version__

Labels = dict[str, Any]
Figures = dict[str, Any]

RESULTS = Path(__file__).resolve().parents[1] / "results"
RUNS = Path(__file__).resolve().parents[2] / "runs" / "experiments"
_VERSIONS = ("jax", "jaxlib", "numpy", "scipy", "arviz")


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
        measure_seeds: In place of ``measure`` for pieces of minutes and hours: from a configuration, the labels without
            the seed, some seeds and a folder for checkpoints to the figures of each seed. Seeds may run side by side.
        may_change: Fields of the configuration that may differ between the runs of one record, because labels say all
            that matters of them.
        double: Whether it runs in double precision.
    """

    name: str
    config: Any
    smoke: Any
    pieces: Callable[[Any], Iterable[Labels]]
    measure: Callable[[Any, Labels], Figures] | None = None
    tables: Mapping[str, Callable[["Record"], str]] = dataclasses.field(default_factory=dict)
    pictures: Mapping[str, Callable[["Record"], Any]] = dataclasses.field(default_factory=dict)
    measure_seeds: Callable[[Any, Labels, tuple[int, ...], Path], list[Figures]] | None = None
    may_change: tuple[str, ...] = ("seeds",)
    double: bool = True


@dataclasses.dataclass
class Record:
    """Everything an experiment has measured so far.

    Attributes:
        experiment: Its name.
        config: Its configuration.
        pieces: For each finished piece ``labels``, ``figures``, ``wall_time`` in seconds, with those of interrupted
            processes up to their last checkpoints, ``versions``, ``machine``.
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
    runs: Path | None = None,
    only: Mapping[str, Any] | None = None,
    together: int = 1,
    report: Callable[[str], None] = print,
) -> Record:
    """Measure what is not measured yet.

    Args:
        experiment: The experiment.
        config: Its configuration; that of an earlier record may differ in the fields of ``may_change``.
        results: Folder of the records.
        runs: Folder of the checkpoints of long pieces; None is ``runs/experiments`` beside the default results, or
            ``runs`` in another folder of results.
        only: Labels that a piece must carry to be run now; a value may be a list of which it must be one.
        together: How many seeds of the same labels run side by side, in experiments that can.
        report: Receives a line for each piece.

    Returns:
        The record, as it is on disk.

    Raises:
        ConfigError: If the record on disk was made with another configuration.
    """
    path = path_of(experiment, results)
    runs = (RUNS if results == RESULTS else results / "runs") if runs is None else runs
    settings = json.loads(json.dumps(dataclasses.asdict(config)))
    record = load(experiment, results) if path.exists() else Record(experiment.name, settings, [])
    _require_same(record, settings, path, experiment.may_change)
    done = {_identity(piece["labels"]) for piece in record.pieces}
    wanted = [labels for labels in experiment.pieces(config) if _identity(labels) not in done and _meets(labels, only)]
    groups = _groups(wanted, together if experiment.measure_seeds else 1)
    fixed = {name: value for name, value in settings.items() if name not in experiment.may_change}
    for number, group in enumerate(groups, start=1):
        folder = runs / experiment.name / _digest([fixed, group])
        with _taken(folder) as is_ours:
            now = load(experiment, results).pieces if path.exists() else []
            if not is_ours or {_identity(labels) for labels in group} <= {_identity(p["labels"]) for p in now}:
                continue  # another process has it in hand, or has done it meanwhile
            earlier = _seconds_before(folder) if experiment.measure_seeds else 0.0
            started = time.perf_counter()
            figures = _measured(experiment, config, group, folder)
            seconds = earlier + time.perf_counter() - started
            with _alone(runs / f"{experiment.name}.lock"):
                _add(path, experiment, settings, group, figures, seconds)
            named = ", ".join(f"{name} {value}" for name, value in group[0].items())
            others = f" and {len(group) - 1} more seeds" if len(group) > 1 else ""
            report(f"{experiment.name} {number}/{len(groups)}: {named}{others}: {seconds:.1f} s")
            shutil.rmtree(folder, ignore_errors=True)
    return load(experiment, results) if path.exists() else record


def _seconds_before(folder: Path) -> float:
    """Seconds that interrupted processes gave to a piece, each up to its last checkpoint; notes when this one began."""
    note, seconds = folder / "clock.json", 0.0
    if note.exists():
        seconds, began = json.loads(note.read_text())
        ends = [path.stat().st_mtime for path in folder.rglob("*") if path.is_file() and path != note]
        seconds += max([0.0, *(end - began for end in ends)])
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps([seconds, time.time()]))
    return seconds


def _measured(experiment: Experiment, config: Any, group: list[Labels], folder: Path) -> list[Figures]:
    if experiment.measure_seeds is None:
        assert experiment.measure is not None
        return [_plain(experiment.measure(config, labels)) for labels in group]  # waits for what JAX still computes
    shared = {name: value for name, value in group[0].items() if name != "seed"}
    seeds = tuple(labels["seed"] for labels in group)
    return [_plain(figures) for figures in experiment.measure_seeds(config, shared, seeds, folder)]


def _groups(pieces: list[Labels], together: int) -> list[list[Labels]]:
    """Pieces that differ in their seed alone, so many of them in a group, in the order of the first ones."""
    groups: list[list[Labels]] = []
    open_groups: dict[str, list[Labels]] = {}
    for labels in pieces:
        name = _identity({key: value for key, value in labels.items() if key != "seed"})
        if len(open_groups.get(name, ())) in (0, together):
            open_groups[name] = []
            groups.append(open_groups[name])
        open_groups[name].append(labels)
    return groups


def _add(
    path: Path, experiment: Experiment, settings: dict, group: list[Labels], figures: list[Figures], seconds: float
) -> None:
    """Add pieces to the record on disk, which another process may have changed since it was read."""
    record = Record(**json.loads(path.read_text())) if path.exists() else Record(experiment.name, settings, [])
    record.config = settings
    done = {_identity(piece["labels"]) for piece in record.pieces}
    for labels, found in zip(group, figures, strict=True):
        if _identity(labels) not in done:
            piece = {"labels": labels, "figures": found, "wall_time": round(seconds / len(group), 3)}
            record.pieces.append(piece | {"versions": installed_versions(), "machine": machine()})
    write_atomically(path, json.dumps(dataclasses.asdict(record), indent=1) + "\n")


@contextlib.contextmanager
def _alone(claim: Path) -> Iterator[None]:
    """Wait until no other process is in the same block."""
    with open(claim, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _taken(folder: Path) -> Iterator[bool]:
    """Whether this process has the piece of a folder to itself; the claim ends with the process, however it ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    claim = folder.parent / f"{folder.name}.lock"
    with open(claim, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(claim)


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
    found = {"geodax": __version__}
    for name in _VERSIONS:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found | {"python": platform.python_version()}


def machine() -> str:
    """The machine in a few words."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    threads = "one thread" if os.environ.get("NPROC") == "1" else "all threads"
    return f"{platform.machine()}, {os.cpu_count()} cores, {threads}"


def _identity(labels: Labels) -> str:
    return json.dumps(labels, sort_keys=True)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _meets(labels: Labels, only: Mapping[str, Any] | None) -> bool:
    return all(labels.get(k) in (v if isinstance(v, list) else [v]) for k, v in (only or {}).items())


def _require_same(record: Record, settings: dict[str, Any], path: Path, may_change: tuple[str, ...]) -> None:
    names = sorted((record.config.keys() | settings.keys()) - set(may_change))
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
