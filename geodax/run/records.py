"""What is recorded of each iteration: named arrays by group, in ArviZ's layout."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree
from geodax.run.feeding import Feed
from geodax.run.store_layouts import dimension_names

ARVIZ_NAMES = {"is_divergent": "diverging", "num_integration_steps": "n_steps", "logdensity": "lp"}
"""ArviZ names of the statistics that samplers of geodax and BlackJAX report."""


class OfData:
    """A function ``(position, *logdensity_args) -> pytree`` that :func:`geodax.sample` records."""

    def __init__(self, function: Callable[..., PyTree]):
        self._function = function

    def __call__(self, position: Position, *args: PyTree) -> PyTree:
        return self._function(position, *args)


def recorded_with(keep: Callable[..., PyTree], args: tuple) -> Callable[[Position], PyTree]:
    """The function that is recorded, with arguments of the log density if it takes them."""
    return (lambda position: keep(position, *args)) if isinstance(keep, OfData) else keep


def records(keep: Callable[[Position], PyTree], state: Any, info: Any) -> dict[str, dict[str, Array]]:
    """Records of one iteration of one chain: named arrays by group."""
    kept = keep(state.position)
    posterior = {name: _for_numpy(leaf) for name, leaf in _tree.named_leaves(kept)}
    stats = {}
    for source in (info, {k: getattr(state, k) for k in ("logdensity", "step_size") if hasattr(state, k)}):
        for name, value in _tree.named_leaves(source, "info"):
            if jnp.ndim(value) == 0:
                stats[ARVIZ_NAMES.get(name, name)] = _for_numpy(jnp.asarray(value))
    return {"posterior": posterior, "sample_stats": stats}


def _for_numpy(value: Any) -> Any:
    """Convert types that NumPy, Zarr and ArviZ do not have, such as bfloat16, to single precision."""
    return value.astype(jnp.float32) if np.dtype(jnp.result_type(value)).isbuiltin != 1 else value


def record_shapes(
    step: Callable, keep: Callable, states: Any, feed: Feed | None, chain_keys: Any, data: PyTree
) -> dict[str, dict[str, tuple]]:
    """Shapes and dtypes of the records of one iteration of one chain, by group and name."""

    def checked(position: Position) -> PyTree:
        kept = keep(position)
        repeated = _tree.repeated_names(kept)
        if repeated:
            raise ValueError(
                f"sample: {repeated[0]!r} cannot name a recorded variable: several leaves have this name, since the "
                "parts of a path are joined by dots. Rename one of them, or record them under other names with "
                "keep=..."
            )
        for name, leaf in _tree.named_leaves(kept):
            try:
                dtype = jnp.result_type(leaf)
            except (TypeError, ValueError):
                dtype = None
            if dtype is None or not (jnp.issubdtype(dtype, jnp.number) or jnp.issubdtype(dtype, jnp.bool_)):
                found = _checks.described(leaf)
                raise TypeError(f"sample: keep must return a pytree of arrays of numbers, found {found} as {name}.")
        return kept

    def one(states, chain_keys, data):
        batch = () if feed is None else (feed.of_chain(data, chain_keys[0]),)
        one_state = jax.tree.map(lambda x: x[0], states)
        returned = step(jax.random.key(0), one_state, *batch)
        _check_returned(one_state, returned)
        return records(checked, *returned)

    shapes = jax.eval_shape(one, states, chain_keys, data)
    return {
        group: {name: (tuple(s.shape), np.dtype(s.dtype)) for name, s in variables.items()}
        for group, variables in shapes.items()
    }


def _check_returned(state: Any, returned: Any) -> None:
    expected = "sample: step must return a pair (state, info) with a state like that of init, found"
    is_pair = isinstance(returned, tuple) and len(returned) == 2
    if not is_pair or jax.tree.structure(returned[0]) != jax.tree.structure(state):
        found = f"({', '.join(map(_checks.described, returned))})" if is_pair else _checks.described(returned)
        raise TypeError(f"{expected} {found}.")
    trees = map(jax.tree.leaves, (state, returned[0]))
    for name, *leaves in zip(_tree.leaf_names(state, "state"), *trees, strict=True):
        kinds = [(jnp.shape(leaf), jax.dtypes.result_type(leaf)) for leaf in leaves]
        if kinds[0] != kinds[1]:
            (shape, dtype), (new_shape, new_dtype) = kinds
            raise TypeError(
                f"{expected} {name} with shape {new_shape} and dtype {new_dtype}, before with {shape} and {dtype}."
            )


def check_names(shapes: dict[str, dict[str, tuple]]) -> None:
    """Reject names that a DataTree cannot hold, before the run."""
    if not shapes["posterior"]:
        raise ValueError(
            "sample: keep must return at least one array of each position to record, found an empty pytree. Leave it "
            "out to record the position itself."
        )
    for group in shapes.values():
        taken = {d for name, (shape, _) in group.items() for d in dimension_names(name, len(shape))}
        taken |= {"", ".", "..", "zarr.json"}
        wrong = [name for name in group if name in taken or "\\" in name or not name.isprintable()]
        if wrong:
            raise ValueError(
                f"sample: {wrong[0]!r} cannot name a recorded variable: names with a backslash or signs that cannot be "
                "printed, those of files of a store (zarr.json) and those of dimensions (chain, draw, x_dim_0), are "
                "taken. Rename the leaf or the field of the info, or record it under another name with keep=..."
            )
