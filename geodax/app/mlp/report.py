"""The HTML reports of the dense networks."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as laws

from geodax.app.family import statistics
from geodax.app.mlp.files import LabelledTable
from geodax.app.report.calibration import reliability_plot
from geodax.app.report.drawing import NORMAL, WIDTH, finish, new_figure, short, styled
from geodax.app.report.html import Report
from geodax.app.report.numbers import rounded
from geodax.app.report.page import INK, SERIES
from geodax.app.report.parts import begin, end
from geodax.data.errors import counted
from geodax.diagnostics.findings import Finding
from geodax.models.mlp.classifier import BayesianMLPClassifier
from geodax.models.mlp.regressor import BayesianMLPRegressor
from geodax.models.unit_network.functions import anchors
from geodax.predict import scores

_MOST_CLASSES_SHOWN = 20
_MOST_POINTS = 600
_MOST_ODDS = 30.0
_LEVELS = (0.5, 0.8, 0.9, 0.95)


def identified_draws(model: Any, data: LabelledTable) -> dict[str, np.ndarray]:
    """Return draws that the posterior identifies: the function on some rows, and the noise.

    Args:
        model: The fitted estimator.
        data: Its data.

    Returns:
        ``log_odds`` of each row's most probable class, or ``fit`` and ``noise``; chain x draw first.
    """
    rows = data.train[0]
    is_whole = ~np.isnan(rows).any(axis=1)
    rows = rows[is_whole] if is_whole.any() else rows
    rows = rows[anchors(rows)]
    num_chains, num_draws = (model.posterior_["posterior"].sizes[axis] for axis in ("chain", "draw"))
    drawn = model.predict_draws(rows)
    if hasattr(model, "classes_"):
        likeliest = drawn.mean(axis=0).argmax(axis=1)
        p = drawn[:, np.arange(len(rows)), likeliest]
        tiny = np.exp(-_MOST_ODDS)
        values = {"log_odds": np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))}
    else:
        values = {"fit": drawn}
    found = {k: v.reshape(num_draws, num_chains, *v.shape[1:]).swapaxes(0, 1) for k, v in values.items()}
    posterior = model.posterior_["posterior"].data_vars
    noises = [np.exp(values.values) for name, values in posterior.items() if str(name).endswith("log_noise")]
    return {"noise": model.target_spread_ * noises[0], **found} if noises else found


def write_classifier(
    model: BayesianMLPClassifier,
    data: LabelledTable,
    findings: Sequence[Finding],
    config: Mapping[str, Any],
    command: str,
    path: Path,
) -> None:
    """Write the report of a classifier.

    Args:
        model: The fitted estimator.
        data: The rows, including those held out.
        findings: Findings of the diagnostics.
        config: Configuration of the run.
        command: The command that repeats the run.
        path: The file to write.
    """
    report = _opened(model, data, findings, config, f"{len(model.classes_)} classes")
    x, y = data.test
    is_known = np.isin(y, model.classes_)
    others = int(np.sum(~is_known))
    x, y = x[is_known], y[is_known]
    report.section("Held-out rows")
    if others:
        report.text(
            f"{others} of {len(is_known)} held-out rows {'has' if others == 1 else 'have'} a class that no fitted row "
            "has. The ensemble cannot predict it; the scores below leave these rows out."
        )
    if len(y) == 0:
        if not others:
            report.text("No rows were held out. Use `--test-fraction` to hold some out.")
    else:
        parts = model.predict_parts(x)
        labels = np.searchsorted(model.classes_, y)
        shares = np.mean(model.classes_[:, None] == data.train[1][None], axis=1)
        flat = np.tile(shares / shares.sum(), (len(y), 1))
        num_bins = 15 if len(y) >= 500 else 8
        quantities = (
            ("accuracy", scores.accuracy),
            ("mean log probability of the true class", scores.log_probability),
            ("Brier score", scores.brier),
            (f"calibration error, {num_bins} bins", functools.partial(scores.ece, num_bins=num_bins)),
        )
        rows = [[name, score(parts.probabilities, labels), score(flat, labels)] for name, score in quantities]
        report.table(rows, ["score", "ensemble", "class frequencies alone"], f"Scores on {len(y)} held-out rows.")
        bins = scores.reliability(parts.probabilities, labels, num_bins=num_bins)
        report.figure(
            reliability_plot(bins),
            "Reliability: the fraction of correct predictions against their predicted probability. Dots below the "
            "dotted line are over-confident, dots above it under-confident.",
        )
        is_right = parts.labels == labels
        named = (("correct", is_right), ("wrong", ~is_right))
        rows = [
            [
                name,
                int(chosen.sum()),
                *(float(v[chosen].mean()) for v in (parts.total, parts.aleatoric, parts.epistemic)),
            ]
            for name, chosen in named
            if chosen.any()
        ]
        report.table(
            rows,
            ["predictions", "rows", "entropy", "aleatoric", "epistemic"],
            "Mean uncertainty in nats. Aleatoric uncertainty is the part on which the draws agree. Epistemic "
            "uncertainty is the part on which they disagree; it shrinks with more data.",
        )
        if len(model.classes_) <= _MOST_CLASSES_SHOWN:
            _confusion(report, model, parts.labels, labels)
        if hasattr(model, "calibration_"):
            members = model.predict_set(x)
            covered = float(members[np.arange(len(y)), labels].mean())
            report.text(
                f"Conformal sets at 90 %: {100 * covered:.0f} % of the held-out rows have their class in the set. The "
                f"sets hold {members.sum(axis=1).mean():.2f} classes on average."
            )
    _closed(report, model, data, findings, config, command, path)


def write_regressor(
    model: BayesianMLPRegressor,
    data: LabelledTable,
    findings: Sequence[Finding],
    config: Mapping[str, Any],
    command: str,
    path: Path,
) -> None:
    """Write the report of a regressor.

    Args:
        model: The fitted estimator.
        data: The rows, including those held out.
        findings: Findings of the diagnostics.
        config: Configuration of the run.
        command: The command that repeats the run.
        path: The file to write.
    """
    report = _opened(model, data, findings, config, "normal noise")
    x, y = data.test
    report.section("Held-out rows")
    if len(y) == 0:
        report.text("No rows were held out. Use `--test-fraction` to hold some out.")
    else:
        parts = model.predict_parts(x, y)
        centre, spread = data.train[1].mean(), data.train[1].std()
        assert parts.log_density is not None
        table = [
            ["root mean squared error", scores.rmse(parts.mean, y), scores.rmse(np.full(len(y), centre), y)],
            [
                "mean log density",
                -scores.mnll(parts.log_density),
                float(laws.norm.logpdf(y, centre, spread).mean()),
            ],
            ["mean predictive standard deviation", float(np.sqrt(parts.variance).mean()), float(spread)],
            ["epistemic fraction of the variance", float((parts.epistemic / parts.variance).mean()), "–"],
        ]
        report.table(table, ["score", "ensemble", "mean alone"], f"Scores on {len(y)} held-out rows.")
        rows = []
        for level in _LEVELS:
            low, high = model.predict_quantiles(x, [(1 - level) / 2, (1 + level) / 2])
            inside = float(np.mean((low <= y) & (y <= high)))
            rows.append([f"{100 * level:.0f} %", f"{100 * inside:.0f} %", rounded(float(np.mean(high - low)), 3)])
        report.table(rows, ["interval", "held-out rows inside", "mean width"], "Intervals of new data.")
        report.figure(
            _predicted(parts.mean, model.predict_quantiles(x), y, data.target),
            "Held-out rows: predicted mean against observed value, with 90 % predictive intervals.",
        )
        report.figure(
            _calibration(model.predict_cdf(x, y)),
            "Calibration: the fraction of held-out rows below each quantile of their prediction. On the dotted line "
            "the predictions are calibrated.",
        )
        if hasattr(model, "calibration_"):
            found = model.predict_interval(x)
            covered = np.mean((found.lower <= y) & (y <= found.upper))
            report.text(f"Conformal 90 % intervals hold {100 * covered:.0f} % of the held-out rows.")
    _closed(report, model, data, findings, config, command, path)


def _opened(model: Any, data: LabelledTable, findings: Any, config: Mapping[str, Any], law: str) -> Report:
    widths = "-".join(map(str, model.widths)) if model.widths else "no hidden layers"
    aside = len(model.calibration_[0]) if hasattr(model, "calibration_") else 0
    calibrating = f", {aside} for calibration" if aside else ""
    report = Report(
        f"{data.target} in {Path(config['file']).name}",
        subtitle=f"Bayesian network {widths}, {law}, {len(data.train[0]) - aside} rows fitted{calibrating}, "
        f"{counted(len(data.names), 'input')}",
    )
    begin(report, findings, config)
    report.text(
        "The chains of a network are in different modes and need not agree. The ensemble averages over all of them. "
        "The held-out rows show whether its probabilities can be trusted. The diagnostics use the output of the "
        "network, not its weights: "
        + (
            "`log_odds`, the log odds of the most probable class on some fitted rows."
            if hasattr(model, "classes_")
            else "`fit`, the mean without noise on some fitted rows."
        )
    )
    return report


def _closed(
    report: Report, model: Any, data: LabelledTable, findings: Any, config: Mapping[str, Any], command: str, path: Path
) -> None:
    end(report, identified_draws(model, data), statistics(model), findings, config, command)
    report.write(path)


def _confusion(report: Report, model: BayesianMLPClassifier, predicted: np.ndarray, labels: np.ndarray) -> None:
    size = len(model.classes_)
    counts = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
    rows = [[str(name), *map(int, row)] for name, row in zip(model.classes_, counts, strict=True)]
    heading = ["true class", *(f"as {name}" for name in model.classes_)]
    report.table(rows, heading, "Number of held-out rows by true and predicted class.")


def _predicted(mean: np.ndarray, interval: np.ndarray, y: np.ndarray, target: str) -> Any:
    low, high = interval
    shown = np.linspace(0, len(y) - 1, min(_MOST_POINTS, len(y))).astype(int)
    figure = new_figure(WIDTH, 4.2)
    ax = styled(figure.add_subplot())
    ax.vlines(mean[shown], low[shown], high[shown], color=SERIES[0], alpha=0.25, linewidth=0.8)
    ax.plot(mean[shown], y[shown], ".", color=SERIES[0], markersize=5, markeredgewidth=0)
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    ax.plot(ends, ends, ":", color=INK, linewidth=0.9)
    ax.set_xlabel(f"predicted {short(target)}", fontsize=NORMAL, color=INK)
    ax.set_ylabel(f"observed {short(target)}", fontsize=NORMAL, color=INK)
    return finish(figure)


def _calibration(ranks: np.ndarray) -> Any:
    figure = new_figure(4.4, 3.8)
    ax = styled(figure.add_subplot())
    levels = np.linspace(0, 1, 101)
    shares = np.mean(ranks[:, None] <= levels[None], axis=0)
    error = 2 * np.sqrt(levels * (1 - levels) / len(ranks))
    band = np.clip([levels - error, levels + error], 0, 1)
    ax.fill_between(levels, *band, color=INK, alpha=0.15, linewidth=0)
    ax.plot([0, 1], [0, 1], ":", color=INK, linewidth=0.9)
    ax.plot(levels, shares, color=SERIES[0], linewidth=1.4)
    ax.set_xlabel("level of the quantile", fontsize=NORMAL, color=INK)
    ax.set_ylabel("fraction of rows below it", fontsize=NORMAL, color=INK)
    return finish(figure)
