"""The chunks of :func:`geodax.sample`: iterations of all chains, whose draws are kept."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from geodax._types import Array, PyTree
from geodax._version import __version__
from geodax.run import hosts
from geodax.run.advance import NEVER, Totals
from geodax.run.draws import DrawStore, MemoryDraws, to_datatree
from geodax.run.driver import Chunks, Run
from geodax.run.errors import NonFiniteError
from geodax.run.progress import Progress, seconds_left
from geodax.run.sharding import fetch, placed_like
from geodax.run.shards import ShardedDraws, Shards


@dataclasses.dataclass
class SamplingRun(Run):
    """Current state of a run, and the sums for its progress reports.

    Attributes:
        warmup_steps: Number of integration steps during warm-up, of all chains.
        acceptance: Sum of the acceptance rates of a phase, averaged over chains.
        averaged: Number of iterations in that sum.
    """

    num_warmup: int = 0
    thinning: int = 1
    divergences: int = 0
    steps: int = 0
    warmup_steps: int = 0
    acceptance: float = 0.0
    averaged: int = 0
    compile_seconds: float = 0.0

    counters = ("iteration", "seconds", "divergences", "steps", "warmup_steps")

    @property
    def num_draws(self) -> int:
        """Number of draws per chain so far."""
        return max(self.iteration - self.num_warmup, 0) // self.thinning


@dataclasses.dataclass
class ChainChunks(Chunks):
    """Iterations of all chains; see :class:`geodax.run.driver.Chunks`.

    Attributes:
        program: The compiled unit of :func:`geodax.run.advance.build_advance`.
        loader: From the first iteration of a chunk and the one after its last to its data.
        buffer_length: Number of draws in the buffer of the compiled unit.
        longest: Largest number of iterations whose data can be loaded at once; None for no limit.
        has_acceptance: Whether the sampler reports an acceptance rate.
        cause_of: From the keys of the chains, a chain and the iteration that failed to sentences about the cause.
    """

    run: SamplingRun
    program: Callable[..., Any]
    chain_keys: Array
    loader: Callable[[int, int], PyTree]
    draws: DrawStore
    buffer_length: int
    longest: int | None
    has_acceptance: bool
    mesh: Mesh | None
    cause_of: Callable[[Array, int, int], str]
    name: str

    unit = "iteration"

    def limit(self, start: int) -> int:
        run = self.run
        longest = NEVER if self.longest is None else start + self.longest
        if start < run.num_warmup:  # so that the sums for the reports belong to one phase
            return min(longest, run.num_warmup)
        first_draw = (start - run.num_warmup) // run.thinning
        return min(longest, run.num_warmup + (first_draw + self.buffer_length) * run.thinning)

    def load(self, start: int, stop: int) -> None:
        self._data = self.loader(start, stop)

    def compute(self, start: int, stop: int) -> PyTree:
        data, self._data = self._data, None  # its memory is free when the program has ended
        self._results = self.program(*self.run.carry, self.chain_keys, data, np.int32(start), np.int32(stop))
        return self._results[2]

    def accept(self, start: int, stop: int) -> int:
        *carry, totals, self._buffer = self._results
        del self._results
        self.run.carry = placed_like(tuple(carry), self.run.carry)
        if hosts.is_several():
            jax.block_until_ready((self.run.carry, totals, self._buffer))
        self._totals = Totals(*(np.asarray(t) for t in fetch(totals, self.mesh)))
        return int(self._totals.failed_at.min())

    def keep(self, start: int, stop: int) -> None:
        self._write(stop)
        run, totals = self.run, self._totals
        if start in (0, run.num_warmup):
            run.acceptance, run.averaged = 0.0, 0
        run.acceptance += float(totals.acceptance.sum()) / totals.acceptance.size
        run.averaged += stop - start
        steps = int(totals.steps.sum(dtype=np.int64))
        if start >= run.num_warmup:
            run.divergences += int(totals.divergences.sum())
            run.steps += steps
        else:
            run.warmup_steps += steps

    def _write(self, stop: int) -> None:
        run, draws = self.run, self.draws
        first = run.num_draws
        new = dataclasses.replace(run, iteration=stop).num_draws - first
        if new:
            if isinstance(draws, ShardedDraws):
                draws.write(first, jax.tree.map(lambda buffer: Shards(buffer, new), self._buffer))
            else:
                rows = jax.tree.map(lambda x: np.asarray(x)[:new].swapaxes(0, 1), fetch(self._buffer, self.mesh))
                write = functools.partial(draws.write, first, rows)
                write() if isinstance(draws, MemoryDraws) else hosts.first_does(write, "write draws")
        run.iteration = stop
        del self._buffer

    def rescue(self, failed_at: int) -> bool:
        self._write(failed_at)
        return False

    def failure(self, where: str) -> NonFiniteError:
        run, failed_at = self.run, self._totals.failed_at
        chain = int(np.argmin(failed_at))
        return NonFiniteError(
            f"{self.name}: chain {chain} is no longer finite at iteration {run.iteration} of {run.num_iterations} "
            f"({run.num_warmup} of them warm-up); {int((failed_at != NEVER).sum())} of {failed_at.size} chains failed "
            f"within the same chunk. {self.so_far().capitalize()} before that. "
            + self.cause_of(self.chain_keys, chain, run.iteration),
            chain=chain,
            iteration=int(failed_at.min()),
            **self.results(),
        )

    def progress(self, rate: float) -> Progress:
        run, is_training = self.run, self.name == "train_ensemble"
        num_warmup = 0 if is_training else run.num_warmup
        return Progress(
            iteration=run.iteration,
            num_iterations=run.num_iterations,
            num_warmup=num_warmup,
            acceptance_rate=run.acceptance / max(run.averaged, 1) if self.has_acceptance else None,
            num_divergences=run.divergences,
            iterations_per_second=rate,
            seconds_left=seconds_left(run.iteration, run.num_iterations, num_warmup, rate),
            task="training" if is_training else "sampling",
        )

    def so_far(self) -> str:
        return f"there are {self.run.num_draws} draws for each chain"

    def results(self) -> dict[str, xr.DataTree | None]:
        try:
            is_here = isinstance(self.draws, MemoryDraws) or hosts.is_first()
            num_draws = self.run.num_draws
            return {"draws": to_datatree(self.draws.read(num_draws)) if num_draws and is_here else None}
        except OSError:
            return {"draws": None}


def result_of(
    run: SamplingRun, draws: DrawStore, shapes: Mapping[str, Mapping[str, tuple]], num_chains: int
) -> xr.DataTree:
    """The result of a finished run, the same in every process."""
    attributes = {
        "inference_library": "geodax",
        "inference_library_version": __version__,
        "jax_version": jax.__version__,
        "num_warmup": run.num_warmup,
        "thinning": run.thinning,
        "compile_seconds": run.compile_seconds,
        "sampling_seconds": run.seconds,
    }
    statistics = shapes["sample_stats"]
    if "diverging" in statistics:
        attributes["num_divergences"] = run.divergences
    if "n_steps" in statistics:
        attributes |= {"num_integration_steps": run.steps, "num_warmup_integration_steps": run.warmup_steps}
    draws.describe(attributes)
    groups: Mapping[str, Mapping[str, Any]] = draws.read(run.num_draws)
    if hosts.is_several() and not isinstance(draws, MemoryDraws | ShardedDraws):
        expected = MemoryDraws(shapes, num_chains, run.num_draws).read(run.num_draws)
        there = {group: {name: np.asarray(values) for name, values in of.items()} for group, of in groups.items()}
        groups = hosts.from_first(there if hosts.is_first() else expected)
    return to_datatree(groups, attributes)
