"""Table 7 and figure 3 of Yanush and Kropotov (2019): low-rank networks on MNIST, bottleneck against SVD.

    python -m experiments.orthogonal_hmc.table_7_figure_3
    python -m experiments.orthogonal_hmc.table_7_figure_3 --smoke

Hidden layers 784 and 784 of the ranks 100 and 10, trained for 20 epochs on the first 50,000 images, all others are the
test set. The paper gives neither learning rate nor batch size; several rates are tried with each parametrisation.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import SERIES, panels, table
from experiments.orthogonal_hmc.trained import cell, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"bottleneck": "bottleneck", "svd": "SVD"}
PAPER = {"bottleneck": ("98.01", "97.53"), "svd": ("99.90", "98.25")}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs.
        epochs: Of training; a label of each piece.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        widths: Units of the hidden layers.
        ranks: Of their weights.
        learning_rates: Tried with each parametrisation.
        batch_size: Images of a batch.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 20
    data: str = "mnist-50000"
    widths: tuple[int, ...] = (784, 784)
    ranks: tuple[int, ...] = (100, 10)
    learning_rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    batch_size: int = 256


def pieces(config: Config) -> list[Labels]:
    """Both parametrisations at every learning rate."""
    return [
        {"factorization": kind, "learning_rate": rate, "epochs": config.epochs, "seed": seed}
        for seed in config.seeds
        for rate in config.learning_rates
        for kind in NAMES
    ]


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Train, and follow losses and accuracies."""
    images = classifiers.load(config.data)

    def network_of(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(
            784, 10, widths=config.widths, rank=config.ranks, factorization=labels["factorization"], key=key
        )

    trained = train(
        images,
        network_of,
        learning_rate=labels["learning_rate"],
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        seeds=seeds,
        folder=folder,
    )
    names = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")
    return [
        {name: [point[name][i] for point in trained.curve] for name in names}
        | {f"last_{name}": trained.curve[-1][name][i] for name in names}
        | {"failed_at": trained.failed_at[i]}
        | trained.seconds(len(images.train) // config.batch_size)
        for i in range(len(seeds))
    ]


def scores_table(record: Record) -> str:
    """Accuracies in per cent after the last epoch, at every learning rate."""
    lines = []
    for kind, title in NAMES.items():
        for rate in record.config["learning_rates"]:
            rows = record.rows(factorization=kind, learning_rate=rate, epochs=record.config["epochs"])
            line = [f"{title}, learning rate {rate}", cell(rows, "last_train_accuracy"), PAPER[kind][0]]
            line += [cell(rows, "last_test_accuracy"), PAPER[kind][1]]
            line += [cell(rows, "last_train_loss", 1.0, 4), cell(rows, "last_test_loss", 1.0, 4)]
            lines.append([*line, cell(rows, "cpu_seconds", 1.0, 1)])
    header = ["parametrisation", "train, %", "paper", "test, %", "paper", "train loss", "test loss", "seconds an epoch"]
    return table(header, lines)


def picture(record: Record) -> "Figure":
    """Losses and test accuracy against epochs, each parametrisation at its rate with the lowest training loss."""
    figure, axes = panels(1, 3, height=2.8)
    for colour, (kind, title) in zip(SERIES, NAMES.items(), strict=False):
        by_rate = {}
        for rate in record.config["learning_rates"]:
            rows = record.rows(factorization=kind, learning_rate=rate, epochs=record.config["epochs"])
            if rows and all(row["last_train_loss"] is not None for row in rows):
                by_rate[rate] = rows
        if not by_rate:
            continue
        best = min(by_rate, key=lambda rate: np.mean([row["last_train_loss"] for row in by_rate[rate]]))
        for ax, name in zip(axes[0], ("train_loss", "test_loss", "test_accuracy"), strict=True):
            for number, row in enumerate(by_rate[best]):
                epochs = np.arange(1, len(row[name]) + 1)
                ax.plot(epochs, row[name], color=colour, linewidth=1.1, label=None if number else f"{title}, {best}")
    for ax, title in zip(axes[0], ("training loss", "test loss", "test accuracy"), strict=True):
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_xlabel("epoch", fontsize=9)
    axes[0, 0].set_yscale("log")
    axes[0, 2].legend(frameon=False, fontsize=8, loc="lower right")
    return figure


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_7_figure_3",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=2,
        data="simulated-mnist",
        widths=(12, 8),
        ranks=(4, 2),
        learning_rates=(0.01,),
        batch_size=40,
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"scores": scores_table},
    pictures={"training": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
