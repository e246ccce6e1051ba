"""The transform on a GPU: a Pallas kernel that reads and writes each row once.

With the index of an entry written in digits, each stage multiplies the last digit by a small Hadamard matrix and moves
it to the front; after all stages every digit has been transformed and is back in its position.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax._types import Array
from geodax.geometry.hadamard.matrices import hadamard_matrix

_DIGIT = 16  # the smallest size of a product on a GPU
_SMALLEST, _LARGEST = _DIGIT**2, 2**13
_ENTRIES_AT_ONCE = 2**13


def can_transform(x: Float[Array, "*rows d"]) -> bool:
    """Whether the kernel supports rows of this size and dtype."""
    return _SMALLEST <= x.shape[-1] <= _LARGEST and x.dtype.name in ("float32", "bfloat16", "float16")


def transform(x: Float[Array, "*rows d"], *, interpret: bool = False) -> Float[Array, "*rows d"]:
    """Compute the orthonormal transform of rows of 2^k numbers, k from 8 to 13, in single or half precision.

    ``interpret`` runs the kernel's operations one by one, on any device.
    """
    from jax.experimental import pallas as pl  # the import takes half a second and is only needed on a GPU
    from jax.experimental.pallas import triton

    size = x.shape[-1]
    rows = x.reshape(-1, size)
    at_once = _ENTRIES_AT_ONCE // size
    count = -(-len(rows) // at_once)
    padded = jnp.pad(rows, ((0, count * at_once - len(rows)), (0, 0)))
    digits = _digits(size)
    matrices = [jnp.asarray(hadamard_matrix(_DIGIT), jnp.float32)] * (_DIGIT in digits)
    if digits[0] != _DIGIT:
        matrices = [_repeated(digits[0]), *matrices]
    whole = [pl.BlockSpec((_DIGIT, _DIGIT), lambda i: (0, 0)) for _ in matrices]
    block = pl.BlockSpec((at_once, size), lambda i: (i, 0))
    moved = pl.pallas_call(
        functools.partial(_kernel, digits=digits),
        out_shape=jax.ShapeDtypeStruct(padded.shape, x.dtype),
        grid=(count,),
        in_specs=[block, *whole],
        out_specs=block,
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=8),
    )(padded, *matrices)
    return moved[: len(rows)].reshape(x.shape)


def _digits(size: int) -> tuple[int, ...]:
    """Factor a size into digits of 16, after one smaller digit if needed."""
    digits = ()
    while size >= _DIGIT:
        digits, size = (*digits, _DIGIT), size // _DIGIT
    return (size, *digits) if size > 1 else digits


def _repeated(digit: int) -> Array:
    """A small matrix repeated to a block diagonal of product size: it acts on the last digit of a group of two."""
    return jnp.asarray(np.kron(np.eye(_DIGIT // digit), hadamard_matrix(digit)), jnp.float32)


def _kernel(x_ref, *references, digits: tuple[int, ...]):
    *matrix_refs, y_ref = references
    values = x_ref[...].astype(jnp.float32)
    count, size = values.shape
    for digit in digits:
        matrix = (matrix_refs[-1] if digit == _DIGIT else matrix_refs[0])[...]
        groups = values.reshape(count * size // _DIGIT, _DIGIT)
        values = jnp.dot(groups, matrix, precision=jax.lax.Precision.HIGHEST)
        values = values.reshape(count, size // digit, digit).swapaxes(1, 2).reshape(count, size)
    y_ref[...] = values.astype(y_ref.dtype)
