"""Large batches for LAPACK, in pieces that a single thread processes."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Inexact

from geodax._types import Array, PyTree

# Number of multiplications, n p min(n, p) per matrix. JAX 0.10 distributes batches from about 32,000 on.
_LEAST_SHARED_OUT = 8_000


def in_pieces(function: Callable[[Array], PyTree], m: Inexact[Array, "*batch n p"]) -> PyTree:
    """Apply a LAPACK routine, a function of the last two axes, in pieces, so that no thread waits in it.

    On CPUs, JAX distributes the matrices of a large batch over the thread pool that also runs the parallel operations
    of a program, and waits for them there. If every thread of the pool waits (on a machine with two cores this takes
    two such calls that do not depend on each other, or two devices), none is left to work, and the program deadlocks.
    Batches of that size are therefore passed in pieces so small that the calling thread processes them itself.
    Derivatives of the function use the whole batch at once, and ``jax.vmap`` may add matrices.
    """
    if jax.default_backend() != "cpu":
        return function(m)
    cut = jax.custom_jvp(_cut(function))
    cut.defjvp(lambda primals, tangents: jax.jvp(function, primals, tangents))
    return cut(m)


def _cut(function: Callable[[Array], PyTree]) -> Callable[[Array], PyTree]:
    @jax.custom_batching.custom_vmap
    def apply(m: Array) -> PyTree:
        batch, (n, p) = m.shape[:-2], m.shape[-2:]
        if math.prod(batch) == 1 or math.prod(batch) * n * p * min(n, p) < _LEAST_SHARED_OUT:
            return function(m)
        out = jax.lax.map(function, m.reshape(-1, n, p), batch_size=max(1, _LEAST_SHARED_OUT // (n * p * min(n, p))))
        return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), out)

    @apply.def_vmap
    def _(axis_size: int, in_batched: list[bool], m: Array) -> tuple[PyTree, PyTree]:
        out = _cut(function)(m)
        return out, jax.tree.map(lambda _: True, out)

    return apply


def unless(is_done: Array, function: Callable[[], PyTree], otherwise: PyTree) -> PyTree:
    """Return ``otherwise`` if ``is_done``, and ``function()`` if not, which has the same structure and shapes.

    Under ``jax.vmap`` the function runs only if a member of the batch needs it; ``jax.lax.cond`` would always run it.
    """
    return jax.lax.while_loop(lambda carry: carry[0], lambda _: (jnp.array(False), function()), (~is_done, otherwise))[
        1
    ]
