"""The dense networks of ``geodax fit``: classifier and regressor."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.family import AbstractRunKind, RunFacts, statistics
from geodax.app.mlp.draws import identified_draws, point_estimates
from geodax.app.mlp.files import read_labelled
from geodax.app.mlp.labelled import LabelledTable, load_labelled
from geodax.app.mlp.mixing import about_ensemble, judged_by_predictions
from geodax.app.mlp.new_rows import read_new
from geodax.app.mlp.results import TAILS, each_target, results
from geodax.app.report.numbers import rounded
from geodax.app.run_folder.files import write_numbered
from geodax.app.tables.assembly import about_missing
from geodax.app.tables.codes import better_likelihood
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import apart, in_one_cell
from geodax.data.errors import TableError, counted, listed
from geodax.diagnostics.findings import Finding, check
from geodax.models.mlp.classifier import BayesianMLPClassifier
from geodax.models.mlp.regressor import COUNTS, SYMMETRIC, BayesianMLPRegressor
from geodax.models.unit_network.functions import moments
from geodax.predict.conformal import prediction_sets
from geodax.predict.numbers import numbers_from_distributions

_COVERAGE = 0.9
_ROWS_AT_ONCE = 5_000
_ROUNDING = 1e-4  # of a computed column, in its standard deviations
_MOST_ROWS, _MOST_COLUMNS = 20_000, 500  # of a regression that looks for one
_LEAST_OF_CLASS = 10  # rows: a column of random numbers separates two such classes once in 90,000 tables


class AbstractMLPRun(AbstractRunKind):
    """Common base of the classifier and the regressor."""

    are_classes: bool
    data_type = LabelledTable

    @abc.abstractmethod
    def table(self, model: Any, inputs: np.ndarray, targets: np.ndarray | None) -> tuple[list[str], list[np.ndarray]]:
        """Return headings and columns of predictions, the target's first."""

    def about_fit(self, model: Any, data: LabelledTable) -> tuple[str, ...]:
        """Return notes about the fitted rows: classes that they lack, inputs that give the target away."""
        return ()

    def about_targets(self, model: Any, targets: np.ndarray) -> tuple[str, ...]:
        """Return notes about the targets of new rows."""
        return ()

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[LabelledTable, dict[str, Any]]:
        data = read_labelled(file, options, columns, are_classes=self.are_classes, seed=seed, dialect=dialect)
        facts = {"halves_distances": True, "has_powers": True}
        model = self.unfitted(options, **facts)
        fitted, *_, (_, aside) = model.prepare(*self.arrays(data))
        notes = [*data.notes, *_about_missing(data, model)]
        if len(aside):
            which = ", whole groups," if len(data.groups) else ", the latest," if len(data.calibrates) else ""
            others = f"{len(aside)} of the other {len(data.train[0])} rows{which}"
            notes.append(f"{others} calibrate conformal predictions, {len(fitted)} are fitted.")
        data = dataclasses.replace(data, notes=(*notes, *self.about_fit(model, data)))
        return data, {"columns": [*data.names, *data.target_names], "notes": list(data.notes), **facts}

    def load(self, path: Path) -> LabelledTable:
        return load_labelled(path)

    def describe(self, data: LabelledTable) -> str:
        return (
            f"{len(data.inputs)} rows, {int(data.is_test.sum())} of them held out, {counted(len(data.names), 'input')}"
        )

    def arrays(self, data: LabelledTable) -> tuple[np.ndarray | None, ...]:
        return (*data.train, *_of_rows(data))

    def estimator(self, config: Mapping[str, Any]) -> Any:
        options = self.estimator_options(config["options"])
        widths = [part.strip() for part in options["widths"].split(",") if part.strip() not in ("", "none")]
        if not all(part.isdigit() for part in widths):
            raise ValueError(f"--widths must be comma-separated integers, or none, found {options['widths']!r}.")
        options["widths"] = tuple(int(part) for part in widths)
        if self.are_classes:  # predictions of a run of an earlier version stay as they were
            options.setdefault("temperature_scaling", False)
        if "class_order" in options:
            options["class_order"] = list(options["class_order"]) or None
        found = self.estimator_type(**options, random_state=config["seed"])
        for name in ("halves_distances", "has_powers"):  # not in runs of earlier versions
            setattr(found, name, config.get(name, False))
        return found

    def fitted(self, config: Mapping[str, Any], data: LabelledTable, posterior: Any) -> Any:
        return self.estimator(config).with_posterior(*data.train, posterior, *_of_rows(data))

    def summarized(self, data: LabelledTable, model: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Values of the function on some rows: single weights of a network have no meaning of their own."""
        return identified_draws(model, data), statistics(model)

    def points(self, data: LabelledTable, model: Any) -> tuple[str, ...]:
        return point_estimates(model, identified_draws(model, data))

    def diagnose(self, config: Mapping[str, Any], data: LabelledTable, model: Any) -> list[Finding]:
        sizes = model.posterior_["posterior"].sizes
        inference = config["options"]["inference"]
        if inference == "swag":
            return about_ensemble(1, sizes["chain"] * sizes["draw"])
        if inference != "mcmc":
            return about_ensemble(sizes["chain"], sizes["draw"])
        draws, stats = self.summarized(data, model)
        return judged_by_predictions(check(draws, stats), draws)

    def results(self, data: LabelledTable, model: Any) -> tuple[str, ...]:
        parts = each_target(model, data)
        found = [results(*part) for part in parts]
        names = [one.target if data.several else "" for _, one in parts]
        lines = [line for each, name in zip(found, names, strict=True) for line in each.lines(name)]
        return (*lines, caution) if (caution := found[0].rows.caution) else tuple(lines)

    def report(self, config: Mapping[str, Any], data: LabelledTable, model: Any, command: str, path: Path) -> None:
        from geodax.app.mlp.report import write_report  # loads Matplotlib

        write_report(model, data, RunFacts(self.diagnose(config, data, model), config, command), path)

    def predict(
        self, data: LabelledTable, model: Any, file: Path, path: Path, dialect: Dialect = FOUND
    ) -> tuple[str, ...]:
        table, targets = read_new(file, data, are_classes=self.are_classes, dialect=dialect)
        self._write(path, data, model, table.values, targets, texts=table.text)
        notes = tuple(note for note in table.notes if not note.startswith(("Columns left out", "Left out, because")))
        others = [name for name in table.set_aside if name not in data.target_names]
        if others:
            notes = (*notes, f"Left out, because the model does not use them: {listed(others)}.")
        return notes if targets is None else (*notes, *self.about_targets(model, targets))

    def predict_missing(self, data: LabelledTable, model: Any, path: Path) -> tuple[str, ...]:
        """Write predictions for the held-out rows, from which their scores can be computed again."""
        if not data.is_test.any():
            raise TableError("No row of this fit was held out. Name a table to predict for: geodax predict RUN FILE.")
        inputs, targets = data.test
        self._write(path, data, model, inputs, targets, rows=(np.flatnonzero(data.is_test) + 1).tolist())
        which = "`row` counts the rows of the table that have a target, from 1."
        return (f"{counted(len(inputs), 'row')} held out. {which}", *self.about_targets(model, targets))

    def _write(
        self,
        path: Path,
        data: LabelledTable,
        model: Any,
        inputs: np.ndarray,
        targets: np.ndarray | None,
        *,
        texts: Mapping[str, Sequence[str]] | None = None,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Write a line for each row, with its texts: headings and columns for each target, its own first."""
        names = data.target_names
        parts = [
            self.table(one, inputs, _of_target(targets, k) if data.several else targets)
            for k, (one, _) in enumerate(each_target(model, data))
        ]
        prefixes = [""] if len(names) == 1 else [f"{name}_" for name in names]
        words = [[prefix + word for word in part[0]] for prefix, part in zip(prefixes, parts, strict=True)]
        named = apart(names, ["row", *(word for each in words for word in each)])
        own = [word for name, each in zip(named, words, strict=True) for word in (name, *each)]
        texts = {name: cells for name, cells in (texts or {}).items() if name not in names}
        write_numbered(path, texts, own, [column for _, each in parts for column in each], rows)


class ClassifierRun(AbstractMLPRun):
    """``geodax fit classifier``."""

    name = "classifier"
    headline = ()
    estimator_type = BayesianMLPClassifier
    are_classes = True

    def about_fit(self, model: Any, data: LabelledTable) -> tuple[str, ...]:
        notes = []
        if names := _separating(*data.train, data.sources):
            verb = "separates" if len(names) == 1 else "each separate"
            notes.append(f"{listed(names)} {verb} the classes of all fitted rows. What is known later needs --drop.")
        if lacking := np.setdiff1d(data.targets, model.classes_).tolist():
            which = f"the class {lacking[0]!r}" if len(lacking) == 1 else f"one of the classes {listed(lacking)}"
            notes.append(f"No fitted row has {which}, because all such rows are held out. It is never predicted.")
        return tuple(notes)

    def about_targets(self, model: Any, targets: np.ndarray) -> tuple[str, ...]:
        new = targets[(targets != "") & ~np.isin(targets, model.classes_)].tolist()
        if not new:
            return ()
        whose = "row holds a class" if len(new) == 1 else "rows hold classes"
        their = "Its" if len(new) == 1 else "Their"
        return (f"{len(new)} {whose} that the fit did not have, such as {new[0]!r}. {their} log probability is -inf.",)

    def remarks(self, data: LabelledTable, model: Any) -> tuple[str, ...]:
        return ("Diagnostics are of log_odds, the log odds of the most probable class on some fitted rows.",)

    def table(self, model: Any, inputs: np.ndarray, targets: np.ndarray | None) -> tuple[list[str], list[np.ndarray]]:
        """Return class, probabilities, entropy and its parts, conformal set, log probability."""
        parts = model.predict_parts(inputs)
        heading = [*(f"p({label})" for label in model.classes_), "entropy", "aleatoric", "epistemic"]
        columns = [model.classes_[parts.labels], *parts.probabilities.T, parts.total, parts.aleatoric, parts.epistemic]
        if hasattr(model, "calibration_"):
            known, labels = model.calibration_
            members = prediction_sets(known, labels, parts.probabilities, coverage=_COVERAGE).members
            heading.append(f"set_{_COVERAGE:.0%}")
            columns.append(np.array([in_one_cell(model.classes_[row].tolist()) for row in members], str))
        if targets is not None:
            heading += ["observed", "log_probability"]
            columns += [targets, np.where(targets == "", np.nan, model.log_of(parts.probabilities, targets))]
        return heading, columns


class RegressorRun(AbstractMLPRun):
    """``geodax fit regressor``."""

    name = "regressor"
    headline = ("noise", "dispersion")
    estimator_type = BayesianMLPRegressor
    are_classes = False

    def about_fit(self, model: Any, data: LabelledTable) -> tuple[str, ...]:
        """Return notes about targets that the inputs determine, or that another likelihood would suit."""
        x, targets = data.train
        notes = []
        for name, y in zip(data.target_names, targets.reshape(len(targets), -1).T, strict=True):
            if known := _determining(x, y):
                inputs = listed(list(dict.fromkeys(data.sources[k] for k in known)))
                notes.append(f"{name!r} is a sum of multiples of {inputs}. Columns computed from it need --drop.")
            elif model.likelihood in SYMMETRIC and (better := better_likelihood(y)):
                middle, largest = rounded(np.median(y)), rounded(y.max())
                notes.append(
                    f"{name!r} is very skewed: median {middle}, largest value {largest}. Try --likelihood {better}."
                )
        return tuple(notes)

    def remarks(self, data: LabelledTable, model: Any) -> tuple[str, ...]:
        parameter = "dispersion" if model.likelihood == "negative-binomial" else "noise"
        what = f"the {parameter} and of " if model.problem().likelihood.has_parameter else ""
        return (f"Diagnostics are of {what}fit, the predicted mean on some fitted rows.",)

    def table(self, model: Any, inputs: np.ndarray, targets: np.ndarray | None) -> tuple[list[str], list[np.ndarray]]:
        """Return mean, standard deviation, intervals of new data and of the function, and log density."""
        heading = ["sd", "5%", "95%", "mean_5%", "mean_95%"]
        known = None if targets is None else np.nan_to_num(targets)
        blocks = [slice(i, i + _ROWS_AT_ONCE) for i in range(0, len(inputs), _ROWS_AT_ONCE)]
        each = [_numbers(model, inputs[rows], None if known is None else known[rows]) for rows in blocks]
        *columns, density = (np.concatenate(column) for column in zip(*each, strict=True))
        if hasattr(model, "calibration_"):
            found = model.predict_interval(inputs, 1 - _COVERAGE)
            heading += [f"conformal_{_COVERAGE:.0%}_lower", f"conformal_{_COVERAGE:.0%}_upper"]
            columns += [found.lower, found.upper]
        if targets is not None:
            heading += ["observed", f"log_predictive_{'probability' if model.likelihood in COUNTS else 'density'}"]
            columns += [targets, np.where(np.isnan(targets), np.nan, density)]
        return heading, columns


def _numbers(model: Any, inputs: np.ndarray, targets: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Mean, standard deviation, intervals of new data and of the function, and log density, of one evaluation."""
    found = model.predict_distribution(inputs)
    components = found.components
    parts = numbers_from_distributions([components], targets=targets)
    function = np.quantile(components.mean(), TAILS, axis=0)
    density = np.zeros(0) if parts.log_density is None else parts.log_density
    return parts.mean, np.sqrt(parts.variance), *found.quantiles(TAILS), *function, density


def _of_rows(data: LabelledTable) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Weights and groups of the fitted rows, and which of them calibrate, as the estimator takes them."""
    return data.train_weights, data.train_groups, data.calibrates if len(data.calibrates) else None


def _determining(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Inputs of which a target is a linear function up to rounding; empty if it is none."""
    some = np.linspace(0, len(x) - 1, min(len(x), _MOST_ROWS)).astype(int)
    if np.ptp(y) == 0 or x.shape[1] > _MOST_COLUMNS or len(some) < 2 * x.shape[1] + 2:
        return []
    (center, spread), (middle, unit) = moments(x), moments(y)
    z, target = np.nan_to_num((x[some] - center) / spread), (y[some] - middle) / unit
    slopes = np.linalg.lstsq(z, target)[0]
    return np.flatnonzero(np.abs(slopes) > 0.01).tolist() if np.std(target - z @ slopes) < _ROUNDING else []


def _separating(x: np.ndarray, labels: np.ndarray, sources: Sequence[str]) -> list[str]:
    """Columns of the table of which each separates the classes: numbers by thresholds, categories by their levels."""
    counts = np.unique(labels, return_counts=True)[1]
    if min(counts) < _LEAST_OF_CLASS or x.shape[1] > _MOST_COLUMNS:
        return []
    found = []
    for name in dict.fromkeys(sources):
        own = np.nan_to_num(x[:, [source == name for source in sources]], nan=np.inf)
        values, first, place = np.unique(own, axis=0, return_index=True, return_inverse=True)
        classes = labels[first]
        if own.shape[1] > 1:
            is_simple = len(values) <= len(labels) // 10
        else:
            num_changes = np.sum(classes[1:] != classes[:-1])
            is_simple = num_changes < len(counts) + np.isinf(values).any()
        if is_simple and (classes[place] == labels).all():
            found.append(name)
    return found


def _about_missing(data: LabelledTable, model: Any) -> tuple[str, ...]:
    if not np.isnan(data.inputs).any():
        return ()
    known = list(dict.fromkeys(data.sources[k] for k in model.indicators_))
    whether = f" Whether {listed(known)} {'is' if len(known) == 1 else 'are'} missing is an input too." if known else ""
    return (about_missing(data.inputs, data.missing(data.inputs)) + whether,)


def _of_target(targets: np.ndarray | None, number: int) -> np.ndarray | None:
    own = None if targets is None else targets[:, number]
    return None if own is None or np.isnan(own).all() else own
