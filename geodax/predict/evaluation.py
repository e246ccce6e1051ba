"""Values of a function at the draws of a run, block by block.

Draws can be in memory or in the store of a run, which is read block by block: memory holds one block of draws and its
values, independent of the length of the run.

Positions may be split over the devices of a mesh (:func:`geodax.shard`). Each device then reads and holds its own
entries of the draws, and XLA divides the function among the devices.
"""

from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from geodax import _checks, _tree
from geodax._types import Position, PyTree
from geodax.nn.likelihoods import apply_network
from geodax.run.draws import open_draws, to_datatree
from geodax.run.positions import on_devices, position_variables, positions_at, split_positions_at
from geodax.run.programs import compiled, kinds_of, reused
from geodax.run.sharding import put_everywhere
from geodax.run.split import Split, mesh_of, split_of

Draws = str | Path | xr.DataTree | Position
_BLOCK_BYTES = 64 << 20


def evaluate(
    draws: Draws,
    like: Position,
    x: PyTree,
    *,
    apply: Callable[[Position, PyTree], PyTree] = apply_network,
    first: int = 0,
    last: int | None = None,
    every: int = 1,
    batch_size: int = 1000,
    block_bytes: int = _BLOCK_BYTES,
    key: Hashable = None,
) -> Iterator[PyTree]:
    """Evaluate a function of position and examples at the draws of all chains.

    Args:
        draws: The folder of a store, or a DataTree, whose group ``posterior`` holds positions; or positions whose
            arrays have the leading axes chain and draw.
        like: A position with the form of the draws, for instance the initial network of the run, or a whole Equinox
            network whose parameters they are: its other leaves, which the draws do not have, are those of every draw.
            If it is split over devices, the draws are split like it.
        x: Examples: arrays whose first axis runs over them.
        apply: ``(position, x) -> values``, arrays whose first axis runs over the examples; if left out, the position is
            a network of one example.
        first: Index of the first draw of each chain that is used.
        last: Index after the last draw that is used; None for all draws.
        every: Use every ``every``-th draw.
        batch_size: Number of examples processed at a time.
        block_bytes: Memory for one block of draws and its values.
        key: What determines ``apply``, besides the kinds of its arguments: the program of an earlier call with an equal
            key is reused without tracing. None traces ``apply`` in each call.

    Yields:
        Values of shape (draws, examples, ...), block by block; within a block the chains of one draw are adjacent.

    If the values are a single array (draws, examples, classes), they can be logits: -inf, for an impossible class, is
    allowed next to finite values.

    Raises:
        ValueError: If the draws do not have the form of ``like``, draws or values are non-finite, or the values do not
            have one row per example.
        StorageError: If the store cannot be read.
    """
    batch_size, every = (
        _checks.whole("evaluate", name, value) for name, value in (("batch_size", batch_size), ("every", every))
    )
    first = _checks.whole("evaluate", "first", first, least=0)
    programs: dict[tuple[Any, ...], Callable[..., PyTree]] = {}

    tree = _as_tree(draws)
    like, apply = _without_constants(tree, like, apply)
    own = mesh_of("evaluate", like)
    split = None if own is None else split_of("evaluate", like, own, False)

    def at_draws(positions: Position, x: PyTree) -> PyTree:
        values = jax.lax.map(lambda position: apply(position, x), positions)
        if own is None:
            return values
        return jax.lax.with_sharding_constraint(values, NamedSharding(own, PartitionSpec()))

    def function(*args: PyTree) -> PyTree:
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(args))
        if shapes not in programs:
            programs[shapes] = compiled(at_draws, *args, is_exact=False, key=key)
        return programs[shapes](*args)

    examples = [put_everywhere(jax.tree.map(lambda a, s=s: jnp.asarray(a[s]), x), own) for s in _slices(x, batch_size)]

    def shapes_of_values() -> PyTree:
        return jax.eval_shape(apply, like, examples[0])

    one = shapes_of_values() if key is None else reused((key, kinds_of((like, examples[0]))), shapes_of_values)
    _require_rows(one, jax.tree.leaves(examples[0])[0].shape[0])
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one)]
    num_examples = sum(jax.tree.leaves(part)[0].shape[0] for part in examples)
    value_bytes = sum(sizes) * num_examples // jax.tree.leaves(examples[0])[0].shape[0]
    position_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    variables = position_variables("evaluate", tree, like)
    _require_same_split(variables, own)
    num_chains, num_draws = next(iter(variables.values())).shape[:2]
    numbers = np.arange(num_draws)[first:last:every]
    if not len(numbers):
        raise ValueError(f"evaluate: no draws are left: each chain has {num_draws} draws, and first is {first}.")
    length = max(1, int(block_bytes // (num_chains * max(position_bytes + value_bytes, 1))))
    for begin in range(0, len(numbers), length):
        chosen = numbers[begin : begin + length]
        positions = _positions(variables, like, slice(chosen[0], chosen[-1] + 1, every), split)
        parts = [jax.tree.map(np.asarray, function(positions, part)) for part in examples]
        values = jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *parts)
        if not _are_values(values):
            raise ValueError(
                f"evaluate: values at the draws {chosen[0]} to {chosen[-1]} are not finite. {_reason(positions)}"
            )
        yield values


def _as_tree(draws: Draws) -> xr.DataTree:
    if isinstance(draws, str | Path):
        return open_draws(draws)
    if isinstance(draws, xr.DataTree):
        return draws
    named = dict(_tree.named_leaves(draws))
    for name, leaf in named.items():
        if jnp.ndim(leaf) < 2:
            raise ValueError(
                f"evaluate: expected arrays of positions with the leading axes chain and draw, found {name} of shape "
                f"{jnp.shape(leaf)}; for one position give jax.tree.map(lambda x: x[None, None], position)."
            )
    return to_datatree({"posterior": named})


def _without_constants(tree: xr.DataTree, like: Position, apply: Any) -> tuple[Position, Any]:
    """Take the leaves that are neither numbers nor drawn out of a whole network; ``apply`` puts them back."""
    leaves, structure = jax.tree.flatten(like)
    drawn = {str(name) for name in tree["posterior"].dataset.data_vars}
    is_drawn = [
        (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)) or name in drawn
        for name, leaf in zip(_tree.leaf_names(like), leaves, strict=True)
    ]
    if all(is_drawn):
        return like, apply
    arrays, rest = eqx.partition(like, structure.unflatten(is_drawn))
    return arrays, lambda position, x: apply(eqx.combine(position, rest), x)


def _require_same_split(variables: dict[str, xr.DataArray], own: Mesh | None) -> None:
    there = mesh_of("evaluate", {name: variable.data for name, variable in variables.items() if on_devices(variable)})
    if there is not None and there != own:
        raise ValueError(
            f"evaluate: the draws are split over the mesh {dict(there.shape)}, but like= "
            f"{'is whole' if own is None else f'over {dict(own.shape)}'}; give like=gx.shard(like, mesh) with the mesh "
            "of the draws."
        )


def _positions(variables: dict[str, xr.DataArray], like: Position, draws: slice, split: Split | None) -> Position:
    """Positions with one leading axis, on which the chains of one draw are adjacent."""
    if split is not None:
        return split_positions_at(variables, like, draws, split)
    return jax.tree.map(
        lambda leaf: np.asarray(leaf).swapaxes(0, 1).reshape(-1, *leaf.shape[2:]), positions_at(variables, like, draws)
    )


def _require_rows(values: PyTree, num_rows: int) -> None:
    """Raise unless the first axis of the values runs over the examples, so that batches of them can be joined."""
    for leaf in jax.tree.leaves(values):
        if leaf.shape[:1] != (num_rows,):
            raise ValueError(
                f"evaluate: expected apply to return arrays whose first axis runs over the {num_rows} examples of "
                f"its argument, found one of shape {leaf.shape}. A function of one example needs jax.vmap."
            )


def _are_values(values: PyTree) -> bool:
    """Whether all values are finite, or logits with some, but not all, entries of a row equal to -inf."""
    if isinstance(values, np.ndarray) and values.ndim == 3 and not np.iscomplexobj(values):
        is_finite = np.isfinite(values)
        return bool((is_finite | (values == -np.inf)).all() and is_finite.any(axis=-1).all())
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values))


def _reason(positions: Position) -> str:
    if not _tree.is_finite(positions):
        return "The draws themselves are not finite either; exclude them by first=... and last=..."
    return (
        "The draws are finite: check what apply computes from them at these examples. In logits (examples, classes), "
        "-inf marks an impossible class; each example needs a possible one."
    )


def _slices(x: PyTree, size: int) -> list[slice]:
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(x)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"evaluate: expected arrays of examples with equally many rows, found {sorted(lengths)} rows.")
    return [slice(i, i + size) for i in range(0, lengths.pop(), size)]
