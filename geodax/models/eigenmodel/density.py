r"""The eigenmodel of a symmetric network: log density, and the reported order of the parameters.

Hoff's (2009) model of relations between n nodes: for each pair i < j, independently,

.. math::
    Y_{ij} \sim f\big(c + (U \Lambda U^T)_{ij}\big), \qquad
    U \sim \mathrm{uniform\ on\ } V(n, p),\quad \lambda_k \sim N(0, n \tau^2),\quad c \sim N(0, \sigma_c^2),

with f the Bernoulli distribution with probability :math:`\Phi(\eta)` (probit) or :math:`1 / (1 + e^{-\eta})` (logit),
or the Poisson distribution with rate :math:`e^\eta` (log). Hoff uses the probit with :math:`\tau = 1, \sigma_c = 10`.
Self-loops are not modelled, and missing pairs are left out of the product.

The density is invariant under sign changes of the columns of U, and under permutations of the columns together with
their eigenvalues. Draws are reported with descending eigenvalues and with signs aligned to the mean.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Bool, Float

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax.models.eigenmodel.probit import log_normal_cdf

Link = Literal["probit", "logit", "log"]
LINKS: tuple[Link, ...] = ("probit", "logit", "log")
_BINARY = {"probit": log_normal_cdf, "logit": jax.nn.log_sigmoid}


class EigenmodelPrior(NamedTuple):
    """Prior of the model.

    Attributes:
        eigenvalue_scale: Standard deviation of the eigenvalues divided by ``sqrt(n)``.
        intercept_scale: Standard deviation of the intercept.
    """

    eigenvalue_scale: float = 1.0
    intercept_scale: float = 10.0


class EigenmodelParameters(NamedTuple):
    """Parameters of the model, or draws of them with leading axes.

    Attributes:
        vectors: Orthonormal columns, n x p.
        eigenvalues: Their weights, p.
        intercept: Intercept of all pairs.
    """

    vectors: Float[Array | np.ndarray, "*draws n p"]
    eigenvalues: Float[Array | np.ndarray, "*draws p"]
    intercept: Float[Array | np.ndarray, "*draws"]


class NetworkPairs(NamedTuple):
    """A network in the form used by the likelihood.

    Attributes:
        values: n x n, zero where unobserved.
        is_observed: True for the observed pairs i < j.
    """

    values: Float[np.ndarray, "n n"]
    is_observed: Bool[np.ndarray, "n n"]


def pairs(adjacency: Float[np.ndarray, "n n"]) -> NetworkPairs:
    """Extract the observed pairs i < j of a symmetric matrix, NaN where a pair is missing; the diagonal is ignored."""
    is_observed = np.triu(~np.isnan(adjacency), 1)
    return NetworkPairs(np.where(is_observed, adjacency, 0.0), is_observed)


def predictor(theta: EigenmodelParameters) -> Float[Array, "n n"]:
    """Compute ``c + U Lambda U^T`` for parameters without leading axes."""
    vectors = jnp.asarray(theta.vectors)
    weighted = vectors * jnp.asarray(theta.eigenvalues)[None, :]
    return jnp.asarray(theta.intercept) + weighted @ vectors.T


def expected(eta: Array, link: Link) -> Array:
    """Return the mean of Y: the probability of 1, or the rate."""
    if link == "probit":
        return jnp.exp(log_normal_cdf(eta))
    return jax.nn.sigmoid(eta) if link == "logit" else jnp.exp(eta)


def pair_log_likelihood(eta: Array, values: Array, link: Link) -> Array:
    """Compute the normalised log probability of each value."""
    if link == "log":
        return values * eta - jnp.exp(eta) - gammaln(values + 1.0)
    return _BINARY[link]((2.0 * values - 1.0) * eta)


def log_density(data: NetworkPairs, link: Link, prior: EigenmodelPrior) -> LogDensity:
    """Return the log posterior density, a function of ``{"vectors": n x p, "eigenvalues": p, "intercept": scalar}``."""
    n = len(data.values)
    blocks = tuple(zip(_folded(data.values), _folded(data.is_observed), strict=True))

    def logdensity_fn(position: Position) -> Scalar:
        theta = EigenmodelParameters(**position)
        etas = _folded_predictor(theta)
        likelihoods = [_log_likelihood(eta, *block, link) for eta, block in zip(etas, blocks, strict=True)]
        log_prior = (
            -0.5 * jnp.sum((theta.eigenvalues / prior.eigenvalue_scale) ** 2) / n
            - 0.5 * (theta.intercept / prior.intercept_scale) ** 2
        )
        return log_prior + sum(likelihoods)

    return logdensity_fn


def _log_likelihood(eta: Array, values: np.ndarray, is_observed: np.ndarray, link: Link) -> Scalar:
    if link == "log":
        terms = pair_log_likelihood(eta, jnp.asarray(values, eta.dtype), link)
        return jnp.sum(jnp.where(is_observed, terms, 0.0))
    # the probability of a pair without a sign is 1/2: cheaper than a condition
    signs = (2.0 * values - 1.0) * is_observed
    terms = _BINARY[link](jnp.asarray(signs, eta.dtype) * eta)
    return jnp.sum(terms) + float(np.sum(~is_observed) * np.log(2.0))


def _folded(upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The entries above the diagonal of an n x n matrix as two matrices, which have half as many entries together.

    With the nodes divided into two halves, the first matrix holds the pairs within the first half above its diagonal
    and those within the second one below it; the second matrix holds the pairs between the halves.
    """
    h = (len(upper) + 1) // 2
    padded = np.zeros((2 * h, 2 * h), upper.dtype)
    padded[: len(upper), : len(upper)] = np.triu(upper, 1)
    return padded[:h, :h] + padded[h:, h:].T, padded[:h, h:]


def _folded_predictor(theta: EigenmodelParameters) -> tuple[Float[Array, "h h"], Float[Array, "h h"]]:
    """``_folded(predictor(theta))``, except for the diagonal."""
    vectors, eigenvalues = jnp.asarray(theta.vectors), jnp.asarray(theta.eigenvalues)[None, :]
    first, second = jnp.split(jnp.pad(vectors, ((0, len(vectors) % 2), (0, 0))), 2)
    weighted = first * eigenvalues
    is_first = np.triu(np.ones((len(first), len(first)), bool), 1)
    within = jnp.where(is_first, weighted @ first.T, (second * eigenvalues) @ second.T)
    return within + theta.intercept, weighted @ second.T + theta.intercept


def draw_network(key: PRNGKey, theta: EigenmodelParameters, link: Link) -> Float[Array, "n n"]:
    """Draw a symmetric network with a zero diagonal."""
    eta = predictor(theta)
    draw = jax.random.poisson if link == "log" else jax.random.bernoulli
    upper = jnp.triu(draw(key, expected(eta, link)).astype(eta.dtype), 1)
    return upper + upper.T


def with_ordered_columns(
    vectors: Float[np.ndarray, "*draws n p"], eigenvalues: Float[np.ndarray, "*draws p"]
) -> tuple[Float[np.ndarray, "*draws n p"], Float[np.ndarray, "*draws p"]]:
    """Sort eigenvalues in descending order, together with their columns, draw by draw."""
    order = np.argsort(-eigenvalues, axis=-1)
    ordered = np.take_along_axis(vectors, order[..., None, :], axis=-1)
    return ordered, np.take_along_axis(eigenvalues, order, axis=-1)
