"""Initial positions of the chains, checked before compilation."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from geodax import _checks, _parameters, _tree
from geodax._types import Array, Position, PRNGKey, PyTree, SamplingAlgorithm
from geodax._wording import in_python
from geodax.geometry.manifolds import AbstractManifold, Euclidean
from geodax.geometry.product import named_parts
from geodax.run.advance import NEVER, Sampler, description_of
from geodax.run.errors import StartError
from geodax.run.programs import compiled
from geodax.run.sharding import CHAIN_AXIS, Devices, as_mesh, fetch, put_everywhere
from geodax.run.signals import interruptible
from geodax.run.split import Split, mesh_of, split_of

_FAR = 1e-3  # distance from the manifold that rounding cannot explain


def starting_keys(rng_key: PRNGKey, num_starts: int, num_chains: int) -> tuple[Array, Array]:
    """The keys of the initial positions, and those of the chains, from which the keys of the iterations are folded."""

    def starting_keys(rng_key: PRNGKey) -> tuple[Array, Array]:
        key_start, key_run = jax.random.split(rng_key)
        chain_keys = jax.vmap(jax.random.fold_in, (None, 0))(key_run, jnp.arange(num_chains))
        return jax.random.split(key_start, num_starts), chain_keys

    key = ("starting keys", num_starts, num_chains)
    return compiled(starting_keys, rng_key, key=key, num_passes=1)(rng_key)


class Chains(NamedTuple):
    """Initial positions of chains, from a function."""

    positions: list[Position]


def drawn_positions(rng_keys: Array, position: Position | Callable[[PRNGKey], Position]) -> Position | Chains:
    """Call a ``position`` that is a function with each of the keys; others stay as they are."""
    if not is_function(position):
        return _as_arrays(position)
    return Chains([_as_arrays(position(k)) for k in rng_keys])


@contextlib.contextmanager
def suggesting_stacked(start: Position | Chains, stacked: bool, num_chains: int) -> Iterator[None]:
    """Add to errors of the log density that the chains' axis may be meant, if all arrays have one of its length."""
    try:
        yield
    except Exception as error:
        leaves = [] if stacked or isinstance(start, Chains) else jax.tree.leaves(start)
        if num_chains > 1 and leaves and all(x.shape[:1] == (num_chains,) for x in leaves):
            error.add_note(
                f"sample: the first axis of each array of the position has the length {num_chains}, as many as chains. "
                "If it is one initial position for each chain, pass stacked=True."
            )
        raise


def placement(
    start: Position | Chains, stacked: bool, num_chains: int, devices: Devices, batch_size: int | None
) -> tuple[Mesh | None, Split | None]:
    """The mesh of a run, None for the default device, and how its positions are split over it, None for whole ones.

    ``start`` is the result of :func:`drawn_positions`. If ``devices`` is None, a split position brings its mesh.
    """
    like = start.positions[0] if isinstance(start, Chains) else start
    own = mesh_of("sample", like)
    is_split = own is not None and (devices is None or devices == own)
    mesh = as_mesh(
        "sample", num_chains, own if devices is None and own is not None else devices, batch_size, is_split=is_split
    )
    return mesh, split_of("sample", like, mesh, stacked and not isinstance(start, Chains))


def placed_args(algorithm: Sampler, args: tuple, split: Split | None) -> tuple:
    """What the sampler's ``bind`` takes, in its place: its own arrays, or arguments of the log density."""
    arrays = description_of(algorithm).arrays
    if split is not None:
        return split.placed(arrays) if arrays else put_everywhere(args, split.mesh)
    if any(map(_tree.is_split, jax.tree.leaves(arrays))):
        raise ValueError(
            "sample: the centre of the control variates is split over devices, but the position is whole. Split both "
            "with gx.shard(..., mesh), or neither."
        )
    return arrays or args


def starting_positions(
    algorithm: Sampler,
    position: Position | Chains,
    num_chains: int,
    stacked: bool,
    num_superchains: int | None = None,
    key: Hashable = None,
    split: Split | None = None,
) -> Position:
    """Expand the result of :func:`drawn_positions` to one position per chain, on the algorithm's manifold if any.

    Superchains share initial positions, in order. Raises StartError, which names leaf and chain, if a point is
    non-finite or off the manifold, and ValueError if a shape does not match.
    """
    if num_superchains is not None:
        starts = starting_positions(algorithm, position, num_superchains, stacked, key=key, split=split)
        stack = jax.tree.map(lambda x: jnp.repeat(x, num_chains // num_superchains, axis=0), starts)
        return stack if split is None else split.placed(stack, CHAIN_AXIS)
    stack = _stack_of(position, num_chains, stacked, split)
    if not jax.tree.leaves(stack):
        raise ValueError("sample: the position holds no array, so there is nothing to sample.")
    for name, leaf in _tree.named_leaves(stack):
        if leaf.ndim == 0 or leaf.shape[0] != num_chains:
            raise ValueError(
                f"sample: with stacked=True every leaf needs a leading axis of {num_chains} chains, but "
                f"{name} has shape {leaf.shape}."
            )
    for name, is_finite in zip(_tree.leaf_names(stack), _are_finite(stack, split), strict=True):
        if not is_finite.all():
            raise StartError(f"sample: {name} is not finite at the start of chain {int(np.argmin(is_finite))}.")
    manifold = getattr(algorithm, "manifold", None)
    if split is None:
        first = jax.tree.map(lambda x: _tree.on_device(np.asarray(x)[0]), stack)  # a slice would be compiled
    else:
        first = split.made(lambda stack: jax.tree.map(lambda x: x[0], stack), stack)
    _check_layers(manifold, first)
    if manifold is None:
        return stack

    def look(position: Position) -> tuple[list[Array], Position]:
        manifold.validate(position, "position")
        parts = named_parts(manifold, position, "position")
        return [part_manifold.residual(part) for _, part_manifold, part in parts], manifold.nearest(position)

    def looked(stack: Position) -> tuple[list[Array], Position]:
        residuals, nearest = jax.vmap(look)(stack)
        return residuals, nearest if split is None else split.pinned(nearest, CHAIN_AXIS)

    residuals, nearest = compiled(looked, stack, key=key, num_passes=1)(stack)
    residuals = fetch(residuals, None if split is None else split.mesh)
    parts = named_parts(manifold, first, "position")
    for chain, here in enumerate(zip(*map(np.asarray, residuals), strict=True)):
        for (name, part_manifold, _), residual in zip(parts, here, strict=True):
            if not residual <= _FAR:
                raise StartError(
                    f"sample: {name} is off its manifold at the start of chain {chain}: the residual of "
                    f"{type(part_manifold).__name__}() is {residual:.3g}, expected at most {_FAR:g}. Start "
                    "from a point on it, for instance manifold.nearest(x) or manifold.random_point(key, x)."
                )
    return nearest


def _stack_of(position: Position | Chains, num_chains: int, stacked: bool, split: Split | None) -> Position:
    """Positions with a leading chain axis, split over devices."""
    if isinstance(position, Chains):
        if split is None:
            return jax.jit(_stacked)(position.positions)
        chains = [split.placed(chain) for chain in position.positions]
        return split.made(_stacked, chains, leading=(CHAIN_AXIS,))
    if stacked:
        return position if split is None else split.placed(position, CHAIN_AXIS)
    if split is None:
        return _repeated(num_chains, position)
    return split.made(functools.partial(_repeated, num_chains), split.placed(position), leading=(CHAIN_AXIS,))


def _stacked(chains: list[Position]) -> Position:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)


def _repeated(num_chains: int, position: Position) -> Position:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), position)


def _are_finite(tree: PyTree, split: Split | None) -> list[Any]:
    if split is not None:  # without gathering them
        each = jax.jit(_finite_chains, out_shardings=NamedSharding(split.mesh, PartitionSpec()))
        return list(map(np.asarray, each(tree)))
    return [np.isfinite(np.asarray(x)).reshape(len(x), -1).all(axis=1) for x in jax.tree.leaves(tree)]


def _finite_chains(tree: PyTree) -> list[Array]:
    return [jnp.isfinite(x).all(axis=tuple(range(1, x.ndim))) for x in jax.tree.leaves(tree)]


def _check_layers(manifold: AbstractManifold | None, position: Position) -> None:
    """Require manifold coordinates for orthonormal weights of a network, since their prior is only defined there."""
    structure = sys.modules.get("geodax.nn.structure")
    if structure is None:  # then there is no such layer
        return
    is_structured, geometry = structure.is_structured, structure.geometry
    governed = [] if manifold is None else named_parts(manifold, position, "position")
    curved = [name for name, part_manifold, _ in governed if not isinstance(part_manifold, Euclidean)]
    for path, layer in jax.tree_util.tree_flatten_with_path(position, is_leaf=is_structured)[0]:
        if not is_structured(layer) or any(getattr(layer, name) is None for name in layer.structured_priors()):
            continue
        owner = ".".join(["position", *filter(None, [jax.tree_util.keystr(path, simple=True, separator=".")])])
        for name, frames, part in named_parts(geometry(layer), layer, owner):
            is_free = not any(f"{name}.".startswith(f"{above}.") for above in curved)
            # an initial position without orthonormal columns is in other coordinates
            if not isinstance(frames, Euclidean) and is_free and float(frames.residual(part)) <= _FAR:
                raise StartError(
                    f"sample: {name} ({type(layer).__name__}) has orthonormal columns, but this sampler moves it as an "
                    "ordinary array, off its manifold, where its uniform prior has no bounds. Give the sampler "
                    "manifold=gx.nn.geometry(network); sghmc, hmc and nuts take one, sgrld does not."
                )


def starting_states(
    algorithm: Sampler,
    positions: Position,
    chain_keys: Array,
    bound: Callable,
    args: PyTree,
    key: Hashable,
    split: Split | None = None,
) -> Any:
    """Initialise the states of all chains; external samplers whose init is random (as in BlackJAX) get a key per chain.

    ``bound`` maps arguments of the log density to the sampler.
    """
    pinned = (lambda states: states) if split is None else (lambda states: split.pinned(states, CHAIN_AXIS))
    if isinstance(algorithm, SamplingAlgorithm) or "rng_key" not in _signature(algorithm.init):

        def init(args: PyTree, positions: Position) -> Any:
            return pinned(jax.vmap(bound(args).init)(positions))

        start = compiled(init, args, positions, key=key, num_passes=1)
        return interruptible(jax.block_until_ready, start(args, positions))
    keys = jax.vmap(jax.random.fold_in, (0, None))(chain_keys, NEVER)  # no iteration has this number

    def start_each(positions: Position, keys: Array) -> Any:
        return pinned(jax.vmap(lambda position, key: algorithm.init(position, rng_key=key))(positions, keys))

    return compiled(start_each, positions, keys, num_passes=1)(positions, keys)


def check_step(algorithm: Sampler, has_batches: bool) -> None:
    """Raise TypeError unless a step has the arguments key, state and, if there are batches, batch."""
    needed = [
        name
        for name, parameter in _signature(algorithm.step).items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    more = needed[2 + has_batches :]
    if more:
        raise TypeError(
            f"sample: a step takes a key and a state{', and a batch' if has_batches else ''}, but that of this sampler "
            f"also needs {', '.join(more)}. For stochastic gradients make a sampler of a gx.Posterior, such as "
            "gx.sgrld(posterior) or gx.sghmc(posterior), and give batches=...; for others wrap the step in a function "
            "of key and state."
        )


def _signature(function: Callable) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in without a signature
        return {}


def check_states(states: Any, split: Split | None = None) -> None:
    """Raise StartError, which names chain and leaf, unless density and gradient are finite at the initial positions.

    Raises TypeError if the states have no position.
    """
    if not hasattr(states, "position"):
        raise TypeError(
            f"sample: the states of a sampler must have an attribute position, as those of BlackJAX have, found "
            f"{_checks.described(states)} from its init. Use a NamedTuple with a field of this name."
        )
    logdensity = getattr(states, "logdensity", None)
    if logdensity is not None:
        values = np.asarray(fetch(logdensity, None if split is None else split.mesh))
        bad = ~np.isfinite(values)
        if bad.any():
            chain = int(np.argmax(bad))
            meaning = {
                "nan": "the density is undefined there",
                "-inf": "the point is outside the support, or some of the data are",
                "inf": "the density is infinite there",
            }[str(values[chain])]
            raise StartError(
                f"sample: the log density is {values[chain]} at the start of chain {chain}: {meaning}. "
                + in_python(
                    "Start from a point where it is finite, and check the density at that point by hand. If there is "
                    "none, look at the data: NaN, or values that the likelihood does not allow, such as labels from 1.",
                    "Check the table for extreme values, and the scales among the options.",
                )
            )
    gradient = getattr(states, "logdensity_grad", None)
    if gradient is not None:
        for name, flat in zip(_tree.leaf_names(gradient), _are_finite(gradient, split), strict=True):
            if not flat.all():
                raise StartError(
                    f"sample: the gradient of the log density with respect to {name} is not finite at the "
                    f"start of chain {int(np.argmin(flat))}, although the density is. Look for sqrt, norm, "
                    "log or where at an edge of their domain."
                )


def is_function(position: Any) -> bool:
    """Whether to call ``position``: a callable network is a position if its leaves are all arrays.

    Raises TypeError if it is ambiguous: callable, with arrays and other leaves.
    """
    if not callable(position) or _is_wrapped(position):
        return callable(position)
    are_arrays = [isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(position)]
    if any(are_arrays) and not all(are_arrays):
        other = jax.tree.leaves(position)[are_arrays.index(False)]
        raise TypeError(
            f"sample: the position, of type {type(position).__name__}, holds arrays beside other things (such as "
            f"{type(other).__name__}). To start from its arrays, take the parameters out with "
            "equinox.partition(network, equinox.is_inexact_array). If it is a function of a key, wrap it: "
            "lambda key: start(key)."
        )
    return not any(are_arrays)


def _is_wrapped(position: Any) -> bool:
    """Whether it is a pytree around a function: a partial, a transformed function of Equinox, or a method."""
    return isinstance(position, jax.tree_util.Partial | eqx.Partial) or hasattr(position, "__wrapped__")


def _as_arrays(position: Position) -> Position:
    _parameters.leaves("sample", "position", position)
    _parameters.warn_if_tied("sample", "position", position)

    def convert(leaf: Any) -> jax.Array:
        if np.ma.is_masked(leaf):
            raise ValueError("sample: a leaf of the position has masked entries; fill them.")
        try:
            return _tree.on_device(leaf) if isinstance(leaf, np.ndarray) else jnp.asarray(leaf)
        except (TypeError, ValueError) as error:
            raise TypeError(f"sample: a leaf of the position is a {type(leaf).__name__}, which is no array.") from error

    return jax.tree.map(convert, position)
