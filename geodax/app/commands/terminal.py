"""Terminal output of the commands."""

import functools
import json
import math
import shlex
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from geodax.app.family import RunResult


_MOST_ROWS = 40  # of the summary


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = _Console()
errors = Console(stderr=True)


def say(*lines: str, to: Console = console) -> None:
    """Print lines; a terminal wraps them between words, and files and pipes get them unchanged."""
    wrapped = functools.partial(textwrap.fill, width=to.width, break_long_words=False, break_on_hyphens=False)
    for line in lines:
        text = "\n".join(map(wrapped, line.split("\n"))) if to.is_terminal else line
        to.print(text, markup=False, highlight=False, soft_wrap=True)


def saying(*, as_json: bool) -> Callable[..., None]:
    """Return the function that prints notes: to standard error where standard output holds JSON."""
    return functools.partial(say, to=errors) if as_json else say


def complain(message: str, style: str = "red") -> None:
    """Print a message to standard error, in colour on a terminal."""
    errors.print(message, style=style, markup=False, highlight=False, soft_wrap=True)


def say_written(what: str, path: Path, *notes: str, as_json: bool = False) -> None:
    """Print notes and the path of a written file; for standard output, print only the notes, to standard error."""
    from geodax.app.run_folder.outputs import open_descriptor

    if as_json:
        say_json({what.casefold(): str(path), "notes": notes})
    elif open_descriptor(path) == 1:
        say(*notes, to=errors)
    else:
        say(*notes, f"{what}: {path}")


def require_standard_output(is_json: bool, out: Path | None) -> None:
    """Raise ValueError if JSON and a file would both be written to standard output."""
    from geodax.app.run_folder.outputs import open_descriptor

    if is_json and out is not None and open_descriptor(out) == 1:
        raise ValueError(f"--json and --out {out} both write to standard output. Leave one of them out.")


def say_json(contents: Any) -> None:
    """Print one JSON object; numbers that are not finite, which JSON lacks, become null."""
    text = json.dumps(_plain(contents), indent=2, ensure_ascii=False)
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else None
    return value


def _as_json(result: "RunResult") -> dict[str, Any]:
    summary = result.summary
    return {
        "run": str(result.folder),
        "model": result.model,
        "num_chains": summary.num_chains,
        "num_draws": summary.num_draws,
        "sampling_seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "results": result.results,
        "notes": result.notes,
        "remarks": result.remarks,
        "findings": [finding._asdict() for finding in result.findings],
        "sampler": dict(summary.sampler),
        "summary": {row.name: {**row._asdict(), "is_shown": row.name.startswith(result.headline)} for row in summary},
    }


def show(result: "RunResult", *, as_json: bool = False, **facts: str) -> None:
    """Print a run from the first process only: results, then notes and findings; or one JSON object with ``facts``."""
    from geodax.app.report.advice import with_each_advice_once
    from geodax.app.report.numbers import agreement, digits_between, rounded
    from geodax.run.hosts import is_first

    if not is_first():
        return
    if as_json:
        say_json(_as_json(result) | facts)
        return

    def number(value: float, digits: int) -> str:
        return rounded(value, digits).replace("−", "-")

    say(*result.results)
    table = Table(Column(overflow="fold"), "mean", "90 % interval", "bulk ESS", "R-hat", box=None, header_style="bold")
    rows = [row for row in result.summary if row.name.startswith(result.headline)]
    for row in rows[:_MOST_ROWS]:
        digits = digits_between(row.quantile_5, row.quantile_95, 3)
        table.add_row(
            Text(row.name),  # brackets are not markup
            number(row.mean, digits),
            f"{number(row.quantile_5, digits)} to {number(row.quantile_95, digits)}",
            *agreement(row),
        )
    if rows:
        console.print(table)
    if len(rows) > _MOST_ROWS:
        say(f"{len(rows) - _MOST_ROWS} more rows are in {result.folder / 'summary.csv'}.")
    say(*result.remarks)
    say(*map(str, with_each_advice_once(result.findings)))
    if not result.findings:
        say("Diagnostics: no problems found; the chains agree.")
    following = f"Report: geodax report {shlex.quote(str(result.folder))}"
    if result.extension:
        following = f"Too few draws for a report. Add draws with: {result.extension}"
    how_long = f", sampled in {result.seconds:.1f} s (plus {result.compile_seconds:.1f} s of compilation)"
    say(
        f"{result.summary.num_chains} chains of {result.summary.num_draws} draws"
        f"{how_long if math.isfinite(result.seconds) else ' so far'}.",
        f"Run folder: {result.folder}    {following}",
    )
