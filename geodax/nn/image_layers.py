"""Image layers: convolutions with orthonormal kernels, and filter response normalisation.

A kernel o x i x h x w is treated as the matrix o x ihw, which has orthonormal rows, or columns if it has more rows than
columns (Yanush and Kropotov 2019, section 3.3).
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, PyTree
from geodax.geometry.manifolds import AbstractManifold
from geodax.nn.convolve import convolve
from geodax.nn.densities import AbstractStructuredPrior, Haar
from geodax.nn.layers import check_sizes, kernel_shape, orthonormal, side_padding, with_manifolds
from geodax.nn.structure import AbstractStructured


class OrthogonalConv2d(AbstractStructured):
    """A convolution whose kernel, as the matrix out x (in * height * width), has orthonormal rows or columns.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Height and width, or one number for both.
        stride: Stride of the convolution.
        padding: Rows and columns of zeros on each side, or ``"SAME"`` or ``"VALID"``.
        use_bias: Whether a bias is added; it is an ordinary parameter.
        gain: A fixed factor of the kernel.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial kernel, which is uniformly distributed.

    Attributes:
        weight: n x p with orthonormal columns, n the larger and p the smaller of out and in * height * width.
        bias: out, or None.
    """

    weight: Float[Array, "n p"]
    bias: Float[Array, " out"] | None
    in_channels: int = eqx.field(static=True)
    out_channels: int = eqx.field(static=True)
    kernel_size: tuple[int, int] = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: int | str = eqx.field(static=True)
    gain: float = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | np.integer | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | str = 0,
        use_bias: bool = True,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        shape, self.stride = kernel_shape("OrthogonalConv2d", in_channels, out_channels, kernel_size, stride)
        self.out_channels, self.in_channels, *_ = shape
        self.kernel_size, self.padding = shape[2:], side_padding("OrthogonalConv2d", padding)
        self.weight = orthonormal(key, shape[0], math.prod(shape[1:]), dtype)
        self.bias = jnp.zeros(shape[0], dtype) if use_bias else None
        self.gain = _checks.number("OrthogonalConv2d", "gain", gain)

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        x = _checks.image("OrthogonalConv2d", x, self.in_channels)
        y = convolve(x, self.kernel, self.stride, self.padding)
        return y if self.bias is None else y + self.bias[:, None, None]

    @property
    def kernel(self) -> Float[Array, "out_channels in_channels h w"]:
        """Return the kernel of the convolution, including the gain."""
        height, width = self.kernel_size
        is_tall = self.out_channels >= self.in_channels * height * width
        matrix = self.weight if is_tall else self.weight.T
        return self.gain * matrix.reshape(self.out_channels, self.in_channels, height, width)

    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        return with_manifolds(self, stiefel, "weight")

    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        return {"weight": Haar()}


class FilterResponseNorm(eqx.Module):
    r"""Filter response normalisation (Singh and Krishnan 2020), without its threshold.

    Each channel of one image is divided by the root of its mean square, then scaled and shifted:
    :math:`\gamma x / \sqrt{\overline{x^2} + \epsilon} + \beta`. The result does not depend on other examples.
    Half-precision inputs, whose squares overflow from 256 on, are normalised in single precision.

    For a channel that is zero everywhere the slope is :math:`\gamma / \sqrt\epsilon`, 1000 by default. A black image
    stays zero through all layers of a network with zero biases, and the slopes multiply: from about fifteen layers on
    gradients overflow in single precision. Draw initial biases from a prior (:meth:`geodax.nn.Priors.sample`), or leave
    such images out.

    Args:
        num_channels: Number of channels.
        epsilon: Added to the mean square.
        dtype: Dtype of the parameters.
    """

    weight: Float[Array, " channels"]
    bias: Float[Array, " channels"]
    epsilon: float = eqx.field(static=True)

    def __init__(self, num_channels: int, *, epsilon: float = 1e-6, dtype: Any = jnp.float32):
        (num_channels,) = check_sizes("FilterResponseNorm", num_channels=num_channels)
        self.weight, self.bias = jnp.ones(num_channels, dtype), jnp.zeros(num_channels, dtype)
        self.epsilon = _checks.number("FilterResponseNorm", "epsilon", epsilon, least=0.0)

    def __call__(
        self, x: Float[Array, "channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "channels height width"]:
        x = _checks.image("FilterResponseNorm", x, len(self.weight))
        dtype = jnp.result_type(self.weight, x, self.bias)
        weight, wide, bias = _tree.widened((self.weight, x, self.bias))
        power = jnp.mean(wide * wide, axis=(1, 2), keepdims=True)
        y = weight[:, None, None] * wide * jax.lax.rsqrt(power + self.epsilon) + bias[:, None, None]
        return y.astype(dtype)
