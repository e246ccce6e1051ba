"""Spread chains and batches over the devices of a mesh, in one process or several.

The mesh has an axis ``"chain"``, may have an axis ``"data"``, and others over which parameters are split
(:mod:`geodax.run.split`). Each group of devices along the data axis runs its own
chains in its own loop (``jax.shard_map``), so a doubling trajectory on one device never waits for another: there is no
collective along the chain axis. The one exception is joint warm-up, where each device gathers the chains of the others
after each iteration. Along the data axis every device has its part of each batch, and one all-reduce averages the
results (:mod:`geodax.data.parts`).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from geodax import _checks
from geodax._random import of_words
from geodax._types import PyTree
from geodax.data.parts import CHAIN_AXIS, DATA_AXIS, MODEL_AXIS
from geodax.run import hosts

Devices = Mesh | Sequence[Any] | int | np.integer | None
"""Values of ``devices=``: a mesh, devices, their number, ``"all"`` (a ``str`` is a ``Sequence``), or None."""
_DEVICES_EXPECTED = (
    "devices must be a number of devices, 'all', some of jax.devices(), a mesh of gx.device_mesh(...) or None"
)
_SPLIT = "--xla_force_host_platform_device_count"


def device_mesh(
    *, chain: int | None = None, data: int = 1, model: int = 1, devices: Sequence[Any] | None = None
) -> Mesh:
    """Create a mesh for ``sample(..., devices=...)``, ``vi.fit(..., devices=...)`` and :func:`geodax.shard`.

    Args:
        chain: Number of device groups among which chains (in ``vi.fit`` Monte Carlo draws) are divided; None takes as
            many as possible.
        data: Number of devices in a group, among which the examples of each batch are divided. Neighbours in
            ``jax.devices()`` form a group, so that its all-reduce stays within a host if possible.
        model: Number of devices among which the parameters of a chain, and the examples of each of the ``data`` parts
            of a batch, are divided; neighbours within a group.
        devices: Devices; None takes all of ``jax.devices()``, including those of other processes.

    Returns:
        A mesh with the axes ``"chain"`` and ``"data"``, and ``"model"`` if parameters are divided.

    Raises:
        ValueError: If there are too few devices, or without ``chain`` their number is not divisible.
    """
    available = list(jax.devices() if devices is None else devices)
    data, model = _checks.whole("device_mesh", "data", data), _checks.whole("device_mesh", "model", model)
    group = data * model
    if chain is None and model > 1 and len(available) % group != 0:
        raise ValueError(
            f"device_mesh: the {len(available)} devices cannot be shared out evenly among groups of data={data} times "
            f"model={model}; choose divisors of {len(available)}, or name chain= to leave some devices idle."
        )
    chain = max(len(available) // group, 1) if chain is None else _checks.whole("device_mesh", "chain", chain)
    if chain * group > len(available):
        times = f"{chain} times {data}" + (f" times {model}" if model > 1 else "")
        raise ValueError(
            f"device_mesh: {times} devices were asked for, but there are {len(available)}: "
            f"{', '.join(map(str, available[:8]))}."
        )
    grid = np.asarray(available[: chain * group]).reshape(chain, data, model)
    return Mesh(grid, (CHAIN_AXIS, DATA_AXIS, MODEL_AXIS)) if model > 1 else Mesh(grid[..., 0], (CHAIN_AXIS, DATA_AXIS))


def as_mesh(
    owner: str, num_chains: int, devices: Devices, batch_size: int | None, what: str = "chains", is_split: bool = False
) -> Mesh | None:
    """Return the mesh of a run, or None for only the default device.

    ``devices`` are a mesh with an axis ``"chain"`` or ``"data"`` or both, an argument of :func:`device_list` for the
    chain axis, or None for as many JAX devices as divide the number of chains. The mesh of a split position may have
    axes of any names. Messages call the items along the chain axis ``what``.

    The first axis of the result is ``"chain"``; it has others only with more than one device. Raises TypeError if
    ``devices`` is neither a mesh nor devices, ValueError if there are too few, the work cannot be divided evenly, or a
    process has no device in the mesh.
    """
    shape = devices.shape if isinstance(devices, Mesh) else {}
    split = [name for name in model_axes(devices) if shape[name] > 1]
    if isinstance(devices, Mesh):
        grid = _as_grid(owner, devices, is_split)
    elif devices is None:
        grid = np.asarray(most_that_divide(owner, num_chains, jax.devices())).reshape(-1, 1)
    else:
        grid = np.asarray(device_list(owner, devices)).reshape(-1, 1)
    chain, data, *sizes = grid.shape
    model = math.prod(sizes)
    if num_chains % chain != 0:
        raise ValueError(
            f"{owner}: {num_chains} {what} cannot be shared out evenly among {chain} devices; "
            "choose a multiple of the number of devices, or fewer devices."
        )
    if data > 1 and batch_size is None:
        raise ValueError(
            f'{owner}: the mesh has {data} devices in the axis "data", but there are no batches to share out among '
            'them; give the devices to the axis "chain".'
        )
    if batch_size is not None and batch_size % (data * model) != 0:
        among = (
            f"{data * model} devices of the axes {[DATA_AXIS, *split]}"
            if model > 1
            else f'{data} devices of the axis "data"'
        )
        raise ValueError(
            f"{owner}: a batch of {batch_size} examples cannot be shared out evenly among the {among}; choose a "
            "multiple of their number."
        )
    absent = set(range(jax.process_count())) - {device.process_index for device in grid.ravel()}
    if absent:
        raise ValueError(
            f"{owner}: the processes {sorted(absent)} have no device in the mesh; every process takes part in the run, "
            "so name devices of all of them, or start fewer processes."
        )
    if data > 1 or model > 1:
        names = [CHAIN_AXIS, *([DATA_AXIS] if data > 1 else []), *split]
        return Mesh(grid.reshape([size for i, size in enumerate(grid.shape) if i == 0 or size > 1]), names)
    grid = grid.reshape(chain, data)
    is_default = chain == 1 and jax.process_count() == 1 and grid[0, 0] == jnp.zeros(()).device
    return None if is_default else Mesh(grid[:, 0], (CHAIN_AXIS,))


def device_list(owner: str, devices: Devices) -> list[Any]:
    """Return the devices of an argument: a number (the first ones of each process), ``"all"``, devices, or a mesh."""
    if isinstance(devices, Mesh):
        return list(devices.devices.ravel())
    available = jax.devices()
    if isinstance(devices, str):
        _checks.chosen(owner, "devices", devices, ("all",))
        return available
    if isinstance(devices, Sequence):
        if len(devices) == 0:
            raise ValueError(f"{owner}: devices is empty; name at least one of jax.devices(), or give None.")
        strange = next((device for device in devices if not isinstance(device, jax.Device)), None)
        if strange is None:
            return list(devices)
        raise TypeError(f"{owner}: {_DEVICES_EXPECTED}, found {_checks.described(strange)} among them.")
    if isinstance(devices, bool) or not isinstance(devices, int | np.integer):
        raise TypeError(f"{owner}: {_DEVICES_EXPECTED}, found {_checks.described(devices)}.")
    count, processes = _checks.whole(owner, "devices", devices), jax.process_count()
    if count > len(available):
        is_cpu = available[0].platform == "cpu"
        more = f", or make more of a CPU: XLA_FLAGS={_SPLIT}={-(-count // processes)}" if is_cpu else ""
        raise ValueError(
            f"{owner}: {count} devices were asked for, but there are {len(available)}: "
            f"{', '.join(map(str, available[:8]))}. Ask for fewer{more}."
        )
    if count % processes != 0:
        raise ValueError(
            f"{owner}: {count} devices cannot be shared out evenly among {processes} processes; their number is that "
            "of all processes together, so choose a multiple."
        )
    return _first_of_each_process(available, count)


def most_that_divide(owner: str, num_chains: int, devices: Sequence[Any]) -> list[Any]:
    """Choose as many devices as divide the number of chains, equally many from each process."""
    processes = jax.process_count()
    count = max((k for k in range(processes, len(devices) + 1, processes) if num_chains % k == 0), default=0)
    if count == 0:
        raise ValueError(
            f"{owner}: {num_chains} chains cannot be shared out evenly among {processes} processes; choose a "
            "multiple, or let processes share batches with devices=gx.device_mesh(chain=..., data=...)."
        )
    return _first_of_each_process(devices, count)


def _first_of_each_process(devices: Sequence[Any], count: int) -> list[Any]:
    each = count // jax.process_count()
    return [d for i in range(jax.process_count()) for d in [d for d in devices if d.process_index == i][:each]]


def model_axes(mesh: Any) -> tuple[str, ...]:
    """Names of the axes of a mesh over which parameters are split; none for other devices."""
    names = mesh.axis_names if isinstance(mesh, Mesh) else ()
    return tuple(name for name in names if name not in (CHAIN_AXIS, DATA_AXIS))


def _as_grid(owner: str, mesh: Mesh, is_split: bool) -> np.ndarray:
    """The devices of a user's mesh as (chain, data, ...), with its other axes in their order."""
    names, more = list(mesh.axis_names), model_axes(mesh)
    if not (is_split or {CHAIN_AXIS, DATA_AXIS, MODEL_AXIS}.intersection(names)):
        raise ValueError(
            f'{owner}: a mesh needs the axes "chain", "data" or "model", or several of them, as '
            f"gx.device_mesh(chain=..., data=..., model=...) makes it; found {names}."
        )
    there = [name for name in (CHAIN_AXIS, DATA_AXIS) if name in names]
    grid = mesh.devices.transpose([names.index(name) for name in (*there, *more)])
    return grid.reshape([mesh.shape.get(name, 1) for name in (CHAIN_AXIS, DATA_AXIS, *more)])


def data_axis(mesh: Mesh | None) -> str | None:
    """The name of the axis along which batches are sharded, or None."""
    return DATA_AXIS if mesh is not None and DATA_AXIS in mesh.axis_names else None


def put_chains(tree, mesh: Mesh | None):
    """Place arrays with a leading chain axis on the mesh."""
    return put(tree, mesh, PartitionSpec(CHAIN_AXIS))


def put_everywhere(tree, mesh: Mesh | None):
    """Replicate arrays on every device of the mesh."""
    return put(tree, mesh, PartitionSpec())


def put(tree: PyTree, mesh: Mesh | None, spec: PartitionSpec) -> PyTree:
    """Place arrays that every process has in full on the mesh."""
    return tree if mesh is None else placed(tree, jax.tree.map(lambda _: NamedSharding(mesh, spec), tree))


def placed(tree: PyTree, places: PyTree) -> PyTree:
    """Place arrays; those that every process has in full are cut, those on several processes are moved."""
    if jax.process_count() == 1:
        return jax.device_put(tree, places)

    def put(x: Any, place: NamedSharding) -> jax.Array:
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return x if x.sharding == place else jax.jit(lambda y: y, out_shardings=place)(x)

        def cut(words: Any) -> jax.Array:
            host = np.asarray(words)
            return jax.make_array_from_callback(host.shape, place, lambda index: host[index])

        return of_words(cut, x)

    return jax.tree.map(put, tree, places)


def placed_like(tree: PyTree, like: PyTree) -> PyTree:
    """Place results like the arguments; XLA puts arrays without entries on every device."""
    return jax.tree.map(lambda x, y: x if x.size else jax.device_put(x, y.sharding), tree, like)


def own_part_of(mesh: Mesh | None, batch_size: int) -> slice:
    """The examples of a batch that the devices of this process use."""
    if mesh is None or data_axis(mesh) is None or jax.process_count() == 1:
        return slice(None)
    columns = [j for (_, j, *_), device in np.ndenumerate(mesh.devices) if device.process_index == jax.process_index()]
    each = batch_size // mesh.shape[DATA_AXIS]
    return slice(min(columns) * each, (max(columns) + 1) * each)


def put_part(
    tree: PyTree, mesh: Mesh | None, spec: PartitionSpec, axis: int | None, part: slice, batch_size: int
) -> PyTree:
    """Place arrays of which this process has one part along an axis."""
    if mesh is None or axis is None or part == slice(None):
        return put(tree, mesh, spec)
    sharding = NamedSharding(mesh, spec)

    def placed(x: Any) -> jax.Array:
        host = np.asarray(x)

        def own(index: Any) -> np.ndarray:
            here = slice(index[axis].start - part.start, index[axis].stop - part.start)
            return host[(*index[:axis], here, *index[axis + 1 :])]

        shape = (*host.shape[:axis], batch_size, *host.shape[axis + 1 :])
        return jax.make_array_from_callback(shape, sharding, own)

    return jax.tree.map(placed, tree)


def fetch(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Gather the arrays of all chains in this process; every process must call this."""
    if mesh is None or jax.process_count() == 1:
        return tree
    with hosts.lost_hosts():
        copied = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)
        return jax.block_until_ready(copied)  # before another program communicates


def all_chains(tree, mesh: Mesh | None):
    """Within :func:`over_chains`: gather the arrays of all chains from those of each device."""
    if mesh is None:
        return tree
    gather = functools.partial(jax.lax.all_gather, axis_name=CHAIN_AXIS, tiled=True)
    return jax.tree.map(lambda x: of_words(gather, x), tree)


def own_chains(tree, num_chains: int, mesh: Mesh | None):
    """Within :func:`over_chains`: select the ``num_chains`` chains of this device from arrays of all chains."""
    if mesh is None:
        return tree
    first = jax.lax.axis_index(CHAIN_AXIS) * num_chains
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, num_chains), tree)


def over_chains(
    function: Callable, mesh: Mesh | None, is_joint: bool = False, data: PartitionSpec | None = None
) -> Callable:
    """Run ``function`` on every device, on its own chains.

    ``function(args, states, adaptation, chain_keys, data, start, stop)`` must return ``(states, adaptation, totals,
    records)``. All have a leading chain axis, with two exceptions: it is the second axis of the records, and with
    ``is_joint`` the adaptation has none and is the same on all devices. ``args`` are the same on all devices; the
    function must not capture them, since JAX 0.12 does not differentiate all functions of what it captures. ``data`` is
    the placement of the data, by default on every device.
    """
    if mesh is None:
        return function

    def own(*args: Any) -> Any:
        try:
            return function(*args)
        except ValueError as error:
            if "context mesh" in str(error):
                error.add_note("A log density that has a jax.shard_map needs the devices for itself; pass devices=1.")
            raise

    chain, second, everywhere = PartitionSpec(CHAIN_AXIS), PartitionSpec(None, CHAIN_AXIS), PartitionSpec()
    adaptation = everywhere if is_joint else chain
    placed = everywhere if data is None else data
    in_specs = (everywhere, chain, adaptation, chain, placed, everywhere, everywhere)
    return over_devices(own, mesh, in_specs, (chain, adaptation, chain, second))


def everywhere_alike(function: Callable, mesh: Mesh | None, data: PartitionSpec, split: Any = None) -> Callable:
    """Run ``function(carry, keys, data, start, stop)`` on every device on its part of the data; all return the same.

    With a :class:`~geodax.run.split.Split` the result has its shardings.
    """
    if mesh is None:
        return function
    same = PartitionSpec()
    over_mesh = over_devices(function, mesh, (same, same, data, same, same), same)
    return over_mesh if split is None else lambda *args: split.pinned(over_mesh(*args))


def over_devices(function: Callable, mesh: Mesh, in_specs: Any, out_specs: Any) -> Callable:
    """Run a function on every device, on its part; XLA partitions the work on axes over which parameters are split."""
    by_hand = {CHAIN_AXIS, DATA_AXIS}.intersection(mesh.axis_names)
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=by_hand, check_vma=False
    )
