r"""Probabilistic PCA with an orthonormal loading matrix: density, scores and predictions.

The model (Tipping and Bishop 1999, in the modified form of Pourzanjani et al., section 6.2, and Holbrook et al.
2016):

.. math::
    x_i = \mu + W \Lambda z_i + \sigma \varepsilon_i, \qquad z_i \sim N(0, I_p),\ \varepsilon_i \sim N(0, I_n),

with :math:`W^T W = I`, :math:`\Lambda = \mathrm{diag}(\lambda_1 > \dots > \lambda_p > 0)`, so that rows are
:math:`N(\mu, W \Lambda^2 W^T + \sigma^2 I)`. With ordered scales only the signs of the columns of W are unidentified.
With a noise :math:`\sigma_j` for each column j the model is factor analysis: rows are
:math:`N(\mu, W \Lambda^2 W^T + \Psi)` with :math:`\Psi = \mathrm{diag}(\sigma_1^2, \dots, \sigma_n^2)`, and
W are the principal axes of what the columns share.

Complete rows enter through their number, mean and scatter matrix, so that the cost of a gradient does not depend
on the number of rows; if there are fewer rows than columns, they enter directly. Rows with missing cells enter through
the marginal distribution of their observed cells, solved once for each pattern of missing cells; those of a pattern
with more rows than columns enter like complete rows. Complete tables with many columns use smaller coordinates
(:mod:`geodax.models.pca.reduced`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax._wording import argument
from geodax.data.errors import listed
from geodax.geometry.linalg import cholesky, solve_lower
from geodax.geometry.transforms.ordered import ordered_scales
from geodax.models.pca.observations import Observations
from geodax.models.principal_axes import LEAST_NOISE, computed_column, num_exact, num_exact_of, principal_axes

SPREAD = 0.3
"""Size of the perturbation of initial positions."""


class PPCAPrior(NamedTuple):
    """Prior of the model, in the units of the standardised data (columns of variance about 1).

    Attributes:
        mean_scale: Standard deviation of the normal prior of each entry of the mean.
        scale_scale: Standard deviation of the half-normal prior of the scales, divided by ``sqrt(n)``: no scale
            of standardised data can be much above ``sqrt(n)``.
        noise_scale: Standard deviation of the half-normal prior of the noise.
    """

    mean_scale: float = 1.0
    scale_scale: float = 1.0
    noise_scale: float = 1.0


class PPCAParameters(NamedTuple):
    """Parameters of the model, or draws of them with leading axes.

    Attributes:
        components: Orthonormal loadings, n x p.
        scale: Standard deviations along the components, descending, p.
        noise: Standard deviation of the noise, one number or one for each column.
    """

    components: Float[Array | np.ndarray, "*draws n p"]
    scale: Float[Array | np.ndarray, "*draws p"]
    noise: Float[Array | np.ndarray, "*draws"] | Float[Array | np.ndarray, "*draws n"]
    mean: Float[Array | np.ndarray, "*draws n"]


def parameters(position: Position) -> PPCAParameters:
    """Convert an unconstrained position (``components``, ``log_gaps``, ``log_noise`` or ``noise``, ``mean``)."""
    scale = ordered_scales(jnp.asarray(position["log_gaps"]))
    noise = jnp.abs(position["noise"]) if "noise" in position else jnp.exp(position["log_noise"])
    return PPCAParameters(position["components"], scale, noise, position["mean"])


def log_density(data: Observations, prior: PPCAPrior) -> LogDensity:
    """Build the log posterior density of :mod:`observations <geodax.models.pca.observations>` of a table.

    For diagonal noise they are those with ``is_diagonal``.

    It is a function of a position ``{"components": n x p, "log_gaps": p, "log_noise": scalar, "mean": n}``; the scales
    are cumulative sums of the exponentials of the gaps, starting with the smallest scale. Diagonal noise has ``"noise":
    n`` in place of ``"log_noise"``, whose signs do not matter: the density is smooth where the noise of a column is
    near 0, as it often is in factor analysis, and its logarithms would have long tails there.
    """
    n = data.average.shape[0]

    def logdensity_fn(position: Position) -> Scalar:
        theta = parameters(position)
        log_prior = (
            -0.5 * jnp.sum((theta.mean / prior.mean_scale) ** 2)
            - 0.5 * jnp.sum((theta.scale / prior.scale_scale) ** 2) / n
            - 0.5 * jnp.sum((theta.noise / prior.noise_scale) ** 2)
        )
        log_jacobian = jnp.sum(position["log_gaps"]) + position.get("log_noise", 0.0)
        complete = _with_diagonal_noise if jnp.ndim(theta.noise) else _with_isotropic_noise
        log_likelihood = complete(theta, data)
        if len(data.rows):
            log_likelihood = log_likelihood + _incomplete_log_likelihood(theta, data)
        has_noise = jnp.all(theta.noise > LEAST_NOISE * prior.noise_scale)
        return jnp.where(has_noise, log_prior + log_jacobian + log_likelihood, -jnp.inf)

    return logdensity_fn


def _with_isotropic_noise(theta: PPCAParameters, data: Observations) -> Scalar:
    """The log likelihood of the complete rows."""
    n, p = theta.components.shape
    noise_variance = theta.noise**2
    variance = theta.scale**2 + noise_variance
    log_determinant = jnp.sum(jnp.log(variance)) + (n - p) * jnp.log(noise_variance)
    residual = theta.mean - data.average
    scatter = jnp.asarray(data.scatter)
    if len(scatter) < n:
        total, along = jnp.sum(scatter**2), jnp.sum((scatter @ theta.components) ** 2, axis=0)
    else:
        total, along = jnp.trace(scatter), jnp.sum(theta.components * (scatter @ theta.components), axis=0)
    along = along + data.num_complete * (residual @ theta.components) ** 2
    forms = jnp.sum(along / variance)
    if p < n:  # what is left over is zero otherwise, but for rounding errors that small noise would magnify
        forms = forms + (total + data.num_complete * jnp.sum(residual**2) - jnp.sum(along)) / noise_variance
    return -0.5 * (data.num_complete * log_determinant + forms)


def _with_diagonal_noise(theta: PPCAParameters, data: Observations) -> Scalar:
    distance = jnp.sqrt(data.num_complete) * (data.average - theta.mean)
    rows = jnp.concatenate([jnp.asarray(data.scatter), distance[None]])
    log_determinant, forms = normal_terms(theta, rows)
    return -0.5 * (data.num_complete * log_determinant + jnp.sum(forms))


def normal_terms(theta: PPCAParameters, rows: Float[Array, "k n"]) -> tuple[Scalar, Float[Array, " k"]]:
    """The log determinant of the covariance matrix of a row, and the quadratic forms of its inverse at ``rows``."""
    root, latent = _latent_means(theta, rows)
    log_determinant = 2.0 * (jnp.sum(jnp.log(jnp.diagonal(root))) + jnp.sum(jnp.log(theta.noise)))
    return log_determinant, _forms(theta, rows, jnp.ones_like(rows), latent)


def solved(theta: PPCAParameters, row: Float[Array, " n"]) -> Float[Array, " n"]:
    """The inverse of the covariance matrix of a row, times a vector."""
    _, latent = _latent_means(theta, row[None])
    return (row - theta.components @ (theta.scale * latent[0])) / theta.noise**2


def _latent_means(theta: PPCAParameters, rows: Array) -> tuple[Array, Array]:
    (root,), projected = _latent_posterior(theta, jnp.ones_like(theta.mean)[None], rows)
    return root, solve_lower(root, solve_lower(root, projected.T), transpose=True).T


def _incomplete_log_likelihood(theta: PPCAParameters, data: Observations) -> Scalar:
    patterns = jnp.asarray(data.patterns, theta.mean.dtype)
    observed = patterns[data.pattern_of_row]
    residual = (jnp.asarray(data.rows) - jnp.asarray(data.multiples)[:, None] * theta.mean[None, :]) * observed
    factors, projected = _latent_posterior(theta, patterns, residual)
    factor_of_row = factors[data.pattern_of_row]
    latent = _solve(factor_of_row, _solve(factor_of_row, projected), transpose=True)
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)), axis=-1)
    log_determinant = log_determinant + jnp.sum(patterns * 2.0 * jnp.log(_noise(theta)), axis=-1)
    forms = jnp.sum(_forms(theta, residual, observed, latent))
    return -0.5 * (jnp.sum(jnp.asarray(data.counts) * log_determinant) + forms)


def _noise(theta: PPCAParameters) -> Float[Array, "1 n"]:
    return jnp.broadcast_to(theta.noise, theta.mean.shape)[None, :]


def _forms(theta: PPCAParameters, residual: Array, observed: Array, latent: Array) -> Array:
    """Quadratic forms of rows from the latent vectors at which they are least, so that errors of these hardly matter.

    The difference ``residual^2 / noise^2 - whitened^2`` would have no digit left where the noise is small.
    """
    rest = observed * (residual - (latent * theta.scale[None, :]) @ theta.components.T)
    return jnp.sum((rest / _noise(theta)) ** 2, axis=-1) + jnp.sum(latent**2, axis=-1)


def _latent_posterior(theta: PPCAParameters, patterns: Array, residual: Array) -> tuple[Array, Array]:
    """Cholesky factors of the precision of z given observed cells, by pattern; ``L W^T residual / noise^2``, by row."""
    loadings = theta.components * theta.scale[None, :]
    weighted = loadings / _noise(theta).T ** 2
    gram = jnp.einsum("kn,np,nq->kpq", patterns, weighted, loadings)
    precision = gram + jnp.eye(loadings.shape[1], dtype=gram.dtype)[None]
    return cholesky(precision), residual @ weighted


def _solve(factors: Array, vectors: Array, *, transpose: bool = False) -> Array:
    return solve_lower(factors, vectors[..., None], transpose=transpose)[..., 0]


def noise_along(draws: PPCAParameters) -> Float[np.ndarray, "draw p"] | Float[np.ndarray, "draw 1"]:
    """The variance of the noise along each component."""
    if draws.noise.ndim == 1:
        return np.asarray(draws.noise[:, None] ** 2)
    return np.einsum("dnp,dn->dp", np.square(draws.components), np.square(draws.noise))


def noise_in_all(noise: Float[np.ndarray, " draw"] | Float[np.ndarray, "draw n"], n: int) -> Float[np.ndarray, " draw"]:
    """The total variance of the noise of all n columns."""
    return n * noise**2 if noise.ndim == 1 else (noise**2).sum(axis=1)


class RowPosterior(NamedTuple):
    """Scores and marginal density of rows of data under one set of parameters.

    Attributes:
        score_mean: Mean of the scores ``Lambda z`` given a row's observed cells.
        score_factor: A root of their covariance: ``score = score_mean + score_factor @ standard normal``.
        log_density: Log marginal density of the observed cells.
    """

    score_mean: Float[Array, "rows p"]
    score_factor: Float[Array, "rows p p"]
    log_density: Float[Array, " rows"]


def row_posterior(theta: PPCAParameters, data: Float[Array, "rows n"], *, has_missing: bool = True) -> RowPosterior:
    r"""Compute scores and marginal density of each standardised row under parameters without leading axes.

    With :math:`o` the observed cells, :math:`z \mid x_o \sim N(M^{-1} \Lambda W_o^T \Psi_o^{-1} (x_o - \mu_o),\;
    M^{-1})` and :math:`M = I + \Lambda W_o^T \Psi_o^{-1} W_o \Lambda`. Without missing cells one factor serves all
    rows.
    """
    if has_missing:
        observed = (~jnp.isnan(data)).astype(data.dtype)
        residual = jnp.where(jnp.isnan(data), 0.0, data - theta.mean[None, :])
    else:
        observed, residual = jnp.ones_like(data[:1]), data - theta.mean[None, :]
    factors, projected = _latent_posterior(theta, observed, residual)
    factors = jnp.broadcast_to(factors, (data.shape[0], *factors.shape[1:]))
    latent = _solve(factors, _solve(factors, projected), transpose=True)
    identity = jnp.broadcast_to(jnp.eye(factors.shape[-1], dtype=data.dtype)[None], factors.shape)
    root = solve_lower(factors, identity, transpose=True)
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factors, axis1=-2, axis2=-1)), axis=-1)
    log_determinant = log_determinant + jnp.sum(observed * jnp.log(2.0 * jnp.pi * _noise(theta) ** 2), axis=-1)
    form = _forms(theta, residual, observed, latent)
    return RowPosterior(
        latent * theta.scale[None, :], root * theta.scale[None, :, None], -0.5 * (log_determinant + form)
    )


def fill_cells(theta: PPCAParameters, data: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    """Fill missing cells with their conditional means given the observed cells of the row."""
    filled = theta.mean[None, :] + row_posterior(theta, data).score_mean @ theta.components.T
    return jnp.where(jnp.isnan(data), jnp.asarray(filled), data)


def draw_cells(key: PRNGKey, theta: PPCAParameters, data: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    """Fill missing cells with one draw from their conditional distribution given the observed cells of the row."""
    key_score, key_noise = jax.random.split(key)
    rows = row_posterior(theta, data)
    normal = jax.random.normal(key_score, rows.score_mean.shape, data.dtype)
    scores = rows.score_mean + jnp.einsum("rpq,rq->rp", rows.score_factor, normal)
    noise = _noise(theta) * jax.random.normal(key_noise, data.shape, data.dtype)
    filled = theta.mean[None, :] + scores @ theta.components.T + noise
    return jnp.where(jnp.isnan(data), jnp.asarray(filled), data)


class StartingScales(NamedTuple):
    """Scales and noise of the classical solution, in the coordinates of the sampler."""

    log_gaps: Float[np.ndarray, " p"]
    log_noise: float


def require_noise(exact: int, n: int, num_components: int) -> None:
    """Raise ValueError if the components describe the table exactly: then the posterior of the noise is not proper."""
    if exact <= num_components < n:
        computed, verb = n - exact, "is" if n - exact == 1 else "are"
        fewer = f", or use fewer components than {exact} ({argument('n_components')})" if exact > 1 else ""
        raise ValueError(
            f"BayesianPCA: {num_components} components describe the {n} columns exactly, with no noise left to "
            f"estimate: {computed} of them {verb} constant or computed from others, such as a sum or percentages "
            f"that add up to 100. Leave out {computed}{fewer}."
        )


def require_own_noise(
    data: Float[np.ndarray, "rows n"], num_components: int, names: Sequence[str] | np.ndarray | None = None
) -> None:
    """Raise ValueError if a column is constant, or computed from at most as many others as there are components.

    With a noise for each column these columns could have none, and the posterior would not be proper.
    """
    found = computed_column(data, num_components)
    if not found:
        return
    column, *others = found if names is None else [names[k] for k in found]
    how = f"computed from {listed(list(map(str, others)))}" if others else "constant"
    raise ValueError(
        f"BayesianPCA: column {column!r} is {how}, so that it can have no noise of its own, as "
        f"{argument('noise', 'diagonal')} expects. Leave it out, or use {argument('noise', 'isotropic')}."
    )


def starting_scales(squares: Float[np.ndarray, " k"], num_rows: int, n: int, num_components: int) -> StartingScales:
    """Compute scales and noise of the classical PCA solution, bounded away from zero.

    ``squares`` are the eigenvalues of the scatter matrix, the largest first.
    """
    variance = np.zeros(n)
    variance[: len(squares)] = squares[:n] / max(num_rows - 1, 1)
    rest = variance[num_components:].mean() if num_components < n else variance[-1]
    noise = np.sqrt(np.clip(rest, 1e-3, None))
    scale = np.sqrt(np.clip(variance[:num_components] - noise**2, 0.05 * noise**2, None))
    gaps = np.clip(scale - np.append(scale[1:], 0.0), 0.02 * scale, None)
    return StartingScales(np.log(gaps), np.log(noise))


def starting_points(
    data: Float[np.ndarray, "rows n"], num_components: int, *, is_diagonal: bool = False
) -> Callable[[PRNGKey], Position]:
    """Build the function from a PRNG key to an initial position, near the classical PCA solution of standardised data.

    Positions are more dispersed than the posterior; missing cells (NaN) are replaced by the column's mean here. With
    ``is_diagonal`` each column has its own noise. Raises ValueError if the components describe the rows exactly.
    """
    n = data.shape[1]
    average = np.nan_to_num(np.nanmean(np.where(np.isnan(data).all(axis=0), 0.0, data), axis=0))
    filled = np.where(np.isnan(data), average, data) - average
    axes, squares = principal_axes(filled)
    exact = num_exact_of(data) if np.isnan(data).any() else num_exact(squares, len(data), n)
    require_noise(exact, n, num_components)
    scales = starting_scales(squares, len(data), n, num_components)
    axes, squares = axes[:, :num_components], squares[:num_components]
    noise = np.zeros(0)
    if is_diagonal:
        variance = np.einsum("rn,rn->n", filled, filled) / len(data)
        noise = np.sqrt(np.maximum(variance - axes**2 @ squares / len(data), np.maximum(0.05 * variance, 1e-3)))
    del filled
    axes = np.pad(axes, ((0, 0), (0, num_components - axes.shape[1])))
    root = SPREAD / np.sqrt(n)

    def start(key: PRNGKey) -> Position:
        # NumPy draws from the key's bits: no compilation for four small arrays
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        perturbed = axes + root * generator.standard_normal((n, num_components))
        position = position_near(perturbed, scales, generator)
        position |= {"mean": average + root * generator.standard_normal(n)}
        if is_diagonal:
            del position["log_noise"]
            position |= {"noise": noise * np.exp(SPREAD * generator.standard_normal(n))}
        return position

    return start


def position_near(
    frame: Float[np.ndarray, "k p"], scales: StartingScales, generator: np.random.Generator
) -> dict[str, Any]:
    """Draw scales and noise near given ones, and return them with the orthonormal matrix nearest to ``frame``."""
    u, _, vh = np.linalg.svd(frame, full_matrices=False)
    return {
        "components": u @ vh,
        "log_gaps": scales.log_gaps + SPREAD * generator.standard_normal(frame.shape[1]),
        "log_noise": scales.log_noise + SPREAD * generator.standard_normal(),
    }
