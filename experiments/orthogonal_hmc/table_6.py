r"""Table 6 of Yanush and Kropotov (2019): MovieLens-100k by matrices of rank 10, bottleneck against SVD.

    python -m experiments.orthogonal_hmc.table_6
    python -m experiments.orthogonal_hmc.table_6 --smoke

Ratings minus 3, normal noise of standard deviation 1. The bottleneck is :math:`W = A B^\top` with normal entries, the SVD
:math:`U \Sigma V^\top` with uniform factors and the singular values of a normal matrix; both priors give an entry of W the
variance 1. 20 epochs of training, then 5,000 iterations of sampling with the step size 1e-4, the first 1,000 discarded
and every 500th in the ensemble. The paper names neither split, batch size, learning rate nor priors; here the split is
the publisher's u1, and several learning rates are tried. Whether the noise of batches keeps training from the optimum is tested
by larger batches and by rates that fall by 10 after half and again after three quarters of the epochs.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.chains import Plan, run_chains
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import table
from experiments.orthogonal_hmc.trained import FRICTION, cell
from geodax.nn.densities import SingularValues, ordered_scales

NAMES = {"bottleneck": "bottleneck", "svd": "SVD"}
PAPER = {"bottleneck": ("1.017 ± 0.003", ""), "svd": ("1.013 ± 0.003", "1.001 ± 0.002")}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Independent runs.
        data: "movielens-100k", or "simulated" ratings that need no file.
        split: The publisher's.
        rank: Of the matrices.
        epochs: Of training.
        learning_rates: Of training, on the mean loss, tried with each parametrisation.
        step_size: Of sampling.
        num_steps: Iterations of sampling, burn-in included.
        num_burn: Of them discarded.
        every: Iterations between draws of the ensemble.
        batch_size: Ratings of a batch.
        larger_batches: Tried as well, with and without falling rates.
        other_rates: Learning rates with falling rates or larger batches.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    data: str = "movielens-100k"
    split: str = "u1"
    rank: int = 10
    epochs: int = 20
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    step_size: float = 0.0001
    num_steps: int = 5_000
    num_burn: int = 1_000
    every: int = 500
    batch_size: int = 100
    larger_batches: tuple[int, ...] = (1_000, 10_000)
    other_rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def pieces(config: Config) -> list[Labels]:
    """Both parametrisations at every learning rate; then with other batches and falling rates."""
    asked = [
        {"factorization": kind, "learning_rate": rate, "seed": seed}
        for seed in config.seeds
        for rate in config.learning_rates
        for kind in NAMES
    ]
    for seed in config.seeds:
        for batch_size, is_falling in _variants(config):
            for rate in config.other_rates:
                setting = {"learning_rate": rate, "batch_size": batch_size, "falling": is_falling, "seed": seed}
                asked += [{"factorization": kind} | setting for kind in NAMES]
    return asked


def _variants(config: Config) -> list[tuple[int, bool]]:
    sizes = (config.batch_size, *config.larger_batches)
    return [(size, falling) for size in sizes for falling in (False, True)]


def ratings(config: Config) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[int, int]]:
    """Users, items and centred ratings for training and for test, and the size of the matrix."""
    if config.data == "simulated":
        rng = np.random.default_rng(0)
        users, items = rng.integers(0, 12, 600), rng.integers(0, 15, 600)
        matrix = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 15))
        values = matrix[users, items] + 0.3 * rng.standard_normal(600)
        rows, shape = (np.arange(500), np.arange(500, 600)), (12, 15)
    else:
        data = gx.data.load(config.data)
        users, items, values = data["users"], data["items"], data["ratings"] - 3.0
        rows, shape = data.split(config.split), (int(users.max()) + 1, int(items.max()) + 1)
    train, test = ((users[r].astype(np.int32), items[r].astype(np.int32), values[r].astype(np.float32)) for r in rows)
    return train, test, shape


def entries(position: dict[str, Any], users: jax.Array, items: jax.Array) -> jax.Array:
    """Entries of the low-rank matrix."""
    left, right = position["left"][users], position["right"][items]
    if "log_gaps" in position:
        left = left * ordered_scales(position["log_gaps"])[None]
    return jnp.sum(left * right, axis=1)


def model(kind: str, shape: tuple[int, int], rank: int) -> tuple[Any, Any, Any]:
    """Geometry, log prior and draws of it; the prior variance of an entry of the matrix is 1."""
    return _bottleneck(shape, rank) if kind == "bottleneck" else _svd(shape, rank)


def _bottleneck(shape: tuple[int, int], rank: int) -> tuple[Any, Any, Any]:
    scale = rank**-0.25
    prior = gx.nn.Gaussian(scale)

    def log_prior(position):
        return prior.log_density(position["left"]) + prior.log_density(position["right"])

    def start(key):
        keys = jax.random.split(key)
        return {
            name: scale * jax.random.normal(k, (size, rank), jnp.float32)
            for name, k, size in zip(("left", "right"), keys, shape, strict=True)
        }

    return None, log_prior, start


def _svd(shape: tuple[int, int], rank: int) -> tuple[Any, Any, Any]:
    # the mean square of an entry of a normal r x (m + n - r) matrix is spread over m n of them
    prior = SingularValues(*shape, scale=math.sqrt(math.prod(shape) / (rank * (sum(shape) - rank))))

    def log_prior(position):
        return prior.log_density(position["log_gaps"])

    def start(key):
        keys = jax.random.split(key, 3)
        factors = [
            gx.Stiefel().random_point(k, jnp.zeros((size, rank), jnp.float32))
            for k, size in zip(keys, shape, strict=False)
        ]
        gaps = prior.sample(keys[2], jnp.zeros(rank, jnp.float32))
        return {"left": factors[0], "right": factors[1], "log_gaps": gaps}

    manifold = gx.Product({"left": gx.Stiefel(), "right": gx.Stiefel(), "log_gaps": gx.Euclidean()})
    return manifold, log_prior, start


def measure_seeds(config: Config, labels: Labels, seeds: tuple[int, ...], folder: Path) -> list[Figures]:
    """Train, then sample."""
    train, test, shape = ratings(config)
    manifold, log_prior, start = model(labels["factorization"], shape, config.rank)

    def log_likelihood(position, batch):
        users, items, values = batch
        return -0.5 * (values - entries(position, users, items)) ** 2

    posterior = gx.Posterior(log_prior=log_prior, log_likelihood=log_likelihood, num_data=len(train[0]))
    batches = gx.data.batches(train, batch_size=labels.get("batch_size", config.batch_size), order="epochs")
    users, items = jnp.asarray(test[0]), jnp.asarray(test[1])
    predict = jax.jit(jax.vmap(lambda position: entries(position, users, items)))
    num_an_epoch = batches.num_an_epoch

    def look(positions, sums, num_draws):
        del sums, num_draws
        return {"rmse": [_rmse(p, test[2]) for p in np.asarray(predict(positions))]}

    drops = (config.epochs // 2, 3 * config.epochs // 4) if labels.get("falling") else ()

    def step_size(iteration):
        falls = sum(jnp.asarray(iteration >= epoch * num_an_epoch, jnp.float32) for epoch in drops)
        return math.sqrt(labels["learning_rate"] / posterior.num_data) * 10.0 ** (-0.5 * falls)

    training = Plan(
        gx.sghmc(
            posterior,
            manifold=manifold,
            step_size=step_size,
            friction=FRICTION,
            temperature=0.0,
        ),
        batches,
        num_steps=config.epochs * num_an_epoch,
        chunk=num_an_epoch,
        look=look,
        look_every=num_an_epoch,
    )
    starts = [start(jax.random.key(seed)) for seed in seeds]
    positions = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    trained = run_chains(training, positions, seeds, folder / "training.npz")
    sampling = Plan(
        gx.sghmc(posterior, manifold=manifold, step_size=config.step_size, friction=FRICTION),
        batches,
        num_steps=config.num_steps,
        chunk=int(np.gcd.reduce([config.num_burn, config.every, config.num_steps])),
        observe=lambda position: entries(position, users, items),
        first_draw=config.num_burn,
        every=config.every,
    )
    sampled = run_chains(sampling, trained.positions, tuple(seed + 1000 for seed in seeds), folder / "sampling.npz")
    means = np.asarray(sampled.sums) / max(sampled.num_draws, 1)
    return [
        {
            "initial_rmse": trained.curve[-1]["rmse"][i],
            "ensemble_rmse": _rmse(means[i], test[2]) if sampled.num_draws else None,
            "curve_rmse": [point["rmse"][i] for point in trained.curve],
            "num_draws": sampled.num_draws,
            "failed_at": [trained.failed_at[i], sampled.failed_at[i]],
        }
        | trained.seconds(num_an_epoch)
        for i in range(len(seeds))
    ]


def _rmse(means: np.ndarray, targets: np.ndarray) -> float | None:
    return gx.scores.rmse(means, targets) if np.isfinite(means).all() else None


def scores_table(record: Record) -> str:
    """Root mean squared errors on the test set, at every learning rate, with the least on the way."""
    lines = []
    for kind, title in NAMES.items():
        for rate in record.config["learning_rates"]:
            rows = record.rows(factorization=kind, learning_rate=rate, batch_size=None)
            line = [f"{title}, learning rate {rate}", cell(rows, "initial_rmse", 1.0, 4), PAPER[kind][0]]
            rows = [row | {"least": min((v for v in row["curve_rmse"] if v is not None), default=None)} for row in rows]
            line += [cell(rows, "ensemble_rmse", 1.0, 4), PAPER[kind][1], cell(rows, "least", 1.0, 4)]
            lines.append([*line, cell(rows, "cpu_seconds", 1.0, 2)])
    header = ["parametrisation", "after training", "paper", "ensemble", "paper", "least of all epochs"]
    return table([*header, "seconds an epoch"], lines)


def batches_table(record: Record) -> str:
    """The best learning rate for each size of the batches, constant or falling."""
    lines = []
    for kind, title in NAMES.items():
        for batch_size, is_falling in _variants(Config(**record.config)):
            labels = {"factorization": kind, "batch_size": batch_size, "falling": is_falling}
            rates = {
                row["learning_rate"]: record.rows(**labels | {"learning_rate": row["learning_rate"]})
                for row in record.rows(**labels)
            }
            found = {
                rate: float(np.mean([row["initial_rmse"] for row in rows]))
                for rate, rows in rates.items()
                if all(row["initial_rmse"] is not None for row in rows)
            }
            line = [f"{title}, batches of {batch_size:,}, {'falling' if is_falling else 'constant'} rate"]
            if found:
                best = min(found, key=lambda rate: found[rate])
                line += [f"{best:g}", cell(rates[best], "initial_rmse", 1.0, 4), PAPER[kind][0]]
                lines.append([*line, cell(rates[best], "ensemble_rmse", 1.0, 4), PAPER[kind][1]])
            else:
                lines.append([*line, "not run", "", "", "", ""])
    return table(["", "best rate", "after training", "paper", "ensemble", "paper"], lines)


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_6",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        data="simulated",
        rank=2,
        epochs=3,
        learning_rates=(0.1,),
        num_steps=20,
        num_burn=10,
        every=5,
        batch_size=50,
        larger_batches=(100,),
        other_rates=(0.1,),
    ),
    pieces=pieces,
    measure_seeds=measure_seeds,
    may_change=("seeds", "larger_batches", "other_rates"),
    double=False,
    tables={"scores": scores_table, "batches": batches_table},
)

if __name__ == "__main__":
    main(EXPERIMENT)
