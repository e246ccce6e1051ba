r"""The hidden Markov network model: log density, and draws of states and counts given the parameters.

Counts between C classes in windows t = 1, ..., T (Pourzanjani et al. 2021, section 6.4): a hidden Markov chain
:math:`s_t` with K states and transition matrix A, and given the state, independently for each pair i <= j,

.. math::
    Y_{tij} \sim \mathrm{Poisson}\big(R^{(s_t)}_{ij}\big), \qquad
    R^{(k)}_{ij} = \exp\big(c_k + (W_k \Lambda_k W_k^T)_{ij}\big).

The paper writes :math:`R = \exp(W \Lambda W^T)`. The exponential is taken entry by entry, as in other log-linear models
of counts: the matrix exponential, :math:`I + W (e^\Lambda - I) W^T`, has negative entries for most W and cannot be a
matrix of Poisson rates. The paper has no intercepts, :math:`c_k = 0`; here they are optional. Counts that vary more
than Poisson counts can be negative binomial with the same means :math:`\mu = R^{(k)}_{ij}` and the variance
:math:`\mu + a_k \mu^2`,

.. math::
    \log p(y) = \sum_{i < y} \log(1 + i a) - \log y! + y (\eta - \log(1 + a \mu)) - \log(1 + a \mu) / a,

whose limit as a tends to 0 is the Poisson distribution, term by term.

Priors: W_k uniform on V(C, p), :math:`\lambda \sim N(0, (C \tau)^2)` (an entry of a vector is about
:math:`C^{-1/2}`, so :math:`\lambda / C` is on the scale of log rates), :math:`c_k \sim N(0, \sigma_c^2)`,
:math:`\log a_k \sim N(0, \sigma_a^2)`, rows of A Dirichlet, first state uniform. Rows of A are sampled as log ratios to
the last state, with volume element :math:`|\partial A_{k,1:K-1} / \partial z_k| = \prod_j A_{kj}`. The forward
recursion sums over the states.

The W_k are K separate leaves of the position, so that a sampler adapts a scale for each: a busy state can determine its
W a hundred times more precisely than a quiet one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax.models.network import hidden_markov
from geodax.models.network.counts import CountLikelihood, NetworkCounts


class NetworkPrior(NamedTuple):
    """Prior of the model.

    Attributes:
        eigenvalue_scale: Standard deviation of the eigenvalues divided by C.
        intercept_scale: Standard deviation of the intercepts; None for no intercepts.
        transition_concentration: Concentration of the Dirichlet prior of each row of the transition matrix.
        dispersion_scale: Standard deviation of the log dispersions; not used for Poisson counts.
    """

    eigenvalue_scale: float = 5.0
    intercept_scale: float | None = None
    transition_concentration: float = 1.0
    dispersion_scale: float = 2.0


class NetworkParameters(NamedTuple):
    """Parameters of the model, or draws of them with leading axes.

    Attributes:
        vectors: Orthonormal columns for each state.
        eigenvalues: Eigenvalues of each state's log rates.
        intercept: Intercept of all pairs' log rates, zero if the model has none.
        transition: Transition probabilities, from the row's state to the column's.
        dispersion: a in the variance ``mu + a mu^2`` of each state, zero for Poisson counts.
    """

    vectors: Float[Array | np.ndarray, "*draws K C p"]
    eigenvalues: Float[Array | np.ndarray, "*draws K p"]
    intercept: Float[Array | np.ndarray, "*draws K"]
    transition: Float[Array | np.ndarray, "*draws K K"]
    dispersion: Float[Array | np.ndarray, "*draws K"]


def parameters(position: Position) -> NetworkParameters:
    """Compute the natural parameters of a position; intercepts and dispersions that the model lacks are zero."""
    eigenvalues = position["eigenvalues"]
    zero = jnp.zeros_like(eigenvalues[..., 0])
    dispersion = jnp.exp(position["log_dispersion"]) if "log_dispersion" in position else zero
    return NetworkParameters(
        jnp.stack(position["vectors"], axis=-3),
        eigenvalues,
        position.get("intercept", zero),
        jnp.exp(_log_transition(position["log_ratios"])),
        dispersion,
    )


def log_rates(theta: NetworkParameters) -> Float[Array, "K C C"]:
    """Compute ``c_k + W_k Lambda_k W_k^T`` for parameters without leading axes."""
    vectors = jnp.asarray(theta.vectors)
    form = jnp.einsum("kip,kp,kjp->kij", vectors, jnp.asarray(theta.eigenvalues), vectors)
    return form + jnp.asarray(theta.intercept)[:, None, None]


def log_emission(theta: NetworkParameters, data: NetworkCounts) -> Float[Array, "T K"]:
    """Compute the normalised log probability of each window's counts in each state."""
    eta = log_rates(theta)[:, data.pairs[0], data.pairs[1]]
    values, weights = jnp.asarray(data.values, eta.dtype), jnp.asarray(data.is_observed, eta.dtype)
    constant = jnp.asarray(data.log_factorials, eta.dtype)[:, None]
    if data.levels is None:
        return values @ eta.T - weights @ jnp.exp(eta).T - constant
    dispersion = jnp.asarray(theta.dispersion)[:, None]
    logs = jnp.log1p(dispersion * jnp.exp(eta))
    rising, tally = log_rising(dispersion[:, 0], data.levels), jnp.asarray(data.tally, eta.dtype)
    return values @ (eta - logs).T - weights @ (logs / dispersion).T + tally @ rising.T - constant


def count_log_probabilities(
    theta: NetworkParameters,
    values: Int[np.ndarray, " N"],
    pairs: tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]],
    *,
    likelihood: CountLikelihood = "poisson",
) -> Float[Array, "K N"]:
    """Compute the normalised log probability of single counts, each of a pair of classes, in each state."""
    eta = log_rates(theta)[:, pairs[0], pairs[1]]
    numbers, constant = (jnp.asarray(x, eta.dtype)[None, :] for x in (values, gammaln(values + 1.0)))
    if likelihood == "poisson":
        return numbers * eta - jnp.exp(eta) - constant
    dispersion = jnp.asarray(theta.dispersion)[:, None]
    logs = jnp.log1p(dispersion * jnp.exp(eta))
    return numbers * (eta - logs) - logs / dispersion + log_rising(dispersion[:, 0], values) - constant


def log_rising(dispersion: Float[Array, " K"], levels: Int[np.ndarray, " u"]) -> Float[Array, "K u"]:
    """Compute ``sum_{i < y} log(1 + i a)`` for each dispersion a and count y, without cancellation for small a."""
    steps = jnp.arange(int(levels.max()), dtype=dispersion.dtype)
    sums = jnp.cumsum(jnp.log1p(dispersion[:, None] * steps[None, :]), axis=1)
    return jnp.concatenate([jnp.zeros_like(dispersion[:, None]), sums], axis=1)[:, levels]


def log_density(data: NetworkCounts, prior: NetworkPrior) -> LogDensity:
    """Return the log posterior density, summed over the states.

    Returns:
        A function of a position: ``vectors`` (K arrays C x p), ``eigenvalues`` (K x p), ``log_ratios``
        (K x (K - 1)), ``intercept`` (K) if the prior has intercepts, ``log_dispersion`` (K) for negative binomial
        counts.
    """
    scale = prior.eigenvalue_scale * data.num_classes

    def logdensity_fn(position: Position) -> Scalar:
        theta = parameters(position)
        log_transition = _log_transition(position["log_ratios"])
        # the Dirichlet exponents, plus one for the volume element
        log_prior = prior.transition_concentration * jnp.sum(log_transition) - 0.5 * jnp.sum(
            (theta.eigenvalues / scale) ** 2
        )
        if prior.intercept_scale is not None:
            log_prior = log_prior - 0.5 * jnp.sum((theta.intercept / prior.intercept_scale) ** 2)
        if data.levels is not None:
            log_prior = log_prior - 0.5 * jnp.sum((position["log_dispersion"] / prior.dispersion_scale) ** 2)
        emission = log_emission(theta, data)
        return log_prior + hidden_markov.log_likelihood(emission, log_transition, _log_initial(emission))

    return logdensity_fn


def sequence_log_likelihood(theta: NetworkParameters, data: NetworkCounts) -> Scalar:
    """Compute the log probability of all windows, summed over the states."""
    return hidden_markov.log_likelihood(*_chain(theta, data))


def state_probabilities(theta: NetworkParameters, data: NetworkCounts) -> Float[Array, "T K"]:
    """Compute the probabilities of the states in each window given all windows."""
    return hidden_markov.smooth(*_chain(theta, data))


def draw_states(key: PRNGKey, theta: NetworkParameters, data: NetworkCounts) -> Int[Array, " T"]:
    """Draw a sequence of states given all windows."""
    return hidden_markov.draw_states(key, *_chain(theta, data))


def draw_counts(
    generator: np.random.Generator,
    rates: Float[np.ndarray, "K C C"],
    states: Int[np.ndarray, " T"],
    dispersion: Float[np.ndarray, " K"] | None = None,
) -> Float[np.ndarray, "T C C"]:
    """Draw symmetric matrices of counts given the states: Poisson, or negative binomial with a dispersion."""
    rows, columns = np.triu_indices(rates.shape[-1])
    means = rates[:, rows, columns][states]
    if dispersion is not None:
        # negative binomial as a gamma mixture of Poisson, with mean mu and shape 1 / a
        shape = 1.0 / dispersion[states][:, None]
        means = means * generator.standard_gamma(shape, means.shape) / shape
    drawn = np.empty((len(states), *rates.shape[1:]))
    drawn[:, rows, columns] = drawn[:, columns, rows] = generator.poisson(means)
    return drawn


def _chain(theta: NetworkParameters, data: NetworkCounts) -> tuple[Array, Array, Array]:
    emission = log_emission(theta, data)
    return emission, jnp.log(jnp.asarray(theta.transition)), _log_initial(emission)


def _log_transition(log_ratios: Array) -> Array:
    last = jnp.zeros((*log_ratios.shape[:-1], 1), log_ratios.dtype)
    return jax.nn.log_softmax(jnp.concatenate([log_ratios, last], axis=-1), axis=-1)


def _log_initial(emission: Array) -> Array:
    num_states = emission.shape[1]
    return jnp.full((num_states,), -np.log(num_states), emission.dtype)
