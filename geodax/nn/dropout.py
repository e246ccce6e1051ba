r"""Monte Carlo dropout as a variational posterior.

The weight is :math:`W = M\,\mathrm{diag}(b / (1 - p))` with independent :math:`b_i \in \{0, 1\}`, 0 with probability p:
every input is dropped together with its column. This distribution has no density, so its divergence from
:math:`N(0, \lambda I)` is undefined; Gal and Ghahramani approximate it by narrow normal distributions as, up to a
constant,

.. math::
    \mathrm{KL} \approx \frac{1}{2 \lambda (1 - p)} |M|^2 + \frac{1}{2 \lambda} |\beta|^2 ,

with biases :math:`\beta` (the kept weights are M / (1 - p), each with probability 1 - p).

Source:
    Gal and Ghahramani (2016), Dropout as a Bayesian approximation: representing model uncertainty in deep learning.
    ICML.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.nn.convolve import convolve
from geodax.nn.layers import Sized, check_sizes, kernel_shape, prior_variances, side_padding
from geodax.vi.modules import AbstractVariational


class DropoutLinear(AbstractVariational, Sized):
    """A dense layer whose inputs are dropped at random, during training and prediction.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        rate: Probability of dropping an input.
        use_bias: Whether a bias is added.
        prior_variance: Variance of the normal prior of every weight.
        bias_prior_variance: Prior variance of the biases; None uses that of the weights.
        gain: The initial weights have the variance ``gain**2 / in_features``.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial weights.
    """

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None
    rate: float = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)
    bias_prior_variance: float | None = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        rate: float = 0.05,
        use_bias: bool = True,
        prior_variance: float = 1.0,
        bias_prior_variance: float | None = None,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features = check_sizes("DropoutLinear", in_features=in_features, out_features=out_features)
        key, dtype = _checks.random_key("DropoutLinear", key), _checks.real_dtype("DropoutLinear", dtype)
        gain = _checks.number("DropoutLinear", "gain", gain)
        variances = prior_variances("DropoutLinear", prior_variance, bias_prior_variance)
        self.weight = gain * jax.random.normal(key, (out_features, in_features), dtype) / in_features**0.5
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None
        self.rate = _checked_rate("DropoutLinear", rate)
        self.prior_variance, self.bias_prior_variance = variances

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("DropoutLinear", x, self.weight.shape[1])
        key = None if key is None else _checks.random_key("DropoutLinear", key)
        y = self.weight @ _dropped(x, x.shape, self.rate, key)
        return y if self.bias is None else y + self.bias

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, with inputs dropped using the key, or all kept."""
        return _kept(self, key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the approximate divergence, up to a constant."""
        return _penalty(self)


class DropoutConv2d(AbstractVariational):
    """A convolution whose input channels are dropped at random, during training and prediction.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Height and width, or one number for both.
        rate: Probability of dropping a channel.
        stride: Stride of the convolution.
        padding: Rows and columns of zeros on each side, or ``"SAME"`` or ``"VALID"``.
        use_bias: Whether a bias is added.
        prior_variance: Variance of the normal prior of every entry of the kernel.
        bias_prior_variance: Prior variance of the biases; None uses that of the kernel.
        gain: The initial entries have the variance ``gain**2`` over the fan-in.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial kernel.
    """

    weight: Float[Array, "out in h w"]
    bias: Float[Array, " out"] | None
    rate: float = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: int | str = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)
    bias_prior_variance: float | None = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | np.integer | tuple[int, int],
        *,
        rate: float = 0.05,
        stride: int = 1,
        padding: int | str = 0,
        use_bias: bool = True,
        prior_variance: float = 1.0,
        bias_prior_variance: float | None = None,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        shape, self.stride = kernel_shape("DropoutConv2d", in_channels, out_channels, kernel_size, stride)
        key, dtype = _checks.random_key("DropoutConv2d", key), _checks.real_dtype("DropoutConv2d", dtype)
        gain = _checks.number("DropoutConv2d", "gain", gain)
        variances = prior_variances("DropoutConv2d", prior_variance, bias_prior_variance)
        self.weight = gain * jax.random.normal(key, shape, dtype) / math.prod(shape[1:]) ** 0.5
        self.bias = jnp.zeros(shape[0], dtype) if use_bias else None
        self.rate = _checked_rate("DropoutConv2d", rate)
        self.padding = side_padding("DropoutConv2d", padding)
        self.prior_variance, self.bias_prior_variance = variances

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        x = _checks.image("DropoutConv2d", x, self.weight.shape[1])
        key = None if key is None else _checks.random_key("DropoutConv2d", key)
        kept = _dropped(x, (x.shape[0], 1, 1), self.rate, key)
        y = convolve(kept, self.weight, self.stride, self.padding)
        return y if self.bias is None else y + self.bias[:, None, None]

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, with inputs dropped using the key, or all kept."""
        return _kept(self, key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the approximate divergence, up to a constant."""
        return _penalty(self)


def _dropped(x: Array, shape: tuple[int, ...], rate: float, key: PRNGKey | None) -> Array:
    if key is None or rate == 0:
        return x
    return x * jax.random.bernoulli(key, 1.0 - rate, shape).astype(x.dtype) / (1.0 - rate)


def _kept(layer: Any, key: PRNGKey | None) -> Array:
    if key is None:
        return layer.weight
    shape = (1, layer.weight.shape[1], *(1 for _ in layer.weight.shape[2:]))
    return layer.weight * _dropped(jnp.ones(shape, layer.weight.dtype), shape, layer.rate, key)


def _penalty(layer: Any) -> Scalar:
    weight, bias = _tree.widened((layer.weight, layer.bias))  # half-precision sums overflow
    total = 0.5 * jnp.sum(weight**2) / (1.0 - layer.rate) / layer.prior_variance
    if bias is None:
        return total
    variance = layer.prior_variance if layer.bias_prior_variance is None else layer.bias_prior_variance
    return total + 0.5 * jnp.sum(bias**2) / variance


def _checked_rate(owner: str, rate: Any) -> float:
    return _checks.number(owner, "rate", rate, least=0.0, below=1.0)
