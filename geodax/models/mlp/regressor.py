"""Regression by a Bayesian network of dense layers."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from geodax import _checks
from geodax.models.mixtures import as_levels, mixture_probability, mixture_quantiles
from geodax.models.mlp.base import AbstractBayesianMLP
from geodax.models.mlp.options import MLPRegressorOptions
from geodax.models.options import require_targets
from geodax.models.unit_network.functions import moments
from geodax.predict.conformal import PredictionIntervals, prediction_intervals
from geodax.predict.predictive import NumberPredictions, numbers_from_means


@dataclasses.dataclass(eq=False, repr=False)
class BayesianMLPRegressor(MLPRegressorOptions, RegressorMixin, AbstractBayesianMLP):
    """Regression with normal noise and the posterior ensemble of a network of dense layers.

    Inputs and targets are standardised internally. Otherwise as :class:`BayesianMLPClassifier`, with one more option,
    ``noise``.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout; a variable for each array of the network, in standardised
            units, and ``log_noise``.
        center_, spread_: Constants subtracted from each column of X, and the divisors.
        target_center_, target_spread_: The same constants for y.
        calibration_: Targets, means and standard deviations of the rows held out for calibration, if any.
        indicators_: Indices of the columns of X whose missingness is a further input of the network.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = BayesianMLPRegressor(widths=(50,), random_state=0).fit(X, y)  # doctest: +SKIP
        >>> mean, deviation = model.predict(X_new, return_std=True)  # doctest: +SKIP
    """

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Compute the posterior predictive mean.

        Args:
            X: Inputs, rows x columns.
            return_std: Whether to also return the standard deviation of the predictive distribution, which includes
                the noise.

        Returns:
            The means, or means and standard deviations, in the units of y.
        """
        found = self.predict_parts(X)
        return (found.mean, np.sqrt(found.variance)) if return_std else found.mean

    def predict_parts(self, X: Any, y: Any = None) -> NumberPredictions:
        """Compute means, and variances with their decomposition.

        Args:
            X: Inputs, rows x columns.
            y: Targets, for their predictive density.

        Returns:
            Means, the variance of the noise (aleatoric) and of the function (epistemic), and log predictive densities
            where targets were given; all in the units of y.
        """
        inputs = self._inputs(X)
        blocks = ((self._in_units(means), self.target_spread_ * noise) for means, noise in self._outputs(inputs))
        return numbers_from_means(blocks, targets=None if y is None else np.asarray(y, np.float64))

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows"]:
        """Return the noise-free function at each draw.

        Args:
            X: Inputs, rows x columns.

        Returns:
            One prediction per row for each draw of the ensemble, in the units of y.
        """
        return np.concatenate([self._in_units(means) for means, _ in self._outputs(self._inputs(X))])

    def predict_quantiles(self, X: Any, levels: Any = (0.05, 0.95)) -> Float[np.ndarray, "levels rows"]:
        """Compute quantiles of the posterior predictive distribution, exact for the ensemble.

        Args:
            X: Inputs, rows x columns.
            levels: A sequence of probabilities from 0 to 1.

        Returns:
            One row of quantiles per level, in the units of y.

        Raises:
            TypeError: If ``levels`` is not a sequence of numbers.
            ValueError: If a level is not between 0 and 1.
        """
        numbers = as_levels("BayesianMLPRegressor.predict_quantiles", levels)
        return self._in_units(mixture_quantiles(numbers, *self._parts(X)))

    def predict_cdf(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """Compute the posterior predictive probability of at most the given target; uniform if calibrated.

        Args:
            X: Inputs, rows x columns.
            y: Targets.

        Returns:
            One probability per row.

        Raises:
            ValueError: If there is not one target for each row.
        """
        means, deviations = self._parts(X)
        targets = _checks.numbers("BayesianMLPRegressor.predict_cdf", "y", y)
        if targets.shape != means.shape[1:]:
            raise ValueError(
                f"BayesianMLPRegressor.predict_cdf: expected one target for each of the {means.shape[1]} rows, found "
                f"an array of shape {targets.shape}."
            )
        return mixture_probability((targets - self.target_center_) / self.target_spread_, means, deviations)

    def sample_y(self, X: Any, *, random_state: int = 0) -> Float[np.ndarray, "draw rows"]:
        """Draw targets from the posterior predictive distribution.

        Args:
            X: Inputs, rows x columns.
            random_state: Seed of the noise.

        Returns:
            One target per row for each draw of the ensemble, in the units of y.
        """
        generator = np.random.default_rng(random_state)
        drawn = [
            means + noise * generator.standard_normal(means.shape) for means, noise in self._outputs(self._inputs(X))
        ]
        return self._in_units(np.concatenate(drawn))

    def log_predictive(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """Compute the log posterior predictive density of each row's target, in the units of y.

        Args:
            X: Inputs, rows x columns.
            y: Targets.

        Returns:
            The log of the density averaged over the draws.
        """
        density = self.predict_parts(X, y).log_density
        assert density is not None
        return density

    def predict_interval(self, X: Any, alpha: float = 0.1) -> PredictionIntervals:
        """Compute split-conformal intervals, which contain the target with probability at least ``1 - alpha``.

        The widths are proportional to the predictive standard deviations.

        Args:
            X: Inputs, rows x columns.
            alpha: Allowed fraction of rows whose target is missed.

        Returns:
            Lower and upper ends, in the units of y.

        Raises:
            ValueError: If no rows were held out for calibration.
        """
        mean, deviation = self.predict(X, return_std=True)
        targets, known, scale = self._calibration()
        return prediction_intervals(
            known, targets, mean, coverage=1.0 - alpha, calibration_scale=scale, scale=deviation
        )

    def _parts(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means and noise standard deviations of all draws, in standardised units."""
        blocks = list(self._outputs(self._inputs(X)))
        return np.concatenate([means for means, _ in blocks]), np.concatenate([noise for _, noise in blocks])

    def _learn_targets(self, y: np.ndarray) -> np.ndarray:
        targets = np.asarray(y, np.float64)
        center, spread = moments(targets)
        if spread == 1.0 and np.ptp(targets) <= 1e-12 * max(abs(center), 1e-300):
            raise ValueError(f"BayesianMLPRegressor: y is {targets[0]:g} in all rows; expected at least two values.")
        self.target_center_, self.target_spread_ = float(center), float(spread)
        return ((targets - center) / spread).astype(np.float32)

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        require_targets(type(self).__name__, y)
        inputs, targets = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, ensure_all_finite="allow-nan", ensure_min_samples=2
        )
        return np.asarray(inputs), np.asarray(targets, np.float64)

    def _num_outputs(self) -> int | None:
        return None

    def _known_noise(self) -> float | None:
        if self.noise is None:
            return None
        return _checks.number("BayesianMLPRegressor", "noise", self.noise, above=0.0) / self.target_spread_

    def _in_units(self, values: np.ndarray) -> np.ndarray:
        return self.target_center_ + self.target_spread_ * values

    def _remember_calibration(self, X: Any, y: np.ndarray) -> None:
        self.calibration_ = (np.asarray(y, np.float64), *self.predict(X, return_std=True))
