"""Which network model predicts windows that it has not seen: rank, intercepts, distribution of the counts.

python -m experiments.givens.network_choice [--smoke]

Every third window of the primary school's contacts is held out in turn. The highest mode of the posterior given the
others is sought from several starts, and the held-out windows are scored by their log probability given the others at
that mode, states summed over.
"""

import dataclasses
import itertools

import jax
import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, panels, table
from experiments.givens.contact_windows import COLOURS, counted
from geodax.models.network import density
from geodax.models.network.counts import COUNT_LIKELIHOODS, observations
from geodax.models.network.density import NetworkPrior
from geodax.models.network.modes import find_modes


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Of the searches for modes.
        data: "primary-school", or "simulated" counts that need no file.
        minutes: Length of a window.
        n_states: Hidden states.
        ranks: Columns of each orthonormal matrix.
        eigenvalue_scale: Prior standard deviation of the eigenvalues over the number of classes.
        other_eigenvalue_scale: Another one, for negative binomial counts with intercepts.
        folds: Parts that are held out in turn.
        num_starts: Starts of each search.
    """

    seeds: tuple[int, ...] = (0,)
    data: str = "primary-school"
    minutes: float = 11.0
    n_states: int = 3
    ranks: tuple[int, ...] = (1, 2, 4, 6, 8)
    eigenvalue_scale: float = 5.0
    other_eigenvalue_scale: float = 1.0
    folds: int = 3
    num_starts: int = 4


def pieces(config: Config) -> list[Labels]:
    """A model a piece."""
    models = [(law, intercept, config.eigenvalue_scale) for law in COUNT_LIKELIHOODS for intercept in (False, True)]
    models.append((COUNT_LIKELIHOODS[1], True, config.other_eigenvalue_scale))
    return [
        {"law": law, "intercept": intercept, "rank": rank, "seed": seed, "eigenvalue_scale": scale}
        for (law, intercept, scale), rank, seed in itertools.product(models, config.ranks, config.seeds)
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """Log probability of held-out windows given the others, and of all windows at the mode given all."""
    counts = counted(config.data, config.minutes).counts
    prior = NetworkPrior(labels["eigenvalue_scale"], intercept_scale=5.0 if labels["intercept"] else None)
    law = labels["law"]
    everything = observations(counts, likelihood=law)
    held_out, runners_up = [], []
    for fold in range(config.folds):
        kept = counts.copy()
        kept[fold :: config.folds] = np.nan
        data = observations(kept, likelihood=law)
        modes = find_modes(
            data, config.n_states, labels["rank"], prior, num_starts=config.num_starts, seed=labels["seed"]
        )
        runners_up.append(modes[0].log_density - modes[1].log_density if len(modes) > 1 else None)
        with jax.enable_x64(True):
            both = [float(density.sequence_log_likelihood(modes[0].theta, part)) for part in (everything, data)]
        held_out.append(both[0] - both[1])
    return {
        "log_probability": sum(held_out) / len(counts),
        "of_folds": held_out,
        "next_mode_below": runners_up,
    }


def scores(record: Record) -> str:
    """The mean log probability of a window that was held out."""
    ranks = record.config["ranks"]
    rows = [
        [
            _title(*model),
            *(number(record.values("log_probability", rank=rank, **_labels(*model)).mean(), 4) for rank in ranks),
        ]
        for model in _models(record)
    ]
    return table(["counts", *(f"rank {rank}" for rank in ranks)], rows)


def picture(record: Record):
    """The same as curves, a panel for each distribution."""
    figure, axes = panels(1, 2)
    for ax, law in zip(axes[0], COUNT_LIKELIHOODS, strict=True):
        ranks = record.config["ranks"]
        for model, colour in zip([m for m in _models(record) if m[0] == law], COLOURS, strict=False):
            values = [record.values("log_probability", rank=rank, **_labels(*model)).mean() for rank in ranks]
            label = _title(*model).partition(", ")[2]
            ax.plot(ranks, values, "o-", color=colour, markersize=4, label=label)
        ax.set_title(f"{law.replace('-', ' ')} counts", fontsize=9)
        ax.set_xlabel("rank", fontsize=8)
        ax.set_ylabel("log probability of a held-out window", fontsize=8)
        ax.legend(fontsize=7, frameon=False)
    return figure


def _models(record: Record) -> list[tuple[str, bool, float]]:
    rows = record.rows()
    return list(dict.fromkeys((row["law"], row["intercept"], row["eigenvalue_scale"]) for row in rows))


def _labels(law: str, intercept: bool, scale: float) -> Labels:
    return {"law": law, "intercept": intercept, "eigenvalue_scale": scale}


def _title(law: str, intercept: bool, scale: float) -> str:
    return f"{law.replace('-', ' ')}, {'with' if intercept else 'no'} intercepts, prior scale {scale:g}"


EXPERIMENT = Experiment(
    name="givens/network_choice",
    config=Config(),
    smoke=Config(data="simulated", n_states=2, ranks=(1, 2), folds=2, num_starts=2),
    pieces=pieces,
    measure=measure,
    tables={"scores": scores},
    pictures={"scores": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
