"""Normal distributions on the host, with the methods of SciPy's frozen distributions but without their overhead."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri


class Normal(NamedTuple):
    """Normal distributions with the same methods as ``scipy.stats.norm(means, deviations)``."""

    means: np.ndarray
    deviations: np.ndarray

    def mean(self) -> np.ndarray:
        """Return the means."""
        return self.means

    def var(self) -> np.ndarray:
        """Return the variances."""
        return self.deviations**2

    def std(self) -> np.ndarray:
        """Return the standard deviations."""
        return self.deviations

    def cdf(self, x: Any) -> np.ndarray:
        """Return the probabilities of at most ``x``."""
        return ndtr((x - self.means) / self.deviations)

    def logpdf(self, x: Any) -> np.ndarray:
        """Return the log densities."""
        return -0.5 * ((x - self.means) / self.deviations) ** 2 - np.log(self.deviations) - 0.5 * np.log(2 * np.pi)

    def pdf(self, x: Any) -> np.ndarray:
        """Return the densities."""
        return np.exp(-0.5 * ((x - self.means) / self.deviations) ** 2) / (self.deviations * np.sqrt(2.0 * np.pi))

    def ppf(self, level: Any) -> np.ndarray:
        """Return the quantiles."""
        return self.means + ndtri(level) * self.deviations

    def rvs(self, size: Any, random_state: np.random.Generator) -> np.ndarray:
        """Draw from each distribution."""
        return self.means + self.deviations * random_state.standard_normal(size)

    def support(self) -> tuple[float, float]:
        """Return the ends of the support."""
        return -np.inf, np.inf
