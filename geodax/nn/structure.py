"""Layers whose parameters are not free arrays, and the geometry of a network that has some."""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax

from geodax._types import PyTree
from geodax.geometry.manifolds import AbstractManifold, Euclidean
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.nn.densities import AbstractStructuredPrior


class AbstractStructured(eqx.Module):
    """A layer with parameters on a manifold, or in coordinates with a law of their own.

    :func:`geometry` and :class:`~geodax.nn.priors.Priors` know these layers by this class, wherever in a network they
    are; a layer of your own needs the two methods.
    """

    @abc.abstractmethod
    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        """The layer with manifolds in place of its arrays; orthonormal matrices have the one that is given."""

    @abc.abstractmethod
    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        """The laws, by the name of the field, of those fields that are no free arrays."""


def geometry(network: PyTree, *, stiefel: AbstractManifold | None = None) -> Product:
    """The manifold of a network's parameters.

    Args:
        network: An Equinox module, or any pytree with such modules in it.
        stiefel: Geometry of the orthonormal weights; None takes ``Stiefel()``, canonical metric and Cayley flow. For
            :func:`geodax.sghmc` ``Stiefel(metric="embedded", flow="polar")`` costs half as much.

    Returns:
        The product with a :class:`~geodax.Stiefel` over each orthonormal weight and an :class:`~geodax.Euclidean` over
        each other array, for :func:`geodax.sghmc`, :func:`geodax.hmc` or :func:`geodax.nuts`.

    Example:
        ``gx.sghmc(posterior, manifold=gx.nn.geometry(network), step_size=1e-4)``
    """
    curved = Stiefel() if stiefel is None else stiefel
    tree = jax.tree.map(
        lambda node: node.manifolds(curved) if is_structured(node) else Euclidean(), network, is_leaf=is_structured
    )
    return Product(tree)


def is_structured(node: object) -> bool:
    """Whether a node of a pytree is such a layer."""
    return isinstance(node, AbstractStructured)
