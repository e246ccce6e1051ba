"""Symmetric Hadamard matrices."""

import functools
import itertools

import numpy as np
from jaxtyping import Float

from geodax import _checks

ODD_ORDERS = (12, 20, 28)  # symmetric Hadamard matrices of orders that are not powers of two (Paley's second type)
_LARGEST = 2**14  # rows of a matrix of 2 GiB


def factors(size: int) -> tuple[int, int] | None:
    """Write a size as ``m * 2**k`` with m = 1 or in :data:`ODD_ORDERS`; None if no such matrix is implemented."""
    if size < 1:
        return None
    for order in (1, *ODD_ORDERS):
        rest, remainder = divmod(size, order)
        if not remainder and rest & (rest - 1) == 0:
            return order, rest
    return None


def hadamard_matrix(size: int) -> Float[np.ndarray, "size size"]:
    """Return the orthonormal, symmetric Hadamard matrix of :func:`geodax.geometry.hadamard.fwht`.

    Args:
        size: ``m * 2**k`` with m = 1, 12, 20 or 28.

    Returns:
        The matrix in double precision, read-only.

    Raises:
        TypeError: If the size is not an integer.
        ValueError: For another size, or one whose matrix would need more than 2 GiB.
    """
    return _hadamard_matrix(_checks.whole("hadamard_matrix", "size", size, most=_LARGEST))


@functools.cache
def _hadamard_matrix(size: int) -> np.ndarray:
    found = factors(size)
    if found is None:
        raise ValueError(f"hadamard_matrix: expected a size 2^k, 12*2^k, 20*2^k or 28*2^k, found {size}.")
    order, rest = found
    matrix = np.ones((1, 1)) if order == 1 else _paley(order)
    pair = np.array([[1.0, 1.0], [1.0, -1.0]])
    for _ in range(rest.bit_length() - 1):
        matrix = np.kron(matrix, pair)
    matrix = matrix / np.sqrt(size)
    matrix.setflags(write=False)
    return matrix


def _paley(order: int) -> np.ndarray:
    """Paley's (1933) second construction, symmetric, of order ``2 (q + 1)`` with q = 1 modulo 4 a prime power."""
    q = order // 2 - 1
    character = _quadratic_character(q)
    conference = np.ones((q + 1, q + 1))
    conference[0, 0] = 0.0
    conference[1:, 1:] = character
    return np.kron(conference, [[1.0, 1.0], [1.0, -1.0]]) + np.kron(np.eye(q + 1), [[1.0, -1.0], [-1.0, -1.0]])


def _quadratic_character(q: int) -> np.ndarray:
    """Quadratic character of all differences in the field of q elements: 1 for squares, -1 for others, 0 for zero."""
    # elements a + b i over the integers modulo 3, with i^2 = -1, or integers modulo a prime
    modulus, elements = (3, list(itertools.product(range(3), range(3)))) if q == 9 else (q, [(a, 0) for a in range(q)])
    squares = {((a * a - b * b) % modulus, 2 * a * b % modulus) for a, b in elements}

    def sign(x: tuple[int, int], y: tuple[int, int]) -> int:
        difference = ((x[0] - y[0]) % modulus, (x[1] - y[1]) % modulus)
        return 0 if x == y else 1 if difference in squares else -1

    return np.array([[sign(x, y) for y in elements] for x in elements], dtype=np.float64)
