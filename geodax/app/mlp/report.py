"""The HTML reports of the dense networks: results first, then inputs, model, data and diagnostics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.family import RunFacts, statistics
from geodax.app.mlp import figures
from geodax.app.mlp.about import write_data, write_model
from geodax.app.mlp.draws import identified_draws, point_estimates
from geodax.app.mlp.importance import Importance, partial_dependence, permutation_importance
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.results import NETWORK, Judged, Results, answer, each_target, results
from geodax.app.report import plots, scored
from geodax.app.report.calibration import reliability_plot
from geodax.app.report.html import Report
from geodax.app.report.numbers import rounded, with_error
from geodax.app.report.parts import end, verdict
from geodax.data.errors import counted
from geodax.models.mlp.regressor import COUNTS
from geodax.predict import held_out, scores

_MOST_CLASSES_SHOWN = 20
_MOST_CURVES = 4
_MOST_POINTS = 600
_MOST_DEPENDENCES = 6
_SHORT = {
    "gaussian": "normal noise",
    "heteroscedastic": "normal noise that depends on the inputs",
    "student-t": "Student-t noise",
    "log-normal": "log-normal noise",
    "poisson": "Poisson counts",
    "negative-binomial": "negative binomial counts",
}
_PARAMETERS = {
    "gaussian": ", and `noise`, the standard deviation of the noise",
    "student-t": ", and `noise`, the scale of the noise",
    "log-normal": ", and `noise`, the standard deviation of the noise of its logarithm",
    "negative-binomial": ", and `dispersion`, α in the variance mean + α mean²",
}


def write_report(model: Any, data: LabelledTable, run: RunFacts, path: Path) -> None:
    """Write the report of a classifier or regressor."""
    is_classifier = hasattr(model, "classes_")
    is_ordinal = model.likelihood == "ordinal"
    widths = "-".join(map(str, model.widths)) if model.widths else "no hidden layers"
    aside = len(model.calibration_[0]) if hasattr(model, "calibration_") else 0
    calibrating = f", {aside} for calibration" if aside else ""
    target = _SHORT.get(model.likelihood) or f"{len(model.classes_)} {'ordered ' * is_ordinal}classes"
    report = Report(
        f"{data.target} in {Path(run.config['file']).name}",
        subtitle=f"Bayesian network {widths}, {target}, {len(data.train[0]) - aside} rows fitted{calibrating}, "
        f"{counted(len(data.names), 'input')}",
    )
    parts = each_target(model, data)
    found = [results(*part) for part in parts]
    importances = [permutation_importance(*part, each.rows) for part, each in zip(parts, found, strict=True)]
    report.section("Summary")
    for (_, own), each, importance in zip(parts, found, importances, strict=True):
        if data.several:
            report.subsection(own.target)
        _summary(report, each, importance, own, run.config)
    verdict(report, run.findings)
    for part, each, importance in zip(parts, found, importances, strict=True):
        of_target = f": {part[1].target}" if data.several else ""
        report.section(("Held-out rows" if each.rows.is_held_out else "Fitted rows") + f" in detail{of_target}")
        (_classes if is_classifier else _numbers)(report, *part, each)
        report.section(f"Which inputs matter{of_target}")
        _inputs(report, *part, importance)
    write_model(report, model, data.target_names, data.names)
    write_data(report, data, run.config["notes"])
    watched = (
        "`log_odds`, the log odds of the most probable class on some fitted rows"
        if is_classifier
        else f"`fit`, the predicted mean on some fitted rows{_PARAMETERS.get(model.likelihood, '')}"
    )
    about = f"Single weights of a network have no meaning, so the diagnostics use what it computes: {watched}."
    draws = identified_draws(model, data)
    points = point_estimates(model, draws)
    end(report, draws, statistics(model), run, about=about, points=points)
    report.write(path)


def _summary(
    report: Report, found: Results, importance: Importance, data: LabelledTable, config: Mapping[str, Any]
) -> None:
    report.text(answer(found, data.target))
    scored.write(
        report,
        found.scores,
        f"Scores on {found.rows.words}, ± one standard error. "
        + ("" if found.rows.weights is None else "They are weighted means, as the fit is weighted. ")
        + (
            f"{_which(found.rows, config['options'].get('time', ''))} not used by any of the fits "
            f"(`--test-fraction {config['options'].get('test_fraction', 0.2):g}`)."
            if found.rows.is_held_out
            else "All fits used these rows."
        ),
    )
    if found.rows.caution:
        report.callout("note" if found.rows.is_held_out else "warning", found.rows.caution)
    if others := found.rows.left_out:
        report.text(
            f"{others} of {int(data.is_test.sum())} held-out rows {'has' if others == 1 else 'have'} a class that no "
            "fitted row has. The network cannot predict it; the scores leave these rows out."
        )
    clear = [f"`{name}`" for name, score in importance.scores.items() if score.value > 2 * np.nan_to_num(score.error)]
    if clear:
        more = f" and {len(clear) - 5} more" if len(clear) > 5 else ""
        report.text(f"The inputs that matter, the most important first: {', '.join(clear[:5])}{more}.")
    else:
        report.text("No single input clearly matters for the predictions of these rows.")


def _which(rows: Judged, time: str) -> str:
    if time:
        return f"They are the latest rows by `{time}`,"
    return f"The {'rows' if rows.groups is None else 'groups'} were chosen at random and"


def _numbers(report: Report, model: Any, data: LabelledTable, found: Results) -> None:
    parts, ranks, y, weights = found.predictions, found.ranks, found.rows.targets, found.rows.weights
    assert ranks is not None
    shown = np.linspace(0, len(y) - 1, min(_MOST_POINTS, len(y))).astype(int)
    levels = [(1 + sign * level) / 2 for level in scored.LEVELS for sign in (-1, 1)]
    quantiles = model.predict_quantiles(found.rows.inputs[shown], levels).reshape(-1, 2, len(shown))
    some = f", {len(shown)} of {len(y):,} rows" if len(shown) < len(y) else ""
    is_log = model.likelihood == "log-normal"
    centre = model.predict_quantiles(found.rows.inputs[shown], (0.5,))[0] if is_log else parts.mean[shown]
    report.figure(
        plots.predicted_figure(centre, quantiles[scored.LEVELS.index(0.9)], y[shown], data.target, is_log=is_log),
        f"Predicted {'median' if is_log else 'mean'} against observed value, with 90 % predictive intervals{some}.",
    )
    intervals = dict(zip(scored.LEVELS, quantiles, strict=True))
    rows = scored.coverage(intervals, y[shown], None if weights is None else weights[shown])
    report.table(rows, ["interval", "rows inside", "mean width"], f"Predictive intervals{some}.")
    report.figure(
        figures.calibration_figure(ranks, weights),
        "Calibration: the fraction of rows below each quantile of their prediction. On the dotted line the predictions "
        "are calibrated; the band holds two standard errors."
        + (" Counts are spread at random over the probability of their value." if model.likelihood in COUNTS else ""),
    )
    share = float((parts.epistemic / parts.variance).mean())
    report.text(
        f"The mean predictive standard deviation is {rounded(float(np.sqrt(parts.variance).mean()))}. "
        f"{100 * share:.0f} % of the predictive variance is epistemic: the draws disagree, and more data would reduce "
        "it. The rest is noise."
    )
    if hasattr(model, "calibration_") and found.rows.is_held_out:
        interval = model.predict_interval(found.rows.inputs)
        covered = np.mean((interval.lower <= y) & (y <= interval.upper))
        report.text(f"Conformal 90 % intervals hold {100 * covered:.0f} % of the held-out rows.")


def _classes(report: Report, model: Any, data: LabelledTable, found: Results) -> None:
    parts, labels, names = found.predictions, found.rows.targets, [str(name) for name in model.classes_]
    if curves := _curves(found, names):
        of = f"of the class `{names[1]}`" if len(names) == 2 else "of the most frequent classes, each against the rest"
        report.figure(
            figures.curves_figure(curves, found.rows.weights),
            f"ROC curve and precision-recall curve {of}. The dotted line is the ROC curve of a prediction without "
            "information.",
        )
    if len(names) <= _MOST_CLASSES_SHOWN:
        size = len(names)
        counts = np.bincount(labels * size + parts.labels, minlength=size * size).reshape(size, size)
        rows = [[name, *map(int, row)] for name, row in zip(names, counts, strict=True)]
        heading = ["true class", *(f"as {name}" for name in names)]
        report.table(rows, heading, "Confusion matrix: number of rows by true and predicted class.")
    report.table(
        [_of_class(name, parts.labels == k, labels == k, found.rows) for k, name in enumerate(names)],
        ["class", "precision", "recall", "F1", "support"],
        "Precision: the fraction of the rows predicted as the class that have it. Recall: the fraction of the rows of "
        "the class that are predicted as it. F1: their harmonic mean. Support: the number of rows of the class. "
        "± is one standard error.",
    )
    num_bins = 15 if len(labels) >= 500 else 8
    report.figure(
        reliability_plot(
            scores.reliability(parts.probabilities, labels, num_bins=num_bins, weights=found.rows.weights)
        ),
        "Reliability: the fraction of correct predictions against their predicted probability. Dots below the dotted "
        "line are over-confident, dots above it under-confident."
        + (
            f" Probabilities are sharpened by the temperature {model.scaling_temperature_:.2g}, found on fitted rows."
            if model.scaling_temperature_ < 1.0
            else ""
        ),
    )
    is_right = parts.labels == labels
    rows = [
        [name, int(chosen.sum()), *(float(v[chosen].mean()) for v in (parts.total, parts.aleatoric, parts.epistemic))]
        for name, chosen in (("correct", is_right), ("wrong", ~is_right))
        if chosen.any()
    ]
    report.table(
        rows,
        ["predictions", "rows", "entropy", "aleatoric", "epistemic"],
        "Mean uncertainty in nats. Aleatoric uncertainty is the part on which the draws agree. Epistemic uncertainty "
        "is the part on which they disagree; it shrinks with more data.",
    )
    if hasattr(model, "calibration_") and found.rows.is_held_out:
        members = model.predict_set(found.rows.inputs)
        covered = float(members[np.arange(len(labels)), labels].mean())
        report.text(
            f"Conformal sets at 90 %: {100 * covered:.0f} % of the held-out rows have their class in the set. The "
            f"sets hold {members.sum(axis=1).mean():.2f} classes on average."
        )


def _of_class(name: str, is_predicted: np.ndarray, is_true: np.ndarray, rows: Judged) -> list[object]:
    w = np.ones(len(is_true)) if rows.weights is None else rows.weights
    groups = np.arange(len(is_true)) if rows.groups is None else rows.groups
    precision, recall = (
        held_out.proportion(hits[among], w[among]).by_group(groups[among]) if among.any() else None
        for hits, among in ((is_true, is_predicted), (is_predicted, is_true))
    )
    total = w @ is_predicted + w @ is_true
    harmonic = f"{2 * (w @ (is_predicted & is_true)) / total:.3f}" if total else "–"
    shares = [with_error(score.value, score.error) if score else "–" for score in (precision, recall)]
    return [name, *shares, harmonic, int(is_true.sum())]


def _curves(found: Results, names: list[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labelled curves: of two models if there are two classes, else of the network for the most frequent classes."""
    labels = found.rows.targets
    if len(names) == 2:
        is_in = labels == 1
        both = {name: (is_in, p[:, 1]) for name, p in list(found.probabilities.items())[:2]}
        return both if 0 < is_in.sum() < len(is_in) else {}
    frequent = np.argsort(-np.bincount(labels, minlength=len(names)), kind="stable")[:_MOST_CURVES].tolist()
    each = {names[k]: (labels == k, found.probabilities[NETWORK][:, k]) for k in frequent}
    return {name: (is_in, p) for name, (is_in, p) in each.items() if 0 < is_in.sum() < len(is_in)}


def _inputs(report: Report, model: Any, data: LabelledTable, importance: Importance) -> None:
    is_classifier = hasattr(model, "classes_")
    quantity = "increase of the log loss, in nats" if is_classifier else "decrease of R²"
    report.figure(
        figures.importance_figure(importance.scores, f"{quantity}, if the input is permuted"),
        "Permutation importance: how much worse the predictions are when the values of one input are permuted between "
        "rows, with 90 % intervals over rows and permutations. Inputs that carry the same information share their "
        f"importance. Computed with {importance.num_rows} rows, {importance.num_draws} draws and "
        f"{importance.num_repeats} permutations of each input.",
    )
    parts = partial_dependence(model, data, list(importance.scores)[:_MOST_DEPENDENCES])
    shown: list[int] = []
    if is_classifier:
        counts = [np.sum(data.train[1] == name) for name in model.classes_]
        frequent = np.argsort(-np.asarray(counts), kind="stable")[:_MOST_CURVES].tolist()
        shown = [1] if len(model.classes_) == 2 else sorted(frequent)
        parts = [part._replace(curves=part.curves[..., shown]) for part in parts]
    names = [str(model.classes_[k]) for k in shown]
    predicted = f"mean {data.target}" if not names else f"P({names[0]})" if len(names) == 1 else "probability"
    report.figure(
        figures.dependence_figure(parts, predicted, names, is_log=model.likelihood == "log-normal"),
        "Partial dependence: the mean prediction over some fitted rows when one input is set to the value on the "
        f"axis, median and 90 % interval over {importance.num_draws} draws. The other inputs keep their values, so "
        "read it with care where inputs are strongly correlated. Of many categories it shows the most frequent.",
    )
