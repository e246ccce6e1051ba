r"""Fast Gaussian noise and random signs for pytrees.

In single precision a stochastic-gradient step on a small network costs about as much as JAX's normal variates for its
parameters. This module uses a counter-based generator that vectorises. It takes six words of a JAX key, the index of
the entry as counter, and a 32-bit mixing function with three multiplications (Wellons' ``triple32``) into which three
words are added between the rounds, twice:

.. math::
    u = \mathrm{mix}_{k_0 k_1 k_2}(i), \qquad w = \mathrm{mix}_{k_3 k_4 k_5}(i),

and one half of the Box-Muller transform, :math:`\sqrt{-2 \log u}\, \sin(\pi w)` with u in (0, 1) and w in
[-1/2, 1/2); the sine of this angle has the same distribution as the cosine of a uniform angle. Every entry has its own
words, because a compiler that fuses the transform with its consumers would compute both halves for both. Logarithm and
sine are polynomials. The first word has 31 bits, so draws reach 6.6 standard deviations. Dtypes other than ``float32``
use JAX's generator.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from geodax._types import Array, PRNGKey, PyTree, Scalar

_ROOT_HALF = 0x3F3504F3  # bits of sqrt(1/2)
# interpolation at Chebyshev nodes: (log(1 + m) - m) / m^2 on [sqrt(1/2) - 1, sqrt(2) - 1] to 1.4e-7 in the logarithm,
# sin(pi w) / w in w^2 on [0, 1/4] to 7e-9 in the sine
_LOG = (-0.500000856, 0.3333435455, -0.249834482, 0.1991821156, -0.1710210694, 0.1608034902, -0.1043441984)
_SINE = (3.14159264, -5.167710084, 2.550077523, -0.5982912856, 0.0776576603)
_SMALL = 2048  # smaller leaves use JAX's generator


def of_words(function: Callable[[Array], Array], x: Array) -> Array:
    """Apply a function to an array, or to the words of PRNG keys."""
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return function(x)
    return jax.random.wrap_key_data(function(jax.random.key_data(x)), impl=jax.random.key_impl(x))


def standard_normal(key: PRNGKey, like: PyTree) -> PyTree:
    """Draw standard normal noise with the structure of a pytree of floating-point or complex arrays.

    The real and imaginary parts of complex leaves each have variance one. The noise is independent across keys, leaves
    and entries.
    """

    def draw(key: PRNGKey, shape: tuple[int, ...], dtype: Any) -> Array:
        if dtype == jnp.float32 and math.prod(shape) >= _SMALL:
            return fast_normal(key, shape)
        normal = jax.random.normal(key, shape, dtype)
        return math.sqrt(2.0) * normal if jnp.iscomplexobj(normal) else normal

    return _cut(key, like, draw)


def log_uniform(key: PRNGKey, dtype: Any) -> Scalar:
    """Logarithm of a uniform variate, to accept a proposal whose log-probability is known.

    JAX draws integer multiples of a rounding unit, including 0, whose logarithm would be below that of any probability.
    Here 0 is replaced by the midpoint of its cell.
    """
    uniform = jax.random.uniform(key, (), dtype)
    return jnp.log(jnp.maximum(uniform, 0.5 * jnp.finfo(dtype).eps))


def random_signs(key: PRNGKey, like: PyTree) -> PyTree:
    """Draw independent signs, 1 or -1 with equal probability, with the structure and dtypes of a pytree."""

    def draw(key: PRNGKey, shape: tuple[int, ...], dtype: Any) -> Array:
        if math.prod(shape) < _SMALL:
            return jax.random.rademacher(key, shape, dtype)
        words = jax.random.bits(key, (3,), jnp.uint32)
        bits = _mix(flat_index(shape), words)
        return jnp.where(bits >> jnp.uint32(31) == 0, 1.0, -1.0).astype(dtype)

    return _cut(key, like, draw)


def _cut(key: PRNGKey, like: PyTree, draw: Callable[[PRNGKey, tuple[int, ...], Any], Array]) -> PyTree:
    """Draw random numbers for every leaf: one draw for each large leaf, and one for all small leaves of a dtype.

    One draw for many small leaves compiles in the time of one; a large leaf would be copied out of it. A large leaf is
    drawn in its shape, so that devices among which it is split draw their own entries only.
    """
    leaves, structure = jax.tree.flatten(like)
    groups: dict[tuple[Any, int | None], list[int]] = {}
    for i, leaf in enumerate(leaves):
        groups.setdefault((leaf.dtype, i if leaf.size >= _SMALL else None), []).append(i)
    noise = list(leaves)
    for number, members in enumerate(groups.values()):
        *starts, total = itertools.accumulate(leaves[i].size for i in members)
        part = key if len(groups) == 1 else jax.random.fold_in(key, number)
        first = leaves[members[0]]
        if len(members) == 1 and first.size >= _SMALL:
            noise[members[0]] = draw(part, first.shape, first.dtype)
            continue
        drawn = draw(part, (total,), first.dtype)
        if len(members) > 1:  # or a compiler may repeat the draw for each part; XLA on CPUs ignores the barrier
            drawn = jax.lax.optimization_barrier(drawn)
        for i, piece in zip(members, jnp.split(drawn, starts), strict=True):
            noise[i] = piece.reshape(leaves[i].shape)
    return structure.unflatten(noise)


def fast_normal(key: PRNGKey, shape: tuple[int, ...]) -> Array:
    """Draw standard normal variates in single precision."""
    return fast_normals(key, [shape])[0]


def fast_normals(key: PRNGKey, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Draw the pieces of one vector of standard normal variates, each in its shape and place."""
    words = jax.random.bits(key, (6,), jnp.uint32)
    starts = itertools.accumulate(map(math.prod, shapes), initial=0)
    return [_normal_from(words, flat_index(s) + jnp.uint32(i % 2**32)) for s, i in zip(shapes, starts, strict=False)]


def _normal_from(words: Array, counter: Array) -> Array:
    radius_bits, angle_bits = _mix(counter, words[:3]), _mix(counter, words[3:])
    radius = jnp.sqrt(-2.0 * _log_of_cell(radius_bits >> jnp.uint32(1)))
    w = angle_bits.astype(jnp.int32).astype(jnp.float32) * jnp.float32(2.0**-32)
    return radius * (w * _polynomial(_SINE, w * w))


def flat_index(shape: tuple[int, ...]) -> Array:
    """The index of each entry of an array in row-major order, modulo 2^32."""
    index, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        index = index + jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride % 2**32)
        stride *= shape[axis]
    return index


def _mix(x: Array, words: Array) -> Array:
    x = x + words[0]
    x = (x ^ (x >> jnp.uint32(17))) * jnp.uint32(0xED5AD4BB) + words[1]
    x = (x ^ (x >> jnp.uint32(11))) * jnp.uint32(0xAC4C1B51) + words[2]
    x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(0x31848BAB)
    return x ^ (x >> jnp.uint32(14))


def _log_of_cell(cell: Array) -> Array:
    """Logarithm of the midpoint of one of 2^31 cells of the unit interval, to 2e-7; finite and at most 0."""
    middle = cell.astype(jnp.int32).astype(jnp.float32) + 0.5
    # mantissa in [sqrt(1/2), sqrt(2)), to avoid cancellation near one
    shifted = jax.lax.bitcast_convert_type(middle, jnp.int32) - jnp.int32(_ROOT_HALF)
    exponent = (shifted >> 23).astype(jnp.float32)
    m = jax.lax.bitcast_convert_type((shifted & jnp.int32(0x7FFFFF)) + jnp.int32(_ROOT_HALF), jnp.float32) - 1.0
    return m + m * m * _polynomial(_LOG, m) + jnp.float32(math.log(2.0)) * (exponent - 31.0)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.float32(coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + jnp.float32(coefficient)
    return value
