"""The parts of a batch that the devices of a mesh have, and means over them.

With D devices in the data axis each of them has B / D examples of a batch of B. What an algorithm computes from its
part as if that were the batch (an estimate of the log density, a gradient, an evidence lower bound) is an unbiased
estimate by itself; the mean of these estimates over the devices is the estimate of the whole batch. So nothing but that
mean, one all-reduce, has to be known of devices.
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
    """What one device has of the work on a batch.

    Attributes:
        batch: Its examples.
        axes: Names of the axes of the mesh over which the work is shared out: ``"data"``, the examples; ``"chain"``, in
            :func:`geodax.vi.fit` the Monte Carlo draws.
    """

    batch: PyTree
    axes: tuple[str, ...] = eqx.field(static=True)

    def share(self, axis: str) -> tuple[Array | None, int]:
        """Number of this device's share along an axis of the mesh (None: all of it), and how many shares there are."""
        return (jax.lax.axis_index(axis), jax.lax.axis_size(axis)) if axis in self.axes else (None, 1)


def mean_over_parts(function: Callable[[PyTree], T], batch: PyTree) -> T:
    """``function(batch)``; where the batch is a :class:`Part`, the mean of what the devices find on theirs.

    Args:
        function: From a batch, or this device's part, to a pytree of floating-point arrays, each an estimate that
            averages over examples (:func:`own_examples` has the arrays).
        batch: A batch or a part of one.

    Returns:
        The same on every device that has a part.
    """
    return jax.lax.pmean(function(batch), batch.axes) if isinstance(batch, Part) and batch.axes else function(batch)


def own_examples(batch: PyTree) -> PyTree:
    """The arrays of a batch, or of this device's part of it."""
    return batch.batch if isinstance(batch, Part) else batch


def draw_part(batches: Batches, key: PRNGKey, index: Array, axis: str) -> PyTree:
    """The examples of batch number ``index`` that belong to this device, of those of :meth:`Batches.rows`."""
    size = batches.batch_size // jax.lax.axis_size(axis)
    rows = jax.lax.dynamic_slice_in_dim(batches.rows(key, index), jax.lax.axis_index(axis) * size, size)
    return jax.tree.map(lambda leaf: leaf[rows], batches.data)
