r"""The hidden Markov network model: density, starts and the order in which states are reported.

Counts between C classes in windows t = 1, ..., T (Pourzanjani et al. 2021, section 6.4): a hidden Markov chain
:math:`s_t` with K states and transition matrix A, and given the state, independently for each pair i <= j,

.. math::
    Y_{tij} \sim \mathrm{Poisson}\big(R^{(s_t)}_{ij}\big), \qquad
    R^{(k)}_{ij} = \exp\big(c_k + (W_k \Lambda_k W_k^T)_{ij}\big).

The paper writes :math:`R = \exp(W \Lambda W^T)`. The exponential is taken entry by entry, as in every log-linear model
of counts. The matrix exponential, :math:`I + W (e^\Lambda - I) W^T`, has negative entries for most W and so is no
matrix of Poisson rates. The paper has no intercepts, :math:`c_k = 0`; they are an option here.

Priors: W_k uniform on V(C, p), :math:`\lambda \sim N(0, (C \tau)^2)` (an entry of a vector is about
:math:`C^{-1/2}`, so that :math:`\lambda / C` is on the scale of log rates), :math:`c_k \sim N(0, \sigma_c^2)`, rows
of A Dirichlet, first state uniform. Rows of A are sampled as log ratios to the last state, whose volume element is the
product of all entries: :math:`|\partial A_{k,1:K-1} / \partial z_k| = \prod_j A_{kj}`. States are summed over by the
forward recursion.

The density does not change when states are renamed. Draws are reported with states in the order of their total rates
(over pairs i <= j), least first, eigenvalues descending within a state, and signs that agree with the mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln
from sklearn.cluster import KMeans

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax.models import hidden_markov
from geodax.models.eigenmodel_density import with_ordered_columns
from geodax.run.alignment import align_signs


class NetworkPrior(NamedTuple):
    """Prior of the model.

    Attributes:
        eigenvalue_scale: Standard deviation of the eigenvalues divided by C.
        intercept_scale: Standard deviation of the intercepts; None leaves them out.
        transition_concentration: Of the Dirichlet prior of each row of the transition matrix.
    """

    eigenvalue_scale: float = 5.0
    intercept_scale: float | None = None
    transition_concentration: float = 1.0


class NetworkParameters(NamedTuple):
    """Parameters of the model, or draws of them with leading axes.

    Attributes:
        vectors: Orthonormal columns for each state.
        eigenvalues: Their weights.
        intercept: Log rate that all pairs have in common, zero where there is none.
        transition: Probabilities, from the state of the row to that of the column.
    """

    vectors: Float[Array | np.ndarray, "*draws K C p"]
    eigenvalues: Float[Array | np.ndarray, "*draws K p"]
    intercept: Float[Array | np.ndarray, "*draws K"]
    transition: Float[Array | np.ndarray, "*draws K K"]


class NetworkCounts(NamedTuple):
    """Counts as the likelihood needs them: one row a window, one column a pair.

    Attributes:
        values: Counts, zero where missing.
        is_observed: Whether there is a count.
        pairs: The two classes of each column.
        num_classes: C.
    """

    values: Float[np.ndarray, "T m"]
    is_observed: Bool[np.ndarray, "T m"]
    pairs: tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]
    num_classes: int


def observations(counts: Float[np.ndarray, "T C C"], *, diagonal: bool = True) -> NetworkCounts:
    """The pairs of symmetric matrices of counts.

    Args:
        counts: One matrix a window, NaN where a count is missing.
        diagonal: Whether counts within a class belong to the data.

    Returns:
        The counts.
    """
    rows, columns = np.triu_indices(counts.shape[1], 0 if diagonal else 1)
    values = counts[:, rows, columns]
    return NetworkCounts(np.nan_to_num(values), ~np.isnan(values), (rows, columns), counts.shape[1])


def parameters(position: Position) -> NetworkParameters:
    """Natural parameters of an unconstrained position (``vectors``, ``eigenvalues``, ``log_ratios``, ``intercept``)."""
    log_transition = _log_transition(position["log_ratios"])
    intercept = position.get("intercept", jnp.zeros_like(position["eigenvalues"][..., 0]))
    return NetworkParameters(position["vectors"], position["eigenvalues"], intercept, jnp.exp(log_transition))


def log_rates(theta: NetworkParameters) -> Float[Array, "K C C"]:
    """``c_k + W_k Lambda_k W_k^T`` for parameters without leading axes."""
    vectors = jnp.asarray(theta.vectors)
    form = jnp.einsum("kip,kp,kjp->kij", vectors, jnp.asarray(theta.eigenvalues), vectors)
    return form + jnp.asarray(theta.intercept)[:, None, None]


def log_emission(theta: NetworkParameters, data: NetworkCounts) -> Float[Array, "T K"]:
    """Log probability of each window's counts in each state, normalised."""
    eta = log_rates(theta)[:, data.pairs[0], data.pairs[1]]
    constant = gammaln(data.values + 1.0).sum(axis=1)
    values, weights = jnp.asarray(data.values, eta.dtype), jnp.asarray(data.is_observed, eta.dtype)
    return values @ eta.T - weights @ jnp.exp(eta).T - jnp.asarray(constant, eta.dtype)[:, None]


def log_density(data: NetworkCounts, prior: NetworkPrior) -> LogDensity:
    """Log posterior density of a position, states summed over.

    Args:
        data: The counts.
        prior: The prior.

    Returns:
        The function of a position ``{"vectors": K x C x p, "eigenvalues": K x p, "log_ratios": K x (K - 1)}``, and
        ``"intercept": K`` if the prior has intercepts.
    """
    scale = prior.eigenvalue_scale * data.num_classes

    def logdensity_fn(position: Position) -> Scalar:
        theta = parameters(position)
        log_transition = _log_transition(position["log_ratios"])
        # the Dirichlet's exponents, and once each entry for the volume element
        log_prior = prior.transition_concentration * jnp.sum(log_transition) - 0.5 * jnp.sum(
            (theta.eigenvalues / scale) ** 2
        )
        if prior.intercept_scale is not None:
            log_prior = log_prior - 0.5 * jnp.sum((theta.intercept / prior.intercept_scale) ** 2)
        emission = log_emission(theta, data)
        return log_prior + hidden_markov.log_likelihood(emission, log_transition, _log_initial(emission))

    return logdensity_fn


def sequence_log_likelihood(theta: NetworkParameters, data: NetworkCounts) -> Scalar:
    """Log probability of all windows, states summed over."""
    return hidden_markov.log_likelihood(*_chain(theta, data))


def state_probabilities(theta: NetworkParameters, data: NetworkCounts) -> Float[Array, "T K"]:
    """Probabilities of the states at each window given all windows."""
    return hidden_markov.smooth(*_chain(theta, data))


def draw_states(key: PRNGKey, theta: NetworkParameters, data: NetworkCounts) -> Int[Array, " T"]:
    """A sequence of states given all windows."""
    return hidden_markov.draw_states(key, *_chain(theta, data))


def draw_counts(key: PRNGKey, theta: NetworkParameters, states: Int[Array, " T"]) -> Float[Array, "T C C"]:
    """Symmetric matrices of counts given the states."""
    rates = jnp.exp(log_rates(theta))[states]
    drawn = jax.random.poisson(key, rates).astype(rates.dtype)
    return jnp.triu(drawn) + jnp.swapaxes(jnp.triu(drawn, 1), -1, -2)


def simulate(
    key: PRNGKey, theta: NetworkParameters, num_windows: int
) -> tuple[Int[Array, " T"], Float[Array, "T C C"]]:
    """Draw states and counts from the model.

    Args:
        key: Randomness.
        theta: Parameters without leading axes.
        num_windows: T.

    Returns:
        The states and the counts.
    """
    key_first, key_states, key_counts = jax.random.split(key, 3)
    log_transition = jnp.log(jnp.asarray(theta.transition))
    first = jax.random.randint(key_first, (), 0, len(log_transition))

    def step(state: Array, key: Array) -> tuple[Array, Array]:
        following = jax.random.categorical(key, log_transition[state]).astype(state.dtype)
        return following, state

    _, states = jax.lax.scan(step, first, jax.random.split(key_states, num_windows))
    return states, draw_counts(key_counts, theta, states)


def starting_point(
    key: PRNGKey,
    data: NetworkCounts,
    num_states: int,
    rank: int,
    prior: NetworkPrior,
    spread: float = 0.2,
) -> Position:
    """A start at a clustering of the windows, perturbed so that chains begin apart.

    Windows are clustered (k-means) by the logarithms of their counts, and each state begins at the leading eigenvectors
    of its cluster's mean log counts. All chains begin near one clustering: R-hat does not see what lies beyond others.

    Args:
        key: Randomness of the perturbation.
        data: The counts.
        num_states: K.
        rank: p.
        prior: The prior.
        spread: Size of the perturbation.

    Returns:
        A position.
    """
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    size = data.num_classes
    features = np.log1p(data.values)
    clusters = KMeans(num_states, n_init="auto", random_state=0).fit_predict(features)
    position: dict[str, list] = {"vectors": [], "eigenvalues": []}
    intercepts = []
    for k in range(num_states):
        mean = np.zeros((size, size))
        weights = data.is_observed[clusters == k].sum(axis=0)
        mean[data.pairs] = data.values[clusters == k].sum(axis=0) / np.maximum(weights, 1)
        target = np.log(np.maximum(mean, mean.T) + 0.1)
        intercepts.append(0.0 if prior.intercept_scale is None else target[data.pairs].mean())
        eigenvalues, vectors = np.linalg.eigh(target - intercepts[-1])
        leading = np.argsort(-np.abs(eigenvalues))[:rank]
        perturbed = vectors[:, leading] + spread / np.sqrt(size) * generator.standard_normal((size, rank))
        u, _, vh = np.linalg.svd(perturbed, full_matrices=False)
        position["vectors"].append(u @ vh)
        position["eigenvalues"].append(eigenvalues[leading] * np.exp(0.5 * spread * generator.standard_normal(rank)))
    moves = np.ones((num_states, num_states))
    np.add.at(moves, (clusters[:-1], clusters[1:]), 1.0)
    log_ratios = np.log(moves[:, :-1] / moves[:, -1:]) + spread * generator.standard_normal(
        (num_states, num_states - 1)
    )
    start = {name: np.stack(values) for name, values in position.items()} | {"log_ratios": log_ratios}
    if prior.intercept_scale is not None:
        start["intercept"] = np.asarray(intercepts) + spread * generator.standard_normal(num_states)
    return start


def identified(theta: NetworkParameters, *, diagonal: bool = True) -> NetworkParameters:
    """Draws with states, columns and signs in the order in which they are reported.

    Args:
        theta: Draws, with two leading axes or one.
        diagonal: Whether rates within a class count towards the total rate of a state.

    Returns:
        The same draws, with states by total rate, least first; eigenvalues descending; signs aligned state by state.
    """
    vectors, eigenvalues = np.asarray(theta.vectors), np.asarray(theta.eigenvalues)
    rows, columns = np.triu_indices(vectors.shape[-2], 0 if diagonal else 1)
    form = np.einsum("...kip,...kp,...kjp->...kij", vectors, eigenvalues, vectors)
    eta = form + np.asarray(theta.intercept)[..., None, None]
    order = np.argsort(np.logaddexp.reduce(eta[..., rows, columns], axis=-1), axis=-1)
    vectors = np.take_along_axis(vectors, order[..., None, None], axis=-3)
    eigenvalues = np.take_along_axis(eigenvalues, order[..., None], axis=-2)
    intercept = np.take_along_axis(np.asarray(theta.intercept), order, axis=-1)
    transition = np.take_along_axis(np.asarray(theta.transition), order[..., :, None], axis=-2)
    transition = np.take_along_axis(transition, order[..., None, :], axis=-1)
    vectors, eigenvalues = with_ordered_columns(vectors, eigenvalues)
    states = [align_signs(vectors[..., k, :, :])[0] for k in range(vectors.shape[-3])]
    return NetworkParameters(np.stack(states, axis=-3), eigenvalues, intercept, transition)


def _chain(theta: NetworkParameters, data: NetworkCounts) -> tuple[Array, Array, Array]:
    emission = log_emission(theta, data)
    return emission, jnp.log(jnp.asarray(theta.transition)), _log_initial(emission)


def _log_transition(log_ratios: Array) -> Array:
    last = jnp.zeros((*log_ratios.shape[:-1], 1), log_ratios.dtype)
    return jax.nn.log_softmax(jnp.concatenate([log_ratios, last], axis=-1), axis=-1)


def _log_initial(emission: Array) -> Array:
    num_states = emission.shape[1]
    return jnp.full((num_states,), -np.log(num_states), emission.dtype)
