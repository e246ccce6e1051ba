r"""A posterior of a network whose dense layers have matrices with Kronecker-factored covariances.

The weight and bias of a layer are one matrix :math:`W`, o x i. In units of the prior's standard deviations,
:math:`\theta_{jk} = W_{jk} / \lambda_k^{1/2}`, it is normal with the mean :math:`U M V^T` and independent entries of
:math:`U^T \theta V`, where U and V are orthogonal. The other arrays have independent normal entries.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.vi.dense import layers_at, matrix_of, nodes_of, replaced, with_matrix
from geodax.vi.families import DiagonalGaussian, normal
from geodax.vi.modules import AbstractWhole
from geodax.vi.optimizers import rounded

_LOG_2PI = math.log(2.0 * math.pi)


class MatrixGaussian(eqx.Module):
    """Normal distribution of a matrix whose entries are independent in a basis that is a Kronecker product.

    Attributes:
        deviation: Standard deviations in the basis.
        left: Orthogonal matrix for the rows.
        right: Orthogonal matrix for the columns; those of split layers may have rows of zeros below it.
        units: The prior's standard deviations: of the weights, and of the biases or None.
    """

    mean: Float[Array, "o i"]
    deviation: Float[Array, "o i"]
    left: Float[Array, "o o"]
    right: Float[Array, "j i"]
    units: tuple[float, float | None] = eqx.field(static=True)

    def sample(self, key: PRNGKey) -> Float[Array, "o i"]:
        """Draw a matrix."""
        return self.outward(self.mean + self.deviation * normal(key, self.mean.shape, self.mean.dtype))

    def log_prob(self, matrix: Float[Array, "o i"]) -> Scalar:
        """Compute the log density at a matrix."""
        whitened = (self.inward(matrix) - self.mean) / self.deviation
        of_units = self.mean.shape[0] * jnp.sum(jnp.log(self.columns()))
        return -0.5 * jnp.sum(whitened**2 + 2.0 * jnp.log(self.deviation) + _LOG_2PI) - of_units

    def kl(self) -> Scalar:
        """Compute the divergence from the prior, which is standard normal in the basis."""
        return DiagonalGaussian(self.mean, jnp.log(self.deviation)).kl()

    def columns(self) -> Float[Array, " i"]:
        """Return the prior's standard deviation of each column."""
        return column_units(self.units, self.mean.shape[1], self.mean.dtype)

    def inward(self, matrix: Float[Array, "o i"]) -> Float[Array, "o i"]:
        """Return the coordinates of a matrix in the basis."""
        return self.left.T @ (matrix / self.columns()[None]) @ self.right[: self.mean.shape[1]]

    def outward(self, coordinates: Float[Array, "o i"]) -> Float[Array, "o i"]:
        """Return the matrix with the given coordinates."""
        found = self.left @ coordinates @ self.right.T
        return found[:, : self.mean.shape[1]] * self.columns()[None]


class KroneckerOver(AbstractWhole):
    """Posterior of a network: a matrix distribution for each of some dense layers, independent entries elsewhere.

    Made by :func:`~geodax.vi.noisy_kfac`. Called like a layer, it draws a network and calls it.

    Attributes:
        network: The network of the means.
        layers: Distributions of the layers.
        rest: Distribution of the entries of the other arrays with a posterior; None if there are none.
        places: Places of the layers among the nodes of the network.
        is_rest: Whether an array outside the layers has a posterior, one entry for each.
        prior_variance: Variances of the priors of these arrays.
    """

    network: PyTree
    layers: tuple[MatrixGaussian, ...]
    rest: DiagonalGaussian | None
    places: tuple[int, ...] = eqx.field(static=True)
    is_rest: tuple[bool, ...] = eqx.field(static=True)
    prior_variance: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        network: Any = self.network if key is None else self.sample(key)
        return network(x)

    @property
    def mean(self) -> Position:
        """Return the network of the means."""
        return self.network

    def sample(self, key: PRNGKey) -> Position:
        keys = jax.random.split(key, len(self.layers) + 1)
        matrices = [layer.sample(keys[i]) for i, layer in enumerate(self.layers)]
        rest = None if self.rest is None else self.rest.sample(keys[-1])
        return assembled(self.network, self.places, matrices, self.is_rest, rest)

    def log_prob(self, position: Position) -> Scalar:
        """Compute the log density at a network."""
        matrices = [_tree.widened(matrix_of(layer)) for layer in layers_at(position, self.places)]
        parts = [layer.log_prob(matrix) for layer, matrix in zip(self.layers, matrices, strict=True)]
        if self.rest is not None:
            parts.append(self.rest.log_prob(vector_of(position, self.places, self.is_rest)))
        return _tree.total(parts)

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        parts = [layer.kl() for layer in self.layers]
        if self.rest is not None:
            parts.append(self.rest.kl(self.prior_variances()))
        return _tree.total(parts)

    def prior_variances(self) -> Float[Array, " D"]:
        """Return the prior variance of each entry outside the layers."""
        chosen = _rest(self.network, self.places, self.is_rest)
        parts = [jnp.full(a.size, v, _tree.widened(a).dtype) for a, v in zip(chosen, self.prior_variance, strict=True)]
        return jnp.concatenate(parts)


def column_units(units: tuple[float, float | None], size: int, dtype: Any) -> Float[Array, " i"]:
    """Return the prior's standard deviation of each column, the last of which is that of the biases."""
    of_weights, of_biases = units
    found = jnp.full(size, of_weights, dtype)
    return found if of_biases is None else found.at[-1].set(of_biases)


def others(network: PyTree, places: tuple[int, ...]) -> list[Any]:
    """Return the leaves outside some layers, of a tree like the arrays of a network."""
    nodes = [node for i, node in enumerate(nodes_of(network)[0]) if i not in places]
    return jax.tree.leaves(nodes)


def vector_of(network: PyTree, places: tuple[int, ...], is_rest: tuple[bool, ...]) -> Float[Array, " D"]:
    """Return the entries of the arrays outside the layers that have a posterior, in at least single precision."""
    return jnp.concatenate([jnp.ravel(_tree.widened(array)) for array in _rest(network, places, is_rest)])


def _rest(network: PyTree, places: tuple[int, ...], is_rest: tuple[bool, ...]) -> list[Array]:
    arrays = others(eqx.filter(network, eqx.is_inexact_array), places)
    return [array for array, chosen in zip(arrays, is_rest, strict=True) if chosen]


def assembled(
    network: PyTree,
    places: tuple[int, ...],
    matrices: list[Array],
    is_rest: tuple[bool, ...],
    rest: Array | None,
    points: tuple[Array, ...] | None = None,
) -> Any:
    """Return a network with other values; leaves that are no arrays of real numbers stay.

    The matrices belong to the layers at some places among its nodes; none leave the layers as they are. ``rest`` are
    the entries of the arrays outside the layers that have a posterior, ``points`` the arrays that have none; None
    leaves them.
    """
    nodes, structure = nodes_of(network)
    free, start, number = iter(points or ()), 0, 0
    for i, node in enumerate(nodes):
        if i in places:
            continue
        leaves, inner = jax.tree.flatten(node)
        for j, leaf in enumerate(leaves):
            if not eqx.is_inexact_array(leaf):
                continue
            if not is_rest[number] and points is not None:
                leaves[j] = rounded(next(free), leaf)
            elif is_rest[number] and rest is not None:
                leaves[j] = rest[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype)
                start += leaf.size
            number += 1
        nodes[i] = inner.unflatten(leaves)
    found = structure.unflatten(nodes)
    if not matrices:
        return found
    return replaced(found, places, lambda layers: list(map(with_matrix, layers, matrices)))
