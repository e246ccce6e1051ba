"""How well a network predicts rows that it was not fitted to, beside a model without inputs and a linear model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats
from sklearn.linear_model import BayesianRidge, LogisticRegression, PoissonRegressor

from geodax._normal import Normal
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.report import scored
from geodax.data.errors import counted
from geodax.models.mlp.regressor import COUNTS
from geodax.models.unit_network.functions import moments
from geodax.predict import held_out
from geodax.predict.numbers import log_normal, numbers_from_distributions

NETWORK = "network"
"""Heading of the column of the network."""

LEVEL = 0.9
"""Level of the intervals."""

TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
"""Levels of their ends."""

_MOST_ROWS = 20_000
_FEW_ROWS = 30  # with fewer, standard errors are rough themselves
_MOST_STEPS = 1000  # of the logistic and Poisson regressions
_MOST_COLUMNS = 500  # of a regression by Newton's method


@dataclasses.dataclass(frozen=True)
class Judged:
    """The rows on which predictions are judged.

    Attributes:
        targets: Their targets: numbers, or class indices.
        is_held_out: Whether they were held out; otherwise they are the fitted rows.
        total: Number of such rows, of which these are evenly spaced ones.
        left_out: Number of held-out rows of classes that no fitted row has.
        weights: Weights of the rows in all scores; None if they have none.
        groups: Group of each row if groups were held out together; None if rows were.
    """

    inputs: np.ndarray
    targets: np.ndarray
    is_held_out: bool
    total: int
    left_out: int = 0
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def words(self) -> str:
        """Number and kind of the rows."""
        number = f"{len(self.targets):,}"
        if len(self.targets) < self.total:
            number = f"{number} of {self.total:,}"
        plural = "" if self.total == 1 else "s"
        weighted = "" if self.weights is None else "weighted "
        grouped = "" if self.groups is None else f" of {counted(self._number, 'group')}"
        return f"{number} {weighted}{'held-out' if self.is_held_out else 'fitted'} row{plural}{grouped}"

    @property
    def _number(self) -> int:
        """How many rows, or groups of rows, are independent."""
        return len(self.targets) if self.groups is None else len(np.unique(self.groups))

    @property
    def caution(self) -> str:
        """Why the scores should be read with care; empty if there is no reason."""
        if not self.is_held_out:
            return (
                "No rows were held out, so these scores are of the fitted rows and too good. Use --test-fraction 0.2."
            )
        if self._number < _FEW_ROWS:
            return f"The scores are rough, because only {self.words} could be used. --test-fraction 0.5 holds out more."
        return ""


def judged_rows(model: Any, data: LabelledTable) -> Judged:
    """Choose the held-out rows, or the fitted rows if no row was held out; at most 20,000 of them."""
    is_classifier, y = hasattr(model, "classes_"), data.targets
    is_known = np.isin(y, model.classes_) if is_classifier else np.ones(len(y), bool)
    left_out = int(np.sum(data.is_test & ~is_known))
    is_held_out = bool(np.any(data.is_test & is_known))
    rows = np.flatnonzero(is_known & (data.is_test == is_held_out))  # fitted rows may calibrate
    some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)]
    numbers = np.searchsorted(model.classes_, y[some]) if is_classifier else y[some]
    weights = data.weights[some] if len(data.weights) else None
    groups = data.groups[some] if len(data.groups) else None
    return Judged(data.inputs[some], numbers, is_held_out, len(rows), left_out, weights, groups)


@dataclasses.dataclass(frozen=True)
class Results:
    """Scores of the network and of the simpler models.

    Attributes:
        rows: The rows.
        scores: A score for each name of a score and of a model; the network is the first model.
        predictions: Predictions of the network: :class:`~geodax.predict.classes.ClassPredictions` or
            :class:`~geodax.predict.numbers.NumberPredictions`.
        ranks: Probability integral transform of each target, of a regressor.
        probabilities: Class probabilities of each model, of a classifier.
    """

    rows: Judged
    scores: scored.Scores
    predictions: Any
    ranks: np.ndarray | None = None
    probabilities: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def lines(self, target: str = "") -> tuple[str, ...]:
        """Return the table as aligned lines of text, with the target, if it is named, in the corner."""
        corner = f"{target}, {self.rows.words}" if target else self.rows.words
        aligned = [*scored.lines(corner, self.scores)]
        if others := self.rows.left_out:
            whose = "a class" if others == 1 else "classes"
            aligned.append(f"{others} more held-out rows are of {whose} that no fitted row has.")
        return tuple(aligned)


def each_target(model: Any, data: LabelledTable) -> list[tuple[Any, LabelledTable]]:
    """Return the fitted estimator and its data for each target alone."""
    if not data.several:
        return [(model, data)]
    return [(model.for_target(k), data.for_target(k)) for k in range(len(data.several))]


def results(model: Any, data: LabelledTable) -> Results:
    """Score a fitted network and the simpler models on the held-out rows, or on the fitted rows if there are none.

    The simpler models are fitted to all rows that are not held out, including those that calibrate the network.
    """
    found = (_of_classes if hasattr(model, "classes_") else _of_numbers)(model, data)
    if (groups := found.rows.groups) is None:
        return found
    return dataclasses.replace(
        found,
        scores={
            name: {which: score.by_group(groups) for which, score in each.items()}
            for name, each in found.scores.items()
        },
    )


def _of_numbers(model: Any, data: LabelledTable) -> Results:
    rows = judged_rows(model, data)
    y, w = rows.targets, rows.weights
    predicted = model.predict_distribution(rows.inputs)
    parts = numbers_from_distributions([predicted.components], targets=y)
    ranks, low_high = predicted.ranks(y), predicted.quantiles(TAILS)
    forecasts = (_of_counts if model.likelihood in COUNTS else _of_real_numbers)(model, data, rows)
    means = {NETWORK: parts.mean} | {name: each.mean() for name, each in forecasts.items()}
    ends = {NETWORK: low_high} | {name: [each.ppf(level) for level in TAILS] for name, each in forecasts.items()}
    kind, log = ("probability", "logpmf") if predicted.is_discrete else ("density", "logpdf")
    densities = {NETWORK: parts.log_density} | {name: getattr(each, log)(y) for name, each in forecasts.items()}
    scores = {
        "R²": {name: held_out.r_squared(m, y, w) for name, m in means.items()},
        "RMSE": {name: held_out.root_mean_squared_error(m, y, w) for name, m in means.items()},
        "MAE": {name: held_out.mean_absolute_error(m, y, w) for name, m in means.items()},
        "90 % coverage": {name: held_out.proportion((low <= y) & (y <= high), w) for name, (low, high) in ends.items()},
        f"mean log {kind}": {name: held_out.mean(values, w) for name, values in densities.items()},
    }
    return Results(rows, scores, parts, ranks)


def _of_real_numbers(model: Any, data: LabelledTable, rows: Judged) -> dict[str, Any]:
    """Predictive distributions of ridge regression, and of the mean."""
    centre, spread = model.target_center_, model.target_spread_
    x, observed = data.train
    is_log = model.likelihood == "log-normal"
    observed = np.log(observed) if is_log else observed
    x, new = _completed(x, data.train_weights, rows.inputs)
    linear = BayesianRidge().fit(x, (observed - centre) / spread, data.train_weights)
    mean, deviation = linear.predict(new, return_std=True)
    alone = Normal(np.full(len(rows.targets), centre), np.full(len(rows.targets), spread))
    of_normal = log_normal if is_log else lambda normal: normal
    name = f"linear model (ridge{', of logarithms' * is_log})"
    return {name: of_normal(Normal(centre + spread * mean, spread * deviation)), "mean alone": of_normal(alone)}


def _of_counts(model: Any, data: LabelledTable, rows: Judged) -> dict[str, Any]:
    """Predictive distributions of Poisson regression, and of the mean."""
    x, observed = data.train
    total = len(x) if data.train_weights is None else data.train_weights.sum()
    x, new = _completed(x, data.train_weights, rows.inputs)
    solver = "newton-cholesky" if x.shape[1] <= _MOST_COLUMNS else "lbfgs"  # which ends early if inputs are collinear
    poisson = PoissonRegressor(alpha=1.0 / total, solver=solver, max_iter=_MOST_STEPS)
    rates = poisson.fit(x, observed, data.train_weights).predict(new)
    alone = np.full(len(rows.targets), np.average(observed, weights=data.train_weights))
    return {"linear model (Poisson)": stats.poisson(rates), "mean alone": stats.poisson(alone)}


def _of_classes(model: Any, data: LabelledTable) -> Results:
    rows = judged_rows(model, data)
    y = rows.targets
    parts = model.predict_parts(rows.inputs)
    x, observed = data.train
    is_known = np.isin(observed, model.classes_)
    x, labels = x[is_known], np.searchsorted(model.classes_, observed[is_known])
    weights = np.ones(len(labels)) if data.train_weights is None else data.train_weights[is_known]
    x, new = _completed(x, weights, rows.inputs)
    logistic = LogisticRegression(max_iter=_MOST_STEPS).fit(x, labels, weights)
    shares = np.bincount(labels, weights, minlength=len(model.classes_)) / weights.sum()
    probabilities = {
        NETWORK: parts.probabilities,
        "logistic regression": logistic.predict_proba(new),
        "base rates": np.tile(shares, (len(y), 1)),
    }
    quantities = {
        "accuracy": held_out.accuracy,
        "log loss": held_out.log_loss,
        "AUC": held_out.auc,
        "Brier score": held_out.brier,
    }
    scores = {
        name: {which: score(p, y, rows.weights) for which, p in probabilities.items()}
        for name, score in quantities.items()
    }
    return Results(rows, scores, parts, probabilities=probabilities)


def _completed(fitted: np.ndarray, weights: np.ndarray | None, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fitted and other inputs, standardised with the fitted ones, with the mean in missing cells."""
    center, spread = moments(fitted, weights)
    first, second = (np.nan_to_num((inputs - center) / spread) for inputs in (fitted, others))
    return first, second


def answer(found: Results, target: str) -> str:
    """Say in one or two sentences how well the network predicts."""
    scores, linear = found.scores, scored.models(found.scores)[1]
    words = f"{'On' if found.rows.is_held_out else 'On the'} {found.rows.words}"

    def each(name: str) -> str:
        return scored.score_text(name, scores[name][NETWORK])

    if "RMSE" in scores:
        name = "RMSE"
        first = (
            f"{words} the network predicts `{target}` with R² = {each('R²')}, root mean squared error {each('RMSE')} "
            f"and mean absolute error {each('MAE')}; {each('90 % coverage')} of the rows are inside their "
            "90 % intervals (± is one standard error)."
        )
    else:
        name = "log loss"
        first = (
            f"{words} the network predicts `{target}` with accuracy {each('accuracy')}, log loss {each('log loss')} "
            f"and AUC {each('AUC')} (± is one standard error)."
        )
    return f"{first} {scored.compared(name, scores[name], linear)}".strip()
