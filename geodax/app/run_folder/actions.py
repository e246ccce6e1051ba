"""A run folder: everything about one fit of one model to one file, and what can be done with it afterwards.

======================  =========================================================================================
``config.json``         model, options, seed, where the data came from, versions
``data.npz``            the data as they were fitted, so that reports and predictions need nothing else
``posterior.zarr``      the draws, streamed while the run goes on
``checkpoint/``         what a resumed run starts from
``log``                 progress and messages with their times
``lock``                held by the run that is at work; an empty folder's, or a dead run's, holds nobody up
``summary.csv``         posterior summaries and their diagnostics
``report.html``         written by :func:`report_run`
``predictions.csv``     written by :func:`predict_run`
``earlier-run/``        the run that is replaced, until the new one has begun (:mod:`geodax.app.run_folder.earlier`)
======================  =========================================================================================
"""

import dataclasses
import os
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from geodax import _checks as _arguments
from geodax._files import replaced
from geodax.app.families import FAMILIES, name_of, run_kind
from geodax.app.family import AbstractRunKind, RunResult
from geodax.app.run_folder import earlier as earlier_run
from geodax.app.run_folder.files import (
    Log,
    Reporter,
    RunFolderError,
    check_data,
    config_of_now,
    file_digest,
    new_config,
    read_config,
    table_note,
    write_config,
    write_summary,
)
from geodax.app.run_folder.formulas import about_formulas, formulas_as_text
from geodax.app.run_folder.outputs import open_descriptor, replaced_at_the_end, require_free_place
from geodax.app.run_folder.own import require_free_folder, require_no_links
from geodax.app.tables.dialect import FOUND, Dialect, RunDialect, Separators
from geodax.diagnostics.findings import summarize
from geodax.run import hosts
from geodax.run.draws import open_draws
from geodax.run.errors import SamplingInterrupted, StorageError
from geodax.run.locks import exclusive
from geodax.run.progress import Progress
from geodax.run.sharding import Devices

_LEAST_DRAWS = 4
"""Draws of all chains together that a report or a prediction needs."""


def fit_run(
    file: str | Path,
    options: Any,
    out: str | Path,
    *,
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    dialect: Dialect = FOUND,
    overwrite: bool = False,
    devices: Devices = None,
    progress: bool = True,
) -> RunResult:
    """Fit a model to a file and leave everything in a run folder.

    Args:
        file: CSV (or TSV, .csv.gz, .xlsx, .parquet, .npy, .npz) file; ``-`` is the standard input.
        options: The model's options; their type says which model.
        out: The run folder; made if it is missing.
        seed: Seed of all randomness.
        columns: Columns to use; None takes all numeric ones.
        dialect: How the file is written, where that should not be found out.
        overwrite: Replace a run that is already there, once the new one has begun.
        devices: Devices of the run, as in the estimators. They are no part of it: it may go on with others.
        progress: Whether to show a progress bar.

    Returns:
        The result.

    Raises:
        TableError: If the file cannot be read or holds nothing to fit.
        RunFolderError: If the folder holds something already.
        FolderInUseError: If another run is at work in it.
        ValueError: For options that do not fit the data.
        SamplingInterrupted: After SIGINT or SIGTERM; ``resume_run`` goes on.
    """
    seed = _arguments.whole("geodax fit", "--seed", seed, least=0, most=2**32 - 1)
    out = Path(out)
    kind = run_kind(name_of(options))
    noted = RunDialect(**dataclasses.asdict(dialect))
    data, facts = kind.read(Path(file), options, columns, noted)
    is_new = not out.exists()
    if hosts.is_first():
        earlier_run.settle(out, "make a run in")
        require_free_folder(out, overwrite)
    if Path(file).resolve().is_relative_to(out.resolve()):
        raise RunFolderError(f"{file} lies in {out}, which a fit would empty; move it, or choose another --out.")

    def prepare() -> str:
        """Bring the folder to where the run begins; returns the checksum of the data."""
        earlier_run.put_back(out)
        require_free_folder(out, overwrite)  # once more: another run may have been quicker
        earlier_run.set_aside(out)
        with replaced(out / "data.npz") as partial:
            kind.save(partial, data)
        return file_digest(out / "data.npz")

    def begun() -> None:
        """Let go of the run that was here before."""
        if hosts.is_first():
            earlier_run.forget(out)

    with exclusive(out / "lock", out, "make a run in"), earlier_run.kept_until_begun(out, hosts.is_first()):
        digest = hosts.first_does(prepare, f"make a run in {out}")
        facts = {"data_sha256": digest, **facts}
        config = new_config(Path(file), kind.name, options, seed, columns, dialect, noted.shown[-1:], facts)
        hosts.first_does(lambda: write_config(out, config), f"make a run in {out}")
        try:
            return _run(out, config, devices, progress, None if hosts.is_first() else data, begun)
        except (ValueError, TypeError):
            if hosts.is_first() and not (out / "posterior.zarr").exists():  # options that do not fit: nothing was begun
                earlier_run.clear(out)
                if is_new:
                    (out / "lock").unlink()
                    out.rmdir()
            raise


def resume_run(
    run: str | Path, *, num_samples: int | None = None, devices: Devices = None, progress: bool = True
) -> RunResult:
    """Go on with a run that was interrupted, or extend a finished one.

    Args:
        run: The run folder.
        num_samples: Draws for each chain in the end, if more than the run was begun with.
        devices: Devices to go on with, whatever the run was begun with.
        progress: Whether to show a progress bar.

    Returns:
        The result; draws are the same as those of a run that was never interrupted.

    Raises:
        RunFolderError: If the folder is not a run, or ``num_samples`` is smaller than before.
        CheckpointError: If no checkpoint can be read.
        FolderInUseError: If another run is at work in it.
        StorageError: If the data or the draws in the folder are damaged, or there is no room for more.
    """
    run = Path(run)
    notes = earlier_run.settle(run, "go on with the run in") if hosts.is_first() else ()
    read_config(run, FAMILIES)  # no lock in a folder that is not a run
    with exclusive(run / "lock", run, "go on with the run in"):
        config = read_config(run, FAMILIES)
        if num_samples is not None:
            before = config["options"]["num_samples"]
            if num_samples < before:
                raise RunFolderError(
                    f"The run in {run} was begun with {before} samples for each chain; it cannot shrink to "
                    f"{num_samples}."
                )
            config["options"]["num_samples"] = num_samples
        is_kept: list[bool] = []

        def begun() -> None:
            """Keep the larger number, not before a run that is refused would have ended."""
            if num_samples is not None and hosts.is_first() and not is_kept:
                write_config(run, config)
                is_kept.append(True)

        result = _run(run, config, devices, progress, begun=begun)
        return dataclasses.replace(result, notes=(*notes, *result.notes))


def report_run(run: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the HTML report of a run from its files alone; works on the draws there are if it is unfinished.

    Args:
        run: The run folder.
        out: The file to write, ``-`` for the standard output; None is ``report.html`` in the folder.

    Returns:
        The path of the report.

    Raises:
        RunFolderError: If the folder is not a run or has no draws yet, or the report would replace something else.
    """
    run = Path(run)
    require_no_links(run)
    earlier_run.require_settled(run)
    config = read_config(run, FAMILIES)
    kind = run_kind(config["model"])
    path = run / "report.html" if out is None else Path(out)
    require_free_place(path, run, config, "report.html")
    if open_descriptor(path) is None and path.exists() and not path.is_file():
        raise RunFolderError(f"--out {path} must be a file, for the report replaces what is there; name another.")
    data = _data(run, kind, config)
    model = _fitted(run, kind, config, data)
    with replaced_at_the_end(path) as partial:
        kind.report(config, data, model, kind.command(config_of_now(config), run), partial)
    return path


def predict_run(
    run: str | Path,
    file: str | Path,
    *,
    out: str | Path | None = None,
    spreadsheet: bool = False,
    dialect: Dialect = FOUND,
) -> tuple[Path, tuple[str, ...]]:
    """What the model says of new data: scores, densities, probabilities, states, whatever its kind predicts.

    Args:
        run: The run folder.
        file: New data.
        out: The file to write, ``-`` for the standard output; None is ``predictions.csv`` in the run folder.
        spreadsheet: Whether to write an apostrophe before text that a spreadsheet would take for a formula.
        dialect: How the file is written, where it is not written as that of the fit.

    Returns:
        The path of the file, and notes about the data.

    Raises:
        TableError: If the columns do not match.
        RunFolderError: If the run has no draws yet, or the predictions would replace something else.
    """
    run = Path(run)
    require_no_links(run)
    earlier_run.require_settled(run)
    config = read_config(run, FAMILIES)
    kind = run_kind(config["model"])
    path = run / "predictions.csv" if out is None else Path(out)
    require_free_place(path, run, config, "predictions.csv", Path(file))
    data = _data(run, kind, config)
    kept = config_of_now(config).get("dialect", {})  # a run of an earlier version has none
    earlier = Separators(**config.get("separators", {}))
    as_fitted = RunDialect(**{**kept, "missing": tuple(kept.get("missing", ()))}, earlier=earlier)
    model = _fitted(run, kind, config, data)
    with replaced_at_the_end(path) as partial:
        notes = kind.predict(data, model, Path(file), partial, dialect.over(as_fitted))
        if spreadsheet:
            formulas_as_text(partial)
        notes = (*notes, *about_formulas(partial))
    return path, notes


def _data(run: Path, kind: AbstractRunKind, config: Mapping[str, Any]) -> Any:
    """The data of a run, if they are those with which it was begun."""
    check_data(run / "data.npz", config.get("data_sha256"))
    return kind.load(run / "data.npz")


def _run(
    run: Path,
    config: Mapping[str, Any],
    devices: Devices,
    progress: bool,
    data: Any = None,
    begun: Callable[[], None] = lambda: None,
) -> RunResult:
    """Fit; ``begun`` is called whenever there is progress, and at the end."""
    kind = run_kind(config["model"])
    data = _data(run, kind, config) if data is None else data
    model = kind.estimator(config)
    model.set_params(checkpoint=run, devices=devices)
    notes = (*config["notes"], *table_note(config))
    started = time.monotonic()
    # of several processes the first one keeps the folder
    log_file = run / "log" if hosts.is_first() else Path(os.devnull)
    with Log(log_file) as log, Reporter(log, progress and hosts.is_first()) as reporter:
        log(f"{config['model']}, {kind.describe(data)}, seed {config['seed']}, {config['options']}")
        for note in notes[len(config["notes"]) :]:
            log(note)

        def told(news: Progress) -> None:
            begun()
            reporter(news)

        model.set_params(progress=told)
        try:
            model.fit(*kind.arrays(data))
        except (Exception, SamplingInterrupted) as error:
            log(f"stopped: {type(error).__name__}: {error}")
            raise
        except KeyboardInterrupt:  # outside of the iterations, which end of themselves
            log("stopped: interrupted")
            raise KeyboardInterrupt(_way_out(run)) from None
        begun()
        log(f"finished after {time.monotonic() - started:.1f} s")
    try:
        return _result(run, config, data, model, notes)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted; all draws were made. `{_resume(run)}` writes their summary, and looks at them."
        ) from None


def _result(run: Path, config: Mapping[str, Any], data: Any, model: Any, notes: tuple[str, ...]) -> RunResult:
    """Summarise the draws of a fitted model, and write the summary."""
    kind = run_kind(config["model"])
    summary = summarize(*kind.summarized(data, model))
    hosts.first_does(lambda: write_summary(run / "summary.csv", summary), "write summary.csv")
    seconds, compiling = (float(model.posterior_.attrs[f"{part}_seconds"]) for part in ("sampling", "compile"))
    findings = kind.diagnose(config, data, model)
    remarks, extension = kind.remarks(data, model), _extension(run, summary.num_chains, summary.num_draws)
    return RunResult(run, summary, findings, notes, seconds, compiling, kind.headline, remarks, extension)


def _way_out(run: Path) -> str:
    """What to do after an interruption."""
    if earlier_run.is_left(run):
        return f"Interrupted before the new run had begun; the earlier one stays in {run}."
    return f"Interrupted. `{_resume(run)}` goes on from the last checkpoint, or begins where there is none yet."


def _resume(run: Path) -> str:
    """The command that goes on with a run, as a shell reads it."""
    return f"geodax resume {shlex.quote(str(run))}"


def _extension(run: Path, num_chains: int, num_draws: int) -> str:
    """The command that makes as many draws as a report needs; empty where there are enough."""
    if num_chains * num_draws >= _LEAST_DRAWS:
        return ""
    return f"{_resume(run)} --num-samples {-(-_LEAST_DRAWS // num_chains)}"


def _fitted(run: Path, kind: AbstractRunKind, config: Mapping[str, Any], data: Any) -> Any:
    """The estimator of a run with the draws there are, as far as it has come."""
    path, asked = run / "posterior.zarr", config["options"]
    tree = open_draws(path)
    num_chains, num_draws = (tree["posterior"].sizes[axis] for axis in ("chain", "draw"))
    if num_chains != asked["num_chains"]:
        raise StorageError(
            f"{path} has draws of {num_chains} chains, but the run in {run} has {asked['num_chains']}: they are of "
            "another run. Put back a copy of the folder."
        )
    extension = _extension(run, num_chains, num_draws)
    if extension and num_draws < asked["num_samples"]:
        raise RunFolderError(f"The run in {run} has {num_draws} draws so far; go on with `{_resume(run)}` first.")
    if extension:
        raise RunFolderError(
            f"The run in {run} is finished with {num_draws * num_chains} draws in all, but a report or a "
            f"prediction needs {_LEAST_DRAWS}: make them, or more, with `{extension}`."
        )
    try:
        return kind.estimator(config).with_posterior(*kind.arrays(data), posterior=tree)
    except KeyError as error:
        raise StorageError(
            f"{path} has other variables than the model in {run} ({error.args[0]}): it is of another run. Put back a "
            "copy of the folder."
        ) from error
