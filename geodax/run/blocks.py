"""Process draws in blocks: functions of all draws of a run read some draws, or some numbers, at a time.

Draws may be arrays, or variables of :func:`geodax.run.draws.open_draws`, which are read from disk when indexed. Memory
then holds one block, whatever the length of the run.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

_READ_BYTES = 4 << 20
_LEAST_BYTES = 256 << 20
_MOST_PASSES = 16
_MAPPED_AT_ONCE = 32 << 20


class BlockArray(BackendArray):
    """Draws (chain, draw, ...), or another array, read in blocks when indexed, and not cached; NumPy converts them.

    The last block along draws may have too many; the other axes are cut evenly. ``block`` maps the number of a block
    along each axis to its draws (chain, draw, ...).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        block_shape: tuple[int, ...],
        block: Callable[[tuple[int, ...]], np.ndarray],
    ):
        self.shape, self.dtype = shape, dtype
        self._block_shape, self._block = block_shape, block

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        picked = [np.arange(size)[k] for size, k in zip(self.shape, key, strict=True)]
        axes = [np.atleast_1d(p) for p in picked]
        found = np.empty([p.size for p in axes], self.dtype)
        pieces = (
            [_by_block(*axis) for axis in zip(axes, self.shape, self._block_shape, strict=True)] if found.size else [[]]
        )
        for chosen in itertools.product(*pieces):
            values = self._block(tuple(piece.number for piece in chosen))
            for axis, piece in enumerate(chosen):
                if not (piece.is_start and len(piece.local) == values.shape[axis]):
                    values = values.take(piece.local, axis=axis)
            found[_as_slices([piece.places for piece in chosen])] = values
        return np.asarray(found[tuple(0 if np.ndim(p) == 0 else slice(None) for p in picked)])


class _Piece(NamedTuple):
    """Entries along an axis that are in one block: its number, their indices in it, and their places in the result."""

    number: int
    local: np.ndarray
    places: np.ndarray
    is_start: bool


def _by_block(chosen: np.ndarray, size: int, length: int) -> list[_Piece]:
    blocks = chosen // length if size > length else np.zeros_like(chosen)
    pieces = []
    for number in np.unique(blocks).tolist() if size > length else [0]:
        places = np.flatnonzero(blocks == number)
        local = chosen[places] - number * length
        pieces.append(_Piece(number, local, places, np.array_equal(local, np.arange(len(local)))))
    return pieces


def _as_slices(places: list[np.ndarray]) -> tuple[Any, ...]:
    """Indices of some entries of each axis: slices, which are copied faster, if they are consecutive."""
    if all(p[-1] - p[0] + 1 == len(p) for p in places):
        return tuple(slice(p[0], p[-1] + 1) for p in places)
    return np.ix_(*places)


def lazy(values: Any) -> Any:
    """Convert to the data of an xarray variable: arrays stay as they are, arrays on disk stay unread."""
    if not isinstance(values, BackendArray):
        return values
    unread: Any = indexing.LazilyIndexedArray(values)
    return indexing.CopyOnWriteArray(unread)


def mapped(function: Callable[..., np.ndarray], *variables: xr.DataArray) -> xr.DataArray:
    """Map a function of blocks over the draws (chain, draw, ...): immediately for few draws, otherwise on access.

    The values have the shape and the dimensions of the first variable.
    """
    first = variables[0]
    if sum(map(_bytes, variables)) <= _MAPPED_AT_ONCE:
        return first.copy(data=function(*(variable.values for variable in variables)))
    length = _draws_of(_READ_BYTES, first)

    def block(numbers: tuple[int, ...]) -> np.ndarray:
        some = slice(numbers[1] * length, (numbers[1] + 1) * length)
        return function(*(variable[:, some].values for variable in variables))

    shape = (first.shape[0], length, *first.shape[2:])
    dtype = np.result_type(function(*(variable[:, :1].values for variable in variables)))
    return first.copy(data=lazy(BlockArray(first.shape, dtype, shape, block)))


def draw_blocks(values: Any) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of draws (chain, draw, ...) of an array or a variable on disk, each with its first draw's index."""
    length = _draws_of(_READ_BYTES, values)
    for start in range(0, values.shape[1], length):
        yield start, np.asarray(values[:, start : start + length])


def number_blocks(values: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks (chain, draw, number) of a variable, each with its slice of the numbers, last index fastest.

    A variable on disk is read once per block, at most 16 times: a block holds 256 MB, or a 16th of the numbers.
    """
    num_chains, num_draws, *shape = values.shape
    num_numbers = math.prod(shape)
    flat = values.reshape(num_chains, num_draws, num_numbers) if isinstance(values, np.ndarray) else None
    each = max(_bytes(values) // max(num_numbers, 1), 1)
    length = max(1, _LEAST_BYTES // each, -(-num_numbers // _MOST_PASSES))
    for start in range(0, num_numbers, length):
        chosen = slice(start, min(start + length, num_numbers))
        if flat is not None:
            yield chosen, flat[..., chosen]
            continue
        block = np.empty((num_chains, num_draws, chosen.stop - start), values.dtype)
        for first, draws in draw_blocks(values):
            block[:, first : first + draws.shape[1]] = draws.reshape(*draws.shape[:2], num_numbers)[..., chosen]
        yield chosen, block


def is_still(values: Any) -> np.ndarray:
    """Whether a variable is constant over all draws of a chain, one Boolean per chain."""
    first, has_moved = np.asarray(values[:, :1]), np.zeros(values.shape[0], bool)
    for _, block in draw_blocks(values):
        has_moved |= (block != first).reshape(len(block), -1).any(axis=1)
    return ~has_moved


def not_finite(values: Any) -> tuple[int, tuple[int, int]]:
    """Number of NaN or infinite values of a variable, and chain and draw of the first one, (0, 0) without any."""
    count, places = 0, []
    for start, block in draw_blocks(values):
        is_bad = ~np.isfinite(block)
        if is_bad.any():
            count += int(is_bad.sum())
            chain, draw, *_ = np.argwhere(is_bad)[0].tolist()
            places.append((chain, start + draw))
    return count, min(places, default=(0, 0))


def are_orthonormal(values: Any) -> bool:
    """Whether all draws of a variable are matrices with two or more orthonormal columns."""
    n, p = values.shape[-2:]
    if len(values.shape) != 4 or values.dtype.kind not in "fc" or not n >= p > 1:
        return False
    grams = (np.swapaxes(block.conj(), -1, -2) @ block for _, block in draw_blocks(values))
    return all(np.abs(gram - np.eye(p)).max() < 1e-3 for gram in grams)


def _draws_of(num_bytes: int, values: Any) -> int:
    return max(1, num_bytes // max(_bytes(values) // max(values.shape[1], 1), 1))


def _bytes(values: Any) -> int:
    return math.prod(values.shape) * values.dtype.itemsize
