"""Compiled unit of a run: a chunk of iterations of all chains, with its draws in a buffer.

Keys are folded from (chain, iteration), so that draws do not depend on where a chunk begins or how long it is.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from geodax import _checks, _tree
from geodax._precision import in_full_precision
from geodax._types import Adaptation, Array, Description, Position, PyTree
from geodax.run.feeding import Feed
from geodax.run.records import records
from geodax.run.sharding import CHAIN_AXIS, all_chains, data_axis, over_chains, own_chains
from geodax.run.split import Split
from geodax.sgmcmc.gradients import looks_finite

MANY_CHAINS = 16
"""From this number on, chains are tuned together."""


@runtime_checkable
class Sampler(Protocol):
    """An object with ``init(position)`` and ``step(rng_key, state) -> (state, info)``, as in BlackJAX."""

    @property
    def init(self) -> Callable[..., Any]:
        """Function from position to state."""
        ...

    @property
    def step(self) -> Callable[..., tuple[Any, Any]]:
        """Function from PRNG key and state to state and info."""
        ...


def description_of(algorithm: Sampler) -> Description:
    """What the sampler says of itself; those of other libraries say nothing."""
    found = getattr(algorithm, "description", None)
    return found if isinstance(found, Description) else Description()


def bound(algorithm: Sampler, args: tuple) -> Sampler:
    """The sampler with arguments of its log density."""
    bind = description_of(algorithm).bind
    return bind(*args) if args and bind is not None else algorithm


def chain_method_of(chosen: Any, algorithm: Sampler, num_chains: int) -> str:
    """The method asked for, or the default: one after the other for few chains of a ragged sampler on CPUs."""
    if chosen == "parallel":
        raise ValueError(
            'sample: chain_method="parallel" of NumPyro, one chain on each device, is devices="all" here; chain_method '
            'says how those of one device are run, "vectorized" or "sequential".'
        )
    if chosen is not None:
        _checks.chosen("sample", "chain_method", chosen, ("vectorized", "sequential"))
        return chosen
    is_ragged = description_of(algorithm).is_ragged and num_chains < MANY_CHAINS
    return "sequential" if is_ragged and jax.default_backend() == "cpu" else "vectorized"


class Totals(NamedTuple):
    """Sums over a chunk, one per chain."""

    acceptance: Any
    divergences: Any
    steps: Any  # integration steps
    failed_at: Any  # first non-finite iteration, or NEVER


NEVER = 2**31 - 1


def steps_of(algorithm: Sampler) -> Callable[[tuple], Callable[..., tuple[Any, Any]]]:
    """Function from arguments of the log density to the sampler's step.

    Without arguments the step is traced once for each kind of state. A later run needs another function and traces
    anew, since the data that the density holds may have changed.
    """
    # also where only shapes are asked for: another precision would be another trace
    once = in_full_precision(jax.jit(lambda *arguments: algorithm.step(*arguments)))
    return lambda args: bound(algorithm, args).step if args else once


def build_advance(
    parts_of: Callable[
        [PyTree], tuple[Callable[..., tuple[Any, Any]], Adaptation | None, Callable[[Position], PyTree]]
    ],
    *,
    is_joint: bool = False,
    is_sequential: bool = False,
    feed: Feed | None = None,
    num_warmup: int,
    thinning: int,
    buffer_length: int,
    mesh: Mesh | None,
    split: Split | None = None,
) -> Callable:
    """Build the function that advances a run.

    It maps ``(args, states, adaptation_states, chain_keys, data, start, stop)`` to ``(states, adaptation_states,
    totals, records)`` by running the iterations ``start, ..., stop - 1`` of the step, the adaptation and the recorded
    function that ``parts_of(args)`` returns. The records have the axes (draw, chain, ...); complete draws of the chunk
    come first. With ``is_joint`` there is one adaptation for all chains on all devices. With ``is_sequential`` an
    iteration runs the chains of a device one after the other. With a feed, ``data`` is the result of its
    ``load(start, stop)``; each step, and each update of the adaptation, gets a batch as its last argument. Compile the
    function with its second and third argument donated. With ``split`` everything keeps the shardings that it gives.
    """
    axis = data_axis(mesh)
    placement = None if feed is None else feed.placement(axis)

    def advance(args, states, adaptation_states, chain_keys, data, start, stop):
        step, adaptation, keep = parts_of(args)
        num_chains = chain_keys.shape[0]
        of_each = functools.partial(_of_each_chain, num_chains, is_sequential)
        first_draw = jnp.maximum(start - num_warmup, 0) // thinning

        def iterate(states, iteration):
            keys = jax.vmap(jax.random.fold_in, (0, None))(chain_keys, iteration)
            drawn, axes = batch(iteration)
            return of_each(step, (0, 0, *axes))(keys, states, *drawn)

        def batch(iteration):
            if feed is None:
                return (), ()
            drawn = feed.draw(data, chain_keys, iteration, start, axis)
            return (drawn if split is None else split.part(drawn),), (feed.chain_axis,)

        def adapt(operand, iteration):
            assert adaptation is not None
            states, infos, adaptation_states = operand
            # iterations use the indices 0, 1, ...; adaptation uses indices from the other end
            keys = jax.vmap(jax.random.fold_in, (0, None))(
                chain_keys, jnp.uint32(0xFFFFFFFF) - iteration.astype(jnp.uint32)
            )
            if is_joint:
                keys, *everywhere = all_chains((keys, states, infos), mesh)
                adaptation_states, states = adaptation.update(keys, adaptation_states, *everywhere, iteration)
                return own_chains(states, num_chains, mesh), adaptation_states
            drawn, axes = batch(iteration)
            adaptation_states, states = of_each(adaptation.update, (0, 0, 0, 0, None, *axes))(
                keys, adaptation_states, states, infos, iteration, *drawn
            )
            return states, adaptation_states

        num_idle = 0 if adaptation is None else adaptation.num_idle

        def iterate_or_wait(states, iteration):
            if not num_idle:
                return iterate(states, iteration)
            infos = jax.tree.map(jnp.zeros_like, jax.eval_shape(iterate, states, iteration)[1])
            return jax.lax.cond(iteration < num_idle, lambda s: (s, infos), lambda s: iterate(s, iteration), states)

        def body(iteration, carry):
            states, adaptation_states, totals, buffer = carry
            states, infos = iterate_or_wait(states, iteration)
            if adaptation is not None:
                states, adaptation_states = jax.lax.cond(
                    iteration < num_warmup,
                    lambda operand: adapt(operand, iteration),
                    lambda operand: (operand[0], operand[2]),
                    (states, infos, adaptation_states),
                )
            if num_idle:
                is_finite = infos.is_finite | ((iteration < num_idle) & jax.vmap(looks_finite)(states.position))
                infos = infos._replace(is_finite=is_finite)
            slot = jnp.maximum(iteration - num_warmup, 0) // thinning - first_draw
            row = jax.vmap(lambda s, i: records(keep, s, i))(states, infos)
            buffer = jax.tree.map(lambda b, r: b.at[slot].set(r, mode="drop"), buffer, row)
            if split is not None:
                states = split.pinned_within(states, 1)
                adaptation_states = split.pinned_within(adaptation_states, 0 if is_joint else 1)
                buffer = split.pinned_within(buffer, 2)
            return states, adaptation_states, _add_totals(totals, infos, iteration), buffer

        shapes = jax.eval_shape(lambda s: jax.vmap(lambda s, i: records(keep, s, i))(*iterate(s, start)), states)
        buffer = jax.tree.map(lambda s: jnp.zeros((buffer_length, *s.shape), s.dtype), shapes)
        none = jnp.zeros(num_chains, jnp.int32)
        totals = Totals(jnp.zeros(num_chains), none, none, none + NEVER)
        return jax.lax.fori_loop(start, stop, body, (states, adaptation_states, totals, buffer))

    over_mesh = over_chains(advance, mesh, is_joint, placement)
    if split is None:
        return over_mesh

    def pinned(*args):
        states, adaptation_states, totals, buffer = over_mesh(*args)
        chain = () if is_joint else (CHAIN_AXIS,)
        return (
            split.pinned(states, CHAIN_AXIS),
            split.pinned(adaptation_states, *chain),
            split.pinned(totals, CHAIN_AXIS),
            split.pinned(buffer, None, CHAIN_AXIS),
        )

    return pinned


def _of_each_chain(
    num_chains: int, is_sequential: bool, function: Callable, in_axes: tuple[int | None, ...]
) -> Callable:
    """Apply to each chain by ``vmap`` or sequentially; a single chain needs neither.

    Under ``vmap`` both sides of each condition are computed, and loops keep carrying values that no longer change.
    """
    if num_chains > 1 and not is_sequential:
        return jax.vmap(function, in_axes)

    def of_each(*args):
        def of_one(ones):
            found = iter(ones)
            return function(*(arg if axis is None else next(found) for arg, axis in zip(args, in_axes, strict=True)))

        stacked = [arg for arg, axis in zip(args, in_axes, strict=True) if axis is not None]
        if num_chains > 1:
            return jax.lax.map(of_one, stacked)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], of_one(jax.tree.map(lambda x: x[0], stacked)))

    return of_each


def _add_totals(totals: Totals, infos: Any, iteration: Array) -> Totals:
    found = {name: values for name, values in _tree.named_leaves(infos, "info") if values.ndim == 1}  # as recorded
    is_finite, acceptance = found.get("is_finite"), found.get("acceptance_rate")
    divergent, steps = found.get("is_divergent"), found.get("num_integration_steps")
    return Totals(
        totals.acceptance if acceptance is None else totals.acceptance + acceptance.astype(totals.acceptance.dtype),
        totals.divergences if divergent is None else totals.divergences + divergent.astype(jnp.int32),
        totals.steps if steps is None else totals.steps + steps.astype(jnp.int32),
        totals.failed_at
        if is_finite is None
        else jnp.minimum(totals.failed_at, jnp.where(is_finite, NEVER, iteration).astype(jnp.int32)),
    )
