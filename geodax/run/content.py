"""A checksum of arrays that are split over devices, computed in their place, the same for any split."""

import jax
import jax.numpy as jnp

from geodax._random import flat_index
from geodax._types import Array, PyTree

_MULTIPLIERS = (0x9E3779B1, 0x85EBCA77)  # odd, with well mixed bits


@jax.jit
def content_of(tree: PyTree) -> Array:
    """Two words for each array, shape (arrays, 2); integers add up to the same sum in any order."""
    return jnp.stack([jnp.stack([_sum(leaf, by) for by in _MULTIPLIERS]) for leaf in jax.tree.leaves(tree)])


def _sum(leaf: Array, multiplier: int) -> Array:
    if jnp.iscomplexobj(leaf):
        return _sum(leaf.real, multiplier) + jnp.uint32(multiplier) * _sum(leaf.imag, multiplier)
    bits = leaf.dtype.itemsize * 8
    if leaf.dtype == bool or bits == 8:
        words = leaf.astype(jnp.uint32)
    elif bits == 16:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint16).astype(jnp.uint32)
    else:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32)  # two of 64 bits, along a new axis
    index = flat_index(words.shape)
    mixed = (words ^ (index * jnp.uint32(multiplier))) * jnp.uint32(multiplier)
    mixed = (mixed ^ (mixed >> jnp.uint32(15))) * jnp.uint32(_MULTIPLIERS[0])
    return jnp.sum(mixed ^ (mixed >> jnp.uint32(13)), dtype=jnp.uint32)
