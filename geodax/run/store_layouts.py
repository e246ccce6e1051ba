"""Layouts of the variables of a draw store (shapes, chunks and their files), and the record of what is written."""

import abc
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

CHECKSUM_BYTES = 4


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


def checksum_of(raw: Any) -> bytes:
    """The CRC-32C of bytes, as Zarr writes it after a chunk."""
    return google_crc32c.value(raw).to_bytes(CHECKSUM_BYTES, "little")


@dataclasses.dataclass(frozen=True)
class Record:
    """Record of what has been written to a store.

    Attributes:
        num_draws: Number of draws of each chain.
        checksums: The CRC-32C of the chunks of each variable, without those that may still change.
        arrays: The CRC-32C of the whole arrays of other groups, by group and name; of an empty array there is none.
    """

    num_draws: int
    checksums: Mapping[str, tuple[str, ...]]
    arrays: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        checksums = {path: " ".join(found) for path, found in self.checksums.items()}
        text = json.dumps({"num_draws": self.num_draws, "checksums": checksums, "arrays": dict(self.arrays)})
        return f"{checksum_of(text.encode()).hex()} {text}"

    @classmethod
    def parse(cls, text: Any) -> "Record":
        """Parse the text of a record; raises ValueError if it was changed."""
        digest, _, rest = str(text).partition(" ")
        if digest != checksum_of(rest.encode()).hex():
            raise ValueError(
                "zarr.json has no record of the draws, or one that was changed: the folder was not written by "
                "geodax, by an earlier version of it, or is damaged"
            )
        found = json.loads(rest)
        checksums = {path: tuple(each.split()) for path, each in found["checksums"].items()}
        return cls(int(found["num_draws"]), checksums, found.get("arrays", {}))
