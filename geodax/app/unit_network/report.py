"""The HTML report of the ReLU network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.family import RunFacts, posterior_arrays
from geodax.app.report import plots
from geodax.app.report.drawing import SERIES, SMALL, draw_intervals, finish, grid, labelled, panel, short
from geodax.app.report.html import Report
from geodax.app.report.numbers import interval_of
from geodax.app.report.page import INK
from geodax.app.report.parts import Checks, begin, end, write_checks
from geodax.app.tables.read import Table
from geodax.data.errors import counted
from geodax.models.unit_network.estimator import UnitNetworkRegressor
from geodax.models.unit_network.labels import contributions

_MOST_INPUTS = 8
_MOST_UNITS = 12
_MOST_POINTS = 600
_MOST_ROWS = 100
_NUM_PLACES = 40


def identified_draws(model: UnitNetworkRegressor) -> dict[str, np.ndarray]:
    """Return draws that the posterior identifies: noise, explained variance, values of the function, lp."""
    posterior, stats = posterior_arrays(model)
    return {name: posterior[name] for name in ("noise", "r2", "fit")} | {"lp": stats["lp"]}


def write_unit_network(model: UnitNetworkRegressor, data: Table, run: RunFacts, path: Path) -> None:
    """Write the report of a ReLU network; the last column of the data is the target."""
    x, y, is_whole = _rows_shown(data, model)
    *inputs, target = data.names
    report = Report(
        f"{target} in {Path(run.config['file']).name}",
        subtitle=f"ReLU network of {model.n_hidden} hidden units, {len(data.values)} rows, "
        f"{counted(len(inputs), 'input')}",
    )
    posterior, stats = posterior_arrays(model)
    answer = (
        f"The fraction of the variance of `{target}` in the fitted rows that the {counted(len(inputs), 'input')} can "
        f"explain (R²) is {interval_of(posterior['r2'])}, median and 90 % interval."
    )
    begin(report, answer, run)
    prior = {
        ("unit", "joint"): "(w_h, b_h) of each unit a unit vector, uniform",
        ("unit", "separate"): "w_h of each unit a unit vector, uniform; b_h normal",
        ("free", "joint"): "w_h and b_h normal: the scale of each unit is not identified",
        ("free", "separate"): "w_h and b_h normal: the scale of each unit is not identified",
    }
    report.code(
        f"output:  {target} = a + sum_h v_h max(0, w_h . x + b_h) + noise, all columns standardised\n"
        f"units:   {prior[model.weights, model.bias]}"
    )
    report.table(
        [
            ["fraction of variance explained", interval_of(posterior["r2"])],
            [
                f"standard deviation of the noise, in units of {target}",
                interval_of(model.target_spread_ * posterior["noise"]),
            ],
        ],
        ["quantity", "median and 90 % interval"],
        "Quantities that do not depend on the order and scales of the hidden units.",
    )
    report.section("Fit")
    if not is_whole.all():
        which = f"the {len(x)} rows without missing inputs" if is_whole.sum() > 1 else "rows filled with means"
        report.text(f"Figures and checks are of {which}; the fit is to all {len(data.values)} rows.")
    if len(inputs) == 1:
        report.figure(
            _curve(model, x, y, inputs[0], target),
            "The fitted function (line), its 90 % band, and the wider 90 % band of new data.",
        )
    else:
        shown = _shown(len(y))
        some = x[shown]
        interval = np.quantile(model.sample_y(some), [0.05, 0.95], axis=0)
        report.figure(
            plots.predicted_figure(model.predict(some), interval, y[shown], target),
            "Posterior mean of each row against the data, with 90 % intervals of new data. On the line they are equal.",
        )
        report.figure(
            _effects(model, x, inputs, target),
            "Effect of each input: the function at its values, averaged over rows of the data for the other inputs, "
            "with 90 % bands. The ticks below are quantiles of the data.",
        )
    _write_units(report, model, x, inputs)
    drawn = model.sample_y(x)
    write_checks(report, _checks_of(y, drawn))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    inside = 100 * float(np.mean((low <= y) & (y <= high)))
    report.text(f"{inside:.0f} % of the data lie within the 90 % predictive intervals.")
    end(report, identified_draws(model), stats, run)
    report.write(path)


def unit_network_checks(data: Table, model: UnitNetworkRegressor) -> Checks:
    """Return quantities of the targets and of their replicates."""
    x, y, _ = _rows_shown(data, model)
    return _checks_of(y, model.sample_y(x))


def _checks_of(y: np.ndarray, drawn: np.ndarray) -> Checks:
    checks = {"smallest": np.min, "largest": np.max, "standard deviation": np.std, "skewness": _skewness}
    return {name: (float(f(y, axis=-1)), f(drawn, axis=-1)) for name, f in checks.items()}


def _rows_shown(data: Table, model: UnitNetworkRegressor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs and targets of the rows without missing inputs, or of all rows filled with means; and which are whole."""
    x, y = data.values[:, :-1], data.values[:, -1]
    is_whole = ~np.asarray(np.isnan(x).any(axis=1))
    shown = is_whole if is_whole.sum() > 1 else np.ones(len(x), bool)
    return np.where(np.isnan(x[shown]), model.center_, x[shown]), y[shown], is_whole


def _write_units(report: Report, model: UnitNetworkRegressor, x: np.ndarray, inputs: Sequence[str]) -> None:
    report.section("Hidden units")
    report.text(
        "The order of the hidden units has no meaning. Units of different draws are matched by their contribution to "
        "the output. Where intervals are wide or chains are in different modes, do not interpret single weights; use "
        "the function above."
    )
    theta = model.draws()
    rows = np.linspace(0, len(x) - 1, min(_MOST_ROWS, len(x))).astype(int)
    added = contributions(theta, (x[rows] - model.center_) / model.spread_)
    shown = min(model.n_hidden, _MOST_UNITS)
    size = np.asarray(theta.output) * np.linalg.norm(theta.weights, axis=-1)
    spread = added.std(axis=-1)
    report.table(
        [
            [
                f"unit {h + 1}",
                interval_of(size[:, h]),
                interval_of(spread[:, h]),
                f"{100 * np.mean(added[:, h] != 0):.0f} %",
            ]
            for h in range(shown)
        ],
        ["unit", "slope", "standard deviation of its contribution", "rows where it is active"],
        "Each unit in standardised units. The slope is v |w|, which does not depend on the scale of the weights.",
    )
    if model.weights == "unit":
        names = [*inputs[:_MOST_INPUTS], *(["bias"] if model.bias == "joint" else [])]
        weights = np.asarray(theta.weights)[:, :, :_MOST_INPUTS]
        values = np.concatenate([weights, np.asarray(theta.bias)[..., None]], axis=-1)
        figure, axes = grid(shown, height=0.7 + 0.2 * len(names))
        for h, ax in enumerate(axes):
            draw_intervals(ax, names, list(values[:, h, : len(names)].T))
            labelled(ax, title=f"unit {h + 1}")
        report.figure(finish(figure), "Weights into each unit (and its bias): median, 50 % and 90 % interval.")


def _curve(model: UnitNetworkRegressor, x: np.ndarray, y: np.ndarray, name: str, target: str) -> Any:
    places = np.linspace(x.min(), x.max(), 3 * _NUM_PLACES)[:, None]
    figure, ax = panel(3.6)
    shown = _shown(len(y))
    ax.plot(x[shown, 0], y[shown], ".", color=INK, markersize=5, alpha=0.65, markeredgewidth=0)
    for draws, alpha in ((model.sample_y(places), 0.18), (model.predict_draws(places), 0.4)):
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        ax.fill_between(places[:, 0], low, high, color=SERIES[0], alpha=alpha, linewidth=0)
    ax.plot(places[:, 0], model.predict(places), color=SERIES[0], linewidth=1.4)
    labelled(ax, x=short(name), y=short(target))
    return finish(figure)


def _effects(model: UnitNetworkRegressor, x: np.ndarray, inputs: Sequence[str], target: str) -> Any:
    shown = min(len(inputs), _MOST_INPUTS)
    others = x[np.linspace(0, len(x) - 1, min(_MOST_ROWS, len(x))).astype(int)]
    figure, axes = grid(shown, height=1.9)
    for j, ax in enumerate(axes):
        first, last = np.quantile(x[:, j], [0.01, 0.99])
        places = np.linspace(first, last, _NUM_PLACES)
        rows = np.tile(others, (_NUM_PLACES, 1))
        rows[:, j] = np.repeat(places, len(others))
        draws = model.predict_draws(rows).reshape(-1, _NUM_PLACES, len(others)).mean(axis=2)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        ax.fill_between(places, low, high, color=SERIES[0], alpha=0.3, linewidth=0)
        ax.plot(places, draws.mean(axis=0), color=SERIES[0], linewidth=1.3)
        marks = np.quantile(x[:, j], np.linspace(0.02, 0.98, 13))
        ax.plot(marks, np.full(13, 0.03), "|", transform=ax.get_xaxis_transform(), color=INK, markersize=5)
        labelled(ax, x=short(inputs[j]), size=SMALL)
    lows, highs = zip(*(ax.get_ylim() for ax in axes), strict=True)
    for ax in axes:
        ax.set_ylim(min(lows), max(highs))
    for ax in axes[::2]:
        labelled(ax, y=short(target, 16), size=SMALL)
    return finish(figure)


def _shown(number: int) -> np.ndarray:
    return np.linspace(0, number - 1, min(_MOST_POINTS, number)).astype(int)


def _skewness(values: np.ndarray, axis: int) -> Any:
    centred = values - values.mean(axis=axis, keepdims=True)
    return np.mean(centred**3, axis=axis) / np.mean(centred**2, axis=axis) ** 1.5
