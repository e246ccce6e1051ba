"""Ordinary networks turned into variational ones, layer by layer."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
from equinox.nn import Conv2d, Linear
from jaxtyping import Float

from geodax import _arguments
from geodax._types import Array, PRNGKey, PyTree
from geodax.nn.densities import Gaussian, resolve_scale
from geodax.nn.dropout import DropoutConv2d, DropoutLinear
from geodax.nn.hadamard import WHVILinear
from geodax.nn.hadamard_conv import WHVIConv2d
from geodax.nn.mean_field import MeanFieldConv2d, MeanFieldLinear
from geodax.nn.priors import Priors
from geodax.vi.modules import AbstractVariational

_KINDS = {
    "whvi": (WHVILinear, WHVIConv2d),
    "mean-field": (MeanFieldLinear, MeanFieldConv2d),
    "mc-dropout": (DropoutLinear, DropoutConv2d),
}
_LAYERS = (WHVILinear, WHVIConv2d, MeanFieldLinear, MeanFieldConv2d, DropoutLinear, DropoutConv2d)
INFERENCES = tuple(_KINDS)


class FirstOutput(eqx.Module):
    """A layer of one output, as a scalar."""

    layer: Any

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, ""]:
        """Apply the layer to one vector."""
        return self.layer(x, key=key)[0]


def variational(network: PyTree, inference: str, *, key: PRNGKey, priors: Priors | None = None, **options: Any) -> Any:
    """A network of the same shape with variational layers in place of its dense and convolution layers.

    Args:
        network: An Equinox module with :class:`equinox.nn.Linear` and :class:`equinox.nn.Conv2d` layers:
            :class:`~geodax.nn.MLP`, :class:`~geodax.nn.VGG16`, :class:`~geodax.nn.ResNet20`, or one of yours. It need
            not hand keys to its layers.
        inference: ``"whvi"``, ``"mean-field"`` or ``"mc-dropout"``.
        key: Randomness of the first parameters; those of the network are not used.
        priors: Rules from which the normal priors of ``"mean-field"`` and ``"mc-dropout"`` layers are taken; the laws
            of weights and biases must be :class:`~geodax.nn.Gaussian` with mean 0. The posterior of a Walsh-Hadamard
            layer with optimised scales does not depend on a prior variance: no scale is looked at there.
        **options: More arguments of every layer: ``prior_variance``, ``gain``, ``covariance`` or ``rate``.

    Returns:
        The network, for :func:`geodax.vi.fit`.

    Raises:
        ValueError: For another inference, or a network without such layers, or a convolution in groups or dilated, or
            rules with other laws.
    """
    _arguments.chosen("variational", "inference", inference, tuple(_KINDS))
    key = _arguments.random_key("variational", key)
    dense, convolution = _KINDS[inference]
    laws = {path: law for path, _, law in priors.describe(network)} if priors else {}
    named, structure = jax.tree_util.tree_flatten_with_path(network, is_leaf=_is_layer)
    nodes = [node for _, node in named]
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named]
    if not any(map(_is_layer, nodes)):
        raise ValueError("variational: the network has no equinox.nn.Linear or Conv2d layer to be replaced.")

    def replaced(path: str, node: Any, key: PRNGKey) -> Any:
        variances = _variances(path, node, laws)
        own = options if inference == "whvi" else variances | options
        if isinstance(node, Linear):
            outputs = 1 if node.out_features == "scalar" else node.out_features
            common = {"use_bias": node.use_bias, "dtype": node.weight.dtype, "key": key} | own
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
                **own,
            )
        return node

    return structure.unflatten(
        [
            replaced(path, node, jax.random.fold_in(key, i))
            for i, (path, node) in enumerate(zip(paths, nodes, strict=True))
        ]
    )


def realize(network: PyTree, like: PyTree, key: PRNGKey | None = None) -> Any:
    """An ordinary network with weights drawn from a variational one: the inverse of :func:`variational`.

    Args:
        network: A network of :func:`variational`, fitted or not.
        like: The ordinary network that it was made from; its dense and convolution layers are replaced by drawn ones.
        key: Randomness; None for the mean weights.

    Returns:
        A network with the structure of ``like``; everything else in it is that of ``network``.

    Raises:
        ValueError: If the two do not belong together.
    """
    places, structure = jax.tree.flatten(like, is_leaf=_is_layer)
    try:
        nodes = structure.flatten_up_to(network)
    except ValueError as error:
        raise ValueError(f"realize: the networks do not have one structure: {error}") from None

    def drawn(place: Any, node: Any, key: PRNGKey | None) -> Any:
        if not _is_layer(place):
            return node
        layer = node.layer if isinstance(node, FirstOutput) else node
        if not isinstance(layer, _LAYERS):
            raise ValueError(f"realize: expected a variational layer, found a {type(layer).__name__}.")
        weight, bias = layer.arrays(key)
        shape = place.weight.shape
        if weight.shape != shape:
            raise ValueError(f"realize: expected a layer with weights of shape {shape}, found {weight.shape}.")
        arrays = (weight,) if bias is None else (weight, bias.reshape(place.bias.shape))
        return eqx.tree_at(lambda p: (p.weight,) if bias is None else (p.weight, p.bias), place, arrays)

    keys = [None if key is None else jax.random.fold_in(key, i) for i in range(len(nodes))]
    return structure.unflatten([drawn(*parts) for parts in zip(places, nodes, keys, strict=True)])


def _variances(path: str, node: Any, laws: Mapping[str, Any]) -> dict[str, float]:
    """Prior variances of a layer's weight and bias by the laws of its arrays."""
    if not laws or not _is_layer(node):
        return {}
    found = {}
    for name, option in (("weight", "prior_variance"), ("bias", "bias_prior_variance")):
        array = getattr(node, name)
        if array is None:
            continue
        law = laws[f"{path}.{name}" if path else name]
        if not isinstance(law, Gaussian) or law.mean != 0:
            raise ValueError(
                f"variational: the prior of {path}.{name} must be nn.Gaussian with mean 0 for this inference, found "
                f"{law!r}."
            )
        found[option] = resolve_scale(law.scale, array.shape, "Gaussian") ** 2
    return found


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
