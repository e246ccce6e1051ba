"""Learning rates at which Wenzel's metric stops being stable: MNIST, 784-400-400-10, horseshoe prior.

    python -m experiments.sgrld.wenzel_edge      # goes on where it was stopped
    python -m experiments.sgrld.wenzel_edge --smoke

Table 4 of Yu, Hartmann, Williams and Klami (2023) has a learning rate of 0.75 for this setting, three times the
identity's. Runs of a few epochs at it and around it, from three starts of the biases, with the settings of
:mod:`experiments.sgrld.tables_1_2`. A run has diverged if it leaves the range of numbers, and is lost if its ensemble
predicts no better than the ten classes' frequencies.
"""

import dataclasses
import math
from pathlib import Path

import jax
import numpy as np

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.sgrld.networks import drawn, metric_of, run_sgrld
from experiments.sgrld.tables_1_2 import NUM_TRAIN

STARTS = ("zero", "uniform", "normal")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs of each setting.
        epochs: Passes through the data.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        hidden: Units of each of the two hidden layers.
        rates: Learning rates on the mean potential.
        batch_size: Images of a batch.
        num_burn: Iterations of burn-in.
        thinning: Iterations between draws.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3)
    epochs: int = 5
    data: str = "mnist"
    hidden: int = 400
    rates: tuple[float, ...] = (0.375, 0.5, 0.625, 0.75, 0.875, 1.0, 1.5)
    batch_size: int = 100
    num_burn: int = 1000
    thinning: int = 100


def pieces(config: Config) -> list[Labels]:
    """Every rate from every start."""
    return [
        {"rate": rate, "start": start, "epochs": config.epochs, "seed": seed}
        for rate in config.rates
        for start in STARTS
        for seed in config.seeds
    ]


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Runs of one setting."""

    def network(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(784, 10, widths=(config.hidden, config.hidden), key=key)

    images = classifiers.load(config.data, num_train=NUM_TRAIN)
    return run_sgrld(
        images,
        lambda key: drawn(key, network, biases=labels["start"]),
        gx.nn.Priors([("*", gx.nn.HierarchicalHorseshoe())]),
        metric_of("Wenzel", 0.0, len(images.train) // config.batch_size),
        learning_rate=labels["rate"],
        seeds=seeds,
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        num_burn=config.num_burn,
        thinning=config.thinning,
        folder=folder,
        looks=1,
    )


def edge_table(record: Record) -> str:
    """How many runs diverged or were lost, and the mean log probability of the others."""

    def cell(rows: list[dict]) -> str:
        if not rows:
            return "not run"
        found = np.asarray([row["log_p"] for row in rows if row["log_p"] is not None], np.float64)
        kept = found[found > -math.log(10)]
        parts = [f"{kept.mean():.3f}"] if len(kept) else []
        parts += [f"{len(rows) - len(found)} of {len(rows)} diverged"] if len(found) < len(rows) else []
        parts += [f"{len(found) - len(kept)} of {len(rows)} lost"] if len(kept) < len(found) else []
        return ", ".join(parts)

    lines = [
        [f"{rate:g}", *(cell(record.rows(rate=rate, start=start)) for start in STARTS)]
        for rate in record.config["rates"]
    ]
    return table(["learning rate", *(f"biases {start}" for start in STARTS)], lines)


EXPERIMENT = Experiment(
    name="sgrld/wenzel_edge",
    config=Config(),
    smoke=Config(
        seeds=(0,), epochs=2, data="simulated-mnist", hidden=8, rates=(0.75,), batch_size=20, num_burn=10, thinning=5
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"edge": edge_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
