"""Tables 3, 7 and 9 of Yu, Hartmann, Williams and Klami (2023): ResNet-20 on CIFAR-10.

    python -m experiments.sgrld.table_3 --seeds 10     # on a GPU; goes on where it was stopped
    python -m experiments.sgrld.table_3 --smoke

The settings are those of the dense networks, with the learning rates of the paper's table 5; the best Monge metric is
the identity there. Chains are made on 40,000 images, the 400 batches an epoch that the authors' notebooks count, and there
are 9,980 test images. Networks have filter response normalisation (:mod:`geodax.nn.convolutional`), or batch
normalisation as in the paper, with statistics that are frozen before the first draw so that there is a posterior
(:mod:`experiments.common.batch_norm`). :mod:`experiments.sgrld.table_3_small` is a version for a quarter of the images.
"""

import dataclasses
import itertools
import statistics
from pathlib import Path
from typing import Any

import jax

import geodax as gx
from experiments.common import batch_norm, classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.sgrld import published
from experiments.sgrld.networks import drawn, metric_of, run_sgrld
from experiments.sgrld.tables_1_2 import cell, equal_time, paper

PRIORS = {"gaussian": "Gaussian", "correlated": "correlated normal"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs of each setting.
        epochs: Passes through the data; a label of each piece.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        normalisations: Of :data:`experiments.common.batch_norm.NORMALISATIONS`.
        metrics: Names of :func:`experiments.sgrld.networks.metric_of`.
        alpha2: Monge's.
        batch_rate: Factor of the paper's learning rates with batch normalisation, whose statistics are not frozen there.
        blocks_a_stage: 3 is ResNet-20, 1 is ResNet-8.
        width: Channels of the network's first stage.
        batch_size: Images of a batch.
        num_burn: Iterations of burn-in.
        thinning: Iterations between draws.
        looks: Points of a run's curve.
        num_train: Training images, the first of them.
        num_test: Test images; None for all.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 400
    data: str = "cifar10"
    normalisations: tuple[str, ...] = batch_norm.NORMALISATIONS
    metrics: tuple[str, ...] = ("Identity", "Wenzel", "RMSprop", "Shampoo")
    alpha2: float = 0.0
    batch_rate: float = 1.0
    blocks_a_stage: int = 3
    width: int = 16
    batch_size: int = 100
    num_burn: int = 1000
    thinning: int = 100
    looks: int = 100
    num_train: int = 40_000
    num_test: int | None = None


def pieces(config: Config) -> list[Labels]:
    """Every metric under both priors for each normalisation, seed by seed."""
    return [
        {"normalisation": kind, "prior": prior, "epochs": config.epochs, "metric": metric, "seed": seed}
        for seed in config.seeds
        for kind in config.normalisations
        for prior in PRIORS
        for metric in config.metrics
    ]


def is_kernel(path: str, shape: tuple[int, ...]) -> bool:
    """Convolution kernels with neighbouring pixels."""
    return len(shape) == 4 and shape[2] > 1


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Runs of one setting."""
    images = classifiers.load(config.data, num_train=config.num_train, num_test=config.num_test)
    rules = [(is_kernel, gx.nn.CorrelatedNormal())] if labels["prior"] == "correlated" else []
    # the scales of the normalisation stay near one, where they begin
    rules = [("*norm.weight", gx.nn.Gaussian(1.0, mean=1.0)), *rules, ("*", gx.nn.Gaussian())]
    rate = published.RESNET_LEARNING_RATES[labels["prior"]][labels["metric"]]
    rate *= config.batch_rate if labels["normalisation"] == "batch" else 1.0

    def network_of(key: jax.Array) -> Any:
        network = gx.nn.ResNet20(width=config.width, blocks_a_stage=config.blocks_a_stage, key=key)
        return batch_norm.normalised(network, labels["normalisation"])

    found = run_sgrld(
        images,
        lambda key: drawn(key, network_of),
        gx.nn.Priors(rules),
        metric_of(labels["metric"], config.alpha2, len(images.train) // config.batch_size),
        learning_rate=rate,
        seeds=seeds,
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        num_burn=config.num_burn,
        thinning=config.thinning,
        folder=folder,
        looks=config.looks,
    )
    return [figures | {"learning_rate": rate} for figures in found]


def _rows(record: Record, normalisation: str, prior: str, metric: str) -> list[dict]:
    rows = record.rows(normalisation=normalisation, prior=prior, metric=metric)
    longest = max((row["epochs"] for row in rows), default=0)
    return [row for row in rows if row["epochs"] == longest]


def _settings(record: Record) -> list[tuple[str, str]]:
    return list(itertools.product(record.config["normalisations"], PRIORS))


def scores_table(record: Record) -> str:
    """Tables 3 and 9, beside the paper's figures if the network and the data are the paper's."""
    columns = (
        ("log_p", published.RESNET_LOG_P, 4),
        ("accuracy", published.RESNET_ACCURACY, 4),
        ("softened_curvature", published.RESNET_CURVATURE, 2),
        ("seconds", published.RESNET_SECONDS, 1),
        ("ece", published.RESNET_ECE, 4),
    )
    is_full = record.config["blocks_a_stage"] == 3
    lines = []
    for kind, prior in _settings(record):
        for metric in record.config["metrics"]:
            rows = _rows(record, kind, prior, metric)
            line = [f"{kind}, {PRIORS[prior]}, {metric}"]
            for name, printed, digits in columns:
                line += [cell(rows, name, digits), *([paper(printed[prior][metric], digits)] if is_full else [])]
            lines.append(line)
    names = ("log p(y|X)", "accuracy", "curvature", "seconds an epoch", "ECE")
    heads = [text for name in names for text in ((name, "paper") if is_full else (name,))]
    return table(["normalisation, prior, metric", *heads], lines)


def equal_time_table(record: Record) -> str:
    """Table 7."""
    lines = []
    for kind, prior in _settings(record):
        seconds = {
            metric: statistics.median(times)
            for metric in record.config["metrics"]
            if (times := [row["seconds"] for row in _rows(record, kind, prior, metric) if row["seconds"]])
        }
        for metric in record.config["metrics"]:
            rows = _rows(record, kind, prior, metric)
            if metric in seconds:
                rows = equal_time(rows, min(seconds.values()) / seconds[metric])
            line = [f"{kind}, {PRIORS[prior]}, {metric}"]
            line += [cell(rows, "log_p", 4), paper(published.RESNET_EQUAL_TIME_LOG_P[prior][metric], 4)]
            line += [cell(rows, "accuracy", 4), paper(published.RESNET_EQUAL_TIME_ACCURACY[prior][metric], 4)]
            lines.append(line)
    return table(["normalisation, prior, metric", "log p(y|X)", "paper", "accuracy", "paper"], lines)


SMOKE = Config(
    seeds=(0,),
    metrics=("Identity", "Shampoo"),
    epochs=1,
    data="simulated-cifar10",
    width=2,
    batch_size=10,
    num_burn=2,
    thinning=2,
    num_train=40,
    num_test=20,
)
EXPERIMENT = Experiment(
    name="sgrld/table_3",
    config=Config(),
    smoke=SMOKE,
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"scores": scores_table, "equal-time": equal_time_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
