"""Work that is done every so many steps, and is skipped in between, also when many chains run side by side."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from geodax._types import Array, PyTree


def when(is_due: Array, function: Callable[[PyTree], PyTree], operand: PyTree) -> PyTree:
    """``function(operand)`` where it is due, ``operand`` itself elsewhere.

    Under ``vmap`` a plain ``lax.cond`` would compute both branches at every step. Here the work is skipped unless it is
    due for at least one chain; chains of one run are due at the same step.

    Args:
        is_due: A Boolean scalar.
        function: From the operand to a tree of the same structure, shapes and dtypes.
        operand: The tree.

    Returns:
        The new or the old tree.
    """

    @custom_vmap
    def run(is_due: Array, operand: PyTree) -> PyTree:
        return jax.lax.cond(is_due, function, lambda same: same, operand)

    @run.def_vmap
    def _(axis_size: int, in_batched: list, is_due: Array, operand: PyTree) -> tuple[PyTree, PyTree]:
        due_batched, operand_batched = in_batched
        operand = jax.tree.map(
            lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape)),
            operand,
            operand_batched,
        )
        if not due_batched:
            out = when(is_due, jax.vmap(function), operand)
        else:
            # nothing that may be batched further out is closed over: the due flags go along
            def where_due(pair: tuple) -> tuple:
                is_due, operand = pair
                moved = jax.vmap(function)(operand)
                select = jax.vmap(lambda due, new, old: jax.tree.map(lambda a, b: jnp.where(due, a, b), new, old))
                return is_due, select(is_due, moved, operand)

            _, out = when(jnp.any(is_due), where_due, (is_due, operand))
        return out, jax.tree.map(lambda _: True, out)

    return run(is_due, operand)
