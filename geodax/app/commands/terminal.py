"""Terminal output of the commands."""

import functools
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from geodax.app.family import RunResult

console = Console()
errors = Console(stderr=True)


def say(*lines: str, to: Console = console) -> None:
    """Print lines; a terminal wraps them between words, and files and pipes get them unchanged."""
    for line in lines:
        text = "\n".join(map(_wrapped(to.width), line.split("\n"))) if to.is_terminal else line
        to.print(text, markup=False, highlight=False, soft_wrap=True)


def _wrapped(width: int) -> Callable[[str], str]:
    """Return a function that breaks a long line between words, never within one, such as a path."""
    return functools.partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)


def say_written(what: str, path: Path, *notes: str) -> None:
    """Print notes and the path of a written file; for standard output, print only the notes, to standard error."""
    from geodax.app.run_folder.outputs import open_descriptor

    if open_descriptor(path) == 1:
        say(*notes, to=errors)
    else:
        say(*notes, f"{what}: {path}")


def show(result: "RunResult") -> None:
    """Print a run from the first process only: results, then notes and findings."""
    from geodax.app.report.numbers import digits_between, rounded
    from geodax.run.hosts import is_first

    if not is_first():
        return

    def number(value: float, digits: int) -> str:
        return rounded(value, digits).replace("−", "-")

    say(*result.results)
    table = Table("", "mean", "90 % interval", "bulk ESS", "R-hat", box=None, header_style="bold")
    for row in result.summary:
        if row.name.startswith(result.headline):
            digits = digits_between(row.quantile_5, row.quantile_95, 3)
            table.add_row(
                row.name,
                number(row.mean, digits),
                f"{number(row.quantile_5, digits)} to {number(row.quantile_95, digits)}",
                f"{row.ess_bulk:.0f}",
                f"{row.rhat:.3f}",
            )
    if table.row_count:
        console.print(table)
    say(*result.remarks)
    for finding in result.findings:
        say(str(finding))
    if not result.findings:
        say("Diagnostics: no problems found; the chains agree.")
    following = f"Report: geodax report {shlex.quote(str(result.folder))}"
    if result.extension:
        following = f"Too few draws for a report. Add draws with: {result.extension}"
    say(
        f"{result.summary.num_chains} chains of {result.summary.num_draws} draws, sampled in {result.seconds:.1f} s "
        f"(plus {result.compile_seconds:.1f} s of compilation).",
        f"Run folder: {result.folder}    {following}",
    )
