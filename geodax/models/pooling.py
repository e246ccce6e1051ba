"""Pool the draws of all chains, and evaluate functions at each draw."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax.run.programs import compiled
from geodax.run.signals import interruptible

MOST_PREDICTIVE_DRAWS = 400
MOST_POOLED_DRAWS = 4000
ROWS_AT_ONCE = 1024
_LEAST_ROWS = 64
_LARGEST_COPIED = 128 << 20
_THINNED_BYTES = 32 << 20


def pooled(tree: Any, names: Sequence[str], most: int | None = None) -> dict[str, np.ndarray]:
    """Concatenate the draws of all chains, thinned evenly to at most ``most``; None is 4,000, enough for figures."""
    group = tree["posterior"]
    num_chains, num_draws = group[names[0]].shape[:2]
    total, most = num_chains * num_draws, MOST_POOLED_DRAWS if most is None else most
    if total <= most:
        return {name: (a := group[name].values).reshape(-1, *a.shape[2:]) for name in names}
    chosen = np.linspace(0, total - 1, most).astype(int)
    draws, places = np.unique(chosen % num_draws, return_inverse=True)
    return {name: group[name][:, draws].values[chosen // num_draws, places] for name in names}


def thinned(tree: Any) -> Any:
    """Return a DataTree whose posterior, if it has more than 128 MB, has every k-th draw only.

    It then has about 32 MB, or 4,000 draws of all chains, whichever is more, since some functions make copies of it.
    The statistics stay whole.
    """
    group = tree["posterior"].to_dataset()
    num_chains, num_draws = (group.sizes[axis] for axis in ("chain", "draw"))
    if group.nbytes <= _LARGEST_COPIED:
        return tree
    kept = max(-(-MOST_POOLED_DRAWS // num_chains), _THINNED_BYTES * num_draws // group.nbytes)
    tree = tree.copy()
    tree["posterior"] = group.isel(draw=slice(0, None, max(num_draws // kept, 1)))
    return tree


def with_log_likelihood(tree: Any, unit: str, kind: Any, of_draws: Callable[[Any], np.ndarray]) -> Any:
    """Return a DataTree with the group ``log_likelihood``, and with every k-th draw if there are more than 4,000.

    ``of_draws`` takes the draws of all chains, of this kind, and returns an array with the axes draw and ``unit``.
    """
    tree, group = tree.copy(), tree["posterior"].to_dataset()
    most = max(MOST_POOLED_DRAWS // group.sizes["chain"], 1)
    group = group.isel(draw=slice(None, None, -(-group.sizes["draw"] // most)))
    shape = group.sizes["chain"], group.sizes["draw"]
    values = of_draws(kind(**pooled({"posterior": group}, kind._fields, shape[0] * shape[1])))
    tree["posterior"] = group
    tree["log_likelihood"] = group.assign(x=(("chain", "draw", unit), values.reshape(*shape, -1)))[["x"]]
    return tree


def with_variables(tree: Any, **values: np.ndarray) -> Any:
    """Return a DataTree with other values of some variables of its posterior."""
    tree, group = tree.copy(), tree["posterior"].to_dataset()
    tree["posterior"] = group.assign({name: (group[name].dims, array) for name, array in values.items()})
    return tree


def log_mean(logarithms: np.ndarray) -> Any:
    """Return the logarithm of the mean over the draws, the first axis, from logarithms."""
    return np.logaddexp.reduce(logarithms, axis=0) - np.log(len(logarithms))


def over_draws(function: Callable[..., Any], draws: Any, *data: Any) -> Any:
    """Evaluate a function at each draw, in double precision; return NumPy arrays with the leading axis of the draws.

    ``function`` takes a tree of arrays without that axis, and data shared by all draws. Pass large arrays as data:
    values in its closure become constants of the compiled program, which then cannot be reused.
    """
    return next(over_blocks(function, draws, [data]))


def padded(rows: np.ndarray) -> np.ndarray:
    """Repeat the last row until the number of rows is one of few, each of which needs a program of its own."""
    length = max(_LEAST_ROWS, min(ROWS_AT_ONCE, 1 << (len(rows) - 1).bit_length()))
    return np.pad(rows, [(0, -len(rows) % length), *[(0, 0)] * (rows.ndim - 1)], mode="edge")


def over_rows(function: Callable[..., Any], draws: Any, *rows: np.ndarray) -> Any:
    """Evaluate a function of rows at each draw, as :func:`over_draws`, with one program for several numbers of rows.

    The first axis of ``rows`` and of the function's values is that of the rows; a row's value must not depend on
    others.
    """
    found = over_draws(function, draws, *map(padded, rows))
    return jax.tree.map(lambda values: values[:, : len(rows[0])], found)


def over_blocks(function: Callable[..., Any], draws: Any, blocks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield the results of :func:`over_draws` for blocks of data of the same shapes, one by one, by one program."""
    evaluate = None
    for data in blocks:
        with jax.enable_x64(True):
            args = jax.tree.map(jnp.asarray, (draws, *data))
            if evaluate is None:
                evaluate = compiled(lambda draws, *data: jax.lax.map(lambda draw: function(draw, *data), draws), *args)
            found = jax.tree.map(np.asarray, interruptible(jax.block_until_ready, evaluate(*args)))
        yield found
