"""The loop of every run: compiled chunks of iterations, and the work of Python between them.

:func:`drive` chooses the length of each chunk, reports progress, saves checkpoints, and ends the run after a signal, an
error or the last iteration. :func:`geodax.sample` and :func:`geodax.vi.fit` define what a chunk computes
(:class:`Chunks`).
"""

import abc
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jax.sharding import Mesh

from geodax._types import PyTree
from geodax._wording import in_python
from geodax.run import hosts
from geodax.run.advance import NEVER
from geodax.run.checkpoint import Checkpointer
from geodax.run.errors import NonFiniteError, SamplingInterrupted, StorageError
from geodax.run.locks import exclusive
from geodax.run.progress import Progress, RecentRate, Reporter
from geodax.run.sharding import fetch
from geodax.run.signals import wait

_SECONDS_PER_CHUNK = 0.5


@dataclasses.dataclass
class Run:
    """Current state of a run.

    Attributes:
        carry: The arrays that a chunk hands to the next one.
        num_iterations: Total number of iterations.
        iteration: Number of iterations done.
        seconds: Time in compiled code.
    """

    carry: Any
    num_iterations: int
    iteration: int = 0
    seconds: float = 0.0

    counters = ("iteration", "seconds")
    """The numbers that a checkpoint holds besides the carry."""


class Chunks(abc.ABC):
    """What the chunks of a run compute, and what becomes of their results."""

    name: str
    """The function that the user called."""
    unit: ClassVar[str]
    """What an iteration is called in messages."""

    @abc.abstractmethod
    def limit(self, start: int) -> int:
        """The last possible end of a chunk that begins at an iteration."""

    @abc.abstractmethod
    def compute(self, start: int, stop: int) -> PyTree:
        """Start the program of a chunk with the data that were loaded. Returns the arrays to wait for."""

    @abc.abstractmethod
    def accept(self, start: int, stop: int) -> int:
        """Take the new carry. Returns the first non-finite iteration, or NEVER."""

    @abc.abstractmethod
    def keep(self, start: int, stop: int) -> None:
        """Keep what the iterations have produced, and set the run's iteration to ``stop``."""

    @abc.abstractmethod
    def rescue(self, failed_at: int) -> bool:
        """Keep what there is before a non-finite iteration. Returns whether the carry is the one before it."""

    @abc.abstractmethod
    def failure(self, where: str) -> NonFiniteError:
        """The error for non-finite values; ``where`` names the checkpoint."""

    @abc.abstractmethod
    def progress(self, rate: float) -> Progress:
        """The progress, from the number of iterations per second."""

    @abc.abstractmethod
    def results(self) -> dict[str, Any]:
        """Results so far, as attributes of an error."""

    def load(self, start: int, stop: int) -> None:
        """Load the data of a chunk, which may call functions of the user."""

    def abandon(self) -> None:
        """Called in place of ``accept`` and ``keep`` if a chunk is not waited for."""

    def saved(self) -> None:
        """Called after each checkpoint, also where none are written."""

    def has_converged(self) -> bool:
        """Whether the run ends before its last iteration."""
        return False

    def so_far(self) -> str:
        """The results so far as a clause, such as "there are 10 draws for each chain"; empty without one."""
        return ""


class Checkpoints:
    """The checkpoints of a run; the first of several processes reads and writes them for all, or each its shards.

    Args:
        folder: The folder that holds them, their lock and perhaps draws; None for no checkpoints.
        identity: Facts that a checkpoint must share with the run that resumes from it.
        seconds: Time between checkpoints.
        is_split: Whether the carry holds arrays that are split over devices; it is then on them from the start.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any], seconds: float, is_split: bool = False):
        self.seconds, self.is_split = seconds, is_split
        self.folder = None if folder is None else Path(folder).absolute() / "steps"
        self.identity = dict(identity)
        self._files: Checkpointer | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator["Checkpoints"]:
        """Lock the folder first: a second run would remove what the first one writes."""
        with contextlib.ExitStack() as stack:
            if self.folder is not None:
                beside = self.folder.parent
                stack.enter_context(exclusive(beside / "lock", beside, "keep checkpoints in"))
                if hosts.is_first() or self.is_split:
                    self._files = Checkpointer(self.folder, self.is_split)
                    stack.callback(self._files.close)
            yield self

    def restore(self, run: Run, check: Callable[[Mapping[str, Any]], None]) -> Mapping[str, Any]:
        """Restore a run in place from the newest checkpoint, if there is one.

        ``check`` is called with the facts of the checkpoint and raises if it belongs to another run. Returns the facts
        in the first process, nothing elsewhere or without a checkpoint.
        """
        found, files = None, self._files
        if self.folder is not None:

            def restored() -> Any:
                return None if files is None else files.restore(run.carry, check)

            found = restored() if self.is_split else hosts.first_does(restored, "read its checkpoint")
        carry, facts = (run.carry, {}) if found is None else found
        named = {"iteration": "step"}
        numbers = [float(facts.get(named.get(name, name), 0)) for name in run.counters]
        is_there, *numbers = hosts.from_first(np.asarray([found is not None, *numbers], np.float64))
        if is_there:
            run.carry = carry if self.is_split else hosts.from_first(carry)
            for name, number in zip(run.counters, numbers, strict=True):
                setattr(run, name, type(getattr(run, name))(number))
        return facts

    def save(self, run: Run, mesh: Mesh | None) -> None:
        """Write a checkpoint; every process must call this. Raises StorageError if it cannot be written."""
        if self.folder is not None and self.is_split:
            self._write(run, run.carry)
        elif self.folder is not None:
            carry = fetch(run.carry, mesh)
            hosts.first_does(lambda: self._write(run, carry), "write a checkpoint")

    def _write(self, run: Run, carry: PyTree) -> None:
        if self._files is None:
            return
        counters = {name: getattr(run, name) for name in run.counters if name != "iteration"}
        try:
            self._files.save(run.iteration, carry, self.identity | counters)
        except Exception as error:  # a full disk can raise several types
            raise StorageError(
                f"The checkpoint at iteration {run.iteration} could not be written to {self.folder}: {error}. "
                "The one before it is kept; make room and resume."
            ) from error


def drive(
    run: Run,
    chunks: Chunks,
    checkpoints: Checkpoints,
    *,
    report: Reporter,
    signals: list[int],
    mesh: Mesh | None = None,
) -> None:
    """Advance a run to its end, in chunks of about half a second.

    Raises:
        NonFiniteError: If a chunk reports non-finite values.
        StorageError: If results or a checkpoint cannot be written.
        HostLostError: If another process of the run has ended.
        SamplingInterrupted: After a signal. All but HostLostError carry the results so far, and so does any error that
            the user's data or ``report`` raise.
    """
    length, saved_at, saved_iteration = 1, time.monotonic(), run.iteration
    recent = RecentRate()

    def save() -> None:
        nonlocal saved_at, saved_iteration
        checkpoints.save(run, mesh)
        chunks.saved()
        saved_at, saved_iteration = time.monotonic(), run.iteration

    def where() -> str:
        if checkpoints.folder is None or saved_iteration == 0:
            return "no checkpoint (give checkpoint=...)"
        return f"the checkpoint in {checkpoints.folder}"

    def there_is() -> str:
        return ", and ".join(filter(None, (chunks.so_far(), f"{where()} to resume from")))

    def interrupted(when: str) -> SamplingInterrupted:
        return SamplingInterrupted(
            f"Stopped by a signal {when}{in_python(f'; {there_is()}')}.", signal=signals[0], **chunks.results()
        )

    @contextlib.contextmanager
    def keeping_results() -> Iterator[None]:
        """Attach the results to errors of user functions, and save a checkpoint."""
        try:
            yield
        except BaseException as error:
            results = chunks.results()
            vars(error).update(results)
            # with several processes one would wait for the others, and a second SIGINT must end the run immediately
            if isinstance(error, Exception) and run.iteration > saved_iteration and not hosts.is_several():
                try:
                    save()
                except StorageError as failure:
                    error.add_note(f"{chunks.name}: {failure}")
            error.add_note(
                f"{chunks.name}: this ended the run after {chunks.unit} {run.iteration} of {run.num_iterations}; "
                f"{there_is()}. The error has the results so far: `error.{next(iter(results))}`."
            )
            raise

    def is_over() -> bool:
        return run.iteration == run.num_iterations or chunks.has_converged()

    while not is_over():
        start = run.iteration
        stop = min(start + length, chunks.limit(start), run.num_iterations)
        clock = time.perf_counter()
        with keeping_results():
            chunks.load(start, stop)
        with hosts.lost_hosts(f" between {chunks.unit}s {start} and {stop}"):
            awaited = chunks.compute(start, stop)
            if not hosts.is_several() and not wait(awaited, signals):
                chunks.abandon()
                raise interrupted(
                    f"in the {chunks.unit}s from {start} to {stop} of {run.num_iterations}, which were not waited for"
                )
            failed_at = chunks.accept(start, stop)
        seconds = time.perf_counter() - clock
        run.seconds += seconds
        try:
            if failed_at != NEVER:
                if chunks.rescue(failed_at) and run.iteration > saved_iteration:
                    save()
                raise chunks.failure(where())
            chunks.keep(start, stop)
            with keeping_results():
                report(chunks.progress(recent.add(stop - start, seconds)))
            is_stopped = bool(signals)  # read once: a later signal waits for the next chunk
            is_due = time.monotonic() - saved_at > checkpoints.seconds
            pace = seconds / (stop - start)
            length = int(np.clip(_SECONDS_PER_CHUNK / max(pace, 1e-9), 1, 4 * length))
            if hosts.is_several():  # the first process decides; a signal to any process stops all
                told = hosts.gathered(np.asarray([length, is_due, signals[0] if signals else 0], np.int64))
                length, is_due = int(told[0, 0]), bool(told[0, 1])
                is_stopped = bool(told[:, 2].any())
                if is_stopped and not signals:
                    signals.append(int(told[:, 2].max()))
            if is_due or is_stopped or is_over():
                save()
        except StorageError as error:
            vars(error).update(chunks.results())
            raise
        if is_stopped and not is_over():
            raise interrupted(f"after {chunks.unit} {run.iteration} of {run.num_iterations}")
