"""Cache compiled programs for later calls that need the same program.

JAX identifies a compiled function by its Python function. Each run creates new functions that capture a sampler and its
posterior, so a cross-validation or a study over seeds would compile the same program in every call. This module
identifies a program by its text instead.

On CPUs with 512-bit vectors XLA uses half of the width by default; programs compiled here use all of it. XLA's fusion
emitters take a third to a half of the time of compilation. They make long elementwise expressions up to twice as fast,
so programs with few of them, or few passes, are compiled without. A program that computes little altogether is not
optimised, which takes two thirds of the time of compilation.
"""

import functools
import hashlib
import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from geodax._precision import configured_precision, full_precision
from geodax._types import PyTree
from geodax.run.program_cache import keep_on_disk
from geodax.run.signals import interruptible

_T = TypeVar("_T")
_PROGRAMS = (ClosedJaxpr, Jaxpr)
_NUM_KEPT, _NUM_MADE = 32, 64
_VECTORS, _EMITTERS = "xla_cpu_prefer_vector_width", "xla_cpu_use_fusion_emitters"
_EFFORT = "xla_backend_optimization_level"
_FUNCTIONS = {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "digamma", "erf"}
_FUNCTIONS |= {"erf_inv", "erfc", "exp", "exp2", "expm1", "lgamma", "log", "log1p", "logistic", "pow", "rsqrt", "sin"}
_FUNCTIONS |= {"sinh", "sqrt", "tan", "tanh"}
_PER_RANDOM_NUMBER = 400  # operations on words
_FEW_FUNCTIONS = 2_000  # evaluations of exp, log, tanh, ... in one pass through a program
_FEW_IN_ALL = 2e7  # of them in all passes
_LITTLE = 5e9  # bytes of all passes, inner loops counted once: some tenths of a second more without optimisation
_MOST_CONSTANT_BYTES = 4 << 20  # captured data, which are in the text and in the program

_made: OrderedDict[Hashable, Any] = OrderedDict()
_processes: list[int] = []  # the process that has compiled programs
_kept: OrderedDict[Hashable, Callable[..., list[Any]]] = OrderedDict()
_lock = threading.Lock()


class Same:
    """A key that is equal to that of the same object only; it does not keep the object, nor its data, alive."""

    def __init__(self, of: Any):
        self._of, self._hash = weakref.ref(of), id(of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and (mine := self._of()) is not None and mine is other._of()

    def __hash__(self) -> int:
        return self._hash


def reused(
    key: Hashable,
    make: Callable[[], _T],
    is_small: Callable[[_T], bool] = lambda result: True,
    kept: OrderedDict[Hashable, Any] = _made,
    most: int = _NUM_MADE,
) -> _T:
    """Return the result of an earlier call with an equal key, or a new one; the last ``most`` small ones are kept.

    The key determines the result; functions and other objects in it are :class:`Same`.
    """
    with _lock:
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    result = make()
    if is_small(result):
        with _lock:
            kept[key] = result
            while len(kept) > most:
                kept.popitem(last=False)
    return result


def kinds_of(args: PyTree) -> Hashable:
    """What of arguments the program depends on: their structure, shapes, types and placements."""
    leaves, structure = jax.tree.flatten(args)
    kinds = tuple(
        (jnp.shape(leaf), jnp.result_type(leaf), getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None))
        for leaf in leaves
    )
    return structure, kinds, jnp.result_type(float)


def compiled(
    function: Callable[..., PyTree],
    *args: PyTree,
    donate_argnums: tuple[int, ...] = (),
    key: Hashable = None,
    is_exact: bool = True,
    num_passes: int | None = None,
) -> Callable:
    """Compile a function of pytrees of arrays, or reuse an earlier program with the same text.

    The last 32 programs are kept. Some programs are compiled each time: those that call back into Python, since the
    text does not identify the callback, those with more than some megabytes of constants, and all programs if JAX is
    set to pass constants as arguments.

    Of the arguments only shapes, types and placements count. An equal ``key`` determines the function, besides the
    kinds of its arguments: an earlier program with it is reused without tracing. With ``is_exact`` products of matrices
    have full precision, instead of that to which JAX is configured. ``num_passes`` says how often the body of its loop,
    or a program without one, runs in all calls; None for often.

    Raises RuntimeError in a process that was forked from one that had compiled programs.
    """
    _require_threads()
    if key is not None:
        precision = getattr(jax.config, "jax_default_matmul_precision", None)
        return reused(
            (key, kinds_of(args), precision, donate_argnums, is_exact, num_passes),
            lambda: compiled(function, *args, donate_argnums=donate_argnums, is_exact=is_exact, num_passes=num_passes),
            lambda call: vars(call)["constant_bytes"] <= _MOST_CONSTANT_BYTES,
        )
    leaves, structure = jax.tree.flatten(args)
    ends = [0]
    for arg in args:
        ends.append(ends[-1] + jax.tree.structure(arg).num_leaves)
    donated = tuple(leaf for number in donate_argnums for leaf in range(ends[number], ends[number + 1]))
    of_leaves, result = on_leaves(function, structure)
    # an unused argument would be missing from the text, so that different programs could have the same text
    with full_precision() if is_exact else configured_precision():
        traced = jax.jit(of_leaves, donate_argnums=donated, keep_unused=True).trace(*leaves)
    program = _program(traced, tuple(getattr(leaf, "sharding", None) for leaf in leaves), num_passes)

    def call(*args: PyTree) -> PyTree:
        return result[0].unflatten(program(*jax.tree.leaves(args)))

    vars(call)["constant_bytes"] = _constant_bytes(traced.jaxpr)
    return call


def on_leaves(function: Callable[..., PyTree], structure: Any) -> tuple[Callable[..., list[Any]], list[Any]]:
    """The function of the leaves of arguments of this structure, and a list that tracing gives its result's structure.

    A cached program of another function would not give the structure of this one.
    """
    result: list[Any] = []

    def of_leaves(*leaves: Any) -> list[Any]:
        values, of_values = jax.tree.flatten(function(*structure.unflatten(leaves)))
        result.append(of_values)
        return values

    of_leaves.__name__ = getattr(function, "__name__", "program")
    return of_leaves, result


def _require_threads() -> None:
    """Raise an error in a forked process, which lacks JAX's threads and would wait for them for ever."""
    if not _processes:
        _processes.append(os.getpid())
    if _processes[0] != os.getpid():
        raise RuntimeError(
            "This process was forked from one in which geodax had already run, and JAX does not work in forked "
            'processes: it would hang. Start processes by multiprocessing.get_context("spawn") or "forkserver", or by '
            "joblib, use threads, or fork before anything has run."
        )


def compiler_options(platform: str | None = None) -> dict[str, str | bool]:
    """Compiler options of :func:`geodax.sample`, for your own loop: ``jax.jit(loop, compiler_options=...)``.

    On CPUs with 512-bit vectors (AVX-512) they select the full width, which halves the time of the noise and the
    metrics of stochastic-gradient samplers; on others nothing changes. A setting in ``XLA_FLAGS`` takes precedence.

    Args:
        platform: ``"cpu"``, ``"gpu"``, ...; None for the default platform of JAX.

    Returns:
        Options of XLA by name; empty if there are none to set.
    """
    if (platform or jax.default_backend()) != "cpu" or _VECTORS in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {_VECTORS: "512"} if _knows(_VECTORS, "512") else {}


@functools.cache
def _knows(option: str, value: str | bool) -> bool:
    lowered = jax.jit(lambda: 0).lower()
    try:
        lowered.compile(compiler_options={option: value})
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _options_for(program: ClosedJaxpr, platform: str, num_passes: int | None = None) -> dict[str, str | bool]:
    options = compiler_options(platform)
    if platform != "cpu":
        return options
    passes = math.inf if num_passes is None else num_passes
    functions, num_bytes = _cost(program)
    has_few = functions < _FEW_FUNCTIONS
    does_little = num_bytes * passes < _LITTLE
    for option, value, pays in (
        (_EMITTERS, False, has_few or functions * passes < _FEW_IN_ALL),
        (_EFFORT, "0", has_few and does_little),
    ):
        if pays and option not in os.environ.get("XLA_FLAGS", "") and _knows(option, value):
            options[option] = value
    return options


def _program(
    traced: jax.stages.Traced, places: tuple[Hashable, ...], num_passes: int | None
) -> Callable[..., list[Any]]:
    keep_on_disk()
    lowered = traced.lower()
    here = jnp.zeros(()).sharding  # the place of arguments without a sharding, such as NumPy arrays
    named = next((place for place in places if isinstance(place, jax.sharding.Sharding)), here)
    options = _options_for(traced.jaxpr, next(iter(named.device_set)).platform, num_passes)
    are_arguments = getattr(jax.config, "jax_use_simplified_jaxpr_constants", True)  # constants, missing from the text
    has_text = not are_arguments and _constant_bytes(traced.jaxpr) <= _MOST_CONSTANT_BYTES
    text = lowered.as_text() if has_text else ""
    if not text or "callback" in text:
        return interruptible(lowered.compile, compiler_options=options)
    # in the text, both kinds of PRNG keys are arrays of integers
    kinds = (tuple(traced.jaxpr.in_avals), tuple(traced.jaxpr.out_avals))
    key = (hashlib.sha256(text.encode()).digest(), kinds, places, here, tuple(options.items()))
    return reused(key, lambda: interruptible(lowered.compile, compiler_options=options), kept=_kept, most=_NUM_KEPT)


def _constant_bytes(program: ClosedJaxpr | Jaxpr) -> int:
    """Size of the arrays that a program and its inner programs hold."""
    own = sum(getattr(constant, "nbytes", 0) for constant in getattr(program, "consts", ()))
    return own + sum(_constant_bytes(inner) for equation in program.eqns for inner in _inner(equation))


def _cost(program: ClosedJaxpr | Jaxpr) -> tuple[int, int]:
    """Evaluations of exp, log, ... in one pass, and bytes read and written, about as XLA's analysis counts them.

    That takes a tenth of the time of a compilation, since it converts the program first.
    """
    functions, num_bytes = 0, 0
    for equation in program.eqns:
        inner = _inner(equation)
        for more, more_bytes in map(_cost, inner):
            functions, num_bytes = functions + more, num_bytes + more_bytes
        if not inner:
            name, values = equation.primitive.name, [v.aval for v in (*equation.outvars, *equation.invars)]
            arrays: list[Any] = [value for value in values if hasattr(value, "shape")]
            size = sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays)
            num_bytes += size * (_PER_RANDOM_NUMBER if name == "random_bits" else 1)
            functions += math.prod(arrays[0].shape) if name in _FUNCTIONS else 0
    return functions, num_bytes


def _inner(equation: Any) -> list[ClosedJaxpr | Jaxpr]:
    found = jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, _PROGRAMS))
    return [x for x in found if isinstance(x, _PROGRAMS)]
