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


class AbstractDropout(AbstractVariational):
    """A layer whose inputs are dropped at random, each together with its part of the weight."""

    weight: eqx.AbstractVar[Array]
    bias: eqx.AbstractVar[Array | None]
    rate: eqx.AbstractVar[float]
    prior_variance: eqx.AbstractVar[float]
    bias_prior_variance: eqx.AbstractVar[float | None]

    def _dropped(self, x: Array, shape: tuple[int, ...], key: PRNGKey | None) -> Array:
        """Return ``x`` with parts dropped using the key; the mask has a shape that broadcasts."""
        key = None if key is None else _checks.random_key(type(self).__name__, key)
        if key is None or self.rate == 0:
            return x
        return x * jax.random.bernoulli(key, 1.0 - self.rate, shape).astype(x.dtype) / (1.0 - self.rate)

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, with inputs dropped using the key, or all kept."""
        if key is None:
            return self.weight, self.bias
        shape = (1, self.weight.shape[1], *(1 for _ in self.weight.shape[2:]))
        return self.weight * self._dropped(jnp.ones(shape, self.weight.dtype), shape, key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the approximate divergence, up to a constant."""
        weight, bias = _tree.widened((self.weight, self.bias))  # half-precision sums overflow
        total = 0.5 * jnp.sum(weight**2) / (1.0 - self.rate) / self.prior_variance
        if bias is None:
            return total
        variance = self.prior_variance if self.bias_prior_variance is None else self.bias_prior_variance
        return total + 0.5 * jnp.sum(bias**2) / variance


class DropoutLinear(AbstractDropout, Sized):
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
        variances = prior_variances("DropoutLinear", prior_variance, bias_prior_variance)
        self.prior_variance, self.bias_prior_variance = variances
        self.rate = _checks.number("DropoutLinear", "rate", rate, least=0.0, below=1.0)
        self.weight, self.bias = _initial("DropoutLinear", (out_features, in_features), use_bias, gain, dtype, key)

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("DropoutLinear", x, self.weight.shape[1])
        y = self.weight @ self._dropped(x, x.shape, key)
        return y if self.bias is None else y + self.bias


class DropoutConv2d(AbstractDropout):
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
        variances = prior_variances("DropoutConv2d", prior_variance, bias_prior_variance)
        self.prior_variance, self.bias_prior_variance = variances
        self.rate = _checks.number("DropoutConv2d", "rate", rate, least=0.0, below=1.0)
        self.weight, self.bias = _initial("DropoutConv2d", shape, use_bias, gain, dtype, key)
        self.padding = side_padding("DropoutConv2d", padding)

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        x = _checks.image("DropoutConv2d", x, self.weight.shape[1])
        y = convolve(self._dropped(x, (x.shape[0], 1, 1), key), self.weight, self.stride, self.padding)
        return y if self.bias is None else y + self.bias[:, None, None]


def _initial(
    owner: str, shape: tuple[int, ...], use_bias: bool, gain: float, dtype: Any, key: PRNGKey
) -> tuple[Array, Array | None]:
    key, dtype = _checks.random_key(owner, key), _checks.real_dtype(owner, dtype)
    gain = _checks.number(owner, "gain", gain)
    weight = gain * jax.random.normal(key, shape, dtype) / math.prod(shape[1:]) ** 0.5
    return weight, jnp.zeros(shape[0], dtype) if use_bias else None
