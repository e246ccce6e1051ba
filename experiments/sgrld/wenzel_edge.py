"""Learning rates at which Wenzel's metric stops being stable: MNIST, 784-400-400-10, horseshoe prior.

    python -m experiments.sgrld.wenzel_edge      # goes on where it was stopped
    python -m experiments.sgrld.wenzel_edge --smoke

Table 4 of Yu, Hartmann, Williams and Klami (2023) has a learning rate of 0.75 for this setting, three times the
identity's. Runs of a few epochs at it and around it, from three starts of the biases, with the settings of
:mod:`experiments.sgrld.tables_1_2`. A run has diverged if it leaves the range of numbers.
"""

import dataclasses
from pathlib import Path

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.sgrld import tables_1_2

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
    setting = {"hidden": config.hidden, "prior": "horseshoe", "metric": "Wenzel", "alpha2": None, "start": None}
    return tables_1_2.measure_seeds(config, labels | setting | {"biases": labels["start"]}, seeds, folder)


def edge_table(record: Record) -> str:
    """Mean log probability, and how many runs diverged."""
    lines = [
        [f"{rate:g}", *(tables_1_2.cell(record.rows(rate=rate, start=start), "log_p", 3) for start in STARTS)]
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
