"""Progress of a run: a bar on the terminal, or a user function."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import NamedTuple


class Progress(NamedTuple):
    """The state of a run after a chunk of iterations.

    Attributes:
        iteration: Iterations done, warm-up included.
        num_iterations: Iterations to do.
        num_warmup: Number of warm-up iterations among them.
        acceptance_rate: Mean over chains and the current phase (warm-up or sampling) so far; None for a sampler that
            accepts everything.
        num_divergences: Number of divergent transitions after warm-up, over all chains.
        iterations_per_second: Rate of the last chunk; an iteration of all chains counts once.
        seconds_left: Estimate from that rate.
    """

    iteration: int
    num_iterations: int
    num_warmup: int
    acceptance_rate: float | None
    num_divergences: int
    iterations_per_second: float
    seconds_left: float

    def __str__(self) -> str:
        phase = "warm-up" if self.iteration <= self.num_warmup and self.num_warmup else "sampling"
        acceptance = (
            ""
            if self.acceptance_rate is None
            else f"acceptance {self.acceptance_rate:.2f}, {self.num_divergences} divergences, "
        )
        return (
            f"{phase} {self.iteration}/{self.num_iterations}, {self.iterations_per_second:.0f} iterations/s, "
            f"{acceptance}{self.seconds_left:.0f} s left"
        )


Reporter = Callable[[Progress], None]


class ProgressBar:
    """A bar on the terminal with phase, rate, acceptance, divergences and time left; a context manager.

    Args:
        stderr: Whether to write to standard error.
    """

    def __init__(self, stderr: bool = False):
        self._stderr = stderr

    def __enter__(self) -> "ProgressBar":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        self._bar = RichProgress(
            TextColumn("{task.description:9}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[facts]}", table_column=Column(no_wrap=True)),
            console=Console(stderr=True) if self._stderr else None,
        )
        self._bar.start()
        self._task = self._bar.add_task("compiling", total=None, facts="")
        return self

    def __call__(self, progress: Progress) -> None:
        """Update the bar."""
        is_warmup = progress.iteration < progress.num_warmup
        left = (
            f"{progress.seconds_left:.0f} s left"
            if progress.seconds_left < 6000
            else f"{progress.seconds_left / 3600:.1f} h left"
        )
        acceptance = (
            ""
            if progress.acceptance_rate is None
            else f"acceptance {progress.acceptance_rate:.2f}  {progress.num_divergences} divergent  "
        )
        self._bar.update(
            self._task,
            description="warm-up" if is_warmup else "sampling",
            total=progress.num_iterations,
            completed=progress.iteration,
            facts=f"{progress.iterations_per_second:.0f}/s  {acceptance}{left}",
        )

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()


class ProgressLine:
    """A line of text that is overwritten, for notebooks without widgets; a context manager."""

    _width = 0

    def __enter__(self) -> "ProgressLine":
        self._write("compiling")
        return self

    def __call__(self, progress: Progress) -> None:
        """Overwrite the line."""
        self._write(str(progress))

    def _write(self, text: str) -> None:
        print(f"\r{text.ljust(self._width)}", end="", flush=True)
        self._width = len(text)

    def __exit__(self, *exception: object) -> None:
        print()


def _is_notebook_without_widgets() -> bool:
    if find_spec("ipywidgets"):
        return False
    from rich import get_console

    return get_console().is_jupyter


def reporting(progress: "bool | Reporter") -> AbstractContextManager[Reporter]:
    """Return a context manager whose value receives the progress.

    Args:
        progress: True shows a bar, or a line of text in a notebook without ipywidgets, or nothing if rich is not
            installed; False shows nothing; a function is called with each `Progress`.
    """
    if progress is True:
        if not find_spec("rich"):
            return nullcontext(_say_nothing)
        return ProgressLine() if _is_notebook_without_widgets() else ProgressBar()
    return nullcontext(progress or _say_nothing)


def _say_nothing(progress: Progress) -> None:
    del progress
