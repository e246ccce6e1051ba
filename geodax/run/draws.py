"""Draws of a run: in memory or streamed to a Zarr folder, handed over as an xarray DataTree in ArviZ's layout.

A Zarr store is laid out at its full length when the run starts, and each chunk carries a checksum; while a run goes on, only chunk
files are written, so a process killed at any moment leaves a store that can be read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xarray as xr

from geodax.run.errors import StorageError

Group = dict[str, np.ndarray]  # name -> array (chain, draw, ...)
_GROUPS = ("posterior", "sample_stats")
_CHUNK_BYTES = 4 << 20


class DrawStore(Protocol):
    """Where a run puts its draws: groups of named arrays (chain, draw, ...)."""

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Put draws from number ``start`` on, overwriting what stood there."""
        ...

    def read(self, num_draws: int) -> dict[str, Group]:
        """The first ``num_draws`` draws."""
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


class ZarrDraws:
    """Draws streamed to a Zarr folder that xarray and ArviZ open directly.

    Args:
        path: The folder.
        shapes: For each group, name -> (shape without chain and draw, dtype).
        num_chains: Number of chains.
        num_draws: Number of draws for which room is made.

    Raises:
        StorageError: If the folder cannot be written, or holds other variables.
    """

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, Mapping[str, tuple[tuple[int, ...], np.dtype]]],
        num_chains: int,
        num_draws: int,
    ):
        import zarr

        self.path = Path(path)
        try:
            self._root = zarr.open_group(self.path, mode="a")
            self._arrays = {
                group: {
                    name: self._array(group, name, shape, dtype, num_chains, num_draws)
                    for name, (shape, dtype) in variables.items()
                }
                for group, variables in shapes.items()
            }
        except OSError as error:
            raise StorageError(f"Cannot write draws to {self.path}: {error}.") from error

    def _array(self, group: str, name: str, shape: tuple[int, ...], dtype, num_chains: int, num_draws: int):
        from zarr.codecs import Crc32cCodec

        parent = self._root.require_group(group)
        for axis, length in (("chain", num_chains), ("draw", num_draws)):
            if axis not in parent or parent[axis].shape != (length,):
                parent.create_array(
                    axis, data=np.arange(length), dimension_names=[axis], overwrite=True
                )
        full = (num_chains, num_draws, *shape)
        if name in parent:
            array = parent[name]
            if array.dtype != dtype or array.shape[0] != num_chains or array.shape[2:] != shape:
                raise StorageError(
                    f"{self.path} already holds a variable {name!r} of shape {array.shape} and dtype {array.dtype}, but this run "
                    f"writes {full} and {dtype}; use another folder."
                )
            if array.shape != full:
                array.resize(full)
            return array
        row = num_chains * max(int(np.prod(shape)), 1) * np.dtype(dtype).itemsize
        chunk = (num_chains, int(np.clip(_CHUNK_BYTES // row, 1, max(num_draws, 1))), *[max(k, 1) for k in shape])
        fill = np.nan if np.issubdtype(dtype, np.inexact) else 0
        return parent.create_array(
            name,
            shape=full,
            chunks=chunk,
            dtype=dtype,
            fill_value=fill,
            compressors=[Crc32cCodec()],
            dimension_names=_dimensions(name, len(shape)),
        )

    def write(self, start: int, groups: Mapping[str, Group]) -> None:
        """Write a piece through to disk."""
        try:
            for group, variables in groups.items():
                for name, values in variables.items():
                    self._arrays[group][name][:, start : start + values.shape[1]] = values
        except OSError as error:
            raise StorageError(
                f"Draws from number {start} on could not be written to {self.path}: {error}. The {start} draws before it are there; "
                "make room and resume from the checkpoint."
            ) from error

    def read(self, num_draws: int) -> dict[str, Group]:
        """Read the first ``num_draws`` draws back."""
        return {
            group: {name: np.asarray(array[:, :num_draws]) for name, array in variables.items()}
            for group, variables in self._arrays.items()
        }


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
        data = {name: (_dimensions(name, values.ndim - 2), values) for name, values in variables.items()}
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
    if not Path(path).is_dir():
        raise StorageError(f"There are no draws at {path}.")
    try:
        tree = xr.open_datatree(path, engine="zarr", consolidated=False).load()
    except Exception as error:
        raise StorageError(f"The draws at {path} cannot be read: {type(error).__name__}: {error}") from error
    if num_draws is not None:
        tree = tree.isel(draw=slice(0, num_draws))
    return tree


def _dimensions(name: str, rank: int) -> list[str]:
    return ["chain", "draw", *[f"{name}_dim_{i}" for i in range(rank)]]
