"""Functions of the blocks of a matrix that is split over devices: each device computes those of its own blocks."""

import math
from collections.abc import Callable

import jax
import numpy as np
from jax.sharding import PartitionSpec

from geodax._types import Array
from geodax.data.parts import automatic_axes


def on_own_devices(function: Callable[..., Array], shape: tuple[int, ...], blocks: Array, *others: Array) -> Array:
    """Apply a function of blocks that XLA does not divide among devices, such as a call of LAPACK.

    The blocks (rows, columns, n, p) are of an array of this shape; the axis over which it is split by default tells
    where they are. All devices have the other arrays. Without axes of a mesh that are left to XLA, or if they divide
    neither the rows nor the columns, XLA gathers the blocks.
    """
    names = automatic_axes()
    size = math.prod(jax.sharding.get_abstract_mesh().shape[name] for name in names)
    lengths = [n if n % size == 0 else 0 for n in shape]
    first = 0 if not lengths or np.argmax(lengths) == 0 else 1
    axis = next((axis for axis in (first, 1 - first) if blocks.shape[axis] % size == 0), None)
    if not names or axis is None:
        return function(blocks, *others)
    spec = PartitionSpec(*[None] * axis, names)
    divided = jax.shard_map(
        function,
        in_specs=(spec, *(PartitionSpec() for _ in others)),
        out_specs=spec,
        axis_names=set(names),
        check_vma=False,
    )
    return divided(blocks, *others)
