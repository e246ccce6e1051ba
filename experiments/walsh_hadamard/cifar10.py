"""CIFAR-10 as in Rossi, Marmin and Filippone (2020): AlexNet, VGG-16 and ResNet-18 of the supplement's section D.3.

Walsh-Hadamard kernels and dense layers beside mean-field and Monte Carlo dropout: batches of 256, Adam with a constant
learning rate of 0.001, 50,500 steps, one draw a step, 64 draws at test time. Filter response normalisation and no batch
normalisation (``docs/networks.md`` says why), with parameters that are optimised. Meant for a GPU; a fit keeps
checkpoints and goes on from them, where Orbax is installed.

    python -m experiments.walsh_hadamard.cifar10 [--smoke]
"""

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels
from experiments.walsh_hadamard.classification import table_of
from experiments.walsh_hadamard.fits import KINDS, fit_and_test


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Of the fits.
        sets: The set; ``"noise"`` is a made-up one.
        methods: Columns of the table.
        networks: Its rows.
        share: Of the paper's channels: 1, or less for runs that only show that everything works.
        num_steps: Of the optimiser.
        batch_size: Images of a batch.
        num_draws: At test time.
        learning_rate: Of Adam.
        dropout_rate: Of Monte Carlo dropout.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    sets: tuple[str, ...] = ("AlexNet", "VGG16", "ResNet18")
    methods: tuple[str, ...] = ("WHVI", "mean-field", "MC dropout")
    data: str = "cifar10"
    share: float = 1.0
    num_steps: int = 50_500
    batch_size: int = 256
    num_draws: int = 64
    learning_rate: float = 1e-3
    dropout_rate: float = 0.005


def pieces(config: Config) -> list[Labels]:
    """Seed by seed, so that a part of it is a whole table; a row of which is a network."""
    return [
        {"set": name, "method": method, "seed": seed}
        for seed in config.seeds
        for name in config.sets
        for method in config.methods
    ]


def architecture(name: str, share: float, key) -> Any:
    """The network of the paper's tables, or one with a share of its channels."""
    if name == "AlexNet":
        return gx.nn.AlexNet(width=round(64 * share), key=key)
    if name == "VGG16":
        return gx.nn.VGG16(width=round(32 * share), num_hidden=0, key=key)
    return gx.nn.ResNet18(width=round(64 * share), key=key)


def images(name: str) -> gx.data.Supervised:
    """The set, or 12 made-up images."""
    if name != "noise":
        return gx.data.supervised(name)
    generator = np.random.default_rng(0)
    arrays = {"features": generator.normal(size=(12, 3, 32, 32)), "labels": np.arange(12) % 10}
    return gx.data.supervised(gx.data.Dataset(name=name, arrays=arrays), test_fraction=0.2)


def measure(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Fit networks one after the other; the folder keeps their checkpoints."""
    data = images(config.data)
    found = []
    for seed in seeds:
        key_network, key_layers, key_fit, key_test = jax.random.split(jax.random.key(seed), 4)
        plain = architecture(labels["set"], config.share, key_network)
        options: dict[str, Any] = {"rate": config.dropout_rate} if labels["method"] == "MC dropout" else {}
        network = gx.nn.variational(plain, KINDS[labels["method"]], key=key_layers, **options)
        figures = fit_and_test(
            key_fit,
            key_test,
            network,
            data,
            num_steps=config.num_steps,
            batch_size=config.batch_size,
            num_draws=config.num_draws,
            learning_rate=config.learning_rate,
            checkpoint=folder / f"seed-{seed}" if find_spec("orbax") else None,
            checkpoint_seconds=300.0,
        )
        found.append(figures | {"parameters": sum(leaf.size for leaf in jax.tree.leaves(network))})
    return found


EXPERIMENT = Experiment(
    name="walsh_hadamard/cifar10",
    config=Config(),
    smoke=Config(seeds=(0,), data="noise", share=1 / 32, num_steps=2, batch_size=4, num_draws=2),
    pieces=pieces,
    measure_seeds=measure,
    tables={"error": table_of("error", 100.0), "mnll": table_of("mnll", 1.0), "ece": table_of("ece", 1.0)},
    double=False,
)

if __name__ == "__main__":
    main(EXPERIMENT)
