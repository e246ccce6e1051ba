r"""Quantities of the posterior of Bayesian principal components: variance fractions, angles, scores, missing cells.

The model of one row x with n columns and p components is

    x = mean + components @ (scale * z) + noise * e,    z ~ N(0, I_p),    e ~ N(0, I_n),

``components`` has orthonormal columns, identified up to their signs, and ``scale`` is descending. Let o be the observed
columns of a row, A = components[o] diag(scale), mu = mean[o], S = diag(noise[o]^2). Given a draw of the parameters,

    z | x_o ~ N(m, G),    G = (I + A^T S^-1 A)^-1,    m = G A^T S^-1 (x_o - mu),

and a missing cell j of that row has x_j | x_o ~ N(mean_j + a_j m, a_j G a_j^T + noise_j^2), where a_j is row j of
components diag(scale). Over the draws, the mean of a score is the mean of m, and its covariance is the mean of G plus
the covariance of m.

Sources:
    Tipping and Bishop (1999), Probabilistic principal component analysis. JRSS B 61(3).
    Baik, Ben Arous and Péché (2005), Phase transition of the largest eigenvalue for nonnull complex sample
    covariance matrices. Annals of Probability 33(5). (The limit of detection.)
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from geodax.diagnostics.alignment import align_signs, mean_subspace, principal_angles
from geodax.models.pca.density import noise_in_all

MOST_SIDE = 3000
"""Largest number of rows or columns, whichever is smaller, for which eigenvalues are found."""

_SMALLEST = 1e-12
_MOST_ENTRIES = 1 << 24


class PooledDraws(NamedTuple):
    """The draws of all chains, concatenated, with sign-aligned components.

    Attributes:
        components: Draws of the orthonormal matrix (draw, n, p), with aligned signs of the columns.
        scale: Standard deviations of the scores (draw, p).
        noise: Standard deviations of the noise, of all columns (draw) or of each (draw, n).
        mean: Means of the columns (draw, n).
    """

    components: Float[np.ndarray, "draw n p"]
    scale: Float[np.ndarray, "draw p"]
    noise: Float[np.ndarray, " draw"] | Float[np.ndarray, "draw n"]
    mean: Float[np.ndarray, "draw n"]

    @property
    def is_diagonal(self) -> bool:
        """Whether each column has its own noise."""
        return self.noise.ndim == 2

    @property
    def noises(self) -> Float[np.ndarray, "draw n"]:
        """The noise of each column."""
        return np.broadcast_to(self.noise.reshape(len(self.noise), -1), self.mean.shape)

    def thinned(self, most: int) -> "PooledDraws":
        """Return at most ``most`` evenly spaced draws."""
        chosen = np.unique(np.linspace(0, len(self.noise) - 1, min(most, len(self.noise))).round().astype(int))
        return PooledDraws(*(values[chosen] for values in self))


def pool(posterior: Mapping[str, np.ndarray]) -> PooledDraws:
    """Concatenate the chains, and align the signs of the components."""
    pooled = {name: (x := posterior[name]).reshape(-1, *x.shape[2:]) for name in PooledDraws._fields}
    return PooledDraws(**pooled | {"components": align_signs(pooled["components"])[0]})


def variance_shares(draws: PooledDraws) -> Float[np.ndarray, "draw p"]:
    """Return each component's fraction of the model's total variance, that of the noise of all columns included."""
    squares = draws.scale**2
    total = squares.sum(axis=1) + noise_in_all(draws.noise, draws.mean.shape[1])
    return squares / np.maximum(total, np.finfo(np.float64).tiny)[:, None]


def explained_shares(draws: PooledDraws) -> Float[np.ndarray, "draw n"]:
    """Return the fraction of each column's variance that the components explain, its communality."""
    shared = np.einsum("dnp,dp->dn", draws.components**2, draws.scale**2)
    return shared / np.maximum(shared + draws.noises**2, np.finfo(np.float64).tiny)


def noise_levels(draws: PooledDraws) -> Float[np.ndarray, "draw p"] | Float[np.ndarray, "draw 1"]:
    """Return the noise against which each component is seen: (sum_j components_j^2 / noise_j^2)^(-1/2)."""
    if not draws.is_diagonal:
        return draws.noise[:, None]
    return np.einsum("dnp,dn->dp", draws.components**2, 1.0 / np.maximum(draws.noise**2, _SMALLEST)) ** -0.5


def detection_limit(draws: PooledDraws, num_rows: float) -> Float[np.ndarray, "draw p"] | Float[np.ndarray, "draw 1"]:
    """Return the scale below which no method finds a component's direction in this number N of rows, for each draw.

    For many rows and columns, the leading sample component is unrelated to the true one unless
    scale > noise (n / N)^(1/4) (Baik, Ben Arous and Péché 2005, for the spiked covariance model); columns with noise of
    their own count in units of it. With missing cells, N is the number of complete rows with as many observed cells.
    """
    return noise_levels(draws) * (draws.mean.shape[1] / max(num_rows, 1.0)) ** 0.25


def loading_quantiles(draws: PooledDraws, levels: tuple[float, ...]) -> Float[np.ndarray, "level n p"]:
    """Quantiles of the loadings, found for some columns of the table at a time."""
    num_draws, n, p = draws.components.shape
    length = max(1, _MOST_ENTRIES // (num_draws * p))
    blocks = [draws.components[:, i : i + length] for i in range(0, n, length)]
    return np.concatenate([np.quantile(block, levels, axis=0) for block in blocks], axis=1)


def subspace_angles(draws: PooledDraws) -> Float[np.ndarray, "draw k"]:
    """Return principal angles between each draw's subspace and the mean subspace, in degrees, the largest first.

    Only k = min(p, n - p) angles can differ from zero.
    """
    n, p = draws.components.shape[1:]
    angles = principal_angles(draws.components, mean_subspace(draws.components))
    return np.degrees(angles[:, ::-1][:, : min(p, n - p)])


def random_subspace_angle(n: int, p: int, *, num_draws: int = 400) -> float:
    """Return the median largest angle, in degrees, between a fixed and a random subspace of dimension p."""
    generator = np.random.default_rng(0)
    num_draws = min(num_draws, max(50, _MOST_ENTRIES // (n * p)))
    subspaces = np.linalg.qr(generator.standard_normal((num_draws, n, p)))[0]
    return float(np.degrees(np.median(principal_angles(subspaces, np.eye(n, p))[:, -1])))


def mean_components(draws: PooledDraws) -> Float[np.ndarray, "n p"]:
    """Return the directions of the means of the aligned components: unit columns, not exactly orthogonal."""
    mean = draws.components.mean(axis=0)
    return mean / np.maximum(np.linalg.norm(mean, axis=0), _SMALLEST)


def component_angles(draws: PooledDraws) -> Float[np.ndarray, "draw p"]:
    """Return the angle in [0, 90] between each draw's component and the component's mean direction, in degrees."""
    cosines = np.abs(np.einsum("dnp,np->dp", draws.components, mean_components(draws)))
    return np.degrees(np.arccos(np.minimum(cosines, 1.0)))


def score_moments(
    draws: PooledDraws, rows: Float[np.ndarray, "row n"]
) -> tuple[Float[np.ndarray, "row p"], Float[np.ndarray, "row p p"]]:
    """Return posterior means and covariances of the scores ``scale * z`` of rows, NaN where a cell is missing.

    The covariances are the mean conditional covariance plus the covariance of the conditional means.
    """
    p = draws.scale.shape[1]
    means, covariances = np.zeros((len(rows), p)), np.zeros((len(rows), p, p))
    for members, is_observed in _patterns(rows):
        mean, covariance = _conditional(draws, rows[members][:, is_observed], is_observed)
        mean = mean * draws.scale[:, None, :]
        covariance = covariance * draws.scale[:, :, None] * draws.scale[:, None, :]
        means[members] = mean.mean(axis=0)
        centred = mean - mean.mean(axis=0)
        between = np.einsum("srp,srq->rpq", centred, centred) / len(mean)
        covariances[members] = covariance.mean(axis=0) + between
    return means, covariances


def imputed_draws(
    draws: PooledDraws, table: Float[np.ndarray, "row n"], cells: Int[np.ndarray, "cell 2"]
) -> Float[np.ndarray, "draw cell"]:
    """Draw missing cells given the observed cells of their rows: one value per draw and cell, in the table's units.

    Cells are given by row and column.
    """
    generator = np.random.default_rng(0)
    result = np.full((len(draws.noise), len(cells)), np.nan)
    for row in np.unique(cells[:, 0]):
        is_observed = ~np.isnan(table[row])
        mean, covariance = _conditional(draws, table[row][None, is_observed], is_observed)
        root = np.linalg.cholesky(covariance + _SMALLEST * np.eye(covariance.shape[-1]))
        z = mean[:, 0] + np.einsum("spq,sq->sp", root, generator.standard_normal(mean[:, 0].shape))
        members = np.flatnonzero(cells[:, 0] == row)
        columns = cells[members, 1]
        expected = draws.mean[:, columns] + np.einsum("scp,sp->sc", draws.components[:, columns], draws.scale * z)
        result[:, members] = expected + draws.noises[:, columns] * generator.standard_normal(expected.shape)
    return result


def column_residuals(draws: PooledDraws, rows: Float[np.ndarray, "row n"]) -> Float[np.ndarray, "draw n"]:
    """Return the root mean square residual of each column of rows, NaN where a cell is missing.

    This is the root of the expected square of x - mean - components @ (scale * z) given x, averaged over the observed
    rows; NaN for a column without an observed cell. If the noise is the same in all columns, as the model assumes, all
    of them are near ``noise``.
    """
    sums = np.zeros(draws.mean.shape)
    for members, is_observed in _patterns(rows):
        if not is_observed.any():
            continue
        observed = rows[members][:, is_observed]
        mean, covariance = _conditional(draws, observed, is_observed)
        for draw in range(len(draws.noise)):
            A = draws.components[draw, is_observed] * draws.scale[draw]
            left = observed - draws.mean[draw, is_observed] - mean[draw] @ A.T
            uncertain = ((A @ covariance[draw]) * A).sum(axis=1)
            sums[draw, is_observed] += (left**2).sum(axis=0) + len(members) * uncertain
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(sums / (~np.isnan(rows)).sum(axis=0))


def replicated_eigenvalues(draws: Mapping[str, np.ndarray], num_rows: int, n: int) -> Float[np.ndarray, "draw k"]:
    """Simulate a table from each draw and return the eigenvalues of their covariances, as :func:`table_eigenvalues`.

    Their distribution does not depend on the mean. If all columns have the same noise it does not depend on the
    components, so the coordinates along them are simulated.
    """
    generator = np.random.default_rng(0)
    scale, noise = draws["scale"], draws["noise"]
    if noise.ndim == 2:
        loadings = np.swapaxes(draws["components"] * scale[:, None, :], 1, 2)
        tables = (
            generator.standard_normal((num_rows, len(own))) @ own + generator.standard_normal((num_rows, n)) * row
            for own, row in zip(loadings, noise, strict=True)
        )
    else:
        deviation = np.sqrt(np.pad(scale**2, ((0, 0), (0, n - scale.shape[1]))) + noise[:, None] ** 2)
        tables = (generator.standard_normal((num_rows, n)) * row for row in deviation)
    return np.stack([table_eigenvalues(table) for table in tables])


def table_eigenvalues(table: Float[np.ndarray, "row n"]) -> Float[np.ndarray, " k"]:
    """Return the min(rows, n) eigenvalues of the covariance of a table without missing cells, the largest first.

    They are the explained variances of classical PCA.
    """
    centred = table - table.mean(axis=0)
    products = centred.T @ centred if table.shape[0] >= table.shape[1] else centred @ centred.T
    return np.maximum(np.linalg.eigvalsh(products)[::-1], 0.0) / max(len(table) - 1, 1)


def _patterns(rows: Float[np.ndarray, "row n"]):
    """Group the rows by their observed columns; yield row indices and the observed columns."""
    is_observed = ~np.isnan(rows)
    groups: dict[bytes, list[int]] = {}
    for index, observed in enumerate(is_observed):
        groups.setdefault(observed.tobytes(), []).append(index)
    for members in groups.values():
        yield np.array(members), is_observed[members[0]]


def _conditional(
    draws: PooledDraws, observed: Float[np.ndarray, "row o"], is_observed: np.ndarray
) -> tuple[Float[np.ndarray, "draw row p"], Float[np.ndarray, "draw p p"]]:
    """Mean and covariance of z given the observed columns of rows, for each draw."""
    A = draws.components[:, is_observed] * draws.scale[:, None, :]
    weighted = A / np.maximum(draws.noises[:, is_observed] ** 2, _SMALLEST)[:, :, None]
    covariance = np.linalg.inv(np.eye(A.shape[-1]) + np.swapaxes(A, -1, -2) @ weighted)
    projected = observed @ weighted - draws.mean[:, None, is_observed] @ weighted
    return projected @ covariance, (covariance + np.swapaxes(covariance, -1, -2)) / 2
