"""Figures 9 and 10 of Pourzanjani et al. (2021): hidden states of the contacts in a primary school.

python -m experiments.givens.figure_9_10 [--smoke]

The paper speaks of twelve classes, two for each of six grades, and of one day. The published set has ten classes of five
grades and the teachers, over two days; windows of eleven minutes from its first contact to its last, the night
included, are the paper's 177. The rank of the rate matrices is not in the paper; two columns are shown.
"""

import dataclasses

import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, panels, table
from geodax.models import NetworkHMM
from geodax.models.contacts import ContactWindows, primary_school
from geodax.run.diagnostics import ess, rhat

STATES = ("out of school", "in class", "lunch and breaks")
COLOURS = ("#2b6cb0", "#dd6b20", "#2f855a")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: One run of several chains each.
        data: "primary-school", or "simulated" counts of the same shape that need no file.
        minutes: Length of a window.
        num_windows: Windows used, from the first; None uses all.
        n_states: Hidden states.
        rank: Columns of each orthonormal matrix.
        num_chains: Chains of a run.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
    """

    seeds: tuple[int, ...] = (0,)
    data: str = "primary-school"
    minutes: float = 11.0
    num_windows: int | None = None
    n_states: int = 3
    rank: int = 2
    num_chains: int = 4
    num_warmup: int = 500
    num_samples: int = 500


def pieces(config: Config) -> list[Labels]:
    """A run a seed."""
    return [{"seed": seed} for seed in config.seeds]


def measure(config: Config, labels: Labels) -> Figures:
    """Rates, vectors of the first state with intervals, probabilities of states, and predictive checks."""
    windows = _windows(config)
    counts = windows.counts[: config.num_windows]
    model = NetworkHMM(
        config.n_states,
        config.rank,
        num_chains=config.num_chains,
        num_warmup=config.num_warmup,
        num_samples=config.num_samples,
        random_state=labels["seed"],
    ).fit(counts)
    group, stats = (model.posterior_[name] for name in ("posterior", "sample_stats"))
    lp = np.asarray(stats["lp"].values)
    draws = model.draws(None)
    best = int(lp.argmax())
    log_rates = np.einsum("kip,kp,kjp->kij", draws.vectors[best], draws.eigenvalues[best], draws.vectors[best])
    probabilities = model.state_probabilities_
    shown = [
        int(np.argmax(probabilities[:, k] * (1 + counts.sum(axis=(1, 2)) / counts.sum())))
        for k in range(config.n_states)
    ]
    totals = model.sample_counts(counts).sum(axis=(2, 3))
    actual = counts.sum(axis=(1, 2))
    low, high = np.quantile(totals, [0.05, 0.95], axis=0)
    return {
        "names": list(windows.names),
        "num_windows": len(counts),
        "hours": np.round(windows.starts[: len(counts)] / 3600, 4),
        "mode_rates": np.round(np.exp(log_rates + draws.intercept[best][:, None, None]), 4),
        "mean_rates": np.round(model.rates_, 4),
        "examples": shown,
        "example_counts": counts[shown].astype(int),
        "vector_quantiles": np.round(np.quantile(draws.vectors[:, 0], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0), 4),
        "eigenvalue_quantiles": np.round(np.quantile(draws.eigenvalues, [0.05, 0.5, 0.95], axis=0), 3),
        "transition": np.round(model.transition_, 4),
        "probabilities": np.round(probabilities, 4),
        "state_draws": model.sample_states(counts)[:10].astype(int),
        "rhat_lp": float(rhat(lp)),
        "rhat_transition": float(rhat(group["transition"].values).max()),
        "rhat_eigenvalues": float(rhat(group["eigenvalues"].values).max()),
        "ess_lp": float(ess(lp)),
        "divergences": int(stats["diverging"].values.sum()),
        "lp_of_chains": np.round(lp.mean(axis=1), 2),
        "windows_within_predictive_interval": float(np.mean((low <= actual) & (actual <= high))),
        "sampling_seconds": float(model.posterior_.attrs["sampling_seconds"]),
    }


def checks(record: Record) -> str:
    """What the run says of itself."""
    rows = []
    for row in record.rows():
        rows.append(
            [
                str(row["seed"]),
                str(row["num_windows"]),
                number(row["rhat_lp"], 4),
                number(row["rhat_eigenvalues"], 4),
                number(row["ess_lp"]),
                str(row["divergences"]),
                f"{100 * row['windows_within_predictive_interval']:.0f} %",
                number(row["sampling_seconds"]),
            ]
        )
    header = ["seed", "windows", "R-hat of the log density", "largest R-hat of eigenvalues", "ESS of the log density"]
    return table([*header, "divergences", "window totals inside 90 %", "seconds"], rows)


def states(record: Record) -> str:
    """How long the network is in each state, and how it moves."""
    row = record.row(seed=record.config["seeds"][0])
    probabilities, transition = np.asarray(row["probabilities"]), np.asarray(row["transition"])
    rates = np.asarray(row["mean_rates"])
    upper = np.triu_indices(rates.shape[1])
    rows = [
        [_name(k, len(rates)), f"{probabilities[:, k].sum():.1f}", number(rates[k][upper].sum())]
        + [number(p) for p in transition[k]]
        for k in range(len(rates))
    ]
    moves = [f"to {_name(k, len(rates))}" for k in range(len(rates))]
    return table(["state", "expected windows", "contacts a window", *moves], rows)


def figure_9(record: Record):
    """Rate matrices at the posterior mode above a window of each state."""
    row = record.row(seed=record.config["seeds"][0])
    rates, counts = np.asarray(row["mode_rates"]), np.asarray(row["example_counts"])
    figure, axes = panels(2, len(rates))
    for k in range(len(rates)):
        top = np.log1p(max(rates.max(), counts.max()))
        for ax, matrix, words in ((axes[0, k], rates[k], "rates"), (axes[1, k], counts[k], "counts")):
            image = ax.imshow(np.log1p(matrix), vmin=0, vmax=top, cmap="viridis")
            ax.set_title(f"{_name(k, len(rates))}: {words}", fontsize=9)
            ax.set_xticks(range(len(row["names"])), row["names"], rotation=90, fontsize=6)
            ax.set_yticks(range(len(row["names"])), row["names"], fontsize=6)
    bar = figure.colorbar(image, ax=axes.ravel().tolist(), shrink=0.7)
    marks = [m for m in (0, 1, 10, 100, 1000) if np.log1p(m) <= top]
    bar.set_ticks([float(np.log1p(m)) for m in marks], labels=[str(m) for m in marks])
    return figure


def figure_10(record: Record):
    """Intervals of the first two columns of the first state's matrix; probabilities of the states over time."""
    row = record.row(seed=record.config["seeds"][0])
    quantiles, probabilities = np.asarray(row["vector_quantiles"]), np.asarray(row["probabilities"])
    figure, axes = panels(1, 2)
    left, right = axes[0]
    places = np.arange(quantiles.shape[1])
    for j in range(min(2, quantiles.shape[2])):
        shifted = places + 0.2 * (j - 0.5)
        left.vlines(shifted, quantiles[0, :, j], quantiles[4, :, j], color=COLOURS[j], linewidth=1)
        left.vlines(shifted, quantiles[1, :, j], quantiles[3, :, j], color=COLOURS[j], linewidth=3)
        left.plot(shifted, quantiles[2, :, j], "o", color=COLOURS[j], markersize=3, label=f"column {j + 1}")
    left.set_xticks(places, row["names"], rotation=90, fontsize=7)
    left.set_title(f"W of the state “{_name(0, probabilities.shape[1])}”: 50 % and 90 %", fontsize=9)
    left.legend(fontsize=7, frameon=False)
    right.stackplot(
        row["hours"],
        probabilities.T,
        colors=COLOURS[: probabilities.shape[1]],
        labels=[_name(k, probabilities.shape[1]) for k in range(probabilities.shape[1])],
        step="post",
    )
    right.set_xlabel("hours from midnight of the first day")
    right.set_title("probability of each state", fontsize=9)
    right.legend(fontsize=7, loc="center")
    return figure


def _windows(config: Config) -> ContactWindows:
    if config.data == "primary-school":
        return primary_school(minutes=config.minutes)
    generator = np.random.default_rng(0)
    means = np.array([0.05, 3.0, 10.0])[np.arange(config.num_windows or 12) // 4 % 3]
    counts = generator.poisson(means[:, None, None], (len(means), 6, 6)).astype(float)
    counts = np.triu(counts) + np.swapaxes(np.triu(counts, 1), 1, 2)
    width = 60 * config.minutes
    return ContactWindows(counts, tuple("ABCDEF"), width * np.arange(len(means)), width)


def _name(state: int, number_of_states: int) -> str:
    return STATES[state] if number_of_states == len(STATES) else f"state {state + 1}"


EXPERIMENT = Experiment(
    name="givens/figure_9_10",
    config=Config(),
    smoke=Config(data="simulated", num_windows=12, n_states=2, rank=1, num_chains=2, num_warmup=60, num_samples=40),
    pieces=pieces,
    measure=measure,
    tables={"checks": checks, "states": states},
    pictures={"rates": figure_9, "states": figure_10},
)

if __name__ == "__main__":
    main(EXPERIMENT)
