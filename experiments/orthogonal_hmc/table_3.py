"""Table 3 of Yanush and Kropotov (2019): stochastic-gradient samplers on one matrix normal distribution.

Normal noise is added to every entry of the gradient. The paper states the noise, the width of the target and the number
of iterations, and neither step size, number of inner steps nor friction.

    python -m experiments.orthogonal_hmc.table_3 [--smoke]
"""

import dataclasses

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import spread, table
from experiments.orthogonal_hmc import truth
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture, exact_coordinates
from experiments.orthogonal_hmc.samplers import gaussian_noise, problem

METHODS = {  # name, space, order of a step
    "SGHMC, polar": ("polar", "paper"),
    "oSGHMC, literal": ("literal", "paper"),
    "oSGHMC, consistent": ("consistent", "paper"),
    "oSGHMC, consistent, BAOAB": ("consistent", "baoab"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: One chain each.
        targets: Rows and columns of the matrix.
        num_samples: Draws kept, from which the means are taken.
        num_counted: The first of them, from which effective sample sizes are taken.
        num_burn: Iterations before them.
        sigma: Standard deviation of the target's entries.
        noise: Standard deviation of the gradient's noise.
        friction: Share of the momentum that a step takes away.
        settings: Step size and number of inner steps of an iteration.
        num_exact: Exact draws behind the truth.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    targets: tuple[tuple[int, int], ...] = ((2, 2), (3, 2))
    num_samples: int = 40_000
    num_counted: int = 30_000
    num_burn: int = 10_000
    sigma: float = 1.0
    noise: float = 0.1
    friction: float = 0.1
    settings: tuple[tuple[float, int], ...] = ((0.02, 1), (0.05, 10), (0.1, 10))
    num_exact: int = 4_000_000


def mixture_of(config: Config, n: int, p: int) -> MatrixMixture:
    """One mode, the matrix of ones."""
    return MatrixMixture(n, p, config.sigma, (1.0,))


def algorithm(config: Config, target, ordering: str, eps: float, inner: int):
    """The sampler, with noise on its gradients and the noise deducted."""
    return gx.sghmc(
        target.logdensity_fn,
        manifold=target.manifold,
        step_size=eps,
        friction=config.friction,
        num_inner_steps=inner,
        gradient_noise=config.noise,
        perturb_gradient=gaussian_noise(config.noise),
        ordering=ordering,
    )


def pieces(config: Config) -> list[Labels]:
    """The truth of each target; then seed by seed every method with every setting."""
    labels: list[Labels] = [{"part": "truth", "n": n, "p": p} for n, p in config.targets]
    for seed in config.seeds:
        for n, p in config.targets:
            for eps, inner in config.settings:
                for method in METHODS:
                    piece = {
                        "part": "chain",
                        "n": n,
                        "p": p,
                        "method": method,
                        "eps": eps,
                        "inner": inner,
                        "seed": seed,
                    }
                    labels.append(piece)
    return labels


def measure(config: Config, labels: Labels) -> Figures:
    """One chain, or the truth."""
    mixture = mixture_of(config, labels["n"], labels["p"])
    if labels["part"] == "truth":
        draws = exact_coordinates(mixture, np.random.default_rng(2019), config.num_exact)
        return truth.from_draws(truth.with_squares(draws))._asdict()
    space, ordering = METHODS[labels["method"]]
    target = problem(mixture, space)
    run = gx.sample(
        jax.random.key(labels["seed"]),
        algorithm(config, target, ordering, labels["eps"], labels["inner"]),
        target.start,
        num_samples=config.num_samples,
        num_warmup=config.num_burn,
        num_chains=1,
        keep=target.keep,
        progress=False,
    )
    draws = run["posterior"]["position"].values
    counted = truth.worth(draws[:, : config.num_counted])
    return truth.worth(draws) | {
        "counted_sizes": counted["sizes"],
        "seconds": run.attrs["sampling_seconds"],
        "compile_seconds": run.attrs["compile_seconds"],
    }


def table_of(n: int, p: int):
    """Every method with every setting on one target."""

    def render(record: Record) -> str:
        target = record.row(part="truth", n=n, p=p)
        lines = []
        for eps, inner in record.config["settings"]:
            for method in METHODS:
                rows = record.rows(part="chain", n=n, p=p, method=method, eps=eps, inner=inner)
                found = truth.pooled(rows, target)
                counted = truth.pooled([row | {"sizes": row["counted_sizes"]} for row in rows], target)
                line = [method, f"ε {eps}, {inner} inner", spread(counted["min"]), spread(counted["median"])]
                line += [found["z"], found["bias"]]
                lines.append(line)
        header = ["method", "setting", "ESS min", "ESS median", "z", "bias in sd"]
        return table(header, lines)

    return render


EXPERIMENT = Experiment(
    name="orthogonal_hmc/table_3",
    config=Config(),
    smoke=Config(seeds=(0,), num_samples=100, num_counted=80, num_burn=20, settings=((0.05, 2),), num_exact=10_000),
    pieces=pieces,
    measure=measure,
    tables={"2x2": table_of(2, 2), "3x2": table_of(3, 2)},
)

if __name__ == "__main__":
    main(EXPERIMENT)
