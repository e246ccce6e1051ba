r"""Gradient sizes of the leaves, which bound a metric whose statistics are not yet known.

The inverse of a statistic that is nearly zero is huge, and a chain that moves by it leaves the target. A leaf that
starts at its mode, a dead unit, and a leaf that only the prior affects have such statistics, whatever their curvature
is. So they are replaced by the root mean square s of the gradient over all leaves:

* a leaf whose gradient is negligible compared with s is unknown and has the metric s; each of its gradients counts as
  the first;
* if s is negligible too, nothing is known, and the metric is the identity;
* in a known leaf the metric is at least :math:`0.2\, \lambda^t s` after t gradients, since the first ones may be small
  by chance in some entries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _tree
from geodax._types import Array, PyTree, Scalar
from geodax.sgmcmc.metrics.base import share_of_mean

LEAST = 1e-5  # root mean square gradient of the mean potential below which nothing is known
_LEAST_SHARE = 1e-6  # of the root mean square over all leaves, below which a leaf is unknown
OUT = 100.0  # times the mean square of a leaf, above which a gradient is out of proportion to those before it
_FLOOR = 0.2  # smallest metric of a known leaf after its first gradient, in units of that root mean square


class Sizes(NamedTuple):
    """Averages over the gradients, one number per leaf.

    Attributes:
        squares: Mean square of an entry.
        counts: Number of gradients in the average, starting with the last unknown one.
        entries: Number of entries of the leaf.
    """

    squares: Array
    counts: Array
    entries: Array

    @classmethod
    def none(cls, tree: PyTree, dtype: jnp.dtype) -> "Sizes":
        """Return the state before the first gradient."""
        entries = jnp.asarray(np.array([leaf.size for leaf in jax.tree.leaves(tree)], float), dtype)
        return cls(jnp.zeros_like(entries), jnp.zeros(entries.shape, jnp.int32), entries)

    def mean_squares(self, gradient: PyTree) -> Array:
        """Mean square of an entry of each leaf of one gradient."""
        return self._per_entry([jnp.vdot(g, g) for g in jax.tree.leaves(_tree.widened(gradient))])

    def measured(self, squares: PyTree) -> "Sizes":
        """Return the averages computed from those of the entries."""
        return self._replace(squares=self._per_entry([jnp.sum(leaf) for leaf in jax.tree.leaves(squares)]))

    def _per_entry(self, sums: list[Array]) -> Array:
        totals = [total.astype(self.squares.dtype) for total in sums]
        return jnp.stack(totals) / jnp.maximum(self.entries, 1.0) if totals else self.squares

    def counted(self, decay: float) -> tuple["Sizes", Array]:
        """Return the counts with one more gradient, and its weight in the averages, which stay as they are."""
        counts = jnp.where(self.known()[0], self.counts, 0) + 1
        return self._replace(counts=counts), share_of_mean(decay, counts).astype(self.squares.dtype)

    def updated(self, decay: float, mean_squares: Array) -> tuple["Sizes", Array]:
        """Return the averages with one more gradient, and its weight in them."""
        counted, share = self.counted(decay)
        return counted._replace(squares=self.squares + share * (mean_squares - self.squares)), share

    def least(self, decay: float) -> Array:
        """Lower bound of the metric of each leaf."""
        is_known, scale = self.known()
        return scale * jnp.where(is_known, _FLOOR * decay ** self.counts.astype(scale.dtype), 1.0)

    def least_share(self, decay: float) -> Array:
        """Lower bound of the square of a known leaf, relative to the mean of an average that started at zero."""
        start = decay ** self.counts.astype(self.squares.dtype)
        return (_FLOOR * start) ** 2 / jnp.where(start < 1, 1.0 - start, 1.0)

    def exceeds(self, other: "Sizes") -> Array:
        """Whether gradients of a leaf have grown so much that results computed from ``other`` are out of date."""
        return jnp.any(self.squares > OUT * other.squares)

    def known(self) -> tuple[Array, Scalar]:
        """Whether each leaf has had a non-negligible gradient, and the root mean square over all leaves, or 1."""
        mean = jnp.vdot(self.squares, self.entries) / jnp.maximum(jnp.sum(self.entries), 1.0)
        has_any = mean > LEAST**2
        scale = jnp.where(has_any, jnp.sqrt(mean), jnp.ones_like(mean))
        return has_any & (self.squares > _LEAST_SHARE**2 * mean), scale


def of_leaves(numbers: Array, tree: PyTree) -> PyTree:
    """A vector with one number per leaf, in the structure of the tree."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(
        [number.astype(_tree.widened(leaf).dtype) for number, leaf in zip(numbers, leaves, strict=True)]
    )
