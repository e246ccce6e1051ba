"""Facts that a checkpoint must share with the run that resumes from it, and their comparison.

The facts are written as JSON with the state of a run. Densities, sampler settings, recorded values, first steps and
batches missing from a checkpoint of an earlier version are skipped.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from geodax import _tree
from geodax._types import Array, Position, PRNGKey, PyTree
from geodax.data.parts import mean_over_parts, own_examples, whole
from geodax.run.advance import Sampler, bound, description_of
from geodax.run.errors import CheckpointError, OtherRunError
from geodax.run.feeding import Feed
from geodax.run.plan import Plan
from geodax.run.programs import compiled
from geodax.run.records import recorded_with
from geodax.run.sharding import CHAIN_AXIS, fetch, over_devices, put_everywhere
from geodax.run.split import Split
from geodax.sgmcmc.precision import LeafDtypes

DISTANCE = 0.1
_NUM_CHAINS, _NUM_ENTRIES = 4, 16  # whose recorded values are compared, and of each variable
ITERATIONS = (0, 1, 10, 100, 1000, 10_000, 100_000)


def identity_of(rng_key: PRNGKey, plan: Plan, states: Any, shapes: Mapping[str, Mapping[str, tuple]]) -> dict[str, Any]:
    """Return JSON-compatible facts of a run by readable name, in the order of comparison.

    Of positions that are split over devices, what is recorded is compared by names and shapes only.
    """
    algorithm, args, feed, split, chain_keys = plan.algorithm, plan.data_args, plan.feed, plan.split, plan.chain_keys
    data = () if feed is None else feed.load(0, 0)
    recorded = {} if split is not None else _recorded(algorithm, plan.keep, args, states.position)
    is_split = split is not None and bool(description_of(algorithm).arrays)
    algorithm = algorithm if is_split else bound(algorithm, args)
    description, mesh = description_of(algorithm), None if split is None else split.mesh
    positions = getattr(states, "dtypes", LeafDtypes()).cast(states.position)
    facts: dict[str, Any] = {
        "random key": _digest(np.asarray(jax.random.key_data(rng_key)).tobytes()),
        "num_warmup": plan.num_warmup,
        "num_chains": plan.num_chains,
        "thinning": plan.thinning,
        "recorded": {f"{g}.{n}": f"{s} {d}" for g, v in shapes.items() for n, (s, d) in v.items()},
        "batches": {} if feed is None else dict(feed.identity),
        "data": None if feed is None else feed.digest(),
        "log density at the starting points": _numbers(fetch(getattr(states, "logdensity", ()), mesh)),
        "step size at the start": _numbers(fetch(getattr(states, "step_size", ()), mesh)),
        "settings": {name: plain_setting(value) for name, value in description.settings},
    }
    facts["densities"] = (
        _densities(algorithm, positions, feed, data, chain_keys)
        if split is None
        else _densities_in_place(algorithm, args if is_split else (), positions, feed, data, chain_keys, split)
    )
    facts["recorded variables"] = recorded
    if split is None and not description.settings:  # a sampler that says nothing of itself
        facts["first step"] = _first_step(algorithm, states, feed, data, chain_keys)
    return facts


def first_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first fact in which a checkpoint and a run differ: its name and both values; None if there is none."""
    for name, value in here.items():
        found = there.get(name)
        if name in ("densities", "first step"):
            for density, expected in value.items():
                if found and density in found and not agree(found[density], expected, 1e-2):
                    return density, found[density], expected
        elif name in ("recorded", "batches"):
            parts = value if found is None else found
            for part in [*value, *parts]:
                if parts.get(part, "missing") != value.get(part, "missing"):
                    return f"{part} ({name})", parts.get(part, "missing"), value.get(part, "missing")
        elif name == "settings":
            other = other_setting(found or {}, {"sampler": None} | value, "iterations")
            if other is not None:
                return other
        elif name == "recorded variables":
            for variable, expected in value.items():
                if found and variable in found:
                    largest = max((abs(number) for number in expected if np.isfinite(number)), default=0.0)
                    close = np.isclose(found[variable], expected, rtol=0.0, atol=1e-3 * largest, equal_nan=True)
                    if not close.all():
                        first = int(np.argmin(close))
                        where = f"recorded variable {variable!r} (see keep) near the starting points"
                        return where, found[variable][first], expected[first]
        elif not agree(found, value):
            return name, found, value
    return None


def other_setting(there: Mapping[str, Any], here: Mapping[str, Any], unit: str) -> tuple[str, Any, Any] | None:
    """The first setting of both that differs, with both values."""
    for name, value in here.items():
        if name in there and not is_same_setting(there[name], value):
            has_schedule = isinstance(there[name], list) or isinstance(value, list)
            when = f" at the {unit} {', '.join(map(str, ITERATIONS))}" if has_schedule else ""
            return name + when, there[name], value
    return None


def _densities(
    algorithm: Sampler, positions: Position, feed: Feed | None, data: PyTree, chain_keys: Array
) -> dict[str, list[float]]:
    """Values of the target with the first batch, at the initial positions and near them.

    A sampler whose states hold the log density gives it for states initialised near the initial positions.

    An initial position is often in the middle of the prior, where priors of all widths look alike. In half precision,
    rounding differs too much between machines for a comparison.
    """
    densities, manifold = description_of(algorithm).densities, getattr(algorithm, "manifold", None)
    inputs = (positions, chain_keys, data)
    if manifold is None or not _is_comparable(inputs):
        return {}
    beside = functools.partial(_beside, manifold)
    if not densities:

        def near(positions: Position) -> Any:
            return getattr(jax.vmap(lambda position: algorithm.init(beside(position)))(positions), "logdensity", ())

        values = compiled(near, positions, num_passes=1)(positions)
        return {"log density near the starting points": _numbers(np.nan_to_num(np.asarray(values)))}

    def of_all(positions: Position, chain_keys: Array, data: PyTree) -> Array:
        def of_one(chain: tuple[Position, PRNGKey]) -> Array:
            position, key = chain
            batch = None if feed is None else feed.of_chain(data, key)
            places = jax.tree.map(lambda *leaves: jnp.stack(leaves), position, beside(position))
            return jax.lax.map(lambda place: jnp.stack([f(place, batch).astype(float) for _, f in densities]), places)

        # sequentially: needs the memory of one chain, and rounds the same for any number of chains
        return jax.lax.map(of_one, (positions, chain_keys))

    values = np.asarray(_computed(of_all, *inputs)).astype(_precision_of(inputs))
    return {
        f"{name} {where} the starting points": _numbers(values[:, place, number])
        for number, (name, _) in enumerate(densities)
        for place, where in enumerate(("at", "near"))
    }


def _is_comparable(inputs: PyTree) -> bool:
    leaves = jax.tree.leaves(inputs)
    return all(getattr(leaf, "is_fully_addressable", True) and not _tree.is_half(leaf) for leaf in leaves)


def _computed(function: Callable[..., PyTree], *inputs: PyTree) -> Any:
    inputs = jax.device_put(inputs, jnp.zeros(()).sharding)
    return compiled(function, *inputs, num_passes=1)(*inputs)


def _precision_of(inputs: PyTree) -> Any:
    """A type as precise as the inputs, whatever they are."""
    is_single = any(leaf.dtype in (jnp.float32, jnp.complex64) for leaf in jax.tree.leaves(inputs))
    return np.float32 if is_single else np.float64


def _beside(manifold: Any, position: Position) -> Position:
    momentum = manifold.momentum(position, jax.tree.map(direction, position))
    return manifold.flow(position, momentum, jnp.asarray(DISTANCE, _tree.real_dtype(position)))[0]


def _recorded(
    algorithm: Sampler, keep: Callable[..., PyTree], args: tuple, positions: Position
) -> dict[str, list[float]]:
    """Mean, root mean square and some entries of what is recorded near the first initial positions, by name."""
    manifold = getattr(algorithm, "manifold", None)
    if not _is_comparable((positions, args)):
        return {}

    def of_all(positions: Position, args: tuple) -> dict[str, Array]:
        def of_one(position: Position) -> dict[str, Array]:
            kept = recorded_with(keep, args)(position if manifold is None else _beside(manifold, position))
            named = _tree.named_leaves(jax.tree.map(jnp.asarray, kept))
            return {name: numbers_of(leaf) for name, leaf in named if leaf.size and not _tree.is_half(leaf)}

        return jax.lax.map(of_one, positions)  # sequentially: needs the memory of one chain

    def numbers_of(leaf: Array) -> Array:
        flat = jnp.ravel(jnp.stack([leaf.real, leaf.imag]) if jnp.iscomplexobj(leaf) else leaf)
        flat = flat if jnp.issubdtype(flat.dtype, jnp.floating) else flat.astype(float)
        few = flat[np.unique(np.linspace(0, flat.size - 1, _NUM_ENTRIES).astype(int))]
        return jnp.concatenate([jnp.stack([jnp.mean(flat), jnp.sqrt(jnp.mean(flat**2))]), few])

    values = _computed(of_all, jax.tree.map(lambda leaf: leaf[:_NUM_CHAINS], positions), args)
    kind = _precision_of((positions, args))
    return {name: _numbers(np.asarray(numbers, kind)) for name, numbers in values.items()}


def _first_step(
    algorithm: Sampler, states: Any, feed: Feed | None, data: PyTree, chain_keys: Array
) -> dict[str, list[float]]:
    """Means and root mean squares of the positions and the info of some chains after their first step.

    Few digits are compared: a trajectory can multiply the differences in rounding of two machines.
    """
    if not _is_comparable((states, chain_keys, data)):
        return {}

    def of_all(states: Any, chain_keys: Array, data: PyTree) -> list[Array]:
        def of_one(chain: tuple[Any, PRNGKey]) -> list[Array]:
            state, key = chain
            batch = () if feed is None else (feed.of_chain(data, key),)
            state, info = algorithm.step(jax.random.fold_in(key, 0), state, *batch)
            found = map(jnp.asarray, jax.tree.leaves((state.position, info)))
            sizes = [
                jnp.abs(x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32))
                for x in found
                if x.size and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
            ]
            return [jnp.stack([jnp.mean(x), jnp.sqrt(jnp.mean(x**2))]).astype(jnp.float32) for x in sizes]

        return jax.lax.map(of_one, (states, chain_keys))

    found = _computed(of_all, *jax.tree.map(lambda leaf: leaf[:_NUM_CHAINS], (states, chain_keys)), data)
    return {"position or info after the first step": [number for leaf in found for number in _numbers(leaf)]}


def _densities_in_place(
    algorithm: Sampler,
    arrays: tuple,
    positions: Position,
    feed: Feed | None,
    data: PyTree,
    chain_keys: Array,
    split: Split,
) -> dict[str, list[float]]:
    densities = description_of(algorithm).densities
    if feed is None or not densities or any(map(_tree.is_half, jax.tree.leaves(positions))):
        return {}

    count = getattr(algorithm, "num_batches", 1)

    def of_chains(positions: Position, chain_keys: Array, data: PyTree, arrays: tuple) -> Array:
        drawn = feed.draw(data, chain_keys, jnp.int32(0), jnp.int32(0), None)

        def of_one(position: Position, batch: PyTree) -> Array:
            if count > 1:  # the densities take the first of several batches
                batch = jax.tree.map(lambda x: x[0], batch)

            def of_part(part: PyTree, *positions: PyTree) -> Array:
                there, *given = (whole(part, position) for position in positions)
                densities, examples = description_of(bound(algorithm, tuple(given))).densities, own_examples(part)
                if count > 1:
                    examples = jax.tree.map(lambda x: jnp.stack([x] * count), examples)
                return jnp.stack([f(there, examples).astype(float) for _, f in densities])

            return mean_over_parts(of_part, batch, position, *arrays)

        return jax.vmap(of_one, (0, feed.chain_axis))(positions, split.part(drawn))

    chain, everywhere = PartitionSpec(CHAIN_AXIS), PartitionSpec()
    in_place = over_devices(of_chains, split.mesh, (chain, chain, everywhere, everywhere), chain)
    inputs = (positions, chain_keys, put_everywhere(data, split.mesh), arrays)
    values = np.asarray(fetch(compiled(in_place, *inputs, num_passes=1)(*inputs), split.mesh))
    values = values.astype(_precision_of(positions))
    return {f"{name} at the starting points": _numbers(values[:, number]) for number, (name, _) in enumerate(densities)}


def direction(leaf: Array) -> Array:
    """Deterministic numbers of size one; random ones may differ between versions of JAX."""
    return jnp.cos(jnp.arange(leaf.size, dtype=_tree.real_dtype(leaf))).astype(leaf.dtype).reshape(leaf.shape)


def plain_setting(value: Any) -> Any:
    """A sampler argument as strings and numbers; a schedule by some of its values."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if getattr(value, "shape", None) == () or isinstance(value, float):
        return float(value)
    if callable(value) and not isinstance(value, eqx.Module | type):
        schedule = jax.jit(lambda iteration: value(iteration))
        return [float(f"{float(schedule(jnp.int32(iteration))):.7g}") for iteration in ITERATIONS]
    return _text(value)


def _text(value: Any) -> str:
    """Class and constructor arguments of an object, the same in every process."""
    if value is None or isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, eqx.Module):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return f"{type(value).__qualname__}({', '.join(f'{name}={_text(part)}' for name, part in fields.items())})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {_text(part)}' for key, part in value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return f"array({value.dtype}, {value.shape}, {_digest(np.asarray(value).tobytes())})"
    return getattr(value, "__qualname__", type(value).__qualname__)


def is_same_setting(there: Any, here: Any) -> bool:
    """Equality up to the last digits, since another machine may round differently."""
    if any(value is None or isinstance(value, str | bool) for value in (there, here)):
        return type(there) is type(here) and there == here
    if np.shape(there) != np.shape(here):
        return False
    largest = np.max(np.abs(here), initial=0.0)
    return np.allclose(there, here, rtol=1e-5, atol=1e-6 * largest if np.ndim(here) else 0.0, equal_nan=True)


def agree(there: Any, here: Any, least: float = 1.0) -> bool:
    """Equality, for lists of numbers up to rounding differences: relative, absolute below ``least``."""
    if isinstance(here, list) and isinstance(there, list):
        # double-precision numbers that were converted from single precision are exactly equal
        is_single = all(float(np.float32(value)) == value for value in here)
        tolerance = 1e-3 if is_single else 1e-9
        close = {"rtol": tolerance, "atol": least * tolerance, "equal_nan": True}
        return len(here) == len(there) and np.allclose(there, here, **close)
    return there == here


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in np.ravel(np.asarray(values))]


def _digest(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()[:16]


def require_same_run(there: Mapping[str, Any], here: Mapping[str, Any], num_iterations: int, folder: Any) -> None:
    """Raise CheckpointError unless a checkpoint is of this run, and not beyond its end."""
    difference = first_difference(there, here)
    if difference is not None:
        name, found, expected = difference
        raise OtherRunError(
            f"The checkpoint in {folder} belongs to another run: its {name} is {found!r}, here it is "
            f"{expected!r}. Use another folder, or the arguments it was written with."
        )
    if there["step"] > num_iterations:
        raise CheckpointError(
            f"The checkpoint in {folder} is at iteration {there['step']}, beyond the {num_iterations} asked "
            "for here; ask for at least as many samples as before."
        )
