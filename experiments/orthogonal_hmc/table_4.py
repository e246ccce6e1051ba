"""Table 4 of Yanush and Kropotov (2019): an orthogonal network 784-300-300-10 on MNIST, alone and as an ensemble.

    python -m experiments.orthogonal_hmc.table_4             # goes on where it was stopped
    python -m experiments.orthogonal_hmc.table_4 --smoke

50 epochs of training, then 25,000 iterations of oSGHMC with the paper's step size, of which the first 5,000 are
discarded and every thousandth of the others is in the ensemble. The same with ordinary weights is the comparison that
the paper makes for images in colour only. The paper names no temperature; at 1 chains sample the posterior.
"""

import dataclasses
from pathlib import Path

import jax

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.orthogonal_hmc.trained import WEIGHTS, Settings, cell, ensembles_of, pieces, train_and_sample

PAPER = {"orthogonal": ("97.34 ± 0.08", "97.87 ± 0.08")}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The paper's; the learning rate is not in it.

    Attributes:
        widths: Units of the hidden layers.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 50
    data: str = "mnist"
    learning_rate: float = 0.01
    step_size: float = 0.00015
    num_steps: int = 25_000
    num_burn: int = 5_000
    every: int = 1_000
    batch_size: int = 256
    widths: tuple[int, ...] = (300, 300)


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Train, then sample."""
    images = classifiers.load(config.data)

    def network_of(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(784, 10, widths=config.widths, orthogonal=labels["weights"] == "orthogonal", key=key)

    return train_and_sample(images, network_of, config, labels, seeds, folder)


def scores_table(record: Record) -> str:
    """Accuracies in per cent, log probability and calibration of the ensembles, cost."""
    lines = []
    for weights in WEIGHTS:
        rows = record.rows(weights=weights, epochs=record.config["epochs"])
        theirs = PAPER.get(weights, ("", ""))
        scores = [cell(rows, "single_accuracy"), theirs[0], cell(rows, "single_log_p", 1.0, 4)]
        lines.append([f"{weights}, one network", *scores, "", ""])
        for temperature in record.config["temperatures"]:
            ensembles = ensembles_of(rows, temperature)
            scores = [cell(ensembles, "accuracy"), theirs[1], cell(ensembles, "log_p", 1.0, 4)]
            cost = [cell(ensembles, "ece", 1.0, 4), cell(ensembles, "cpu_seconds", 1.0, 1)]
            lines.append([f"{weights}, ensemble at temperature {temperature:g}", *scores, *cost])
    return table(["", "accuracy, %", "paper", "log p(y|X)", "ECE", "seconds per 1,000 iterations"], lines)


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_4",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=2,
        data="simulated-mnist",
        widths=(12, 8),
        num_steps=12,
        num_burn=4,
        every=4,
        batch_size=40,
        temperatures=(1.0, 0.01),
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"scores": scores_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
