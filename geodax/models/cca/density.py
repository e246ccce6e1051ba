r"""Canonical correlation analysis of grouped data with two views: likelihood, scores and predictions.

Row i of group g has two views, with :math:`n_1` and :math:`n_2` columns. They share one latent vector, and each view
has a latent vector of its own (Murphy 2012, section 12.5; Pourzanjani et al. 2021, section 6.3):

.. math::
    x_{iv} = \mu_{gv} + W_{gv} \Lambda_{gv} z_i + B_{gv} \Delta_{gv} u_{iv} + \sigma_{gv} \varepsilon_{iv},
    \qquad z_i \sim N(0, I_q),\ u_{iv} \sim N(0, I_{k_v}),\ v = 1, 2,

with :math:`W_{gv}^T W_{gv} = I_q`, :math:`B_{gv}^T B_{gv} = I_{k_v}` and positive diagonal :math:`\Lambda, \Delta`. The
covariance between the views, :math:`W_{g1} \Lambda_{g1} \Lambda_{g2} W_{g2}^T`, is a singular value decomposition, so
the shared loadings are identified up to the order of the columns and one sign per column, common to both views. The
covariance of each view is :math:`W \Lambda^2 W^T + B \Delta^2 B^T + \sigma^2 I`.

Latent vectors are integrated out: both views together are normal with covariance :math:`L L^T + D`, where L has
:math:`r = q + k_1 + k_2` columns and D is diagonal. With :math:`M = I_r + L^T D^{-1} L` (Woodbury),

.. math::
    \log|C| = \log|M| + \log|D|, \qquad
    \mathrm{tr}(C^{-1} S) = \mathrm{tr}(D^{-1} S) - \mathrm{tr}(M^{-1} L^T D^{-1} S D^{-1} L),

so rows of a group enter only through their number, mean and scatter matrix, and the largest matrix to be factorised is
r x r. Where the noise is small, the difference of the traces has no digits left; it is computed as
:math:`\mathrm{tr}(D^{-1} R S R^T) + \mathrm{tr}(K S K^T)` with :math:`K = M^{-1} L^T D^{-1}` and :math:`R = I - L K`.
Missing cells are integrated out too: rows with the same observed columns enter together, through these columns.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from geodax._types import Array, PRNGKey
from geodax.geometry.linalg import adjoint, cholesky, solve_accretive_and_log_det, solve_lower

Values = Float[Array, "m n"]
Places = Int[Array, " m"]
Mask = Bool[Array, "m n"]


class CCAParameters(NamedTuple):
    """Parameters of all groups, or draws of them with leading axes.

    Attributes:
        shared_1: Orthonormal loadings W of view 1, groups x n_1 x q.
        shared_2: Orthonormal loadings W of view 2, groups x n_2 x q.
        own_1: Orthonormal loadings B specific to view 1, groups x n_1 x k_1.
        own_2: Orthonormal loadings B specific to view 2, groups x n_2 x k_2.
        shared_scale_1: Standard deviations Lambda along the columns of ``shared_1``, groups x q.
        shared_scale_2: Standard deviations Lambda along the columns of ``shared_2``, groups x q.
        own_scale_1: Standard deviations Delta along the columns of ``own_1``, groups x k_1.
        own_scale_2: Standard deviations Delta along the columns of ``own_2``, groups x k_2.
        noise_1: Noise standard deviations of view 1, groups.
        noise_2: Noise standard deviations of view 2, groups.
        mean_1: Means of view 1, groups x n_1.
        mean_2: Means of view 2, groups x n_2.
    """

    shared_1: Float[Array | np.ndarray, "*draws g n1 q"]
    shared_2: Float[Array | np.ndarray, "*draws g n2 q"]
    own_1: Float[Array | np.ndarray, "*draws g n1 k1"]
    own_2: Float[Array | np.ndarray, "*draws g n2 k2"]
    shared_scale_1: Float[Array | np.ndarray, "*draws g q"]
    shared_scale_2: Float[Array | np.ndarray, "*draws g q"]
    own_scale_1: Float[Array | np.ndarray, "*draws g k1"]
    own_scale_2: Float[Array | np.ndarray, "*draws g k2"]
    noise_1: Float[Array | np.ndarray, "*draws g"]
    noise_2: Float[Array | np.ndarray, "*draws g"]
    mean_1: Float[Array | np.ndarray, "*draws g n1"]
    mean_2: Float[Array | np.ndarray, "*draws g n2"]


class GroupedRows(NamedTuple):
    """Sufficient statistics of blocks of rows: those of one group with the same observed columns.

    Attributes:
        average: Mean of the rows, both views side by side, blocks x (n_1 + n_2); zero where not observed.
        scatter: Centred sums of squares and products; zero where not observed.
        places: Group of each block. Blocks are in the order of the groups; without missing cells each is a group.
        observed: Mask of the observed columns of each block.
    """

    num_rows: Float[np.ndarray, " b"]
    average: Float[np.ndarray, "b n"]
    scatter: Float[np.ndarray, "b n n"]
    places: Int[np.ndarray, " b"]
    observed: Bool[np.ndarray, "b n"]


def grouped_rows(rows: Float[np.ndarray, "m n"], groups: Int[np.ndarray, " m"]) -> GroupedRows:
    """Compute the sufficient statistics of standardised rows, both views side by side, NaN where a cell is missing."""
    kinds, block = np.unique(np.column_stack([groups, ~np.isnan(rows)]), axis=0, return_inverse=True)
    members = [np.nan_to_num(rows[block == b]) for b in range(len(kinds))]
    average = np.stack([x.mean(axis=0) for x in members])
    scatter = np.stack([(x - a).T @ (x - a) for x, a in zip(members, average, strict=True)])
    num_rows = np.array([float(len(x)) for x in members])
    return GroupedRows(num_rows, average, scatter, kinds[:, 0], kinds[:, 1:].astype(bool))


def loadings(theta: CCAParameters) -> Float[Array, "*draws g n r"]:
    """Compute the matrices L: shared columns first, then those of view 1, then those of view 2."""
    shared_1, shared_2, own_1, own_2 = (
        jnp.asarray(frame) * jnp.asarray(scale)[..., None, :]
        for frame, scale in (
            (theta.shared_1, theta.shared_scale_1),
            (theta.shared_2, theta.shared_scale_2),
            (theta.own_1, theta.own_scale_1),
            (theta.own_2, theta.own_scale_2),
        )
    )
    nothing_1 = jnp.zeros((*own_1.shape[:-1], own_2.shape[-1]), own_1.dtype)
    nothing_2 = jnp.zeros((*own_2.shape[:-1], own_1.shape[-1]), own_2.dtype)
    top = jnp.concatenate([shared_1, own_1, nothing_1], axis=-1)
    bottom = jnp.concatenate([shared_2, nothing_2, own_2], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


def noise_variance(theta: CCAParameters) -> Float[Array, "*draws g n"]:
    """Return the diagonals of D."""
    parts = [
        jnp.broadcast_to(jnp.square(jnp.asarray(noise))[..., None], jnp.shape(mean))
        for noise, mean in ((theta.noise_1, theta.mean_1), (theta.noise_2, theta.mean_2))
    ]
    return jnp.concatenate(parts, axis=-1)


def means(theta: CCAParameters) -> Float[Array, "*draws g n"]:
    """Return the means of both views side by side."""
    return jnp.concatenate([jnp.asarray(theta.mean_1), jnp.asarray(theta.mean_2)], axis=-1)


def log_likelihood(theta: CCAParameters, data: GroupedRows) -> Float[Array, " b"]:
    """Compute the normalised log density of the observed cells of each block of rows, from :func:`grouped_rows`."""
    basis, d, mean = loadings(theta), noise_variance(theta), means(theta)
    if len(data.places) > len(d):
        basis, d, mean = basis[data.places], d[data.places], mean[data.places]
    observed = jnp.asarray(data.observed, d.dtype)
    weighted = basis * (observed / d)[..., None]
    num_rows = jnp.asarray(data.num_rows, d.dtype)
    residual = observed * mean - jnp.asarray(data.average, d.dtype)
    outer = residual[..., :, None] * residual[..., None, :]
    scatter = jnp.asarray(data.scatter, d.dtype) + num_rows[:, None, None] * outer
    gain, log_determinant = solve_accretive_and_log_det(_precision(basis, weighted), jnp.swapaxes(weighted, -1, -2))
    rest = jnp.eye(d.shape[-1], dtype=d.dtype)[None] - basis @ gain
    form = jnp.sum(jnp.sum((rest @ scatter) * rest, axis=-1) * observed / d, axis=-1)
    form = form + jnp.sum((gain @ scatter) * gain, axis=(-1, -2))
    log_determinant = log_determinant + jnp.sum(observed * jnp.log(2 * math.pi * d), axis=-1)
    return -0.5 * (num_rows * log_determinant + form)


class RowPosterior(NamedTuple):
    """Conditional distribution of the latent vector, and log density, for rows with some cells observed.

    Attributes:
        score_mean: Mean of the latent vector (shared, view 1, view 2) given the observed cells.
        score_factor: Cholesky factor of its precision.
        log_density: Log marginal density of the observed cells.
    """

    score_mean: Float[Array, "m r"]
    score_factor: Float[Array, "m r r"]
    log_density: Float[Array, " m"]


def row_posterior(theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> RowPosterior:
    """Compute scores and marginal log density of each standardised row, for parameters without leading axes.

    Unobserved cells may hold any finite values; ``groups`` has the index of each row's group.
    """
    basis, d = loadings(theta), noise_variance(theta)
    basis, d = basis[groups], d[groups]
    observed = jnp.asarray(is_observed, d.dtype)
    weighted = basis * (observed / d)[..., None]
    factor = cholesky(_precision(basis, weighted))
    residual = (rows - means(theta)[groups]) * observed
    projected = jnp.einsum("mn,mnr->mr", residual, weighted)
    mean = solve_lower(factor, solve_lower(factor, projected[..., None]), transpose=True)[..., 0]
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    log_determinant = log_determinant + jnp.sum(observed * jnp.log(2 * math.pi * d), axis=-1)
    rest = observed * (residual - jnp.einsum("mnr,mr->mn", basis, mean))
    form = jnp.sum(rest**2 / d, axis=-1) + jnp.sum(mean**2, axis=-1)
    return RowPosterior(mean, factor, -0.5 * (log_determinant + form))


def latent_mean(theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> Float[Array, "m r"]:
    """Compute expected latent variables given the observed columns; arguments as for :func:`row_posterior`."""
    return row_posterior(theta, rows, groups, is_observed).score_mean


def row_log_density(theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> Float[Array, " m"]:
    """Compute the log density of the observed columns of each row; arguments as for :func:`row_posterior`."""
    return row_posterior(theta, rows, groups, is_observed).log_density


def conditional_mean(theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> Float[Array, "m n"]:
    """Compute noise-free expected values of all columns given the observed ones; as :func:`row_posterior`."""
    scores = latent_mean(theta, rows, groups, is_observed)
    return means(theta)[groups] + jnp.einsum("mnr,mr->mn", loadings(theta)[groups], scores)


def conditional_deviation(theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> Float[Array, "m n"]:
    """Compute standard deviations of all columns given the observed ones, with noise; as :func:`row_posterior`."""
    factor = row_posterior(theta, rows, groups, is_observed).score_factor
    root = solve_lower(factor, jnp.swapaxes(loadings(theta)[groups], -1, -2))
    return jnp.sqrt(jnp.sum(root**2, axis=-2) + noise_variance(theta)[groups])


def draw_rows(key: PRNGKey, theta: CCAParameters, rows: Values, groups: Places, is_observed: Mask) -> Values:
    """Draw all columns given the observed ones, with noise; with none observed, rows of the model."""
    key_score, key_noise = jax.random.split(key)
    given = row_posterior(theta, rows, groups, is_observed)
    normal = jax.random.normal(key_score, given.score_mean.shape, rows.dtype)
    root = solve_lower(given.score_factor, normal[..., None], transpose=True)
    scores = given.score_mean + root[..., 0]
    noise = jnp.sqrt(noise_variance(theta))[groups] * jax.random.normal(key_noise, rows.shape, rows.dtype)
    return means(theta)[groups] + jnp.einsum("mnr,mr->mn", loadings(theta)[groups], scores) + noise


def covariance(theta: CCAParameters) -> Float[Array, "*draws g n n"]:
    """Compute the dense covariances ``L L^T + D``."""
    basis, d = loadings(theta), noise_variance(theta)
    diagonal = d[..., None] * jnp.broadcast_to(jnp.eye(d.shape[-1], dtype=d.dtype), (*d.shape, d.shape[-1]))
    return basis @ jnp.swapaxes(basis, -1, -2) + diagonal


def canonical_correlations(theta: CCAParameters) -> Float[Array, "*draws g q"]:
    """Compute the canonical correlations in descending order, at most q of them non-zero."""
    n_1, q = theta.shared_1.shape[-2:]
    c = covariance(theta)
    roots = [cholesky(block) for block in (c[..., :n_1, :n_1], c[..., n_1:, n_1:])]
    half = solve_lower(roots[0], c[..., :n_1, n_1:])
    whole = solve_lower(roots[1], adjoint(half))
    return jnp.linalg.svd(whole, compute_uv=False)[..., :q]


def _precision(basis: Array, weighted: Array) -> Array:
    """Compute M, the precision of the latent vector given the observed columns."""
    gram = jnp.swapaxes(basis, -1, -2) @ weighted
    return gram + jnp.broadcast_to(jnp.eye(gram.shape[-1], dtype=gram.dtype), gram.shape)
