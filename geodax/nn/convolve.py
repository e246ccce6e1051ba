"""Convolutions of one image that are as fast inside compiled loops as outside.

On a processor XLA computes a convolution within a loop, such as that of a sampler, one number at a time: 20 to 40 times
slower than outside (https://github.com/jax-ml/jax/issues/12868). There the convolution is a sum of matrix products, one
for each entry of the kernel; on other devices it is XLA's.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array


def convolve(
    x: Float[Array, "c height width"], kernel: Float[Array, "o c h w"], stride: int, padding: int | str
) -> Float[Array, "o out_height out_width"]:
    """Convolve one image, as :func:`jax.lax.conv` does, without a bias and with the same stride in both directions.

    Padding is the number of rows and columns of zeros on each side, or ``"SAME"``, ``"SAME_LOWER"`` or ``"VALID"``.
    """
    sides = _padding(x.shape, kernel.shape[2:], stride, padding)

    def by_products(x: Array, kernel: Array) -> Array:
        wide = jnp.float32 if _tree.is_half(kernel) else kernel.dtype
        total = jnp.zeros((), wide)
        for (i, j), part in _shifted(x.transpose(1, 2, 0), kernel.shape[2:], stride, sides, axes=(0, 1)):
            total = total + jnp.matmul(part, kernel[:, :, i, j].T, preferred_element_type=wide)
        return total.astype(kernel.dtype).transpose(2, 0, 1)

    def by_xla(x: Array, kernel: Array) -> Array:
        return jax.lax.conv_general_dilated(x[None], kernel, (stride, stride), sides)[0]

    return jax.lax.platform_dependent(x, kernel, cpu=by_products, default=by_xla)


def patches_of(
    x: Float[Array, "c height width"], sizes: tuple[int, int], stride: int, padding: int | str
) -> Float[Array, "chw out_height out_width"]:
    """Return the parts of an image that meet the kernel, channel by channel and row by row of the kernel."""
    parts = [part for _, part in _shifted(x, sizes, stride, _padding(x.shape, sizes, stride, padding), axes=(1, 2))]
    stacked = jnp.stack(parts, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def _padding(shape: tuple[int, ...], sizes: tuple[int, ...], stride: int, padding: int | str) -> list[tuple[int, int]]:
    if isinstance(padding, str):
        return list(jax.lax.padtype_to_pads(shape[1:], sizes, (stride, stride), padding))
    return [(padding, padding)] * 2


def _shifted(
    x: Array, sizes: tuple[int, ...], stride: int, sides: list[tuple[int, int]], axes: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], Array]]:
    """Entries of the kernel, and the pixels that they meet."""
    pads = [(0, 0)] * x.ndim
    for axis, side in zip(axes, sides, strict=True):
        pads[axis] = side
    padded = jnp.pad(x, pads)
    last = [stride * ((padded.shape[axis] - size) // stride) for axis, size in zip(axes, sizes, strict=True)]
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            part = jax.lax.slice_in_dim(padded, i, i + last[0] + 1, stride, axes[0])
            yield (i, j), jax.lax.slice_in_dim(part, j, j + last[1] + 1, stride, axes[1])
