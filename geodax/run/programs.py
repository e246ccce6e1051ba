"""Compiled programs, kept for the next call that needs the same.

JAX knows a compiled function again by the Python function it was made from. A run makes its functions anew, closed over
a sampler and its posterior, so that a cross-validation or a study over seeds would compile what is one and the same
program in every call. Here a program is known by its own text.

On processors with vectors of 512 bits XLA uses half of each unless it is told otherwise; programs compiled here use all
of them.
"""

import functools
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from geodax._types import PyTree
from geodax.run.signals import interruptible

_PROGRAMS = (ClosedJaxpr, Jaxpr)
_NUM_KEPT = 32
_VECTORS = "xla_cpu_prefer_vector_width"
_MOST_CONSTANT_BYTES = 4 << 20  # of data that a density was closed over, which are in the text and in the program

_kept: OrderedDict[Hashable, Callable[..., list[Any]]] = OrderedDict()
_lock = threading.Lock()


def compiled(function: Callable[..., PyTree], *args: PyTree, donate_argnums: tuple[int, ...] = ()) -> Callable:
    """Compile a function, or take the program that an earlier one of the same text was compiled to.

    The last 32 programs are kept. Programs that call back into Python, whose text does not tell what they call, and
    those with more than some megabytes of constants are compiled each time; all are where JAX is set to pass constants
    as arguments.

    Args:
        function: A function of pytrees of arrays, and to one.
        *args: Arguments of the shapes, kinds and places that it is compiled for; they are not computed with.
        donate_argnums: Numbers of the arguments whose memory the results may take.

    Returns:
        The compiled function, for arguments as those given.
    """
    leaves, structure = jax.tree.flatten(args)
    ends = [0]
    for arg in args:
        ends.append(ends[-1] + jax.tree.structure(arg).num_leaves)
    donated = tuple(leaf for number in donate_argnums for leaf in range(ends[number], ends[number + 1]))
    # found while the function is traced: with a program of another function comes another function's structure
    result: list[Any] = []

    def of_leaves(*leaves: Any) -> list[Any]:
        values, of_values = jax.tree.flatten(function(*structure.unflatten(leaves)))
        result.append(of_values)
        return values

    of_leaves.__name__ = getattr(function, "__name__", "program")
    # an argument that is not used would be missing in the text, which then would not tell the others apart
    traced = jax.jit(of_leaves, donate_argnums=donated, keep_unused=True).trace(*leaves)
    program = _program(traced, tuple(getattr(leaf, "sharding", None) for leaf in leaves))

    def call(*args: PyTree) -> PyTree:
        return result[0].unflatten(program(*jax.tree.leaves(args)))

    return call


def compiler_options(platform: str | None = None) -> dict[str, str | bool]:
    """What :func:`geodax.sample` compiles with, for a loop of your own: ``jax.jit(loop, compiler_options=...)``.

    On processors with vectors of 512 bits (AVX-512) all of them are used, which halves the time of the noise and the
    metrics of stochastic-gradient samplers; on others nothing changes. What ``XLA_FLAGS`` says of it is left.

    Args:
        platform: ``"cpu"``, ``"gpu"``, ...; None for where JAX puts arrays by default.

    Returns:
        Options of XLA by name; none where there is nothing to say.
    """
    if (platform or jax.default_backend()) != "cpu" or _VECTORS in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {_VECTORS: "512"} if _knows_vectors() else {}


@functools.cache
def _knows_vectors() -> bool:
    """Whether this version of XLA takes the option; it refuses those that it does not know."""
    lowered = jax.jit(lambda: 0).lower()
    try:
        lowered.compile(compiler_options={_VECTORS: "512"})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _program(traced: jax.stages.Traced, places: tuple[Hashable, ...]) -> Callable[..., list[Any]]:
    lowered = traced.lower()
    here = jnp.zeros(()).sharding  # where arguments go that have no place, such as those of NumPy
    named = next((place for place in places if isinstance(place, jax.sharding.Sharding)), here)
    options = compiler_options(next(iter(named.device_set)).platform)
    if _constants_are_arguments() or _constant_bytes(traced.jaxpr) > _MOST_CONSTANT_BYTES:
        return interruptible(lowered.compile, compiler_options=options)
    text = lowered.as_text()
    if "callback" in text:
        return interruptible(lowered.compile, compiler_options=options)
    # in the text keys of both kinds of jax.random are arrays of integers
    kinds = (tuple(traced.jaxpr.in_avals), tuple(traced.jaxpr.out_avals))
    key = (hashlib.sha256(text.encode()).digest(), kinds, places, here)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    program = interruptible(lowered.compile, compiler_options=options)
    with _lock:
        _kept[key] = program
        while len(_kept) > _NUM_KEPT:
            _kept.popitem(last=False)
    return program


def _constants_are_arguments() -> bool:
    """Whether JAX hands constants over beside a program, whose text then does not tell them apart."""
    return getattr(jax.config, "jax_use_simplified_jaxpr_constants", True)


def _constant_bytes(program: Any) -> int:
    """Size of the arrays that a program and those within it hold."""
    total, inner = 0, program
    if isinstance(program, ClosedJaxpr):
        total, inner = sum(getattr(constant, "nbytes", 0) for constant in program.consts), program.jaxpr
    if not isinstance(inner, Jaxpr):
        return total
    within = [equation.params for equation in inner.eqns]
    return total + sum(map(_constant_bytes, jax.tree.leaves(within, is_leaf=lambda x: isinstance(x, _PROGRAMS))))
