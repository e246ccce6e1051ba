"""Regression by a Bayesian network of dense layers."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from geodax import _checks, nn
from geodax._wording import argument
from geodax.models.mlp.base import AbstractBayesianMLP
from geodax.models.mlp.options import MLPRegressorOptions
from geodax.models.numbers import PredictsNumbers
from geodax.models.unit_network.functions import moments
from geodax.predict.conformal import PredictionIntervals, prediction_intervals
from geodax.predict.mixtures import Mixture
from geodax.predict.numbers import NumberPredictions, log_normal, numbers_from_distributions

COUNTS = ("poisson", "negative-binomial")
SYMMETRIC = ("gaussian", "heteroscedastic", "student-t")
_REAL = (*SYMMETRIC, "log-normal")
_LARGEST_COUNT = 2**24  # larger integers are not exact in single precision


@dataclasses.dataclass(eq=False, repr=False)
class BayesianMLPRegressor(MLPRegressorOptions, PredictsNumbers, RegressorMixin, AbstractBayesianMLP):
    """Regression with the posterior ensemble of a network of dense layers; the noise is normal by default.

    Inputs are standardised internally, and targets too, except counts, whose network's output is the logarithm of the
    mean relative to the mean of y, and those of a custom likelihood. With ``likelihood="log-normal"`` the network
    predicts the logarithm of y. y may have several columns: targets with a common network, which are independent given
    its outputs and have their own noise; predictions then have an axis more, and log densities are joint;
    :meth:`for_target` has those of one target. Otherwise as :class:`BayesianMLPClassifier`.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout; a variable for each array of the network, in standardised
            units, and ``log_noise``.
        powers_: Power transforms of skewed columns of X, of networks with hidden layers.
        center_, spread_: Constants subtracted from each column of X after these transforms, and the divisors.
        target_center_, target_spread_: The same constants for y.
        calibration_: Targets, means and standard deviations of the rows held out for calibration, if any.
        indicators_: Indices of the columns of X whose missingness is a further input of the network.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = BayesianMLPRegressor(widths=(50,), random_state=0).fit(X, y)  # doctest: +SKIP
        >>> mean, deviation = model.predict(X_new, return_std=True)  # doctest: +SKIP
    """

    _column = None  # of the outputs, see for_target

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict_parts(self, X: Any, y: Any = None) -> NumberPredictions:
        distributions = (self._distribution(*block) for block in self._outputs(self._inputs(X)))
        targets = None if y is None else _checks.numbers(type(self).__name__, "y", y)
        if targets is not None and self._num_targets is None and targets.shape[1:] == (1,):  # a frame of one column
            targets = targets[:, 0]
        return numbers_from_distributions(distributions, targets=targets)

    def log_predictive(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        likelihood: Any = self._fitted[0].likelihood
        inputs = self._inputs(X)
        if not isinstance(likelihood, nn.CustomLikelihood) or (
            likelihood.distribution_fn is not None
            and self._distribution(*next(self._outputs(inputs[:1]))).mean().shape[2:] == np.shape(y)[1:]
        ):
            return super().log_predictive(X, y)
        with jax.enable_x64(True):
            targets = jnp.asarray(y, jnp.float64)
            each = [
                jax.vmap(lambda f: likelihood.log_density((f,), targets))(*block) for block in self._outputs(inputs)
            ]
        found = np.concatenate(each)
        return special.logsumexp(found, axis=0) - np.log(len(found))

    def predict_distribution(self, X: Any) -> Mixture:
        """Return the posterior predictive distributions, in the units of y: mixtures over the draws of the ensemble."""
        parts = zip(*self._outputs(self._inputs(X)), strict=True)
        return Mixture(self._distribution, tuple(np.concatenate(part) for part in parts))

    def _mixture(self, X: Any) -> Mixture:
        return self.predict_distribution(X)

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows *targets"]:
        return np.concatenate([self._distribution(*block).mean() for block in self._outputs(self._inputs(X))])

    def predict_cdf(self, X: Any, y: Any) -> Float[np.ndarray, "rows *targets"]:
        """Compute the posterior predictive probability of at most the given target; uniform if calibrated.

        For counts it is not uniform; use ``predict_distribution(X).ranks(y)``.

        Args:
            X: Inputs, rows x columns.
            y: Targets.

        Returns:
            One probability per row.

        Raises:
            ValueError: If there is not one target for each row.
        """
        found = self.predict_distribution(X)
        targets, rows = _checks.numbers("BayesianMLPRegressor.predict_cdf", "y", y), found.parameters[0].shape[1]
        expected = (rows,) if self._num_targets is None else (rows, self._num_targets)
        if targets.shape != expected:
            raise ValueError(
                f"BayesianMLPRegressor.predict_cdf: expected one target for each of the {rows} rows, of shape "
                f"{expected}, found an array of shape {targets.shape}."
            )
        return found.cdf(targets)

    def predict_interval(self, X: Any, alpha: float = 0.1) -> PredictionIntervals:
        """Compute split-conformal intervals, which contain the target with probability at least ``1 - alpha``.

        The widths are proportional to the predictive standard deviations, for ``"log-normal"`` on the scale of the
        logarithm. The ends for counts are the outermost counts inside the interval. With several targets, each has its
        own intervals and threshold.

        Args:
            X: Inputs, rows x columns.
            alpha: Allowed fraction of rows whose target is missed.

        Returns:
            Lower and upper ends, in the units of y.

        Raises:
            ValueError: If no rows were held out for calibration.
        """
        mean, deviation = self._predicted_moments(X)
        targets, known, scale = self._calibration()
        if targets.shape != known.shape:
            raise ValueError(
                f"BayesianMLPRegressor.predict_interval: the targets have shape {targets.shape}, the predictions of "
                f"{argument('likelihood')} {known.shape}; intervals need a prediction of each number of a target."
            )

        def of_target(k: Any) -> PredictionIntervals:
            return prediction_intervals(
                known[k], targets[k], mean[k], coverage=1.0 - alpha, calibration_scale=scale[k], scale=deviation[k]
            )

        if self._num_targets is None:
            found = of_target(...)
        else:
            each = [of_target((..., k)) for k in range(self._num_targets)]
            lower, upper = (np.stack(ends, axis=-1) for ends in list(zip(*each, strict=True))[:2])
            found = PredictionIntervals(lower, upper, max(one.threshold for one in each))
        if self._likelihood_of_fit == "log-normal":
            return found._replace(lower=np.exp(found.lower), upper=np.exp(found.upper))
        if self._likelihood_of_fit in COUNTS:
            return found._replace(lower=np.maximum(np.ceil(found.lower), 0.0), upper=np.floor(found.upper))
        return found

    def for_target(self, number: int) -> "BayesianMLPRegressor":
        """Return the predictions of one of several targets, as a fitted estimator of that target alone.

        Args:
            number: Index of the target among the columns of y.

        Returns:
            An estimator whose predictions have no axis of targets; it shares the draws, and cannot be fitted.

        Raises:
            ValueError: If y had one column, the index is out of range, or the likelihood is a custom one.
        """
        owner = "BayesianMLPRegressor.for_target"
        check_is_fitted(self)
        if self._num_targets is None or isinstance(self._likelihood_of_fit, nn.CustomLikelihood):
            raise ValueError(f"{owner}: expected a fit to several targets with a likelihood given by name.")
        number = _checks.whole(owner, "number", number, least=0, most=self._num_targets - 1)
        found = copy.copy(self)
        found._column, found._num_targets = number, None
        centers, spreads = np.asarray(self.target_center_), np.asarray(self.target_spread_)
        found.target_center_, found.target_spread_ = float(centers[number]), float(spreads[number])
        if hasattr(self, "calibration_"):
            found.calibration_ = tuple(part[:, number] for part in self.calibration_)
        return found

    def _outputs(self, inputs: np.ndarray) -> Iterator[Any]:
        for block in super()._outputs(inputs):
            yield block if self._column is None else tuple(part[..., self._column] for part in block)

    def _distribution(self, *parameters: np.ndarray) -> Any:
        found = self._unstandardised(*parameters)
        return log_normal(found) if self._likelihood_of_fit == "log-normal" else found

    def _unstandardised(self, *parameters: np.ndarray) -> Any:
        """Distributions of what the network predicts: of targets, or of their logarithms."""
        likelihood: Any = self._fitted[0].likelihood
        if self._likelihood_of_fit in _REAL:
            means, log_scales = parameters
            parameters = (self.target_center_ + self.target_spread_ * means, log_scales + np.log(self.target_spread_))
        return likelihood.distribution(*parameters)

    def _learn_targets(self, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        owner = type(self).__name__
        if not isinstance(self.likelihood, nn.CustomLikelihood):
            _checks.chosen(owner, "likelihood", self.likelihood, (*_REAL, *COUNTS))
        self._num_targets = y.shape[1] if y.ndim == 2 else None
        self._likelihood_of_fit = self.likelihood  # of predictions, even if options change later
        y = self._predicted(y)
        center, spread = moments(y, weights)
        if self.likelihood in _REAL:
            is_still = (spread == 1.0) & (np.ptp(y, axis=0) <= 1e-12 * np.maximum(np.abs(center), 1e-300))
            if np.any(is_still):
                value = np.atleast_2d(y.T)[np.flatnonzero(is_still)[0], 0]
                value = np.exp(value) if self.likelihood == "log-normal" else value
                raise ValueError(f"{owner}: y is {value:g} in all rows; expected at least two values.")
        elif self.likelihood in COUNTS:
            is_wrong = (y < 0) | (y != np.round(y)) | (y > _LARGEST_COUNT)
            if is_wrong.any() or not np.all(center > 0):
                found = f"{y[is_wrong][0]:g}" if is_wrong.any() else "only zeros"
                raise ValueError(
                    f"{owner}: {argument('likelihood', self.likelihood)} expects counts in y, integers from 0 to "
                    f"{_LARGEST_COUNT:,}, found {found}. For other positive numbers take their logarithm."
                )
            self._base_rate = float(center) if y.ndim == 1 else tuple(center.tolist())
        if self.likelihood not in _REAL:
            center, spread = np.zeros_like(center), np.ones_like(spread)
        self.target_center_, self.target_spread_ = (
            (float(center), float(spread)) if y.ndim == 1 else (np.asarray(center), np.asarray(spread))
        )
        return ((y - center) / spread).astype(np.float32)

    def _predicted(self, y: np.ndarray) -> np.ndarray:
        """What the network predicts, in its units: y, or its logarithm."""
        if self.likelihood != "log-normal":
            return y
        if (y <= 0).any():
            raise ValueError(
                f"{type(self).__name__}: {argument('likelihood', 'log-normal')} expects positive numbers in y, found "
                f"{y[y <= 0][0]:g}. Use another likelihood, or leave these rows out."
            )
        return np.log(y)

    def _checked(self, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = super()._checked(X, y, y_numeric=True, multi_output=True, **options)
        targets = np.asarray(targets, np.float64)
        return inputs, column_or_1d(targets, warn=True) if targets.shape[1:] == (1,) else targets

    def _targets_of_problem(self) -> dict[str, Any]:
        likelihood = self._likelihood()
        number = likelihood.num_outputs(self._num_targets or 1)
        is_scalar = self._num_targets is None and number == 1
        if isinstance(likelihood, nn.CustomLikelihood) and self._num_targets is None:
            is_scalar = likelihood.outputs_per_example is None
        return {
            "out_features": None if is_scalar else number,
            "likelihood": likelihood,
            "num_targets": self._num_targets,
        }

    def _likelihood(self) -> nn.AbstractLikelihood:
        if isinstance(self.likelihood, nn.CustomLikelihood):
            return self.likelihood
        noise, name = self.noise, self.likelihood
        if noise is not None:
            noise = _checks.number("BayesianMLPRegressor", "noise", noise, above=0.0)
            if name in ("heteroscedastic", "poisson") or (self._num_targets is not None and name in _REAL):
                has_none = name in ("heteroscedastic", "poisson")
                why = "has none" if has_none else "has one for each of several targets"
                raise ValueError(
                    f"BayesianMLPRegressor: {argument('noise')} cannot be given, found {noise:g}: "
                    f"{argument('likelihood', name)} {why}."
                )
        if name == "poisson":
            return nn.PoissonLikelihood(self._base_rate)
        if name == "negative-binomial":
            return nn.NegativeBinomialLikelihood(None if noise is None else noise**2, self._base_rate)
        if name == "heteroscedastic":
            return nn.HeteroscedasticLikelihood()
        known = None if noise is None else noise / float(self.target_spread_)
        return nn.StudentTLikelihood(known) if name == "student-t" else nn.GaussianLikelihood(known)

    def _remember_calibration(self, X: Any, y: np.ndarray) -> None:
        self.calibration_ = (self._predicted(np.asarray(y, np.float64)), *self._predicted_moments(X))

    def _predicted_moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of what the network predicts, in its units."""
        found = numbers_from_distributions(self._unstandardised(*block) for block in self._outputs(self._inputs(X)))
        return found.mean, np.sqrt(found.variance)
