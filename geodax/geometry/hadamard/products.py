"""The transform of rows of 2^k numbers in plain JAX: one product with the matrix, or with each of its factors."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array
from geodax.geometry.hadamard.matrices import hadamard_matrix

_LAST, _OTHER = 32, 16  # sizes of the factors; these and the next by measurement, benchmarks/hadamard.py
_FITS_THE_CACHE, _NUMBERS_AT_ONCE = 2**20, 2**17
_EXACT = jax.lax.Precision.HIGHEST  # some accelerators would round single precision


def multiply(a: Array, b: Array) -> Array:
    """Matrix product without rounding of the factors."""
    return jnp.matmul(a, b, precision=_EXACT)


def dense(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """Multiply by the dense matrix, O(D^2)."""
    return multiply(x, jnp.asarray(hadamard_matrix(x.shape[-1]), x.dtype))


def kronecker(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """Multiply by factors of sizes 32 and 16 whose Kronecker product is the matrix, O(D log D)."""
    rows = x.reshape(-1, x.shape[-1])
    # on a CPU many rows are processed in blocks that stay in the cache between the products
    done = jax.lax.platform_dependent(rows, cpu=_in_blocks, default=_factor_by_factor)
    return done.reshape(x.shape)


def _in_blocks(rows: Float[Array, "rows d"]) -> Float[Array, "rows d"]:
    count, size = rows.shape
    if rows.size <= _FITS_THE_CACHE:
        return _factor_by_factor(rows)
    at_once = max(1, _NUMBERS_AT_ONCE // size)
    whole = count - count % at_once
    done = jax.lax.map(_factor_by_factor, rows[:whole].reshape(-1, at_once, size)).reshape(whole, size)
    return done if whole == count else jnp.concatenate([done, _factor_by_factor(rows[whole:])])


def _factor_by_factor(rows: Float[Array, "rows d"]) -> Float[Array, "rows d"]:
    count, size = rows.shape
    done = min(_LAST, size)
    x = dense(rows.reshape(-1, done))
    while done < size:
        factor = min(_OTHER, size // done)
        groups = x.reshape(-1, factor, done)
        # one copy of the matrix per group: otherwise the products would permute the digits
        matrices = jnp.broadcast_to(jnp.asarray(hadamard_matrix(factor), x.dtype), (len(groups), factor, factor))
        x = multiply(matrices, groups)
        done *= factor
    return x.reshape(count, size)
