r"""Layers with Gaussian weights: mean-field, and with full covariance for each output.

**Dense layers** draw their outputs instead of their weights: for weights that are independent between outputs, the
outputs for one example are :math:`y_o \sim N(m_o^T x, x^T \Sigma_o x)`, independent of each other (local
reparametrisation, Kingma, Salimans and Welling 2015). With one key per example this is the exact distribution of the
outputs with separate weights for each example. Several vectors of one example share their weights (the tokens of a
text, the two sides of a comparison); weights have to be drawn for them. :func:`geodax.vi.fit` and
:func:`geodax.vi.predict` detect such uses; if other code calls a layer with keys, ``local=False`` makes it draw
weights.

**Convolutions** draw the kernel, because the pixels of an image share it and their outputs are dependent. They can be
applied to several images with one key.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, Scalar
from geodax.nn.convolve import convolve
from geodax.nn.layers import Sized, check_sizes, kernel_shape, prior_variances, side_padding
from geodax.vi.families import DiagonalGaussian, FullGaussian, normal
from geodax.vi.modules import AbstractLocal, AbstractVariational


class AbstractLocalLinear(AbstractLocal, Sized):
    """A dense layer that draws its output for one vector, or its weights."""

    local: eqx.AbstractVar[bool]

    @property
    def is_local(self) -> bool:
        return self.local

    @abc.abstractmethod
    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, drawn using the key, or their means."""

    def fixed(self, key: PRNGKey) -> "DrawnLinear":
        weight, bias = self.arrays(key)
        return DrawnLinear(weight, bias)


class AbstractMeanField(AbstractVariational):
    """A layer with independent normal weights and biases."""

    weight: eqx.AbstractVar[DiagonalGaussian]
    bias: eqx.AbstractVar[DiagonalGaussian | None]
    prior_variance: eqx.AbstractVar[float]
    bias_prior_variance: eqx.AbstractVar[float | None]

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, drawn using the key, or their means."""
        if key is None:
            return self.weight.mean, None if self.bias is None else self.bias.mean
        key_weight, key_bias = jax.random.split(key)
        return self.weight.sample(key_weight), None if self.bias is None else self.bias.sample(key_bias)

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        total = self.weight.kl(self.prior_variance)
        if self.bias is None:
            return total
        return total + self.bias.kl(
            self.prior_variance if self.bias_prior_variance is None else self.bias_prior_variance
        )


class MeanFieldLinear(AbstractMeanField, AbstractLocalLinear):
    """A dense layer with independent normal weights and biases.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        use_bias: Whether a bias is added; it has a posterior too.
        prior_variance: Variance of the normal prior of every weight.
        bias_prior_variance: Prior variance of the biases; None uses that of the weights.
        initial_deviation: Initial standard deviation of every weight, in units of ``1 / sqrt(in_features)``.
        gain: The initial means have the variance ``gain**2 / in_features``.
        local: True draws the output for one vector, whose distribution is exact for one vector per key; False draws the
            weights, which is right for any number of vectors.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial means.

    Attributes:
        weight: Distribution of the weight, out x in.
        bias: Distribution of the bias, or None.
    """

    weight: DiagonalGaussian
    bias: DiagonalGaussian | None
    prior_variance: float = eqx.field(static=True)
    bias_prior_variance: float | None = eqx.field(static=True)
    local: bool = eqx.field(static=True, default=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        prior_variance: float = 1.0,
        bias_prior_variance: float | None = None,
        initial_deviation: float = 0.1,
        gain: float = 1.0,
        local: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features = check_sizes("MeanFieldLinear", in_features=in_features, out_features=out_features)
        self.weight = around_zero(key, (out_features, in_features), in_features, gain, initial_deviation, dtype)
        self.bias = _bias(out_features, in_features, initial_deviation, dtype) if use_bias else None
        variances = prior_variances("MeanFieldLinear", prior_variance, bias_prior_variance)
        self.prior_variance, self.bias_prior_variance = variances
        self.local = flag("MeanFieldLinear", local)

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector(type(self).__name__, x, self.weight.mean.shape[1])
        key = None if key is None else _checks.random_key(type(self).__name__, key)
        if key is not None and not self.local:
            return self.fixed(key)(x)
        mean = self.weight.mean @ x
        if self.bias is not None:
            mean = mean + self.bias.mean
        if key is None:
            return mean
        variance = jnp.exp(2.0 * self.weight.log_scale) @ (x * x)
        if self.bias is not None:
            variance = variance + jnp.exp(2.0 * self.bias.log_scale)
        return mean + _root(variance) * normal(key, mean.shape, mean.dtype)


class FullCovarianceLinear(AbstractLocalLinear):
    """A dense layer whose weights for each output are jointly normal with full covariance.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs, which are independent.
        use_bias: Whether a bias is added; it is optimised, without a posterior.
        prior_variance: Variance of the normal prior of every weight.
        initial_deviation: Initial standard deviation of every weight, in units of ``1 / sqrt(in_features)``.
        gain: The initial means have the variance ``gain**2 / in_features``.
        local: True draws the output for one vector, whose distribution is exact for one vector per key; False draws the
            weights, which is right for any number of vectors.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial means.

    Attributes:
        weight: Distribution of the weights, one vector per output.
        bias: out, or None.
    """

    weight: FullGaussian
    bias: Float[Array, " out"] | None
    prior_variance: float = eqx.field(static=True)
    local: bool = eqx.field(static=True, default=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        prior_variance: float = 1.0,
        initial_deviation: float = 0.1,
        gain: float = 1.0,
        local: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features = check_sizes(
            "FullCovarianceLinear", in_features=in_features, out_features=out_features
        )
        start = around_zero(key, (out_features, in_features), in_features, gain, initial_deviation, dtype)
        lower = jnp.zeros((out_features, in_features, in_features), dtype)
        self.weight = FullGaussian(start.mean, start.log_scale, lower)
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None
        self.prior_variance, _ = prior_variances("FullCovarianceLinear", prior_variance, None)
        self.local = flag("FullCovarianceLinear", local)

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector(type(self).__name__, x, self.weight.mean.shape[1])
        if key is not None and not self.local:
            return self.fixed(key)(x)
        y = self.weight.mean @ x
        if key is not None:
            along = jnp.einsum("oij,i->oj", self.weight.root(), x)
            y = y + _root(jnp.sum(along * along, axis=1)) * normal(key, y.shape, y.dtype)
        return y if self.bias is None else y + self.bias

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        return self.weight.mean if key is None else self.weight.sample(key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        return self.weight.kl(self.prior_variance)


class MeanFieldConv2d(AbstractMeanField):
    """A convolution with independent normal kernel entries and biases; the kernel is drawn once per key.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Height and width, or one number for both.
        stride: Stride of the convolution.
        padding: Rows and columns of zeros on each side, or ``"SAME"`` or ``"VALID"``.
        use_bias: Whether a bias is added; it has a posterior too.
        prior_variance: Variance of the normal prior of every entry of the kernel.
        bias_prior_variance: Prior variance of the biases; None uses that of the kernel.
        initial_deviation: Initial standard deviation of every entry, in units of the root of the inverse fan-in.
        gain: The initial means have the variance ``gain**2`` over the fan-in.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial means.

    Attributes:
        weight: Distribution of the kernel, out x in x height x width.
        bias: Distribution of the bias, or None.
    """

    weight: DiagonalGaussian
    bias: DiagonalGaussian | None
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
        stride: int = 1,
        padding: int | str = 0,
        use_bias: bool = True,
        prior_variance: float = 1.0,
        bias_prior_variance: float | None = None,
        initial_deviation: float = 0.1,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        shape, self.stride = kernel_shape("MeanFieldConv2d", in_channels, out_channels, kernel_size, stride)
        fan_in = math.prod(shape[1:])
        self.weight = around_zero(key, shape, fan_in, gain, initial_deviation, dtype)
        self.bias = _bias(shape[0], fan_in, initial_deviation, dtype) if use_bias else None
        self.padding = side_padding("MeanFieldConv2d", padding)
        variances = prior_variances("MeanFieldConv2d", prior_variance, bias_prior_variance)
        self.prior_variance, self.bias_prior_variance = variances

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        x = _checks.image("MeanFieldConv2d", x, self.weight.mean.shape[1])
        kernel, bias = self.arrays(key)
        y = convolve(x, kernel, self.stride, self.padding)
        return y if bias is None else y + bias[:, None, None]


class DrawnLinear(Sized):
    """A dense layer with drawn weights."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Float[Array, " out"]:
        y = self.weight @ _checks.vector("a drawn layer", x, self.weight.shape[1])
        return y if self.bias is None else y + self.bias


def flag(owner: str, local: Any) -> bool:
    """Check the option ``local``."""
    if not isinstance(local, bool | np.bool_):
        raise TypeError(f"{owner}: local must be True or False, found {_checks.described(local)}.")
    return bool(local)


def around_zero(
    key: PRNGKey, shape: tuple[int, ...], fan_in: int, gain: float, deviation: float, dtype: Any
) -> DiagonalGaussian:
    """Return the initial distribution of weights: random means and one small standard deviation."""
    owner = "a mean-field layer"
    key, dtype = _checks.random_key(owner, key), _checks.real_dtype(owner, dtype)
    gain = _checks.number(owner, "gain", gain)
    deviation = _checks.number(owner, "initial_deviation", deviation, above=0.0)
    unit = 1.0 / math.sqrt(fan_in)
    mean = gain * unit * jax.random.normal(key, shape, dtype)
    return DiagonalGaussian(mean, jnp.full(shape, math.log(deviation * unit), dtype))


def _bias(size: int, fan_in: int, deviation: float, dtype: Any) -> DiagonalGaussian:
    start = math.log(deviation / math.sqrt(fan_in))
    return DiagonalGaussian(jnp.zeros(size, dtype), jnp.full(size, start, dtype))


def _root(variance: Array) -> Array:
    """Square root whose derivative is 0 instead of NaN at zero, for inputs of zeros, which have no variance."""
    return jnp.sqrt(variance + jnp.finfo(variance.dtype).tiny)
