"""What a call of :func:`geodax.sample` computes: its initial states, the records of an iteration, and its program."""

import dataclasses
import functools
import time
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
import xarray as xr
from jax.sharding import Mesh

from geodax._types import Adaptation, Array, Position, PyTree
from geodax.run import hosts, starts
from geodax.run.advance import MANY_CHAINS, Sampler, bound, build_advance, description_of, steps_of
from geodax.run.chunks import SamplingRun
from geodax.run.feeding import Feed, loader_of
from geodax.run.likelihoods import warn_if_examples_mix
from geodax.run.programs import Same, compiled, reused
from geodax.run.records import record_shapes, recorded_with
from geodax.run.sharding import CHAIN_AXIS, put_chains, put_everywhere
from geodax.run.split import Split
from geodax.run.warm_starts import with_adapted


def adaptation_of(algorithm: Sampler, num_chains: int) -> tuple[Callable[..., Adaptation] | None, bool]:
    """The adaptation of the sampler, and whether it is joint for all chains."""
    alone, jointly = (getattr(algorithm, name, None) for name in ("adapt", "adapt_jointly"))
    is_joint = jointly is not None and (num_chains >= MANY_CHAINS or alone is None)
    return (jointly if is_joint else alone), is_joint


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a run that do not change while it runs.

    Attributes:
        keep: From a position to what is recorded.
        feed: The batches, or None.
        where: What :func:`geodax.run.starts.starting_positions` takes after the sampler.
        data_args: Arguments of the log density after the position.
        chain_keys: A key for each chain.
        split: The division of positions over devices, or None.
    """

    algorithm: Sampler
    keep: Callable[..., PyTree]
    feed: Feed | None
    where: tuple[Position, int, bool, int | None]
    data_args: PyTree
    chain_keys: Array
    num_warmup: int
    thinning: int
    chain_method: str
    mesh: Mesh | None
    split: Split | None

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.where[1]

    @property
    def is_joint(self) -> bool:
        """Whether the chains are tuned together."""
        return adaptation_of(self.algorithm, self.num_chains)[1]

    @functools.cached_property
    def steps(self) -> Callable[[tuple], Callable[..., tuple[Any, Any]]]:
        """From arguments of the log density to a step, which is traced once."""
        return steps_of(self.algorithm)

    @functools.cached_property
    def likelihood(self) -> Callable[[Any, PyTree], Array] | None:
        """The log likelihood of each example, where one device of one process has all of them."""
        if self.feed is None or self.split is not None or hosts.is_several():
            return None
        return description_of(self.algorithm).log_likelihood

    def key(self, name: Hashable) -> tuple | None:
        """What determines a program, besides the shapes of its arguments; None if it must be traced.

        A log density that holds its data is traced in each call, since the data may have changed.
        """
        if not self.data_args:
            return None
        same = Same(self.algorithm.step), Same(self.keep), self.is_joint, self.chain_method, self.num_warmup
        return (*same, self.thinning, self.mesh, self.split, name)

    def begin(self, warm_start: xr.DataTree | xr.Dataset | None) -> tuple[Any, Any]:
        """Return the initial states of the chains and of their adaptation."""
        algorithm, split, described = self.algorithm, self.split, description_of(self.algorithm)
        start, num_chains, stacked, _ = self.where
        positions = starts.starting_positions(algorithm, *self.where, self.key("positions"), split)
        with starts.suggesting_stacked(start, stacked, num_chains):
            bind, key = functools.partial(bound, algorithm), self.key("start")
            states = starts.starting_states(algorithm, positions, self.chain_keys, bind, self.data_args, key, split)
        starts.check_states(states, split)
        if self.feed is not None and self.likelihood is not None:
            first = jax.tree.map(lambda x: np.asarray(x)[0], positions)  # a slice would be compiled
            num_data = getattr(algorithm, "num_data", 0)
            warn_if_examples_mix(described.owner, self.likelihood, num_data, self.feed, first)
        adapt, _ = adaptation_of(algorithm, num_chains)
        if warm_start is not None:
            begin = adapt(1).begin if described.adapted and adapt is not None else None  # then states have all fields
            states = with_adapted(states if begin is None else begin(states), described.adapted, warm_start)
            states = states if split is None else split.placed(states, CHAIN_AXIS)
        return self._adapting(states) if adapt is not None and self.num_warmup else (states, ())

    def _adaptation(self, args: PyTree) -> Adaptation | None:
        adapt, _ = adaptation_of(bound(self.algorithm, args), self.num_chains)
        cycle = () if self.feed is None else (self.feed.cycle,)
        return adapt(self.num_warmup, *cycle) if adapt is not None and self.num_warmup else None

    def _adapting(self, states: Any) -> tuple[Any, Any]:
        split = self.split

        def begun(args: PyTree, states: Any) -> tuple[Any, Any]:
            adaptation = self._adaptation(args)
            assert adaptation is not None
            of_all = (lambda f: f) if self.is_joint else jax.vmap
            if adaptation.begin is not None:
                states = of_all(adaptation.begin)(states)
            adapted = of_all(adaptation.init)(states)
            if split is None:
                return states, adapted
            return split.pinned(states, CHAIN_AXIS), split.pinned(adapted, *(() if self.is_joint else (CHAIN_AXIS,)))

        args = (self.data_args, states)
        return compiled(begun, *args, key=self.key("begin"), num_passes=1)(*args)

    def shapes(self, states: Any) -> dict[str, dict[str, tuple]]:
        """Return shapes and types of the records of an iteration, by group and name."""

        def find() -> dict[str, dict[str, tuple]]:
            data = () if self.feed is None else self.feed.load(0, 0)
            step, keep = self.steps(self.data_args), recorded_with(self.keep, self.data_args)
            return record_shapes(step, keep, states, self.feed, self.chain_keys, data)

        if not self.data_args:
            return find()
        kinds = jax.tree.map(lambda x: (x.shape, str(x.dtype)), (states.position, self.data_args))
        return reused(self.key(repr(kinds)), find)

    def program(self, run: SamplingRun, buffer_length: int) -> tuple[Callable[..., Any], Array, Callable]:
        """Place the state of the run on its devices and compile its chunk of iterations.

        Returns:
            The program, the keys of the chains on their devices, and the function that loads the data of a chunk.
        """
        advance = build_advance(
            lambda args: (self.steps(args), self._adaptation(args), recorded_with(self.keep, args)),
            is_joint=self.is_joint,
            is_sequential=self.chain_method == "sequential",
            feed=self.feed,
            num_warmup=self.num_warmup,
            thinning=self.thinning,
            buffer_length=buffer_length,
            mesh=self.mesh,
            split=self.split,
        )
        chain_keys, args, mesh = self.chain_keys, self.data_args, self.mesh
        if self.split is None:
            put_adaptation = put_everywhere if self.is_joint else put_chains
            run.carry = (put_chains(run.carry[0], mesh), put_adaptation(run.carry[1], mesh))
            chain_keys, args = put_chains(chain_keys, mesh), put_everywhere(args, mesh)
        started = time.perf_counter()
        load = loader_of(self.feed, mesh)
        shaped = (*run.carry, chain_keys, load(0, 0), np.int32(0), np.int32(0))
        key = self.key(buffer_length)
        num_passes = run.num_iterations if key is None else None  # other calls may take a program with a key
        program = compiled(advance, args, *shaped, donate_argnums=(1, 2), key=key, num_passes=num_passes)
        run.compile_seconds = time.perf_counter() - started
        return functools.partial(program, args), chain_keys, load
