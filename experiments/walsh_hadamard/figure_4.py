"""Figure 4 of Rossi, Marmin and Filippone (2020), supplement: Gaussian processes with few variational parameters.

Three ways to spend a number of parameters on the posterior of a process with an RBF kernel: Walsh-Hadamard weights of
many random features, a normal distribution over the weights of few random features, and inducing points. Settings of section
D.4: 12,000 steps of Adam, the noise held for 10,000 of them, learning rate 6e-4 (hartman6: 5e-3), length scales
sqrt(d) / 2, amplitude 1, noise 0.02; 20 % of the points are trained on. Batches of 64; the paper does not say. As in the
paper, inducing points are counted by the parameters of their posterior and are rounded up. Their
places are counted in a figure of its own. Random features are in single precision, inducing points in double.

    python -m experiments.walsh_hadamard.figure_4 [--smoke]
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, number, panels, table
from experiments.walsh_hadamard.functions import points
from geodax.nn.variational_networks import FirstOutput
from geodax.predict.predictive import numbers_from_means
from geodax.predict.scores import mnll, rmse

METHODS = ("WHVI", "random features", "inducing points")
COVARIANCES = ("diagonal", "full")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: Of points, split and fit.
        functions: Names.
        num_features: Of the Walsh-Hadamard weights, squares of powers of two; the others get as many parameters.
        held_steps: Steps with the noise held.
        free_steps: Steps after them.
        batch_size: Points of a batch.
        num_draws: At test time.
        num_points: Of the set; 0 is the paper's number.
        num_tested: Of the test points, at most.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    functions: tuple[str, ...] = ("rastrigin5", "otlcircuit", "hartman6", "robot", "borehole")
    num_features: tuple[int, ...] = (64, 256, 1024)
    held_steps: int = 10_000
    free_steps: int = 2_000
    batch_size: int = 64
    num_draws: int = 64
    num_points: int = 0
    num_tested: int = 5_000


def pieces(config: Config) -> list[Labels]:
    """Seed by seed, so that a part of it is a whole picture."""
    return [
        {"seed": seed, "function": function, "covariance": covariance, "features": features, "method": method}
        for seed in config.seeds
        for function in config.functions
        for covariance in COVARIANCES
        for features in config.num_features
        for method in METHODS
    ]


def budget(covariance: str, features: int) -> int:
    """Parameters of the posterior with Walsh-Hadamard weights: mean, covariance, S_1 and S_2 of one block."""
    order = math.isqrt(features)
    return 4 * order if covariance == "diagonal" else 3 * order + order * (order + 1) // 2


def spread_over(covariance: str, parameters: int) -> int:
    """Entries of a vector whose normal distribution has at least as many parameters."""
    if covariance == "diagonal":
        return -(-parameters // 2)
    return math.ceil((-3 + math.sqrt(9 + 8 * parameters)) / 2)


def process(labels: Labels, x: np.ndarray, key):
    """The process with its posterior to begin with."""
    dimension = x.shape[1]
    common = {"lengthscale": math.sqrt(dimension) / 2, "amplitude": 1.0}
    covariance, features = labels["covariance"], labels["features"]
    own = {"dtype": jnp.float32, "key": key}
    if labels["method"] == "WHVI":
        return FirstOutput(
            gx.nn.RandomFeatureGP(
                dimension, 1, num_features=features, weights="whvi", covariance=covariance, **common, **own
            )
        )
    size = spread_over(covariance, budget(covariance, features))
    if labels["method"] == "random features":
        weights = "mean-field" if covariance == "diagonal" else "full"
        return FirstOutput(gx.nn.RandomFeatureGP(dimension, 1, num_features=size, weights=weights, **common, **own))
    return gx.nn.InducingPointGP(jnp.asarray(x[:size]), covariance=covariance, **common)


def measure(config: Config, labels: Labels) -> Figures:
    """Fit one process and test it, in units of the standardised function."""
    x, y = points(labels["function"], config.num_points or None, seed=labels["seed"])
    num_train = len(x) // 5
    mean, scale = y[:num_train].mean(), y[:num_train].std()
    targets = (y - mean) / scale
    dtype = jnp.float64 if labels["method"] == "inducing points" else jnp.float32
    train = (x[:num_train].astype(dtype), targets[:num_train].astype(dtype))
    test = (x[num_train:][: config.num_tested].astype(dtype), targets[num_train:][: config.num_tested])
    key_process, key_fit, key_test = jax.random.split(jax.random.key(labels["seed"]), 3)
    start = gx.nn.WithNoise(process(labels, train[0], key_process), math.log(0.02), dtype=dtype)
    fit = gx.vi.fit(
        key_fit,
        start,
        gx.nn.GaussianLikelihood(),
        train,
        num_steps=config.held_steps + config.free_steps,
        batch_size=min(config.batch_size, num_train),
        learning_rate=5e-3 if labels["function"] == "hartman6" else 6e-4,
        held={"log_noise": config.held_steps},
        progress=False,
    )
    means = jax.jit(lambda key, x: gx.vi.predict(key, fit.network, x, num_samples=config.num_draws))(
        key_test, jnp.asarray(test[0])
    )
    noise = np.full(means.shape, np.exp(float(fit.network.log_noise)))
    found = numbers_from_means([(np.asarray(means), noise)], targets=test[1])
    posterior = budget(labels["covariance"], labels["features"])
    places = 0
    if labels["method"] == "inducing points":
        places = spread_over(labels["covariance"], posterior) * x.shape[1]
    return {
        "rmse": rmse(found.mean, test[1]),
        "mnll": mnll(found.log_density),
        "parameters": posterior,
        "parameters_of_places": places,
        "noise": np.exp(float(fit.network.log_noise)),
        "bound": fit.history.elbo[-1] / num_train,
        "fit_seconds": fit.seconds,
    }


def table_of(figure: str):
    """One row a function, covariance and size; mean and standard deviation over the seeds."""

    def render(record: Record) -> str:
        rows = []
        for function in record.config["functions"]:
            for covariance in COVARIANCES:
                for features in record.config["num_features"]:
                    labels = {"function": function, "covariance": covariance, "features": features}
                    if not record.rows(**labels):
                        continue
                    cells = []
                    for method in METHODS:
                        values = record.values(figure, **labels, method=method).astype(float)
                        spread = f" ± {number(values.std(ddof=1), 2)}" if len(values) > 1 else ""
                        cells.append(number(values.mean()) + spread if len(values) else "")
                    parameters = str(budget(covariance, features))
                    rows.append([function, covariance, parameters, *cells])
        return table(["function", "covariance", "parameters", *METHODS], rows)

    return render


def picture(record: Record):
    """The paper's layout: test error against parameters, diagonal above and full covariance below."""
    functions = [name for name in record.config["functions"] if record.rows(function=name)]
    figure, axes = panels(2, max(len(functions), 1), width=2.2 * max(len(functions), 1), height=4.4)
    for i, covariance in enumerate(COVARIANCES):
        for j, function in enumerate(functions):
            ax = axes[i, j]
            for k, method in enumerate(METHODS):
                rows = record.rows(function=function, covariance=covariance, method=method)
                sizes = sorted({row["parameters"] for row in rows})
                values = [np.mean([row["rmse"] for row in rows if row["parameters"] == size]) for size in sizes]
                ax.plot(sizes, values, "o-", color=SERIES[2 * k], markersize=3, linewidth=1.1, label=method)
            ax.set_xscale("log", base=2)
            ax.tick_params(labelsize=7)
            if i == 0:
                ax.set_title(function, fontsize=9, color=INK)
            if i == 1:
                ax.set_xlabel("parameters", fontsize=8, color=INK)
            if j == 0:
                ax.set_ylabel(f"test RMSE, {covariance}", fontsize=8, color=INK)
    axes[0, 0].legend(frameon=False, fontsize=7)
    return figure


EXPERIMENT = Experiment(
    name="walsh_hadamard/figure_4",
    config=Config(),
    smoke=Config(
        seeds=(0,),
        functions=("otlcircuit",),
        num_features=(16,),
        held_steps=10,
        free_steps=5,
        num_draws=4,
        num_points=200,
    ),
    pieces=pieces,
    measure=measure,
    tables={"rmse": table_of("rmse"), "mnll": table_of("mnll")},
    pictures={"error": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
