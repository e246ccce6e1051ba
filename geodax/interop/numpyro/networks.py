r"""Network models in NumPyro: Hoff's eigenmodel and the hidden Markov network model of Pourzanjani et al., section 6.4.

These are the models of :class:`geodax.models.Eigenmodel` and :class:`geodax.models.NetworkHMM` as ordinary NumPyro
models. They work with every NumPyro algorithm; copy and edit them to change parts.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp

from geodax._types import Array
from geodax.interop.numpyro.distributions import StiefelUniform


def eigenmodel(
    adjacency: Any,
    *,
    rank: int = 2,
    link: Literal["probit", "logit", "log"] = "probit",
    eigenvalue_scale: float = 1.0,
    intercept_scale: float = 10.0,
) -> None:
    """Pairs of nodes related through ``c + U Lambda U^T`` (Hoff 2009).

    Args:
        adjacency: Symmetric network, nodes x nodes, NaN where a pair is missing; the diagonal is ignored.
        rank: Number of eigenvectors.
        link: ``"probit"`` or ``"logit"`` for networks of 0 and 1, ``"log"`` for counts.
        eigenvalue_scale: Prior standard deviation of the eigenvalues over ``sqrt(n)``.
        intercept_scale: Prior standard deviation of the intercept.

    Raises:
        ValueError: For an unknown link, or a matrix that is not square.
    """
    matrix = np.asarray(adjacency)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"eigenmodel: expected a square adjacency matrix, found shape {matrix.shape}.")
    n = len(matrix)
    rows, columns = np.nonzero(np.triu(~np.isnan(matrix), 1))
    vectors: Any = numpyro.sample("vectors", StiefelUniform(n, rank))
    scale = eigenvalue_scale * n**0.5
    eigenvalues: Any = numpyro.sample("eigenvalues", dist.Normal(0.0, scale).expand([rank]).to_event(1))
    intercept: Any = numpyro.sample("intercept", dist.Normal(0.0, intercept_scale))
    eta = intercept + ((vectors * eigenvalues[None, :]) @ vectors.T)[rows, columns]
    values = matrix[rows, columns]
    if link == "log":
        pair: Any = dist.Poisson(jnp.exp(eta))
    elif link == "logit":
        pair = dist.Bernoulli(logits=eta)
    elif link == "probit":
        # the logit of Phi(eta), without cancellation in either tail
        pair = dist.Bernoulli(logits=jax.scipy.special.log_ndtr(eta) - jax.scipy.special.log_ndtr(-eta))
    else:
        raise ValueError(f"eigenmodel: link must be probit, logit or log, found {link!r}.")
    numpyro.sample("pairs", pair.to_event(1), obs=values.astype(np.int32))


def network_hmm(
    counts: Any,
    *,
    num_states: int = 3,
    rank: int = 2,
    intercept: bool = False,
    likelihood: Literal["poisson", "negative-binomial"] = "poisson",
    eigenvalue_scale: float = 5.0,
    intercept_scale: float = 5.0,
    transition_concentration: float = 1.0,
    dispersion_scale: float = 2.0,
) -> None:
    """Counts between classes from a hidden Markov chain of rates ``exp(c + W Lambda W^T)``, entry by entry.

    The states are summed out. They are exchangeable: order draws by total rate before summarising them. With many
    counts the posterior has modes between which chains do not move; :class:`geodax.models.NetworkHMM` searches for
    them first.

    Args:
        counts: Symmetric counts, windows x classes x classes, NaN where missing; the diagonal is part of the data.
        num_states: Number of states.
        rank: Number of columns of each W.
        intercept: Whether each state has an intercept c; otherwise it is zero.
        likelihood: Distribution of a count given its rate; negative binomial counts have variance ``mu + a mu^2``.
        eigenvalue_scale: Prior standard deviation of the eigenvalues over the number of classes.
        intercept_scale: Prior standard deviation of the intercepts.
        transition_concentration: Concentration of the Dirichlet prior of each row of the transition matrix.
        dispersion_scale: Prior standard deviation of the logarithms of the dispersions a.

    Raises:
        ValueError: If the counts are not a stack of square matrices, or the distribution is unknown.
    """
    matrices = np.asarray(counts)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise ValueError(f"network_hmm: expected shape (windows, classes, classes), found {matrices.shape}.")
    num_classes = matrices.shape[1]
    rows, columns = np.triu_indices(num_classes)
    flat = matrices[:, rows, columns]
    with numpyro.plate("states", num_states):
        vectors: Any = numpyro.sample("vectors", StiefelUniform(num_classes, rank))
    scale = eigenvalue_scale * num_classes
    eigenvalues: Any = numpyro.sample("eigenvalues", dist.Normal(0.0, scale).expand([num_states, rank]).to_event(2))
    concentration = jnp.full((num_states,), transition_concentration)
    transition: Any = numpyro.sample("transition", dist.Dirichlet(concentration).expand([num_states]).to_event(1))
    eta = jnp.einsum("kip,kp,kjp->kij", vectors, eigenvalues, vectors)[:, rows, columns]
    if intercept:
        level: Any = numpyro.sample("intercept", dist.Normal(0.0, intercept_scale).expand([num_states]).to_event(1))
        eta = eta + level[:, None]
    mean = jnp.exp(eta)[None]
    if likelihood == "negative-binomial":
        normal = dist.Normal(0.0, dispersion_scale).expand([num_states]).to_event(1)
        dispersion = jnp.exp(jnp.asarray(numpyro.sample("log_dispersion", normal)))
        family: Any = dist.NegativeBinomial2(mean, 1.0 / dispersion[:, None])
    elif likelihood == "poisson":
        family = dist.Poisson(mean)
    else:
        raise ValueError(f"network_hmm: likelihood must be poisson or negative-binomial, found {likelihood!r}.")
    values = jnp.asarray(np.nan_to_num(flat), eta.dtype)
    each = family.log_prob(values[:, None, :])
    log_emission = jnp.sum(jnp.where(jnp.asarray(~np.isnan(flat))[:, None, :], each, 0.0), axis=-1)
    log_transition = jnp.log(transition)

    def step(before: Array, emission: Array) -> tuple[Array, None]:
        return emission + logsumexp(before[:, None] + log_transition, axis=0), None

    last, _ = jax.lax.scan(step, log_emission[0] - np.log(num_states), log_emission[1:])
    numpyro.factor("counts", logsumexp(last))
