"""Pool the draws of all chains, and evaluate functions at each draw."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks as _arguments
from geodax.run.programs import compiled

MOST_PREDICTIVE_DRAWS = 400


def pooled(tree: Any, names: Sequence[str], most: int | None = None) -> dict[str, np.ndarray]:
    """Concatenate the draws of all chains.

    Args:
        tree: A DataTree with a group ``posterior``.
        names: The variables.
        most: Thin evenly to at most this many draws; None keeps all.

    Returns:
        Arrays with one leading axis, by name.
    """
    arrays = {name: np.asarray(tree["posterior"][name].values) for name in names}
    flat = {name: a.reshape(-1, *a.shape[2:]) for name, a in arrays.items()}
    total = len(flat[names[0]])
    chosen = np.arange(total) if most is None or total <= most else np.linspace(0, total - 1, most).astype(int)
    return {name: a[chosen] for name, a in flat.items()}


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
    with jax.enable_x64(True):
        args = jax.tree.map(jnp.asarray, (draws, *data))
        evaluate = compiled(lambda draws, *data: jax.lax.map(lambda draw: function(draw, *data), draws), *args)
        return jax.tree.map(np.asarray, evaluate(*args))


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
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= most:
        raise ValueError(
            f"{owner}: {name} must be an integer from 1 to {most} ({why}), found {_arguments.described(value)}."
        )
