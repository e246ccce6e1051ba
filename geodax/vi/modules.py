"""Modules with random weights, and networks that hold them.

A variational module is called like any Equinox layer, ``module(x, key=key)``; without a key it stands for its mean.
The networks that hold such layers need not know of keys: :func:`seeded` hands every variational module of a network a
key of its own, and :class:`Rows` hands every *row of a batch* other keys. Weights that are drawn anew for each example
have the same expected log likelihood as weights drawn once a batch, and gradients of far smaller variance (local
reparametrisation: Kingma, Salimans and Welling 2015).
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _arguments
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar


class AbstractVariational(eqx.Module):
    """A module whose weights have a variational posterior.

    :func:`total_kl`, :func:`seeded` and :func:`geodax.vi.fit` know these modules by this class, wherever in a network
    they are.
    """

    @abc.abstractmethod
    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Apply the module to one example, with weights drawn by the key, or with mean weights."""

    @abc.abstractmethod
    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Divergence of the weights' posterior from their prior, or an unbiased estimate of it by the key."""


class AbstractWhole(AbstractVariational):
    """A variational posterior over all arrays of a module or of any other position, drawn as a whole."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey) -> Position:
        """Draw a position."""


class Seeded(eqx.Module):
    """A variational module with a key that it uses where none is handed to it."""

    module: AbstractVariational
    key: PRNGKey

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Call the module."""
        return self.module(x, key=self.key if key is None else key)


class Rows(eqx.Module):
    """A network with drawn weights, other ones for each row of a batch.

    Attributes:
        network: The network.
        key: Randomness of the weights.
        share: Where the rows of a batch are shared out among devices, the number of this share.
        num_shares: How many shares there are.
    """

    network: PyTree
    key: PRNGKey
    share: Any = None
    num_shares: int = eqx.field(static=True, default=1)

    def __call__(self, x: Any) -> Any:
        """Outputs for one example, with weights drawn by the key."""
        return seeded(self.network, self.key)(x)

    def rows(self, x: Array) -> Array:
        """Outputs for the rows of x."""
        keys = jax.random.split(self.key, self.num_shares * x.shape[0])
        if self.share is not None:
            keys = jax.lax.dynamic_slice_in_dim(keys, self.share * x.shape[0], x.shape[0])
        return jax.vmap(lambda key, row: seeded(self.network, key)(row))(keys, x)


def is_variational(node: object) -> bool:
    """Whether a node of a pytree is a variational module."""
    return isinstance(node, AbstractVariational)


def require_network(owner: str, network: PyTree) -> None:
    """Refuse a bare position, arrays without any module that could have a posterior or be called.

    Args:
        owner: Whose argument it is.
        network: What was handed over.

    Raises:
        TypeError: If it is one.
    """
    nodes = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, eqx.Module))
    if not callable(network) and not any(isinstance(node, eqx.Module) for node in nodes):
        raise TypeError(
            f"{owner}: expected a network, or a posterior over a position, found {_arguments.described(network)}; for "
            "a posterior over it wrap it in vi.GaussianOver(position)."
        )


def seeded(network: PyTree, key: PRNGKey) -> Any:
    """Hand every variational module of a network a key of its own.

    Args:
        network: An Equinox module, or any pytree with such modules in it.
        key: A random key.

    Returns:
        The network; called without keys, its variational modules draw their weights.
    """
    return _replace(network, key, Seeded)


def draw(network: PyTree, key: PRNGKey, share: Any = None, num_shares: int = 1) -> Any:
    """What a log likelihood is evaluated at: a position drawn from a variational posterior.

    Args:
        network: A network with variational modules in it, or one posterior over a whole position.
        key: A random key.
        share: As for :class:`Rows`.
        num_shares: As for :class:`Rows`.

    Returns:
        A :class:`Rows` of the network, posteriors over whole positions (:class:`AbstractWhole`) drawn once for all
        rows; where the network is such a posterior itself, the drawn position.
    """
    if isinstance(network, AbstractWhole):
        return network.sample(key)
    key_whole, key_rows = jax.random.split(key)

    def drawn(node: AbstractVariational, key: PRNGKey) -> Any:
        return node.sample(key) if isinstance(node, AbstractWhole) else node

    return Rows(_replace(network, key_whole, drawn), key_rows, share, num_shares)


def total_kl(network: PyTree, *, key: PRNGKey | None = None) -> Scalar:
    """The sum of the divergences of all variational modules of a network.

    Args:
        network: An Equinox module, or any pytree with such modules in it.
        key: Randomness of those that are estimated (flows); None where all are exact.

    Returns:
        The sum in nats; 0 for a network without such modules.
    """
    modules = [node for node in jax.tree.leaves(network, is_leaf=is_variational) if is_variational(node)]
    total = None
    for i, module in enumerate(modules):
        value = module.kl(key=None if key is None else jax.random.fold_in(key, i))
        total = value if total is None else total + value.astype(total.dtype)
    return jnp.zeros(()) if total is None else total


def _replace(network: PyTree, key: PRNGKey, function: Callable[[Any, PRNGKey], Any]) -> PyTree:
    nodes, structure = jax.tree.flatten(network, is_leaf=is_variational)
    return structure.unflatten(
        [function(node, jax.random.fold_in(key, i)) if is_variational(node) else node for i, node in enumerate(nodes)]
    )
