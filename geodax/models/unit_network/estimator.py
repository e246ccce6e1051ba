"""A ReLU network with unit weight vectors, as a scikit-learn estimator."""

import dataclasses
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from geodax import _checks
from geodax._normal import Normal
from geodax._wording import argument, in_python
from geodax.models import missing
from geodax.models.numbers import PredictsNumbers
from geodax.models.options import require_count, require_positive, require_targets, sampled, seed_of
from geodax.models.pooling import MOST_PREDICTIVE_DRAWS, pooled, thinned
from geodax.models.run_arguments import AllowsMissing, RunArguments, all_or_nothing
from geodax.models.unit_network import density
from geodax.models.unit_network.density import UnitNetworkForm, UnitNetworkParameters, UnitNetworkPrior
from geodax.models.unit_network.functions import anchors, explained_share, functions, log_predictive, moments
from geodax.models.unit_network.labels import matching
from geodax.models.unit_network.options import UnitNetworkOptions
from geodax.models.unit_network.starts import starting_point
from geodax.models.validation import validated
from geodax.predict.mixtures import Mixture
from geodax.predict.numbers import NumberPredictions

_MOST_UNITS = 1000


@dataclasses.dataclass(eq=False, repr=False)
class UnitNetworkRegressor(
    AllowsMissing, RunArguments, UnitNetworkOptions, PredictsNumbers, RegressorMixin, BaseEstimator
):
    r"""Regression with one hidden ReLU layer whose units have unit weight vectors.

    :math:`y = a + \sum_h v_h \max\{0, w_h^T x + b_h\}` plus Gaussian noise (Pourzanjani et al. 2021, section 6.1).
    With free weights, rescaling :math:`(w_h, b_h)` against :math:`v_h` leaves the function unchanged; unit vectors
    remove that ridge from the posterior. They are sampled on the sphere by :func:`geodax.nuts`. Inputs and outputs are
    standardised internally. X may have missing cells (NaN): the fit and the predictions average over draws of them
    given the other cells (:mod:`geodax.models.missing`).

    The posterior is invariant under permutations of the units. In ``posterior_`` units are matched across draws by
    their contributions to the output; predictions, ``noise`` and ``r2`` do not depend on the matching. Networks also
    have other modes, between which chains do not move: check R-hat of ``fit``.

    All prior scales are in standardised units.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout with ``weights`` (H x D), ``bias`` (H), ``output`` (H),
            ``intercept``, ``noise``, ``r2`` (fraction of variance explained, Gelman et al. 2019), and ``fit``, the mean
            function on some rows of the data, all in standardised units.
        noise_: Posterior mean standard deviation of the noise, in the units of y.
        center_, spread_: Constants subtracted from each column of X, and the divisors.
        target_center_, target_spread_: The same constants for y.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = UnitNetworkRegressor(n_hidden=4, random_state=0).fit(X, y)  # doctest: +SKIP
        >>> mean, deviation = model.predict(X, return_std=True)  # doctest: +SKIP
    """

    @all_or_nothing
    def fit(self, X: Any, y: Any) -> "UnitNetworkRegressor":
        """Sample the posterior.

        Args:
            X: Inputs, rows x columns, NaN where a cell is missing.
            y: Output of each row.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If inputs are infinite or a column of them is empty, if there are fewer than two rows, if
                outputs are missing or constant, or if options do not fit the data.
        """
        inputs, targets = self.prepare(X, y)
        first = _first_draw(inputs)
        form, prior = self._form(), self._prior()
        posterior = sampled(
            self,
            seed_of(self),
            density.log_density(inputs, targets, form, prior),
            lambda key: starting_point(key, first, targets, self.n_hidden, form, prior),
            manifold=density.geometry(form),
            keep=lambda position: density.parameters(position, form, prior)._asdict(),
        )
        return self._take(first, posterior)

    def prepare(self, X: Any, y: Any) -> tuple[Float[np.ndarray, "rows *draws D"], Float[np.ndarray, " rows"]]:
        """Check options and the data of a fit, and compute the standardisation.

        Returns:
            Standardised inputs and outputs; the inputs have several draws along the second axis if cells are missing.
        """
        require_targets("UnitNetworkRegressor", y)
        checked = validated(self, X, y, y_numeric=True, ensure_min_samples=2)
        inputs, targets = (np.asarray(array, np.float64) for array in checked)
        require_count(self, "n_hidden", _MOST_UNITS, "more have never been tried")
        form = self._form()
        require_positive(self, "bias_scale", "output_scale", "noise_scale", "weight_scale")
        if form == UnitNetworkForm("unit", "separate") and inputs.shape[1] == 1:
            raise ValueError(
                f"UnitNetworkRegressor: with one input{in_python(' (n_features = 1)')} a unit weight vector is only a "
                f"sign. Use {argument('bias', 'joint')}, which combines weight and bias into one unit vector."
            )
        missing.require_values("UnitNetworkRegressor", inputs, getattr(self, "feature_names_in_", None))
        self.center_, self.spread_ = moments(inputs)
        standardised, num_draws = self._standardised(inputs), missing.num_draws_for(np.isnan(inputs))
        self._joint = missing.joint_normal(standardised)
        center, spread = moments(targets)
        if spread == 1.0 and np.ptp(targets) <= 1e-12 * max(abs(center), 1e-300):
            raise ValueError(f"UnitNetworkRegressor: y is {targets[0]:g} in all rows; expected at least two values.")
        self.target_center_, self.target_spread_ = float(center), float(spread)
        if num_draws > 1:
            standardised = missing.draw_missing(self._joint, standardised, num_draws, np.random.default_rng(1))
        return standardised, (targets - center) / spread

    def with_posterior(self, X: Any, y: Any, posterior: Any) -> "UnitNetworkRegressor":
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        inputs, _ = self.prepare(X, y)
        return self._take(_first_draw(inputs), posterior)

    def predict_parts(self, X: Any, y: Any = None) -> NumberPredictions:
        draws, noise = self._draws_and_noise(X)
        density = None if y is None else log_predictive(y, draws, noise)
        aleatoric = np.full(draws.shape[1], np.mean(noise**2))
        return NumberPredictions(draws.mean(axis=0), aleatoric, draws.var(axis=0), density, len(draws))

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows"]:
        check_is_fitted(self)
        inputs = self._standardised(np.asarray(validated(self, X, reset=False)))
        holes = np.flatnonzero(np.isnan(inputs).any(axis=1))
        if not len(holes):
            return self.target_center_ + self.target_spread_ * functions(self.draws(), inputs)
        drawn = missing.draw_missing(self._joint, inputs[holes], missing.NUM_DRAWS)
        values = functions(self.draws(), missing.with_draws(inputs, drawn, holes))
        values = missing.at_own_draw(values, holes, len(inputs), np.arange(len(values)) % missing.NUM_DRAWS)
        return self.target_center_ + self.target_spread_ * values

    def _mixture(self, X: Any) -> Mixture:
        draws, noise = self._draws_and_noise(X)
        return Mixture(Normal, (draws, np.broadcast_to(noise[:, None], draws.shape)))

    def _draws_and_noise(self, X: Any) -> tuple[Float[np.ndarray, "draw rows"], Float[np.ndarray, " draw"]]:
        return self.predict_draws(X), self.target_spread_ * np.asarray(self.draws().noise)

    def draws(self, most: int | None = MOST_PREDICTIVE_DRAWS) -> UnitNetworkParameters:
        """Return the draws of all chains concatenated, thinned evenly to at most ``most``; None is 4,000."""
        check_is_fitted(self)
        return UnitNetworkParameters(**pooled(self.posterior_, UnitNetworkParameters._fields, most))

    def _take(self, inputs: Float[np.ndarray, "rows D"], posterior: Any) -> "UnitNetworkRegressor":
        tree = thinned(posterior).copy()
        group = tree["posterior"].to_dataset()
        shape = group["noise"].shape
        theta = UnitNetworkParameters(**pooled(tree, UnitNetworkParameters._fields, shape[0] * shape[1]))
        log_densities = tree["sample_stats"]["lp"].values[:, group["draw"].values]
        order = matching(theta, inputs, first=int(np.argmax(log_densities)))
        matched = {
            "weights": np.take_along_axis(np.asarray(theta.weights), order[..., None], axis=1),
            "bias": np.take_along_axis(np.asarray(theta.bias), order, axis=1),
            "output": np.take_along_axis(np.asarray(theta.output), order, axis=1),
        }
        tree["posterior"] = group.assign(
            r2=(("chain", "draw"), explained_share(theta, inputs).reshape(shape)),
            fit=(("chain", "draw", "anchor"), functions(theta, inputs[anchors(inputs)]).reshape(*shape, -1)),
            **{name: (group[name].dims, values.reshape(group[name].shape)) for name, values in matched.items()},
        )
        self.posterior_ = tree
        self.noise_ = float(self.target_spread_ * group["noise"].values.mean())
        return self

    def _standardised(self, inputs: Float[np.ndarray, "rows D"]) -> Float[np.ndarray, "rows D"]:
        return (inputs - self.center_) / self.spread_

    def _prior(self) -> UnitNetworkPrior:
        return UnitNetworkPrior(
            bias_scale=self.bias_scale,
            output_scale=self.output_scale,
            noise_scale=self.noise_scale,
            weight_scale=self.weight_scale,
        )

    def _form(self) -> UnitNetworkForm:
        weights = _checks.chosen("UnitNetworkRegressor", "weights", self.weights, density.WEIGHTS)
        bias = _checks.chosen("UnitNetworkRegressor", "bias", self.bias, density.BIASES)
        return UnitNetworkForm(cast(density.Weights, weights), cast(density.Bias, bias))


def _first_draw(inputs: Float[np.ndarray, "rows *draws D"]) -> Float[np.ndarray, "rows D"]:
    return inputs if inputs.ndim == 2 else np.ascontiguousarray(inputs[:, 0])
