"""The vectors of Walsh-Hadamard layers as the position of a sampler, instead of a variational posterior."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from geodax._types import Array, PyTree, Scalar
from geodax.nn.hadamard import HadamardWeight
from geodax.posterior import Posterior
from geodax.vi.families import Point


def hadamard_posterior(
    network: PyTree, log_likelihood: Callable[[Any, PyTree], Array], *, num_data: int
) -> tuple[Posterior, list[Array]]:
    """Create the posterior of the vectors g of all Walsh-Hadamard layers of a network; other parameters are fixed.

    Given S_1 and S_2 the weights are linear in g, so this is an O(D)-dimensional posterior over matrices of D^2
    entries, in which stochastic-gradient and exact samplers move quickly.

    Args:
        network: A network with :class:`~geodax.nn.WHVILinear` or :class:`~geodax.nn.WHVIConv2d` layers, fitted or not.
        log_likelihood: ``(position, batch) -> (B,)`` with networks as positions.
        num_data: Number of examples in the whole data.

    Returns:
        The posterior, whose positions are lists of vectors, one per layer, under their priors N(0, lambda I); and the
        vectors of the network, as an initial position. :func:`with_vectors` converts a position to a network.

    Raises:
        ValueError: If the network has no such layer.
    """
    vectors = [weight.g.location for weight in _weights(network)]
    if not vectors:
        raise ValueError("hadamard_posterior: the network has no Walsh-Hadamard layer.")

    def log_prior(position: list[Array]) -> Scalar:
        parts = [weight.g.kl(weight.prior_variance) for weight in _weights(with_vectors(network, position))]
        return -sum(parts[1:], start=parts[0])

    def likelihood(position: list[Array], batch: PyTree) -> Array:
        return log_likelihood(with_vectors(network, position), batch)

    return Posterior(log_prior=log_prior, log_likelihood=likelihood, num_data=num_data), vectors


def with_vectors(network: PyTree, vectors: list[Array]) -> Any:
    """Return a network whose Walsh-Hadamard layers have the vectors of a position, without randomness."""
    points = [Point(vector) for vector in vectors]
    return eqx.tree_at(lambda tree: [weight.g for weight in _weights(tree)], network, points)


def _weights(network: PyTree) -> list[HadamardWeight]:
    nodes = jax.tree.leaves(network, is_leaf=_is_weight)
    return [node for node in nodes if _is_weight(node)]


def _is_weight(node: object) -> bool:
    return isinstance(node, HadamardWeight)
