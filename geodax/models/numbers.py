"""Predictions that all estimators of numbers make alike, from the predictive distributions of rows."""

import abc
from typing import Any

import numpy as np
from jaxtyping import Float

from geodax.predict.mixtures import Mixture, as_levels
from geodax.predict.numbers import NumberPredictions


class PredictsNumbers(abc.ABC):
    """An estimator with a predictive distribution of numbers for each row."""

    @abc.abstractmethod
    def predict_parts(self, X: Any, y: Any = None) -> NumberPredictions:
        """Compute means, and variances with their decomposition.

        Args:
            X: Rows, as in the fit.
            y: Targets, for their predictive density.

        Returns:
            Means, the variance of the noise (aleatoric) and of the function (epistemic), and log predictive densities
            (of counts: probabilities) if there are targets; all in the units of y.
        """

    @abc.abstractmethod
    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows *targets"]:
        """Return the noise-free function at each draw: the expected target.

        Args:
            X: Rows, as in the fit.

        Returns:
            One prediction per row for each posterior draw used, in the units of y.
        """

    @abc.abstractmethod
    def _mixture(self, X: Any) -> Mixture:
        """Return the predictive distributions."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Compute the posterior predictive mean.

        Args:
            X: Rows, as in the fit.
            return_std: Whether to also return the standard deviation of the predictive distribution, which includes
                the noise.

        Returns:
            The means, or means and standard deviations, in the units of y.
        """
        found = self.predict_parts(X)
        return (found.mean, np.sqrt(found.variance)) if return_std else found.mean

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.95)) -> Float[np.ndarray, "levels rows *targets"]:
        """Compute quantiles of the posterior predictive distribution, exact for the draws used.

        Args:
            X: Rows, as in the fit.
            levels: A sequence of probabilities from 0 to 1.

        Returns:
            One row of quantiles per level, in the units of y; integers for counts.

        Raises:
            TypeError: If ``levels`` is not a sequence of numbers.
            ValueError: If a level is not between 0 and 1.
        """
        numbers = as_levels(f"{type(self).__name__}.predict_quantiles", levels)
        return self._mixture(X).quantiles(numbers)

    def sample_y(self, X: Any, *, random_state: int = 0) -> Float[np.ndarray, "draw rows *targets"]:
        """Draw targets from the posterior predictive distribution.

        Args:
            X: Rows, as in the fit.
            random_state: Seed of the noise.

        Returns:
            One target per row for each posterior draw used, in the units of y.
        """
        return self._mixture(X).sample(random_state)

    def log_predictive(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """Compute the log posterior predictive density of each row's target, in the units of y.

        Args:
            X: Rows, as in the fit.
            y: Targets.

        Returns:
            The log of the density (of counts: the probability) averaged over the draws.
        """
        density = self.predict_parts(X, y).log_density
        assert density is not None
        return density
