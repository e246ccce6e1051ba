"""The transform of rows of 2^k numbers in plain JAX: one product, two products, or butterflies."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array
from geodax.geometry.hadamard.matrices import hadamard_matrix

_ROWS_AT_ONCE = 32
_RADIX = 8


def dense(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """One product with the matrix, O(D^2)."""
    return x @ jnp.asarray(hadamard_matrix(x.shape[-1]), x.dtype)


def kronecker(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """Two products with the matrices of the square root of the size, O(D^1.5)."""
    *rows, size = x.shape
    first = 1 << ((size.bit_length() - 1) // 2)
    second = size // first
    grid = x.reshape(*rows, first, second) @ jnp.asarray(hadamard_matrix(second), x.dtype)
    return (jnp.asarray(hadamard_matrix(first), x.dtype) @ grid).reshape(x.shape)


def butterfly(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """Butterflies of eight, O(D log D): some rows at a time, so that they stay in the cache, and side by side."""
    rows = x.reshape(-1, x.shape[-1])
    whole = len(rows) // _ROWS_AT_ONCE * _ROWS_AT_ONCE
    blocks = rows[:whole].reshape(-1, _ROWS_AT_ONCE, x.shape[-1])
    done = jax.lax.map(lambda block: _columns(block.T).T, blocks).reshape(whole, x.shape[-1])
    return jnp.concatenate([done, _columns(rows[whole:].T).T]).reshape(x.shape)


def _columns(x: Float[Array, "d rows"]) -> Float[Array, "d rows"]:
    size, count = x.shape
    x = x * jnp.asarray(size**-0.5, x.dtype)
    stride = 1
    while stride < size:
        radix = min(_RADIX, size // stride)
        groups = x.reshape(size // (radix * stride), radix, stride, count)
        parts = [groups[:, i] for i in range(radix)]
        distance = 1
        while distance < radix:
            parts = [
                parts[i ^ distance] - parts[i] if i & distance else parts[i] + parts[i | distance] for i in range(radix)
            ]
            distance *= 2
        x = jnp.stack(parts, axis=1).reshape(size, count)
        stride *= radix
    return x
