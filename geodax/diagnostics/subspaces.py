"""Subspaces spanned by orthonormal columns: projectors, principal angles, distances and means.

All functions depend only on the span of the columns: X and X R give the same result for every orthogonal
matrix R. They compute in double precision, whatever the dtype of the matrices is.

Sources:
    Björck and Golub (1973), Numerical methods for computing angles between linear subspaces.
    Mathematics of Computation 27. (Angles from sines and cosines.)
    Edelman, Arias and Smith (1998), The geometry of algorithms with orthogonality constraints.
    SIAM J. Matrix Analysis and Applications 20(2). (Distances between subspaces.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Inexact

from geodax import _checks

_ORTHONORMAL_TOLERANCE = 1e-3
_FEW_ROWS = 512  # up to this number the average projector itself is decomposed
_FEW_COLUMNS = 1024  # up to this number of columns of all matrices, their Gram matrix
_MOST_BEGUN_WITH = 256
_SPARE_VECTORS = 4
_MOST_ROUNDS = 20
_STILL = 1e-12
_BLOCK = 1 << 22  # entries of the matrices that are processed at a time


def projector(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "*batch n n"]:
    """Compute the orthogonal projector X X^H onto the span of the columns; the same for X R with any orthogonal R.

    Args:
        x: Matrices with orthonormal columns.

    Returns:
        The projectors: Hermitian, idempotent, of trace p.
    """
    x = check_matrices("projector", x)
    return x @ adjoint(x)


def principal_angles(
    x: Inexact[np.ndarray, "*batch n p"], reference: Inexact[np.ndarray, "*other n p"]
) -> Float[np.ndarray, "*broadcast p"]:
    """Compute the principal angles between the spans of the columns in ascending order.

    The singular values of X^H Y are the cosines of the angles, those of Y - X X^H Y their sines. Angles below
    45 degrees are computed from the sines and the others from the cosines, so that the error is one of rounding also
    near zero, where the cosines alone have an error of 1e-8 (Björck and Golub 1973).

    Args:
        x: Matrices with orthonormal columns.
        reference: Matrices of the same shape; the leading axes are broadcast.

    Returns:
        p angles in [0, pi/2] for every pair.
    """
    x, reference = _check_pair("principal_angles", x, reference)
    return in_blocks(_principal_angles, x, reference)


def _principal_angles(x: Inexact[np.ndarray, "..."], reference: Inexact[np.ndarray, "..."]) -> np.ndarray:
    cosines = np.linalg.svd(adjoint(x) @ reference, compute_uv=False)
    sines = np.linalg.svd(_orthogonal_part(x, reference), compute_uv=False)[..., ::-1]
    from_sines = np.arcsin(np.minimum(sines, 1.0))
    return np.where(sines**2 < 0.5, from_sines, np.arccos(np.minimum(cosines, 1.0)))


def subspace_distance(
    x: Inexact[np.ndarray, "*batch n p"], y: Inexact[np.ndarray, "*other n p"]
) -> Float[np.ndarray, "*broadcast"]:
    """Compute the chordal distance between the spans of the columns: the norm of the sines of the principal angles.

    It is ``|X X^H - Y Y^H|_F / sqrt(2)``, which Edelman et al. (1998, section 4.3) call the projection F-norm.

    Args:
        x: Matrices with orthonormal columns.
        y: Matrices of the same shape; the leading axes are broadcast.

    Returns:
        A distance in [0, sqrt(p)] for every pair.
    """
    x, y = _check_pair("subspace_distance", x, y)
    return in_blocks(lambda x, y: np.asarray(np.linalg.norm(_orthogonal_part(x, y), axis=(-2, -1))), x, y)


def in_blocks(function: Callable[..., np.ndarray], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Apply a function to pairs of stacks of matrices in blocks, to bound the memory of its intermediate results.

    Leading axes are broadcast, and those of the result; x is split into blocks only if y is a single matrix.
    """
    if y.ndim > 2 or x.size <= _BLOCK:
        return function(x, y)
    flat, length = x.reshape(-1, *x.shape[-2:]), max(1, _BLOCK // (x.shape[-2] * x.shape[-1]))
    values = np.concatenate([function(flat[i : i + length], y) for i in range(0, len(flat), length)])
    return values.reshape((*x.shape[:-2], *values.shape[1:]))


def mean_subspace(draws: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "n p"]:
    """Compute an orthonormal basis of the mean subspace: the p leading eigenvectors of the average projector.

    Of all p-dimensional subspaces it has the smallest mean squared chordal distance from the draws. The basis
    vectors are ordered by the fraction of the draws that they explain, the largest entry of each positive.
    If the draws are spread evenly over all subspaces, the mean subspace is not unique and the result is noise.

    Args:
        draws: Matrices with orthonormal columns; all leading axes are averaged over.

    Returns:
        The basis.
    """
    draws = check_orthonormal("mean_subspace", draws)
    return leading_eigenvectors(draws, draws.shape[-1])


def leading_eigenvectors(x: Inexact[np.ndarray, "*batch n p"], number: int) -> Inexact[np.ndarray, "n k"]:
    """Compute eigenvectors of the average of X X^H over all leading axes as columns, the largest eigenvalue first.

    For many rows n no n x n matrix is formed: subspace iteration, with products with the matrices only, starts from the
    eigenvectors of some of them and stops when the leading p no longer move, or after a fixed number of rounds. The
    other requested vectors are the closer to eigenvectors the better their eigenvalues are separated. The largest entry
    of each is real and positive.
    """
    n, p = x.shape[-2:]
    columns = np.moveaxis(x, -2, 0).reshape(n, -1)
    if n <= _FEW_ROWS:
        _, eigenvectors = np.linalg.eigh(columns @ adjoint(columns) * (p / columns.shape[1]))
        return with_positive_largest_entry(eigenvectors[:, ::-1][:, :number])
    are_few = columns.shape[1] <= _FEW_COLUMNS
    most = columns.shape[1] if are_few else _MOST_BEGUN_WITH
    some = columns[:, np.unique(np.linspace(0, columns.shape[1] - 1, most).astype(int))]
    _, small = np.linalg.eigh(adjoint(some) @ some)
    basis = np.linalg.qr(some @ small[:, ::-1][:, : number + _SPARE_VECTORS])[0]
    for _ in range(0 if are_few else _MOST_ROUNDS):
        # eigenvectors of the projection to the span of the basis, from singular vectors
        within = adjoint(columns) @ basis
        _, turn = np.linalg.eigh(adjoint(within) @ within)
        turn = turn[:, ::-1]
        before, basis = basis @ turn, np.linalg.qr(columns @ (within @ turn))[0]
        if np.linalg.norm(_orthogonal_part(basis[:, :p], before[:, :p])) < _STILL:
            break
    if basis.shape[1] < number:  # the matrices span a smaller space
        padding = np.random.default_rng(0).standard_normal((n, number - basis.shape[1]))
        basis = np.linalg.qr(np.concatenate([basis, padding], axis=1))[0]
    return with_positive_largest_entry(basis[:, :number])


def with_positive_largest_entry(x: Inexact[np.ndarray, "n p"]) -> Inexact[np.ndarray, "n p"]:
    """Give each column the sign (complex: the phase) that makes its largest entry positive; zeros are unchanged."""
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=0)[None], axis=0)
    return x * unit(largest).conj()


def unit(z: Inexact[np.ndarray, "*shape"]) -> Inexact[np.ndarray, "*shape"]:
    """The sign of each number, or its phase if complex; 1 for zero."""
    modulus = np.abs(z)
    return np.where(modulus > 0, z / np.where(modulus > 0, modulus, 1), 1).astype(z.dtype)


def adjoint(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "*batch p n"]:
    """The conjugate transpose."""
    return np.swapaxes(x.conj() if np.iscomplexobj(x) else x, -1, -2)


def check_matrices(function: str, x: Any) -> Inexact[np.ndarray, "..."]:
    """Raise unless x holds finite tall matrices; return them in double precision."""
    x, axes = _checks.plain(function, "matrices", x), getattr(x, "dims", ())
    if not {"chain", "draw"}.isdisjoint(axes[-2:]):
        raise ValueError(
            f"{function}: expected matrices along the last two axes, found the axes {axes}. Put rows and columns last; "
            "unit vectors are matrices with one column: x.expand_dims('column', axis=-1)."
        )
    if x.ndim < 2 or x.size == 0 or x.shape[-2] < x.shape[-1]:
        raise ValueError(
            f"{function}: expected at least one matrix, of shape (..., n, p) with n >= p >= 1, found "
            f"shape {x.shape}. Put rows and columns last; for a vector pass x[..., None]."
        )
    if not np.isfinite(x).all():
        raise ValueError(
            f"{function}: expected finite matrices, found {np.sum(~np.isfinite(x))} entries that are NaN or "
            "infinite. Leave those draws out, or find the cause with geodax.diagnostics.findings.check."
        )
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64, copy=False)


def check_orthonormal(function: str, x: Any) -> Inexact[np.ndarray, "..."]:
    """Raise unless x holds finite matrices with orthonormal columns; return them in double precision."""
    x = check_matrices(function, x)
    residual = np.abs(adjoint(x) @ x - np.eye(x.shape[-1])).max()
    if residual > _ORTHONORMAL_TOLERANCE:
        instead = "Pass the orthonormal factor (from np.linalg.qr, or the manifold's `nearest`)"
        if has_unit_rows(x):
            instead = "The last axis holds unit vectors: pass x[..., None], matrices with one column"
        raise ValueError(
            f"{function}: expected orthonormal columns, found an entry of X^H X - I as large as "
            f"{residual:.2g}. {instead}; rows and columns are the last two axes."
        )
    return x


def has_unit_rows(x: Inexact[np.ndarray, "*batch n p"]) -> bool:
    """Whether the last axis holds unit vectors, which are not the rows of matrices with orthonormal columns."""
    return x.shape[-2] > x.shape[-1] > 1 and np.allclose(np.linalg.norm(x, axis=-1), 1.0, atol=1e-4)


def _check_pair(
    function: str, x: Inexact[np.ndarray, "..."], y: Inexact[np.ndarray, "..."]
) -> tuple[Inexact[np.ndarray, "..."], Inexact[np.ndarray, "..."]]:
    x, y = check_orthonormal(function, x), check_orthonormal(function, y)
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError(
            f"{function}: expected two subspaces of the same dimension in the same space, found matrices of "
            f"shapes {x.shape[-2:]} and {y.shape[-2:]}. Pass matrices with the same rows and columns."
        )
    return x, y


def _orthogonal_part(
    x: Inexact[np.ndarray, "*batch n p"], y: Inexact[np.ndarray, "*other n p"]
) -> Inexact[np.ndarray, "*broadcast n p"]:
    return y - x @ (adjoint(x) @ y)
