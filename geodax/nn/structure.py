"""Layers with structured parameters, and the geometry of networks that contain them."""

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
    """A layer with parameters on a manifold, or in coordinates with their own prior.

    :func:`geometry` and :class:`~geodax.nn.priors.Priors` find instances of this class anywhere in a network; custom
    layers have to implement the two methods.
    """

    @abc.abstractmethod
    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        """Return the layer with manifolds in place of its arrays: ``stiefel`` for orthonormal matrices."""

    @abc.abstractmethod
    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        """Return the priors of the structured arrays, by field name."""


def geometry(network: PyTree, *, stiefel: AbstractManifold | None = None) -> Product:
    """Return the manifold of a network's parameters.

    Args:
        network: An Equinox module, or any pytree that contains such modules.
        stiefel: Geometry of the orthonormal weights; None means ``Stiefel()``, with canonical metric and Cayley flow.
            For :func:`geodax.sghmc` ``Stiefel(metric="embedded", flow="polar")`` costs half as much.

    Returns:
        The product with a :class:`~geodax.Stiefel` for each orthonormal weight and an :class:`~geodax.Euclidean` for
        each other array, for :func:`geodax.sghmc`, :func:`geodax.hmc` or :func:`geodax.nuts`.

    Example:
        ``gx.sghmc(posterior, manifold=gx.nn.geometry(network), step_size=1e-4)``
    """
    curved = Stiefel() if stiefel is None else stiefel

    def of_layer(layer: AbstractStructured) -> PyTree:
        # the weight of a layer that is tied by equinox.nn.Shared is in another one
        return jax.tree.map(
            lambda manifold, part: manifold if jax.tree.leaves(part) else part,
            layer.manifolds(curved),
            layer,
            is_leaf=lambda node: isinstance(node, AbstractManifold),
        )

    tree = jax.tree.map(
        lambda node: of_layer(node) if is_structured(node) else Euclidean(), network, is_leaf=is_structured
    )
    return Product(tree)


def is_structured(node: object) -> bool:
    """Whether a node of a pytree is a structured layer."""
    return isinstance(node, AbstractStructured)
