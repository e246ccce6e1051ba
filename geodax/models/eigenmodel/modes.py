r"""Modes of the posterior of the eigenmodel, and initial positions for chains.

An eigenvalue changes its sign only through zero, which counts and clear structure of many nodes forbid: there the
posterior has a mode for each number of positive eigenvalues, and the largest eigenvalues of the data in absolute value
need not belong to the highest. A mode is therefore sought for each such number. With :math:`L = X S X^T`, where S holds
the signs, it maximises

.. math::
    \sum_{i<j} \log f(y_{ij} \mid c + L_{ij}) - \frac{|L|_F^2}{2 n \tau^2} - \frac{c^2}{2 \sigma_c^2},

the density of :func:`geodax.models.eigenmodel.density.log_density`, over free X and c by L-BFGS. Each chain starts near
a mode that is drawn with probability proportional to the density there: chains leave out modes that are far lower, and
those that start in different modes and stay there are seen by R-hat.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln, log_ndtr, ndtri

from geodax._types import Position, PRNGKey
from geodax.models.eigenmodel.density import EigenmodelParameters, EigenmodelPrior, Link, NetworkPairs

_MOST_STEPS = 100
_CLOSE = 1e-6  # relative gain of a last step
_LARGEST = 50.0  # of a linear predictor of counts


class EigenmodelMode(NamedTuple):
    """A local maximum of the posterior.

    Attributes:
        log_density: Log density there.
        theta: The parameters.
    """

    log_density: float
    theta: EigenmodelParameters


def find_modes(data: NetworkPairs, rank: int, link: Link, prior: EigenmodelPrior) -> list[EigenmodelMode]:
    """Climb from the leading eigenvectors of the network, for each number of positive eigenvalues.

    Returns:
        A mode for each number, highest first; one with an eigenvalue of zero is a point on the way to another.
    """
    intercept, centred = _transformed(data, link)
    eigenvalues, vectors = np.linalg.eigh(centred)  # ascending
    places = [np.r_[: rank - k, len(centred) - k : len(centred)] for k in range(rank + 1)]
    starts = (EigenmodelParameters(vectors[:, chosen], eigenvalues[chosen], intercept) for chosen in places)
    signs = (np.repeat([-1.0, 1.0], [rank - k, k]) for k in range(rank + 1))
    found = [_climbed(data, link, prior, *start) for start in zip(starts, signs, strict=True)]
    return sorted(found, key=lambda mode: -mode.log_density)


def starting_point(key: PRNGKey, modes: list[EigenmodelMode], *, spread: float = 0.3) -> Position:
    """Draw an initial position near one of the modes; a perturbation of size ``spread`` separates the chains."""
    # NumPy seeded by the key avoids compilation for three small arrays
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    theta = modes[np.argmax([mode.log_density + generator.gumbel() for mode in modes])].theta
    n, rank = theta.vectors.shape
    perturbed = theta.vectors + spread / np.sqrt(n) * generator.standard_normal((n, rank))
    u, _, vh = np.linalg.svd(perturbed, full_matrices=False)
    noise = spread * generator.standard_normal(rank + 1)
    return {
        "vectors": u @ vh,
        "eigenvalues": np.asarray(theta.eigenvalues) * np.exp(noise[:rank]),
        "intercept": np.asarray(theta.intercept + noise[rank]),
    }


def _transformed(data: NetworkPairs, link: Link) -> tuple[np.ndarray, np.ndarray]:
    """The intercept of all pairs, and the deviations from it on the scale of the predictor, zero where unobserved."""
    n = len(data.values)
    is_observed = data.is_observed | data.is_observed.T
    values = data.values + data.values.T
    if link == "log":
        transformed = np.log(values + 0.5)
        intercept = transformed[is_observed].mean()
    else:
        density = np.clip(values[is_observed].mean(), 0.5 / n**2, 1 - 0.5 / n**2)
        quantile = ndtri(density)
        if link == "probit":
            intercept, slope = quantile, np.exp(-0.5 * quantile**2) / np.sqrt(2 * np.pi)
        else:
            intercept, slope = np.log(density / (1 - density)), density * (1 - density)
        transformed = intercept + (values - density) / max(slope, 1e-3)
    return np.asarray(intercept), np.where(is_observed, transformed - intercept, 0.0)


def _climbed(
    data: NetworkPairs, link: Link, prior: EigenmodelPrior, start: EigenmodelParameters, signs: np.ndarray
) -> EigenmodelMode:
    """Maximise the log density over X and c, from given parameters."""
    n, rank = start.vectors.shape
    rows, columns = np.nonzero(data.is_observed)
    values, variance = data.values[rows, columns], n * prior.eigenvalue_scale**2

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        x, c = flat[:-1].reshape(n, rank), flat[-1]
        form = (x * signs) @ x.T
        likelihoods, slopes = _likelihood(c + form[rows, columns], values, link)
        slope = np.zeros((n, n))
        slope[rows, columns] = slopes
        gradient = (slope + slope.T - 2 * form / variance) @ x * signs
        value = likelihoods.sum() - 0.5 * np.sum(form**2) / variance - 0.5 * (c / prior.intercept_scale) ** 2
        return -value, -np.append(gradient.ravel(), slopes.sum() - c / prior.intercept_scale**2)

    sizes = np.sqrt(np.clip(np.abs(start.eigenvalues), 0.1, 2.0 * np.sqrt(variance)))
    flat = np.append((start.vectors * sizes).ravel(), start.intercept)
    end = minimize(objective, flat, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS, "ftol": _CLOSE})
    basis, upper = np.linalg.qr(end.x[:-1].reshape(n, rank))
    eigenvalues, vectors = np.linalg.eigh((upper * signs) @ upper.T)
    return EigenmodelMode(-float(end.fun), EigenmodelParameters(basis @ vectors, eigenvalues, np.asarray(end.x[-1])))


def _likelihood(eta: np.ndarray, values: np.ndarray, link: Link) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities of the values, and their derivatives."""
    if link == "log":
        mean = np.exp(np.minimum(eta, _LARGEST))
        return values * eta - mean - gammaln(values + 1), values - mean
    signs = 2 * values - 1
    if link == "logit":
        return -np.logaddexp(0, -signs * eta), signs * expit(-signs * eta)
    logs = log_ndtr(signs * eta)
    return logs, signs * np.exp(-0.5 * eta**2 - logs) / np.sqrt(2 * np.pi)
