"""The classification sets of Rossi, Marmin and Filippone (2020) that are at hand: EEG, MAGIC and letter.

Four posteriors of one network of two hidden layers with 128 units (the supplement does not say which network the paper
had), with the optimiser and the number of steps of its section D.1.

    python -m experiments.walsh_hadamard.classification [--smoke]
"""

import dataclasses
from typing import Any

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import number, table
from experiments.walsh_hadamard.fits import METHODS, NATURAL, fit_and_test, natural, rate, start


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Of split and fit.
        sets: Names; ``"blobs"`` is a made-up one.
        methods: Among the four.
        widths: Of the hidden layers.
        num_steps: Of the optimiser.
        batch_size: Examples of a batch.
        num_draws: At test time.
        natural_rate: First learning rate of the natural-gradient method.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    sets: tuple[str, ...] = ("eeg-eye-state", "magic", "letter")
    methods: tuple[str, ...] = METHODS
    widths: tuple[int, ...] = (128, 128)
    num_steps: int = 50_500
    batch_size: int = 64
    num_draws: int = 64
    natural_rate: float = 1e-2


def pieces(config: Config) -> list[Labels]:
    """Seed by seed, so that a part of it is a whole table."""
    return [
        {"seed": seed, "set": name, "method": method}
        for seed in config.seeds
        for name in config.sets
        for method in config.methods
    ]


def dataset(name: str) -> gx.data.Dataset | str:
    """The set; ``"blobs"`` is one of 90 made-up rows, for runs without the real ones."""
    if name != "blobs":
        return name
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 90)
    x = generator.normal(size=(90, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[labels]
    return gx.data.Dataset(name=name, arrays={"features": x, "labels": labels})


def measure(config: Config, labels: Labels) -> Figures:
    """Fit one network and test it."""
    data = gx.data.supervised(dataset(labels["set"]), split=labels["seed"])
    key_network, key_fit, key_test = jax.random.split(jax.random.key(labels["seed"]), 3)
    method = labels["method"]
    network: Any = start(method, data, config.widths, key_network)
    options: dict[str, Any] = {"learning_rate": rate()}
    if method in NATURAL:
        options = {"algorithm": natural(method, network, data, config.natural_rate)}
    return fit_and_test(
        key_fit,
        key_test,
        network,
        data,
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        num_draws=config.num_draws,
        **options,
    )


def table_of(figure: str, factor: float):
    """One row a set, one column a method; mean and standard deviation over the splits."""

    def render(record: Record) -> str:
        rows = []
        for name in record.config["sets"]:
            cells = []
            for method in record.config["methods"]:
                values = factor * record.values(figure, set=name, method=method).astype(float)
                spread = f" ± {number(values.std(ddof=1), 2)}" if len(values) > 1 else ""
                cells.append(number(values.mean()) + spread if len(values) else "")
            rows.append([name, str(len({row["seed"] for row in record.rows(set=name)})), *cells])
        return table(["set", "splits", *record.config["methods"]], rows)

    return render


EXPERIMENT = Experiment(
    name="walsh_hadamard/classification",
    config=Config(),
    smoke=Config(seeds=(0,), sets=("blobs",), widths=(4,), num_steps=20, num_draws=4),
    pieces=pieces,
    measure=measure,
    tables={"error": table_of("error", 100.0), "mnll": table_of("mnll", 1.0), "ece": table_of("ece", 1.0)},
)

if __name__ == "__main__":
    main(EXPERIMENT)
