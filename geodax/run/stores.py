"""Where a run keeps its draws: in memory, or in a store that the first process writes, or each process its part."""

from pathlib import Path

from geodax.run import hosts
from geodax.run.draws import DrawStore, MemoryDraws, Shapes, ZarrDraws
from geodax.run.shards import ShardedDraws, parts_of, places_of, writer_of
from geodax.run.split import Split


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
        return DrawStore() if first is None else first  # the first of several processes stores them
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
