"""A metric as the mass of the Euclidean leaves, with the manifold's own geometry on the others."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Momentum, Position, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.sgmcmc.metrics.base import require_real


class Mass(NamedTuple):
    """The geometry of a sampler. Momenta of Euclidean leaves are in units of the square root of the metric, if any."""

    metric: Any
    manifold: AbstractManifold
    num_data: int

    def init(self, position: Position) -> PyTree:
        """Return the initial state of the metric, which needs a Euclidean leaf (ValueError), real ones (TypeError)."""
        if self.metric is None:
            return ()
        if not any(jax.tree.leaves(self.manifold.is_flat(position))):
            raise ValueError(
                f"The metric {type(self.metric).__name__} is the mass of the Euclidean leaves of the position, but "
                f"there are none: the whole position lies on {type(self.manifold).__name__}. Leave metric out."
            )
        flat = self._flat(position, position)
        require_real(type(self.metric).__name__, flat)
        return self.metric.init(flat)

    def flow(self, state: PyTree, position: Position, momentum: Momentum, time: Scalar) -> tuple[Position, Momentum]:
        """Move freely for a time, with the mass from the metric's state."""
        if any(map(_tree.is_half, jax.tree.leaves(position))):  # the time has single precision
            time = jax.tree.map(lambda leaf: time.astype(jnp.finfo(leaf.dtype).dtype), position)
        moved, turned = self.manifold.flow(position, self.whiten(state, position, momentum), time)
        if self.metric is None:
            return moved, turned
        mask = self.manifold.is_flat(position)
        return moved, eqx.combine(eqx.filter(momentum, mask), eqx.filter(turned, mask, inverse=True))

    def update(self, state: PyTree, position: Position, gradient: PyTree) -> PyTree:
        """Update the metric from the mean gradient of the potential over the examples."""
        if self.metric is None:
            return state
        mean = jax.tree.map(lambda g: -g / self.num_data, gradient)
        return self.metric.update(state, self._flat(position, position), self._flat(position, mean))

    def whiten(self, state: PyTree, position: Position, momentum: Momentum) -> Momentum:
        """Multiply the Euclidean leaves by the inverse square root of the metric."""
        if self.metric is None:
            return momentum
        flat, curved = eqx.partition(momentum, self.manifold.is_flat(position))
        return eqx.combine(self.metric.apply_inverse_sqrt(state, flat), curved)

    def force(self, state: PyTree, position: Position, gradient: PyTree) -> Momentum:
        """The change of the momentum per unit of time due to an ambient gradient."""
        return self.whiten(state, position, self.manifold.gradient(position, gradient))

    def _flat(self, position: Position, tree: PyTree) -> PyTree:
        return eqx.filter(tree, self.manifold.is_flat(position))
