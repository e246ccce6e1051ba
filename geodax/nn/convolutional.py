"""Ready-made networks for images of 32 x 32 pixels.

AlexNet and ResNet-18 have the sizes of Rossi, Marmin and Filippone (2020), Tables 3 and 5.

**Normalisation.** All use filter response normalisation (Singh and Krishnan 2020) instead of batch normalisation. With
batch normalisation the likelihood of an example depends on the other examples of its batch: the likelihood is then not
a product over examples, N / B times a batch gradient does not estimate the gradient of any posterior, and predictions
depend on the other inputs. Filter response normalisation acts on one example and has no channel groups to choose. The
published reference posteriors of ResNet-20 on CIFAR-10 by Hamiltonian Monte Carlo use it, with the smooth activation
that is the default here (Izmailov et al. 2021). It leaves only the direction of a kernel, which is what an orthonormal
kernel represents.

Sources:
    He, Zhang, Ren and Sun (2016), Deep residual learning for image recognition. CVPR, section 4.2.
    Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional neural networks. NeurIPS.
    Izmailov, Vikram, Hoffman and Wilson (2021), What are Bayesian neural network posteriors really like? ICML.
    Rossi, Marmin and Filippone (2020), Walsh-Hadamard variational inference for Bayesian deep learning. NeurIPS.
    Simonyan and Zisserman (2014), Very deep convolutional networks for large-scale image recognition. Configuration D.
    Singh and Krishnan (2020), Filter response normalization layer: eliminating batch dependence in the training of
    deep neural networks. CVPR.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import Conv2d, Linear
from jaxtyping import Float

from geodax._types import Array, PRNGKey
from geodax.nn.convolve import convolve
from geodax.nn.image_layers import FilterResponseNorm, OrthogonalConv2d
from geodax.nn.layers import OrthogonalLinear, check_sizes

_VGG16 = (2, 2, 3, 3, 3)  # convolutions before each pooling
_ALEXNET = ((1, True), (3, True), (6, False), (4, False), (4, True))  # relative channels, whether pooled


class VGG16(eqx.Module):
    """VGG-16 for images of 32 x 32 pixels: 13 convolutions in 5 stages, and up to 3 dense layers.

    Each convolution is 3 x 3, followed by filter response normalisation and the activation; each stage ends with 2 x 2
    max pooling. The first dense layers have ``8 * width`` units. The last layer always has ordinary weights.

    Args:
        num_classes: Number of outputs.
        in_channels: Number of channels of an image.
        width: Number of channels of the first stage; the others have 2, 4, 8 and 8 times as many.
        num_hidden: Number of dense layers before the last one.
        orthogonal: Whether all weights but the last layer's are orthonormal (Yanush and Kropotov 2019, section 3.3).
        activation: Applied after every layer but the last.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
    """

    stages: tuple[tuple["NormalizedConv", ...], ...]
    dense: tuple[Callable[..., Array], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        num_classes: int = 10,
        *,
        in_channels: int = 3,
        width: int = 64,
        num_hidden: int = 2,
        orthogonal: bool = False,
        activation: Callable[[Array], Array] = jax.nn.silu,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_channels, width, num_classes = _network_sizes("VGG16", in_channels, width, num_classes)
        keys = iter(jax.random.split(key, sum(_VGG16) + num_hidden + 1))
        stages, channels = [], in_channels
        options: dict[str, Any] = {"orthogonal": orthogonal, "dtype": dtype}
        for number, factor in zip(_VGG16, (1, 2, 4, 8, 8), strict=True):
            stage = []
            for _ in range(number):
                stage.append(NormalizedConv(channels, factor * width, key=next(keys), **options))
                channels = factor * width
            stages.append(tuple(stage))
        hidden = OrthogonalLinear if orthogonal else Linear
        self.stages = tuple(stages)
        self.dense = (
            *(hidden(channels, channels, dtype=dtype, key=next(keys)) for _ in range(num_hidden)),
            Linear(channels, num_classes, dtype=dtype, key=next(keys)),
        )
        self.activation = activation

    def __call__(
        self, x: Float[Array, "channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, " classes"]:
        _require_32_pixels("VGG16", x)
        for stage in self.stages:
            for layer in stage:
                x = self.activation(layer(x))
            x = _halved(x)
        return _through(self.dense, self.activation, jnp.ravel(x))


class AlexNet(eqx.Module):
    """AlexNet for images of 32 x 32 pixels: 5 convolutions 3 x 3, 3 dense layers.

    Args:
        num_classes: Number of outputs.
        in_channels: Number of channels of an image.
        width: Number of channels of the first convolution; the others have 3, 6, 4 and 4 times as many, the dense
            layers ``64 * width`` units.
        activation: Applied after every layer but the last.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
    """

    convolutions: tuple["NormalizedConv", ...]
    dense: tuple[Callable[..., Array], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        num_classes: int = 10,
        *,
        in_channels: int = 3,
        width: int = 64,
        activation: Callable[[Array], Array] = jax.nn.silu,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_channels, width, num_classes = _network_sizes("AlexNet", in_channels, width, num_classes)
        keys = iter(jax.random.split(key, len(_ALEXNET) + 3))
        convolutions, channels = [], in_channels
        for factor, _ in _ALEXNET:
            convolutions.append(NormalizedConv(channels, factor * width, dtype=dtype, key=next(keys)))
            channels = factor * width
        units = 16 * channels
        self.convolutions = tuple(convolutions)
        self.dense = tuple(
            Linear(units, outputs, dtype=dtype, key=next(keys)) for outputs in (units, units, num_classes)
        )
        self.activation = activation

    def __call__(
        self, x: Float[Array, "channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, " classes"]:
        _require_32_pixels("AlexNet", x)
        for layer, (_, is_pooled) in zip(self.convolutions, _ALEXNET, strict=True):
            x = self.activation(layer(x))
            x = _halved(x) if is_pooled else x
        return _through(self.dense, self.activation, jnp.ravel(x))


def _require_32_pixels(owner: str, x: Float[Array, "channels height width"]) -> None:
    if x.shape[1:] != (32, 32):
        raise ValueError(
            f"{owner}: expected an image of shape (channels, 32, 32), found {x.shape}; pad or resize it, or use a "
            "network that averages over the pixels: nn.ResNet18, nn.ResNet20."
        )


def _through(
    layers: tuple[Callable[..., Array], ...], activation: Callable[[Array], Array], x: Float[Array, " inputs"]
) -> Float[Array, " outputs"]:
    """Apply dense layers, with the activation after each but the last."""
    *hidden, last = layers
    for layer in hidden:
        x = activation(layer(x))
    return last(x)


def _halved(x: Float[Array, "channels height width"]) -> Float[Array, "channels half_height half_width"]:
    """2 x 2 max pooling."""
    # by comparison: the derivative of a maximum divides by the number of entries equal to it, which can be zero if the
    # compiler recomputes them with different rounding
    rows = _larger(x[:, ::2], x[:, 1::2])
    return _larger(rows[:, :, ::2], rows[:, :, 1::2])


def _larger(a: Array, b: Array) -> Array:
    return jnp.where(a >= b, a, b)


def _network_sizes(owner: str, in_channels: Any, width: Any, num_classes: Any) -> tuple[int, ...]:
    return check_sizes(owner, in_channels=in_channels, width=width, num_classes=num_classes)


class AbstractResNet(eqx.Module):
    """A convolution, stages of residual blocks, each but the first halving the image, and a dense layer.

    The dense layer receives the mean over the pixels. If a stage halves the image, the shortcut is a normalised 1 x 1
    convolution. Each stage has twice the channels of the one before.
    """

    first: "NormalizedConv"
    blocks: tuple["ResidualBlock", ...]
    last: Linear
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        num_stages: int,
        blocks_a_stage: int,
        *,
        num_classes: int,
        in_channels: int,
        width: int,
        activation: Callable[[Array], Array],
        key: PRNGKey,
        **options: Any,
    ):
        in_channels, width, num_classes = _network_sizes(type(self).__name__, in_channels, width, num_classes)
        key_first, key_last, key_blocks = jax.random.split(key, 3)
        self.first = NormalizedConv(in_channels, width, key=key_first, **options)
        sizes = [width * 2**stage for stage in range(num_stages) for _ in range(blocks_a_stage)]
        keys = jax.random.split(key_blocks, len(sizes))
        self.blocks = tuple(
            ResidualBlock(inputs, outputs, activation=activation, key=part, **options)
            for inputs, outputs, part in zip([width, *sizes[:-1]], sizes, keys, strict=True)
        )
        self.last = Linear(sizes[-1], num_classes, dtype=options["dtype"], key=key_last)
        self.activation = activation

    def __call__(self, x: Float[Array, "channels 32 32"], *, key: PRNGKey | None = None) -> Float[Array, " classes"]:
        x = self.activation(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.last(jnp.mean(x, axis=(1, 2)))


class ResNet20(AbstractResNet):
    """ResNet-20 for images of 32 x 32 pixels: a convolution, 9 two-layer blocks in 3 stages, a dense layer.

    With another number n of blocks in a stage it is the ResNet of 6 n + 2 layers (He et al. 2016): 1 makes ResNet-8.

    Args:
        num_classes: Number of outputs.
        in_channels: Number of channels of an image.
        width: Number of channels of the first stage; the others have 2 and 4 times as many.
        blocks_a_stage: Number of blocks in each of the 3 stages.
        orthogonal: Whether all kernels are orthonormal.
        activation: Applied after every normalisation except those before a sum, and after the sum.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        in_channels: int = 3,
        width: int = 16,
        blocks_a_stage: int = 3,
        orthogonal: bool = False,
        activation: Callable[[Array], Array] = jax.nn.silu,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        (blocks_a_stage,) = check_sizes("ResNet20", blocks_a_stage=blocks_a_stage)
        super().__init__(
            3,
            blocks_a_stage,
            num_classes=num_classes,
            in_channels=in_channels,
            width=width,
            activation=activation,
            key=key,
            orthogonal=orthogonal,
            dtype=dtype,
        )


class ResNet18(AbstractResNet):
    """ResNet-18 for images of 32 x 32 pixels: a convolution, 8 two-layer blocks in 4 stages, a dense layer.

    Args:
        num_classes: Number of outputs.
        in_channels: Number of channels of an image.
        width: Number of channels of the first stage; the others have 2, 4 and 8 times as many.
        activation: Applied after every normalisation except those before a sum, and after the sum.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        in_channels: int = 3,
        width: int = 64,
        activation: Callable[[Array], Array] = jax.nn.silu,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        super().__init__(
            4,
            2,
            num_classes=num_classes,
            in_channels=in_channels,
            width=width,
            activation=activation,
            key=key,
            dtype=dtype,
        )


class NormalizedConv(eqx.Module):
    """A convolution that keeps the image size, or divides it by a stride, followed by filter response normalisation.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: An odd number.
        stride: Stride of the convolution.
        orthogonal: Whether the kernel is orthonormal.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial kernel.
    """

    conv: Callable[..., Array]
    norm: FilterResponseNorm

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_size: int = 3,
        stride: int = 1,
        orthogonal: bool = False,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        kind = OrthogonalConv2d if orthogonal else Conv2d
        self.conv = kind(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            use_bias=False,
            dtype=dtype,
            key=key,
        )
        self.norm = FilterResponseNorm(out_channels, dtype=dtype)

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        if isinstance(self.conv, Conv2d):
            (stride, _), ((padding, _), _) = self.conv.stride, self.conv.padding
            return self.norm(convolve(x, self.conv.weight, stride, padding))
        return self.norm(self.conv(x))


class ResidualBlock(eqx.Module):
    """Two convolutions with a shortcut; halves the image if it has more output than input channels.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        orthogonal: Whether the kernels are orthonormal.
        activation: Applied after the first normalisation and after the sum.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial kernels.
    """

    first: NormalizedConv
    second: NormalizedConv
    shortcut: NormalizedConv | None
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        orthogonal: bool = False,
        activation: Callable[[Array], Array] = jax.nn.silu,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        keys = jax.random.split(key, 3)
        options: dict[str, Any] = {"orthogonal": orthogonal, "dtype": dtype}
        stride = 1 if in_channels == out_channels else 2
        self.first = NormalizedConv(in_channels, out_channels, stride=stride, key=keys[0], **options)
        self.second = NormalizedConv(out_channels, out_channels, key=keys[1], **options)
        self.shortcut = None
        if stride != 1:
            options |= {"kernel_size": 1, "stride": stride}
            self.shortcut = NormalizedConv(in_channels, out_channels, key=keys[2], **options)
        self.activation = activation

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        y = self.second(self.activation(self.first(x)))
        return self.activation(y + (x if self.shortcut is None else self.shortcut(x)))
