"""Batch normalisation as the papers' networks have it, with statistics that are frozen for sampling.

While a network is trained, and in burn-in, channels are normalised by mean and variance over the current batch, through
which gradients flow. There is no posterior then: the likelihood of an image depends on the other images of its batch.
Before the first draw the statistics are computed over the first training images, layer by layer, and stay as they are.
From then on a normalisation is an affine function of one image, and what is sampled is the posterior of a network with
these affine functions: its likelihood is a product over images. The statistics are part of that model's definition,
not of its parameters, and differ from chain to chain. With the parameters they no longer follow: the network's
activations need not have mean 0 and variance 1 later.

Source:
    Ioffe and Szegedy (2015), Batch normalization: accelerating deep network training by reducing internal covariate
    shift. ICML.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import geodax as gx

NORMALISATIONS = ("filter response", "batch")
_NUM_REFRESHED = 2000  # training images whose statistics are frozen
_AXIS = "images"


class BatchNorm(eqx.Module):
    """Normalises, scales and shifts each channel of one image by fixed statistics.

    Attributes:
        weight: Scale of each channel, a parameter.
        bias: Shift of each channel, a parameter.
        statistics: Mean and variance of each channel, not parameters; None in the position of a sampler.
        epsilon: Added to the variance.
    """

    weight: jax.Array
    bias: jax.Array
    statistics: tuple[jax.Array, jax.Array] | None = None
    epsilon: float = eqx.field(static=True, default=1e-5)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise one image (channel, row, column)."""
        if self.statistics is None:
            raise ValueError("BatchNorm: no statistics; apply the network through_batch, or to with_statistics.")
        mean, variance = self.statistics
        scale = self.weight * jax.lax.rsqrt(variance + self.epsilon)
        return scale[:, None, None] * (x - mean[:, None, None]) + self.bias[:, None, None]


def normalised(network: Any, normalisation: str) -> Any:
    """A network of :mod:`geodax.nn` with one of the ``NORMALISATIONS`` in place of its own."""
    if normalisation == "filter response":
        return network
    kind = gx.nn.FilterResponseNorm
    return jax.tree.map(
        lambda node: BatchNorm(node.weight, node.bias) if isinstance(node, kind) else node,
        network,
        is_leaf=lambda node: isinstance(node, kind),
    )


def layers_of(network: Any) -> list[BatchNorm]:
    """The layers with batch statistics."""
    return [node for node in jax.tree.leaves(network, is_leaf=_is_norm) if _is_norm(node)]


def with_statistics(network: Any, statistics: list[Any] | None) -> Any:
    """A network whose layers have these statistics, or none."""
    layers = layers_of(network)
    values = [None] * len(layers) if statistics is None else statistics
    return _with_layers(
        network, [BatchNorm(n.weight, n.bias, v, n.epsilon) for n, v in zip(layers, values, strict=True)]
    )


def through_batch(network: Any, images: jax.Array) -> tuple[jax.Array, list[Any]]:
    """Outputs for a batch normalised by its own statistics (image, class), and these statistics of each layer."""
    layers = layers_of(network)

    def one(image: jax.Array) -> tuple[jax.Array, list[Any]]:
        found: list[Any] = [None] * len(layers)

        def layer(i: int) -> Callable[[jax.Array], jax.Array]:
            def apply(x: jax.Array) -> jax.Array:
                mean = jax.lax.pmean(jnp.mean(x, axis=(1, 2)), _AXIS)
                centred = x - mean[:, None, None]
                found[i] = mean, jax.lax.pmean(jnp.mean(centred * centred, axis=(1, 2)), _AXIS)
                return BatchNorm(layers[i].weight, layers[i].bias, found[i], layers[i].epsilon)(x)

            return apply

        outputs = _with_layers(network, [layer(i) for i in range(len(layers))])(image)
        return outputs, found

    return jax.vmap(one, axis_name=_AXIS, out_axes=(0, None))(images)


def refreshed(network: Any, images: Any) -> Any:
    """A network with the statistics of the first of some images; one without batch normalisation as it is."""
    if not layers_of(network):
        return network
    return with_statistics(network, through_batch(network, jnp.asarray(images[:_NUM_REFRESHED]))[1])


class State(NamedTuple):
    """A sampler's state, and statistics beside it.

    Attributes:
        inner: The sampler's.
        statistics: Of each layer.
    """

    inner: Any
    statistics: list[Any]

    @property
    def position(self) -> Any:
        """The network, with its statistics."""
        return with_statistics(self.inner.position, self.statistics)


@dataclasses.dataclass(frozen=True)
class Sampler:
    """A sampler of the parameters of networks with batch normalisation.

    Attributes:
        algorithm_of: From a log likelihood of each image to an algorithm.
        is_frozen: Whether statistics are those of the state, or those of each batch.
    """

    algorithm_of: Callable[[Any], Any]
    is_frozen: bool

    def init(self, network: Any) -> State:
        """Begin at a network, with its statistics if it has them."""
        zeros = [jnp.zeros_like(layer.bias) for layer in layers_of(network)]
        kept = [layer.statistics for layer in layers_of(network)]
        statistics = [(z, z + 1) if k is None else k for z, k in zip(zeros, kept, strict=True)]
        return State(self._algorithm(statistics).init(with_statistics(network, None)), statistics)

    def step(self, key: jax.Array, state: State, batch: Any) -> tuple[State, Any]:
        """One step of the algorithm."""
        inner, info = self._algorithm(state.statistics).step(key, state.inner, batch)
        return State(inner, state.statistics), info

    def _algorithm(self, statistics: list[Any]) -> Any:
        def apply(network: Any, images: jax.Array) -> jax.Array:
            if self.is_frozen:
                return jax.vmap(with_statistics(network, statistics))(images)
            return through_batch(network, images)[0]

        likelihood = gx.nn.CategoricalLikelihood(apply)
        return self.algorithm_of(lambda network, batch: likelihood(network, batch))


def sampler_of(algorithm_of: Callable[[Any], Any], network: Any, *, is_frozen: bool) -> Any:
    """The algorithm for the likelihood of a network, with batch normalisation or without."""
    if layers_of(network):
        return Sampler(algorithm_of, is_frozen)
    return algorithm_of(gx.nn.CategoricalLikelihood())


def freeze(images: Any) -> Callable[[State], State]:
    """From a state to one with the statistics of the first of some images."""
    return lambda state: State(state.inner, [n.statistics for n in layers_of(refreshed(state.position, images))])


def _is_norm(node: Any) -> bool:
    return isinstance(node, BatchNorm)


def _with_layers(network: Any, layers: list[Any]) -> Any:
    nodes, structure = jax.tree.flatten(network, is_leaf=_is_norm)
    rest = iter(layers)
    return structure.unflatten([next(rest) if _is_norm(node) else node for node in nodes])
