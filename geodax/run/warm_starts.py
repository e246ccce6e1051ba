"""What warm-up has learned, as a group of the result, and its use in a later run."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from geodax import _checks, _tree

GROUP = "adaptation"


def adapted_values(states: Any, fields: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The values of the fields of states that warm-up has tuned, by name, with a leading chain axis."""
    return {
        name: np.asarray(leaf)
        for field in fields
        for name, leaf in zip(*_named_leaves(getattr(states, field), field), strict=True)
    }


def as_dataset(values: Mapping[str, np.ndarray]) -> xr.Dataset:
    """The group of a result."""
    return xr.Dataset(
        {
            name: (("chain", *(f"{name}_dim_{i}" for i in range(value.ndim - 1))), value)
            for name, value in values.items()
        }
    )


def with_adapted(states: Any, fields: tuple[str, ...], earlier: Any) -> Any:
    """Replace the tuned fields of states, with a leading chain axis, by those of an earlier run.

    ``earlier`` is its result, its opened store, or the group ``adaptation`` of either. Chain i takes the values of the
    earlier chain i, modulo their number. Raises TypeError if it is not a result of :func:`geodax.sample`, or this
    sampler tunes nothing, and ValueError if it has other values, or of other shapes.
    """
    if not fields:
        raise TypeError(
            "sample: warm_start is for hmc, nuts and microcanonical samplers without a step_size; this one has nothing "
            "to tune that an earlier run can give. Construct it with the step_size in the sample_stats of that run."
        )
    found = _group_of(earlier)
    changed = {}
    for field in fields:
        names, leaves = _named_leaves(getattr(states, field), field)
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(
                f"sample: the warm_start has no {missing[0]!r}, which this sampler tunes; it comes from another "
                "kind of sampler or mass matrix."
            )
        new = [_taken(name, leaf, np.asarray(found[name])) for name, leaf in zip(names, leaves, strict=True)]
        changed[field] = jax.tree.unflatten(jax.tree.structure(getattr(states, field)), new)
    return states._replace(**changed)


def _group_of(earlier: Any) -> Mapping[Any, xr.DataArray]:
    """The variables of the group in a result or a store, or of the group itself."""
    if isinstance(earlier, xr.DataTree) and GROUP in earlier.children:
        return earlier.children[GROUP].data_vars
    if isinstance(earlier, xr.Dataset) or (isinstance(earlier, xr.DataTree) and earlier.name == GROUP):
        return earlier.data_vars
    is_tree = isinstance(earlier, xr.DataTree) and earlier.children
    found = f"a tree with the groups {list(earlier.children)}" if is_tree else _checks.described(earlier)
    raise TypeError(
        f"sample: warm_start must be the result of an earlier gx.sample with warm-up, or its opened store, with a "
        f"group {GROUP!r}, or this group, found {found}. A store has it from the end of its run on. If it is one of an "
        "unfinished run or of an earlier version, call gx.sample with the arguments and the checkpoint of that run, "
        "which adds the group; or leave out warm_start, and give a num_warmup that tunes anew."
    )


def _named_leaves(value: Any, field: str) -> tuple[list[str], list[Any]]:
    leaves = jax.tree.leaves(value)
    names = _tree.leaf_names(value, "") if leaves else []
    return [f"{field}.{name}" if name else field for name in names], leaves


def _taken(name: str, leaf: jax.Array, values: np.ndarray) -> jax.Array:
    if values.shape[1:] != leaf.shape[1:]:
        raise ValueError(
            f"sample: {name} of the warm_start has the shape {values.shape[1:]} for each chain, but this model needs "
            f"{leaf.shape[1:]}."
        )
    return jnp.asarray(values[np.arange(len(leaf)) % len(values)], leaf.dtype)
