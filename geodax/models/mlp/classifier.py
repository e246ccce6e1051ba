"""Classification by a Bayesian network of dense layers."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from geodax.models.mlp.base import AbstractBayesianMLP
from geodax.predict.conformal import prediction_sets
from geodax.predict.predictive import ClassPredictions, classes_from_logits


@dataclasses.dataclass(eq=False, repr=False)
class BayesianMLPClassifier(ClassifierMixin, AbstractBayesianMLP):
    """Classification by the posterior ensemble of a network of dense layers.

    Inputs are standardised inside. The ensemble is made by stochastic-gradient MCMC on minibatches: each chain trains
    from an initialisation of its own in the first eighth of the warm-up, and samples afterwards
    (:mod:`geodax.models.mlp.stochastic` has the rules for step size and temperature). Chains of a network sit in
    different modes; the ensemble is over all of them.

    Attributes:
        posterior_: ``xarray.DataTree`` in ArviZ's layout; a variable for each array of the network.
        classes_: The labels.
        center_, spread_: What was subtracted from each column of X and what it was divided by.
        calibration_: Probabilities and class numbers of the rows held out for calibration, where there are any; -1 for
            a class that the rows of the fit do not have.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Example:
        >>> model = BayesianMLPClassifier(widths=(50,), random_state=0).fit(X, y)  # doctest: +SKIP
        >>> model.predict_proba(X_new)  # doctest: +SKIP
    """

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Args:
            X: Inputs, rows x columns.

        Returns:
            Labels, as they were in y.
        """
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]

    def predict_proba(self, X: Any) -> Float[np.ndarray, "rows classes"]:
        """Posterior predictive probabilities: the mean of the draws' probabilities.

        Args:
            X: Inputs, rows x columns.

        Returns:
            Probabilities, in the order of ``classes_``.
        """
        return self.predict_parts(X).probabilities

    def predict_parts(self, X: Any) -> ClassPredictions:
        """Probabilities and where their uncertainty comes from.

        Args:
            X: Inputs, rows x columns.

        Returns:
            Probabilities, and the entropy of each row with its aleatoric and its epistemic part, in nats.
        """
        return classes_from_logits(self._outputs(self._inputs(X)))

    def predict_draws(self, X: Any) -> Float[np.ndarray, "draw rows classes"]:
        """Probabilities of each draw of the ensemble.

        Args:
            X: Inputs, rows x columns.

        Returns:
            Probabilities; in one block of chains for each draw.
        """
        return np.concatenate([special.softmax(logits, axis=-1) for logits in self._outputs(self._inputs(X))])

    def log_predictive(self, X: Any, y: Any) -> Float[np.ndarray, " rows"]:
        """Log posterior predictive probability of the class of each row.

        Args:
            X: Inputs, rows x columns.
            y: Labels.

        Returns:
            One number a row, at most 0; minus infinity for a label that was not in the training data.

        Raises:
            ValueError: If there is not one label for each row.
        """
        probabilities, labels = self.predict_proba(X), np.asarray(y)
        if labels.shape != (len(probabilities),):
            raise ValueError(
                f"BayesianMLPClassifier.log_predictive: expected one label for each of the {len(probabilities)} rows, "
                f"found an array of shape {labels.shape}."
            )
        numbers = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        is_known = self.classes_[numbers] == labels
        with np.errstate(divide="ignore"):
            return np.where(is_known, np.log(probabilities[np.arange(len(numbers)), numbers]), -np.inf)

    def predict_set(self, X: Any, alpha: float = 0.1, *, score: str = "aps") -> Bool[np.ndarray, "rows classes"]:
        """Split-conformal sets of classes: they hold the true class with a probability of at least ``1 - alpha``.

        The set of a row does not depend on the other rows of the call. A class that the rows of the fit do not have is
        in no set: held-out rows of such classes make the sets of all rows larger, and where they are more than a share
        of ``alpha``, sets of all classes still cover less.

        Args:
            X: Inputs, rows x columns.
            alpha: Largest share of rows whose class is missed.
            score: ``"aps"`` or ``"lac"``, see :func:`geodax.predict.conformal.prediction_sets`.

        Returns:
            Whether each class belongs to the set of a row, in the order of ``classes_``.

        Raises:
            ValueError: If no rows were held out for calibration.
        """
        probabilities = self.predict_proba(X)
        known, labels = self._calibration()
        return prediction_sets(known, labels, probabilities, coverage=1.0 - alpha, score=score).members

    def _learn_targets(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"BayesianMLPClassifier: y has one class only, {self.classes_[0]!r}, among the rows that are fitted; a "
                "classifier needs two or more."
            )
        return numbers.astype(np.int32)

    def _num_outputs(self) -> int | None:
        return len(self.classes_)

    def _known_noise(self) -> float | None:
        return None

    def _remember_calibration(self, X: Any, y: np.ndarray) -> None:
        numbers = np.where(np.isin(y, self.classes_), np.searchsorted(self.classes_, y), -1)
        self.calibration_ = (self.predict_proba(X), numbers)
