"""The target of the benchmarks on the Stiefel manifold, its exact moments, and how far draws are from them.

log pi(X) = tr(F^T X) + tr(D X^T B X), a matrix Langevin plus Bingham density, drawn from a fixed seed for each size.

Two yardsticks tell a right sampler from a wrong one:

- the moments E[X] and E[log pi] of ``benchmarks/results/stiefel_moments.json`` (written by ``benchmarks/_moments.py``);
- an identity that needs no reference at all. The Laplacian of X on the manifold is -(n - (p + 1) / 2) X, so that integration by
  parts gives E[Pi_X(grad log pi(X)) - (n - (p + 1) / 2) X] = 0, with the projection Pi_X(U) = U - X sym(X^T U).
"""

import json
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from geodax.diagnostics.findings import ess

RESULTS = Path(__file__).resolve().parents[1] / "results"
MOMENTS = RESULTS / "stiefel_moments.json"
LEAST_EFFECTIVE = 200


class Target(NamedTuple):
    """The density's matrices, in NumPy, for every language; ``weights`` is the diagonal of D."""

    f: np.ndarray
    b: np.ndarray
    weights: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.f.shape

    def logdensity(self, x):
        """For JAX, a single matrix."""
        f, b, weights = (jnp.asarray(a) for a in self)
        return jnp.sum(f * x) + jnp.sum(x * (b @ x) * weights[None])

    def values(self, x: np.ndarray) -> np.ndarray:
        """Log densities of a stack of matrices."""
        return np.sum(self.f * x, (-2, -1)) + np.sum(x * (self.b @ x) * self.weights, (-2, -1))

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Gradients in the ambient space of one matrix or a stack."""
        return self.f + 2 * (self.b @ x) * self.weights


def make_target(n: int, p: int) -> Target:
    generator = np.random.default_rng([n, p])
    f = 1.5 * np.sqrt(n) * generator.standard_normal((n, p))
    b = generator.standard_normal((n, n))
    return Target(f, (b + b.T) / 2, np.arange(1, p + 1) / p)


class Moments(NamedTuple):
    """Means of the entries of X and of the log density, with their standard errors, and where they come from."""

    x: np.ndarray
    x_error: np.ndarray
    logdensity: float
    logdensity_error: float
    source: str


def read_moments(n: int, p: int) -> Moments | None:
    """What is on file for this size, or None."""
    stored = json.loads(MOMENTS.read_text())["sizes"].get(f"{n},{p}") if MOMENTS.exists() else None
    if stored is None:
        return None
    return Moments(
        np.array(stored["mean"]),
        np.array(stored["mean_error"]),
        stored["mean_log_density"],
        stored["mean_log_density_error"],
        stored["source"],
    )


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over (chain, draw, ...) and their standard errors by the effective sample sizes."""
    effective = ess(values, method="mean")
    return values.mean((0, 1)), values.reshape(-1, *values.shape[2:]).std(0) / np.sqrt(effective)


class Errors(NamedTuple):
    """Largest absolute errors in units of their standard errors.

    Attributes:
        mean_log_density: Mean of the log density.
        mean_log_density_error: Its standard error.
        entries: Largest |z| over the entries of E[X].
        logdensity: z of E[log pi].
        identity: Largest |z| over the entries of the identity of integration by parts.
        bound: What the largest of all these exceeds once in a thousand right samplers, if they were independent.
        effective_draws: Smallest effective number of draws for the mean of an entry.
    """

    mean_log_density: float
    mean_log_density_error: float
    entries: float | None
    logdensity: float | None
    identity: float
    bound: float
    effective_draws: float

    @property
    def verdict(self) -> str:
        """Too few effective draws can neither clear nor convict a sampler: their standard errors are not known."""
        if self.effective_draws < LEAST_EFFECTIVE:
            return "undecided"
        largest = max(abs(z) for z in (self.entries, self.logdensity, self.identity) if z is not None)
        return "right" if largest < self.bound else "wrong"


def errors(target: Target, draws: np.ndarray, moments: Moments | None) -> Errors:
    """How far draws of shape (chain, draw, n, p) are from the truth."""
    n, p = target.shape
    value, value_error = mean_and_error(target.values(draws))
    gradient = target.gradients(draws)
    inner = np.swapaxes(draws, -1, -2) @ gradient
    projected = gradient - draws @ (inner + np.swapaxes(inner, -1, -2)) / 2
    defect, defect_error = mean_and_error(projected - (n - (p + 1) / 2) * draws)
    entries = logdensity = None
    if moments is not None:
        mean, error = mean_and_error(draws)
        entries = float(np.max(np.abs(mean - moments.x) / np.hypot(error, moments.x_error)))
        logdensity = float((value - moments.logdensity) / np.hypot(value_error, moments.logdensity_error))
    count = n * p + (n * p + 1 if moments is not None else 0)
    return Errors(
        mean_log_density=float(value),
        mean_log_density_error=float(value_error),
        entries=entries,
        logdensity=logdensity,
        identity=float(np.max(np.abs(defect) / defect_error)),
        bound=float(norm.isf(0.0005 / count)),
        effective_draws=float(np.min(ess(draws, method="mean"))),
    )
