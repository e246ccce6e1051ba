"""Operations on a run folder, which holds everything about one fit of one model to one file.

======================  =========================================================================================
``config.json``         model, options, seed, source of the data, versions
``data.npz``            the fitted data; reports and predictions need no other input
``posterior.zarr``      the draws, written during the run
``checkpoint/``         the checkpoints from which a run resumes
``log``                 progress and messages with their times
``lock``                held by the running process; a lock left by a dead process is ignored
``summary.csv``         posterior summaries and diagnostics
``report.html``         written by :func:`report_run`
``predictions.csv``     written by :func:`predict_run`
``earlier-run/``        the replaced run, until the new one has started (:mod:`geodax.app.run_folder.earlier`)
======================  =========================================================================================
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from geodax import _checks
from geodax._files import replaced
from geodax.app.families import FAMILIES, name_of, run_kind, unused
from geodax.app.family import AbstractRunKind, RunResult
from geodax.app.run_folder import earlier as earlier_run
from geodax.app.run_folder.files import (
    RunFolderError,
    check_data,
    config_of_now,
    file_digest,
    new_config,
    opened_log,
    read_config,
    reporting_to,
    table_note,
    write_config,
    write_summary,
)
from geodax.app.run_folder.formulas import about_formulas, formulas_as_text
from geodax.app.run_folder.going_on import LEAST_DRAWS, extension_of, num_draws_of, outdated, resumption, way_out
from geodax.app.run_folder.outputs import open_descriptor, replaced_at_the_end, require_free_place
from geodax.app.run_folder.own import new_folder, require_free_folder, require_no_links
from geodax.app.tables.dialect import FOUND, Dialect, RunDialect, Separators
from geodax.run import hosts
from geodax.run.draws import open_draws
from geodax.run.errors import OtherRunError, SamplingInterrupted, StorageError
from geodax.run.locks import exclusive
from geodax.run.progress import Progress, working
from geodax.run.sharding import Devices


def fit_run(
    file: str | Path,
    options: Any,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    dialect: Dialect = FOUND,
    overwrite: bool = False,
    devices: Devices = None,
    progress: bool = True,
    say: Callable[..., None] = lambda *notes: None,
) -> RunResult:
    """Fit a model to a file and write all results into a run folder.

    Args:
        file: CSV (or TSV, .csv.gz, .xlsx, .parquet, .npy, .npz) file; ``-`` is standard input.
        options: The model's options; their type selects the model.
        out: The run folder; created if it is missing. None makes a new one, ``runs/MODEL-TABLE``.
        seed: Random seed.
        columns: Columns to use; None takes all numeric ones.
        dialect: Format of the file, where it should not be detected.
        overwrite: Replace an existing run once the new one has started.
        devices: Devices, as in the estimators. They are not part of the run: it may resume on others.
        progress: Whether to show a progress bar.
        say: Called with the notes about the table before the fit begins.

    Returns:
        The result.

    Raises:
        TableError: If the file cannot be read or has no usable data.
        RunFolderError: If the folder is not empty.
        FolderInUseError: If another process is using the folder.
        ValueError: For options that do not fit the data.
        SamplingInterrupted: After SIGINT or SIGTERM; ``resume_run`` continues.
    """
    seed = _checks.whole("fit", "--seed", seed, least=0, most=2**32 - 1)
    kind = run_kind(name_of(options))
    noted = RunDialect(**dataclasses.asdict(dialect))
    data, facts = kind.read(Path(file), options, columns, noted, seed)
    is_new = out is None or not Path(out).exists()
    if out is None and hosts.is_several():
        raise RunFolderError("Several processes need a common run folder. Name it with --out.")
    out = new_folder(kind.name, file) if out is None else Path(out)
    if hosts.is_first():
        earlier_run.settle(out, "make a run in")
        require_free_folder(out, overwrite)
    if Path(file).resolve().is_relative_to(out.resolve()):
        raise RunFolderError(f"{file} is in {out}, which a fit would empty. Move it, or choose another --out.")

    def prepare() -> str:
        earlier_run.put_back(out)
        require_free_folder(out, overwrite)  # again: another run may have taken it meanwhile
        earlier_run.set_aside(out)
        with replaced(out / "data.npz") as partial:
            kind.save(partial, data)
        return file_digest(out / "data.npz")

    def begun() -> None:
        if hosts.is_first():
            earlier_run.forget(out)

    with exclusive(out / "lock", out, "make a run in"), earlier_run.kept_until_begun(out, hosts.is_first()):
        digest = hosts.first_does(prepare, f"make a run in {out}")
        facts = {"data_sha256": digest, **facts, "notes": [*facts["notes"], *unused(options)]}
        config = new_config(Path(file), kind.name, options, seed, columns, dialect, noted, facts)
        hosts.first_does(lambda: write_config(out, config), f"make a run in {out}")
        try:
            return _run(out, config, devices, progress, say, None if hosts.is_first() else data, begun)
        except (ValueError, TypeError):
            if hosts.is_first() and not (out / "posterior.zarr").exists():  # invalid options: the run did not start
                earlier_run.clear(out)
                if is_new:
                    (out / "lock").unlink()
                    out.rmdir()
            raise


def resume_run(
    run: str | Path,
    *,
    num_samples: int | None = None,
    devices: Devices = None,
    progress: bool = True,
    say: Callable[..., None] = lambda *notes: None,
) -> RunResult:
    """Resume an interrupted run, or extend a finished one.

    Args:
        run: The run folder.
        num_samples: Total draws per chain, if more than the run was started with.
        devices: Devices, which may differ from those of the run so far.
        progress: Whether to show a progress bar.
        say: As in :func:`fit_run`.

    Returns:
        The result; the draws are the same as those of an uninterrupted run.

    Raises:
        RunFolderError: If the folder is not a run, or one that this version cannot continue, or ``num_samples`` is
            smaller than before.
        CheckpointError: If no checkpoint can be read.
        FolderInUseError: If another process is using the folder.
        StorageError: If the data or the draws in the folder are damaged, or the disk is full.
    """
    run = Path(run)
    notes = earlier_run.settle(run, "resume the run in") if hosts.is_first() else ()
    read_config(run, FAMILIES)  # no lock in a folder that is not a run
    with exclusive(run / "lock", run, "resume the run in"):
        config = read_config(run, FAMILIES)
        if num_samples is not None:
            asked = config["options"]["num_samples"]
            if num_samples < asked:
                raise RunFolderError(
                    f"The run in {run} was started with {asked} samples per chain; the number cannot be reduced to "
                    f"{num_samples}."
                )
            config["options"]["num_samples"] = num_samples
        before, is_kept = num_draws_of(run), list[bool]()

        def begun() -> None:
            if num_samples is not None and hosts.is_first() and not is_kept:
                write_config(run, config)
                is_kept.append(True)

        say(*notes)
        try:
            result = _run(run, config, devices, progress, say, begun=begun)
        except OtherRunError as error:  # table and options are those of the folder
            raise RunFolderError(
                f"{run} was made by another version of geodax or its libraries, and this version cannot continue it. "
                "`geodax show`, `report` and `predict` read it. Continue with that version, or fit again."
            ) from error
        say(*(old := outdated(run, before) if hosts.is_first() else ()))
        return dataclasses.replace(result, notes=(*notes, *result.notes, *old))


def report_run(run: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the HTML report of a run from its files; for an unfinished run, from the draws so far.

    Args:
        run: The run folder.
        out: The file to write, ``-`` for standard output; None is ``report.html`` in the folder.

    Returns:
        The path of the report.

    Raises:
        RunFolderError: If the folder is not a run or has no draws yet, or the report would overwrite something else.
    """
    run, config, kind = _settled(Path(run))
    path = run / "report.html" if out is None else Path(out)
    require_free_place(path, run, config, "report.html")
    if open_descriptor(path) is None and path.exists() and not path.is_file():
        raise RunFolderError(f"--out {path} must be a regular file, as the report replaces it. Choose another --out.")
    data = _data(run, kind, config)
    model = _fitted(run, kind, config, data)
    with replaced_at_the_end(path) as partial:
        kind.report(config, data, model, kind.command(config_of_now(config), run), partial)
    return path


def show_run(run: str | Path) -> RunResult:
    """Summarize a run from its files, as :func:`fit_run` returns it; an unfinished run, from the draws so far.

    Raises RunFolderError if the folder is not a run or has too few draws yet.
    """
    run, config, kind = _settled(Path(run))
    data = _data(run, kind, config)
    model = _fitted(run, kind, config, data)
    return _result(run, config, data, model, (*config["notes"], *table_note(config)))


def predict_run(
    run: str | Path,
    file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    spreadsheet: bool = False,
    dialect: Dialect = FOUND,
) -> tuple[Path, tuple[str, ...]]:
    """Write a model's predictions for new data: scores, densities, probabilities or states, depending on the model.

    Args:
        run: The run folder.
        file: New data; None predicts what was missing in the fit, for models of pairs.
        out: The file to write, ``-`` for standard output; None is ``predictions.csv`` in the run folder.
        spreadsheet: Whether to write an apostrophe before text that a spreadsheet would take for a formula.
        dialect: Format of the file, where it differs from that of the fit.

    Returns:
        The path of the file, and notes about the data.

    Raises:
        TableError: If the columns do not match.
        RunFolderError: If the run has no draws yet, or the predictions would overwrite something else.
    """
    run, config, kind = _settled(Path(run))
    path = run / "predictions.csv" if out is None else Path(out)
    require_free_place(path, run, config, "predictions.csv", None if file is None else Path(file))
    data = _data(run, kind, config)
    kept = config_of_now(config).get("dialect", {})  # runs of earlier versions have none
    earlier = Separators(**config.get("separators", {}))
    as_fitted = RunDialect(
        **{**kept, "missing": tuple(kept.get("missing", ()))}, earlier=earlier, earlier_forms=config.get("forms")
    )
    model = _fitted(run, kind, config, data)
    with replaced_at_the_end(path) as partial:
        if file is None:
            notes = kind.predict_missing(data, model, partial)
        else:
            notes = kind.predict(data, model, Path(file), partial, dialect.over(as_fitted))
        if spreadsheet:
            formulas_as_text(partial)
        notes = (*notes, *about_formulas(partial))
    return path, notes


def _data(run: Path, kind: AbstractRunKind, config: Mapping[str, Any]) -> Any:
    check_data(run / "data.npz", config.get("data_sha256"))
    return kind.load(run / "data.npz")


def _settled(run: Path) -> tuple[Path, dict[str, Any], AbstractRunKind]:
    require_no_links(run)
    earlier_run.require_settled(run)
    config = read_config(run, FAMILIES)
    return run, config, run_kind(config["model"])


def _run(
    run: Path,
    config: Mapping[str, Any],
    devices: Devices,
    progress: bool,
    say: Callable[..., None],
    data: Any = None,
    begun: Callable[[], None] = lambda: None,
) -> RunResult:
    """Fit the model; ``begun`` is called at each progress report and at the end."""
    kind = run_kind(config["model"])
    data = _data(run, kind, config) if data is None else data
    model = kind.estimator(config)
    model.set_params(checkpoint=run, devices=devices)
    notes = (*config["notes"], *table_note(config))
    if hosts.is_first():
        say(*notes)
    started = time.monotonic()
    # only the first process writes to the folder
    log_file = run / "log" if hosts.is_first() else Path(os.devnull)
    with opened_log(log_file) as log, reporting_to(log, progress and hosts.is_first()) as reporter:
        log(f"{config['model']}, {kind.describe(data)}, seed {config['seed']}, {config['options']}")
        for note in notes[len(config["notes"]) :]:
            log(note)

        def told(news: Progress) -> None:
            begun()
            reporter(news)

        model.set_params(progress=told)
        try:
            model.fit(*kind.arrays(data))
        except SamplingInterrupted as error:
            log(f"stopped: {error}")
            raise SamplingInterrupted(f"{error} {way_out(run)}", signal=error.signal) from error
        except Exception as error:
            log(f"stopped: {type(error).__name__}: {error}")
            raise
        except KeyboardInterrupt:  # outside the iterations, which handle it themselves
            log("stopped: interrupted")
            raise KeyboardInterrupt(f"Interrupted. {way_out(run)}") from None
        begun()
        log(f"finished after {time.monotonic() - started:.1f} s")
    try:
        with working("computing the results") if progress and hosts.is_first() else contextlib.nullcontext():
            result = _result(run, config, data, model, notes)
        hosts.first_does(lambda: write_summary(run / "summary.csv", result.summary), "write summary.csv")
        return result
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted after all draws were made. `{resumption(run)}` writes the summary and runs the diagnostics."
        ) from None


def _result(run: Path, config: Mapping[str, Any], data: Any, model: Any, notes: tuple[str, ...]) -> RunResult:
    kind = run_kind(config["model"])
    summary = kind.summary(data, model)
    facts = model.posterior_.attrs  # written when a run ends or is interrupted, not when it is killed
    seconds, compiling = (float(facts.get(f"{part}_seconds", math.nan)) for part in ("sampling", "compile"))
    findings = kind.diagnose(config, data, model)
    remarks, extension = kind.remarks(data, model), extension_of(run, summary.num_chains, summary.num_draws)
    results = kind.results(data, model)
    return RunResult(
        run, kind.name, summary, findings, notes, seconds, compiling, kind.headline, remarks, extension, results
    )


def _fitted(run: Path, kind: AbstractRunKind, config: Mapping[str, Any], data: Any) -> Any:
    path, asked = run / "posterior.zarr", config["options"]
    if not path.exists():
        raise RunFolderError(f"The run in {run} has no draws yet. Resume it first with `{resumption(run)}`.")
    tree = open_draws(path)
    num_chains, num_draws = (tree["posterior"].sizes[axis] for axis in ("chain", "draw"))
    if num_chains != asked["num_chains"]:
        raise StorageError(
            f"{path} has draws of {num_chains} chains, but the run in {run} has {asked['num_chains']}: they are of "
            "another run. Put back a copy of the folder."
        )
    extension = extension_of(run, num_chains, num_draws)
    if extension and num_draws < asked["num_samples"]:
        raise RunFolderError(
            f"The run in {run} has {num_draws} draws so far. Resume it first with `{resumption(run)}`."
        )
    if extension:
        raise RunFolderError(
            f"The run in {run} finished with {num_draws * num_chains} draws in total, but a report or a "
            f"prediction needs at least {LEAST_DRAWS}. Add draws with `{extension}`."
        )
    try:
        return kind.fitted(config, data, tree)
    except KeyError as error:
        raise StorageError(
            f"{path} has other variables than the model in {run} ({error.args[0]}): it is of another run. Put back a "
            "copy of the folder."
        ) from error
