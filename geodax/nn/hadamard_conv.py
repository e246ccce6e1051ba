"""Convolutions with Walsh-Hadamard weights: the kernel out x in x h x w as the matrix out x ihw."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, Scalar
from geodax.nn.convolve import patches_of
from geodax.nn.hadamard import HadamardWeight
from geodax.nn.layers import kernel_shape, side_padding
from geodax.vi.modules import AbstractVariational


class WHVIConv2d(AbstractVariational):
    """A convolution with a Walsh-Hadamard kernel.

    All positions of an image share one kernel; with one key per image, every image has its own kernel. The kernel is
    never formed: the fast transform is applied to the patches of the image.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Height and width, or one number for both.
        stride: Stride of the convolution.
        padding: Rows and columns of zeros on each side, or ``"SAME"`` or ``"VALID"``.
        use_bias: Whether a bias is added; it is optimised, without a posterior.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
        **options: ``covariance``, ``rank``, ``num_flows``, ``scales``, ``prior_variance``, ``scale_prior_variance``,
            ``initial_deviation`` and ``gain`` of :class:`~geodax.nn.WHVILinear`.

    Attributes:
        weight: The :class:`~geodax.nn.hadamard.HadamardWeight`, out x (in * height * width).
        bias: out, or None.
    """

    weight: HadamardWeight
    bias: Float[Array, " out"] | None
    kernel_size: tuple[int, int] = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: int | str = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | np.integer | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | str = 0,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
        **options: Any,
    ):
        shape, self.stride = kernel_shape("WHVIConv2d", in_channels, out_channels, kernel_size, stride)
        self.weight = HadamardWeight(math.prod(shape[1:]), shape[0], column=False, dtype=dtype, key=key, **options)
        self.bias = jnp.zeros(shape[0], dtype) if use_bias else None
        self.kernel_size = shape[2:]
        self.padding = side_padding("WHVIConv2d", padding)

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        height, width = self.kernel_size
        x = _checks.image("WHVIConv2d", x, self.weight.in_features // (height * width))
        patches = patches_of(x, self.kernel_size, self.stride, self.padding)
        y = jnp.moveaxis(self.weight.apply(jnp.moveaxis(patches, 0, -1), key), -1, 0)
        return y if self.bias is None else y + self.bias[:, None, None]

    def kernel(self, key: PRNGKey | None = None) -> Float[Array, "out_channels in_channels h w"]:
        """Return the dense kernel, drawn using the key, or its mean."""
        matrix = self.weight.matrix(key)
        return matrix.reshape(len(matrix), -1, *self.kernel_size)

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return kernel and bias of an ordinary layer, drawn using the key, or the means."""
        return self.kernel(key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        return self.weight.kl(key)
