r"""Figure 2 of Yu, Hartmann, Williams and Klami (2023): the funnel in four metrics, and how far each is from the truth.

python -m experiments.sgrld.figure_2 [--smoke]

The paper shows one run of each metric; one run has about a dozen effective draws of :math:`\theta_D`, so here are
several chains. What the paper leaves open is chosen as in the authors' published script: the softplus is a variance,
:math:`\mu = 2`, :math:`\sigma^2 = 80`, the start (1, 1), gradients clipped at norm 1e11. Beside the paper's four metrics
are Monge's with its divergence, and the same on a narrower funnel, where a run of this length has hundreds of effective
draws.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, blank, table
from experiments.orthogonal_hmc.samplers import gaussian_noise
from experiments.sgrld import funnel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = ("Identity", "RMSprop", "Monge", "Shampoo")
OWN = ("Monge, paper's Γ", "Monge, Γ", "Monge, Γ and lag", "Monge, averaged Γ")
EXACT = "without the neck"
STATISTICS = {"ks": "KS", "w1": "W1", "mean": "mean", "sd": "sd", "min": "lowest", "neck": "P(θ_D < −5)"}
DECIMALS = {"ks": 3, "w1": 2, "mean": 2, "sd": 2, "min": 1, "neck": 3}
EDGES = np.linspace(-40.0, 40.0, 161)
_CLIP = 1e11


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and settings.

    Attributes:
        seeds: One set of chains each.
        variances: Of theta_D.
        num_chains: Chains of a metric, side by side.
        num_steps: Steps of a chain.
        thinning: Of so many draws one is looked at.
        noise: Standard deviation of each entry of the gradient.
        num_shown: Draws of the first chain in the picture.
    """

    seeds: tuple[int, ...] = (0,)
    variances: tuple[float, ...] = (80.0, 9.0)
    num_chains: int = 16
    num_steps: int = 2_000_000
    thinning: int = 20
    noise: float = 1.0
    num_shown: int = 1000


def pieces(config: Config) -> list[Labels]:
    """The paper's metrics on both funnels first."""
    return [
        {"variance": variance, "metric": metric, "seed": seed}
        for seed in config.seeds
        for names in ((*PAPER, EXACT), OWN)
        for variance in config.variances
        for metric in names
    ]


def measure(config: Config, labels: Labels) -> Figures:
    """All chains of one metric."""
    variance, name = labels["variance"], labels["metric"]
    num_draws = config.num_steps // config.thinning
    if name == EXACT:
        step_size = funnel.metrics()["Identity"][1]
        neck = funnel.independent_of_the_neck(
            labels["seed"], config.num_chains, num_draws, step_size * config.thinning, variance
        )
        return summaries(neck, variance) | {"step_size": step_size}
    metric, step_size = funnel.metrics()[name]
    run = gx.sample(
        jax.random.key(labels["seed"]),
        gx.sgrld(
            funnel.log_density(variance),
            metric=funnel.WithFallback(metric),
            step_size=step_size,
            clip_norm=_CLIP,
            perturb_gradient=gaussian_noise(config.noise),
        ),
        jnp.asarray(funnel.START),
        num_samples=num_draws,
        thinning=config.thinning,
        num_chains=config.num_chains,
        progress=False,
    )
    draws = run["posterior"]["position"].values
    shown = np.random.default_rng(labels["seed"]).choice(num_draws, config.num_shown, replace=False)
    return summaries(draws[..., 1], variance) | {
        "step_size": step_size,
        "scatter": np.round(draws[0, np.sort(shown)], 3),
        "clipped": float((run["sample_stats"]["gradient_scale"].values < 1).mean()),
        "seconds": run.attrs["sampling_seconds"],
    }


def summaries(draws: np.ndarray, variance: float) -> Figures:
    """Distances of each chain and of all together, and a histogram."""
    chains = [funnel.distances(chain, variance) for chain in draws]
    counts, _ = np.histogram(draws, EDGES)
    return {
        "chains": {name: [round(chain[name], 5) for chain in chains] for name in STATISTICS},
        "pooled": {name: round(value, 5) for name, value in funnel.distances(draws.ravel(), variance).items()},
        "histogram": counts,
    }


def table_of(variance: float):
    """Every metric on one funnel: means over chains with their standard errors."""

    def render(record: Record) -> str:
        lines = []
        for name in (*PAPER, *OWN, EXACT):
            rows = record.rows(variance=variance, metric=name)
            if not rows:
                lines.append([name, *["not run"] * (len(STATISTICS) + 1)])
                continue
            line: list[Any] = [name]
            for statistic in STATISTICS:
                values = np.concatenate([row["chains"][statistic] for row in rows])
                error = values.std(ddof=1) / np.sqrt(len(values))
                digits = DECIMALS[statistic]
                line.append(f"{values.mean():.{digits}f} ± {error:.{digits}f}")
            line.append(f"{np.mean([row['pooled']['ks'] for row in rows]):.3f}")
            lines.append(line)
        truth = ["truth", "0", "0", "0", f"{np.sqrt(variance):.2f}", "", f"{_neck(variance):.3f}", "0"]
        return table(["metric", *STATISTICS.values(), "KS, chains pooled"], [*lines, truth])

    return render


def _neck(variance: float) -> float:
    from scipy import stats

    return float(stats.norm.cdf(funnel.NECK, scale=np.sqrt(variance)))


def picture(record: Record) -> "Figure":
    """The paper's layout: for each metric the draws of a chain, and beside them the marginal with the truth."""
    variance = record.config["variances"][0]
    figure = blank(figsize=(8.8, 6.6), layout="constrained", dpi=120)
    grid = figure.add_gridspec(2, 4, width_ratios=(2.2, 1, 2.2, 1))
    theta = np.linspace(-32, 32, 400)
    sd = np.sqrt(variance)
    density = np.exp(-0.5 * (theta / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
    for number, name in enumerate(PAPER):
        rows = record.rows(variance=variance, metric=name)
        row, column = divmod(number, 2)
        left = figure.add_subplot(grid[row, 2 * column])
        right = figure.add_subplot(grid[row, 2 * column + 1], sharey=left)
        half = 2 * np.sqrt(np.logaddexp(0, theta))
        left.fill_betweenx(theta, funnel.MEAN - half, funnel.MEAN + half, color=SERIES[0], alpha=0.12, linewidth=0)
        if rows:
            scatter = np.asarray(rows[0]["scatter"])
            left.plot(scatter[:, 0], scatter[:, 1], ".", color=INK, markersize=2.2, markeredgewidth=0, alpha=0.7)
            counts = np.sum([r["histogram"] for r in rows], axis=0)
            share = counts / counts.sum() / np.diff(EDGES)
            right.stairs(share, EDGES, orientation="horizontal", fill=True, color="#d69e2e", alpha=0.75)
        right.plot(density, theta, color=SERIES[0], linewidth=1.3)
        left.set_title(name, fontsize=9, loc="left", color=INK)
        left.set_xlim(-15, 19)
        left.set_ylim(-32, 32)
        right.set_xlim(0, 0.1)
        left.set_xlabel(r"$\theta_1$", fontsize=9, color=INK)
        left.set_ylabel(r"$\theta_D$", fontsize=9, color=INK, labelpad=-2)
        right.set_xlabel("density", fontsize=8, color=INK)
        right.tick_params(labelleft=False)
        for ax in (left, right):
            ax.tick_params(colors=INK, labelsize=8, width=0.7, length=3)
            for side, spine in ax.spines.items():
                spine.set_color(INK)
                spine.set_linewidth(0.7)
                spine.set_visible(side in ("left", "bottom"))
    return figure


EXPERIMENT = Experiment(
    name="sgrld/figure_2",
    config=Config(),
    smoke=Config(num_chains=2, num_steps=400, thinning=4, num_shown=50),
    pieces=pieces,
    measure=measure,
    tables={"variance-80": table_of(80.0), "variance-9": table_of(9.0)},
    pictures={"funnel": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
