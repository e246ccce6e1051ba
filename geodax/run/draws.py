"""Draws of a run: in memory or streamed to a Zarr folder, handed over as a DataTree in ArviZ's layout.

A Zarr store is laid out at its full length when the run starts, and each chunk carries a checksum; while a
run goes on, only chunk files are written, so a process killed at any moment leaves a store that can be read.
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr

from geodax.run.errors import CheckpointError, StorageError
from geodax.run.locks import require_no_links

Group = dict[str, np.ndarray]  # name -> array (chain, draw, ...)
_GROUPS = ("posterior", "sample_stats")
_CHUNK_BYTES = 4 << 20
# Room in each chunk of a shorter run: it may be extended, and chunks, which are files, stay as long as they are.
_SPARE_BYTES = 256 << 10
_SPARE_DRAWS = 1000


@runtime_checkable
class DrawStore(Protocol):
    """Where a run puts its draws: groups of named arrays (chain, draw, ...)."""

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Put draws from number ``start`` on, overwriting what stood there."""
        ...

    def read(self, num_draws: int) -> dict[str, Group]:
        """The first ``num_draws`` draws."""
        ...

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Keep facts about the finished run beside the draws."""
        ...


class MemoryDraws:
    """Draws kept in memory."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, Mapping[str, Group]]] = []

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Keep a piece; pieces arrive in order."""
        self._pieces.append((start, groups))

    def read(self, num_draws: int) -> dict[str, Group]:
        """Join the pieces."""
        if not self._pieces:
            return {group: {} for group in _GROUPS}
        first = self._pieces[0][1]
        return {
            group: {
                name: np.concatenate([piece[group][name] for _, piece in self._pieces], axis=1)[:, :num_draws]
                for name in first[group]
            }
            for group in _GROUPS
        }

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Nothing to do: the tree that is handed over has them."""


class ElsewhereDraws:
    """Draws that the first of several processes keeps."""

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Nothing to do."""

    def read(self, num_draws: int) -> dict[str, Group]:
        """Nothing is here."""
        return {group: {} for group in _GROUPS}

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Nothing to do."""


class ZarrDraws:
    """Draws streamed to a Zarr folder that xarray and ArviZ open directly.

    Args:
        path: The folder.
        shapes: For each group, name -> (shape without chain and draw, dtype).
        num_chains: Number of chains.
        num_draws: Number of draws for which room is made.
        num_kept: Number of draws at the start that the folder must hold already; with 0, what it holds of an
            earlier run is removed, so that draws of two runs never mix.

    Raises:
        StorageError: If the folder cannot be written, or holds other variables.
        CheckpointError: If the folder lacks the draws that are to be kept.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, Mapping[str, tuple[tuple[int, ...], np.dtype]]],
        num_chains: int,
        num_draws: int,
        num_kept: int = 0,
    ):
        import zarr

        self.path = Path(path)
        self._num_kept = num_kept
        try:
            require_no_links(self.path.resolve())  # the folder itself is where the user says
            _remove_leftovers(self.path)
            self._root: Any = zarr.open_group(self.path, mode="a")
            self._check_present(shapes, num_chains)
            self._arrays = {
                group: {
                    name: self._array(group, name, shape, dtype, num_chains, num_draws)
                    for name, (shape, dtype) in variables.items()
                }
                for group, variables in shapes.items()
            }
        except (StorageError, CheckpointError):
            raise
        except Exception as error:  # damaged metadata raise what they will
            raise StorageError(
                f"Cannot write draws to {self.path}: {type(error).__name__}: {error}. Use another folder, or "
                "mend this one."
            ) from error

    def _check_present(self, shapes: Mapping[str, Mapping[str, tuple]], num_chains: int) -> None:
        """Refuse what cannot be kept or replaced, before anything is changed."""
        for group, variables in shapes.items():
            present = dict(self._root[group].arrays()) if group in self._root else {}
            for name, array in present.items():
                if name in ("chain", "draw"):
                    continue
                if name not in variables:
                    raise StorageError(
                        f"{self.path} already holds a variable {name!r}, which this run does not write; use "
                        "another folder."
                    )
                shape, dtype = variables[name]
                if array.dtype != dtype or array.shape[0] != num_chains or array.shape[2:] != shape:
                    raise StorageError(
                        f"{self.path} already holds a variable {name!r} of shape {array.shape} and dtype "
                        f"{array.dtype}, but this run writes {(num_chains, '...', *shape)} and {dtype}; use "
                        "another folder."
                    )
            is_short = any(name not in present or present[name].shape[1] < self._num_kept for name in variables)
            if self._num_kept and is_short:
                raise CheckpointError(
                    f"The checkpoint goes on after {self._num_kept} draws, but {self.path} does not hold "
                    "them: it was moved, or the run was started with another store. Give the store it was "
                    "started with, or remove the checkpoint to start again."
                )

    def _array(self, group: str, name: str, shape: tuple[int, ...], dtype, num_chains: int, num_draws: int):
        from zarr.codecs import Crc32cCodec

        parent = self._root.require_group(group)
        for axis, length in (("chain", num_chains), ("draw", num_draws)):
            if axis not in parent or not _counts_up(parent[axis], length):
                parent.create_array(
                    axis,
                    data=np.arange(length),
                    compressors=[Crc32cCodec()],
                    dimension_names=[axis],
                    overwrite=True,
                )
        full = (num_chains, num_draws, *shape)
        if self._num_kept:
            array = parent[name]
            if tuple(array.metadata.dimension_names or ()) != tuple(dimension_names(name, len(shape))):
                raise StorageError(
                    f"{self.path} names the dimensions of {name!r} {array.metadata.dimension_names}, expected "
                    f"{dimension_names(name, len(shape))}: its description is damaged. Use another folder, or put back "
                    "a copy."
                )
            if array.shape != full:
                array.resize(full)
            return array
        row = num_chains * max(int(np.prod(shape)), 1) * np.dtype(dtype).itemsize
        spare_draws = min(_SPARE_BYTES // row, _SPARE_DRAWS)
        chunk_draws = int(np.clip(_CHUNK_BYTES // row, 1, max(num_draws, spare_draws, 1)))
        return parent.create_array(
            name,
            shape=full,
            chunks=(num_chains, chunk_draws, *[max(k, 1) for k in shape]),
            dtype=dtype,
            fill_value=np.nan if np.issubdtype(dtype, np.inexact) else 0,
            compressors=[Crc32cCodec()],
            dimension_names=dimension_names(name, len(shape)),
            overwrite=True,
        )

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Write a piece through to disk."""
        try:
            for group, variables in groups.items():
                for name, values in variables.items():
                    self._arrays[group][name][:, start : start + values.shape[1]] = values
        except Exception as error:  # OSError of the disk, ValueError of a damaged chunk
            raise StorageError(
                f"Draws from number {start} on could not be written to {self.path}: {error}. The {start} "
                "draws before it are there; make room and resume from the checkpoint."
            ) from error

    def read(self, num_draws: int) -> dict[str, Group]:
        """Read the first ``num_draws`` draws back."""
        try:
            return {
                group: {name: np.asarray(array[:, :num_draws]) for name, array in variables.items()}
                for group, variables in self._arrays.items()
            }
        except Exception as error:
            raise StorageError(f"The draws in {self.path} cannot be read: {type(error).__name__}: {error}") from error

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Write the facts as attributes of the root group."""
        try:
            self._root.attrs.update(attributes)
        except OSError as error:
            raise StorageError(
                f"The facts about the run could not be written to {self.path}: {error}. The draws are there."
            ) from error


def to_datatree(groups: Mapping[str, Group], attributes: Mapping[str, Any] | None = None) -> xr.DataTree:
    """Wrap arrays as an xarray DataTree with ArviZ's groups and dimension names.

    Args:
        groups: For each group, name -> array (chain, draw, ...).
        attributes: Facts about the run, kept as attributes of the tree.

    Returns:
        The tree; variable ``w`` has the dimensions ``chain, draw, w_dim_0, w_dim_1, ...``.
    """
    datasets = {}
    for group, variables in groups.items():
        data = {name: (dimension_names(name, values.ndim - 2), values) for name, values in variables.items()}
        lengths = {values.shape[:2] for values in variables.values()}
        coordinates = {}
        if lengths:
            num_chains, num_draws = lengths.pop()
            coordinates = {"chain": np.arange(num_chains), "draw": np.arange(num_draws)}
        datasets[group] = xr.Dataset(data, coords=coordinates)
    tree = xr.DataTree.from_dict(datasets)
    tree.attrs.update(attributes or {})
    return tree


def open_draws(path: Path, num_draws: int | None = None) -> xr.DataTree:
    """Load the draws of a store into memory.

    Args:
        path: A Zarr folder written by :func:`geodax.sample`.
        num_draws: How many draws are valid; None takes all (of an unfinished run the rest are NaN).

    Returns:
        The DataTree.

    Raises:
        StorageError: If the folder is missing or damaged.
    """
    try:
        tree = open_lazily(path).load()
        _check_layout(tree, Path(path))
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"The draws at {path} cannot be read: {type(error).__name__}: {error}") from error
    if num_draws is not None:
        tree = tree.isel(draw=slice(0, num_draws))
    return tree


def open_lazily(path: str | Path) -> xr.DataTree:
    """Open the draws of a store, which are read where they are used.

    Args:
        path: A Zarr folder written by :func:`geodax.sample`.

    Returns:
        The DataTree; to be closed.

    Raises:
        StorageError: If the folder is missing or its descriptions are damaged.
    """
    if not Path(path).is_dir():
        raise StorageError(f"There are no draws at {path}.")
    try:
        with warnings.catch_warnings():
            # what a process left that was killed while it wrote is no part of the draws
            warnings.filterwarnings("ignore", message=r".*\.partial is not recognized")
            return xr.open_datatree(path, engine="zarr", consolidated=False)
    except Exception as error:  # damaged metadata raise what they will
        raise StorageError(f"The draws at {path} cannot be read: {type(error).__name__}: {error}") from error


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of a process that was killed while it wrote, and folders into which nothing came."""
    folders = []
    for found in path.rglob("*"):
        if found.is_symlink():
            continue
        if found.is_dir():
            folders.append(found)
        elif re.search(r"\.[0-9a-f]{32}\.partial$", found.name):
            found.unlink()
    for folder in sorted(folders, reverse=True):  # those within another one first
        if not any(folder.iterdir()):
            folder.rmdir()


def _check_layout(tree: xr.DataTree, path: Path) -> None:
    """Refuse what a run would not have written: its descriptions, unlike its numbers, have no checksum."""
    for group in _GROUPS:
        if group not in tree.children:
            if group == "posterior" or (path / group).exists():
                raise ValueError(f"the group {group} is missing")
            continue
        for axis in ("chain", "draw"):
            if axis not in tree[group].coords or not _counts_up(
                tree[group].coords[axis].values, tree[group].sizes[axis]
            ):
                raise ValueError(f"{group}/{axis} does not count from 0")
        for name, variable in tree[group].data_vars.items():
            expected = tuple(dimension_names(str(name), variable.ndim - 2))
            chunks = tuple(variable.encoding.get("chunks", ()))
            is_whole = chunks[:1] == variable.shape[:1] and chunks[2:] == tuple(max(k, 1) for k in variable.shape[2:])
            if variable.dims != expected or not is_whole:
                raise ValueError(f"the description of {group}/{name} is damaged")


def _counts_up(array: Any, length: int) -> bool:
    """Whether a coordinate is 0, 1, ..., length - 1; one that is damaged is not."""
    try:
        return np.array_equal(array[:], np.arange(length))
    except Exception:  # whatever a damaged file raises
        return False


def dimension_names(name: str, rank: int) -> list[str]:
    """Dimensions of a variable of the given rank beside chain and draw."""
    return ["chain", "draw", *[f"{name}_dim_{i}" for i in range(rank)]]
