"""Positions read back from draws: the inverse of recording them."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import NamedSharding, PartitionSpec

from geodax import _tree
from geodax._types import Array, Position
from geodax.run.draws import open_draws
from geodax.run.errors import StorageError
from geodax.run.split import Split
from geodax.run.store_layouts import dimension_names


def position_variables(owner: str, tree: xr.DataTree, like: Position) -> dict[str, xr.DataArray]:
    """Return the variables (chain, draw, ...) of the draws that hold the arrays of a position, by the leaves' names."""
    repeated = _tree.repeated_names(like)
    if repeated:
        raise ValueError(
            f"{owner}: several arrays of the position have the name {repeated[0]!r}, since the parts of a path are "
            "joined by dots, so their draws cannot be distinguished. Rename one of them."
        )
    group = tree["posterior"].dataset
    variables = {}
    for name, leaf in _tree.named_leaves(like):
        variable = _ordered(owner, group[name]) if name in group else None
        if variable is None or variable.shape[2:] != jnp.shape(leaf):
            found = {
                str(key): tuple(size for d, size in value.sizes.items() if d not in ("chain", "draw"))
                for key, value in group.data_vars.items()
            }
            raise ValueError(
                f"{owner}: the position has an array {name} of shape {jnp.shape(leaf)}, but the draws have {found}. "
                "Give the position that the run started from as like=..., and record positions (no keep=...)."
            )
        variables[name] = variable
    return variables


def positions_at(variables: dict[str, xr.DataArray], like: Position, draws: Any) -> Position:
    """Read positions at some draws, with leading axes over chains and draws, in the dtypes of ``like``.

    The variables are those of :func:`position_variables`. Raises StorageError if they cannot be read.
    """

    def read(variable: xr.DataArray, leaf: Array) -> Array:
        array = _tree.on_device(np.asarray(variable.isel(draw=draws).values))
        return array.astype(leaf.dtype) if leaf.dtype.isbuiltin != 1 else array  # recorded in single precision

    try:
        leaves = jax.tree.leaves(like)
        arrays: list[Any] = [read(variable, leaf) for variable, leaf in zip(variables.values(), leaves, strict=True)]
    except Exception as error:
        raise StorageError(f"The draws cannot be read: {type(error).__name__}: {error}") from error
    return jax.tree.structure(like).unflatten(arrays)


def split_positions_at(variables: dict[str, xr.DataArray], like: Position, draws: slice, split: Split) -> Position:
    """Read positions onto the devices over which they are split, each device its own entries; see :func:`positions_at`.

    They have one leading axis, on which the chains of one draw are adjacent.
    """

    def read(variable: xr.DataArray, leaf: Array, place: NamedSharding) -> Array:
        some = variable.isel(draw=draws)
        shape = (some.shape[0] * some.shape[1], *some.shape[2:])
        if on_devices(variable):
            values = some.data.astype(leaf.dtype)
            return jax.jit(lambda x: x.swapaxes(0, 1).reshape(shape), out_shardings=place)(values)

        def own(index: Any) -> np.ndarray:
            entries = some[(slice(None), slice(None), *index[1:])].values
            return entries.swapaxes(0, 1).reshape(-1, *entries.shape[2:]).astype(leaf.dtype)

        return jax.make_array_from_callback(shape, place, own)

    leaves, structure = jax.tree.flatten(like)
    places = [NamedSharding(split.mesh, PartitionSpec(None, *spec)) for spec in split.specs]
    try:
        return structure.unflatten(list(map(read, variables.values(), leaves, places)))
    except (OSError, StorageError) as error:
        raise StorageError(f"The draws cannot be read: {type(error).__name__}: {error}") from error


def on_devices(variable: xr.DataArray) -> bool:
    """Whether a variable is an array of JAX, rather than of NumPy or on disk; nothing is read to tell."""
    return isinstance(variable[:0].data, jax.Array)


def _ordered(owner: str, variable: xr.DataArray) -> xr.DataArray:
    """A variable with its dimensions in the order of the run, even if they were transposed since."""
    missing = [name for name in ("chain", "draw") if name not in variable.dims]
    if missing:
        raise ValueError(
            f"{owner}: expected draws with the dimensions chain and draw, but {variable.name} has no {missing[0]}; "
            f"it has {list(variable.dims)}. Keep the dimension: choose by a list, as in draws.isel({missing[0]}=[0]), "
            f"or put it back by expand_dims({missing[0]!r})."
        )
    recorded = dimension_names(str(variable.name), variable.ndim - 2)
    return variable.transpose(*(recorded if set(recorded) == set(variable.dims) else ("chain", "draw", ...)))


def last_positions(draws: str | Path | xr.DataTree, like: Position) -> Position:
    """Return the last draw of each chain, to start other chains there.

    Args:
        draws: The result of :func:`geodax.sample`, :func:`geodax.train_ensemble` or :func:`geodax.swag`, or the folder
            of a store, with positions (no ``keep=...``).
        like: A position with the structure of the draws.

    Returns:
        Positions with a leading chain axis, for ``gx.sample(..., stacked=True)``.

    Raises:
        ValueError: If the draws do not have the structure of ``like``.
        StorageError: If they cannot be read.
    """
    tree = draws if isinstance(draws, xr.DataTree) else open_draws(draws)
    found = positions_at(position_variables("last_positions", tree, like), like, [-1])
    return jax.tree.map(lambda leaf: leaf[:, 0], found)
