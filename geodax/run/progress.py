"""Progress of a run: a bar on the terminal, or a user function."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, NamedTuple

_MEMORY = 10.0  # seconds
_UNTYPICAL = 0.1  # fraction of warm-up whose trajectories say nothing of later ones
_BETWEEN_LINES = 30.0  # seconds, in a file or pipe


class Progress(NamedTuple):
    """The state of a run after a chunk of iterations.

    Attributes:
        iteration: Iterations done, warm-up included.
        num_iterations: Iterations to do.
        num_warmup: Number of warm-up iterations among them.
        acceptance_rate: Mean over chains and the current phase (warm-up or sampling) so far; None for a sampler that
            accepts everything.
        num_divergences: Number of divergent transitions after warm-up, over all chains.
        iterations_per_second: Rate of about the last ten seconds; an iteration of all chains counts once.
        seconds_left: Estimate from that rate; NaN in the first tenth of warm-up, before the step size is known.
        task: What the iterations are steps of: ``"sampling"``, ``"fitting"`` (:func:`geodax.vi.fit`) or ``"training"``
            (:func:`geodax.train_ensemble`).
    """

    iteration: int
    num_iterations: int
    num_warmup: int
    acceptance_rate: float | None
    num_divergences: int
    iterations_per_second: float
    seconds_left: float
    task: str = "sampling"

    @property
    def phase(self) -> str:
        """What is being done, ``"warm-up"``, ``"sampling"``, ``"fitting"`` or ``"training"``."""
        return "warm-up" if self.iteration <= self.num_warmup and self.num_warmup else self.task

    def __str__(self) -> str:
        facts = [
            f"{self.phase} {self.iteration}/{self.num_iterations}",
            _pace(self.iterations_per_second, " iterations/s"),
        ]
        if self.acceptance_rate is not None:
            facts += [f"acceptance {self.acceptance_rate:.2f}", f"{self.num_divergences} divergences"]
        return ", ".join(filter(None, [*facts, _left(self.seconds_left)]))


class RecentRate:
    """Iterations per second, with weights that decay over ten seconds."""

    def __init__(self) -> None:
        self._iterations = self._seconds = 0.0

    def add(self, iterations: int, seconds: float) -> float:
        """Add the last iterations and return the rate."""
        kept = math.exp(-seconds / _MEMORY)
        self._iterations = kept * self._iterations + iterations
        self._seconds = kept * self._seconds + seconds
        return self._iterations / max(self._seconds, 1e-9)


def seconds_left(iteration: int, num_iterations: int, num_warmup: int, rate: float) -> float:
    """Estimate the time left from a rate; NaN in the first tenth of warm-up."""
    if iteration < _UNTYPICAL * num_warmup:
        return math.nan
    return (num_iterations - iteration) / rate


def _pace(rate: float, unit: str) -> str:
    if rate >= 1:
        return f"{rate:.{0 if rate >= 10 else 1}f}{unit}"
    return f"{1 / rate:.{0 if rate <= 0.1 else 1}f} s/iteration"


def _left(seconds: float) -> str:
    if math.isnan(seconds):
        return ""
    if seconds < 120:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 7200 else f"{seconds / 3600:.1f} h left"


Reporter = Callable[[Progress], None]


def at_times(write: Callable[[str], None], seconds: float) -> Reporter:
    """Return a function that writes the progress after some seconds, and at the ends of warm-up and run."""
    written_at = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal written_at
        now = time.monotonic()
        if now - written_at > seconds or progress.iteration in (progress.num_warmup, progress.num_iterations):
            written_at = now
            write(str(progress))

    return report


@contextlib.contextmanager
def progress_bar(stderr: bool = False) -> Iterator[Reporter]:
    """Show a bar with phase, rate, acceptance, divergences and time left; lines where the output is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    console = Console(stderr=stderr)
    if not (console.is_terminal or console.is_jupyter):
        yield at_times(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True), _BETWEEN_LINES)
        return
    bar = RichProgress(
        TextColumn("{task.description:9}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
        console=console,
    )
    with bar:
        task = bar.add_task("compiling", total=None, facts="")

        def update(progress: Progress) -> None:
            rate, divergent = progress.acceptance_rate, progress.num_divergences
            acceptance = "" if rate is None else f"acceptance {rate:.2f}  {divergent} divergent  "
            bar.update(
                task,
                description=progress.phase,
                total=progress.num_iterations,
                completed=progress.iteration,
                facts=f"{_pace(progress.iterations_per_second, '/s')}  {acceptance}{_left(progress.seconds_left)}",
            )

        yield update


def working(words: str) -> AbstractContextManager[Any]:
    """Show words on the terminal, on standard error, while something is computed that is not counted."""
    from rich.console import Console

    return Console(stderr=True).status(words)


@contextlib.contextmanager
def _progress_line() -> Iterator[Reporter]:
    """Show a line of text that is overwritten, for notebooks without widgets."""
    width = 0

    def write(text: str) -> None:
        nonlocal width
        print(f"\r{text.ljust(width)}", end="", flush=True)
        width = len(text)

    write("compiling")
    try:
        yield lambda progress: write(str(progress))
    finally:
        print()


def _is_notebook_without_widgets() -> bool:
    if find_spec("ipywidgets"):
        return False
    from rich import get_console

    return get_console().is_jupyter


def reporting(progress: "bool | Reporter") -> AbstractContextManager[Reporter]:
    """Return a context manager whose value receives the progress.

    True shows a bar, or a line of text in a notebook without ipywidgets, or nothing if rich is not installed; False
    shows nothing; a function is called with each `Progress`.
    """
    if progress is True:
        if not find_spec("rich"):
            return nullcontext(_say_nothing)
        return _progress_line() if _is_notebook_without_widgets() else progress_bar()
    return nullcontext(progress or _say_nothing)


def _say_nothing(progress: Progress) -> None:
    del progress
