"""Principal axes of tables, and whether they leave any noise."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from geodax.run.signals import interruptible

LEAST_NOISE = 1e-7
"""Noise relative to its prior, below which the likelihood of rows with missing cells loses its digits."""
_SMALL_TABLE = 1 << 20  # cells
_CONSTANT = 1e-9
_NO_FACTOR = 1e-2  # relative factor of a column from which another is hardly computed
_ROUNDING = 1e-3  # of a computed column, relative to its spread
_NOTHING_LEFT = 1e-13  # relative variance of a direction in which there is nothing but rounding errors


class PrincipalAxes(NamedTuple):
    """Orthonormal eigenvectors of a scatter matrix and their eigenvalues.

    Attributes:
        axes: Eigenvectors with the largest eigenvalues first, n x k; k is n, or the number of rows if that is smaller.
    """

    axes: Float[np.ndarray, "n k"]
    squares: Float[np.ndarray, " k"]


def principal_axes(centred: Float[np.ndarray, "rows n"]) -> PrincipalAxes:
    """Compute principal axes of centred data; the cost grows as the table size times its smaller side."""
    rows, n = centred.shape
    if rows < n or centred.size <= _SMALL_TABLE:
        _, singular, axes = interruptible(np.linalg.svd, centred, full_matrices=False)
        return PrincipalAxes(axes.T, singular**2)
    squares, axes = interruptible(np.linalg.eigh, centred.T @ centred)
    return PrincipalAxes(axes[:, ::-1], np.clip(squares[::-1], 0.0, None))


def num_directions(squares: Float[np.ndarray, "*batch k"]) -> Int[np.ndarray, "*batch"]:
    """Count the eigenvalues of scatter matrices that are more than rounding errors."""
    return np.asarray(np.sum(squares > _NOTHING_LEFT * squares.max(axis=-1, keepdims=True, initial=0.0), axis=-1))


def num_exact(squares: Float[np.ndarray, " k"], num_rows: int, n: int) -> int:
    """Compute the number of components that describe the rows exactly; n if columns are not computed from others."""
    rank = int(num_directions(squares))
    return rank if rank < min(n, num_rows - 1) else n


def num_exact_of(data: Float[np.ndarray, "rows n"]) -> int:
    """Compute the number of components that describe the rows without missing cells exactly."""
    complete = data[~np.isnan(data).any(axis=1)]
    if len(complete) < 2:
        return data.shape[1]
    complete -= complete.mean(axis=0)
    return num_exact(principal_axes(complete)[1], *complete.shape)


def computed_column(data: Float[np.ndarray, "rows n"], most: int) -> list[int]:
    """Find a column of standardised data that is, up to rounding, a linear function of at most ``most`` others.

    Returns the column and then the others; nothing if there is none. Rows with missing cells are left out.
    """
    complete = data[~np.isnan(data).any(axis=1)]
    if len(complete) < 2:
        return []
    complete -= complete.mean(axis=0)
    sizes = np.linalg.norm(complete, axis=0)
    complete /= np.where(sizes > _CONSTANT * np.sqrt(len(complete)), sizes, np.inf)
    triangle: Any = interruptible(np.linalg.qr, complete, mode="r")
    pivoted: Any = scipy.linalg.qr(triangle, mode="r", pivoting=True)
    root, order = pivoted
    rank = int(np.sum(np.abs(np.diagonal(root)) > _ROUNDING))
    factors = scipy.linalg.solve_triangular(root[:rank, :rank], root[:rank, rank:])
    for column, own in zip(order[rank:], factors.T, strict=True):
        others = np.sort(order[:rank][np.abs(own) > _NO_FACTOR * np.abs(own).max(initial=0.0)])
        if len(others) <= most:
            sources = triangle[:, others]
            left = triangle[:, column] - sources @ np.linalg.lstsq(sources, triangle[:, column])[0]
            if np.linalg.norm(left) <= _ROUNDING:
                return [int(column), *others.tolist()]
    return []
