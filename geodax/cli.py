"""The command line: argument parsing and printing only.

geodax fit pca data.csv --n-components 2 --out runs/pca
geodax fit eigenmodel network.csv --rank 2 --out runs/eigenmodel
geodax fit network contacts.csv --window 660 --out runs/network
geodax fit unit-network data.csv --target y --n-hidden 4 --out runs/network
geodax fit cca patients.csv --group injury --first-view "protein*" --out runs/cca
geodax fit classifier data.csv --target y --out runs/classifier
geodax fit regressor data.csv --target y --out runs/regressor
geodax fit factorization ratings.csv --rank 10 --out runs/factorization
geodax report runs/pca
geodax resume runs/pca
geodax predict runs/pca new.csv
geodax data list
geodax data fetch mnist
geodax citation nuts
"""

import dataclasses
import os
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table as RichTable
from tyro.conf import OmitArgPrefixes, Positional, arg
from tyro.extras import SubcommandApp

from geodax.data.dialect import FOUND, Dialect
from geodax.models.cca_run import CCAOptions
from geodax.models.factorization.run import FactorizationOptions
from geodax.models.folder import Options, RunResult, fit_run, predict_run, report_run, resume_run
from geodax.models.mlp.run import ClassifierOptions, RegressorOptions
from geodax.models.network_run import EigenmodelOptions, NetworkOptions
from geodax.models.pca_run import PCAOptions
from geodax.models.unit_network_run import UnitNetworkOptions
from geodax.run.hosts import connect, is_first

_console = Console()
_errors = Console(stderr=True)


@dataclasses.dataclass(frozen=True)
class WhereOptions:
    """Where a run goes: its devices, and several processes, which are the same command on every host."""

    devices: int | Literal["all"] | None = None
    """Devices among which the chains are shared out: how many, or all; as many as divide the chains if left out."""
    distributed: bool = False
    """One of several processes that SLURM, mpirun or Kubernetes has started, and can be asked about."""
    coordinator: str | None = None
    """HOST:PORT of process 0, where nobody can be asked; then the next two are needed too."""
    num_processes: int | None = None
    """Number of processes."""
    process_id: int | None = None
    """Number of this process, from 0."""
    lost_after: int = 100
    """Seconds without a sign of life after which a process counts as lost."""


WhereArgument = Annotated[OmitArgPrefixes[WhereOptions], arg(name="")]
DialectArgument = Annotated[OmitArgPrefixes[Dialect], arg(name="")]
Run = Annotated[Positional[Path], arg(metavar="RUN")]
File = Annotated[Positional[Path], arg(metavar="FILE")]

app = SubcommandApp()
fit = SubcommandApp()
data = SubcommandApp()
app.command(fit, name="fit", help="Fit a model to a table and leave everything in a run folder.")
app.command(data, name="data", help="Real data sets: list them, or get one from its publisher.")


@fit.command(name="pca")
def fit_pca(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[PCAOptions], arg(name="")] = PCAOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Bayesian principal component analysis: orthonormal loadings, ordered scales, noise, mean.

    Args:
        file: CSV file, a row for each observation; text columns are left out, missing cells are allowed.
        out: Run folder to make.
        options: Options of the model.
        seed: Seed of all randomness.
        columns: Columns to use; all numeric ones if left out.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, columns=columns, overwrite=overwrite, dialect=dialect)


@fit.command(name="eigenmodel")
def fit_eigenmodel(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[EigenmodelOptions], arg(name="")] = EigenmodelOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Eigenmodel of a symmetric network of 0 and 1, or of counts: orthonormal vectors, their weights, an intercept.

    Args:
        file: Adjacency matrix, or a list of edges: two nodes, and a value if there is a third column.
        out: Run folder to make.
        options: Options of the model.
        seed: Seed of all randomness.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, overwrite=overwrite, dialect=dialect)


@fit.command(name="network")
def fit_network(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[NetworkOptions], arg(name="")] = NetworkOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Hidden states of contacts between classes over time, each with a low-rank matrix of rates.

    Args:
        file: Contacts: time, one side, other side, and, if sides belong to classes, the class of each.
        out: Run folder to make.
        options: Options of the model.
        seed: Seed of all randomness.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, overwrite=overwrite, dialect=dialect)


@fit.command(name="unit-network")
def fit_unit_network(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[UnitNetworkOptions], arg(name="")] = UnitNetworkOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Regression by a ReLU network whose hidden units have unit vectors for weights.

    Args:
        file: CSV file, a row for each observation; text columns and rows with missing cells are left out.
        out: Run folder to make.
        options: Options of the model; --target names the column to explain.
        seed: Seed of all randomness.
        columns: Inputs to use; all other numeric columns if left out.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, columns=columns, overwrite=overwrite, dialect=dialect)


@fit.command(name="cca")
def fit_cca(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[CCAOptions], arg(name="")] = CCAOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Canonical correlation analysis of two views in groups, whose orthonormal matrices are shrunk together.

    Args:
        file: CSV file, a row for each observation: the group, and the numeric columns of both views.
        out: Run folder to make.
        options: Options of the model.
        seed: Seed of all randomness.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, overwrite=overwrite, dialect=dialect)


@fit.command(name="classifier")
def fit_classifier(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[ClassifierOptions], arg(name="")] = ClassifierOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Classification by the posterior ensemble of a network of dense layers.

    Args:
        file: CSV file, a row for each example; inputs are numeric columns, classes text or whole numbers.
        out: Run folder to make.
        options: Options of the model; --target names the column to predict.
        seed: Seed of all randomness.
        columns: Inputs to use; all other numeric columns if left out.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, columns=columns, overwrite=overwrite, dialect=dialect)


@fit.command(name="regressor")
def fit_regressor(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[RegressorOptions], arg(name="")] = RegressorOptions(),  # noqa: B008 - frozen
    seed: int = 0,
    columns: tuple[str, ...] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Regression by the posterior ensemble of a network of dense layers.

    Args:
        file: CSV file, a row for each example; inputs and target are numeric columns.
        out: Run folder to make.
        options: Options of the model; --target names the column to predict.
        seed: Seed of all randomness.
        columns: Inputs to use; all other numeric columns if left out.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, columns=columns, overwrite=overwrite, dialect=dialect)


@fit.command(name="factorization")
def fit_factorization(
    file: File,
    out: Path,
    options: Annotated[OmitArgPrefixes[FactorizationOptions], arg(name="")] = FactorizationOptions(),  # noqa: B008
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
    dialect: DialectArgument = FOUND,
) -> None:
    """Low-rank factorisation of ratings of items by users, with orthonormal factors.

    Args:
        file: CSV file, a row for each rating: user, item, rating.
        out: Run folder to make.
        options: Options of the model.
        seed: Seed of all randomness.
        overwrite: Replace a run that is already in the folder.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
        dialect: How the file is written, where that should not be found out.
    """
    _fit(file, options, out, where, progress, seed=seed, overwrite=overwrite, dialect=dialect)


@app.command
def report(run: Run, out: Path | None = None) -> None:
    """Write one HTML file about a run, from its files alone.

    Args:
        run: Run folder.
        out: File to write; report.html in the run folder if left out.
    """
    _say(f"Report: {report_run(run, out=out)}")


@app.command
def resume(
    run: Run,
    num_samples: int | None = None,
    progress: bool = True,
    where: WhereArgument = WhereOptions(),
) -> None:
    """Go on with a run that was interrupted, or extend a finished one.

    Args:
        run: Run folder.
        num_samples: Draws for each chain in the end, if more than the run was begun with.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
    """
    _join(where)
    _show(resume_run(run, num_samples=num_samples, **_how(where, progress)))


@app.command
def predict(run: Run, file: File, out: Path | None = None, dialect: DialectArgument = FOUND) -> None:
    """Write what a run says of new rows, with intervals: classes, values, ratings, scores, pairs or states.

    Args:
        run: Run folder.
        file: CSV file of the fit's form; for an eigenmodel, a list of pairs of nodes; for ratings, users and items.
        out: File to write; predictions.csv in the run folder if left out.
        dialect: How the file is written, where it is not written as that of the fit.
    """
    path, notes = predict_run(run, file, out=out, dialect=dialect)
    _say(*notes, f"Predictions: {path}")


@data.command(name="list")
def data_list() -> None:
    """List the data sets, their terms, and whether they are here."""
    from geodax.data import describe

    table = RichTable("name", "contents", "terms", "here", box=None, header_style="bold")
    for row in describe():
        table.add_row(row.name, f"{row.title}, {row.shape}", row.licence, "yes" if row.present else "no")
    _console.print(table)


@data.command(name="fetch")
def data_fetch(name: Positional[str]) -> None:
    """Get a data set from its publisher and verify it.

    Args:
        name: Name of the data set, as `geodax data list` shows it.
    """
    from geodax.data import fetch

    _say(*map(str, fetch(name)))


@app.command
def citation(method: Positional[str]) -> None:
    """Print BibTeX entries for a method.

    Args:
        method: A sampler, metric, parametrisation, layer or model: nuts, monge, givens, whvi, pca, ...; an unknown
            name is answered with the list.
    """
    from geodax.run.citations import citation as entries

    _say(entries(method))


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Words of the command line; None takes the process's.

    Returns:
        0; 1 after an error that was explained; 3 after one that was not; 130 after an interruption. Words that are no
        command end with SystemExit(2), as argument parsers do.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        _say(f"geodax {version('geodax')}")
        return 0
    try:
        app.cli(prog="geodax", args=words, description="Bayesian inference on curved and structured spaces.")
    except KeyboardInterrupt as interruption:
        _errors.print(f"{interruption}" if str(interruption) else "Interrupted.", style="yellow", markup=False)
        return 130
    except Exception as error:
        if os.environ.get("GEODAX_TRACEBACK"):
            raise
        is_explained = _is_explained(error)
        _errors.print(
            f"geodax: {error}" if is_explained else _unexplained(error),
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return 1 if is_explained else 3
    return 0


def _is_explained(error: Exception) -> bool:
    """Whether a message is the library's own, scikit-learn's about a table, or the system's about a file."""
    if isinstance(error, OSError):
        return True
    if not isinstance(error, (ValueError, TypeError, RuntimeError)):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(last).is_relative_to(Path(__file__).parent) or "sklearn" in Path(last).parts


def _unexplained(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "geodax: there is not enough memory for this table and these options."
    first = (str(error).splitlines() or [""])[0]
    return (
        f"geodax: an error that should have been explained: {type(error).__name__}: {first:.300}. It is a mistake of "
        "geodax; please report it with what GEODAX_TRACEBACK=1 shows."
    )


def _say(*lines: str) -> None:
    for line in lines:
        _console.print(line, markup=False, highlight=False, soft_wrap=True)


def _join(where: WhereOptions) -> None:
    """Join the other processes, if there are any."""
    explicit = (where.coordinator, where.num_processes, where.process_id)
    if where.distributed or any(value is not None for value in explicit):
        connect(*explicit, lost_after=where.lost_after)


def _fit(file: Path, options: Options, out: Path, where: WhereOptions, progress: bool, **others: Any) -> None:
    """Fit, and say what was found."""
    _join(where)
    _show(fit_run(file, options, out, **others, **_how(where, progress)))


def _how(where: WhereOptions, progress: bool) -> dict[str, Any]:
    """What every run is told of the machine and the terminal."""
    return {"devices": where.devices, "progress": progress}


def _show(result: RunResult) -> None:
    if not is_first():
        return
    _say(*result.notes)
    table = RichTable("", "mean", "90 % interval", "bulk ESS", "R-hat", box=None, header_style="bold")
    for row in result.summary:
        if row.name.startswith(result.headline):
            table.add_row(
                row.name,
                f"{row.mean:.3g}",
                f"{row.quantile_5:.3g} to {row.quantile_95:.3g}",
                f"{row.ess_bulk:.0f}",
                f"{row.rhat:.3f}",
            )
    _console.print(table)
    _say(*result.remarks)
    for finding in result.findings:
        _say(str(finding))
    if not result.findings:
        _say("Diagnostics: nothing to report; the chains agree.")
    _say(
        f"{result.summary.num_chains} chains of {result.summary.num_draws} draws, sampled in {result.seconds:.1f} s "
        f"({result.compile_seconds:.1f} s of compilation before).",
        f"Run folder: {result.folder}    Report: geodax report {result.folder}",
    )
