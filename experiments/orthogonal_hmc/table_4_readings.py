"""What the settings behind Table 4 of Yanush and Kropotov (2019) may have been: orthogonal ensembles on MNIST, read otherwise.

    python -m experiments.orthogonal_hmc.table_4_readings --together 5       # on a GPU; goes on where it was stopped
    python -m experiments.orthogonal_hmc.table_4_readings --only reading="momentum drawn anew, 1 inner step"
    python -m experiments.orthogonal_hmc.table_4_readings --smoke

The paper trains the network of :mod:`experiments.orthogonal_hmc.table_4` and samples from where training ends. It does not
say how its step size enters (into the density of the sum over images, or as the learning rate on the mean), whether the
momentum is drawn anew as algorithm 2 prints it, with how many inner steps, at which temperature, nor friction, priors and the
learning rate of training. Each reading changes one of these. Some are scored on images held out of training, in their place
of the test images, since they choose between settings. Moves are by the polar flow, which takes matrix products alone.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common import classifiers
from experiments.common.chains import Chains, Plan, run_chains
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.orthogonal_hmc import table_4, trained
from experiments.orthogonal_hmc.table_4 import PAPER
from experiments.orthogonal_hmc.trained import cell

MEAN = "the learning rate on the mean loss"
POLAR = gx.Stiefel(metric="embedded", flow="polar")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the chains are made; the defaults are those of table 4.

    Attributes:
        num_inner_steps: Between two draws of the momentum; None keeps the momentum.
        step_size_is: ``"step"`` in the density; ``"rate"``, the learning rate on the mean loss; ``"mean"``, a step in the density
            of the mean, with noise of variance :math:`2 \\alpha` as printed, which is a temperature of the number of images.
        temperature: Of the posterior.
        friction: Of sampling.
        last_layer: Standard deviation of the last layer's prior.
        learning_rate: Of training.
        is_validation: Whether it is scored on images held out of training.
    """

    num_inner_steps: int | None = None
    step_size_is: str = "step"
    temperature: float = 1.0
    friction: float = trained.FRICTION
    last_layer: float = 1.0
    learning_rate: float | None = None
    is_validation: bool = False


READINGS = {
    "as in table 4": Reading(),
    "momentum drawn anew, 1 inner step": Reading(num_inner_steps=1),
    "momentum drawn anew, 10 inner steps": Reading(num_inner_steps=10),
    f"ε is {MEAN}": Reading(step_size_is="rate"),
    "ε steps in the mean density, noise as printed": Reading(step_size_is="mean"),
    "temperature 0.01": Reading(temperature=0.01),
    "training at a rate of 0.001": Reading(learning_rate=0.001),
    f"training at 0.001, ε is {MEAN}": Reading(learning_rate=0.001, step_size_is="rate"),
    "training at 0.001, momentum drawn anew, 1 inner step": Reading(learning_rate=0.001, num_inner_steps=1),
    "training at 0.001, temperature 0.01": Reading(learning_rate=0.001, temperature=0.01),
}
READINGS |= {
    f"held-out images: friction {friction:g}, last layer {last:g}": Reading(
        friction=friction, last_layer=last, is_validation=True
    )
    for friction in (0.03, 0.1, 0.3)
    for last in (0.1, 0.3, 1.0)
}


@dataclasses.dataclass(frozen=True)
class Config(table_4.Config):
    """The settings of table 4.

    Attributes:
        readings: Those that are tried.
    """

    readings: tuple[str, ...] = tuple(READINGS)


def pieces(config: Config) -> list[Labels]:
    """Readings, all seeds of one after the other; held-out images choose by one seed."""
    return [
        {"reading": name, "epochs": config.epochs, "seed": seed}
        for name in config.readings
        for seed in (config.seeds[:1] if READINGS[name].is_validation else config.seeds)
    ]


@dataclasses.dataclass(frozen=True)
class _InnerBatches:
    """A sampler that takes the batches of all its inner steps as one."""

    algorithm: Any
    num_inner_steps: int

    def init(self, position: Any) -> Any:
        return self.algorithm.init(position)

    def step(self, key: Any, state: Any, batch: Any) -> Any:
        parts = jax.tree.map(lambda x: x.reshape(self.num_inner_steps, -1, *x.shape[1:]), batch)
        return self.algorithm.step(key, state, parts)


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Train, then sample."""
    reading = READINGS[labels["reading"]]
    images = classifiers.load(config.data)
    if reading.is_validation:
        num_train = 5 * len(images.train) // 6
        held_out = images.train[num_train:], images.train_labels[num_train:]
        images = classifiers.Images(images.train[:num_train], images.train_labels[:num_train], *held_out)
    wide = (lambda path, shape: shape[0] == 10, gx.nn.Gaussian(reading.last_layer))
    priors = gx.nn.Priors([wide, ("*", gx.nn.Gaussian("fan_in"))])
    rate = reading.learning_rate or config.learning_rate

    def network_of(key: jax.Array) -> gx.nn.MLP:
        return gx.nn.MLP(784, 10, widths=config.widths, orthogonal=True, key=key)

    # readings that begin alike share their training
    start = f"training-{rate:g}-{reading.last_layer:g}-{len(images.train)}-{'-'.join(map(str, seeds))}"
    networks = trained.train(
        images,
        network_of,
        priors,
        stiefel=POLAR,
        learning_rate=rate,
        epochs=labels["epochs"],
        batch_size=config.batch_size,
        seeds=seeds,
        folder=folder.parent / start,
    )
    sampled = sample(images, networks.positions, priors, config, reading, seeds, folder)
    noise = gradient_noise(images, networks.positions, priors, config)
    return [
        figures | {"gradient_noise": float(sd)}
        for figures, sd in zip(
            (trained.figures_of(images, networks, {reading.temperature: sampled}, i) for i in range(len(seeds))),
            noise,
            strict=True,
        )
    ]


def sample(
    images: classifiers.Images,
    networks: Any,
    priors: gx.nn.Priors,
    config: Config,
    reading: Reading,
    seeds: tuple[int, ...],
    folder: Path,
) -> Chains:
    """Sample from trained networks as a reading says; the sums are those of predicted probabilities."""
    num_data, inner = len(images.train), reading.num_inner_steps or 1
    step_size = config.step_size if reading.step_size_is == "step" else math.sqrt(config.step_size / num_data)
    temperature = reading.temperature
    if reading.step_size_is == "mean":
        # r + ε ∇ log π / N + √(2 α) ξ with x + ε r, in units of √N for r
        step_size, temperature = config.step_size / math.sqrt(num_data), float(num_data)
    algorithm = gx.sghmc(
        classifiers.posterior_of(images, priors),
        manifold=gx.nn.geometry(jax.tree.map(lambda leaf: leaf[0], networks), stiefel=POLAR),
        step_size=step_size,
        friction=reading.friction,
        temperature=temperature,
        num_inner_steps=inner,
        resample_momentum=reading.num_inner_steps is not None,
    )
    plan = Plan(
        algorithm if inner == 1 else _InnerBatches(algorithm, inner),
        classifiers.batches_of(images, config.batch_size * inner),
        num_steps=config.num_steps,
        chunk=int(np.gcd.reduce([config.num_burn, config.every, config.num_steps, 100])),
        observe=classifiers.probabilities(images.test),
        first_draw=config.num_burn,
        every=config.every,
    )
    return run_chains(plan, networks, tuple(seed + 1000 for seed in seeds), folder / "sampling.npz", report=print)


def gradient_noise(images: classifiers.Images, networks: Any, priors: gx.nn.Priors, config: Config) -> np.ndarray:
    """Standard deviation of an entry of the gradient by the choice of the batch, at the trained networks, root mean square."""
    posterior = classifiers.posterior_of(images, priors)
    batches = classifiers.batches_of(images, config.batch_size)

    def gradients(network: Any) -> jax.Array:
        def gradient(i: jax.Array) -> Any:
            return jax.grad(posterior.logdensity)(network, batches.draw(jax.random.key(0), i))

        seen = jax.lax.map(gradient, jnp.arange(20))
        spread = [jnp.var(entries, axis=0, ddof=1).ravel() for entries in jax.tree.leaves(seen)]
        return jnp.sqrt(jnp.mean(jnp.concatenate(spread)))

    return np.asarray(jax.jit(jax.vmap(gradients))(networks))


def scores_table(record: Record) -> str:
    """Accuracies in per cent of trained networks and of ensembles, and the share of the ensembles' noise by batches."""
    lines = []
    for name in record.config["readings"]:
        rows = record.rows(reading=name, epochs=record.config["epochs"])
        ensembles = [row["ensembles"][0] for row in rows]
        lines.append(
            [
                name,
                cell(rows, "single_accuracy"),
                cell(ensembles, "accuracy"),
                cell(ensembles, "log_p", 1.0, 4),
                cell(ensembles, "ece", 1.0, 4),
            ]
        )
    single, ensemble = PAPER["orthogonal"]
    lines.append(["in print", single, ensemble, "", ""])
    return table(["", "one network, %", "ensemble, %", "log p(y|X)", "ECE"], lines)


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_4_readings",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        epochs=2,
        data="simulated-mnist",
        widths=(12, 8),
        num_steps=12,
        num_burn=4,
        every=4,
        batch_size=20,
        readings=(
            "momentum drawn anew, 10 inner steps",
            f"ε is {MEAN}",
            "held-out images: friction 0.03, last layer 0.1",
        ),
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "epochs", "readings"),
    double=False,
    tables={"scores": scores_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
