"""Common base of the classifier and the regressor: option checks, standardisation, and outputs of the draws."""

import abc
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from geodax import _checks, nn
from geodax._wording import argument, in_python
from geodax.models import missing
from geodax.models.mlp import ensembles, laplace, stochastic, variational  # noqa: F401 - they register their inferences
from geodax.models.mlp.inference import ACTIVATIONS, AbstractInference, NetworkProblem, chosen_inference
from geodax.models.mlp.options import MLPOptions
from geodax.models.mlp.powers import Powers, find_powers, no_powers
from geodax.models.mlp.weights import held_out_rows, row_groups, row_weights, whole_groups
from geodax.models.options import require_targets, seed_of
from geodax.models.pooling import ROWS_AT_ONCE, padded
from geodax.models.run_arguments import AllowsMissing, RunArguments, all_or_nothing
from geodax.models.unit_network.functions import half_distances, moments
from geodax.models.validation import validated
from geodax.nn.networks import checked_rank
from geodax.predict.evaluation import evaluate
from geodax.run.programs import Same

_PRIORS: Mapping[str, Any] = {
    "gaussian": nn.Gaussian,
    "laplace": nn.Laplace,
    "student-t": lambda scale: nn.StudentT(scale=scale),
    "horseshoe": lambda scale: nn.Horseshoe(scale, least_scale=_LEAST_SCALE),
    "local-horseshoe": lambda scale: nn.Horseshoe(scale, local=True, least_scale=_LEAST_SCALE),
    "hierarchical-horseshoe": lambda scale: nn.HierarchicalHorseshoe(scale, local=True, least_scale=_LEAST_SCALE),
}
_LEAST_SCALE = 0.1  # of horseshoes, whose poles break samplers without an acceptance test
_NOISE_PRIOR = ("*log_noise", nn.Gaussian(1.0, mean=-1.0))
_SPACING_PRIOR = ("*log_spacings", nn.Gaussian(1.0))
_SCALE_AFTER_ORTHONORMAL = 1.0  # orthonormal layers preserve lengths, free ones the scale of each unit
_LEAST_ROWS = 2


class AbstractBayesianMLP(AllowsMissing, RunArguments, MLPOptions, BaseEstimator, abc.ABC):
    """A Bayesian network of dense layers that predicts with an ensemble of draws.

    The two estimators differ in their targets; their arguments are documented there.

    Attributes:
        halves_distances: Whether inputs of two values are divided by half their distance; False for fits of earlier
            versions, which divided all inputs by their standard deviations.
        has_powers: Whether skewed inputs of networks with hidden layers are transformed by powers; False for fits of
            earlier versions.
    """

    halves_distances = True
    has_powers = True

    n_features_in_: int
    indicators_: np.ndarray
    powers_: Powers
    _groups: np.ndarray | None = None  # of the fitted rows
    _joint: missing.JointNormal
    _fitted: tuple[NetworkProblem, AbstractInference]  # of the fit, even if options change later
    calibration_: tuple[np.ndarray, ...]
    seed_: int
    _folder_of_seed: Any  # checkpoint folder of the fit that drew the seed

    @abc.abstractmethod
    def _learn_targets(self, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Learn the units or classes of the targets, and return the targets in the network's form."""

    @abc.abstractmethod
    def _targets_of_problem(self) -> dict[str, Any]:
        """Likelihood and number of outputs, by name of a field of :class:`NetworkProblem`."""

    def _learn_from_draws(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Learn what predictions need of the fitted rows, in the form of :meth:`prepare`."""

    @abc.abstractmethod
    def _remember_calibration(self, X: Any, y: np.ndarray) -> None:
        """Store what conformal predictions need of held-out rows, in the data's units."""

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, calibration: Any = None) -> Any:
        """Fit the ensemble.

        Args:
            X: Inputs, rows x columns, NaN where a cell is missing.
            y: Target of each row.
            sample_weight: Weight of each row, which multiplies its log likelihood: a row of weight 2 counts as two
                equal rows, one of weight 0 is left out. None weights all by 1.
            groups: Label of the group of each row, such as a patient, if new rows will be of other groups: the rows
                held out from training and for calibration are whole groups. The likelihood is that of independent rows.
            calibration: Rows held out to calibrate conformal predictions: a Boolean for each row, or their numbers from
                0, for instance the latest ones. None holds out a random ``calibration_fraction``.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: If inputs are infinite or a column of them is empty, if targets are missing or constant, if
                weights are negative or all zero, or if options are invalid.
            NonFiniteError: If the step size was too large and values overflowed.
        """
        self._forget_seed()
        *data, held_out = self.prepare(X, y, sample_weight, groups, calibration)
        problem, inference = self.problem(), self._chosen_inference()
        posterior = inference.run(
            jax.random.key(self._seed()),
            problem,
            tuple(data),
            folder=None if self.checkpoint is None else Path(self.checkpoint),
            devices=self.devices,
            progress=self.progress,
        )
        return self._take(posterior, data, held_out)

    def prepare(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, calibration: Any = None
    ) -> tuple[Any, ...]:
        """Check options and the data of a fit, and compute the standardisation.

        Returns:
            Inputs of the network, targets, and weights if there are any, for training, and the raw rows held out for
            calibration. The inputs are standardised, and have several draws of each row along the second axis if cells
            are missing.
        """
        if hasattr(self, "calibration_"):  # from an earlier fit
            del self.calibration_
        inputs, targets = self._checked(X, y)
        chosen = None if calibration is None else held_out_rows(type(self).__name__, calibration, len(inputs))
        group = None if groups is None else row_groups(type(self).__name__, groups, len(inputs))
        class_weight = getattr(self, "class_weight", None)
        weights = row_weights(type(self).__name__, inputs, targets, sample_weight, class_weight)
        if weights is not None:
            some = np.flatnonzero(weights)
            inputs, targets, weights = inputs[some], targets[some], weights[some]
            chosen, group = (None if each is None else each[some] for each in (chosen, group))
            X = _safe_indexing(X, some) if hasattr(self, "feature_names_in_") else inputs
        held_out = self._held_out(len(inputs), group, chosen)
        self._groups = None if group is None else np.delete(group, held_out)
        x, own = np.delete(inputs, held_out, axis=0), np.delete(targets, held_out, axis=0)
        own_weights = None if weights is None else np.delete(weights, held_out)
        self._is_weighted = weights is not None
        missing.require_values(type(self).__name__, x, getattr(self, "feature_names_in_", None))
        bends = self.has_powers and np.size(self.widths) > 0
        self.powers_ = find_powers(x, own_weights) if bends else no_powers(x.shape[1])
        bent = self.powers_(x)
        self.center_, self.spread_ = moments(bent, own_weights)
        if self.halves_distances:
            self.spread_ = np.maximum(self.spread_, half_distances(bent))
        standardised, is_missing = self._standardised(x), np.isnan(x)
        self._joint, self.indicators_ = missing.joint_normal(standardised), missing.indicator_columns(is_missing)
        self._shares = is_missing[:, self.indicators_].mean(axis=0)
        num_draws, self._num_incomplete = missing.num_draws_for(is_missing), int(is_missing.any(axis=1).sum())
        known = self._learn_targets(own, own_weights)
        problem = self.problem()
        self._chosen_inference().check(problem)
        has_names = hasattr(self, "feature_names_in_")  # checked by predictions
        rows = _safe_indexing(X, held_out) if has_names else inputs[held_out]
        drawn = self._completed(standardised, num_draws, np.random.default_rng([self._seed(), 1])).astype(np.float32)
        own_data = (drawn.squeeze(1) if num_draws == 1 else drawn, known)
        own_data += () if own_weights is None else (own_weights.astype(np.float32),)
        return *own_data, (rows, targets[held_out])

    def with_posterior(
        self, X: Any, y: Any, posterior: Any, sample_weight: Any = None, groups: Any = None, calibration: Any = None
    ) -> Any:
        """Set the fitted state from the data and the draws of a fit, for instance those of a run folder."""
        *data, held_out = self.prepare(X, y, sample_weight, groups, calibration)
        return self._take(posterior, data, held_out)

    def problem(self) -> NetworkProblem:
        """Build the network with its prior from the current options; raises ValueError if they are invalid."""
        owner = type(self).__name__
        _checks.chosen(owner, "activation", self.activation, tuple(ACTIVATIONS))
        try:
            widths = tuple(_checks.whole(owner, "a width", width, least=-_checks.LARGEST) for width in self.widths)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{argument('widths')} must be integers such as (50, 50), found {self.widths!r}."
            ) from error
        if any(width < 1 for width in widths):
            raise ValueError(f"{argument('widths')} must be positive, found {self.widths!r}.")
        problem = NetworkProblem(
            in_features=int(self.n_features_in_) + len(self.indicators_),
            widths=widths,
            activation=self.activation,
            orthogonal=bool(self.orthogonal),
            rank=checked_rank(owner, self.rank),
            priors=self._priors(num_hidden=len(widths)),
            is_weighted=self._is_weighted,
            num_incomplete=self._num_incomplete,
            groups=self._groups,
            **self._targets_of_problem(),
        )
        jax.eval_shape(problem.build, jax.random.key(0))  # the layers check ranks and widths
        return problem

    def _checked(self, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        if getattr(y, "dtype", None) == jnp.bfloat16:  # not supported by scikit-learn
            y = np.asarray(y, np.float32)
        require_targets(type(self).__name__, y)
        inputs, targets = validated(self, X, y, ensure_min_samples=_LEAST_ROWS, **options)
        return np.asarray(inputs), np.asarray(targets)

    def _held_out(self, num_rows: int, groups: np.ndarray | None, chosen: np.ndarray | None) -> np.ndarray:
        share = _checks.number(
            type(self).__name__, "calibration_fraction", self.calibration_fraction, least=0.0, below=1.0
        )
        number = max(1, round(share * num_rows)) if share > 0 else 0  # a share that was asked for is a row at least
        generator = np.random.default_rng(self._seed())
        if chosen is None and groups is not None:
            chosen = whole_groups(groups, number, generator)
        number = number if chosen is None else int(chosen.sum())
        if num_rows - number < _LEAST_ROWS:
            what = argument("calibration_fraction", share) if share > 0 else "calibration"
            raise ValueError(
                f"{what} leaves {num_rows - number} of {num_rows} rows to fit; at least {_LEAST_ROWS} are needed."
            )
        if chosen is not None:
            return np.flatnonzero(chosen)
        return np.sort(generator.permutation(num_rows)[:number])

    def _seed(self) -> int:
        if not isinstance(self.random_state, np.random.RandomState) and self.random_state is not None:
            return seed_of(self)
        if not hasattr(self, "seed_"):
            self.seed_ = seed_of(self)
            self._folder_of_seed = self.checkpoint
        return self.seed_

    def _forget_seed(self) -> None:
        """Draw a new seed in the next fit, unless it resumes from the checkpoints of the last."""
        if not hasattr(self, "seed_"):
            return
        folder, now = self._folder_of_seed, self.checkpoint
        if folder is None or now is None or Path(folder) != Path(now):
            del self.seed_

    def _priors(self, *, num_hidden: int) -> nn.Priors:
        targets = self._targets_of_problem()
        has_spacings = targets.get("is_ordinal", False) and targets["out_features"] > 2
        others = [_SPACING_PRIOR if has_spacings else _NOISE_PRIOR]
        if isinstance(self.prior, nn.Priors):
            return nn.Priors([*self.prior.rules, *others])
        known = f"{argument('prior')} must be one of {list(_PRIORS)}{in_python(', or rules as for gx.nn.Priors')}"
        if not isinstance(self.prior, str | Sequence):
            found = _checks.described(self.prior)
            raise TypeError(f"{known}, found {found}.")
        if not isinstance(self.prior, str):
            return nn.Priors([*self.prior, *others])
        if self.prior not in _PRIORS:
            raise ValueError(f"{known}, found {self.prior!r}.")
        if not (isinstance(self.prior_scale, str) and self.prior_scale == "fan_in"):
            _checks.number(type(self).__name__, "prior_scale", self.prior_scale, above=0.0)
        rules = [*others, ("*", _PRIORS[self.prior](self.prior_scale))]
        if self.orthogonal and num_hidden and isinstance(self.prior_scale, str):
            rules.insert(0, (f"*layers.{num_hidden}.weight", _PRIORS[self.prior](_SCALE_AFTER_ORTHONORMAL)))
        return nn.Priors(rules)

    def _chosen_inference(self) -> AbstractInference:
        return chosen_inference(self.inference, self.get_params(deep=False))

    def _take(self, posterior: Any, data: Sequence[np.ndarray], calibration: tuple[Any, np.ndarray]) -> Any:
        self.posterior_ = posterior
        self._fitted = self.problem(), self._chosen_inference()
        self._learn_from_draws(*data)
        if len(calibration[1]):
            self._remember_calibration(*calibration)
        return self

    def _calibration(self) -> tuple[np.ndarray, ...]:
        check_is_fitted(self)
        if not hasattr(self, "calibration_"):
            raise ValueError(
                f"{type(self).__name__}: no rows were held out for conformal predictions; set calibration_fraction, "
                "for instance to 0.2, before the fit."
            )
        return self.calibration_

    def _standardised(self, inputs: np.ndarray) -> np.ndarray:
        return (self.powers_(inputs) - self.center_) / self.spread_

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._standardised(np.asarray(validated(self, X, reset=False)))

    def _completed(
        self, standardised: np.ndarray, num_draws: int, generator: np.random.Generator | None = None
    ) -> np.ndarray:
        """Inputs of the network, rows x draws x columns: completed rows, and standardised indicators."""
        filled = missing.draw_missing(self._joint, standardised, num_draws, generator)
        indicators = np.isnan(standardised)[:, self.indicators_] - self._shares
        indicators = indicators / (0.5 if self.halves_distances else np.sqrt(self._shares * (1 - self._shares)))
        return np.concatenate([filled, np.repeat(indicators[:, None], num_draws, axis=1)], axis=2)

    def _outputs(self, inputs: np.ndarray) -> Iterator[Any]:
        """Yield outputs of the draws on standardised inputs, in double precision, block by block.

        Each draw of the network has its own draw of the missing cells, the same one of ``missing.NUM_DRAWS`` for all
        rows, so that a row's prediction does not depend on the others. For the same reason the precision is double:
        products of matrices of different shapes round differently.
        """
        holes, num_rows = np.flatnonzero(np.isnan(inputs).any(axis=1)), len(inputs)
        x = self._completed(inputs, 1).squeeze(1)
        if not len(holes):
            yield from self._at_draws(x)
            return
        blocks = self._at_draws(missing.with_draws(x, self._completed(inputs[holes], missing.NUM_DRAWS), holes))
        num_chains, first = self.posterior_["posterior"].sizes["chain"], 0
        for block in blocks:
            places = first + np.arange(len(jax.tree.leaves(block)[0]))
            draw, chain = np.divmod(places, num_chains)
            which, first = (draw + chain) % missing.NUM_DRAWS, first + len(places)
            own = functools.partial(missing.at_own_draw, holes=holes, num_rows=num_rows, which=which)
            yield jax.tree.map(own, block)

    def _at_draws(self, inputs: np.ndarray) -> Iterator[Any]:
        """As :meth:`_outputs`, for complete rows."""
        problem, inference = self._fitted
        form, likelihood = inference.form(problem), problem.likelihood

        def apply(position: Any, x: Any) -> Any:
            double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), position)
            outputs = form.apply(double, x)
            if isinstance(likelihood, nn.CategoricalLikelihood):
                return outputs
            if isinstance(outputs, tuple):
                return outputs[0], jnp.log(outputs[1])
            return likelihood.parameters(double, outputs)

        options: dict[str, Any] = {"batch_size": ROWS_AT_ONCE, "key": (Same(problem), Same(inference))}
        with jax.enable_x64(True):
            for block in evaluate(self.posterior_, form.like, padded(inputs), apply=apply, **options):
                yield jax.tree.map(lambda values: values[:, : len(inputs)], block)
