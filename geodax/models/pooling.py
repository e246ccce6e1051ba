"""What estimators do with the draws of a fit: put chains in one row, and evaluate functions at each draw."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _arguments
from geodax.run.programs import compiled
from geodax.run.signals import interruptible

MOST_PREDICTIVE_DRAWS = 400


def pooled(tree: Any, names: Sequence[str], most: int | None = None) -> dict[str, np.ndarray]:
    """Draws of all chains in one row.

    Args:
        tree: A DataTree with a group ``posterior``.
        names: The variables.
        most: Thin evenly to at most so many draws; None keeps all.

    Returns:
        Arrays with one leading axis, by name.
    """
    arrays = {name: np.asarray(tree["posterior"][name].values) for name in names}
    flat = {name: a.reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
    total = len(flat[names[0]])
    if most is None or total <= most:
        return flat
    chosen = np.linspace(0, total - 1, most).astype(int)
    return {name: a[chosen] for name, a in flat.items()}


def over_draws(function: Callable[..., Any], draws: Any, *data: Any) -> Any:
    """Evaluate a function at each draw, in double precision.

    Args:
        function: Of a tree of arrays without the leading axis, and of data that are the same for all draws. What it is
            closed over instead becomes part of the compiled program, which other data cannot use again.
        draws: The tree with the leading axis.
        *data: Arrays.

    Returns:
        Its values as NumPy arrays with the leading axis.
    """
    return next(over_blocks(function, draws, [data]))


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
    """Check that an option is a whole number from 1 to ``most``.

    Args:
        owner: Who asks, for the message.
        name: The option.
        value: What it is.
        most: The largest value.
        why: What ``most`` is.

    Raises:
        ValueError: If it is not.
    """
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= most:
        raise ValueError(
            f"{owner}: {name} must be a whole number from 1 to {most} ({why}), found {_arguments.described(value)}."
        )
