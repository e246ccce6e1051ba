"""The HTML report of hierarchical canonical correlation analysis."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from geodax.app.cca.files import GroupedTable
from geodax.app.family import RunFacts, posterior_arrays
from geodax.app.report import plots
from geodax.app.report.drawing import NORMAL, SERIES, WIDTH, draw_intervals, finish, new_figure, short, styled
from geodax.app.report.html import Report
from geodax.app.report.numbers import interval_of
from geodax.app.report.parts import Checks, begin, end, write_checks
from geodax.data.errors import counted
from geodax.models.cca import density as cca_density
from geodax.models.cca import pooling as cca_pooling
from geodax.models.cca.estimator import HierarchicalCCA
from geodax.models.cca.signs import FRAMES, matched_frames
from geodax.models.missing import fill_missing

_MOST_ENTRIES = 20
_MOST_GROUPS = 6
_MOST_NAMED = 4  # groups in the summary


def identified_draws(model: HierarchicalCCA) -> dict[str, np.ndarray]:
    """Return draws that the posterior identifies: covariances between views, noise, spreads, lp."""
    posterior, stats = posterior_arrays(model)
    between = np.einsum(
        "cdgip,cdgp,cdgp,cdgjp->cdgij",
        posterior["shared_1"],
        posterior["shared_scale_1"],
        posterior["shared_scale_2"],
        posterior["shared_2"],
    )
    draws = {"covariance": np.linalg.norm(between, axis=(-2, -1))}
    for v in (1, 2):
        within = sum(
            (posterior[f"{kind}_{v}"] ** 2 * posterior[f"{kind}_scale_{v}"][..., None, :] ** 2).sum(axis=(-2, -1))
            for kind in ("shared", "own")
        )
        draws |= {f"variance_{v}": np.asarray(within), f"noise_{v}": posterior[f"noise_{v}"]}
    draws |= {f"spread_{name}": posterior[f"spread_{name}"] for name in FRAMES if f"spread_{name}" in posterior}
    return draws | {"lp": stats["lp"]}


def named_draws(model: HierarchicalCCA) -> dict[str, np.ndarray]:
    """Return canonical correlations and the posterior, with one entry for each group where they differ by group.

    These are arrays, chain x draw first: ``correlation_1[GROUP]``, ``noise_1[GROUP]``, ``spread_shared_1``, ...
    """
    posterior, groups = posterior_arrays(model)[0], [str(group) for group in model.groups_]
    fields = cca_density.CCAParameters._fields
    with jax.enable_x64(True):
        theta = cca_density.CCAParameters(**{name: posterior[name] for name in fields})
        correlations = np.asarray(cca_density.canonical_correlations(theta))
    named = {
        f"correlation_{k + 1}[{group}]": correlations[:, :, i, k]
        for k in range(correlations.shape[-1])
        for i, group in enumerate(groups)
    }
    for name, values in posterior.items():
        parts = [f"[{group}]" for group in groups] if name in fields else []
        named |= {f"{name}{part}": values[:, :, i] for i, part in enumerate(parts)} or {name: values}
    return named


def write_cca(model: HierarchicalCCA, data: GroupedTable, run: RunFacts, path: Path) -> None:
    """Write the report."""
    groups = [str(g) for g in model.groups_]
    report = Report(
        f"Two views in {Path(run.config['file']).name}",
        subtitle=f"{len(data.values)} rows, {counted(len(groups), 'group')}, {model.n_shared} shared, pooling "
        f"{model.pooling}",
    )
    correlations = model.canonical_correlations()
    first = [interval_of(correlations[:, i, 0]) + (f" in `{g}`" if data.group else "") for i, g in enumerate(groups)]
    others = f", and so on for {counted(len(groups) - _MOST_NAMED, 'more group')}" if len(groups) > _MOST_NAMED else ""
    answer = (
        f"The first canonical correlation of the two views is {', '.join(first[:_MOST_NAMED])}{others} (median and "
        "90 % interval)."
    )
    begin(report, answer, run)
    report.code(
        "row of group g, view v:  x = mean + W Lambda z + B Delta u + noise, z shared by both views\n"
        "W and B:                 orthonormal; "
        + {
            "hierarchical": "Givens angles normal around common angles, one spread per matrix",
            "separate": "uniform, independent between groups",
            "complete": "uniform, the same in all groups",
        }[model.pooling]
    )
    draws = model.draws(None)
    report.section("Shared structure of the views")
    rows = [
        [g, int((data.groups == g).sum()), *(interval_of(correlations[:, i, k]) for k in range(model.n_shared))]
        for i, g in enumerate(groups)
    ]
    header = ["group", "rows", *(f"canonical correlation {k + 1}" for k in range(model.n_shared))]
    report.table(rows, header, "Correlations of the canonical variables, median and 90 % interval.")
    for k in range(model.n_shared):
        for name, columns, title in (("shared_1", data.first, "first"), ("shared_2", data.second, "second")):
            figure = _entries(getattr(draws, name)[..., k], columns, groups)
            report.figure(figure, f"Shared column {k + 1}, {title} view: entries of W in standardised units, by group.")
    if len(groups) > 1:
        _report_shrinkage(report, model, data, groups)
    write_checks(report, cca_checks(data, model))
    end(report, identified_draws(model), posterior_arrays(model)[1], run)
    report.write(path)


def cca_checks(data: GroupedTable, model: HierarchicalCCA) -> Checks:
    """Return quantities of the rows of each group and of their replicates."""
    replicates = np.concatenate(model.sample(), axis=-1)
    is_missing = np.isnan(data.values)
    checks: dict[str, tuple[float, np.ndarray]] = {}
    for g in map(str, model.groups_[:_MOST_GROUPS]):
        members = data.groups == g
        for what, function in (
            ("largest correlation between the views", lambda x: np.abs(_between(x, len(data.first))).max()),
            ("mean square correlation between the views", lambda x: (_between(x, len(data.first)) ** 2).mean()),
            ("variance fraction of the first component", _first_share),
        ):
            drawn = np.array([function(np.where(is_missing, np.nan, x)[members] / model.spread_) for x in replicates])
            checks[f"{g}: {what}"] = (float(function(data.values[members] / model.spread_)), drawn)
    return checks


def _entries(draws: np.ndarray, columns: Sequence[str], groups: Sequence[str]) -> Any:
    """Intervals of the entries of one column, with one panel per group; draws are draw x group x entry."""
    shown = np.argsort(-np.abs(np.median(draws, axis=0)).mean(axis=0))[:_MOST_ENTRIES]
    shown = np.sort(shown)
    num_groups = min(len(groups), _MOST_GROUPS)
    figure = new_figure(WIDTH, 0.8 + 0.2 * len(shown))
    axes: list[Any] = []
    for g in range(num_groups):
        ax = styled(figure.add_subplot(1, num_groups, g + 1, sharex=axes[0] if axes else None))
        labels = [short(str(columns[i]), 20) for i in shown]
        draw_intervals(ax, labels, [draws[:, g, i] for i in shown], colour=SERIES[g % len(SERIES)])
        ax.tick_params(axis="y", labelleft=g == 0)  # beside each other; a phone shows them
        ax.axvline(0.0, color="grey", linewidth=0.6)
        ax.set_title(short(groups[g], 20), fontsize=NORMAL)
        axes.append(ax)
    return finish(figure)


def _report_shrinkage(report: Report, model: HierarchicalCCA, data: GroupedTable, groups: Sequence[str]) -> None:
    report.section("Shrinkage")
    report.text(
        "Points show the direction estimated from the group's own covariance between the views. "
        "Intervals show the posterior. Zero is the common direction"
        + ("." if model.pooling == "hierarchical" else ", estimated from all groups together.")
    )
    report.figure(
        _shrinkage(model, data, groups), "Angle between the group's first shared column and the common one, in degrees."
    )
    if model.pooling == "hierarchical":
        spreads = {name: posterior_arrays(model)[0][f"spread_{name}"] for name in FRAMES}
        report.figure(plots.interval_plot(spreads), "Spreads of the groups' angles around the common ones, in radians.")


def _shrinkage(model: HierarchicalCCA, data: GroupedTable, groups: Sequence[str]) -> Any:
    """Angles of the groups' directions to the common one: moment estimates as points, the posterior as intervals."""
    posterior, _ = posterior_arrays(model)
    n_1, sizes = len(data.first), (model.n_shared, model.n_view_1, model.n_view_2)
    standardized = fill_missing((data.values - model.center_) / model.spread_)
    alone = [
        matched_frames(
            cca_pooling.from_moments(np.cov(standardized[data.groups == g].T), n_1, sizes).frames, model.reference_
        )
        for g in groups
    ]
    figure = new_figure(WIDTH, 0.9 + 0.32 * len(groups))
    for v, title in ((1, "first view"), (2, "second view")):
        name = f"shared_{v}"
        drawn = posterior[name][..., 0]
        common = posterior.get(
            f"common_{name}", np.broadcast_to(model.reference_[v - 1], drawn[:, :, 0, :, None].shape)
        )
        angles = _degrees(drawn, common[..., 0][:, :, None, :])
        middle = common[..., 0].reshape(-1, common.shape[-2]).mean(axis=0)
        middle = middle / np.linalg.norm(middle)
        ax = styled(figure.add_subplot(1, 2, v))
        labels = [f"{g} ({int((data.groups == g).sum())})" for g in groups]
        draw_intervals(ax, labels, [angles[:, :, g].ravel() for g in range(len(groups))])
        ax.tick_params(axis="y", labelleft=v == 1)
        points = [_degrees(np.asarray(frames[v - 1])[:, 0], middle) for frames in alone]
        ax.plot(points, range(len(groups)), "o", markerfacecolor="none", markeredgecolor=SERIES[1], markersize=6)
        ax.set_xlim(0)
        ax.set_title(title, fontsize=NORMAL)
    return finish(figure)


def _degrees(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    cosines = np.asarray((one * two).sum(axis=-1))
    return np.asarray(np.degrees(np.arccos(np.clip(np.abs(cosines), 0.0, 1.0))))


def _between(rows: np.ndarray, n_1: int) -> np.ndarray:
    return np.asarray(pd.DataFrame(rows).corr())[:n_1, n_1:]


def _first_share(rows: np.ndarray) -> float:
    values = np.linalg.eigvalsh(np.asarray(pd.DataFrame(rows).cov()))
    return float(values[-1] / values.sum())
