"""Messages that say how to continue a run."""

import shlex
from pathlib import Path

from geodax.app.run_folder import earlier as earlier_run
from geodax.run.draws import open_draws
from geodax.run.errors import StorageError

LEAST_DRAWS = 4
"""Least total number of draws for a report or a prediction."""


def way_out(run: Path) -> str:
    """Say what to do after an interruption."""
    if earlier_run.is_left(run):
        return f"The new run had not started; the earlier one is still in {run}: `{resumption(run)}`."
    return f"`{resumption(run)}` continues from the last checkpoint, or from the start if there is none."


def resumption(run: Path) -> str:
    """Return the shell command that resumes a run."""
    return f"geodax resume {shlex.quote(str(run))}"


def extension_of(run: Path, num_chains: int, num_draws: int) -> str:
    """Return the command that adds the draws a report needs; empty if there are enough."""
    if num_chains * num_draws >= LEAST_DRAWS:
        return ""
    return f"{resumption(run)} --num-samples {-(-LEAST_DRAWS // num_chains)}"


def num_draws_of(run: Path) -> int:
    """Return the number of draws of each chain so far."""
    try:
        return open_draws(run / "posterior.zarr")["posterior"].sizes["draw"]
    except (StorageError, KeyError):
        return 0


def outdated(run: Path, num_draws: int) -> tuple[str, ...]:
    """Return a note on files made before the run was resumed at a number of draws, if it has more now."""
    made = {"report.html": "geodax report", "predictions.csv": "geodax predict"}
    old = {name: by for name, by in made.items() if (run / name).exists()}
    if not old or num_draws_of(run) <= num_draws:
        return ()
    names, commands = " and ".join(old), " and ".join(f"`{by}`" for by in old.values())
    return (f"The draws are newer than {names} in {run}. Run {commands} again.",)
