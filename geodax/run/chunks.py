"""Run compiled chunks of iterations, and the work of Python between them.

After each chunk the draws are written, progress is reported, and a checkpoint is saved if it is due. A signal, a full
disk, non-finite values, or an error in the user's data or progress function ends the run with an error that carries the
draws so far.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from geodax._types import Array, PyTree
from geodax.run import hosts
from geodax.run.advance import NEVER, Totals
from geodax.run.checkpoint import Checkpointer
from geodax.run.draws import DrawStore, MemoryDraws, to_datatree
from geodax.run.errors import NonFiniteError, SamplingInterrupted, StorageError
from geodax.run.progress import Progress, Reporter
from geodax.run.sharding import fetch, placed_like
from geodax.run.signals import wait

_SECONDS_A_STRETCH = 0.5


@dataclasses.dataclass
class Run:
    """Current state of a run, and the sums for its progress reports.

    Attributes:
        carry: States of the chains and of their adaptation.
        iteration: Number of iterations done, warm-up included.
        num_warmup: Number of warm-up iterations.
        thinning: Number of iterations between draws.
        num_iterations: Total number of iterations.
        has_acceptance: Whether the sampler reports an acceptance rate.
        acceptance: Sum of the acceptance rates of a phase, averaged over chains.
        averaged: Number of iterations in that sum.
        divergences: Number of divergent iterations after warm-up.
        compile_seconds: Compilation time.
        seconds: Time in compiled code.
    """

    carry: Any
    iteration: int
    num_warmup: int
    thinning: int
    num_iterations: int
    has_acceptance: bool
    acceptance: float = 0.0
    averaged: int = 0
    divergences: int = 0
    compile_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def num_draws(self) -> int:
        """Number of draws per chain so far."""
        return max(self.iteration - self.num_warmup, 0) // self.thinning


def advance_to_end(
    run: Run,
    compiled: Callable[..., Any],
    chain_keys: Array,
    load: Callable[[int, int], PyTree],
    draws: DrawStore,
    *,
    checkpointer: Checkpointer | None,
    identity: dict[str, Any],
    report: Reporter,
    signals: list[int],
    buffer_length: int,
    longest: int | None,
    checkpoint_seconds: float,
    mesh: Mesh | None = None,
    has_checkpoints: bool = True,
) -> None:
    """Advance a run to its last iteration, in chunks of about half a second.

    Args:
        run: State of the run; updated after each chunk.
        compiled: The compiled unit of :func:`geodax.run.advance.build_advance`.
        chain_keys: A PRNG key for each chain.
        load: From the first iteration of a chunk and the one after its last to its data.
        draws: Storage for the draws.
        checkpointer: Writes checkpoints; None for none.
        identity: Facts that a checkpoint must share with the run that resumes from it.
        report: Receives the progress after each chunk.
        signals: Signals that ask the run to stop, appended by a handler.
        buffer_length: Number of draws in the buffer of the compiled unit.
        longest: Largest number of iterations whose data can be loaded at once; None for no limit.
        checkpoint_seconds: Time between checkpoints.
        mesh: The mesh of the chains.
        has_checkpoints: Whether checkpoints are written, here or by the first of several processes.

    Raises:
        NonFiniteError: If a sampler reports non-finite values.
        StorageError: If draws or a checkpoint cannot be written.
        HostLostError: If another process of the run has ended.
        SamplingInterrupted: After a signal. All but HostLostError carry the draws so far, and so does any error that
            ``load`` or ``report`` raises.
    """
    length = 1
    saved_at, saved_iteration = time.monotonic(), run.iteration

    def save() -> None:
        nonlocal saved_at, saved_iteration
        if has_checkpoints:
            carry = fetch(run.carry, mesh)
            hosts.first_does(lambda: write(carry), "write a checkpoint")
        saved_at, saved_iteration = time.monotonic(), run.iteration

    def write(carry: Any) -> None:
        if checkpointer is not None:
            try:
                facts = identity | {"divergences": run.divergences, "seconds": run.seconds}
                checkpointer.save(run.iteration, carry, facts)
            except Exception as error:  # a full disk can raise several types
                raise StorageError(
                    f"The checkpoint at iteration {run.iteration} could not be written to "
                    f"{checkpointer.folder}: {error}. The one before it and the draws are kept; make room "
                    "and resume."
                ) from error

    def where() -> str:
        if checkpointer is None or saved_iteration == 0:
            return "no checkpoint (give checkpoint=...)"
        return f"the checkpoint in {checkpointer.folder}"

    @contextlib.contextmanager
    def keeping_draws() -> Iterator[None]:
        """Attach the draws to errors of user functions, and save a checkpoint."""
        try:
            yield
        except BaseException as error:
            vars(error)["draws"] = _what_there_is(run, draws, run.num_draws)
            # with several processes one would wait for the others, and a second SIGINT must end the run immediately
            if isinstance(error, Exception) and run.iteration > saved_iteration and not hosts.is_several():
                try:
                    save()
                except StorageError as failure:
                    error.add_note(f"sample: {failure}")
            error.add_note(
                f"sample: this ended the run after iteration {run.iteration} of {run.num_iterations}; there are "
                f"{run.num_draws} draws for each chain, in `error.draws`, and {where()} to go on from."
            )
            raise

    while run.iteration < run.num_iterations:
        start = run.iteration
        # a chunk ends where warm-up ends, so that the sums for the reports belong to one phase
        phase_end = run.num_warmup if start < run.num_warmup else run.num_iterations
        stop = min(start + (length if longest is None else min(length, longest)), phase_end)
        stop = min(stop, _last_that_fits(start, run, buffer_length))
        clock = time.perf_counter()
        with keeping_draws():
            data = load(start, stop)
        with hosts.lost_hosts(f" between iterations {start} and {stop}"):
            *carry, totals, buffer = compiled(*run.carry, chain_keys, data, np.int32(start), np.int32(stop))
            if not hosts.is_several() and not wait(totals, signals):
                raise SamplingInterrupted(
                    f"Stopped by a signal in the iterations from {start} to {stop} of {run.num_iterations}, which were "
                    f"not waited for; there are {run.num_draws} draws for each chain, and {where()} to go on from.",
                    _what_there_is(run, draws, run.num_draws),
                    signals[0],
                )
            run.carry = placed_like(tuple(carry), run.carry)
            if hosts.is_several():
                jax.block_until_ready((run.carry, totals, buffer))
            totals = Totals(*(np.asarray(t) for t in fetch(totals, mesh)))
        seconds = time.perf_counter() - clock
        run.seconds += seconds
        first = run.num_draws
        failed_at = int(totals.failed_at.min())
        run.iteration = stop if failed_at == NEVER else failed_at
        new = run.num_draws - first
        try:
            if new:
                rows = jax.tree.map(functools.partial(_chains_first, new), fetch(buffer, mesh))
                if isinstance(draws, MemoryDraws):
                    draws.write(first, rows)
                else:
                    hosts.first_does(functools.partial(draws.write, first, rows), "write draws")
            if failed_at != NEVER:
                raise _not_finite(run, draws, totals.failed_at)
            _count(run, start, stop, totals)
            with keeping_draws():
                report(_progress(run, (stop - start) / max(seconds, 1e-9)))
            is_stopped = bool(signals)  # read once: a later signal waits for the next chunk
            is_due = time.monotonic() - saved_at > checkpoint_seconds
            pace = seconds / (stop - start)
            length = int(np.clip(_SECONDS_A_STRETCH / max(pace, 1e-9), 1, 4 * length))
            if hosts.is_several():  # the first process decides; a signal to any process stops all
                told = hosts.gathered(np.asarray([length, is_due, signals[0] if signals else 0], np.int64))
                length, is_due = int(told[0, 0]), bool(told[0, 1])
                is_stopped = bool(told[:, 2].any())
                if is_stopped and not signals:
                    signals.append(int(told[:, 2].max()))
            if is_due or is_stopped or stop == run.num_iterations:
                save()
        except StorageError as error:
            error.draws = _what_there_is(run, draws, first)
            raise
        if is_stopped and stop < run.num_iterations:
            raise SamplingInterrupted(
                f"Stopped by a signal after iteration {run.iteration} of {run.num_iterations}; there are "
                f"{run.num_draws} draws for each chain, and {where()} to go on from.",
                _what_there_is(run, draws, run.num_draws),
                signals[0],
            )


def _not_finite(run: Run, draws, failed_at: np.ndarray) -> NonFiniteError:
    chain = int(np.argmin(failed_at))
    return NonFiniteError(
        f"sample: chain {chain} is no longer finite at iteration {run.iteration} of {run.num_iterations} "
        f"({run.num_warmup} of them warm-up); {int((failed_at != NEVER).sum())} of {failed_at.size} chains failed "
        f"within the same stretch. There are {run.num_draws} draws for each chain before that. The usual cause is a "
        "step size that is too large for the curvature (try a third of it), or a log density that is undefined where "
        "the chain went, or so flat that warm-up has found no step size.",
        _what_there_is(run, draws, run.num_draws),
        chain,
        int(failed_at.min()),
    )


def _chains_first(num_draws: int, buffer: jax.Array) -> np.ndarray:
    """The first draws of a buffer (draw, chain, ...) as an array (chain, draw, ...)."""
    return np.asarray(buffer)[:num_draws].swapaxes(0, 1)


def _last_that_fits(start: int, run: Run, buffer_length: int) -> int:
    """The last end of a chunk for which its draws fit into the buffer."""
    if start < run.num_warmup:
        return run.num_warmup
    first_draw = (start - run.num_warmup) // run.thinning
    return run.num_warmup + (first_draw + buffer_length) * run.thinning


def _count(run: Run, start: int, stop: int, totals: Totals) -> None:
    if start in (0, run.num_warmup):
        run.acceptance, run.averaged = 0.0, 0
    run.acceptance += float(totals.acceptance.sum()) / totals.acceptance.size
    run.averaged += stop - start
    if start >= run.num_warmup:
        run.divergences += int(totals.divergences.sum())


def _progress(run: Run, rate: float) -> Progress:
    return Progress(
        iteration=run.iteration,
        num_iterations=run.num_iterations,
        num_warmup=run.num_warmup,
        acceptance_rate=run.acceptance / max(run.averaged, 1) if run.has_acceptance else None,
        num_divergences=run.divergences,
        iterations_per_second=rate,
        seconds_left=(run.num_iterations - run.iteration) / rate,
    )


def _what_there_is(run: Run, draws, num_draws: int) -> xr.DataTree | None:
    try:
        is_here = isinstance(draws, MemoryDraws) or hosts.is_first()
        return to_datatree(draws.read(num_draws)) if num_draws and is_here else None
    except OSError:
        return None
