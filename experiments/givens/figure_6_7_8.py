"""Figures 6 to 8 of Pourzanjani et al. (2021): subspaces of groups, shrunk towards a common one.

python -m experiments.givens.figure_6_7_8 [--smoke]

The paper's hospital data are closed, so the data are simulated in its sizes (:mod:`experiments.givens.grouped_views`), which
also lets errors and coverage be seen. Each set is fitted with separate, hierarchical and complete pooling of the
orthonormal matrices; everything else is the same.
"""

import dataclasses

import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, number, panels, table
from experiments.givens.graphical_model import graphical_model
from experiments.givens.grouped_views import (
    GROUPS,
    PROTEINS,
    QUANTILES,
    degrees_between,
    fit_until_agreed,
    health,
    mean_line,
    simulate,
)
from experiments.givens.shrinkage import angle_panels, interval_panels
from geodax.models import HierarchicalCCA
from geodax.models.cca.signs import FRAMES

POOLINGS = ("separate", "hierarchical", "complete")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Simulated sets for each spread.
        spreads: How far the groups' matrices lie from the common ones, radians in each direction.
        sizes: Rows of the groups.
        num_test: Rows of each group to test predictions with.
        num_chains: Chains of a run.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
        most_rhat: A run above it is made once more with four times the iterations; if it is above it still, it is
            left out of averages.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    spreads: tuple[float, ...] = (0.1, 0.3)
    sizes: tuple[int, ...] = (16, 30, 52, 86)
    num_test: int = 500
    num_chains: int = 4
    num_warmup: int = 300
    num_samples: int = 400
    most_rhat: float = 1.03


def pieces(config: Config) -> list[Labels]:
    """Every simulated set with every pooling."""
    return [
        {"seed": seed, "spread": spread, "pooling": pooling}
        for seed in config.seeds
        for spread in config.spreads[::-1]
        for pooling in POOLINGS
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """Errors and intervals of the matrices, predictions of new rows, and what figures 7 and 8 show."""
    data = simulate(labels["seed"], labels["spread"], config.sizes, config.num_test)
    n_1 = len(PROTEINS)
    model = HierarchicalCCA(
        pooling=labels["pooling"],
        standardize=False,  # the simulated noise is the same in all columns of a view
        num_chains=config.num_chains,
        num_warmup=config.num_warmup,
        num_samples=config.num_samples,
        random_state=labels["seed"],
    )
    fit_until_agreed(model, [data.rows[:, :n_1], data.rows[:, n_1:]], data.groups, config.most_rhat)
    draws = model.draws(None)
    figures: Figures = health(model)
    for name in FRAMES:
        truth = getattr(data.truth, name)
        found = np.asarray(getattr(draws, name))
        found = found * np.where((found * truth).sum(axis=-2).mean(axis=0) < 0, -1.0, 1.0)[:, None]
        low, high = np.quantile(found, [QUANTILES[0], QUANTILES[-1]], axis=0)
        figures |= {
            f"error_{name}": np.round(degrees_between(mean_line(found), truth)[:, 0], 3),
            f"coverage_{name}": ((low <= truth) & (truth <= high)).mean(axis=(1, 2)),
            f"width_{name}": np.round((high - low).mean(axis=(1, 2)), 4),
        }
        if name == "shared_1":
            figures["entries"] = np.round(np.quantile(found, QUANTILES, axis=0)[..., 0], 4)
            figures["true_entries"] = np.round(truth[..., 0], 4)
            angle = degrees_between(found[:, 0], found[:, -1])[:, 0]
            figures["angle"] = np.round(np.quantile(angle, QUANTILES), 3)
            figures["angle_draws"] = np.round(angle[:: max(1, len(angle) // 400)], 2)
            figures["true_angle"] = float(degrees_between(truth[0], truth[-1])[0])
    if labels["pooling"] == "hierarchical":
        group = model.posterior_["posterior"]
        spreads = [group[f"spread_{name}"].values for name in FRAMES]
        figures["spreads"] = np.round([np.quantile(s, QUANTILES) for s in spreads], 4)
    predicted = model.predict(data.test[:, :n_1], groups=data.test_groups)
    scores = model.score_samples([data.test[:, :n_1], data.test[:, n_1:]], groups=data.test_groups)
    for g in range(len(config.sizes)):
        rows = data.test_groups == g
        error = data.test[rows, n_1:] - predicted[rows]
        figures[f"prediction_{g}"] = float(np.sqrt(np.mean(error**2)))
        figures[f"log_density_{g}"] = float(scores[rows].mean())
    return figures


def errors(record: Record, spread: float) -> str:
    """Error of the lines, coverage and width of intervals, and predictions, by size of the group."""
    sizes = record.config["sizes"]
    rows = []
    for pooling in POOLINGS:
        found = _agreed(record, pooling, spread)
        if not found:
            continue
        error, width, coverage = (
            np.array([np.mean([row[f"{what}_{name}"] for name in FRAMES], axis=0) for row in found])
            for what in ("error", "width", "coverage")
        )
        density = np.array([[row[f"log_density_{g}"] for g in range(len(sizes))] for row in found])
        rows.append(
            [
                pooling,
                *(f"{e:.1f}" for e in error.mean(axis=0)),
                f"{100 * coverage.mean():.0f} %",
                f"{width[:, 0].mean():.2f}, {width[:, -1].mean():.2f}",
                f"{density[:, 0].mean():.3f}, {density[:, -1].mean():.3f}",
                f"{len(found)} of {len(record.rows(pooling=pooling, spread=spread))}",
            ]
        )
    header = ["pooling", *(f"error, {size} rows" for size in sizes), "coverage of 90 % intervals"]
    ends = f"{sizes[0]} and {sizes[-1]} rows"
    return table([*header, f"their width, {ends}", f"log density of new rows, {ends}", "sets whose chains agree"], rows)


def checks(record: Record) -> str:
    """What the runs say of themselves."""
    rows = []
    for pooling in POOLINGS:
        for spread in record.config["spreads"]:
            found, agreed = record.rows(pooling=pooling, spread=spread), _agreed(record, pooling, spread)
            rows.append(
                [
                    f"{pooling}, spread {spread:g}",
                    f"{len(agreed)} of {len(found)}",
                    number(max(row["rhat"] for row in found), 4),
                    number(min((row["ess_frames"] for row in agreed), default=float("nan"))),
                    str(sum(row["divergences"] for row in found)),
                    number(float(np.mean([row["num_steps"] for row in found]))),
                ]
            )
    header = ["pooling", "runs whose chains agree", "largest R-hat", "least ESS of a matrix entry in these"]
    return table([*header, "divergences", "leapfrog steps a draw"], rows)


def spreads(record: Record) -> str:
    """The learned spreads, averaged over the four matrices."""
    rows = []
    for spread in record.config["spreads"]:
        found = np.array([row["spreads"] for row in record.rows(pooling="hierarchical", spread=spread)])
        if len(found):
            middle = found.mean(axis=(0, 1))
            inside = np.mean((found[..., 0] <= spread) & (spread <= found[..., -1]))
            rows.append([f"{spread:g}", *(f"{middle[k]:.2f}" for k in (0, 2, 4)), f"{100 * inside:.0f} %"])
    return table(["true spread", "5 %", "median", "95 %", "intervals that hold the truth"], rows)


def _agreed(record: Record, pooling: str, spread: float) -> list[dict]:
    rows = record.rows(pooling=pooling, spread=spread)
    return [row for row in rows if row["rhat"] <= record.config["most_rhat"]]


def _shown(record: Record, pooling: str) -> dict:
    return record.row(seed=record.config["seeds"][0], spread=record.config["spreads"][0], pooling=pooling)


def figure_7(record: Record):
    """Intervals of the entries of W of the protein view, separate beside hierarchical."""
    found = [(title, _shown(record, title)) for title in POOLINGS[:2]]
    quantiles = [(title, np.asarray(row["entries"])) for title, row in found]
    labels = [f"{g}: {size} rows" for g, size in zip(GROUPS, record.config["sizes"], strict=False)]
    return interval_panels(quantiles, PROTEINS, labels, np.asarray(found[0][1]["true_entries"]))


def figure_8(record: Record):
    """The first columns of W of the smallest and of the largest group, and the angle between them."""
    found = [(title, _shown(record, title)) for title in POOLINGS[:2]]
    shown = [(title, np.asarray(row["angle"]), np.asarray(row["angle_draws"])) for title, row in found]
    sizes = record.config["sizes"]
    names = (f"{GROUPS[0]}: {sizes[0]} rows", f"{GROUPS[len(sizes) - 1]}: {sizes[-1]} rows")
    return angle_panels(shown, names, found[0][1]["true_angle"])


def comparison(record: Record):
    """Error of the lines by size of the group, for each spread."""
    sizes = record.config["sizes"]
    figure, axes = panels(1, len(record.config["spreads"]), height=2.8)
    top = 0.0
    for ax, spread in zip(axes[0], record.config["spreads"], strict=True):
        for pooling, colour, mark in zip(POOLINGS, ("#c05621", "#2b6cb0", "#718096"), "so^", strict=True):
            rows = _agreed(record, pooling, spread)
            error = np.array([np.mean([row[f"error_{name}"] for name in FRAMES], axis=0) for row in rows])
            if len(error):
                ax.plot(sizes, error.mean(axis=0), mark + "-", color=colour, label=pooling, markersize=4)
                ax.plot(np.broadcast_to(sizes, error.shape).T, error.T, mark, color=colour, alpha=0.3, markersize=2.5)
                top = max(top, error.max())
        ax.set_xscale("log")
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.set_xticks([], minor=True)
        ax.set_xlabel("rows of the group", fontsize=8)
        ax.set_title(f"spread {spread:g} rad", fontsize=9, color=INK)
    for ax in axes[0]:
        ax.set_ylim(0, 1.05 * top)
    axes[0, 0].set_ylabel("error of a direction, degrees", fontsize=8)
    axes[0, -1].legend(fontsize=7, frameon=False)
    return figure


EXPERIMENT = Experiment(
    name="givens/figure_6_7_8",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        spreads=(0.2,),
        sizes=(8, 12),
        num_test=10,
        num_chains=2,
        num_warmup=40,
        num_samples=20,
        most_rhat=1e3,
    ),
    pieces=pieces,
    measure=measure,
    tables={
        "checks": checks,
        "spreads": spreads,
        "errors-alike": lambda record: errors(record, record.config["spreads"][0]),
        "errors-apart": lambda record: errors(record, record.config["spreads"][-1]),
    },
    pictures={
        "model": lambda record: graphical_model(len(record.config["sizes"])),
        "intervals": figure_7,
        "angle": figure_8,
        "errors": comparison,
    },
)

if __name__ == "__main__":
    main(EXPERIMENT)
