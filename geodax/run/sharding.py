"""Chains spread over devices.

Each device runs its own chains in its own loop (``jax.shard_map``), so a doubling trajectory on one device
never waits for another: there is no collective in the chain axis. The one exception is a warm-up of all chains at
once, for which each device gathers the chains of the others after each warm-up iteration.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHAIN_AXIS = "chain"


def chain_mesh(num_chains: int, devices: Sequence[Any] | None) -> Mesh | None:
    """The mesh over which chains are spread, or None for the default device alone.

    Args:
        num_chains: Number of chains.
        devices: Devices to use; None takes as many of JAX's devices as divide the number of chains.

    Returns:
        A one-dimensional mesh with the axis ``"chain"``, or None.

    Raises:
        ValueError: If the chains cannot be shared out evenly among the given devices, or there are none.
    """
    if devices is not None and len(devices) == 0:
        raise ValueError("sample: devices is empty; name at least one of jax.devices(), or give None.")
    if devices is None:
        available = jax.devices()
        count = max(k for k in range(1, len(available) + 1) if num_chains % k == 0)
        devices = available[:count]
    elif num_chains % len(devices) != 0:
        raise ValueError(
            f"sample: {num_chains} chains cannot be shared out evenly among {len(devices)} devices; "
            "choose a multiple of the number of devices, or fewer devices."
        )
    is_default = len(devices) == 1 and devices[0] == jnp.zeros(()).device
    return None if is_default else Mesh(np.asarray(devices), (CHAIN_AXIS,))


def put_chains(tree, mesh: Mesh | None):
    """Place arrays with a leading chain axis on the mesh."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec(CHAIN_AXIS)))


def put_everywhere(tree, mesh: Mesh | None):
    """Place arrays that are not of one chain on every device of the mesh."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def all_chains(tree, mesh: Mesh | None):
    """Within :func:`over_chains`: arrays of a device's own chains to arrays of all chains."""
    if mesh is None:
        return tree

    def gather(x: jax.Array) -> jax.Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(gather(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        return jax.lax.all_gather(x, CHAIN_AXIS, tiled=True)

    return jax.tree.map(gather, tree)


def own_chains(tree, num_chains: int, mesh: Mesh | None):
    """Within :func:`over_chains`: from arrays of all chains the ``num_chains`` of this device."""
    if mesh is None:
        return tree
    first = jax.lax.axis_index(CHAIN_AXIS) * num_chains
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, num_chains), tree)


def over_chains(function: Callable, mesh: Mesh | None, is_joint: bool = False) -> Callable:
    """Let each device run ``function`` on its own chains.

    ``function(states, adaptation, chain_keys, data, start, stop)`` must return ``(states, adaptation, totals,
    records)``, all with a leading chain axis but the records, where it is the second, and the adaptation where
    ``is_joint``, which is then the same on all devices.
    """
    if mesh is None:
        return function
    chain, second, everywhere = PartitionSpec(CHAIN_AXIS), PartitionSpec(None, CHAIN_AXIS), PartitionSpec()
    adaptation = everywhere if is_joint else chain
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(chain, adaptation, chain, everywhere, everywhere, everywhere),
        out_specs=(chain, adaptation, chain, second),
        check_vma=False,
    )
