"""Many scalar uniforms from one key at low cost.

A trajectory needs one uniform for each of its points. Splitting JAX keys for them costs more than a gradient of a
small model, so they are computed from two words of the iteration's key by the same counter-based generator that
JAX uses, Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011), written out so that XLA can fuse it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import UInt32

from geodax._types import Array, PRNGKey, Scalar

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

Words = UInt32[Array, " 2"]


def key_words(key: PRNGKey) -> tuple[Words, UInt32[Array, ""]]:
    """Two random words that represent a key, and 32 random bits more."""
    bits = jax.random.bits(key, (3,), jnp.uint32)
    return bits[:2], bits[2]


def threefry(words: Words, counter: Array, stream: int) -> tuple[Array, Array]:
    """Two random 32-bit words for each counter; ``stream`` is a second counter, fixed at compile time."""
    keys = (words[0], words[1], words[0] ^ words[1] ^ jnp.uint32(_PARITY))
    x = counter.astype(jnp.uint32) + keys[0]
    y = jnp.uint32(stream) + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x = x + y
            y = ((y << jnp.uint32(rotation)) | (y >> jnp.uint32(32 - rotation))) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return x, y


def uniform(words: Words, counter: Array, stream: int, dtype: Any) -> Scalar:
    """A uniform draw from the open interval (0, 1) for each counter, with the full precision of its dtype.

    In half precision it is rounded, at most to 1.
    """
    high, low = threefry(words, counter, stream)
    if jnp.finfo(dtype).bits > 32:
        return (
            (high >> jnp.uint32(6)).astype(dtype) * 2.0**-26
            + (low >> jnp.uint32(6)).astype(dtype) * 2.0**-52
            + 2.0**-53
        )
    # half precision cannot hold the word
    return ((high >> jnp.uint32(9)).astype(jnp.float32) * 2.0**-23 + 2.0**-24).astype(dtype)
