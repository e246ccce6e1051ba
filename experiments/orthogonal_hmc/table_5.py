"""Table 5 of Yanush and Kropotov (2019): orthogonal VGG-16 on CIFAR-10, alone and as an ensemble.

    python -m experiments.orthogonal_hmc.table_5 --together 1     # on a GPU; goes on where it was stopped
    python -m experiments.orthogonal_hmc.table_5 --smoke

200 epochs of training at the learning rate 0.1, divided by 10 after 150, in batches of 128; then 24,000 iterations of
oSGHMC with the step size 1e-5, the first 4,000 discarded, every 2,000th in the ensemble. There are 9,980 test images.
As in the paper, it seems, normalisation is batch normalisation, here with statistics frozen at the end of training
(:mod:`experiments.common.batch_norm`), and images are flipped and cropped (:mod:`experiments.common.augmentation`). Beside
that stand filter response normalisation and images as they are, which together sample a posterior given the images.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

import geodax as gx
from experiments.common import batch_norm, classifiers
from experiments.common.augmentation import AUGMENTATIONS
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.orthogonal_hmc.trained import WEIGHTS, Settings, cell, ensembles_of, train_and_sample
from experiments.orthogonal_hmc.trained import pieces as pairs

PAPER = {"orthogonal": ("92.70 ± 0.05", "92.85 ± 0.03"), "ordinary": ("93.25 ± 0.16", "93.59 ± 0.16")}


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The paper's: a tenth of the learning rate after three quarters of the epochs.

    Attributes:
        normalisations: Of :data:`experiments.common.batch_norm.NORMALISATIONS`.
        augmentations: Names of :data:`experiments.common.augmentation.AUGMENTATIONS`.
        width: Channels of the first stage.
        num_train: Training images; None for all.
        num_test: Test images; None for all.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 200
    data: str = "cifar10"
    learning_rate: float = 0.1
    step_size: float = 0.00001
    num_steps: int = 24_000
    num_burn: int = 4_000
    every: int = 2_000
    batch_size: int = 128
    normalisations: tuple[str, ...] = ("batch", "filter response")
    augmentations: tuple[str, ...] = tuple(AUGMENTATIONS)
    width: int = 64
    num_train: int | None = None
    num_test: int | None = None


def pieces(config: Config) -> list[Labels]:
    """An orthogonal network and an ordinary one for each seed, in every arm; the paper's arm first."""
    return [arm | labels for arm in _arms(dataclasses.asdict(config)) for labels in pairs(config)]


def _arms(config: Mapping[str, Any]) -> list[Labels]:
    return [
        {"normalisation": kind, "augmentation": augmentation}
        for kind in config["normalisations"]
        for augmentation in config["augmentations"]
    ]


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Train, then sample."""
    images = classifiers.load(config.data, num_train=config.num_train, num_test=config.num_test)

    def network_of(key: jax.Array) -> gx.nn.VGG16:
        network = gx.nn.VGG16(width=config.width, orthogonal=labels["weights"] == "orthogonal", key=key)
        return batch_norm.normalised(network, labels["normalisation"])

    decay_at = (labels["epochs"] * 3 // 4,)
    augment = AUGMENTATIONS[labels["augmentation"]]
    return train_and_sample(images, network_of, config, labels, seeds, folder, decay_at=decay_at, augment=augment)


def scores_table(record: Record) -> str:
    """Accuracies in per cent, and log probability and calibration of the ensembles."""
    lines = []
    for arm, weights in itertools.product(_arms(record.config), reversed(WEIGHTS)):
        rows = record.rows(**arm, weights=weights, epochs=record.config["epochs"])
        title = f"{arm['normalisation']}, {arm['augmentation']}, {weights}"
        lines.append([f"{title}, one network", cell(rows, "single_accuracy"), PAPER[weights][0], "", ""])
        for temperature in record.config["temperatures"]:
            ensembles = ensembles_of(rows, temperature)
            line = [cell(ensembles, "accuracy"), PAPER[weights][1]]
            line += [cell(ensembles, "log_p", 1.0, 4), cell(ensembles, "ece", 1.0, 4)]
            lines.append([f"{title}, ensemble at temperature {temperature:g}", *line])
    return table(["normalisation, augmentation, weights", "accuracy, %", "paper", "log p(y|X)", "ECE"], lines)


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_5",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=1,
        data="simulated-cifar10",
        augmentations=("flips and crops",),
        width=2,
        num_steps=4,
        num_burn=2,
        every=2,
        batch_size=10,
        temperatures=(1.0,),
        num_train=20,
        num_test=20,
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"scores": scores_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
