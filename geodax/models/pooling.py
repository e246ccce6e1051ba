"""Pool the draws of all chains, and evaluate functions at each draw."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._wording import argument
from geodax.run.programs import compiled
from geodax.run.signals import interruptible

MOST_PREDICTIVE_DRAWS = 400
MOST_POOLED_DRAWS = 4000
ROWS_AT_ONCE = 1024
_LEAST_ROWS = 64
_LARGEST_COPIED = 128 << 20
_THINNED_BYTES = 32 << 20


def pooled(tree: Any, names: Sequence[str], most: int | None = None) -> dict[str, np.ndarray]:
    """Concatenate the draws of all chains.

    Args:
        tree: A DataTree with a group ``posterior``.
        names: The variables.
        most: Thin evenly to at most so many draws; None is 4,000, from which every mean and figure is as good.

    Returns:
        Arrays with one leading axis, by name.
    """
    group = tree["posterior"]
    num_chains, num_draws = group[names[0]].shape[:2]
    total, most = num_chains * num_draws, MOST_POOLED_DRAWS if most is None else most
    if total <= most:
        return {name: (a := group[name].values).reshape(-1, *a.shape[2:]) for name in names}
    chosen = np.linspace(0, total - 1, most).astype(int)
    draws, places = np.unique(chosen % num_draws, return_inverse=True)
    return {name: group[name][:, draws].values[chosen // num_draws, places] for name in names}


def thinned(tree: Any) -> Any:
    """Draws of which functions of all need several copies in memory.

    Args:
        tree: A DataTree with the groups ``posterior`` and ``sample_stats``.

    Returns:
        The tree; where its posterior has more than 128 MB, with every k-th draw of it: about 32 MB, or 4,000 draws of
        all chains, whichever is more. The statistics stay whole.
    """
    group = tree["posterior"].to_dataset()
    num_chains, num_draws = (group.sizes[axis] for axis in ("chain", "draw"))
    if group.nbytes <= _LARGEST_COPIED:
        return tree
    kept = max(-(-MOST_POOLED_DRAWS // num_chains), _THINNED_BYTES * num_draws // group.nbytes)
    tree = tree.copy()
    tree["posterior"] = group.isel(draw=slice(0, None, max(num_draws // kept, 1)))
    return tree


def over_draws(function: Callable[..., Any], draws: Any, *data: Any) -> Any:
    """Evaluate a function at each draw, in double precision.

    Args:
        function: A function of a tree of arrays without the leading axis, and of data shared by all draws. Pass large
            arrays as data: values in its closure become constants of the compiled program, which then cannot be reused.
        draws: The tree with the leading axis.
        *data: Arrays.

    Returns:
        The function's values as NumPy arrays with the leading axis.
    """
    return next(over_blocks(function, draws, [data]))


def padded(rows: np.ndarray) -> np.ndarray:
    """Repeat the last row until the number of rows is one of few, each of which needs a program of its own."""
    length = max(_LEAST_ROWS, min(ROWS_AT_ONCE, 1 << (len(rows) - 1).bit_length()))
    return np.pad(rows, [(0, -len(rows) % length), *[(0, 0)] * (rows.ndim - 1)], mode="edge")


def over_rows(function: Callable[..., Any], draws: Any, *rows: np.ndarray) -> Any:
    """Evaluate a function of rows at each draw, as :func:`over_draws`, with one program for several numbers of rows.

    Args:
        function: A function of a tree of arrays without the leading axis, and of arrays with one entry for each row;
            so are its values, and a row's value does not depend on the other rows.
        draws: The tree with the leading axis.
        *rows: Arrays whose first axis runs over the rows.

    Returns:
        The function's values as NumPy arrays, draws x rows x ...
    """
    found = over_draws(function, draws, *map(padded, rows))
    return jax.tree.map(lambda values: values[:, : len(rows[0])], found)


def over_blocks(function: Callable[..., Any], draws: Any, blocks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Evaluate a function at each draw for one block of data after the other, by one program.

    Args:
        function: As in :func:`over_draws`.
        draws: The tree with the leading axis.
        blocks: Arrays; those of all blocks have the same shapes.

    Yields:
        For each block what :func:`over_draws` returns.
    """
    evaluate = None
    for data in blocks:
        with jax.enable_x64(True):
            args = jax.tree.map(jnp.asarray, (draws, *data))
            if evaluate is None:
                evaluate = compiled(lambda draws, *data: jax.lax.map(lambda draw: function(draw, *data), draws), *args)
            found = jax.tree.map(np.asarray, interruptible(jax.block_until_ready, evaluate(*args)))
        yield found


def require_count(owner: str, name: str, value: Any, most: int, why: str) -> None:
    """Check that an option is an integer from 1 to ``most``.

    Args:
        owner: Name used in error messages.
        name: Name of the option.
        value: Its value.
        most: The largest allowed value.
        why: Explanation of ``most``.

    Raises:
        ValueError: If it is out of range or not an integer.
    """
    number = _checks.whole(owner, name, value, least=-_checks.LARGEST)
    if not 1 <= number <= most:
        raise ValueError(f"{owner}: {argument(name)} must be an integer from 1 to {most} ({why}), found {number}.")
