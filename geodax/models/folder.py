"""A run folder: everything about one fit of one model to one table, and what can be done with it afterwards.

======================  =========================================================================================
``config.json``         model, options, seed, where the data came from, versions
``data.npz``            the table as it was fitted, so that reports and predictions need nothing else
``posterior.zarr``      the draws, streamed while the run goes on
``checkpoint/``         what a resumed run starts from
``log``                 progress and messages with their times
``summary.csv``         posterior summaries and their diagnostics
``report.html``         written by :func:`report_run`
``predictions.csv``     written by :func:`predict_run`
======================  =========================================================================================
"""

import csv
import dataclasses
import datetime
import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.tables import Table, match_columns, read_table
from geodax.models.pca import BayesianPCA
from geodax.models.pca_report import diagnose, write_report
from geodax.models.run_files import (
    FORMAT,
    Log,
    Reporter,
    RunFolderError,
    load_table,
    read_config,
    save_table,
    write_text,
)
from geodax.run.diagnostics import Finding, Summary, summarize
from geodax.run.draws import open_draws
from geodax.run.errors import SamplingInterrupted


@dataclasses.dataclass(frozen=True)
class PCAOptions:
    """Options of ``geodax fit pca``, with the meaning they have in :class:`geodax.models.BayesianPCA`."""

    n_components: int = 2
    """Number of components."""
    standardize: bool = True
    """Divide each column by its standard deviation first."""
    num_warmup: int = 1000
    """Warm-up iterations."""
    num_samples: int = 1000
    """Draws kept for each chain."""
    num_chains: int = 4
    """Number of chains."""
    target_acceptance_rate: float = 0.8
    """What warm-up aims at; raise it if there are divergences."""
    mean_prior_scale: float = 1.0
    """Prior standard deviation of the mean, in standardised units."""
    scale_prior_scale: float = 1.0
    """Scale of the half-normal prior of the scales, in standardised units over sqrt(number of columns)."""
    noise_prior_scale: float = 1.0
    """Scale of the half-normal prior of the noise, in standardised units."""


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a finished run has to say.

    Attributes:
        folder: The run folder.
        summary: Posterior summaries.
        findings: What the diagnostics found, the severe first.
        notes: What was decided about the data.
        seconds: Time spent sampling.
        compile_seconds: Time spent compiling before.
    """

    folder: Path
    summary: Summary
    findings: list[Finding]
    notes: tuple[str, ...]
    seconds: float
    compile_seconds: float


def fit_run(
    file: str | Path,
    options: PCAOptions,
    out: str | Path,
    *,
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> RunResult:
    """Fit a model to a table and leave everything in a run folder.

    Args:
        file: CSV (or TSV, .csv.gz, .npy, .npz) file.
        options: The model's options.
        out: The run folder; made if it is missing.
        seed: Seed of all randomness.
        columns: Columns to use; None takes all numeric ones.
        overwrite: Replace a run that is already there.
        progress: Whether to show a progress bar.

    Returns:
        The result.

    Raises:
        TableError: If the file cannot be read or holds nothing to fit.
        RunFolderError: If the folder is in use.
        ValueError: For options that do not fit the data.
        SamplingInterrupted: After SIGINT or SIGTERM; ``resume_run`` goes on.
    """
    out = Path(out)
    table = read_table(file, columns=columns)
    _check_enough(table, options)
    is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if not is_free:
        is_run = (out / "config.json").is_file()
        if not (overwrite and is_run):
            hint = (
                f"It holds a run: go on with `geodax resume {out}`, replace it with --overwrite, or choose another "
                "--out."
                if is_run
                else "It is not a run folder; choose another --out."
            )
            raise RunFolderError(f"{out} exists already. {hint}")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    save_table(out / "data.npz", table)
    config = {
        "format": FORMAT,
        "model": "pca",
        "options": dataclasses.asdict(options),
        "seed": seed,
        "file": str(file),
        "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest(),
        "columns": list(table.names),
        "notes": list(table.notes),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("geodax", "jax", "numpy", "equinox", "xarray")},
    }
    write_text(out / "config.json", json.dumps(config, indent=2) + "\n")
    return _run(out, config, progress)


def resume_run(run: str | Path, *, num_samples: int | None = None, progress: bool = True) -> RunResult:
    """Go on with a run that was interrupted, or extend a finished one.

    Args:
        run: The run folder.
        num_samples: Draws for each chain in the end, if more than the run was begun with.
        progress: Whether to show a progress bar.

    Returns:
        The result; draws are the same as those of a run that was never interrupted.

    Raises:
        RunFolderError: If the folder is not a run, or ``num_samples`` is smaller than before.
        CheckpointError: If no checkpoint can be read.
    """
    run = Path(run)
    config = read_config(run)
    if num_samples is not None:
        before = config["options"]["num_samples"]
        if num_samples < before:
            raise RunFolderError(
                f"The run in {run} was begun with {before} samples for each chain; it cannot shrink to {num_samples}."
            )
        config["options"]["num_samples"] = num_samples
        write_text(run / "config.json", json.dumps(config, indent=2) + "\n")
    return _run(run, config, progress)


def report_run(run: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the HTML report of a run from its files alone; works on the draws there are if it is unfinished.

    Args:
        run: The run folder.
        out: The file to write; None is ``report.html`` in the folder.

    Returns:
        The path of the report.

    Raises:
        RunFolderError: If the folder is not a run or has no draws yet.
    """
    run = Path(run)
    config, table = read_config(run), load_table(run / "data.npz")
    model = _fitted(run, config, table)
    posterior, stats = _arrays(model)
    facts = _facts(config, table, model) | {
        "seconds": model.posterior_.attrs.get("sampling_seconds"),
        "command": _command(config, run),
    }
    path = run / "report.html" if out is None else Path(out)
    write_report(posterior, stats, (table.values - model.center_) / model.spread_, facts, path)
    return path


def predict_run(run: str | Path, file: str | Path, *, out: str | Path | None = None) -> tuple[Path, tuple[str, ...]]:
    """Scores with credible intervals and predictive log densities of new rows; missing cells are filled in.

    Args:
        run: The run folder.
        file: New rows with the columns of the fit.
        out: The file to write; None is ``predictions.csv`` in the run folder.

    Returns:
        The path of the file, and notes about the data.

    Raises:
        TableError: If the columns do not match.
        RunFolderError: If the run has no draws yet.
    """
    run = Path(run)
    config, fitted = read_config(run), load_table(run / "data.npz")
    table = match_columns(read_table(file), fitted.names)
    model = _fitted(run, config, fitted)
    scores = model.sample_scores(table.values)
    log_density = model.score_samples(table.values)
    low, high = np.quantile(scores, [0.05, 0.95], axis=0)
    heading = ["row", *table.text]
    for j in range(scores.shape[-1]):
        heading += [f"score_{j + 1}", f"score_{j + 1}_5%", f"score_{j + 1}_95%"]
    is_missing = np.isnan(table.values)
    has_missing = bool(is_missing.any())
    heading.append("log_predictive_density")
    mean = scores.mean(axis=0)
    filled = np.median(model.impute(table.values), axis=0) if has_missing else table.values
    if has_missing:
        heading += [f"{name}_filled" for name in fitted.names]
    path = run / "predictions.csv" if out is None else Path(out)
    with open(path, "w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(heading)
        for i in range(len(table.values)):
            cells = np.stack([mean[i], low[i], high[i]], axis=-1).reshape(-1)
            labels = [values[i] for values in table.text.values()]
            row = [i + 1, *labels, *(f"{value:.6g}" for value in (*cells, log_density[i]))]
            writer.writerow([*row, *(f"{value:.6g}" for value in filled[i])] if has_missing else row)
    return path, table.notes


def _run(run: Path, config: Mapping[str, Any], progress: bool) -> RunResult:
    table = load_table(run / "data.npz")
    model = _estimator(config)
    model.set_params(checkpoint=run)
    started = time.time()
    with Log(run / "log") as log, Reporter(log, progress) as reporter:
        log(
            f"{config['model']}, {table.values.shape[0]} rows x {table.values.shape[1]} columns, "
            f"seed {config['seed']}, {config['options']}"
        )
        model.set_params(progress=reporter)
        try:
            model.fit(table.values)
        except (Exception, SamplingInterrupted) as error:
            log(f"stopped: {type(error).__name__}: {error}")
            raise
        log(f"finished after {time.time() - started:.1f} s")
    posterior, stats = _arrays(model)
    summary = summarize(posterior, stats)
    summary.to_csv(run / "summary.csv")
    seconds, compiling = (float(model.posterior_.attrs[f"{part}_seconds"]) for part in ("sampling", "compile"))
    findings = diagnose(posterior, stats, _facts(config, table, model)).findings
    return RunResult(run, summary, findings, tuple(config["notes"]), seconds, compiling)


def _fitted(run: Path, config: Mapping[str, Any], table: Table) -> BayesianPCA:
    """The estimator of a run with the draws there are, as far as it has come."""
    tree = open_draws(run / "posterior.zarr")
    is_done = np.isfinite(np.asarray(tree["sample_stats"]["lp"])).all(axis=0)
    num_draws = int(np.argmin(np.append(is_done, False)))
    if num_draws < 4:
        raise RunFolderError(f"The run in {run} has {num_draws} draws so far; go on with `geodax resume {run}` first.")
    tree = tree.isel(draw=slice(0, num_draws))
    return _estimator(config).with_posterior(table.values, tree)


def _facts(config: Mapping[str, Any], table: Table, model: BayesianPCA) -> dict[str, Any]:
    """What the report and the diagnostics are told about a run."""
    group_name, groups = next(
        ((name, values) for name, values in table.text.items() if 2 <= len(set(values)) <= 12), (None, None)
    )
    are_names = len(set(table.row_labels)) == len(table.row_labels)
    numbers = [str(i + 1) for i in range(len(table.values))]
    return config["options"] | {
        **{key: config[key] for key in ("file", "sha256", "seed", "versions", "notes", "created", "columns")},
        "row_labels": list(table.row_labels) if are_names else numbers,
        "groups": None if groups is None else list(groups),
        "group_name": group_name,
        "center": model.center_,
        "spread": model.spread_,
        "max_num_integration_steps": 2**10 - 1,
    }


def _arrays(model: BayesianPCA) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Aligned posterior draws and sampler statistics by name."""
    posterior, stats = (
        {name: np.asarray(variable.values) for name, variable in model.posterior_[group].data_vars.items()}
        for group in ("posterior", "sample_stats")
    )
    return posterior, stats


def _estimator(config: Mapping[str, Any]) -> BayesianPCA:
    return BayesianPCA(**config["options"], random_state=config["seed"])


def _check_enough(table: Table, options: PCAOptions) -> None:
    rows, columns = table.values.shape
    if rows < 2:
        raise RunFolderError(f"{table.path} has {rows} row of numbers; a posterior over components needs at least 2.")
    if options.n_components > columns:
        raise RunFolderError(
            f"{options.n_components} components were asked for, but {table.path} has {columns} numeric columns "
            f"({', '.join(table.names[:8])}{', ...' if columns > 8 else ''}); choose --n-components {columns} or fewer."
        )


def _command(config: Mapping[str, Any], run: Path) -> str:
    changed = [
        f"--{name.replace('_', '-')} {value}"
        if not isinstance(value, bool)
        else f"--{'' if value else 'no-'}{name.replace('_', '-')}"
        for name, value in config["options"].items()
        if value != getattr(PCAOptions(), name)
    ]
    return " ".join(["geodax fit pca", config["file"], *changed, f"--seed {config['seed']}", f"--out {run}"])
