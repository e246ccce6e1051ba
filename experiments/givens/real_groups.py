"""Figures 7 and 8 of Pourzanjani et al. (2021) on real groups: pieces, tables and pictures for any of them."""

import dataclasses

import numpy as np

from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, panels, table
from experiments.givens.grouped_views import (
    QUANTILES,
    REAL,
    degrees_between,
    fit_until_agreed,
    health,
    real_groups,
)
from experiments.givens.shrinkage import angle_panels, interval_panels
from geodax.models import HierarchicalCCA
from geodax.models.cca.signs import FRAMES

POOLINGS = ("separate", "hierarchical", "complete")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        data: Name of the data, one of ``grouped_views.REAL``.
        seeds: Choices of the rows that are fitted.
        sizes: Rows of each group that are fitted.
        num_chains: Chains of a run.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
        most_rhat: A run above it is made once more with four times the iterations; if it is above it still, it is
            left out of averages.
    """

    data: str
    sizes: tuple[int, ...]
    seeds: tuple[int, ...] = (0, 1)
    num_chains: int = 4
    num_warmup: int = 400
    num_samples: int = 500
    most_rhat: float = 1.03


def pieces(config: Config) -> list[Labels]:
    """Every choice of rows with every pooling."""
    return [{"seed": seed, "pooling": pooling} for seed in config.seeds for pooling in POOLINGS]


def measure(config: Config, labels: Labels) -> Figures:
    """What the figures show, and how well rows that were left out are predicted."""
    data = real_groups(config.data, labels["seed"], config.sizes)
    n_1 = len(REAL[config.data].first)
    model = HierarchicalCCA(
        pooling=labels["pooling"],
        num_chains=config.num_chains,
        num_warmup=config.num_warmup,
        num_samples=config.num_samples,
        random_state=labels["seed"],
    )
    fit_until_agreed(model, [data.rows[:, :n_1], data.rows[:, n_1:]], data.groups, config.most_rhat)
    draws = model.draws(None)
    shared = np.asarray(draws.shared_1)
    smallest, largest = np.argmin(config.sizes), np.argmax(config.sizes)
    angle = degrees_between(shared[:, smallest], shared[:, largest])[:, 0]
    figures: Figures = health(model) | {
        "entries": np.round(np.quantile(shared, QUANTILES, axis=0)[..., 0], 4),
        "angle": np.round(np.quantile(angle, QUANTILES), 3),
        "angle_draws": np.round(angle[:: max(1, len(angle) // 400)], 2),
    }
    widths = np.subtract(*np.quantile(shared, [QUANTILES[-1], QUANTILES[0]], axis=0))
    figures["width"] = np.round(widths.mean(axis=(1, 2)), 4)
    if labels["pooling"] == "hierarchical":
        group = model.posterior_["posterior"]
        figures["spreads"] = np.round([np.quantile(group[f"spread_{name}"].values, QUANTILES) for name in FRAMES], 4)
    views = [data.test[:, :n_1], data.test[:, n_1:]]
    scores = model.score_samples(views, groups=data.test_groups)
    relative = (views[1] - model.predict(views[0], groups=data.test_groups)) / model.spread_[n_1:]
    for label in REAL[config.data].groups:
        rows = data.test_groups == label
        figures[f"log_density of {label}"] = float(scores[rows].mean())
        figures[f"error of {label}"] = float(np.sqrt(np.mean(relative[rows] ** 2)))
        figures[f"tested of {label}"] = int(rows.sum())
    replicates = np.concatenate(model.sample(), axis=-1)
    figures["tail"] = _tails(data.rows, data.groups, replicates)
    return figures


def predictions(record: Record) -> str:
    """Rows that were left out: their density, and the error of the second view given the first."""
    groups, sizes = _groups(record)
    small, large = int(np.argmin(sizes)), int(np.argmax(sizes))
    rows = []
    for pooling in POOLINGS:
        found = [row for row in record.rows(pooling=pooling) if row["rhat"] <= record.config["most_rhat"]]
        if not found:
            continue
        density = [np.mean([row[f"log_density of {label}"] for row in found]) for label in groups]
        error = np.mean([row[f"error of {groups[small]}"] for row in found])
        width = np.mean([row["width"] for row in found], axis=0)
        widths = f"{width[small]:.2f}, {width[large]:.2f}"
        rows.append([pooling, *(f"{d:.2f}" for d in density), f"{error:.3f}", widths, str(len(found))])
    header = ["pooling", *(f"log density, {c} ({s} fitted)" for c, s in zip(groups, sizes, strict=True))]
    header += [f"error of view 2 given view 1, {groups[small]}"]
    return table(
        [*header, f"width of the 90 % intervals of W, {sizes[small]} and {sizes[large]} rows", "choices"], rows
    )


def checks(record: Record) -> str:
    """What the runs say of themselves, and the angle of figure 8."""
    rows = []
    for row in record.rows():
        angle = row["angle"]
        rows.append(
            [
                f"{row['pooling']}, choice {row['seed']}",
                number(row["rhat"], 4),
                number(row["ess_frames"]),
                str(row["divergences"]),
                "0" if row["pooling"] == "complete" else f"{angle[2]:.0f} ({angle[0]:.0f} to {angle[4]:.0f})",
                f"{100 * row['tail']:.0f} %",
            ]
        )
    header = ["run", "largest R-hat", "least ESS of a matrix entry", "divergences"]
    return table([*header, "angle of figure 8, degrees", "correlations inside predictive 90 %"], rows)


def spreads(record: Record) -> str:
    """The learned spreads of the four matrices, in radians."""
    found = np.array([row["spreads"] for row in record.rows(pooling="hierarchical")]).mean(axis=0)
    names = ("W, view 1", "W, view 2", "B, view 1", "B, view 2")
    rows = [[name, *(f"{q[k]:.2f}" for k in (0, 2, 4))] for name, q in zip(names, found, strict=True)]
    return table(["matrix", "5 %", "median", "95 %"], rows)


def _groups(record: Record) -> tuple[tuple[str, ...], list[int]]:
    return REAL[record.config["data"]].groups, record.config["sizes"]


def _shown(record: Record, pooling: str) -> dict:
    return record.row(seed=record.config["seeds"][0], pooling=pooling)


def figure_7(record: Record):
    """Intervals of the entries of W of the first view."""
    found = [(title, np.asarray(_shown(record, title)["entries"])) for title in POOLINGS[:2]]
    labels = [f"{c}: {s} rows" for c, s in zip(*_groups(record), strict=True)]
    return interval_panels(found, REAL[record.config["data"]].short, labels)


def figure_8(record: Record):
    """The first columns of W of the smallest and of the largest group."""
    rows = [(title, _shown(record, title)) for title in POOLINGS[:2]]
    shown = [(title, np.asarray(row["angle"]), np.asarray(row["angle_draws"])) for title, row in rows]
    groups, sizes = _groups(record)
    small, large = int(np.argmin(sizes)), int(np.argmax(sizes))
    return angle_panels(shown, (f"{groups[small]}: {sizes[small]} rows", f"{groups[large]}: {sizes[large]} rows"))


def held_out(record: Record):
    """Log density of rows left out, each choice of rows a line from one pooling to the other."""
    groups, sizes = _groups(record)
    figure, axes = panels(1, len(groups), height=2.6)
    for ax, label, size in zip(axes[0], groups, sizes, strict=True):
        for seed in record.config["seeds"]:
            values = [record.row(seed=seed, pooling=pooling)[f"log_density of {label}"] for pooling in POOLINGS]
            ax.plot(range(len(POOLINGS)), values, "o-", markersize=4, color="#2b6cb0", alpha=0.7)
        ax.set_xticks(range(len(POOLINGS)), POOLINGS, fontsize=7)
        ax.set_title(f"{label}: {size} fitted", fontsize=9)
    axes[0, 0].set_ylabel("log density of a row left out", fontsize=8)
    return figure


def experiment(name: str, config: Config, smoke: Config) -> Experiment:
    """The experiment of one set of groups.

    Args:
        name: Of its record.
        config: At full size.
        smoke: At a size for tests.

    Returns:
        The experiment.
    """
    return Experiment(
        name=name,
        config=config,
        smoke=smoke,
        pieces=pieces,
        measure=measure,
        tables={"predictions": predictions, "checks": checks, "spreads": spreads},
        pictures={"intervals": figure_7, "angle": figure_8, "held-out": held_out},
    )


def _tails(rows: np.ndarray, groups: np.ndarray, replicates: np.ndarray) -> float:
    """Share of the correlations of the groups, all pairs of columns, that lie inside the replicates' 90 %."""
    inside = []
    for label in np.unique(groups):
        members = groups == label
        upper = np.triu_indices(rows.shape[1], 1)
        actual = np.corrcoef(rows[members].T)[upper]
        drawn = np.array([np.corrcoef(x[members].T)[upper] for x in replicates])
        low, high = np.quantile(drawn, [QUANTILES[0], QUANTILES[-1]], axis=0)
        inside.append((low <= actual) & (actual <= high))
    return float(np.mean(inside))
