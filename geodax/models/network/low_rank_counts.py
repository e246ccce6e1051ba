r"""Batched maximum-likelihood fits of low-rank symmetric log rates to weighted counts.

For weights :math:`r_t` of windows and pairs i <= j, maximises over :math:`c` and symmetric L of rank p

.. math::
    \sum_{i \le j} \big[ S_{ij} (\eta_{ij} - \log(1 + a \mu_{ij})) - N_{ij} \log(1 + a \mu_{ij}) / a \big]
    - \frac{|L|_F^2}{2 s^2} - \frac{c^2}{2 \sigma_c^2}, \qquad \eta = c + L, \quad \mu = e^\eta,

with :math:`S = \sum_t r_t Y_t` and :math:`N = \sum_t r_t`. This is the log posterior of one state given the windows'
weights, because a normal prior of the eigenvalues is one of :math:`|L|_F^2`; at dispersion a = 0 the counts are Poisson
and the bracket is :math:`S \eta - N \mu`. The optimiser is Fisher scoring with Levenberg damping over unnormalised
columns: :math:`L = W \Lambda W^T`, and after each step the eigenvectors of L make W orthonormal again. The problem is
not convex: different assignments of the p columns to classes give different local maxima.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_MOST_STEPS = 40
_TOLERANCE = 1e-3  # in units of log density
_DAMPING = (1e-6, 1e6)


class Factors(NamedTuple):
    """Log rates ``c + W diag(eigenvalues) W^T`` of several candidates.

    Attributes:
        vectors: Orthonormal columns.
        eigenvalues: Their eigenvalues.
        intercept: Intercept of all pairs, zero if the model has none.
    """

    vectors: Float[np.ndarray, "*B C p"]
    eigenvalues: Float[np.ndarray, "*B p"]
    intercept: Float[np.ndarray, "*B"]


class WeightedCounts(NamedTuple):
    """The data and constants of the problem.

    Attributes:
        sums: Weighted sum of the counts of each pair.
        weights: Sum of the weights of the windows that observe the pair.
        dispersion: a.
        eigenvalue_scale: s.
        intercept_scale: Prior scale of the intercept; None for no intercept.
    """

    sums: Float[np.ndarray, " m"]
    weights: Float[np.ndarray, " m"]
    pairs: tuple[np.ndarray, np.ndarray]
    num_classes: int
    dispersion: float
    eigenvalue_scale: float
    intercept_scale: float | None


def starts(problem: WeightedCounts, rank: int, noises: Float[np.ndarray, "B C C"]) -> Factors:
    """Compute initial factors: leading eigenvectors of the logarithms of the mean counts, perturbed by each noise."""
    size = problem.num_classes
    logs = np.zeros((size, size))
    logs[problem.pairs] = np.log((problem.sums + 0.5) / (problem.weights + 0.5))
    logs = np.triu(logs) + np.triu(logs, 1).T
    intercept = 0.0 if problem.intercept_scale is None else float(logs[problem.pairs].mean())
    vectors, eigenvalues = leading(logs - intercept + noises + np.swapaxes(noises, 1, 2), rank)
    return Factors(vectors, eigenvalues, np.full(len(noises), intercept))


def leading(matrices: Float[np.ndarray, "*B C C"], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvectors with the largest absolute eigenvalues, and these eigenvalues."""
    eigenvalues, vectors = np.linalg.eigh(matrices)
    chosen = np.argsort(-np.abs(eigenvalues), axis=-1)[..., :rank]
    return np.take_along_axis(vectors, chosen[..., None, :], axis=-1), np.take_along_axis(eigenvalues, chosen, axis=-1)


def objective(problem: WeightedCounts, factors: Factors) -> Float[np.ndarray, " B"]:
    """Compute the objective of each candidate; -inf where rates overflow."""
    form, eta = _predictors(problem, factors)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.exp(eta)
        if problem.dispersion > 0:
            log = np.log1p(problem.dispersion * mean)
            value = (eta - log) @ problem.sums - log @ problem.weights / problem.dispersion
        else:
            value = eta @ problem.sums - mean @ problem.weights
    value = value - 0.5 * (form**2) @ _multiplicity(problem) / problem.eigenvalue_scale**2
    if problem.intercept_scale is not None:
        value = value - 0.5 * (factors.intercept / problem.intercept_scale) ** 2
    return np.where(np.isfinite(value), value, -np.inf)


def information(problem: WeightedCounts, factors: Factors) -> tuple[np.ndarray, np.ndarray]:
    """Compute gradient and Fisher information over unnormalised W, eigenvalues and, if present, the intercept.

    The shapes are (B, d) and (B, d, d). The information is singular: p (p + 1) / 2 directions leave the log rates
    unchanged.
    """
    form, eta = _predictors(problem, factors)
    mean = np.exp(eta)
    denominator = 1.0 + problem.dispersion * mean
    ridge = _multiplicity(problem) / problem.eigenvalue_scale**2
    likelihood = (problem.sums - problem.weights * mean) / denominator
    curvature = problem.weights * mean / denominator
    derivative = _derivative(problem, factors)
    transposed = np.swapaxes(derivative, 1, 2)
    gradient = (transposed @ (likelihood - ridge * form)[:, :, None])[:, :, 0]
    matrix = (transposed * (curvature + ridge)[:, None, :]) @ derivative
    if problem.intercept_scale is None:
        return gradient, matrix
    precision = problem.intercept_scale**-2
    slope = likelihood.sum(axis=1, keepdims=True) - precision * factors.intercept[:, None]
    cross = transposed @ curvature[:, :, None]
    corner = curvature.sum(axis=1)[:, None, None] + precision
    whole = np.concatenate(
        [np.concatenate([matrix, cross], axis=2), np.concatenate([np.swapaxes(cross, 1, 2), corner], axis=2)], axis=1
    )
    return np.concatenate([gradient, slope], axis=1), whole


def moved(problem: WeightedCounts, factors: Factors, step: Float[np.ndarray, "B d"]) -> Factors:
    """Apply steps in the coordinates of :func:`information`, and make columns orthonormal again."""
    size, rank = factors.vectors.shape[1:]
    entries = size * rank
    vectors = factors.vectors + step[:, :entries].reshape(-1, size, rank)
    eigenvalues = factors.eigenvalues + step[:, entries : entries + rank]
    intercept = factors.intercept
    if problem.intercept_scale is not None:
        intercept = intercept + step[:, -1]
    form = (vectors * eigenvalues[:, None]) @ np.swapaxes(vectors, 1, 2)
    return Factors(*leading(form, rank), intercept)


def fit(problem: WeightedCounts, factors: Factors) -> tuple[Factors, Float[np.ndarray, " B"]]:
    """Optimise each start towards a local maximum, for at most 40 steps; return the factors and the objective there."""
    values = objective(problem, factors)
    damping = np.full(len(values), 1e-2)
    for _ in range(_MOST_STEPS):
        gradient, matrix = information(problem, factors)
        diagonal = np.einsum("bdd->bd", matrix)
        # regularise directions without information by a small multiple of the largest
        added = damping[:, None] * (diagonal + 1e-6 * diagonal.max(axis=1, keepdims=True))
        damped = matrix + added[:, :, None] * np.eye(matrix.shape[1])
        trial = moved(problem, factors, np.linalg.solve(damped, gradient[:, :, None])[:, :, 0])
        found = objective(problem, trial)
        is_better = found > values
        gain = np.where(is_better, found - values, 0.0)
        factors = Factors(
            *(
                np.where(is_better.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                for new, old in zip(trial, factors, strict=True)
            )
        )
        values = np.where(is_better, found, values)
        damping = np.clip(np.where(is_better, damping / 10, damping * 10), *_DAMPING)
        if np.all((gain < _TOLERANCE) & (is_better | (damping >= _DAMPING[1]))):
            break
    return factors, values


def _predictors(problem: WeightedCounts, factors: Factors) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = problem.pairs
    vectors = factors.vectors
    form = ((vectors * factors.eigenvalues[:, None]) @ np.swapaxes(vectors, 1, 2))[:, rows, columns]
    return form, form + factors.intercept[:, None]


def _multiplicity(problem: WeightedCounts) -> Float[np.ndarray, " m"]:
    return np.where(problem.pairs[0] == problem.pairs[1], 1.0, 2.0)


def _derivative(problem: WeightedCounts, factors: Factors) -> Float[np.ndarray, "B m d"]:
    rows, columns = problem.pairs
    vectors, eigenvalues = factors.vectors, factors.eigenvalues
    num, size, rank = vectors.shape
    place = np.arange(len(rows))
    by_entry = np.zeros((num, len(rows), size, rank))
    by_entry[:, place, rows] += eigenvalues[:, None] * vectors[:, columns]
    by_entry[:, place, columns] += eigenvalues[:, None] * vectors[:, rows]
    by_eigenvalue = vectors[:, rows] * vectors[:, columns]
    return np.concatenate([by_entry.reshape(num, len(rows), -1), by_eigenvalue], axis=2)
