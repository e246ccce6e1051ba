"""Conversion of ordinary networks to variational ones, layer by layer, and back."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
from equinox.nn import Conv, ConvTranspose, Linear, MultiheadAttention
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.nn.densities import Gaussian, resolve_scale
from geodax.nn.dropout import DropoutConv2d, DropoutLinear
from geodax.nn.hadamard import WHVIConv2d, WHVILinear
from geodax.nn.layers import BottleneckLinear
from geodax.nn.mean_field import MeanFieldConv2d, MeanFieldLinear, flag
from geodax.nn.priors import Priors
from geodax.nn.structure import is_structured
from geodax.vi.dense import has_weight
from geodax.vi.stand_ins import AbstractStandIn

_KINDS = {
    "whvi": (WHVILinear, WHVIConv2d),
    "mean-field": (MeanFieldLinear, MeanFieldConv2d),
    "mc-dropout": (DropoutLinear, DropoutConv2d),
}
_LAYERS = (WHVILinear, WHVIConv2d, MeanFieldLinear, MeanFieldConv2d, DropoutLinear, DropoutConv2d)


class FirstOutput(AbstractStandIn):
    """A layer with one output, returned as a scalar."""

    layer: Any

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, ""]:
        return self.layer(x, key=key)[0]


class ScalarInput(AbstractStandIn):
    """A layer with one input, applied to a scalar."""

    layer: Any

    def __call__(self, x: Float[Array, ""], *, key: PRNGKey | None = None) -> Float[Array, "..."]:
        x = _checks.array("variational", "x", x)
        if x.shape:
            raise ValueError(f"variational: the layer takes one number, found an array of shape {x.shape}.")
        return self.layer(x[None], key=key)


def variational(
    network: PyTree, inference: str, *, key: PRNGKey, priors: Priors | None = None, local: bool = True, **options: Any
) -> Any:
    """Return a copy of a network with variational layers in place of its dense and convolution layers.

    Other layers (norms, embeddings, recurrent cells) are kept as they are, with parameters without a posterior.

    Args:
        network: An Equinox module with :class:`equinox.nn.Linear` and :class:`equinox.nn.Conv2d` layers:
            :class:`~geodax.nn.MLP`, :class:`~geodax.nn.VGG16`, :class:`~geodax.nn.ResNet20`, or a custom one. It does
            not have to pass keys to its layers. A layer may be applied to one example several times, by ``jax.vmap`` or
            in several calls; its weights are then the same each time.
        inference: ``"whvi"``, ``"mean-field"`` or ``"mc-dropout"``.
        key: PRNG key for the initial parameters; those of the network are not used.
        priors: Rules that determine the normal priors of ``"mean-field"`` and ``"mc-dropout"`` layers; the priors of
            weights and biases must be :class:`~geodax.nn.Gaussian` with mean 0. The posterior of a Walsh-Hadamard layer
            with optimised scales does not depend on a prior variance, and its scale is ignored.
        local: Whether dense mean-field layers draw their outputs instead of their weights, which costs less but has the
            right distribution only if one vector of each example passes through the layer. :func:`geodax.vi.fit`,
            :func:`geodax.vi.predict` and :func:`geodax.vi.sample_functions` detect other layers and draw their weights.
            Use False for layers that see several vectors of an example and get their keys from other code, such as
            :func:`geodax.vi.seeded`; layers of :class:`equinox.nn.MultiheadAttention` always use it. All other layers
            draw weights.
        **options: Further arguments of every layer: ``prior_variance``, ``gain``, ``covariance`` or ``rate``.

    Returns:
        The network, for :func:`geodax.vi.fit`.

    Raises:
        TypeError: If ``local`` is not a bool.
        ValueError: If the inference is unknown, the network has no such layer, a convolution is grouped, dilated,
            transposed, not zero-padded or not two-dimensional, a layer has orthonormal or low-rank weights instead of a
            free matrix, or a rule has another distribution.
    """
    _checks.chosen("variational", "inference", inference, tuple(_KINDS))
    key = _checks.random_key("variational", key)
    local = flag("variational", local)
    _require_free_layers(network, inference)
    dense, convolution = _KINDS[inference]
    priors_ = {path: prior for path, _, prior in priors.describe(network)} if priors else {}
    named, structure = jax.tree_util.tree_flatten_with_path(network, is_leaf=_is_layer)
    nodes = [node for _, node in named]
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named]
    attentions = [path for path, node in _named(network, _is_attention) if _is_attention(node)]
    if not any(map(_is_layer, nodes)):
        raise ValueError("variational: the network has no equinox.nn.Linear or Conv2d layer to replace.")

    def replaced(place: Any, path: str, node: Any, key: PRNGKey) -> Any:
        variances = _variances(path, node, priors_)
        own = options if inference == "whvi" else variances | options
        if isinstance(node, Linear):
            inputs, outputs = (1 if size == "scalar" else size for size in (node.in_features, node.out_features))
            common = {"use_bias": node.use_bias, "dtype": node.weight.dtype, "key": key} | own
            if inference == "mean-field":
                common["local"] = local and not any(place[: len(path)] == path for path in attentions)
            layer: Any = dense(inputs, outputs, **common)
            layer = FirstOutput(layer) if node.out_features == "scalar" else layer
            return ScalarInput(layer) if node.in_features == "scalar" else layer
        if isinstance(node, Conv):
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
            replaced(place, path, node, jax.random.fold_in(key, i))
            for i, ((place, node), path) in enumerate(zip(named, paths, strict=True))
        ]
    )


def realize(network: PyTree, like: PyTree, key: PRNGKey | None = None) -> Any:
    """Draw an ordinary network from a variational one: the inverse of :func:`variational`.

    Args:
        network: A network of :func:`variational`, fitted or not.
        like: The original ordinary network; its dense and convolution layers are replaced by drawn ones.
        key: PRNG key; None for the mean weights.

    Returns:
        A network with the structure of ``like``; everything else is taken from ``network``.

    Raises:
        ValueError: If the two networks do not match.
    """
    places, structure = jax.tree.flatten(like, is_leaf=_is_layer)
    try:
        nodes = structure.flatten_up_to(network)
    except ValueError as error:
        raise ValueError(f"realize: the networks have different structures: {error}") from None

    def drawn(place: Any, node: Any, key: PRNGKey | None) -> Any:
        if not _is_layer(place):
            return node
        layer = node
        while isinstance(layer, (FirstOutput, ScalarInput)):
            layer = layer.layer
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


def _variances(path: str, node: Any, priors_: Mapping[str, Any]) -> dict[str, float]:
    """Prior variances of a layer's weight and bias from the priors of its arrays."""
    if not priors_ or not _is_layer(node):
        return {}
    found = {}
    for name, option in (("weight", "prior_variance"), ("bias", "bias_prior_variance")):
        array = getattr(node, name)
        if array is None:
            continue
        prior = priors_[f"{path}.{name}" if path else name]
        if not isinstance(prior, Gaussian) or prior.mean != 0:
            raise ValueError(
                f"variational: the prior of {path}.{name} must be nn.Gaussian with mean 0 for this inference, found "
                f"{prior!r}."
            )
        found[option] = resolve_scale(prior.scale, array.shape, "Gaussian") ** 2
    return found


def _named(network: PyTree, is_leaf: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(network, is_leaf=is_leaf)[0]


def _is_layer(node: object) -> bool:
    return isinstance(node, Linear) or (isinstance(node, Conv) and node.num_spatial_dims == 2)


def _is_attention(node: object) -> bool:
    return isinstance(node, MultiheadAttention)


def _is_not_free(node: object) -> bool:
    return is_structured(node) or isinstance(node, BottleneckLinear)


def _is_other_convolution(node: object) -> bool:
    return isinstance(node, (Conv, ConvTranspose)) and not _is_layer(node)


def _require_free_layers(network: PyTree, inference: str) -> None:
    def is_node(node: object) -> bool:
        return _is_layer(node) or _is_not_free(node) or _is_other_convolution(node)

    for path, node in _named(network, is_node):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "the network"
        if _is_not_free(node):
            raise ValueError(
                f"variational: inference={inference!r} supports only free weights, but {name} is a "
                f"{type(node).__name__}, whose weights are structured (orthogonal=True or rank=...). Build the "
                "network without them, or sample it: gx.sghmc(posterior, manifold=gx.nn.geometry(network), "
                "step_size=...)."
            )
        if _is_layer(node) and not has_weight(node):
            raise ValueError(
                f"variational: {name} has the weight of another layer (equinox.nn.Shared), and a layer's posterior "
                "cannot be shared. Use vi.GaussianOver or vi.ivon, which take tied weights."
            )
        if _is_other_convolution(node):
            raise ValueError(
                f"variational: {name}, a {type(node).__name__} over {node.num_spatial_dims} axes, has no variational "
                "form; only Conv2d has. To fit it without a posterior, convert the other layers separately and insert "
                "them: equinox.tree_at(lambda net: net.head, network, "
                "nn.variational(network.head, ...))."
            )


def _geometry(node: Conv) -> dict[str, Any]:
    padding = node.padding
    if node.padding_mode != "ZEROS" and padding != "VALID" and (isinstance(padding, str) or any(map(any, padding))):
        raise ValueError(
            f"variational: a convolution must be padded with zeros, found padding_mode {node.padding_mode!r}; pad the "
            "image with jnp.pad(x, ..., mode=...) before a convolution without padding."
        )
    if not isinstance(padding, str):
        sizes = {size for pair in padding for size in pair}
        if len(sizes) > 1:
            raise ValueError(f"variational: a convolution must have equal padding on all sides, found {padding!r}.")
        padding = sizes.pop()
    if node.groups != 1 or set(node.dilation) != {1} or len(set(node.stride)) > 1:
        raise ValueError(
            "variational: a convolution must have one group, no dilation and one stride, found "
            f"groups {node.groups}, dilation {node.dilation}, stride {node.stride}."
        )
    return {"stride": node.stride[0], "padding": padding}
