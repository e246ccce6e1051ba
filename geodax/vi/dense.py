"""The dense layers of a network: where they are, and their weight and bias as one matrix.

A place counts missing leaves, so that it is the same in a network and in the part of it that has only arrays.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import Linear
from jaxtyping import Float

from geodax import _parameters, _tree
from geodax._types import Array, PyTree
from geodax.vi.modules import Use, uses


def is_dense(node: object) -> bool:
    """Whether a node of a pytree is an ordinary dense layer."""
    return isinstance(node, Linear)


def has_weight(layer: Any) -> bool:
    """Whether a dense layer has a weight of its own, not that of another by :class:`equinox.nn.Shared`."""
    return hasattr(layer.weight, "shape")  # otherwise a placeholder


def nodes_of(network: PyTree) -> tuple[list[Any], Any]:
    """Leaves and structure of a network whose dense layers and missing leaves are leaves."""
    return jax.tree.flatten(network, is_leaf=_is_node)


def places_of(owner: str, network: PyTree, where: Callable[[Any], Any] | None) -> tuple[int, ...]:
    """Return the places of dense layers among the nodes of a network, by default of all :class:`equinox.nn.Linear`."""
    dense = {i: node for i, node in enumerate(nodes_of(network)[0]) if is_dense(node) and has_weight(node)}
    if not dense:
        raise ValueError(
            f"{owner}: expected a network with dense layers (equinox.nn.Linear), found none in a "
            f"{type(network).__name__}. For networks of Flax and Haiku use gx.nn.last_layer_laplace, which takes their "
            "parameters, or gx.vi.ivon."
        )
    places = tuple(dense)
    if where is not None:
        wanted = where(network)
        wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
        places = tuple(i for i, node in dense.items() if any(node is other for other in wanted))
        if not wanted or len(places) != len(wanted):
            found = ", ".join(type(other).__name__ for other in wanted) or "none"
            raise TypeError(
                f"{owner}: where must select dense layers (nn.Linear) of the network, each once, found {found}; "
                "leave out where= for all of them."
            )
    return places


def layers_at(network: PyTree, places: tuple[int, ...]) -> list[Any]:
    """Return the layers at the given places."""
    nodes = nodes_of(network)[0]
    return [nodes[place] for place in places]


def replaced(network: PyTree, places: tuple[int, ...], function: Callable[[list[Any]], list[Any]]) -> Any:
    """Replace the layers at the given places by those that a function makes of them."""
    nodes, structure = nodes_of(network)
    for place, node in zip(places, function([nodes[place] for place in places]), strict=True):
        nodes[place] = node
    return structure.unflatten(nodes)


def matrix_of(layer: Any) -> Float[Array, "o i"]:
    """Return a layer's weight with its bias as the last column."""
    if layer.bias is None:
        return layer.weight
    return jnp.concatenate([layer.weight, layer.bias.reshape(-1, 1)], axis=1)


def with_matrix(layer: Any, matrix: Float[Array, "o i"]) -> Any:
    """Return the layer with the weight and bias of a matrix."""
    matrix = matrix.astype(layer.weight.dtype)
    if layer.bias is None:
        return eqx.tree_at(lambda node: node.weight, layer, matrix)
    parts = matrix[:, :-1], matrix[:, -1].reshape(layer.bias.shape)
    return eqx.tree_at(lambda node: (node.weight, node.bias), layer, parts)


def extended(layer: Any, inputs: Float[Array, "*batch i"]) -> Float[Array, "*batch j"]:
    """Append 1 to the inputs of a layer with a bias."""
    inputs = _tree.widened(inputs)
    if layer.bias is None:
        return inputs
    return jnp.concatenate([inputs, jnp.ones((*inputs.shape[:-1], 1), inputs.dtype)], axis=-1)


def output_zeros(layer: Any) -> Array:
    """Return zeros like the output of a layer."""
    shape = () if layer.out_features == "scalar" else (layer.out_features,)
    return jnp.zeros(shape, layer.weight.dtype)


def require_one_call(
    owner: str, network: PyTree, places: tuple[int, ...], call: Callable[..., Any], *args: Any, in_batch: bool = False
) -> None:
    """Raise ValueError unless each of some layers is called with one input for an example, and TypeError for a part.

    ``call`` is ``(network, *args) -> outputs`` for one example, or with ``in_batch`` for a batch of one, from arrays or
    their shapes and dtypes.
    """
    chosen = layers_at(network, places)
    try:
        found = uses(network, _is_node, lambda node: any(node is layer for layer in chosen), call, *args)
    except (TypeError, ValueError, RuntimeError) as error:
        if not _parameters.explain(error, network) and any(node is None for node in nodes_of(network)[0]):
            raise TypeError(
                f"{owner}: expected a whole network, found a {type(network).__name__} with missing leaves that cannot "
                "be called. If it is the part with the arrays, of equinox.partition or equinox.filter, give the whole "
                "network, equinox.combine(arrays, rest), and a likelihood without apply=. If it takes more than an "
                "example, as the state of equinox.nn.BatchNorm, wrap it in a module that is called with the example."
            ) from error
        raise
    for place in places:
        use = found.get(place, Use(0, False))
        if use.calls != 1 or use.num_inputs != 1 or (use.is_batched and not in_batch):
            path, _ = jax.tree_util.tree_flatten_with_path(network, is_leaf=_is_node)[0][place]
            raise ValueError(
                f"{owner}: expected dense layers that a network calls once for an example, but "
                f"{jax.tree_util.keystr(path, simple=True, separator='.')!r} is {_described(found.get(place))}. Select "
                "others with where=."
            )


def _is_node(node: object) -> bool:
    return node is None or is_dense(node)


def _described(use: Use | None) -> str:
    if use is None:
        return "not called"
    return "called under jax.vmap" if use.is_batched else "called several times or in a loop"
