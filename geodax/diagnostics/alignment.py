r"""Diagnostics for draws on manifolds: invariant functions of orthonormal matrices, and alignment.

A posterior can determine an n x p matrix X with orthonormal columns (X^H X = I) in three ways:

* entry by entry, so that X needs no alignment;
* up to the sign of each column (singular vectors; for complex X a phase), or
* up to an orthogonal p x p matrix from the right (the loadings of probabilistic PCA with one scale): only the
  span of the columns is determined, that is the projector X X^H.

In the last two cases different chains sample different copies of the same posterior, the mean of X has no meaning, and
neither do R-hat and the effective sample size of its entries. Either use functions that are invariant
(:func:`invariant_draws`, :func:`projector`, :func:`principal_angles`), or choose one copy for all draws
(:func:`align_signs`, :func:`align_rotation`). The functions of subspaces are in
:mod:`geodax.diagnostics.subspaces` and are re-exported here.

Sources:
    Schönemann (1966), A generalized solution of the orthogonal Procrustes problem. Psychometrika 31.
    Edelman, Arias and Smith (1998), The geometry of algorithms with orthogonality constraints.
    SIAM J. Matrix Analysis and Applications 20(2).
"""

from typing import Any, Literal, overload

import numpy as np
import xarray as xr
from jaxtyping import Float, Inexact

from geodax import _checks
from geodax.diagnostics.convergence import MINIMUM_DRAWS
from geodax.diagnostics.subspaces import (
    adjoint,
    check_matrices,
    check_orthonormal,
    has_unit_rows,
    in_blocks,
    leading_eigenvectors,
    mean_subspace,
    principal_angles,
    projector,
    subspace_distance,
    unit,
    with_positive_largest_entry,
)

__all__ = [
    "align_angles",
    "align_rotation",
    "align_signs",
    "invariant_draws",
    "mean_orthonormal",
    "mean_subspace",
    "principal_angles",
    "projector",
    "subspace_distance",
]

_MOST_ITERATIONS = 100
_LEAST_AVERAGED = 100  # matrices
_MOST_AVERAGED = 1 << 24  # entries of all of them

_MOST_DIRECTIONS = 10_000


@overload
def align_angles(draws: Float[np.ndarray, "chain draw *shape"]) -> Float[np.ndarray, "chain draw *shape"]: ...


@overload
def align_angles(draws: xr.DataArray) -> xr.DataArray: ...


def align_angles(
    draws: Float[np.ndarray, "chain draw *shape"] | xr.DataArray,
) -> Float[np.ndarray, "chain draw *shape"] | xr.DataArray:
    """Move angles by whole turns to within pi of their circular mean, on which R-hat, means and quantiles then rest.

    Args:
        draws: Angles in radians. Each number of a draw has a circular mean of its own, over all chains.

    Returns:
        The angles, beyond -pi or pi where the mean is near; a DataArray for a DataArray.
    """
    x = _checks.plain("align_angles", "draws", draws)
    if x.ndim < 2 or x.dtype.kind != "f":
        raise ValueError(
            f"align_angles: expected angles of shape (chain, draw, ...), found shape {x.shape} and dtype {x.dtype}."
        )
    mean = np.angle(np.exp(1j * x).mean(axis=(0, 1))).astype(x.dtype)
    turn = x.dtype.type(2 * np.pi)
    aligned = x - turn * np.round((x - mean) / turn)
    return draws.copy(data=aligned) if isinstance(draws, xr.DataArray) else aligned


@overload
def align_signs(
    draws: Inexact[np.ndarray, "*batch n p"], reference: Any = None
) -> tuple[Inexact[np.ndarray, "*batch n p"], Inexact[np.ndarray, "*batch p"]]: ...


@overload
def align_signs(draws: xr.DataArray, reference: Any = None) -> tuple[xr.DataArray, xr.DataArray]: ...


def align_signs(
    draws: Inexact[np.ndarray, "*batch n p"] | xr.DataArray,
    reference: Inexact[np.ndarray, "n p"] | xr.DataArray | None = None,
) -> tuple[Inexact[np.ndarray, "*batch n p"] | xr.DataArray, Inexact[np.ndarray, "*batch p"] | xr.DataArray]:
    """Flip the columns of each draw whose inner product with the reference's column is negative.

    Columns keep their order: if the posterior exchanges two of them, the aligned draws have two modes. Unit vectors,
    such as draws on a :class:`geodax.Sphere`, are matrices with one column: pass ``draws[..., None]``.

    Args:
        draws: Matrices, with orthonormal columns or without. The last two axes, also of a DataArray, are those of
            rows and columns; the others are averaged over, so align each matrix of a plate by itself.
        reference: The matrix to align with. None: a mean that does not depend on the signs, found column by
            column by alternating between the signs and the mean of the draws aligned by them.

    Returns:
        The aligned draws, ``draws * signs[..., None, :]``, and the signs, 1 or -1, in the dtype of the draws.
        Flip the scores that multiply the columns by the same signs: ``scores * signs[..., None, :]``. For
        complex draws the signs are phases of modulus 1, and the scores take their conjugates. For a DataArray both
        are DataArrays: the aligned draws with its dimensions, coordinates and name, the signs without rows; then
        ``draws * signs`` are the aligned draws.
    """
    checked, labelled, draws = check_matrices("align_signs", draws), draws, np.asarray(draws)
    if has_unit_rows(checked):
        raise ValueError(
            f"align_signs: found unit vectors along the last axis, shape {draws.shape}, where the columns of matrices "
            "are flipped. For the sign of each vector pass x[..., None], matrices with one column, and each group of a "
            "plate by itself."
        )
    reference = _sign_robust_mean(checked) if reference is None else _check_reference("align_signs", checked, reference)
    signs = unit(in_blocks(lambda x, mean: _inner(mean, x), checked, reference)).conj().astype(draws.dtype)
    aligned = draws * signs[..., None, :]
    if not isinstance(labelled, xr.DataArray):
        return aligned, signs
    one_row = labelled.isel({labelled.dims[-2]: 0}, drop=True)
    return labelled.copy(data=aligned), one_row.copy(data=signs).rename("signs")


@overload
def align_rotation(
    draws: Inexact[np.ndarray, "*batch n p"], reference: Any = None
) -> tuple[Inexact[np.ndarray, "*batch n p"], Inexact[np.ndarray, "*batch p p"]]: ...


@overload
def align_rotation(draws: xr.DataArray, reference: Any = None) -> tuple[xr.DataArray, xr.DataArray]: ...


def align_rotation(
    draws: Inexact[np.ndarray, "*batch n p"] | xr.DataArray,
    reference: Inexact[np.ndarray, "n p"] | xr.DataArray | None = None,
) -> tuple[Inexact[np.ndarray, "*batch n p"] | xr.DataArray, Inexact[np.ndarray, "*batch p p"] | xr.DataArray]:
    """Rotate the columns of each draw to be as close to the reference as possible (orthogonal Procrustes).

    R = U V^H with U S V^H = X^H reference minimises ``|X R - reference|_F`` over all orthogonal (unitary) R,
    reflections included (Schönemann 1966).

    Args:
        draws: Matrices, as for :func:`align_signs`.
        reference: The matrix to align with. None: the mean of the aligned draws, found by alternating between
            rotations and mean from the mean subspace's basis (generalised Procrustes).

    Returns:
        The aligned draws, ``draws @ rotations``, and the rotations, in the dtype of the draws. Scores z that
        multiply the columns become R^H z, so that X z is unchanged. For a DataArray both are DataArrays: the aligned
        draws with its dimensions, coordinates and name, the rotations with its columns and the aligned ones, a new
        dimension ``aligned``.
    """
    checked, labelled, draws = check_matrices("align_rotation", draws), draws, np.asarray(draws)
    if reference is None:
        reference = _rotation_robust_mean(checked)
    else:
        reference = _check_reference("align_rotation", checked, reference)
    rotations = _polar_factor(adjoint(checked) @ reference)
    aligned, rotations = (checked @ rotations).astype(draws.dtype), rotations.astype(draws.dtype)
    if not isinstance(labelled, xr.DataArray):
        return aligned, rotations
    one_row = labelled.isel({labelled.dims[-2]: 0}, drop=True)
    turned = one_row.expand_dims(aligned=rotations.shape[-1], axis=-1).copy(data=rotations)
    return labelled.copy(data=aligned), turned.rename("rotations")


def mean_orthonormal(
    draws: Inexact[np.ndarray, "*batch n p"], *, up_to: Literal["nothing", "signs", "rotation"] = "signs"
) -> Inexact[np.ndarray, "n p"]:
    """Compute the orthonormal matrix nearest to the aligned draws: the polar factor of their mean.

    It minimises the mean squared Frobenius distance from the aligned draws over all matrices with orthonormal
    columns. The mean itself lies inside the manifold, the further the more the draws are spread.

    Args:
        draws: Matrices with orthonormal columns.
        up_to: The ambiguity of the columns that is removed first.

    Returns:
        The mean.
    """
    checked = check_orthonormal("mean_orthonormal", draws)
    _checks.chosen("mean_orthonormal", "up_to", up_to, ("nothing", "signs", "rotation"))
    if up_to != "nothing":
        checked, _ = align_signs(checked) if up_to == "signs" else align_rotation(checked)
    mean = checked.reshape(-1, *checked.shape[-2:]).mean(axis=0)
    smallest = np.linalg.svd(mean, compute_uv=False)[-1]
    if smallest < 1e-10:
        raise ValueError(
            "mean_orthonormal: expected aligned draws with a common direction in every column, found a mean "
            f"whose smallest singular value is {smallest:.1e}: its nearest orthonormal matrix is not unique. "
            f"Align more than up_to={up_to!r} does, or describe the draws with invariant_draws."
        )
    return _polar_factor(mean)


def invariant_draws(
    draws: Inexact[np.ndarray, "chain draw *batch n p"] | xr.DataArray,
    *,
    name: str | None = None,
    up_to: Literal["rotation", "signs"] = "rotation",
    num_directions: int = 4,
) -> dict[str, Float[np.ndarray, "chain draw *shape"]]:
    r"""Compute functions of an orthonormal matrix for which R-hat and the effective sample size are meaningful.

    All of them are invariant to rotations of the columns of X (``up_to="rotation"``) or to their signs
    (``up_to="signs"``). There are few of them, none needs an n x n matrix per draw, and each detects what the
    others miss. Functions of the projector P = X X^H, returned in both cases unless p = n, where P = I:

    * ``angle`` (chain, draw, k): the k = min(p, n - p) largest principal angles to the mean subspace (the
      others are always zero). They show how far the draws spread and whether chains spread equally, but not
      in which direction: two modes on opposite sides of the mean look the same.
    * ``distance`` (chain, draw): the chordal distance to the mean subspace, which summarises the angles.
    * ``quadratic_form`` (chain, draw, num_directions): ``u^H P u = |X^H u|^2`` for fixed random unit vectors u.
      They are linear in P, and no direction is missed by all of them, so they distinguish such modes. The u are drawn
      (the same in every call) from the span of the 2 p leading eigenvectors of the average projector, which contains
      most of the variation; in all of R^n it would be hidden by the noise of the other n - 2 p directions.
    * ``leverage`` (chain, draw, n): the diagonal of P, the squared norms of the rows of X: how much of each
      coordinate the subspace explains. They are the easiest to interpret, and they sum to p.

    With ``up_to="signs"`` also, column by column:

    * ``column_cosine`` (chain, draw, p): :math:`|\langle x_j, m_j\rangle|` with the normalised column of the
      sign-robust mean; near 1 if the column is well determined, with two modes if columns are exchanged.
    * ``column_quadratic_form`` (chain, draw, num_directions, p): :math:`|\langle u, x_j\rangle|^2`.

    Each matrix of a batch (chain, draw, \*batch, n, p), such as the groups of a plate, has functions and means of its
    own: the axes of the batch come after chain and draw.

    Args:
        draws: The draws of one variable with orthonormal columns.
        name: The name of the variable, used as the prefix of the keys. None: that of a DataArray, or ``x``.
        up_to: The ambiguity of the columns.
        num_directions: The number of directions u.

    Returns:
        Arrays by name, ``{"x.angle": ..., "x.distance": ..., ...}``, an input for
        :func:`geodax.diagnostics.findings.summarize` or :func:`geodax.diagnostics.findings.check`.
    """
    if name is None:
        name = str(getattr(draws, "name", None) or "x")
    x = check_orthonormal("invariant_draws", draws)
    _checks.chosen("invariant_draws", "up_to", up_to, ("rotation", "signs"))
    if x.ndim < 4 or x.shape[1] < MINIMUM_DRAWS:
        raise ValueError(
            f"invariant_draws: expected draws of shape (chain, draw, ..., n, p) with at least {MINIMUM_DRAWS} "
            f"draws per chain, found {x.shape}. Pass one variable with both axes; give a single chain a "
            "leading axis with draws[None]."
        )
    num_directions = _checks.whole("invariant_draws", "num_directions", num_directions, most=_MOST_DIRECTIONS)
    n, p = x.shape[-2:]
    if n == p and up_to == "rotation":
        raise ValueError(
            f"invariant_draws: found square matrices ({n} x {p}) known up to rotation: their columns span "
            "the whole space in every draw, so nothing varies. Pass up_to='signs', or diagnose products "
            "that are invariant to the rotation."
        )
    if x.ndim == 4:
        found = _invariants(x, up_to, num_directions)
    else:
        flat = x.reshape(*x.shape[:2], -1, n, p)
        each = [_invariants(flat[:, :, i], up_to, num_directions) for i in range(flat.shape[2])]
        stacks = {key: np.stack([of_one[key] for of_one in each], axis=2) for key in each[0]}
        found = {key: values.reshape(*x.shape[:-2], *values.shape[3:]) for key, values in stacks.items()}
    return {f"{name}.{key}": values for key, values in found.items()}


def _invariants(
    x: Inexact[np.ndarray, "chain draw n p"], up_to: str, num_directions: int
) -> dict[str, Float[np.ndarray, "chain draw *shape"]]:
    n, p = x.shape[-2:]
    eigenvectors = leading_eigenvectors(_evenly_spaced(x), min(2 * p, n))
    directions = _directions(eigenvectors, num_directions)
    products = adjoint(directions) @ x
    result: dict[str, np.ndarray] = {}
    if p < n:
        mean = eigenvectors[:, :p]
        result["angle"] = principal_angles(x, mean)[..., max(0, 2 * p - n) :]
        result["distance"] = subspace_distance(x, mean)
        result["quadratic_form"] = (np.abs(products) ** 2).sum(axis=-1)
        result["leverage"] = in_blocks(lambda x, _: (np.abs(x) ** 2).sum(axis=-1), x, mean)
    if up_to == "signs":
        result["column_cosine"] = np.abs(in_blocks(lambda x, mean: _inner(mean, x), x, _sign_robust_mean(x)))
        result["column_quadratic_form"] = np.abs(products) ** 2
    return result


def _sign_robust_mean(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "n p"]:
    """A mean of each column that does not depend on the signs (phases) of the draws' columns.

    The leading eigenvector of the average of x_j x_j^H, which has no signs, gives an approximation; then signs and
    mean alternate until they are consistent.
    """
    x = _evenly_spaced(x)
    mean = np.concatenate([leading_eigenvectors(x[..., j, None], 1) for j in range(x.shape[-1])], axis=-1)
    for _ in range(_MOST_ITERATIONS):
        previous, mean = mean, np.einsum("dnp,dp->np", x, unit(_inner(mean, x)).conj())
        norm = np.linalg.norm(mean, axis=0)
        mean = mean / np.where(norm > 0, norm, 1)
        if np.abs(mean - previous).max() < 1e-12:
            break
    return with_positive_largest_entry(mean)


def _evenly_spaced(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "draw n p"]:
    """All matrices, or an evenly spaced subset of many large ones."""
    x = x.reshape(-1, *x.shape[-2:])
    most = max(_LEAST_AVERAGED, _MOST_AVERAGED // max(x[0].size, 1))
    return x if len(x) <= most else x[np.linspace(0, len(x) - 1, most).round().astype(int)]


def _rotation_robust_mean(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "n p"]:
    """A mean that does not depend, except for rounding, on rotations of the draws' columns."""
    x = x.reshape(-1, *x.shape[-2:])
    mean = leading_eigenvectors(x, x.shape[-1])
    for _ in range(_MOST_ITERATIONS):
        previous, mean = mean, (x @ _polar_factor(adjoint(x) @ mean)).mean(axis=0)
        if np.linalg.norm(mean - previous) <= 1e-13 * np.linalg.norm(mean):
            break
    return mean


def _inner(
    reference: Inexact[np.ndarray, "n p"], x: Inexact[np.ndarray, "*batch n p"]
) -> Inexact[np.ndarray, "*batch p"]:
    return np.einsum("...np,np->...p", x, reference.conj())


def _polar_factor(x: Inexact[np.ndarray, "*batch n p"]) -> Inexact[np.ndarray, "*batch n p"]:
    left, _, right = np.linalg.svd(x, full_matrices=False)
    return left @ right


def _directions(basis: Inexact[np.ndarray, "n k"], num_directions: int) -> Inexact[np.ndarray, "n m"]:
    """Random unit vectors in the span of the basis, the same in every call."""
    generator = np.random.default_rng(0)
    coefficients = generator.standard_normal((basis.shape[1], num_directions))
    if np.iscomplexobj(basis):
        coefficients = coefficients + 1j * generator.standard_normal(coefficients.shape)
    return basis @ (coefficients / np.linalg.norm(coefficients, axis=0))


def _check_reference(
    function: str, draws: Inexact[np.ndarray, "*batch n p"], reference: Any
) -> Inexact[np.ndarray, "n p"]:
    reference = _checks.plain(function, "reference", reference)
    if reference.shape != draws.shape[-2:]:
        raise ValueError(
            f"{function}: expected one reference of the draws' shape {draws.shape[-2:]}, found shape "
            f"{reference.shape}. Pass a single matrix, or None to use a mean of the draws."
        )
    return check_matrices(function, reference)
