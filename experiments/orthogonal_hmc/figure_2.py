"""Figure 2 of Yanush and Kropotov (2019): draws of oHMC and oSGHMC from one matrix normal distribution.

python -m experiments.orthogonal_hmc.figure_2 [--smoke]
"""

import dataclasses

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture
from experiments.orthogonal_hmc.samplers import gaussian_noise, problem
from experiments.orthogonal_hmc.scatter import scatter

MIXTURE = MatrixMixture(2, 2, 1.0, (1.0,))
SHOWN = {"hmc": ("oHMC", "#c53030"), "sghmc": ("oSGHMC, gradient noise 0.1", "#dd6b20")}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings; both samplers are of the consistent scheme.

    Attributes:
        seeds: One chain each.
        num_samples: Draws after burn-in, of oHMC and of oSGHMC.
        num_burn: Iterations before them.
        num_shown: Draws that are shown, evenly spaced.
        hmc: Step size and number of steps.
        sghmc: Step size and number of inner steps.
        friction: Of oSGHMC.
        noise: Standard deviation of the gradient's noise.
    """

    seeds: tuple[int, ...] = (0,)
    num_samples: tuple[int, int] = (10_000, 40_000)
    num_burn: int = 10_000
    num_shown: int = 1_000
    hmc: tuple[float, int] = (0.25, 10)
    sghmc: tuple[float, int] = (0.1, 10)
    friction: float = 0.1
    noise: float = 0.1


def pieces(config: Config) -> list[Labels]:
    """A chain of each sampler."""
    return [{"sampler": sampler, "seed": seed} for seed in config.seeds for sampler in SHOWN]


def measure(config: Config, labels: Labels) -> Figures:
    """The draws that are shown."""
    target = problem(MIXTURE, "consistent")
    if labels["sampler"] == "hmc":
        num_samples, (eps, steps) = config.num_samples[0], config.hmc
        algorithm = gx.hmc(
            target.logdensity_fn,
            manifold=target.manifold,
            step_size=eps,
            num_integration_steps=steps,
            length_jitter=0.3,
            step_size_jitter=0.2,
        )
    else:
        num_samples, (eps, steps) = config.num_samples[1], config.sghmc
        algorithm = gx.sghmc(
            target.logdensity_fn,
            manifold=target.manifold,
            step_size=eps,
            friction=config.friction,
            num_inner_steps=steps,
            gradient_noise=config.noise,
            perturb_gradient=gaussian_noise(config.noise),
        )
    run = gx.sample(
        jax.random.key(labels["seed"]),
        algorithm,
        target.start,
        num_samples=num_samples,
        num_warmup=config.num_burn,
        num_chains=1,
        keep=target.keep,
        progress=False,
    )
    every = max(1, num_samples // config.num_shown)
    return {"draws": np.round(run["posterior"]["position"].values[0, ::every], 4)}


def picture(record: Record):
    """Both samplers over the true density."""
    seed = record.config["seeds"][0]
    draws = {row["sampler"]: np.asarray(row["draws"]) for row in record.rows(seed=seed)}
    return scatter(MIXTURE, {name: (draws[sampler], colour) for sampler, (name, colour) in SHOWN.items()})


EXPERIMENT = Experiment(
    name="orthogonal_hmc/figure_2",
    config=Config(),
    smoke=Config(num_samples=(100, 100), num_burn=10, num_shown=50),
    pieces=pieces,
    measure=measure,
    pictures={"draws": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
