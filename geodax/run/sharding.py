"""Chains spread over devices.

Each device runs its own chains in its own loop (``jax.shard_map``), so a doubling trajectory on one device
never waits for another: there is no collective in the chain axis.
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


def over_chains(function: Callable, mesh: Mesh | None) -> Callable:
    """Let each device run ``function`` on its own chains.

    ``function(states, adaptation, chain_keys, start, stop)`` must return ``(states, adaptation, totals,
    records)``, all with a leading chain axis but the records, where it is the second.
    """
    if mesh is None:
        return function
    chain, second, everywhere = PartitionSpec(CHAIN_AXIS), PartitionSpec(None, CHAIN_AXIS), PartitionSpec()
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(chain, chain, chain, everywhere, everywhere),
        out_specs=(chain, chain, chain, second),
        check_vma=False,
    )
