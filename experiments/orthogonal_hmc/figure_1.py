"""Figure 1 of Yanush and Kropotov (2019): every tenth draw of oHMC on the mixture of 16 matrix normal distributions.

python -m experiments.orthogonal_hmc.figure_1 [--smoke]
"""

import dataclasses

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture
from experiments.orthogonal_hmc.samplers import problem
from experiments.orthogonal_hmc.scatter import scatter

MIXTURE = MatrixMixture(2, 2, 0.3, (1.0, 2.0))
NAMES = {"literal": "oHMC, literal scheme, every tenth of 10,000 draws", "consistent": "oHMC, consistent scheme"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings, those of table 1 with long trajectories.

    Attributes:
        seeds: One chain each.
        num_samples: Draws after burn-in.
        num_burn: Iterations before them.
        every: Of so many draws one is shown.
        settings: Scheme, step size and number of steps.
    """

    seeds: tuple[int, ...] = (0,)
    num_samples: int = 10_000
    num_burn: int = 10_000
    every: int = 10
    settings: tuple[tuple[str, float, int], ...] = (("literal", 0.06, 30), ("consistent", 0.08, 30))


def pieces(config: Config) -> list[Labels]:
    """A chain of each scheme."""
    return [
        {"scheme": scheme, "eps": eps, "steps": steps, "seed": seed}
        for seed in config.seeds
        for scheme, eps, steps in config.settings
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """The draws that are shown."""
    target = problem(MIXTURE, labels["scheme"])
    run = gx.sample(
        jax.random.key(labels["seed"]),
        gx.hmc(
            target.logdensity_fn,
            manifold=target.manifold,
            step_size=labels["eps"],
            num_integration_steps=labels["steps"],
            length_jitter=0.3,
            step_size_jitter=0.2,
        ),
        target.start,
        num_samples=config.num_samples,
        num_warmup=config.num_burn,
        num_chains=1,
        keep=target.keep,
        progress=False,
    )
    draws = run["posterior"]["position"].values[0, :: config.every]
    return {"draws": np.round(draws, 4), "acceptance": float(run["sample_stats"]["acceptance_rate"].mean())}


def picture(record: Record):
    """Both schemes over the true density."""
    seed = record.config["seeds"][0]
    rows = {row["scheme"]: np.asarray(row["draws"]) for row in record.rows(seed=seed)}
    return scatter(MIXTURE, {NAMES[scheme]: (draws, "#c53030") for scheme, draws in rows.items()})


EXPERIMENT = Experiment(
    name="orthogonal_hmc/figure_1",
    config=Config(),
    smoke=Config(num_samples=100, num_burn=10),
    pieces=pieces,
    measure=measure,
    pictures={"draws": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
