"""Periodic work that is skipped in between, also if many chains run in parallel."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from geodax._types import Array, PyTree


def when(is_due: Array, function: Callable[..., PyTree], operand: PyTree, *given: PyTree) -> PyTree:
    """Return ``function(operand, *given)`` if it is due, and ``operand`` otherwise.

    Under ``vmap`` a plain ``lax.cond`` would compute both branches at every step. Here the work is skipped unless it is
    due for at least one chain; chains of one run are due at the same step. The operand is copied at every step, so it
    should contain only what changes; ``given`` are not copied.
    """

    def run_alone(is_due: Array, operand: PyTree, given: tuple) -> PyTree:
        return jax.lax.cond(is_due, function, lambda same, *_: same, operand, *given)

    run = custom_vmap(run_alone)

    @run.def_vmap
    def _(axis_size: int, in_batched: list, is_due: Array, operand: PyTree, given: tuple) -> tuple[PyTree, PyTree]:
        if not any(jax.tree.leaves(in_batched)):  # a derivative, whose tangents alone are batched
            out = run_alone(is_due, operand, given)
            return out, jax.tree.map(lambda _: False, out)
        due_batched, *trees_batched = in_batched
        operand, given = jax.tree.map(
            lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (axis_size, *x.shape)),
            (operand, given),
            tuple(trees_batched),
        )
        if not due_batched:
            out = when(is_due, jax.vmap(function), operand, *given)
        else:
            # nothing that may be batched by an outer vmap is closed over: the due flags are an operand
            def where_due(operand: PyTree, is_due: Array, *given: PyTree) -> PyTree:
                moved = jax.vmap(function)(operand, *given)
                select = jax.vmap(lambda due, new, old: jax.tree.map(lambda a, b: jnp.where(due, a, b), new, old))
                return select(is_due, moved, operand)

            out = when(jnp.any(is_due), where_due, operand, is_due, *given)
        return out, jax.tree.map(lambda _: True, out)

    return run(is_due, operand, given)
