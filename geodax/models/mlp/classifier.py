"""Classification by a Bayesian network of dense layers."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from geodax.models.mlp.base import AbstractBayesianMLP
from geodax.predict.conformal import prediction_sets
from geodax.predict.predictive import ClassPredictions, classes_from_logits
from geodax.run.progress import Reporter
from geodax.run.sharding import Devices


class BayesianMLPClassifier(ClassifierMixin, AbstractBayesianMLP):
    """Classification by the posterior ensemble of a network of dense layers.

    Inputs are standardised inside. The ensemble is made by stochastic-gradient MCMC on minibatches: each chain trains
    from an initialisation of its own in the first eighth of the warm-up, and samples afterwards
    (:mod:`geodax.models.mlp.stochastic` has the rules for step size and temperature). Chains of a network sit in
    different modes; the ensemble is over all of them.

    Args:
        widths: Units of the hidden layers; ``()`` is logistic regression.
        activation: ``"relu"``, ``"tanh"``, ``"gelu"`` or ``"silu"``.
        orthogonal: Whether hidden layers have orthonormal weights, on Stiefel manifolds.
        rank: Rank of the hidden layers' weights, one number or one a layer (None: full); they are held as singular
            value decompositions, on Stiefel manifolds.
        prior: ``"gaussian"``, ``"laplace"``, ``"student-t"``, ``"horseshoe"`` (one scale an array),
            ``"local-horseshoe"``, ``"hierarchical-horseshoe"`` (scales as parameters; the horseshoes have a least scale
            of 0.1), or rules as for :class:`geodax.nn.Priors`, whose patterns must begin with ``*``. Orthonormal
            weights are uniform.
        prior_scale: Scale of a prior given by name: a number, or ``"fan_in"``, which is 1 for the last weights of a
            network with orthonormal ones, since those keep lengths and leave all scaling to the last.
        inference: How the ensemble is made: ``"mcmc"``; ``"whvi"``, ``"mean-field"`` or ``"mc-dropout"``, which fit a
            variational posterior for each chain by ``num_warmup`` steps with batches of ``batch_size``, begin with the
            learning rate ``step_size``, then draw ``num_samples`` networks from it, and look at no other option of a
            sampler; another name in ``geodax.models.mlp.INFERENCES``; or an inference with settings of its own, which
            does not look at the options from here to ``num_chains``.
        sampler: ``"sghmc"`` or, for free weights, ``"sgrld"``.
        metric: ``"identity"``, ``"rmsprop"``, ``"wenzel"``, ``"monge"``, ``"shampoo"``, or a metric of
            :mod:`geodax.metrics`.
        step_size: Step size of the sampler; None finds one during warm-up.
        friction: Of ``sghmc``.
        temperature: 1 is the posterior, 0 an ensemble of optima. Under ``prior="horseshoe"`` anything
            below 1 draws the weights to zero, which is an error.
        batch_size: Examples of a batch. None takes 5,000 with ``inference="mcmc"``, which takes all examples where
            there are not two such batches, and 1,000 with the others.
        num_warmup: Iterations before the first draw.
        num_samples: Draws kept for each chain.
        thinning: Iterations between draws. A pass through n rows is n / ``batch_size`` iterations.
        num_chains: Number of chains, run side by side.
        calibration_fraction: Share of the rows that is held out from the fit for :meth:`predict_set`.
        random_state: Seed: a whole number, a NumPy RandomState, or None.
        checkpoint: A folder for draws and checkpoints; a fit that is interrupted goes on from there.
        devices: Devices as in :func:`geodax.sample`: a number of them or ``"all"`` for chains, or a mesh whose axis
            ``"data"`` is for the rows of a batch. Variational fits come one after the other, and all devices share out
            the rows of their batches.
        progress: True for a progress bar, or a function as in :func:`geodax.sample`.

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

    def __init__(
        self,
        widths: Any = (50, 50),
        *,
        activation: str = "relu",
        orthogonal: bool = False,
        rank: Any = None,
        prior: Any = "gaussian",
        prior_scale: Any = "fan_in",
        inference: Any = "mcmc",
        sampler: str = "sghmc",
        metric: Any = "identity",
        step_size: float | None = None,
        friction: float = 0.1,
        temperature: float = 1.0,
        batch_size: int | None = None,
        num_warmup: int = 2000,
        num_samples: int = 100,
        thinning: int = 20,
        num_chains: int = 4,
        calibration_fraction: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        checkpoint: str | Path | None = None,
        devices: Devices = None,
        progress: bool | Reporter = False,
    ):
        self.widths = widths
        self.activation = activation
        self.orthogonal = orthogonal
        self.rank = rank
        self.prior = prior
        self.prior_scale = prior_scale
        self.inference = inference
        self.sampler = sampler
        self.metric = metric
        self.step_size = step_size
        self.friction = friction
        self.temperature = temperature
        self.batch_size = batch_size
        self.num_warmup = num_warmup
        self.num_samples = num_samples
        self.thinning = thinning
        self.num_chains = num_chains
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.devices = devices
        self.progress = progress

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
