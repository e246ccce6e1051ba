"""Where a run keeps its draws, and draws that are split over devices, which the processes that have them write.

The chunks of a store are the parts of the devices, so that a chunk is one file of one writer. A later run may divide
its devices otherwise: a chunk is written by the first process whose devices have all of it.
"""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from geodax.data.parts import axes_of
from geodax.run import hosts
from geodax.run.draws import DrawStore, ElsewhereDraws, MemoryDraws, Shapes, ZarrDraws
from geodax.run.sharding import CHAIN_AXIS
from geodax.run.split import Split

Box = tuple[tuple[int, int], ...]


class Shards:
    """Draws (chain, draw, ...) in a buffer (draw, chain, ...) that is split over the devices of one or more processes.

    Only the first ``num_draws`` draws of the buffer count.
    """

    def __init__(self, buffer: jax.Array, num_draws: int):
        self.shape = (buffer.shape[1], num_draws, *buffer.shape[2:])
        self._places, self._dtype = (buffer.sharding, buffer.shape), buffer.dtype
        self._own = {_box(shard.index, buffer.shape): shard.data for shard in buffer.addressable_shards}
        self._read = functools.cache(lambda box: np.asarray(self._own[box])[:num_draws].swapaxes(0, 1))

    def __getitem__(self, region: tuple[slice, ...]) -> np.ndarray | None:
        """Entries; None if another process has them all and comes first."""
        chains, draws, *axes = region
        wanted = tuple((part.start, part.stop) for part in (chains, *axes))
        if writer_of(*self._places, wanted) != jax.process_index():
            return None
        num_chains, *sizes = (stop - start for start, stop in wanted)
        found = np.empty((num_chains, draws.stop - draws.start, *sizes), self._dtype)
        for box in self._own:
            common = _common(wanted, box)
            if common is not None:
                there, here = (_within(common, whole) for whole in (wanted, box))
                found[there[0], :, *there[1:]] = self._read(box)[here[0], draws, *here[1:]]
        return found


class ShardedDraws(DrawStore):
    """Draws of a run that is split over devices, in a folder that all processes see."""

    def __init__(self, draws: ZarrDraws):
        self._draws = draws

    def write(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the chunks of this process, of buffers wrapped as :class:`Shards`, and record those of all."""
        written = hosts.each_does(lambda: self._draws.put(start, groups), "write draws")
        names = [(path, index) for path, found in written.items() for index in found]
        own = [bytes.fromhex(written[path][index]) for path, index in names]
        row = np.asarray([[len(checksum) > 0, *(checksum or bytes(4))] for checksum in own], np.uint8)
        for rows in hosts.gathered(row):
            for (path, index), (is_own, *checksum) in zip(names, rows.tolist(), strict=True):
                if is_own:
                    written[path][index] = bytes(checksum).hex()
        num_draws = start + max(values.shape[1] for of in groups.values() for values in of.values())
        self._draws.finish(start, written, num_draws)

    def read(self, num_draws: int) -> dict[str, dict[str, Any]]:
        return self._draws.read(num_draws)

    def describe(self, attributes: Mapping[str, Any]) -> None:
        hosts.first_does(lambda: self._draws.describe(attributes), "describe its draws")

    def add(self, groups: Mapping[str, Any]) -> None:
        self._draws.add(groups)


def draws_of(
    store: str | Path | None,
    shapes: Shapes,
    num_chains: int,
    num_draws: int,
    num_kept: int,
    split: Split | None,
    *,
    is_own: bool = False,
) -> DrawStore:
    """Open the storage of the draws of a run, :class:`ZarrDraws` or others; every process must call this.

    Raises as :class:`ZarrDraws`, and ValueError if no process has a chunk of the store on its devices.
    """
    if store is None:
        return MemoryDraws(shapes, num_chains, num_draws)
    path, places = Path(store), {} if split is None else places_of(shapes, num_chains, split)
    parts = {name: parts_of(*place) for name, place in places.items()}
    known = (path, shapes, num_chains, num_draws)
    first = hosts.first_does(lambda: ZarrDraws(*known, num_kept=num_kept, is_own=is_own, parts=parts), "keep draws")
    if split is None:
        return ElsewhereDraws() if first is None else first
    draws = ZarrDraws.joined(path, num_kept) if first is None else first
    for name, layout in draws.layouts.items():
        for index in range(layout.num_parts):
            chains, _, *axes = layout.region(index)
            if writer_of(*places[name], tuple((part.start, part.stop) for part in (chains, *axes))) is None:
                raise ValueError(
                    f"sample: {path} holds {name} in {layout.num_parts} parts, and no process has one of them whole on "
                    f"its devices of the mesh {dict(split.mesh.shape)}. Resume on a mesh that divides parameters over "
                    "the devices of a process less finely than before, or with fewer processes."
                )
    return ShardedDraws(draws)


def on_hosts(tree: Any, mesh: Mesh | None) -> Any:
    """Copy arrays to the memory of every process; all must call this. Devices pass on one shard after another."""
    if mesh is None or jax.process_count() == 1:
        return tree
    with hosts.lost_hosts():
        return jax.tree.map(lambda x: np.asarray(x) if x.sharding.is_fully_replicated else joined(x), tree)


def joined(array: jax.Array) -> np.ndarray:
    """The whole of an array that is split over devices, of which each holds no more than two shards at a time."""
    found, size = np.empty(array.shape, array.dtype), array.sharding.shard_shape(array.shape)
    send = sender(cast(NamedSharding, array.sharding))
    for number, place in enumerate(np.ndindex(*(n // max(k, 1) for n, k in zip(found.shape, size, strict=True)))):
        region = tuple(slice(i * k, (i + 1) * k) for i, k in zip(place, size, strict=True))
        found[region] = np.asarray(jax.block_until_ready(send(array, np.int32(number))))
    return found


@functools.lru_cache(maxsize=64)
def sender(place: NamedSharding) -> Callable[[jax.Array, Any], jax.Array]:
    """A compiled function of an array and a number, whose result on every device is the shard of that number."""
    names = tuple(name for axis in axes_of(place.spec) for name in axis)

    def own(shard: jax.Array, number: jax.Array) -> jax.Array:
        return jax.lax.psum(jnp.where(jax.lax.axis_index(names) == number, shard, jnp.zeros_like(shard)), names)

    everywhere = PartitionSpec()
    return jax.jit(
        jax.shard_map(own, mesh=place.mesh, in_specs=(place.spec, everywhere), out_specs=everywhere, check_vma=False)
    )


def places_of(shapes: Shapes, num_chains: int, split: Split) -> dict[str, tuple[NamedSharding, tuple[int, ...]]]:
    """How the buffers (draw, chain, ...) of a run are split, and their shapes for one draw, by group and name."""
    buffers = {
        group: {name: jax.ShapeDtypeStruct((1, num_chains, *shape), dtype) for name, (shape, dtype) in of.items()}
        for group, of in shapes.items()
    }
    places = split.shardings(buffers, None, CHAIN_AXIS)
    return {
        f"{group}/{name}": (places[group][name], one.shape) for group, of in buffers.items() for name, one in of.items()
    }


def parts_of(place: NamedSharding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of parts along the chains and each axis of a draw."""
    return tuple(n // max(k, 1) if n else 1 for n, k in zip(shape[1:], place.shard_shape(shape)[1:], strict=True))


@functools.lru_cache(maxsize=4096)
def writer_of(sharding: Sharding, shape: tuple[int, ...], wanted: Box) -> int | None:
    """The first process whose devices have all entries of a region, given without the axis of draws, or None."""
    boxes: dict[int, set[Box]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        boxes.setdefault(device.process_index, set()).add(_box(index, shape))
    return first_with(boxes, wanted)


def first_with(boxes: Mapping[int, set[Box]], wanted: Box) -> int | None:
    """The first process that has a region, from the disjoint regions that each process has, or None."""
    size = math.prod(stop - start for start, stop in wanted)
    for process in sorted(boxes):
        pieces = [_common(wanted, box) for box in boxes[process]]
        if sum(math.prod(stop - start for start, stop in piece) for piece in pieces if piece is not None) == size:
            return process
    return None


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    """The entries of a device without the axis of draws, which is the first one."""
    return tuple(part.indices(size)[:2] for part, size in zip(index[1:], shape[1:], strict=True))


def _common(one: Box, other: Box) -> Box | None:
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    return both if all(start < stop for start, stop in both) else None


def _within(box: Box, whole: Box) -> list[slice]:
    return [slice(start - first, stop - first) for (start, stop), (first, _) in zip(box, whole, strict=True)]
