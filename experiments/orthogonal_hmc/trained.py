"""Networks that are trained first and sampled from then on, both by oSGHMC, as sections 3.3 to 3.5 of the paper do.

Training is the sampler at temperature 0: gradient descent with momentum along the manifold's flow, with the learning rate
:math:`\\ell = \\varepsilon^2 N` on the mean loss. The paper gives the step size of sampling and, for one network, the
learning rate of training; friction is 0.1 here in both. It does not name priors. Orthonormal layers keep lengths, so that the
last layer must be free to scale what it is given: its prior is wide here. Each trained network is the start of chains at
several temperatures.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common import batch_norm, classifiers
from experiments.common.chains import Chains, Plan, run_chains
from experiments.common.experiment import Figures, Labels

FRICTION = 0.1
WEIGHTS = ("orthogonal", "ordinary")
_NUM_CLASSES = 10
Augment = Callable[[jax.Array, Any], Any] | None
PRIORS = gx.nn.Priors(
    [(lambda path, shape: shape[0] == _NUM_CLASSES, gx.nn.Gaussian(1.0)), ("*", gx.nn.Gaussian("fan_in"))]
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a network is trained and sampled with.

    Attributes:
        seeds: Independent runs.
        epochs: Of training; a label of each piece.
        data: A set of images of :func:`experiments.common.classifiers.load`.
        learning_rate: Of training, on the mean loss.
        step_size: Of sampling.
        num_steps: Iterations of sampling, burn-in included.
        num_burn: Of them discarded.
        every: Iterations between networks of the ensemble.
        batch_size: Images of a batch.
        temperatures: Of sampling.
    """

    seeds: tuple[int, ...]
    epochs: int
    data: str
    learning_rate: float
    step_size: float
    num_steps: int
    num_burn: int
    every: int
    batch_size: int
    temperatures: tuple[float, ...] = (1.0, 0.1, 0.01)


def pieces(settings: Settings) -> list[Labels]:
    """An orthogonal network and an ordinary one for each seed."""
    return [
        {"weights": weights, "epochs": settings.epochs, "seed": seed} for seed in settings.seeds for weights in WEIGHTS
    ]


def train_and_sample(
    images: classifiers.Images,
    network_of: Callable[[jax.Array], Any],
    settings: Settings,
    labels: Labels,
    seeds: tuple[int, ...],
    folder: Path,
    *,
    decay_at: tuple[int, ...] = (),
    augment: Augment = None,
) -> list[Figures]:
    """Figures of each seed.

    Args:
        images: Training and test images.
        network_of: From a random key to a network.
        settings: Those of the experiment.
        labels: Of the piece, with its ``epochs``.
        seeds: One network each.
        folder: For the checkpoints.
        decay_at: Epochs of training after which the learning rate is divided by 10.
        augment: From a random key and a batch to another version of it, in training and sampling.
    """
    trained = train(
        images,
        network_of,
        PRIORS,
        learning_rate=settings.learning_rate,
        decay_at=decay_at,
        epochs=labels["epochs"],
        batch_size=settings.batch_size,
        seeds=seeds,
        folder=folder,
        augment=augment,
    )
    sampled = {
        temperature: sample(images, trained.positions, settings, temperature, seeds, folder, augment)
        for temperature in settings.temperatures
    }
    return [figures_of(images, trained, sampled, i) for i in range(len(seeds))]


def train(
    images: classifiers.Images,
    network_of: Callable[[jax.Array], Any],
    priors: gx.nn.Priors | None = None,
    *,
    stiefel: gx.Stiefel | None = None,
    learning_rate: float,
    decay_at: tuple[int, ...] = (),
    epochs: int,
    batch_size: int,
    seeds: tuple[int, ...],
    folder: Path,
    num_seen: int = 5000,
    augment: Augment = None,
) -> Chains:
    """Train networks; the curve has the losses and accuracies after each epoch.

    Args:
        images: Training and test images.
        network_of: From a random key to a network.
        priors: None is the default, Gaussian of a variance by the fan-in.
        stiefel: Geometry of orthonormal weights; None is the default of :func:`geodax.nn.geometry`.
        learning_rate: On the mean loss.
        decay_at: Epochs after which it is divided by 10.
        epochs: Passes through the data.
        batch_size: Images of a batch.
        seeds: One network each.
        folder: For the checkpoint.
        num_seen: Training images on which the curve's training figures are taken.
        augment: From a random key and a batch to another version of it.

    Returns:
        The networks, and the curve.
    """
    batches = classifiers.batches_of(images, batch_size)
    num_an_epoch, num_data = batches.num_an_epoch, len(images.train)
    predict_test = jax.jit(jax.vmap(classifiers.probabilities(images.test)))
    predict_train = jax.jit(jax.vmap(classifiers.probabilities(images.train[:num_seen])))
    refresh = jax.jit(jax.vmap(lambda network: batch_norm.refreshed(network, images.train)))

    def step_size(iteration: jax.Array) -> jax.Array:
        drops = sum((iteration >= epoch * num_an_epoch).astype(jnp.float32) for epoch in decay_at)
        return jnp.sqrt(learning_rate / num_data * 10.0 ** -jnp.asarray(drops, jnp.float32))

    def look(networks: Any, sums: Any, num_draws: int) -> dict[str, Any]:
        seen, networks = {}, refresh(networks)
        for part, predict, labels in (
            ("train", predict_train, images.train_labels[:num_seen]),
            ("test", predict_test, images.test_labels),
        ):
            scores = [classifiers.scores(p, labels) for p in np.asarray(predict(networks))]
            seen[f"{part}_loss"] = [None if s["log_p"] is None else round(-s["log_p"], 5) for s in scores]
            seen[f"{part}_accuracy"] = [s["accuracy"] for s in scores]
        return seen

    starts = [network_of(jax.random.key(seed)) for seed in seeds]

    def algorithm_of(likelihood: Callable) -> Any:
        return gx.sghmc(
            classifiers.posterior_of(images, priors or gx.nn.Priors(), likelihood),
            manifold=gx.nn.geometry(starts[0], stiefel=stiefel),
            step_size=step_size,
            friction=FRICTION,
            temperature=0.0,
        )

    plan = Plan(
        batch_norm.sampler_of(algorithm_of, starts[0], is_frozen=False),
        batches,
        num_steps=epochs * num_an_epoch,
        chunk=num_an_epoch,
        look=look,
        look_every=num_an_epoch,
        augment=augment,
    )
    positions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    return run_chains(plan, positions, seeds, folder / "training.npz", report=print)


def sample(
    images: classifiers.Images,
    networks: Any,
    settings: Settings,
    temperature: float,
    seeds: tuple[int, ...],
    folder: Path,
    augment: Augment = None,
) -> Chains:
    """Sample from trained networks; the sums are those of predicted probabilities.

    Args:
        images: Training and test images.
        networks: Where to start, with a leading axis over the seeds.
        settings: Those of the experiment.
        temperature: Of the posterior.
        seeds: One chain each.
        folder: For the checkpoint.
        augment: From a random key and a batch to another version of it.

    Returns:
        The chains.
    """
    networks = jax.jit(jax.vmap(lambda network: batch_norm.refreshed(network, images.train)))(networks)
    one = batch_norm.with_statistics(jax.tree.map(lambda leaf: leaf[0], networks), None)

    def algorithm_of(likelihood: Callable) -> Any:
        return gx.sghmc(
            classifiers.posterior_of(images, PRIORS, likelihood),
            manifold=gx.nn.geometry(one),
            step_size=settings.step_size,
            friction=FRICTION,
            temperature=temperature,
        )

    plan = Plan(
        batch_norm.sampler_of(algorithm_of, one, is_frozen=True),
        classifiers.batches_of(images, settings.batch_size),
        num_steps=settings.num_steps,
        chunk=int(np.gcd.reduce([settings.num_burn, settings.every, settings.num_steps, 100])),
        observe=classifiers.probabilities(images.test),
        first_draw=settings.num_burn,
        every=settings.every,
        augment=augment,
    )
    checkpoint = folder / f"sampling-{temperature}.npz"
    return run_chains(plan, networks, tuple(seed + 1000 for seed in seeds), checkpoint, report=print)


def figures_of(images: classifiers.Images, trained: Chains, sampled: dict[float, Chains], i: int) -> Figures:
    """Scores of the trained network, and of the ensembles with seconds for 1,000 iterations of sampling, of one seed."""
    last = trained.curve[-1] if trained.curve else {}
    ensembles = []
    for temperature, chains in sampled.items():
        scores: dict[str, Any] = dict.fromkeys(("log_p", "accuracy", "ece", "brier", "confidence"))
        if trained.failed_at[i] is None and chains.failed_at[i] is None and chains.num_draws:
            scores = classifiers.scores(np.asarray(chains.sums)[i] / chains.num_draws, images.test_labels)
        facts = {"num_draws": chains.num_draws, "failed_at": chains.failed_at[i]}
        ensembles.append({"temperature": temperature} | scores | chains.seconds(1000) | facts)
    return {
        "single_accuracy": last["test_accuracy"][i] if last else None,
        "single_log_p": -last["test_loss"][i] if last and last["test_loss"][i] is not None else None,
        "ensembles": ensembles,
        "failed_at": trained.failed_at[i],
        "curve_test_accuracy": [point["test_accuracy"][i] for point in trained.curve],
    }


def ensembles_of(rows: list[dict], temperature: float) -> list[dict]:
    """The ensembles of some rows at one temperature."""
    return [ensemble for row in rows for ensemble in row["ensembles"] if ensemble["temperature"] == temperature]


def cell(rows: list[dict], name: str, scale: float = 100.0, digits: int = 2) -> str:
    """Mean and standard deviation over runs, in per cent; says where runs diverged or are shorter than planned."""
    if not rows:
        return "not run"
    values = np.asarray([row[name] * scale for row in rows if row[name] is not None])
    text = "–"
    if len(values):
        text = f"{values.mean():.{digits}f}"
        text += f" ± {values.std(ddof=1):.{digits}f} ({len(values)})" if len(values) > 1 else " (1)"
    failed = len(rows) - len(values)
    return f"{text}, {failed} of {len(rows)} runs diverged" if failed else text
