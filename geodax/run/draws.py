"""Draws of a run: in memory or streamed to a Zarr folder, returned as a DataTree in ArviZ's layout.

A Zarr store has its full length from the start of the run. After each write, a record in it holds the number of draws
and the checksums of the full chunks. A process killed at any moment therefore leaves a readable store, and a chunk
that is lost or replaced later is detected.
"""

import abc
import dataclasses
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from geodax._wording import argument, in_python
from geodax.run import group_files, hosts, zarr_files
from geodax.run.blocks import lazy
from geodax.run.errors import CheckpointError, StorageError
from geodax.run.locks import require_no_links
from geodax.run.store_layouts import Layout, Record, dimension_names
from geodax.run.zarr_files import opened, reason_of, require_no_draws, store_in, unreadable

Shapes = Mapping[str, Mapping[str, tuple[tuple[int, ...], np.dtype]]]
_CHUNK_BYTES = 4 << 20
# Extra room in the chunks of a short run: it may be extended, and chunks (files) keep their length.
_SPARE_BYTES = 256 << 10
_SPARE_DRAWS = 1000


class DrawStore(abc.ABC):
    """Storage for the draws of a run: groups of named arrays (chain, draw, ...)."""

    @abc.abstractmethod
    def write(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        """Write draws from index ``start``, overwriting earlier ones."""

    @abc.abstractmethod
    def read(self, num_draws: int) -> dict[str, dict[str, Any]]:
        """The first ``num_draws`` draws: arrays, or variables that read from disk on access."""

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Store facts about the finished run with the draws, unless the returned tree alone has them."""
        del attributes

    def add(self, groups: Mapping[str, xr.Dataset]) -> None:
        """Store further groups of the finished run, after its facts, likewise."""
        del groups


class ElsewhereDraws(DrawStore):
    """Draws that another process stores."""

    def write(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        del start, groups

    def read(self, num_draws: int) -> dict[str, dict[str, Any]]:
        return {group: {} for group in zarr_files.GROUPS}


class MemoryDraws(DrawStore):
    """Draws kept in memory, in arrays of the full length from the start.

    The shapes are, for each group, name -> (shape without chain and draw, dtype). Raises MemoryError if the draws do
    not fit into memory.
    """

    def __init__(self, shapes: Shapes, num_chains: int, num_draws: int):
        try:
            self._groups = {
                group: {name: np.empty((num_chains, num_draws, *shape), dtype) for name, (shape, dtype) in of.items()}
                for group, of in shapes.items()
            }
        except (MemoryError, ValueError) as error:  # ValueError: more than an address space
            raise MemoryError(
                f"sample: {num_draws} draws of {num_chains} chains do not fit into memory ({error}). Give store=... to "
                "keep them on disk, record less with keep=..., or thin them with thinning=..."
            ) from error

    def write(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        for group, variables in groups.items():
            for name, values in variables.items():
                self._groups[group][name][:, start : start + values.shape[1]] = values

    def read(self, num_draws: int) -> dict[str, dict[str, Any]]:
        return {
            group: {name: values[:, :num_draws] for name, values in variables.items()}
            for group, variables in self._groups.items()
        }


class ZarrDraws(DrawStore):
    """Draws streamed to a Zarr folder that xarray and ArviZ open directly.

    The shapes are as for :class:`MemoryDraws`, the first ``num_kept`` draws must already be there, and other draws that
    the folder holds are removed if they are the run's own. ``parts`` are numbers of chunks along the chains and each
    axis of a draw, by group and name; of others one each.

    Raises ValueError if the disk has too little space, StorageError if the folder is not writable, holds other
    variables or draws of another run, or has lost some of the draws, and CheckpointError if it lacks the draws to keep.
    """

    def __init__(
        self,
        path: Path,
        shapes: Shapes,
        num_chains: int,
        num_draws: int,
        num_kept: int = 0,
        is_own: bool = False,
        parts: Mapping[str, tuple[int, ...]] | None = None,
    ):
        self.path = Path(path)

        def layout(path: str, shape: tuple[int, ...], dtype: np.dtype) -> Layout:
            one = Layout(path, num_chains, shape, np.dtype(dtype), 1, parts=(parts or {}).get(path, ()))
            chains, _, *axes = one.chunk_shape
            return dataclasses.replace(one, chunk_draws=_chunk_draws(chains, num_draws, tuple(axes), dtype))

        kinds = {f"{group}/{name}": kind for group, variables in shapes.items() for name, kind in variables.items()}
        wanted = {path: layout(path, *kind) for path, kind in kinds.items()}
        self._require_room(wanted.values(), num_draws - num_kept)
        try:
            require_no_links(self.path.resolve())  # the folder itself may be a link
            present = zarr_files.read_layouts(self.path)
            self._check_present(wanted, present)
            self._layouts, self._facts, record = wanted, {}, Record(0, dict.fromkeys(wanted, ()))
            if num_kept:
                self._facts, record = self._kept(present, num_kept)
                self._layouts = {path: present[path] for path in wanted}
            elif present and not is_own:
                require_no_draws(self.path)
            self._num_draws = num_kept
            self._checksums = {path: list(found) for path, found in record.checksums.items()}
            zarr_files.remove_leftovers(self.path)
            zarr_files.write_root(self.path, self._facts, record)
            group_files.remove_groups(self.path)  # they belong to the end of the run
            for name in () if num_kept else wanted:
                if (self.path / name / "c").is_dir():
                    shutil.rmtree(self.path / name / "c")
            zarr_files.write_layouts(self.path, self._layouts, num_draws)
        except (StorageError, CheckpointError):
            raise
        except Exception as error:  # damaged descriptions can raise anything
            raise StorageError(
                f"Cannot write draws to {self.path}: {reason_of(error)}. Put back a copy of this folder, or use "
                "another."
            ) from error

    @classmethod
    def joined(cls, path: Path, num_draws: int) -> "ZarrDraws":
        """The store that another process has just opened, with this number of draws."""
        draws = cls.__new__(cls)
        draws.path, draws._num_draws = path, num_draws
        draws._layouts = zarr_files.read_layouts(path)
        draws._facts, record = zarr_files.read_root(path)
        draws._checksums = {name: list(found) for name, found in record.checksums.items()}
        return draws

    def _require_room(self, layouts: Iterable[Layout], num_draws: int) -> None:
        row = sum(of.num_chains * int(np.prod(of.shape)) * of.dtype.itemsize for of in layouts)
        there = next(folder for folder in (self.path.resolve(), *self.path.resolve().parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if num_draws * row > free:
            raise ValueError(
                f"sample: {num_draws:,} draws of each chain need up to {num_draws * row / 1e6:,.2f} MB, and "
                f"{free / 1e6:,.2f} MB are free where {self.path} is. Reduce {argument('num_samples')}, free space "
                f"or use another disk{in_python(', or record less with keep=... or thinning=...')}."
            )

    def _check_present(self, wanted: Mapping[str, Layout], present: Mapping[str, Layout]) -> None:
        for path, found in present.items():
            if path not in wanted:
                raise StorageError(
                    f"{self.path} already holds a variable {found.name!r}, which this run does not write; use "
                    "another folder."
                )
            new = wanted[path]
            if (found.dtype, found.num_chains, found.shape) != (new.dtype, new.num_chains, new.shape):
                raise StorageError(
                    f"{self.path} already holds a variable {found.name!r} of shape "
                    f"{(found.num_chains, '...', *found.shape)} and dtype {found.dtype}, but this run writes "
                    f"{(new.num_chains, '...', *new.shape)} and {new.dtype}; use another folder."
                )

    def _kept(self, present: Mapping[str, Layout], num_kept: int) -> tuple[dict[str, Any], Record]:
        """Facts and record of a store, truncated to the draws from which a run resumes."""
        facts, record = zarr_files.read_root(self.path) if present else ({}, Record(0, {}))
        if record.num_draws < num_kept:
            raise CheckpointError(
                f"The checkpoint goes on after {num_kept} draws, but {self.path} does not hold "
                "them: it was moved, or the run was started with another store. Give the store it was "
                "started with, or remove the checkpoint to start again."
            )
        try:
            zarr_files.check_chunks(self.path, present, record, num_kept)
            for layout in present.values():  # check old draws before a long run continues
                for index in range(layout.num_chunks(num_kept)):
                    zarr_files.read_chunk(self.path, layout, index)
        except (OSError, ValueError) as error:
            raise unreadable(self.path, error) from error
        whole = {
            path: found[: num_kept // present[path].chunk_draws * present[path].num_parts]
            for path, found in record.checksums.items()
        }  # the other chunks are written again
        return facts, Record(num_kept, whole)

    @property
    def layouts(self) -> Mapping[str, Layout]:
        """The variables by group and name."""
        return self._layouts

    def write(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> None:
        lengths = {values.shape[1] for variables in groups.values() for values in variables.values()}
        self.finish(start, self.put(start, groups), start + max(lengths, default=0))

    def put(self, start: int, groups: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, str]]:
        """Write chunks, but not that they are written; return their checksums by variable and index.

        Chunks that are None, which other processes write, have empty checksums.
        """
        try:
            return {
                f"{group}/{name}": self._put(self._layouts[f"{group}/{name}"], start, values)
                for group, variables in groups.items()
                for name, values in variables.items()
            }
        except Exception as error:  # OSError of the disk, ValueError of a damaged chunk
            raise self._not_written(start, error) from error

    def _put(self, layout: Layout, start: int, values: Any) -> dict[int, str]:
        stop, size = start + values.shape[1], layout.chunk_draws
        written: dict[int, str] = {}
        for index in range(start // size * layout.num_parts, layout.num_chunks(stop)):
            chains, draws, *axes = layout.region(index)
            first, last = max(start, draws.start), min(stop, draws.stop)
            rows = values[(chains, slice(first - start, last - start), *axes)]
            if rows is None:
                written[index] = ""
                continue
            if first > draws.start:
                chunk = zarr_files.read_chunk(self.path, layout, index).copy()
            else:
                chunk = np.full(layout.chunk_shape, layout.fill, layout.dtype)
            chunk[:, first - draws.start : last - draws.start] = rows
            written[index] = zarr_files.write_chunk(self.path, layout, index, chunk)
        return written

    def finish(self, start: int, written: Mapping[str, Mapping[int, str]], num_draws: int) -> None:
        """Record chunks that were written."""
        for path, checksums in written.items():
            layout = self._layouts[path]
            kept = self._checksums[path]
            del kept[start // layout.chunk_draws * layout.num_parts :]
            num_whole = num_draws // layout.chunk_draws * layout.num_parts
            kept += [checksum for index, checksum in sorted(checksums.items()) if index < num_whole]
        try:
            self._write_record(num_draws)
        except OSError as error:
            raise self._not_written(start, error) from error

    def _not_written(self, start: int, error: Exception) -> StorageError:
        return StorageError(
            f"Draws from number {start} on could not be written to {self.path}: {error}. The {start} "
            "draws before it are there. Make room and resume: the run continues from its last checkpoint, or begins "
            "anew if it has none yet."
        )

    def _write_record(self, num_draws: int) -> None:
        self._num_draws = num_draws
        checksums = {path: tuple(found) for path, found in self._checksums.items()}
        if hosts.is_first():
            zarr_files.write_root(self.path, self._facts, Record(num_draws, checksums))

    def read(self, num_draws: int) -> dict[str, dict[str, Any]]:
        return opened(self.path, num_draws).groups

    def describe(self, attributes: Mapping[str, Any]) -> None:
        try:
            self._facts |= attributes
            for path, layout in self._layouts.items():  # the last chunk is final now
                for index in range(len(self._checksums[path]), layout.num_chunks(self._num_draws)):
                    self._checksums[path].append(zarr_files.last_checksum(self.path, layout, index))
            self._write_record(self._num_draws)
        except (OSError, ValueError) as error:
            raise StorageError(
                f"The facts about the run could not be written to {self.path}: {error}. The draws are there."
            ) from error

    def add(self, groups: Mapping[str, xr.Dataset]) -> None:
        group_files.add_groups(self.path, groups)


def to_datatree(
    groups: Mapping[str, Mapping[str, Any]],
    attributes: Mapping[str, Any] | None = None,
    dimensions: Mapping[str, Sequence[str]] | None = None,
) -> xr.DataTree:
    """Wrap arrays (chain, draw, ...), by group and name, as an xarray DataTree with ArviZ's groups and dimension names.

    Attributes are facts about the run. A variable ``w`` has the dimensions ``chain, draw, w_dim_0, w_dim_1, ...`` where
    ``{"posterior/w": [...]}`` gives no others.
    """
    datasets, dimensions = {}, dimensions or {}
    for group, variables in groups.items():
        data = {
            name: (dimensions.get(f"{group}/{name}") or dimension_names(name, values.ndim - 2), lazy(values))
            for name, values in variables.items()
        }
        lengths = {values.shape[:2] for values in variables.values()}
        coordinates = {}
        if lengths:
            num_chains, num_draws = lengths.pop()
            coordinates = {"chain": np.arange(num_chains), "draw": np.arange(num_draws)}
        datasets[group] = xr.Dataset(data, coords=coordinates)
    tree = xr.DataTree.from_dict(datasets)
    tree.attrs.update(attributes or {})
    return tree


def open_draws(path: str | Path, num_draws: int | None = None) -> xr.DataTree:
    """Open the draws of a store. They are read on access; ``.load()`` reads them all into memory.

    The store of a finished run has all groups of the run's result, such as ``adaptation``, and its names and labels of
    axes. That of an unfinished run has only the groups of its draws. All chunks of the draws must exist, with the size
    and checksum of the last write. The contents of a chunk are compared with its checksum when it is read.

    Args:
        path: A Zarr folder written by :func:`geodax.sample`, or the folder of a run that holds one.
        num_draws: Number of draws of each chain; None takes all that have been written.

    Returns:
        The DataTree, which :func:`geodax.sample` also takes as a ``warm_start``.

    Raises:
        StorageError: If the folder is missing or damaged, or has lost draws.
    """
    path = store_in(Path(path).absolute())
    if not path.is_dir():
        raise StorageError(f"There are no draws at {path}.")
    try:
        found = opened(path, num_draws)
        labels = found.facts.pop(group_files.LABELS, {})
        tree = to_datatree(found.groups, found.facts, found.dimensions)
        groups = {group: tree[group].to_dataset() for group in found.groups}
        groups |= group_files.read_groups(path, found.arrays, num_draws)
        return tree.assign({name: xr.DataTree(of) for name, of in group_files.with_labels(groups, labels).items()})
    except StorageError:
        raise
    except Exception as error:  # damaged descriptions can raise anything
        raise unreadable(path, error) from error


def _chunk_draws(num_chains: int, num_draws: int, shape: tuple[int, ...], dtype: Any) -> int:
    row = num_chains * max(math.prod(shape), 1) * np.dtype(dtype).itemsize
    spare_draws = min(_SPARE_BYTES // row, _SPARE_DRAWS)
    return int(np.clip(_CHUNK_BYTES // row, 1, max(num_draws, spare_draws, 1)))
