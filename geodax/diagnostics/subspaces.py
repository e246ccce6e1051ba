"""Subspaces spanned by orthonormal columns: projectors, principal angles, distances and means.

Everything here depends on the span of the columns alone: X and X R give the same, whatever the orthogonal
matrix R. Computed in double precision, whatever the matrices are stored in.

Sources:
    Björck and Golub (1973), Numerical methods for computing angles between linear subspaces.
    Mathematics of Computation 27. (Angles from sines and cosines.)
    Edelman, Arias and Smith (1998), The geometry of algorithms with orthogonality constraints.
    SIAM J. Matrix Analysis and Applications 20(2). (Distances between subspaces.)
"""

import numpy as np
from jaxtyping import Float, Inexact

from geodax import _checks as _arguments

_ORTHONORMAL_TOLERANCE = 1e-3


def projector(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "*batch n n"]:
    """The orthogonal projector X X^H onto the span of the columns; the same for X R with any orthogonal R.

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
    """The principal angles between the spans of the columns, the smallest first.

    The singular values of X^H Y are the cosines of the angles, those of Y - X X^H Y their sines. Angles below
    45 degrees come from the sines and the others from the cosines, so that the error is one of rounding near
    zero too, where the cosines alone would leave 1e-8 (Björck and Golub 1973).

    Args:
        x: Matrices with orthonormal columns.
        reference: Matrices of the same shape; the leading axes are broadcast.

    Returns:
        p angles in [0, pi/2] for every pair.
    """
    x, reference = _check_pair("principal_angles", x, reference)
    cosines = np.linalg.svd(adjoint(x) @ reference, compute_uv=False)
    sines = np.linalg.svd(_orthogonal_part(x, reference), compute_uv=False)[..., ::-1]
    from_sines = np.arcsin(np.minimum(sines, 1.0))
    return np.where(sines**2 < 0.5, from_sines, np.arccos(np.minimum(cosines, 1.0)))


def subspace_distance(
    x: Inexact[np.ndarray, "*batch n p"], y: Inexact[np.ndarray, "*other n p"]
) -> Float[np.ndarray, "*broadcast"]:
    """The chordal distance between the spans of the columns: the norm of the sines of the principal angles.

    It is ``|X X^H - Y Y^H|_F / sqrt(2)``, which Edelman et al. (1998, section 4.3) call the projection F-norm.

    Args:
        x: Matrices with orthonormal columns.
        y: Matrices of the same shape; the leading axes are broadcast.

    Returns:
        A distance in [0, sqrt(p)] for every pair.
    """
    x, y = _check_pair("subspace_distance", x, y)
    return np.asarray(np.linalg.norm(_orthogonal_part(x, y), axis=(-2, -1)))


def mean_subspace(draws: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "n p"]:
    """An orthonormal basis of the mean subspace: the p leading eigenvectors of the average projector.

    Of all p-dimensional subspaces it has the smallest mean squared chordal distance from the draws. The basis
    vectors come in the order of the share of the draws that they explain, the largest entry of each positive.
    Where the draws are spread over all subspaces evenly, no subspace is singled out and the answer is noise.

    Args:
        draws: Matrices with orthonormal columns; all leading axes are averaged over.

    Returns:
        The basis.
    """
    draws = check_orthonormal("mean_subspace", draws)
    return leading_eigenvectors(draws)[:, : draws.shape[-1]]


def leading_eigenvectors(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "n n"]:
    """All eigenvectors of the average of X X^H, the largest eigenvalue first.

    Args:
        x: Matrices; all leading axes are averaged over.

    Returns:
        The eigenvectors as columns, the largest entry of each real and positive.
    """
    columns = np.moveaxis(x, -2, 0).reshape(x.shape[-2], -1)
    _, eigenvectors = np.linalg.eigh(columns @ adjoint(columns) * (x.shape[-1] / columns.shape[1]))
    return with_positive_largest_entry(eigenvectors[:, ::-1])


def with_positive_largest_entry(x: Inexact[np.ndarray, "n p"]) -> Inexact[np.ndarray, "n p"]:
    """Give each column the sign (complex: the phase) that makes its largest entry positive.

    Args:
        x: A matrix.

    Returns:
        The matrix with its columns so turned; a column of zeros stays.
    """
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=0)[None], axis=0)
    return x * unit(largest).conj()


def unit(z: Inexact[np.ndarray, "*shape"]) -> Inexact[np.ndarray, "*shape"]:
    """The sign of each number, or its phase if complex; 1 for zero.

    Args:
        z: Numbers.

    Returns:
        Numbers of modulus 1.
    """
    modulus = np.abs(z)
    return np.where(modulus > 0, z / np.where(modulus > 0, modulus, 1), 1).astype(z.dtype)


def adjoint(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "*batch p n"]:
    """The conjugate transpose.

    Args:
        x: Matrices.

    Returns:
        X^H.
    """
    return np.swapaxes(x.conj(), -1, -2)


def check_matrices(function: str, x: Inexact[np.ndarray, "..."]) -> Inexact[np.ndarray, "..."]:
    """Raise unless x holds finite tall matrices.

    Args:
        function: Who asks, for the message.
        x: The matrices.

    Returns:
        The matrices in double precision.
    """
    x = _arguments.plain(function, "matrices", x)
    if x.ndim < 2 or x.size == 0 or x.shape[-2] < x.shape[-1]:
        raise ValueError(
            f"{function} expects matrices of shape (..., n, p) with n >= p >= 1, at least one, and found "
            f"shape {x.shape}. Put rows and columns last; for a vector pass x[..., None]."
        )
    if not np.isfinite(x).all():
        raise ValueError(
            f"{function} expects finite matrices and found {np.sum(~np.isfinite(x))} entries that are NaN or "
            "infinite. Leave those draws out, or find their cause with geodax.diagnostics.findings.check."
        )
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def check_orthonormal(function: str, x: Inexact[np.ndarray, "..."]) -> Inexact[np.ndarray, "..."]:
    """Raise unless x holds finite matrices with orthonormal columns.

    Args:
        function: Who asks, for the message.
        x: The matrices.

    Returns:
        The matrices in double precision.
    """
    x = check_matrices(function, x)
    residual = np.abs(adjoint(x) @ x - np.eye(x.shape[-1])).max()
    if residual > _ORTHONORMAL_TOLERANCE:
        raise ValueError(
            f"{function} expects orthonormal columns and found an entry of X^H X - I as large as "
            f"{residual:.2g}. Pass the orthonormal factor (from np.linalg.qr, or the manifold's `nearest`); "
            "rows and columns are the last two axes."
        )
    return x


def _check_pair(
    function: str, x: Inexact[np.ndarray, "..."], y: Inexact[np.ndarray, "..."]
) -> tuple[Inexact[np.ndarray, "..."], Inexact[np.ndarray, "..."]]:
    x, y = check_orthonormal(function, x), check_orthonormal(function, y)
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError(
            f"{function} expects two subspaces of the same dimension in the same space and found matrices of "
            f"shapes {x.shape[-2:]} and {y.shape[-2:]}. Pass as many columns of the one as of the other."
        )
    return x, y


def _orthogonal_part(
    x: Inexact[np.ndarray, "*batch n p"], y: Inexact[np.ndarray, "*other n p"]
) -> Inexact[np.ndarray, "*broadcast n p"]:
    """What of y lies outside the span of x."""
    return y - x @ (adjoint(x) @ y)
