r"""Gaussian noise for a whole pytree, cheaply.

In single precision a stochastic-gradient step on a small network costs about as much as JAX's normal variates for its
parameters. Here they come from a counter-based generator that vectorises: three words of a JAX key, the number of the
entry as the counter, a 32-bit mixing function with three multiplications (Wellons' ``triple32``) twice over, keyed
before and between,

.. math::
    c = \mathrm{mix}(i + k_0), \qquad u = \mathrm{mix}(c \oplus k_1), \qquad v = \mathrm{mix}(c + k_2),

and the transform of Box and Muller: :math:`\sqrt{-2 \log u}` times cosine and sine of :math:`2 \pi v`, those by
polynomials on an eighth of the circle with the quadrant taken from two bits. The first word has 31 bits, so that draws
reach 6.6 standard deviations. Other dtypes than ``float32`` take JAX's generator.
"""

import math

import jax
import jax.numpy as jnp

from geodax._types import Array, PRNGKey, PyTree

_SMALL = 2048  # below it JAX's generator costs less than the call is worth


def standard_normal(key: PRNGKey, like: PyTree) -> PyTree:
    """Standard normal noise shaped like a pytree, real and imaginary parts of complex leaves each of variance one.

    Args:
        key: A random key.
        like: Arrays of floating-point or complex numbers.

    Returns:
        The noise; independent for other keys, other leaves and other entries.
    """
    leaves, structure = jax.tree.flatten(like)
    noise = [_leaf(jax.random.fold_in(key, i), leaf) for i, leaf in enumerate(leaves)]
    return structure.unflatten(noise)


def _leaf(key: PRNGKey, leaf: Array) -> Array:
    if leaf.dtype == jnp.float32 and leaf.size >= _SMALL:
        return fast_normal(key, leaf.size).reshape(leaf.shape)
    draw = jax.random.normal(key, leaf.shape, leaf.dtype)
    return math.sqrt(2.0) * draw if jnp.iscomplexobj(draw) else draw


def fast_normal(key: PRNGKey, size: int) -> Array:
    """Standard normal variates in single precision.

    Args:
        key: A random key.
        size: How many.

    Returns:
        An array of shape (size,).
    """
    words = jax.random.bits(key, (3,), jnp.uint32)
    half = (size + 1) // 2
    counter = _mix(jax.lax.iota(jnp.uint32, half) + words[0])
    radius_bits, angle_bits = _mix(counter ^ words[1]), _mix(counter + words[2])
    # the middle of one of 2^31 cells: never 0
    u = ((radius_bits >> jnp.uint32(1)).astype(jnp.int32).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31)
    radius = jnp.sqrt(-2.0 * jnp.log(u))
    # an angle in [-pi/4, pi/4) from 30 bits, and two bits for the quadrant
    x = (angle_bits << jnp.uint32(2)).astype(jnp.int32).astype(jnp.float32) * jnp.float32(math.pi * 2.0**-33)
    x2 = x * x
    sine = x * (1.0 + x2 * (-1.6666654611e-1 + x2 * (8.3321608736e-3 - 1.9515295891e-4 * x2)))
    cosine = (
        1.0 - 0.5 * x2 + x2 * x2 * (4.166664568298827e-2 + x2 * (-1.388731625493765e-3 + 2.443315711809948e-5 * x2))
    )
    is_turned = (angle_bits >> jnp.uint32(31)) == 1
    sign = jnp.where((angle_bits & jnp.uint32(0x40000000)) == 0, radius, -radius)
    # quarter turns: (c, s), (-s, c), and their opposites
    first, second = jnp.where(is_turned, -sine, cosine), jnp.where(is_turned, cosine, sine)
    return jnp.concatenate([sign * first, sign * second])[:size]


def _mix(x: Array) -> Array:
    x = (x ^ (x >> jnp.uint32(17))) * jnp.uint32(0xED5AD4BB)
    x = (x ^ (x >> jnp.uint32(11))) * jnp.uint32(0xAC4C1B51)
    x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(0x31848BAB)
    return x ^ (x >> jnp.uint32(14))
