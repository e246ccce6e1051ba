"""Per-device parts of a batch, and means over them.

With D devices along the data axis, each holds B / D examples of a batch of size B. A quantity that an algorithm
computes from its part as if that were the batch (an estimate of the log density, a gradient, an evidence lower bound)
is itself an unbiased estimate. The mean of these estimates over the devices, one all-reduce, is the estimate for the
whole batch.
"""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax

from geodax._types import Array, PRNGKey, PyTree
from geodax.data.batches import Batches

CHAIN_AXIS, DATA_AXIS = "chain", "data"
T = TypeVar("T")


class Part(eqx.Module):
    """One device's part of the work on a batch.

    Attributes:
        batch: The examples on this device.
        axes: Names of the mesh axes that divide the work: ``"data"`` for the examples, ``"chain"`` for the Monte Carlo
            draws of :func:`geodax.vi.fit`.
    """

    batch: PyTree
    axes: tuple[str, ...] = eqx.field(static=True)

    def share(self, axis: str) -> tuple[Array | None, int]:
        """Index of this device along a mesh axis (None if the axis is not divided), and the number of divisions."""
        return (jax.lax.axis_index(axis), jax.lax.axis_size(axis)) if axis in self.axes else (None, 1)


def mean_over_parts(function: Callable[[PyTree], T], batch: PyTree) -> T:
    """Return ``function(batch)``; for a :class:`Part`, the mean of the function over the devices' parts.

    Args:
        function: Maps a batch, or this device's part, to a pytree of floating-point arrays, each an estimate that
            averages over examples (:func:`own_examples` returns the arrays).
        batch: A batch or a part of one.

    Returns:
        The mean, equal on all participating devices.
    """
    return jax.lax.pmean(function(batch), batch.axes) if isinstance(batch, Part) and batch.axes else function(batch)


def own_examples(batch: PyTree) -> PyTree:
    """Return the arrays of a batch, or of this device's part of it."""
    return batch.batch if isinstance(batch, Part) else batch


def draw_part(batches: Batches, key: PRNGKey, index: Array, axis: str) -> PyTree:
    """Return this device's examples of batch number ``index``, one of :meth:`Batches.rows`."""
    size = batches.batch_size // jax.lax.axis_size(axis)
    rows = jax.lax.dynamic_slice_in_dim(batches.rows(key, index), jax.lax.axis_index(axis) * size, size)
    return jax.tree.map(lambda leaf: leaf[rows], batches.data)
