"""Blocks of draws: what is computed from all draws of a run takes some of them, or some numbers, at a time.

Draws may be arrays, or variables of :func:`geodax.run.draws.open_draws`, which are read from disk where they are indexed.
Memory then holds a block, whatever the length of the run.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_READ_BYTES = 4 << 20
_LEAST_BYTES = 16 << 20
_MOST_PASSES = 32


def draw_blocks(values: Any) -> Iterator[tuple[int, np.ndarray]]:
    """The draws of a variable, some at a time.

    Args:
        values: Draws (chain, draw, ...): an array, or a variable that is read where it is indexed.

    Yields:
        The number of the first draw of a block, and the block (chain, draw, ...).
    """
    num_draws = values.shape[1]
    length = max(1, _READ_BYTES // max(_bytes(values) // max(num_draws, 1), 1))
    for start in range(0, num_draws, length):
        yield start, np.asarray(values[:, start : start + length])


def number_blocks(values: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """All draws of some numbers of a variable at a time.

    A variable on disk is read as often as there are blocks, at most 32 times: a block holds a 32nd of the numbers.

    Args:
        values: Draws (chain, draw, ...): an array, or a variable that is read where it is indexed.

    Yields:
        Which numbers of a draw these are, the last index running fastest, and the block (chain, draw, number).
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


def _bytes(values: Any) -> int:
    return math.prod(values.shape) * values.dtype.itemsize
