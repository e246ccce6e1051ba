"""Tables 3, 7 and 9 of Yu, Hartmann, Williams and Klami (2023): ResNet-20 on CIFAR-10.

    python -m experiments.sgrld.table_3 --seeds 10 --together 5     # on a GPU; goes on where it was stopped
    python -m experiments.sgrld.table_3 --smoke

The settings are those of the dense networks, with the learning rates of the paper's table 5; the best Monge metric is
the identity there. Chains are made on 40,000 images, the 400 batches an epoch that the authors' notebooks count. Two
things differ from the paper: the network has filter response normalisation in place of batch
normalisation, under which there is no posterior (:mod:`geodax.nn.convolutional`), and there are 9,980 test images.
"""

import dataclasses
import statistics
from pathlib import Path

import geodax as gx
from experiments.common import classifiers
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.sgrld import published
from experiments.sgrld.networks import drawn, metric_of, run_sgrld
from experiments.sgrld.tables_1_2 import cell, equal_time, paper

PRIORS = {"gaussian": "Gaussian", "correlated": "correlated normal"}
_NAMES = ("Identity", "Wenzel", "RMSprop", "Shampoo")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs of each setting.
        epochs: Passes through the data; a label of each piece.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        width: Channels of the network's first stage.
        batch_size: Images of a batch.
        num_burn: Iterations of burn-in.
        thinning: Iterations between draws.
        num_train: Training images, the first of them.
        num_test: Test images; None for all.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 400
    data: str = "cifar10"
    width: int = 16
    batch_size: int = 100
    num_burn: int = 1000
    thinning: int = 100
    num_train: int = 40_000
    num_test: int | None = None


def pieces(config: Config) -> list[Labels]:
    """Every metric under both priors, seed by seed."""
    return [
        {"prior": prior, "epochs": config.epochs, "metric": metric, "seed": seed}
        for seed in config.seeds
        for prior in PRIORS
        for metric in _NAMES
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
    found = run_sgrld(
        images,
        lambda key: drawn(key, lambda key: gx.nn.ResNet20(width=config.width, key=key)),
        gx.nn.Priors(rules),
        metric_of(labels["metric"], 0.0, len(images.train) // config.batch_size),
        learning_rate=rate,
        seeds=seeds,
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        num_burn=config.num_burn,
        thinning=config.thinning,
        folder=folder,
    )
    return [figures | {"learning_rate": rate} for figures in found]


def _rows(record: Record, prior: str, metric: str) -> list[dict]:
    rows = record.rows(prior=prior, metric=metric)
    longest = max((row["epochs"] for row in rows), default=0)
    return [row for row in rows if row["epochs"] == longest]


def scores_table(record: Record) -> str:
    """Tables 3 and 9."""
    columns = (
        ("log_p", published.RESNET_LOG_P, 4),
        ("accuracy", published.RESNET_ACCURACY, 4),
        ("softened_curvature", published.RESNET_CURVATURE, 2),
        ("seconds", published.RESNET_SECONDS, 1),
        ("ece", published.RESNET_ECE, 4),
    )
    lines = []
    for prior, title in PRIORS.items():
        for metric in _NAMES:
            line = [f"{title}, {metric}"]
            for name, printed, digits in columns:
                line += [cell(_rows(record, prior, metric), name, digits), paper(printed[prior][metric], digits)]
            lines.append(line)
    names = ("log p(y|X)", "accuracy", "curvature", "seconds an epoch", "ECE")
    return table(["prior, metric", *[text for name in names for text in (name, "paper")]], lines)


def equal_time_table(record: Record) -> str:
    """Table 7."""
    lines = []
    for prior, title in PRIORS.items():
        seconds = {
            metric: statistics.median(times)
            for metric in _NAMES
            if (times := [row["seconds"] for row in _rows(record, prior, metric) if row["seconds"]])
        }
        for metric in _NAMES:
            rows = _rows(record, prior, metric)
            if metric in seconds:
                rows = equal_time(rows, min(seconds.values()) / seconds[metric])
            line = [f"{title}, {metric}"]
            line += [cell(rows, "log_p", 4), paper(published.RESNET_EQUAL_TIME_LOG_P[prior][metric], 4)]
            line += [cell(rows, "accuracy", 4), paper(published.RESNET_EQUAL_TIME_ACCURACY[prior][metric], 4)]
            lines.append(line)
    return table(["prior, metric", "log p(y|X)", "paper", "accuracy", "paper"], lines)


EXPERIMENT = Experiment(
    name="sgrld/table_3",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=1,
        data="simulated-cifar10",
        width=2,
        batch_size=10,
        num_burn=2,
        thinning=2,
        num_train=40,
        num_test=20,
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs"),
    double=False,
    tables={"scores": scores_table, "equal-time": equal_time_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
