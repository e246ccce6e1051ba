"""AlexNet and ResNet-18 for images of 32 x 32 pixels, with the sizes of Rossi, Marmin and Filippone (2020).

Their Tables 3 and 5 list the layers. The normalisation is that of :mod:`geodax.nn.convolutional`, for the reasons given
there.

Sources:
    Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional neural networks. NeurIPS.
    He, Zhang, Ren and Sun (2016), Deep residual learning for image recognition. CVPR.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import Linear
from jaxtyping import Float

from geodax._types import Array, PRNGKey
from geodax.nn.convolutional import AbstractResNet, NormalizedConv, halved, network_sizes, require_32_pixels, through

_ALEXNET = ((1, True), (3, True), (6, False), (4, False), (4, True))  # relative channels, whether pooled


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

    convolutions: tuple[NormalizedConv, ...]
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
        in_channels, width, num_classes = network_sizes("AlexNet", in_channels, width, num_classes)
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
        require_32_pixels("AlexNet", x)
        for layer, (_, is_pooled) in zip(self.convolutions, _ALEXNET, strict=True):
            x = self.activation(layer(x))
            x = halved(x) if is_pooled else x
        return through(self.dense, self.activation, jnp.ravel(x))


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
