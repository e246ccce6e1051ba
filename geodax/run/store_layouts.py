"""Layouts of the variables of a draw store: their shapes, chunks and the files of these."""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from geodax.run.store_record import CHECKSUM_BYTES


class Chunked(abc.ABC):
    """The layout of an array in chunks: :class:`Layout`, or a whole array of :mod:`geodax.run.group_files`."""

    dtype: np.dtype

    @property
    @abc.abstractmethod
    def chunk_shape(self) -> tuple[int, ...]:
        """The shape of a chunk."""

    @property
    def chunk_bytes(self) -> int:
        """The size of the file of a chunk."""
        return math.prod(self.chunk_shape) * self.dtype.itemsize + CHECKSUM_BYTES

    @abc.abstractmethod
    def file(self, index: int) -> str:
        """The file of a chunk, relative to the folder of the store."""


@dataclasses.dataclass(frozen=True)
class Layout(Chunked):
    """Layout of a variable.

    Attributes:
        chunk_draws: Number of draws per chunk.
        axes: Names of the axes after chain and draw; None for ``NAME_dim_0``, ``NAME_dim_1`` and so on.
        parts: Numbers of chunks along the chains and each axis of a draw, for draws that are split over devices; empty
            for one each.
    """

    path: str
    num_chains: int
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk_draws: int
    axes: tuple[str, ...] | None = None
    parts: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.path.rpartition("/")[2]

    @property
    def dimensions(self) -> list[str]:
        """The names of all axes."""
        return dimension_names(self.name, len(self.shape)) if self.axes is None else ["chain", "draw", *self.axes]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        chains, *axes = (n // k for n, k in zip((self.num_chains, *self.shape), self._grid, strict=True))
        return (chains, self.chunk_draws, *axes)

    @property
    def fill(self) -> float | int:
        """The value of entries after the last draw."""
        return math.nan if np.issubdtype(self.dtype, np.inexact) else 0

    @property
    def num_parts(self) -> int:
        """Number of chunks of the same draws; these have consecutive indices."""
        return math.prod(self.parts)

    @property
    def _grid(self) -> tuple[int, ...]:
        return self.parts or (1,) * (1 + len(self.shape))

    def num_chunks(self, num_draws: int) -> int:
        """The number of chunks for this number of draws."""
        return -(-num_draws // self.chunk_draws) * self.num_parts if 0 not in self.shape else 0

    def index(self, numbers: Sequence[int]) -> int:
        """The index of a chunk, from its number along each axis."""
        chain, draw, *axes = numbers
        return int(draw) * self.num_parts + int(np.ravel_multi_index((chain, *axes), self._grid))

    def numbers(self, index: int) -> tuple[int, ...]:
        """The number of a chunk along each axis."""
        draw, part = divmod(index, self.num_parts)
        chain, *axes = map(int, np.unravel_index(part, self._grid))
        return (chain, draw, *axes)

    def region(self, index: int) -> tuple[slice, ...]:
        """The entries of a chunk along each axis."""
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(self.numbers(index), self.chunk_shape, strict=True))

    def file(self, index: int) -> str:
        return "/".join([self.path, "c", *map(str, self.numbers(index))])

    def description(self, num_draws: int) -> dict[str, Any]:
        """The contents of ``zarr.json`` of the variable, allocated for this number of draws."""
        shape = [self.num_chains, num_draws, *self.shape]
        return array_description(shape, self.dtype, self.chunk_shape, self.dimensions)


def dimension_names(name: str, rank: int) -> list[str]:
    """Names of the dimensions after chain and draw, for a variable of this rank."""
    return ["chain", "draw", *[f"{name}_dim_{i}" for i in range(rank)]]


def array_description(
    shape: Sequence[int], dtype: np.dtype, chunk_shape: Sequence[int], dimensions: Sequence[str]
) -> dict[str, Any]:
    """The contents of ``zarr.json`` of an array."""
    little = {} if dtype.itemsize == 1 else {"configuration": {"endian": "little"}}
    return {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(k, 1) for k in chunk_shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": {"f": "NaN", "c": ["NaN", "NaN"], "b": False}.get(dtype.kind, 0),
        "codecs": [{"name": "bytes", **little}, {"name": "crc32c"}],
        "attributes": {},
        "dimension_names": list(dimensions),
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
