"""Functions of a model as programs that take the model's data as arguments.

NumPyro runs the model with its data as constants, so that a model may use their values (shapes, masks, numbers of
groups). JAX lists the arrays and the numbers that end up in the function. Operations on these alone are done once,
outside the program; their results become arguments. Other data of equal shapes then need no compilation, and since the
model is traced in every call, nothing is reused that the data or the model have changed.
"""

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from geodax._types import Array, PyTree
from geodax.run.programs import compiled, on_leaves

_LARGER = {"broadcast_in_dim", "iota"}  # operations whose results are larger than what they are made of
_USUAL = {0.0, 0.5, 1.0, 2.0}  # numbers that formulas have


class Separated(NamedTuple):
    """A function of arrays, ``call(data, *args)``, with its data, and the shapes and types of its result."""

    call: Callable[..., PyTree]
    data: tuple[Array, ...]
    result: PyTree


def separated(function: Callable[..., PyTree], *args: PyTree) -> Separated:
    """Separate a function of pytrees of arrays, for arguments like these, from the arrays that it holds."""
    leaves, structure = jax.tree.flatten(args)
    of_leaves, result = on_leaves(function, structure)
    traced = jax.make_jaxpr(of_leaves)(*leaves)
    flat = jax.make_jaxpr(lambda *leaves: _inlined(traced, leaves))(*leaves)
    first, rest, needed = _divided(flat.jaxpr)
    constants, arguments, results = flat.jaxpr.constvars, flat.jaxpr.invars, flat.jaxpr.outvars
    of_results = result[0]

    def call(data: tuple[Array, ...], *args: PyTree) -> PyTree:
        there = dict(zip(needed, data, strict=True)) | dict(zip(arguments, jax.tree.leaves(args), strict=True))
        return of_results.unflatten(_run(rest, there, results))

    def prepare(*constants_: Any) -> tuple[Array, ...]:
        return tuple(_run(first, dict(zip(constants, constants_, strict=True)), needed))

    data = tuple(jnp.asarray(constant) for constant in flat.consts)
    if any(isinstance(array, Tracer) for array in data):
        raise TypeError(
            "A model cannot be translated, sampled or used for predictions inside jax.jit, jax.vmap or jax.grad: its "
            "data must be known. Do so outside, in a loop over the data sets: other data of the same shapes compile "
            "nothing. For a log density that is a function of the data use numpyro.infer.util.log_density."
        )
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in flat.out_avals]
    return Separated(call, compiled(prepare, *data)(*data) if first else prepare(*data), of_results.unflatten(shapes))


def reusable(function: Callable[..., PyTree], *args: PyTree) -> Callable[..., PyTree]:
    """The function, compiled for arguments of these shapes; compiled programs are reused for other data."""
    call, data, _ = separated(function, *args)
    program = compiled(call, data, *args)
    return lambda *args: program(data, *args)


def dependent(function: Callable[..., Mapping[str, Any]], *args: PyTree) -> set[str]:
    """Names of the results that depend on the arguments."""
    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    reached = set(traced.jaxpr.invars)
    for equation in traced.jaxpr.eqns:
        reached.update(equation.outvars if not reached.isdisjoint(_variables([equation])) else ())
    names = [name for name, shape in shapes.items() for _ in jax.tree.leaves(shape)]
    found = zip(names, traced.jaxpr.outvars, strict=True)
    return {name for name, variable in found if not isinstance(variable, Literal) and variable in reached}


def identity_of(function: Callable[..., PyTree], *args: PyTree) -> Hashable:
    """A key that is equal for functions that compute the same; None if it is not known."""
    traced = jax.jit(function, keep_unused=True).trace(*args)
    text = traced.lower().as_text()
    if "callback" in text:  # the text does not identify the function
        return None
    structures = tuple(map(jax.tree.structure, (args, traced.out_info)))
    return hashlib.sha256(text.encode()).digest(), tuple(traced.jaxpr.in_avals), structures


def _run(equations: list[Any], there: dict[Any, Any], results: list[Any], inline: bool = False) -> list[Any]:
    """Values of the results, from values of the variables that the equations begin with."""

    def value(variable: Any) -> Any:
        if not isinstance(variable, Literal):
            return there[variable]
        return _as_data(variable) if inline else variable.val

    for equation in equations:
        values = [value(variable) for variable in equation.invars]
        if inline and equation.primitive.name in ("jit", "pjit"):
            found = _inlined(equation.params["jaxpr"], values)
        else:
            bound = equation.primitive.get_bind_params(equation.params)
            functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX 0.9
            found = equation.primitive.bind(*functions, *values, **params)
            found = found if equation.primitive.multiple_results else [found]
        there.update(zip(equation.outvars, found, strict=True))
    return [jnp.asarray(value(variable)) for variable in results]


def _inlined(program: ClosedJaxpr, args: Any) -> list[Any]:
    """Evaluate a program without inner ``jit``, whose constants and equations then are those of the program."""
    jaxpr = program.jaxpr
    there = dict(zip(jaxpr.constvars, program.consts, strict=True)) | dict(zip(jaxpr.invars, args, strict=True))
    return _run(jaxpr.eqns, there, jaxpr.outvars, inline=True)


def _as_data(literal: Literal) -> Any:
    """A number that may come from the data, such as a maximum, as an array, which becomes data; others as they are."""
    aval: Any = literal.aval
    is_real = jnp.issubdtype(aval.dtype, jnp.floating) and aval.shape == () and not aval.weak_type
    if not is_real or not math.isfinite(literal.val) or abs(float(literal.val)) in _USUAL:
        return literal.val
    with jax.ensure_compile_time_eval():
        return jnp.asarray(literal.val, aval.dtype)


def _divided(jaxpr: Jaxpr) -> tuple[list[Any], list[Any], list[Any]]:
    """The equations of the constants alone, the others, and the variables that the others and the results need."""
    known, first, rest = set(jaxpr.constvars), [], []
    for equation in jaxpr.eqns:
        is_known = known.issuperset(_variables([equation])) and not equation.effects
        (first if is_known else rest).append(equation)
        known.update(equation.outvars if is_known else ())
    needed = dict.fromkeys(_variables(rest, jaxpr.outvars))
    for equation in reversed(first):  # large copies of small arrays are no arguments
        if equation.primitive.name in _LARGER and not needed.keys().isdisjoint(equation.outvars):
            rest.insert(0, equation)
            known.difference_update(equation.outvars)
            needed.update(dict.fromkeys(_variables([equation])))
    return first, rest, [variable for variable in needed if variable in known]


def _variables(equations: list[Any], results: Sequence[Any] = ()) -> list[Any]:
    read = [variable for equation in equations for variable in equation.invars]
    return [variable for variable in (*read, *results) if not isinstance(variable, Literal)]
