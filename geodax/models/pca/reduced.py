r"""Probabilistic PCA of a complete table in the coordinates of its principal axes.

Write :math:`X = U S V^T` for the centred rows, with :math:`V` of size :math:`n \times r`. The likelihood depends on
the loadings only through :math:`A = V^T W`, and the mean has a normal conditional distribution. So both the rest of
:math:`W` and the mean are integrated out exactly, and drawn again for each stored draw:

.. math::
    W = V A + Q R, \qquad \begin{pmatrix} A \\ R \end{pmatrix} \in \mathrm{St}(r + p, p),

with :math:`Q` uniform among the orthonormal :math:`n \times p` matrices orthogonal to :math:`V`. :math:`W` is uniform
on :math:`\mathrm{St}(n, p)` if :math:`(A, R)` has the density :math:`|\det R|^{n - r - p}`: the marginal of :math:`A`
is then the required :math:`\det(I - A^T A)^{(n - r - p - 1) / 2}`. If :math:`r + p` would exceed :math:`n`,
:math:`V` is a complete basis and :math:`R` is left out.

With :math:`v_j = \lambda_j^2 + \sigma^2` and prior :math:`\mu \sim N(0, \tau^2 I)`, the conditional precision of the
mean is :math:`N / v_j + 1 / \tau^2` along component j, and :math:`N / \sigma^2 + 1 / \tau^2` orthogonal to the
components. A gradient costs :math:`O(r p + p^3)`; a stored draw, :math:`O(n r p)`.

In factor analysis the likelihood depends on all of :math:`W`, and only the mean is integrated out. With
:math:`C = W \Lambda^2 W^T + \Psi` its conditional precision is :math:`N C^{-1} + I / \tau^2`, with the determinant of
:math:`C + N \tau^2 I` over that of :math:`C`, up to a constant. The sum is a covariance matrix of the same form, with
noise of variance :math:`\sigma_j^2 + N \tau^2`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax.geometry.linalg import cholesky, solve_lower
from geodax.geometry.transforms.ordered import ordered_scales
from geodax.models.pca import density as ppca
from geodax.models.pca.density import SPREAD, PPCAParameters, PPCAPrior, position_near, require_noise, starting_scales
from geodax.models.pca.observations import observations
from geodax.models.principal_axes import num_exact, principal_axes

_MANY_COLUMNS = 256  # from here on products with the scatter matrix dominate the cost
_CENTRED = 1e-8


class ReducedObservations(NamedTuple):
    """Statistics of a complete table with columns of mean zero.

    Attributes:
        basis: Orthonormal columns V that span all rows, n x r.
    """

    num_rows: float
    basis: Float[np.ndarray, "n r"]
    squares: Float[np.ndarray, " r"]


def reduced_observations(data: Float[np.ndarray, "rows n"], num_components: int) -> ReducedObservations | None:
    """Reduce standardised data to the principal axes if that is possible and useful.

    Returns None for a table with missing cells or uncentred columns, and for one with few columns, for which the
    scatter matrix is as good.
    """
    if not _is_reducible(data, num_components):
        return None
    rows, n = data.shape
    is_wide = rows + num_components < n
    axes, squares = principal_axes(data if rows >= n or is_wide else np.pad(data, ((0, n - rows), (0, 0))))
    if is_wide:
        has_length = squares > (np.finfo(float).eps * n) ** 2 * squares[0]
        axes, squares = axes[:, has_length], squares[has_length]
    return ReducedObservations(float(rows), np.ascontiguousarray(axes), squares)


class Problem(NamedTuple):
    """A sampling problem; ``parameters`` maps a position to the model's parameters."""

    logdensity_fn: LogDensity
    start: Callable[[PRNGKey], Position]
    parameters: Callable[[Position], PPCAParameters]


def problem(
    data: Float[np.ndarray, "rows n"], num_components: int, prior: PPCAPrior, *, is_diagonal: bool = False
) -> Problem:
    """Build the problem for a standardised table, in the coordinates of its principal axes or in all columns.

    With ``is_diagonal`` each column has its own noise.
    """
    reduced = None if is_diagonal else reduced_observations(data, num_components)
    if reduced is not None:
        return Problem(
            log_density(reduced, prior), starting_points(reduced, num_components), parameters(reduced, prior)
        )
    known = observations(data, is_diagonal=is_diagonal)
    logdensity_fn = ppca.log_density(known, prior)
    start = ppca.starting_points(data, num_components, is_diagonal=is_diagonal)
    if is_diagonal and _is_reducible(data, num_components):
        return _without_mean(logdensity_fn, start, known.num_complete, prior)
    return Problem(logdensity_fn, start, ppca.parameters)


def _without_mean(
    logdensity_fn: LogDensity, start: Callable[[PRNGKey], Position], num_rows: float, prior: PPCAPrior
) -> Problem:
    """The problem of factor analysis of a complete, centred table, with the mean integrated out."""
    weight = num_rows * prior.mean_scale**2

    def at_zero(position: Position) -> Position:
        return position | {"mean": jnp.zeros_like(position["noise"])}

    def with_mean(theta: PPCAParameters) -> PPCAParameters:
        """``C + N tau^2 I``."""
        return theta._replace(noise=jnp.sqrt(theta.noise**2 + weight))

    def marginal(position: Position) -> Scalar:
        theta = ppca.parameters(at_zero(position))
        no_rows = position["components"].T[:0]
        log_determinant = ppca.normal_terms(with_mean(theta), no_rows)[0] - ppca.normal_terms(theta, no_rows)[0]
        return logdensity_fn(at_zero(position)) - 0.5 * log_determinant

    def draw(position: Position) -> PPCAParameters:
        """Corrects a draw of the mean from its prior by a table's mean that is drawn with it."""
        theta = ppca.parameters(at_zero(position))
        keys = jax.random.split(_key(position["log_gaps"], position["noise"][:1]), 3)
        (n, p), dtype = theta.components.shape, theta.scale.dtype
        mean = prior.mean_scale * jax.random.normal(keys[0], (n,), dtype)
        scores = theta.scale * jax.random.normal(keys[1], (p,), dtype)
        noise = theta.noise * jax.random.normal(keys[2], (n,), dtype)
        average = mean + (theta.components @ scores + noise) / jnp.sqrt(num_rows)
        return theta._replace(mean=mean - weight * ppca.solved(with_mean(theta), average))

    def start_without_mean(key: PRNGKey) -> Position:
        return {name: value for name, value in start(key).items() if name != "mean"}

    return Problem(marginal, start_without_mean, draw)


def log_density(data: ReducedObservations, prior: PPCAPrior) -> LogDensity:
    """Build the log posterior density, with the mean and the loadings outside the table's span integrated out.

    It is a function of a position ``{"components": (A, R), "log_gaps": p, "log_noise": scalar}``.
    """
    n, r = data.basis.shape
    total = float(data.squares.sum())

    def logdensity_fn(position: Position) -> Scalar:
        scale, noise = ordered_scales(position["log_gaps"]), jnp.exp(position["log_noise"])
        p = scale.shape[0]
        spectrum = scale**2 + noise**2
        inner, outer = position["components"][:r], position["components"][r:]
        along = jnp.asarray(data.squares) @ inner**2
        form = jnp.sum(along / spectrum)
        if p < n:
            form = form + (total - jnp.sum(along)) / noise**2
        precision, precision_across = _mean_precisions(spectrum, noise, data.num_rows, prior)
        log_determinant = data.num_rows * (jnp.sum(jnp.log(spectrum)) + (n - p) * jnp.log(noise**2))
        log_determinant = log_determinant + jnp.sum(jnp.log(precision)) + (n - p) * jnp.log(precision_across)
        log_prior = -0.5 * jnp.sum((scale / prior.scale_scale) ** 2) / n - 0.5 * (noise / prior.noise_scale) ** 2
        log_jacobian = jnp.sum(position["log_gaps"]) + position["log_noise"]
        if len(outer):
            root = cholesky(outer.T @ outer)
            log_jacobian = log_jacobian + (n - r - p) * jnp.sum(jnp.log(jnp.diagonal(root)))
        return log_prior + log_jacobian - 0.5 * (log_determinant + form)

    return logdensity_fn


def parameters(data: ReducedObservations, prior: PPCAPrior) -> Callable[[Position], PPCAParameters]:
    """Build the function from a position to all parameters; those integrated out are drawn given the others.

    The PRNG key comes from the bits of the position, so a position always gives the same draw.
    """
    n, r = data.basis.shape

    def draw(position: Position) -> PPCAParameters:
        scale, noise = ordered_scales(position["log_gaps"]), jnp.exp(position["log_noise"])
        p = scale.shape[0]
        basis = jnp.asarray(data.basis, scale.dtype)
        key_frame, key_mean = jax.random.split(_key(position["log_gaps"], position["log_noise"]))
        components = basis @ position["components"][:r]
        if position["components"].shape[0] > r:
            normal = jax.random.normal(key_frame, (n, p), scale.dtype)
            frame = _orthonormal(normal - basis @ (basis.T @ normal))
            components = components + frame @ position["components"][r:]
        precision, precision_across = _mean_precisions(scale**2 + noise**2, noise, data.num_rows, prior)
        mean = jax.random.normal(key_mean, (n,), scale.dtype)
        along = mean @ components
        mean = mean / jnp.sqrt(precision_across)
        mean = mean + components @ (along * (1.0 / jnp.sqrt(precision) - 1.0 / jnp.sqrt(precision_across)))
        return PPCAParameters(components, scale, noise, mean)

    return draw


def starting_points(data: ReducedObservations, num_components: int) -> Callable[[PRNGKey], Position]:
    """Like :func:`geodax.models.pca.density.starting_points`, in the coordinates of the principal axes."""
    (n, r), p = data.basis.shape, num_components
    extra = p if r < n else 0
    require_noise(num_exact(data.squares, int(data.num_rows), n), n, p)
    scales = starting_scales(data.squares, int(data.num_rows), n, p)

    def start(key: PRNGKey) -> Position:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        perturbed = np.eye(r + extra, p) + SPREAD / np.sqrt(n) * generator.standard_normal((r + extra, p))
        if extra:  # the length of the perturbation in all directions outside the table's span
            outer = np.linalg.qr(generator.standard_normal((p, p)))[0]
            perturbed[r:] = np.eye(r + p, p)[r:] + SPREAD * np.sqrt((n - r) / n) * outer
        return position_near(perturbed, scales, generator)

    return start


def _is_reducible(data: Float[np.ndarray, "rows n"], num_components: int) -> bool:
    """Whether the table is complete and centred, and has so many columns that fewer coordinates pay."""
    rows, n = data.shape
    has_many = rows + num_components < n or n >= _MANY_COLUMNS
    return has_many and bool(np.all(np.abs(data.mean(axis=0)) < _CENTRED))  # False where a cell is missing


def _mean_precisions(spectrum: Array, noise: Array, num_rows: float, prior: PPCAPrior) -> tuple[Array, Array]:
    """Conditional precisions of the mean, along the components and orthogonal to them."""
    return num_rows / spectrum + prior.mean_scale**-2, num_rows / noise**2 + prior.mean_scale**-2


def _orthonormal(x: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """An orthonormal basis of the columns' span, by two Cholesky factorisations of the Gram matrix."""
    for _ in range(2):
        x = solve_lower(cholesky(x.T @ x), x.T).T
    return x


def _key(log_gaps: Array, noise: Array) -> PRNGKey:
    """A PRNG key from the bits of the scales and the noise."""
    bits = jax.lax.bitcast_convert_type(jnp.append(log_gaps, noise), jnp.uint32).reshape(-1)
    return jax.lax.fori_loop(0, len(bits), lambda i, key: jax.random.fold_in(key, bits[i]), jax.random.key(0))
