"""The HTML reports of the network models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from geodax.app.family import RunFacts, posterior_arrays
from geodax.app.network.contacts import ContactWindows
from geodax.app.network.files import Adjacency
from geodax.app.network.scores import ABOUT, PRODUCT, contact_scores
from geodax.app.report import plots, scored
from geodax.app.report.drawing import (
    INK,
    NORMAL,
    SERIES,
    SMALL,
    WIDTH,
    as_dates,
    draw_intervals,
    finish,
    labelled,
    new_figure,
    panel,
    short,
    styled,
)
from geodax.app.report.html import Report
from geodax.app.report.numbers import interval_of, rounded
from geodax.app.report.parts import Checks, begin, end, write_checks
from geodax.models.eigenmodel.estimator import Eigenmodel
from geodax.models.network.estimator import NetworkHMM
from geodax.models.network.modes import NetworkMode
from geodax.predict import held_out
from geodax.predict.held_out import Score

_MOST_PAIRS, _MOST_NODES, _MOST_MODES = 8, 25, 8
_MOST_NAMED = 6  # eigenvalues or states in the summary
_NO_ORDER = Score(0.5, np.zeros(2))


def eigenmodel_draws(model: Eigenmodel) -> dict[str, np.ndarray]:
    """Return draws that an eigenmodel identifies: intercept, ordered eigenvalues, some linear predictors, lp."""
    posterior, stats = posterior_arrays(model)
    vectors, values, intercept = (posterior[name] for name in ("vectors", "eigenvalues", "intercept"))
    pairs = np.argwhere(np.triu(np.ones(2 * vectors.shape[2:3]), 1))
    chosen = pairs[np.linspace(0, len(pairs) - 1, min(_MOST_PAIRS, len(pairs))).astype(int)]
    draws = {"intercept": intercept, "eigenvalues": values, "lp": stats["lp"]}
    for i, j in chosen.tolist():
        draws[f"predictor[{i},{j}]"] = intercept + np.einsum("cdp,cdp->cd", vectors[:, :, i] * values, vectors[:, :, j])
    return draws


def network_draws(model: NetworkHMM) -> dict[str, np.ndarray]:
    """Return draws that a network model identifies once states are ordered: transitions, rates, lp."""
    posterior, stats = posterior_arrays(model)
    vectors, values = posterior["vectors"], posterior["eigenvalues"]
    eta = np.einsum("cdkip,cdkp,cdkjp->cdkij", vectors, values, vectors) + posterior["intercept"][..., None, None]
    rows, columns = np.triu_indices(vectors.shape[-2], 0 if model.diagonal else 1)
    totals = np.logaddexp.reduce(eta[..., rows, columns], axis=-1)
    draws = {"log_total_rate": totals, "eigenvalues": values, "lp": stats["lp"]}
    if model.counts != "poisson":
        draws["dispersion"] = posterior["dispersion"]
    return draws | ({"transition": posterior["transition"]} if model.n_states > 1 else {})


def _numbered(name: str, draws: np.ndarray) -> dict[str, np.ndarray]:
    """The last axis by the names of the text, which count from 1."""
    return {f"{name} {k + 1}": draws[..., k] for k in range(draws.shape[-1])}


def _about_eigenvalues(values: np.ndarray) -> str:
    found = ""
    for k, draws in enumerate(np.moveaxis(values, -1, 0)[:_MOST_NAMED]):
        shows, sides = "not clearly different from zero", np.sign(np.quantile(draws, (0.05, 0.95)))
        if sides[0] == sides[1]:
            shows = f"so nodes whose entries have {'the same sign' if sides[0] > 0 else 'opposite signs'} connect more"
        found += f"Eigenvalue {k + 1} is {interval_of(draws)}, {shows}. "
    return f"{found}(Medians and 90 % intervals.)"


def write_eigenmodel(model: Eigenmodel, data: Adjacency, run: RunFacts, path: Path) -> None:
    """Write the report of an eigenmodel."""
    n = len(data.names)
    report = Report(f"Eigenmodel of {Path(run.config['file']).name}", subtitle=f"{n} nodes, rank {model.rank}")
    draws = eigenmodel_draws(model)
    begin(report, _about_eigenvalues(draws["eigenvalues"]), run)
    report.code(
        f"pair i < j:  Y_ij ~ {'Poisson(exp(eta_ij))' if model.link == 'log' else 'Bernoulli'}, link {model.link}\n"
        "predictor:   eta = c + U Lambda U^T, U orthonormal, eigenvalues descending, signs aligned"
    )
    _write_held_out(report, data, model)
    report.section("Eigenvalues and eigenvectors")
    report.figure(
        plots.interval_plot({"intercept": draws["intercept"]} | _numbered("eigenvalue", draws["eigenvalues"])),
        "Intercept and eigenvalues: median, 50 % and 90 % interval. A positive eigenvalue connects nodes whose entries "
        "have the same sign, a negative one nodes with opposite signs.",
    )
    vectors = model.draws(None).vectors
    for k in range(vectors.shape[-1]):
        largest = np.argsort(-np.abs(np.median(vectors[..., k], axis=0)))[:_MOST_NODES]
        figure, ax = panel(0.6 + 0.17 * len(largest))
        draw_intervals(ax, [short(data.names[i]) for i in largest], [np.asarray(vectors[:, i, k]) for i in largest])
        report.figure(finish(figure), f"Entries of eigenvector {k + 1}: the {len(largest)} largest of {n} nodes.")
    report.section("Probabilities" if model.link != "log" else "Rates")
    order = np.argsort(model.vectors_[:, 0])
    shown = [("observed", data.values[np.ix_(order, order)]), ("model", model.predict()[np.ix_(order, order)])]
    report.figure(
        _heatmaps(shown, None), "The network and its posterior mean, with nodes in the order of eigenvector 1."
    )
    write_checks(report, eigenmodel_checks(data, model))
    end(report, draws, posterior_arrays(model)[1], run)
    report.write(path)


def eigenmodel_checks(data: Adjacency, model: Eigenmodel) -> Checks:
    """Return quantities of a network and of its replicates."""
    replicates, off = model.sample_networks(), ~np.isnan(data.fitted) & ~np.eye(len(data.names), dtype=bool)
    checks = {
        "fraction of pairs above zero": lambda y: np.mean((y > 0)[..., off], axis=-1),
        "standard deviation of degrees": lambda y: np.where(off, y, 0.0).sum(axis=-1).std(axis=-1),
        "largest degree": lambda y: np.where(off, y, 0.0).sum(axis=-1).max(axis=-1),
        "triangles": lambda y: np.einsum("...ij,...jk,...ki->...", *3 * [np.where(off, y, 0.0)], optimize=True) / 6,
    }
    return {name: (float(f(data.fitted)), f(replicates)) for name, f in checks.items()}


def held_out_scores(data: Adjacency, model: Eigenmodel) -> scored.Scores:
    """Return scores of the held-out pairs, if any, of the model and of the fitted mean alone."""
    if data.is_test is None:
        return {}
    is_test = np.triu(data.is_test, 1)
    y, predicted = data.values[is_test], model.predict()[is_test]
    mean = float(np.nanmean(data.fitted[np.triu_indices(len(data.names), 1)]))
    distribution = stats.poisson if model.link == "log" else stats.bernoulli
    own = model.log_predictive(np.where(data.is_test, data.values, np.nan))
    logs = {"eigenmodel": own, "mean alone": distribution.logpmf(y, mean)}
    means = {"eigenmodel": predicted, "mean alone": np.full(len(y), mean)}
    found = {
        "mean log probability": {name: held_out.mean(each) for name, each in logs.items()},
        "root mean squared error": {name: held_out.root_mean_squared_error(each, y) for name, each in means.items()},
    }
    if 0 < (y > 0).sum() < len(y):
        areas = {"eigenmodel": held_out.roc_area(predicted, y > 0), "mean alone": _NO_ORDER}
        found = {"area under the ROC curve": areas} | found
    return found


def held_out_remarks(data: Adjacency, model: Eigenmodel) -> tuple[str, ...]:
    """Return sentences about the held-out pairs, if there are any."""
    found = held_out_scores(data, model)
    if not found:
        return ()
    said = ", ".join(f"{name} {value} ({alone} by the mean alone)" for name, value, alone in scored.rows(found))
    return (f"Held-out pairs: {said}.", *filter(None, [scored.shortfall(found)]))


def _write_held_out(report: Report, data: Adjacency, model: Eigenmodel) -> None:
    found = held_out_scores(data, model)
    if not found:
        return
    report.section("Held-out pairs")
    assert data.is_test is not None
    scored.write(
        report,
        found,
        f"Scores on {int(data.is_test.sum()) // 2:,} held-out pairs. The area under the ROC curve is the probability "
        "that a pair above zero has a larger prediction than one of zero.",
    )


def _about_states(model: NetworkHMM) -> str:
    pairs = np.triu_indices(model.rates_.shape[-1], 0 if model.diagonal else 1)
    found = zip(model.state_probabilities_.sum(axis=0).tolist(), model.rates_[:_MOST_NAMED], strict=False)
    return " ".join(
        f"State {k + 1} holds in {rounded(time)} windows, with "
        f"{rounded(float(rates[pairs].sum()))} expected contacts in each."
        for k, (time, rates) in enumerate(found)
    )


def write_network(
    model: NetworkHMM, data: ContactWindows, modes: Sequence[NetworkMode], run: RunFacts, path: Path
) -> None:
    """Write the report of a hidden Markov network model."""
    subtitle = f"{len(data.counts)} windows, {len(data.names)} classes, {model.n_states} states, rank {model.rank}"
    report = Report(f"Hidden states of {Path(run.config['file']).name}", subtitle=subtitle)
    begin(report, _about_states(model), run)
    poisson = "Poisson(R_ij of the state of window t)"
    distribution = poisson if model.counts == "poisson" else "negative binomial, mean R_ij of the state of window t"
    report.code(
        f"counts:  Y_tij ~ {distribution}\n"
        f"rates:   R = exp({'c + ' if model.intercept else ''}W Lambda W^T) elementwise, W orthonormal\n"
        "states:  a hidden Markov chain, marginalised; numbered by total rate, lowest first"
    )
    _write_held_out_counts(report, data, model)
    probabilities = model.state_probabilities_
    report.section("States over time")
    figure, ax = panel(2.2)
    labels = [f"state {k + 1}" for k in range(model.n_states)]
    ends = np.append(data.starts, data.starts[-1] + data.width)
    ax.stackplot(ends, np.vstack([probabilities, probabilities[-1:]]).T, labels=labels, step="post", colors=SERIES)
    labelled(ax, x="time")
    if data.is_date:
        as_dates(ax)
    figure.legend(loc="outside upper center", ncols=model.n_states, frameon=False)
    report.figure(finish(figure), "Posterior probability of each state in each window.")
    report.table(
        [
            [labels[k], float(probabilities[:, k].sum()), *(rounded(float(v)) for v in model.transition_[k])]
            for k in range(model.n_states)
        ],
        ["state", "expected windows", *(f"to {label}" for label in labels)],
        "Time in each state, and posterior mean transition probabilities.",
    )
    report.section("Rates")
    report.figure(
        _heatmaps([(labels[k], model.rates_[k]) for k in range(model.n_states)], data.names),
        "Posterior mean rates of contacts per window, on the scale of log(1 + rate).",
    )
    rates = network_draws(model)["log_total_rate"]
    report.figure(plots.interval_plot(_numbered("state", rates)), "Log total rate of each state.")
    vectors = model.draws(None).vectors
    for k in range(model.n_states):
        figure = new_figure(WIDTH, 0.8 + 0.17 * len(data.names))
        for j in range(min(2, model.rank)):
            ax = styled(figure.add_subplot(1, min(2, model.rank), j + 1))
            draw_intervals(ax, [short(name) for name in data.names], list(vectors[:, k, :, j].T))
            ax.set_title(f"column {j + 1}", fontsize=NORMAL)
        report.figure(finish(figure), f"Entries of W of state {k + 1}: median, 50 % and 90 % interval.")
    counts, replicates, is_fitted = _counts_and_replicates(data, model)
    write_checks(report, _checks_of(counts, replicates, is_fitted))
    low, high = np.quantile(replicates.sum(axis=-1), [0.05, 0.95], axis=0)
    totals = counts.sum(axis=-1)
    share = 100 * float(np.mean((low <= totals) & (totals <= high)))
    report.text(f"In {share:.0f} % of the windows the number of contacts lies within its 90 % predictive interval.")
    _write_modes(report, modes)
    end(report, network_draws(model), posterior_arrays(model)[1], run)
    report.write(path)


def network_checks(data: ContactWindows, model: NetworkHMM) -> Checks:
    """Return quantities of the counts and of their replicates, given the states."""
    return _checks_of(*_counts_and_replicates(data, model))


def _checks_of(counts: np.ndarray, replicates: np.ndarray, is_fitted: np.ndarray) -> Checks:
    checks = {
        "total contacts": lambda y: y.sum(axis=(-1, -2)),
        "largest number in a window": lambda y: y.sum(axis=-1).max(axis=-1),
        "standard deviation over windows": lambda y: y.sum(axis=-1).std(axis=-1),
        "fraction of zeros": lambda y: np.mean((y == 0)[..., is_fitted], axis=-1),
    }
    return {name: (float(f(counts)), f(replicates)) for name, f in checks.items()}


def _counts_and_replicates(data: ContactWindows, model: NetworkHMM) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of data (window x pair) and replicates (draw x window x pair), 0 where none is fitted, and which are."""
    rows, columns = np.triu_indices(len(data.names), 0 if model.diagonal else 1)
    counts, replicates = (y[..., rows, columns] for y in (data.fitted, model.sample_counts(data.fitted)))
    is_fitted = ~np.isnan(counts)
    return np.where(is_fitted, counts, 0.0), np.where(is_fitted, replicates, 0.0), is_fitted


def _write_held_out_counts(report: Report, data: ContactWindows, model: NetworkHMM) -> None:
    found = contact_scores(data, model)
    if not found:
        return
    report.section("Held-out counts")
    scored.write(report, found, "Scores of the counts held out by --test-fraction.")
    report.text(" ".join(scored.compared(name, row, PRODUCT) for name, row in found.items()))
    report.text(ABOUT)


def _write_modes(report: Report, modes: Sequence[NetworkMode]) -> None:
    report.section("Modes")
    first = modes[0]
    rows = [
        [
            i + 1,
            "0" if i == 0 else f"-{first.log_density - mode.log_density:.1f}",
            mode.num_starts,
            ", ".join(map(str, np.bincount(mode.probabilities.argmax(axis=1), minlength=len(mode.moves)))),
            int((mode.probabilities.argmax(axis=1) != first.probabilities.argmax(axis=1)).sum()),
        ]
        for i, mode in enumerate(modes[:_MOST_MODES])
    ]
    report.table(
        rows,
        [
            "mode",
            "log density",
            "starts that reached it",
            "windows per state",
            "windows in another state than in mode 1",
        ],
        f"Local maxima of the posterior, found from {sum(mode.num_starts for mode in modes)} different partitions of "
        "the windows. All chains started near the first. A mode that is hundreds of units lower has no posterior mass; "
        "one that is a few units lower may have some.",
    )


_LEAST_GAP = 0.08  # between the numbers of a colour bar, as a fraction of its length


def _heatmaps(matrices: Sequence[tuple[str, np.ndarray]], names: Sequence[str] | None) -> Any:
    figure = new_figure(WIDTH, 1.0 + 0.85 * WIDTH / max(2, len(matrices)))
    top = max(float(np.nanmax(matrix)) for _, matrix in matrices)
    image: Any = None
    axes = []
    for k, (title, matrix) in enumerate(matrices):
        ax = styled(figure.add_subplot(1, len(matrices), k + 1))
        image = ax.imshow(np.log1p(matrix), vmin=0.0, vmax=np.log1p(top), cmap="viridis")
        ax.set_title(title, fontsize=NORMAL)
        ticks = range(len(names)) if names is not None and len(names) <= 30 else []
        ax.set_xticks(ticks, [short(name, 12) for name in names or ()] if ticks else [], rotation=90)
        ax.set_yticks(ticks, [short(name, 12) for name in names or ()] if ticks else [])
        ax.tick_params(axis="y", labelleft=k == 0)
        axes.append(ax)
    marks = [0.0]
    for mark in (0.25, 0.5, *(step * 10.0**power for power in range(12) for step in (1, 3))):
        if mark <= top and np.log1p(mark) - np.log1p(marks[-1]) >= _LEAST_GAP * np.log1p(top):
            marks.append(mark)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_ticks([float(np.log1p(mark)) for mark in marks], labels=[f"{mark:,.12g}" for mark in marks])
    bar.ax.tick_params(colors=INK, labelsize=SMALL)
    bar.outline.set_edgecolor(INK)
    return finish(figure)
