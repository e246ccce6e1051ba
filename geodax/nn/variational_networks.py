"""Ordinary networks turned into variational ones, layer by layer."""

from typing import Any

import equinox as eqx
import jax
from equinox.nn import Conv2d, Linear
from jaxtyping import Float

from geodax._types import Array, PRNGKey, PyTree
from geodax.nn.dropout import DropoutConv2d, DropoutLinear
from geodax.nn.hadamard import WHVILinear
from geodax.nn.hadamard_conv import WHVIConv2d
from geodax.nn.mean_field import MeanFieldConv2d, MeanFieldLinear
from geodax.vi.modules import AbstractVariational

_KINDS = {
    "whvi": (WHVILinear, WHVIConv2d),
    "mean-field": (MeanFieldLinear, MeanFieldConv2d),
    "mc-dropout": (DropoutLinear, DropoutConv2d),
}
INFERENCES = tuple(_KINDS)


class FirstOutput(eqx.Module):
    """A layer of one output, as a scalar."""

    layer: Any

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, ""]:
        """Apply the layer to one vector."""
        return self.layer(x, key=key)[0]


def variational(network: PyTree, inference: str, *, key: PRNGKey, **options: Any) -> Any:
    """A network of the same shape with variational layers in place of its dense and convolution layers.

    Args:
        network: An Equinox module with :class:`equinox.nn.Linear` and :class:`equinox.nn.Conv2d` layers:
            :class:`~geodax.nn.MLP`, :class:`~geodax.nn.VGG16`, :class:`~geodax.nn.ResNet20`, or one of yours. It need
            not hand keys to its layers.
        inference: ``"whvi"``, ``"mean-field"`` or ``"mc-dropout"``.
        key: Randomness of the first parameters; those of the network are not used.
        **options: More arguments of every layer: ``prior_variance``, ``gain``, ``covariance`` or ``rate``.

    Returns:
        The network, for :func:`geodax.vi.fit`.

    Raises:
        ValueError: For another inference, or a network without such layers, or a convolution in groups or dilated.
    """
    if inference not in _KINDS:
        raise ValueError(f"variational: inference must be one of {', '.join(INFERENCES)}, found {inference!r}.")
    dense, convolution = _KINDS[inference]
    nodes, structure = jax.tree.flatten(network, is_leaf=_is_layer)
    if not any(map(_is_layer, nodes)):
        raise ValueError("variational: the network has no equinox.nn.Linear or Conv2d layer to be replaced.")

    def replaced(node: Any, key: PRNGKey) -> Any:
        if isinstance(node, Linear):
            outputs = 1 if node.out_features == "scalar" else node.out_features
            common = {"use_bias": node.use_bias, "dtype": node.weight.dtype, "key": key} | options
            layer: AbstractVariational = dense(node.in_features, outputs, **common)
            return FirstOutput(layer) if node.out_features == "scalar" else layer
        if isinstance(node, Conv2d):
            return convolution(
                node.in_channels,
                node.out_channels,
                tuple(node.kernel_size),
                **_geometry(node),
                use_bias=node.use_bias,
                dtype=node.weight.dtype,
                key=key,
                **options,
            )
        return node

    return structure.unflatten([replaced(node, jax.random.fold_in(key, i)) for i, node in enumerate(nodes)])


def _is_layer(node: object) -> bool:
    return isinstance(node, (Linear, Conv2d))


def _geometry(node: Conv2d) -> dict[str, Any]:
    padding = node.padding
    if not isinstance(padding, str):
        sizes = {size for pair in padding for size in pair}
        if len(sizes) > 1:
            raise ValueError(f"variational: a convolution must be padded alike on all sides, found {padding!r}.")
        padding = sizes.pop()
    if node.groups != 1 or set(node.dilation) != {1} or len(set(node.stride)) > 1:
        raise ValueError(
            "variational: a convolution must have one group, no dilation and one stride, found "
            f"groups {node.groups}, dilation {node.dilation}, stride {node.stride}."
        )
    return {"stride": node.stride[0], "padding": padding}
