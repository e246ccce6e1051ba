"""The commands: ``geodax fit MODEL FILE`` with one for each model, work with runs, data sets and citations."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Column, Table
from tyro.conf import Fixed, OmitArgPrefixes, Positional, Suppress, arg
from tyro.extras import SubcommandApp

from geodax.app.commands.options import (
    HERE,
    NEW,
    AsJson,
    DialectArgument,
    File,
    NewData,
    NewRunArgument,
    Run,
    WhereArgument,
)
from geodax.app.commands.terminal import console, errors, require_standard_output, say, say_written, saying, show
from geodax.app.families import FAMILIES, Family
from geodax.app.tables.dialect import FOUND

_HELP = """{summary}

Args:
    file: {file}
    run: The new run.
    options: Options of the model.
    columns: {columns}
    where: Devices and processes.
    dialect: Format of the file, where it should not be detected.
"""

app, fit, data = SubcommandApp(), SubcommandApp(), SubcommandApp()


def _command(family: Family) -> Callable[..., None]:
    defaults = family.options()
    options_type: Any = Annotated[OmitArgPrefixes[family.options], arg(name="")]
    columns_type: Any = tuple[str, ...] | None
    if not family.columns:
        columns_type = Suppress[Fixed[columns_type]]

    def command(
        file: File,
        run: NewRunArgument = NEW,
        options: options_type = defaults,  # pyright: ignore[reportInvalidTypeForm]
        columns: columns_type = None,  # pyright: ignore[reportInvalidTypeForm]
        where: WhereArgument = HERE,
        dialect: DialectArgument = FOUND,
    ) -> None:
        from geodax.app.run_folder.actions import fit_run

        where.join()
        how = {"overwrite": run.overwrite, "columns": columns, "dialect": dialect, **where.how(run.progress)}
        show(fit_run(file, options, run.out, seed=run.seed, say=saying(as_json=run.json), **how), as_json=run.json)

    command.__doc__ = _HELP.format(**family._asdict())
    return command


for _name, _family in FAMILIES.items():
    fit.command(name=_name)(_command(_family))

app.command(fit, name="fit", help="Fit a model to a table and write all results into a run folder.")
app.command(data, name="data", help="Real data sets: list them, or download one from its publisher.")


@app.command(name="show")
def show_again(run: Run, json: AsJson = False) -> None:
    """Print the results of a run again; of an unfinished run, those of the draws so far.

    Args:
        run: Run folder.
        json: Print them as JSON.
    """
    from geodax.app.run_folder.actions import show_run

    with errors.status("computing the results"):
        result = show_run(run)
    saying(as_json=json)(*result.notes)
    show(result, as_json=json)


@app.command
def report(run: Run, out: Path | None = None, json: AsJson = False) -> None:
    """Write an HTML report of a run.

    Args:
        run: Run folder.
        out: File to write, - for standard output; by default report.html in the run folder.
        json: Print the path of the report and the results of the run as JSON.
    """
    from geodax.app.run_folder.actions import report_run, show_run

    require_standard_output(json, out)
    with errors.status("writing the report"):
        path = report_run(run, out=out)
        result = show_run(run) if json else None
    if result is not None:
        show(result, as_json=True, report=str(path))
    else:
        say_written("Report", path)


@app.command
def resume(
    run: Run, num_samples: int | None = None, progress: bool = True, json: AsJson = False, where: WhereArgument = HERE
) -> None:
    """Resume an interrupted run, or extend a finished one.

    Args:
        run: Run folder.
        num_samples: Total draws per chain, if more than the run was started with.
        progress: Show a progress bar.
        json: Print the results as JSON.
        where: Devices and processes.
    """
    from geodax.app.run_folder.actions import resume_run

    where.join()
    how = where.how(progress)
    show(resume_run(run, num_samples=num_samples, say=saying(as_json=json), **how), as_json=json)


@app.command
def predict(
    run: Run,
    file: NewData = None,
    out: Path | None = None,
    spreadsheet: bool = False,
    json: AsJson = False,
    dialect: DialectArgument = FOUND,
) -> None:
    """Write predictions for new rows, with intervals: classes, values, ratings, scores, pairs or states.

    Args:
        run: Run folder.
        file: CSV file in the form of the fitted one; node pairs for an eigenmodel, users and items for ratings. Without
            a file, these two predict all pairs that were missing in the fit; contacts, classifiers and regressors what
            was held out.
        out: File to write, - for standard output; by default predictions.csv in the run folder.
        spreadsheet: Write an apostrophe before text that a spreadsheet would take for a formula.
        json: Print the path and the notes as JSON.
        dialect: Format of the file, where it differs from that of the fit.
    """
    from geodax.app.run_folder.actions import predict_run

    require_standard_output(json, out)
    with errors.status("computing predictions"):
        path, notes = predict_run(run, file, out=out, spreadsheet=spreadsheet, dialect=dialect)
    say_written("Predictions", path, *notes, as_json=json)


@data.command(name="list")
def data_list() -> None:
    """List the data sets, their terms, and whether they are downloaded."""
    from geodax.data.catalogue import describe

    table = Table(Column("name", no_wrap=True), "contents", "terms", "here", box=None, header_style="bold")
    for row in describe():
        table.add_row(row.name, f"{row.title}, {row.shape}", row.licence, "yes" if row.present else "no")
    console.print(table)


@data.command(name="fetch")
def data_fetch(name: Positional[str]) -> None:
    """Download a data set from its publisher and verify it.

    Args:
        name: Name of the data set, as shown by `geodax data list`.
    """
    from geodax.data.catalogue import fetch

    say(*map(str, fetch(name)))


@app.command
def citation(method: Positional[str]) -> None:
    """Print the BibTeX entries for a method.

    Args:
        method: A sampler, metric, parametrisation, layer or model: nuts, monge, givens, whvi, pca, ...; an unknown
            name prints the list.
    """
    from geodax.app.citations import citation as entries

    say(entries(method))


@app.command
def completion(shell: Positional[Literal["bash", "zsh", "fish"]]) -> None:
    """Print a script that completes commands and options in a shell.

    Args:
        shell: The shell.
    """
    with contextlib.suppress(SystemExit):
        app.cli(prog="geodax", args=["--tyro-write-completion", shell, "-"])
