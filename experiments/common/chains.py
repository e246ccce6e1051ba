"""Long chains of a stochastic-gradient sampler that survive being killed, with running means over their draws.

A network of half a million parameters has gigabytes of draws. What the tables need of them are means (of predicted
probabilities, of curvatures), so that these are summed while the chains run, and the draws are not kept. Several seeds
run side by side under ``vmap``, each with keys folded from (seed, iteration): what is computed does not depend on where a
run was interrupted.
"""

import dataclasses
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax.data import Batches

CHECKPOINT_SECONDS = 60.0
_BATCHES, _VERSIONS = 0xFFFFFFFF, 0xFFFFFFFD  # no iteration has these numbers


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a chain does.

    Attributes:
        algorithm: The sampler, ``init`` and ``step``.
        batches: Its data; iteration i takes batch i.
        num_steps: Iterations.
        chunk: Iterations between two looks from outside; divides all other numbers of iterations.
        observe: From a position to arrays that are summed over draws; None where no draws are taken.
        first_draw: Iterations before the first draw.
        every: Iterations between draws.
        look: From the positions and the sums of all seeds (leading axis) and the number of draws to numbers a seed, kept
            as a curve.
        look_every: Iterations between looks.
        augment: From a random key and a batch to another version of it; None for batches as they are.
        then: The sampler from iteration ``then_at`` on, with states of the same structure; None for the same one.
        then_at: Where burn-in ends for it.
        between: From a chain's state to that with which ``then`` begins.
    """

    algorithm: Any
    batches: Batches
    num_steps: int
    chunk: int
    observe: Callable[[Any], Any] | None = None
    first_draw: int = 0
    every: int = 1
    look: Callable[[Any, Any, int], dict[str, Any]] | None = None
    look_every: int = 0
    augment: Callable[[jax.Array, Any], Any] | None = None
    then: Any = None
    then_at: int = 0
    between: Callable[[Any], Any] | None = None

    def __post_init__(self):
        counts = {"num_steps": self.num_steps, "look_every": self.look_every, "then_at": self.then_at}
        if self.observe is not None:
            counts |= {"first_draw": self.first_draw, "every": self.every}
        wrong = {name: count for name, count in counts.items() if count % self.chunk}
        if wrong:
            raise ValueError(f"Plan: a chunk of {self.chunk} iterations must divide {wrong}.")


@dataclasses.dataclass
class Chains:
    """What came of it; arrays have a leading axis over seeds.

    Attributes:
        positions: The last ones.
        sums: Sums over draws, None without draws.
        num_draws: Draws in them.
        curve: For each look the iteration and what was seen.
        seconds_a_chunk: Wall time of each chunk of iterations, draws and looks not counted.
        cpu_seconds_a_chunk: Time of the processor.
        failed_at: For each seed the end of the first chunk in which a number was not finite, or None.
    """

    positions: Any
    sums: Any
    num_draws: int
    curve: list[dict[str, Any]]
    seconds_a_chunk: list[float]
    cpu_seconds_a_chunk: list[float]
    failed_at: list[int | None]

    def seconds(self, num_steps: int) -> dict[str, float]:
        """Seconds for so many iterations: the median by the clock, and the least of the processor's."""
        chunks = num_steps / self._chunk
        return {
            "seconds": float(np.median(self.seconds_a_chunk[1:] or [np.nan]) * chunks),
            "cpu_seconds": float(np.min(self.cpu_seconds_a_chunk[1:] or [np.nan]) * chunks),
        }

    _chunk: int = 1


def run_chains(
    plan: Plan,
    positions: Any,
    seeds: tuple[int, ...],
    checkpoint: Path | None,
    *,
    report: Callable[[str], None] = lambda text: None,
) -> Chains:
    """Run chains to their end, from a checkpoint if there is one.

    Args:
        plan: What to do.
        positions: Starts, with a leading axis over the seeds.
        seeds: One chain each.
        checkpoint: A file that is written every minute and at the end; None for none.
        report: Receives a line at each checkpoint.

    Returns:
        The chains. Those that are no longer finite go on to the end with the others and say so.
    """
    over_seeds = _together(len(seeds))
    states = jax.jit(over_seeds(plan.algorithm.init))(positions)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    sums = None
    if plan.observe is not None:
        shapes = jax.eval_shape(over_seeds(plan.observe), states.position)
        sums = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    found = Chains(positions, sums, 0, [], [], [], [None] * len(seeds))
    found._chunk = plan.chunk
    start = 0
    if checkpoint is not None and checkpoint.exists():
        (states, sums), facts = _read(checkpoint, (states, sums))
        start = facts.pop("iteration")
        for name, value in facts.items():
            setattr(found, name, value)

    advance = _advance(plan, plan.algorithm, over_seeds)
    advance_then = advance if plan.then is None else _advance(plan, plan.then, over_seeds)
    add = None
    if plan.observe is not None:
        observe = plan.observe
        add = jax.jit(
            lambda sums, positions: jax.tree.map(jnp.add, sums, over_seeds(observe)(positions)), donate_argnums=0
        )
    saved_at = time.monotonic()
    for begin in range(start, plan.num_steps, plan.chunk):
        if plan.between is not None and begin == plan.then_at:
            states = jax.jit(over_seeds(plan.between))(states)
        clock, processor = time.perf_counter(), time.process_time()
        states, is_finite = (advance if begin < plan.then_at else advance_then)(
            states, keys, plan.batches.data, jnp.int32(begin)
        )
        is_finite = np.asarray(is_finite)
        found.seconds_a_chunk.append(round(time.perf_counter() - clock, 5))
        found.cpu_seconds_a_chunk.append(round(time.process_time() - processor, 5))
        end = begin + plan.chunk
        found.failed_at = [
            end if at is None and not fine else at for at, fine in zip(found.failed_at, is_finite, strict=True)
        ]
        if add is not None and end >= plan.first_draw + plan.every and (end - plan.first_draw) % plan.every == 0:
            sums = add(sums, states.position)
            found.num_draws += 1
        if plan.look is not None and end % plan.look_every == 0:
            found.curve.append({"iteration": end} | plan.look(states.position, sums, found.num_draws))
        is_hopeless = all(at is not None for at in found.failed_at)
        if time.monotonic() - saved_at > CHECKPOINT_SECONDS or end == plan.num_steps or is_hopeless:
            if checkpoint is not None:
                _write(checkpoint, (states, sums), _facts(found) | {"iteration": end})
            report(f"iteration {end} of {plan.num_steps}" + (f", {found.curve[-1]}" if found.curve else ""))
            saved_at = time.monotonic()
        if is_hopeless:
            break
    found.positions, found.sums = states.position, sums
    return found


def _advance(plan: Plan, algorithm: Any, over_seeds: Callable) -> Callable:
    """A compiled chunk of iterations: states, keys, data and the first iteration to states and whether all is finite."""

    def advance(state, key, data, start):
        def step(offset, carry):
            state, is_finite = carry
            i = start + offset
            batch = Batches(data, plan.batches.batch_size, plan.batches.order).draw(key_batches, i)
            if plan.augment is not None:
                batch = plan.augment(jax.random.fold_in(key_versions, i), batch)
            state, info = algorithm.step(jax.random.fold_in(key, i), state, batch)
            return state, is_finite & info.is_finite

        key_batches = jax.random.fold_in(key, _BATCHES)
        key_versions = jax.random.fold_in(key, _VERSIONS)

        # a GPU runs loops of known length without asking after each pass
        return jax.lax.fori_loop(0, plan.chunk, step, (state, jnp.asarray(True)))

    return jax.jit(over_seeds(advance, (0, 0, None, None)), donate_argnums=0)


def _together(count: int) -> Callable:
    """``vmap`` over seeds; for one seed the function itself, which compiles to plain products of matrices."""

    def over(function: Callable, axes: Any = 0) -> Callable:
        if count > 1:
            return jax.vmap(function, axes)

        def single(*arguments: Any) -> Any:
            chosen = axes if isinstance(axes, tuple) else (axes,) * len(arguments)
            first = [
                a if axis is None else jax.tree.map(lambda x: x[0], a)
                for a, axis in zip(arguments, chosen, strict=True)
            ]
            return jax.tree.map(lambda x: x[None], function(*first))

        return single

    return over


def _facts(found: Chains) -> dict[str, Any]:
    names = ("num_draws", "curve", "seconds_a_chunk", "cpu_seconds_a_chunk", "failed_at")
    return {name: getattr(found, name) for name in names}


def _write(path: Path, tree: Any, facts: dict[str, Any]) -> None:
    """Replace a checkpoint so that a process killed at any moment leaves the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    with open(temporary, "wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _read(path: Path, like: Any) -> tuple[Any, dict[str, Any]]:
    leaves, structure = jax.tree.flatten(like)
    with np.load(path, allow_pickle=False) as stored:
        facts = json.loads(stored["facts"].tobytes().decode())
        arrays = [stored[f"leaf{i}"] for i in range(len(leaves))]
    for array, leaf in zip(arrays, leaves, strict=True):
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise ValueError(f"{path} is a checkpoint of another chain: {array.shape} for {leaf.shape}; remove it.")
    return structure.unflatten([jnp.asarray(array) for array in arrays]), facts
