"""Reading of a draw store: its variables, read chunk by chunk when they are indexed."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geodax.run import zarr_files
from geodax.run.blocks import BlockArray
from geodax.run.errors import StorageError
from geodax.run.store_layouts import Chunked, Layout
from geodax.run.store_record import checksum_of


class Stored(NamedTuple):
    """The variables of a store by group and name, facts about its run, names of axes, and arrays of other groups."""

    groups: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    dimensions: dict[str, list[str]]
    arrays: Mapping[str, str]


def opened(path: Path, num_draws: int | None) -> Stored:
    """Open the first draws of a store, or all; raises StorageError if chunks of them are missing."""
    try:
        facts, record = zarr_files.read_root(path)  # first, since a running process may write more
        layouts = zarr_files.read_layouts(path)
        num_draws = record.num_draws if num_draws is None else num_draws
        zarr_files.check_chunks(path, layouts, record, num_draws)
    except Exception as error:
        raise unreadable(path, error) from error
    groups: dict[str, dict[str, Any]] = {group: {} for group in zarr_files.GROUPS}
    for name, checksums in record.checksums.items():
        layout = layouts[name]
        groups[name.split("/")[0]][layout.name] = BlockArray(
            (layout.num_chains, num_draws, *layout.shape),
            layout.dtype,
            layout.chunk_shape,
            functools.partial(_chunk_at, path, layout, checksums, record.num_draws),
        )
    return Stored(groups, facts, {name: layout.dimensions for name, layout in layouts.items()}, record.arrays)


def _chunk_at(
    path: Path, layout: Layout, checksums: tuple[str, ...], num_draws: int, numbers: tuple[int, ...]
) -> np.ndarray:
    """Read a chunk as it was when the store was opened; its run may have written more draws since."""
    index = layout.index(numbers)
    try:
        return checked_chunk(path, layout, checksums, index)
    except StorageError:
        with contextlib.suppress(OSError, ValueError):
            chunk = zarr_files.read_chunk(path, layout, index).copy()
            chunk[:, max(num_draws - numbers[1] * layout.chunk_draws, 0) :] = layout.fill
            if checksum_of(chunk.tobytes()).hex() in checksums[index : index + 1]:
                return chunk
        raise


def checked_chunk(path: Path, layout: Chunked, checksums: tuple[str, ...], index: int) -> np.ndarray:
    """Read a chunk; raises StorageError if it is not the one with the checksum."""
    try:
        return zarr_files.read_chunk(path, layout, index, checksums)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> StorageError:
    """The error for a store that cannot be read."""
    return StorageError(
        f"The draws at {path} cannot be read: {reason_of(error)}. Put back a copy of this folder, or make the draws "
        "again: a new run with the same arguments (`geodax fit --overwrite` for a run folder) gives the same ones."
    )


def reason_of(error: Exception) -> str:
    """The message of an error, with its type unless it is a ValueError."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def store_in(folder: Path) -> Path:
    """The store in the folder of a run, that is of checkpoints or of the command line; else the path itself."""
    inside = [folder / name for name in ("draws.zarr", "posterior.zarr") if (folder / name).is_dir()]
    return inside[0] if inside and not (folder / "zarr.json").exists() else folder


def require_no_draws(path: Path) -> None:
    """Raise StorageError if a store holds draws."""
    num_draws = zarr_files.read_root(path)[1].num_draws
    if num_draws:
        raise StorageError(
            f"{path} already holds {num_draws} draws of each chain. Use another folder or remove this one; "
            "only a run with a checkpoint can go on in its store."
        )
