"""The commands beside ``fit``: what is done with a run, data sets, citations."""

from pathlib import Path

from rich.table import Table
from tyro.conf import Positional
from tyro.extras import SubcommandApp

from geodax.app.commands.fits import fit
from geodax.app.commands.options import HERE, DialectArgument, File, Run, WhereArgument
from geodax.app.commands.terminal import console, say, say_written, show
from geodax.app.tables.dialect import FOUND

app = SubcommandApp()
data = SubcommandApp()
app.command(fit, name="fit", help="Fit a model to a table and leave everything in a run folder.")
app.command(data, name="data", help="Real data sets: list them, or get one from its publisher.")


@app.command
def report(run: Run, out: Path | None = None) -> None:
    """Write one HTML file about a run, from its files alone.

    Args:
        run: Run folder.
        out: File to write, - for the standard output; report.html in the run folder if left out.
    """
    from geodax.app.run_folder.actions import report_run

    say_written("Report", report_run(run, out=out))


@app.command
def resume(
    run: Run,
    num_samples: int | None = None,
    progress: bool = True,
    where: WhereArgument = HERE,
) -> None:
    """Go on with a run that was interrupted, or extend a finished one.

    Args:
        run: Run folder.
        num_samples: Draws for each chain in the end, if more than the run was begun with.
        progress: Show a progress bar.
        where: Devices, and several processes that run as one.
    """
    from geodax.app.run_folder.actions import resume_run

    where.join()
    show(resume_run(run, num_samples=num_samples, **where.how(progress)))


@app.command
def predict(
    run: Run, file: File, out: Path | None = None, spreadsheet: bool = False, dialect: DialectArgument = FOUND
) -> None:
    """Write what a run says of new rows, with intervals: classes, values, ratings, scores, pairs or states.

    Args:
        run: Run folder.
        file: CSV file of the fit's form; for an eigenmodel, a list of pairs of nodes; for ratings, users and items.
        out: File to write, - for the standard output; predictions.csv in the run folder if left out.
        spreadsheet: Write an apostrophe before text that a spreadsheet would take for a formula.
        dialect: How the file is written, where it is not written as that of the fit.
    """
    from geodax.app.run_folder.actions import predict_run

    path, notes = predict_run(run, file, out=out, spreadsheet=spreadsheet, dialect=dialect)
    say_written("Predictions", path, *notes)


@data.command(name="list")
def data_list() -> None:
    """List the data sets, their terms, and whether they are here."""
    from geodax.data import describe

    table = Table("name", "contents", "terms", "here", box=None, header_style="bold")
    for row in describe():
        table.add_row(row.name, f"{row.title}, {row.shape}", row.licence, "yes" if row.present else "no")
    console.print(table)


@data.command(name="fetch")
def data_fetch(name: Positional[str]) -> None:
    """Get a data set from its publisher and verify it.

    Args:
        name: Name of the data set, as `geodax data list` shows it.
    """
    from geodax.data import fetch

    say(*map(str, fetch(name)))


@app.command
def citation(method: Positional[str]) -> None:
    """Print BibTeX entries for a method.

    Args:
        method: A sampler, metric, parametrisation, layer or model: nuts, monge, givens, whvi, pca, ...; an unknown
            name is answered with the list.
    """
    from geodax.app.citations import citation as entries

    say(entries(method))
