"""Classification by a Bayesian network of dense layers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from geodax import _checks, nn
from geodax._wording import argument
from geodax.models.mlp.base import AbstractBayesianMLP
from geodax.models.mlp.options import MLPClassifierOptions
from geodax.predict.classes import ClassPredictions, classes_from_logits, loo_temperature
from geodax.predict.conformal import prediction_sets

_MOST_LEFT_OUT = 1000  # rows whose leave-one-out predictions determine the temperature
_LEAST_DRAWS = 50  # fewer say little about predictions without a row


@dataclasses.dataclass(eq=False, repr=False)
class BayesianMLPClassifier(MLPClassifierOptions, ClassifierMixin, AbstractBayesianMLP):
    """Classification with the posterior ensemble of a network of dense layers.

    Inputs are standardised internally. The default inference is stochastic-gradient MCMC on minibatches: each chain
    trains from its own initialisation in most of the warm-up, and then samples
    (:mod:`geodax.models.mlp.stochastic` describes the step size and temperature). The chains of a network explore
    different modes; the ensemble averages over all of them. X may have missing cells (NaN): the fit and the predictions
    average over draws of them given the other cells (:mod:`geodax.models.missing`).

    Priors that keep networks near the uniform prediction make the ensemble under-confident where classes are easy to
    tell apart. Probabilities are therefore sharpened by a temperature, found on at most 1,000 fitted rows from at least
    50 draws (:func:`geodax.predictive.loo_temperature`). Rows with missing cells take no part: their probabilities also
    average over what is missing, and are not sharpened.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout, with a variable for each array of the network.
        classes_: The labels.
        powers_: Power transforms of skewed columns of X, of networks with hidden layers.
        center_, spread_: Constants subtracted from each column of X after these transforms, and the divisors.
        calibration_: Probabilities and class indices of the rows held out for calibration, if any; -1 for a class that
            does not occur in the fitted rows.
        scaling_temperature_: The temperature of predicted probabilities, at most 1; 1 changes nothing.
        indicators_: Indices of the columns of X whose missingness is a further input of the network.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = BayesianMLPClassifier(widths=(50,), random_state=0).fit(X, y)  # doctest: +SKIP
        >>> model.predict_proba(X_new)  # doctest: +SKIP
    """

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label of the most probable class of each row."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "rows classes"]:
        """Compute posterior predictive probabilities in the order of ``classes_``: means over the draws, sharpened."""
        return self.predict_parts(X).probabilities

    def predict_parts(self, X: Any) -> ClassPredictions:
        """Compute probabilities, and the entropy of each row with its aleatoric and epistemic parts, in nats."""
        inputs = self._inputs(X)
        temperatures = np.where(np.isnan(inputs).any(axis=1), 1.0, self.scaling_temperature_)
        return classes_from_logits(self._logits(inputs)).at_temperature(temperatures)

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows classes"]:
        """Return the probabilities of each draw of the ensemble, not sharpened, with the chains concatenated."""
        return np.concatenate([special.softmax(logits, axis=-1) for logits in self._logits(self._inputs(X))])

    def log_predictive(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """Compute the log posterior predictive probability of each row's class.

        Args:
            X: Inputs, rows x columns.
            y: Labels.

        Returns:
            One number per row, at most 0; minus infinity for a label that was not in the training data.

        Raises:
            ValueError: If there is not one label for each row.
        """
        return self.log_of(self.predict_proba(X), y)

    def log_of(self, probabilities: np.ndarray, y: Any) -> Float[np.ndarray, " rows"]:
        """As :meth:`log_predictive`, from the probabilities of :meth:`predict_proba`."""
        labels = _checks.labels("BayesianMLPClassifier.log_predictive", "labels", y)
        if labels.shape != (len(probabilities),):
            raise ValueError(
                f"BayesianMLPClassifier.log_predictive: expected one label for each of the {len(probabilities)} rows, "
                f"found an array of shape {labels.shape}."
            )
        try:
            numbers = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        except TypeError as error:
            raise TypeError(
                "BayesianMLPClassifier.log_predictive: expected labels such as "
                f"{_checks.described(self.classes_[0])}, found {_checks.described(labels.tolist()[0])}."
            ) from error
        is_known = self.classes_[numbers] == labels
        with np.errstate(divide="ignore"):
            return np.where(is_known, np.log(probabilities[np.arange(len(numbers)), numbers]), -np.inf)

    def predict_set(self, X: Any, alpha: float = 0.1, *, score: str = "aps") -> Bool[np.ndarray, "rows classes"]:
        """Compute split-conformal sets, which contain the true class with probability at least ``1 - alpha``.

        The set of a row does not depend on the other rows of the call. A class that does not occur in the fitted rows
        is in no set: held-out rows of such classes enlarge the sets of all rows, and if their fraction exceeds
        ``alpha``, even sets of all classes cover less than requested.

        Args:
            X: Inputs, rows x columns.
            alpha: Allowed fraction of rows whose class is missed.
            score: ``"aps"`` or ``"lac"``, see :func:`geodax.predict.conformal.prediction_sets`.

        Returns:
            Whether each class is in the set of a row, in the order of ``classes_``.

        Raises:
            ValueError: If no rows were held out for calibration.
        """
        probabilities = self.predict_proba(X)
        known, labels = self._calibration()
        return prediction_sets(known, labels, probabilities, coverage=1.0 - alpha, score=score).members

    def _logits(self, inputs: np.ndarray) -> Iterator[np.ndarray]:
        """Logits of the draws in the order of ``classes_``, block by block."""
        for logits in self._outputs(inputs):
            yield logits if self._places is None else logits[..., self._places]

    def _learn_targets(self, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        check_classification_targets(y)
        _checks.chosen(type(self).__name__, "likelihood", self.likelihood, ("categorical", "ordinal"))
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"BayesianMLPClassifier: y has only one class, {_checks.described(self.classes_[0])}, among the "
                "fitted rows; a classifier needs at least two."
            )
        is_ordinal = self.likelihood == "ordinal"
        if self.class_order is not None and not is_ordinal:
            raise ValueError(
                f"BayesianMLPClassifier: {argument('class_order')} is for {argument('likelihood', 'ordinal')}, found "
                f"{argument('likelihood', self.likelihood)}."
            )
        self._places = places_in_order(self.classes_, self.class_order) if is_ordinal else None
        return (numbers if self._places is None else self._places[numbers]).astype(np.int32)

    def _targets_of_problem(self) -> dict[str, Any]:
        number, likelihood = len(self.classes_), nn.CategoricalLikelihood()
        return {"out_features": number, "likelihood": likelihood, "is_ordinal": self.likelihood == "ordinal"}

    def _learn_from_draws(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> None:
        self.scaling_temperature_ = 1.0
        power = self._fitted[1].likelihood_power
        if power is None or not self.temperature_scaling or self._groups is not None:  # other rows tell of the group
            return
        sizes = self.posterior_["posterior"].sizes
        if sizes["chain"] * sizes["draw"] < _LEAST_DRAWS:
            return
        x = x[:, None] if x.ndim == 2 else x  # rows, draws of their missing cells, columns
        is_whole = (x == x[:, :1]).all(axis=(1, 2))
        rows = np.random.default_rng(self._seed()).permutation(np.flatnonzero(is_whole))[:_MOST_LEFT_OUT]
        if len(rows):
            powers = power if weights is None else power * weights[rows]
            logits = self._at_draws(x[rows, 0].astype(np.float64))
            self.scaling_temperature_ = loo_temperature(logits, y[rows], power=powers)

    def _remember_calibration(self, X: Any, y: np.ndarray) -> None:
        numbers = np.where(np.isin(y, self.classes_), np.searchsorted(self.classes_, y), -1)
        self.calibration_ = (self.predict_proba(X), numbers)


def places_in_order(classes: np.ndarray, order: Any) -> Int[np.ndarray, " classes"]:
    """Return the place of each class of the fitted rows among the ordered ones, from 0.

    ``order`` has the classes from lowest to highest, and may have others; None orders numbers by value. Raises
    ValueError if the classes are names and no order is given, or if it lacks one.
    """
    if order is None:
        try:
            values = classes.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"BayesianMLPClassifier: {argument('likelihood', 'ordinal')} needs the order of classes that are not "
                f"numbers: {argument('class_order')} with {', '.join(repr(name) for name in classes.tolist())}, from "
                "lowest to highest."
            ) from None
        return np.argsort(np.argsort(values, kind="stable"), kind="stable")
    names = list(order) if isinstance(order, Sequence | np.ndarray) and not isinstance(order, str) else []
    lacking = [name for name in classes.tolist() if name not in names]
    if lacking or len(set(names)) < len(names):
        raise ValueError(
            f"BayesianMLPClassifier: {argument('class_order')} must be a sequence with each class once, found "
            f"{_checks.described(order)}{f' without {lacking[0]!r}' if lacking else ''}."
        )
    return np.argsort(np.argsort([names.index(name) for name in classes.tolist()]))
