"""What a call of :func:`geodax.vi.fit` computes: its carry, its programs, and its result."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from geodax import _checks
from geodax._types import Array, PyTree
from geodax._wording import argument
from geodax.posterior import Posterior
from geodax.run import hosts, sharding
from geodax.run.driver import Run
from geodax.run.failures import from_the_start, is_defined, of_large_numbers, suspected
from geodax.run.feeding import Feed, loader_of
from geodax.run.fit_chunks import Carry, History, Keys, StepChunks, build, first_carry, history_of
from geodax.run.fit_identity import start_facts
from geodax.run.likelihoods import mean_of_batch, warn_if_examples_mix
from geodax.run.programs import compiled
from geodax.run.split import Split
from geodax.vi.elbo import VariationalAlgorithm, elbo
from geodax.vi.modules import draw

_START = np.int32(0)


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """The parts of a fit that do not change while it runs.

    Attributes:
        network: The network at the start.
        held_out: The validation data, or ().
        split: The division of the network over devices, or None.
    """

    algorithm: VariationalAlgorithm
    network: PyTree
    log_likelihood: Callable[[Any, PyTree], Array]
    feed: Feed
    held_out: PyTree
    keys: Keys
    mesh: Mesh | None
    split: Split | None
    num_steps: int
    window: int

    @property
    def has_validation(self) -> bool:
        """Whether there are validation data."""
        return bool(jax.tree.leaves(self.held_out))

    @property
    def is_whole(self) -> bool:
        """Whether one device of one process has all of the fit."""
        return self.split is None and not hosts.is_several()

    @functools.cached_property
    def state(self) -> Any:
        """The first state of the algorithm."""
        return self.algorithm.init(self.network)

    @functools.cached_property
    def load(self) -> Callable[[int, int], PyTree]:
        """From the first step of a chunk and the one after its last to its data."""
        return loader_of(self.feed, self.mesh)

    @functools.cached_property
    def _inputs(self) -> tuple[Keys, PyTree]:
        return sharding.put_everywhere(self.keys, self.mesh), sharding.put_everywhere(self.held_out, self.mesh)

    @functools.cached_property
    def _units(self) -> tuple[Callable[..., Carry], Callable[..., Carry]]:
        """The functions that advance the fit and close a window, each over the devices of the mesh."""
        mesh, feed, split = self.mesh, self.feed, self.split
        sizes = {} if mesh is None else mesh.shape
        axes = tuple(name for name in (sharding.CHAIN_AXIS, sharding.DATA_AXIS) if sizes.get(name, 1) > 1)
        units = build(self.algorithm, self.log_likelihood, feed.draw, feed.num_data, self.has_validation, axes, split)
        places = feed.placement(sharding.data_axis(mesh)), PartitionSpec()
        advance, close = (sharding.everywhere_alike(f, mesh, p, split) for f, p in zip(units, places, strict=True))
        return advance, close

    def first_carry(self, network: PyTree, state: Any) -> Carry:
        """The carry of a fit that begins with a network."""
        return first_carry(network, state, -(-self.num_steps // self.window), self.has_validation)

    def placed(self, carry: Carry) -> Carry:
        """The carry on the devices of the fit."""
        return sharding.put_everywhere(carry, self.mesh) if self.split is None else self.split.placed(carry)

    def program(self, carry: Carry, first: PyTree) -> Callable[..., Carry]:
        """Compile the steps, for data such as those of the first one."""
        shaped = carry, self._inputs[0], first, _START, _START
        return compiled(self._units[0], *shaped, donate_argnums=(0,))

    def beginning(self, program: Callable[..., Carry], first: PyTree, log_prior: Any) -> dict[str, Any]:
        """Facts about the first step, for checkpoints."""

        def first_step(start: PyTree) -> tuple[Any, Carry]:
            state = self.algorithm.init(start)
            carry = self.placed(self.first_carry(start, state))
            return state, program(carry, self._inputs[0], first, _START, np.int32(1))

        return start_facts(self.network, self.feed.examples, self.algorithm.network, first_step, log_prior)

    def chunks(
        self, run: Run, program: Callable[..., Carry], patience: int | None, fit_at: Callable[[Carry, int, bool], Any]
    ) -> StepChunks:
        """The chunks of a run, whose steps are compiled."""
        keys, held_out = self._inputs
        close = compiled(self._units[1], run.carry, keys, held_out, _START, _START, donate_argnums=(0,))
        of_data = self.load, self.feed.longest, program, close, keys, held_out
        return StepChunks(run, *of_data, self.window, patience, fit_at, self.cause)

    def result(self, carry: Carry, iteration: int) -> tuple[Any, History]:
        """The network of a carry, with validation data that of the best window, and the history."""
        chosen = carry.state if not self.has_validation or np.isneginf(carry.best_bound) else carry.best
        if self.mesh is not None and self.split is None:  # to the default device
            chosen = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), chosen)
        return self.algorithm.network(chosen), history_of(carry, iteration, self.window)

    def cause(self, step: int) -> str:
        """Sentences about why a step failed."""
        number, feed = jnp.asarray(step, jnp.int32), self.feed
        batch = feed.draw(loader_of(feed, None)(step, step + 1), self.keys.batches, number, number, None)
        examples = feed.examples if feed.longest is None else batch
        parts, rest = eqx.partition(self._drawn_from(), eqx.is_inexact_array)

        def bound(parts: PyTree, batch: PyTree) -> Array:
            network = eqx.combine(parts, rest)
            return elbo(self.keys.steps, network, self.log_likelihood, batch, num_data=feed.num_data).elbo

        if self.is_whole and not is_defined(bound, parts, batch):
            return from_the_start("bound", ", with the batch of that step", examples)
        return f"{suspected(examples)}{_large_rate()}{of_large_numbers(examples)}"

    def warn_if_examples_mix(self) -> None:
        """Warn if the likelihood of an example depends on the others of its batch."""
        parts, rest = eqx.partition(self._drawn_from(), eqx.is_inexact_array)

        def of_draw(parts: PyTree, batch: PyTree) -> Array:
            return self.log_likelihood(draw(eqx.combine(parts, rest), jax.random.key(0)), batch)

        checked = Posterior(log_prior=lambda _: 0.0, log_likelihood=of_draw, num_data=self.feed.num_data)
        warn_if_examples_mix("vi.fit", checked.likelihoods, self.feed.num_data, self.feed, parts)

    def warn_if_diverged(self, last: float) -> None:
        """Warn if the log likelihood of an example at the end is far below that at the start."""
        first = mean_of_batch(self.log_likelihood, self.feed, draw(self._drawn_from(), jax.random.key(0)))
        if last < first - 10.0 * abs(first):  # a draw of the start alone is noisy
            _checks.warn(
                f"vi.fit: the fit diverged: the mean log likelihood of an example is {last:.3g} at the end, and was "
                f"{first:.3g} at the start. {_large_rate()}"
            )

    def _drawn_from(self) -> PyTree:
        """The network of the first state, whose draws are those of the fit at its start."""
        return self.algorithm.network(self.state)


def _large_rate() -> str:
    return f"The usual cause is a {argument('learning rate')} that is too large (try a third of it)."
