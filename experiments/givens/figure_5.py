r"""Figure 5 of Pourzanjani et al. (2021): scales and angles of the plane, in full and half ranges; and planes near the pole.

python -m experiments.givens.figure_5 [--smoke]

The left panel's scales are the same in every chart. The right panel's angles are not: signs of the columns that the likelihood
does not see are mirror images in the full ranges, as on the manifold. What counts is which ranges are halved. *As printed*, all
angles run over :math:`(-\pi, \pi)`, and every matrix has two vectors of angles. In the *full* chart only the longitudes
:math:`\theta_{12}, \theta_{23}` do. *Half* ranges of these leave one of the four images.

Near the pole, where the first column is an axis with :math:`\theta_{13} = \pm\pi/2`, half ranges split one mode. The paper moves
the range of :math:`\theta_{13}` to :math:`(0, \pi)`, where the volume element vanishes in the middle of the mode instead;
``Givens(center=...)`` turns the chart, so that neither cut nor pole is near.
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
from experiments.givens import plane
from geodax.diagnostics.findings import ess, rhat

ANGLES = (r"$\theta_{12}$", r"$\theta_{13}$", r"$\theta_{23}$")
HALF = np.full(3, math.pi / 2)
MANIFOLD, PRINTED, FULL, HALVED = "manifold", "all angles in (-π, π), as printed", "full chart", "half ranges"
SHIFTED, CENTERED = "θ13 in (0, π), as printed", "half ranges, centered"
SPACES = {
    "horizontal plane": (MANIFOLD, PRINTED, FULL, HALVED, CENTERED),
    "near the pole": (MANIFOLD, FULL, HALVED, SHIFTED, CENTERED),
}
NUM_BINS = 72


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes.

    Attributes:
        seeds: One run of several chains for each example and space.
        num_chains: Chains, from starts all over the space.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
        num_shown: Draws of the scales that are shown.
    """

    seeds: tuple[int, ...] = (0,)
    num_chains: int = 8
    num_warmup: int = 500
    num_samples: int = 750
    num_shown: int = 400


def pieces(config: Config) -> list[Labels]:
    """A run for each example and space."""
    return [
        {"example": example, "space": space, "seed": seed}
        for seed in config.seeds
        for example, spaces in SPACES.items()
        for space in spaces
    ]


def target_of(space: str, x: np.ndarray) -> plane.Target:
    """The posterior in a space."""
    logdensity_fn = plane.log_density(x)
    if space == MANIFOLD:
        return plane.on_the_manifold(logdensity_fn)
    if space == PRINTED:
        return plane.in_angles(logdensity_fn, np.full(3, -math.pi), np.full(3, math.pi))
    if space == SHIFTED:
        return plane.in_angles(
            logdensity_fn, np.array([-HALF[0], 0.0, -HALF[2]]), np.array([HALF[0], math.pi, HALF[2]])
        )
    options = {FULL: {}, HALVED: {"half": True}, CENTERED: {"half": True, "center": plane.classical(x)[0]}}[space]
    return plane.in_a_chart(logdensity_fn, gx.transforms.Givens(plane.N, plane.P, **options))


def measure(config: Config, labels: Labels) -> Figures:
    """Histograms of the angles, how chains agree about angles and covariance, divergences, effective sizes."""
    x = plane.points(plane.EXAMPLES[labels["example"]])
    target = target_of(labels["space"], x)
    run = gx.sample(
        jax.random.key(labels["seed"]),
        gx.nuts(target.logdensity_fn, manifold=target.manifold),
        target.start,
        num_samples=config.num_samples,
        num_warmup=config.num_warmup,
        num_chains=config.num_chains,
        keep=target.read,
        progress=False,
    )
    draws, stats = run["posterior"], run["sample_stats"]
    theta, scale, covariance = (np.asarray(draws[name].values) for name in ("angles", "scale", "covariance"))
    edges = np.linspace(-math.pi, math.pi, NUM_BINS + 1)
    halved = jax.vmap(gx.transforms.Givens(plane.N, plane.P, half=True).decompose)
    folded = np.asarray(halved(draws["w"].values.reshape(-1, plane.N, plane.P))).reshape(theta.shape)
    classical_loadings, classical_scale, _ = plane.classical(x)
    classical_angles = gx.transforms.Givens(plane.N, plane.P, half=True).decompose(jnp.asarray(classical_loadings))
    shown = scale.reshape(-1, 2)[:: max(1, scale[..., 0].size // config.num_shown)][: config.num_shown]
    return {
        "histograms": [np.histogram(theta[..., k], edges)[0] for k in range(3)],
        "folded_histograms": [np.histogram(folded[..., k], edges)[0] for k in range(3)],
        "angle_means": np.round(theta.mean(1), 4),
        "scales": np.round(shown, 4),
        "classical_scale": np.round(classical_scale, 4),
        "classical_angles": np.round(np.asarray(classical_angles), 4),
        "rhat_angles": float(rhat(theta).max()),
        "rhat_covariance": float(rhat(covariance).max()),
        "min_ess_covariance": float(ess(covariance).min()),
        "covariance_mean": covariance.mean((0, 1)),
        "covariance_error": covariance.std((0, 1)) / np.sqrt(ess(covariance, method="mean")),
        "divergences": int(stats["diverging"].values.sum()),
        "gradients": int(stats["n_steps"].values.sum()),
    }


def checks(record: Record, example: str) -> str:
    """How chains agree, in every space."""
    seed = record.config["seeds"][0]
    rows = []
    reference = record.row(example=example, space=MANIFOLD, seed=seed)
    for space in SPACES[example]:
        row = record.row(example=example, space=space, seed=seed)
        difference = np.subtract(row["covariance_mean"], reference["covariance_mean"])
        error = np.hypot(row["covariance_error"], reference["covariance_error"])
        rows.append(
            [
                space,
                number(row["rhat_angles"], 4),
                number(row["rhat_covariance"], 4),
                number(row["min_ess_covariance"]),
                number(1000 * row["min_ess_covariance"] / row["gradients"]),
                str(row["divergences"]),
                "" if space == MANIFOLD else number(float(np.abs(difference / error).max()), 2),
            ]
        )
    header = ["space", "R-hat of the angles", "R-hat of the covariance", "its smallest ESS", "per 1,000 gradients"]
    return table([*header, "divergences", "covariance from the manifold's, standard errors"], rows)


def scales_and_angles(record: Record):
    """The paper's figure: scales on the left, angles in full and half ranges on the right."""
    seed = record.config["seeds"][0]
    shown = (MANIFOLD, PRINTED, FULL, HALVED)
    rows = {space: record.row(example="horizontal plane", space=space, seed=seed) for space in shown}
    figure, axes = panels(2, 3, height=2.5)
    left = axes[0, 0]
    scales = np.asarray(rows[HALVED]["scales"])
    left.plot(*scales.T, ".", color=SERIES[0], markersize=3, alpha=0.5, label="posterior draws")
    left.plot(1, 1, "x", color=INK, markersize=8, markeredgewidth=2, label="truth")
    left.plot(*rows[HALVED]["classical_scale"], "o", color=SERIES[1], markersize=6, label="classical PCA")
    top = float(np.quantile(scales, 0.995))
    left.set(xlim=(0, top), ylim=(0, top), xlabel=r"$\lambda_1$", ylabel=r"$\lambda_2$")
    left.legend(fontsize=7, frameon=False)
    places = [axes[0, 1], axes[0, 2], axes[1, 0], axes[1, 1]]
    for ax, space in zip(places, shown, strict=True):
        _angles(ax, rows[space], "histograms", f"{space}: {_modes(space)}")
    _angles(axes[1, 2], rows[MANIFOLD], "folded_histograms", "manifold, signs chosen afterwards: one")
    axes[0, 1].legend(fontsize=7, frameon=False, ncols=2)
    return figure


def near_the_pole(record: Record):
    """Angles near the pole, chain by chain."""
    seed = record.config["seeds"][0]
    spaces = [space for space in SPACES["near the pole"] if space != MANIFOLD]
    figure, axes = panels(1, len(spaces), height=2.6)
    for ax, space in zip(axes[0], spaces, strict=True):
        row = record.row(example="near the pole", space=space, seed=seed)
        _angles(ax, row, "histograms", space)
        ax.set_xlabel(f"R-hat {number(row['rhat_angles'])}, {row['divergences']} divergences", fontsize=8)
    axes[0, -1].legend(fontsize=7, frameon=False)
    return figure


def _modes(space: str) -> str:
    return {MANIFOLD: "four images", PRINTED: "eight", FULL: "four", HALVED: "one"}[space]


def _angles(ax, row, name: str, title: str) -> None:
    edges = np.linspace(-math.pi, math.pi, NUM_BINS + 1)
    for k, counts in enumerate(np.asarray(row[name], float)):
        density = counts / counts.sum() / (edges[1] - edges[0])
        ax.stairs(density, edges, color=SERIES[k], fill=True, alpha=0.25)
        ax.stairs(density, edges, color=SERIES[k], linewidth=1.1, label=ANGLES[k])
    ax.set_xlim(-math.pi, math.pi)
    ax.set_xticks([-math.pi, -math.pi / 2, 0, math.pi / 2, math.pi], ["-π", "-π/2", "0", "π/2", "π"])
    ax.set_yticks([])
    ax.set_title(title, fontsize=8, color=INK)


EXPERIMENT = Experiment(
    name="givens/figure_5",
    config=Config(),
    smoke=Config(num_chains=2, num_warmup=60, num_samples=60, num_shown=50),
    pieces=pieces,
    measure=measure,
    tables={
        "horizontal": lambda record: checks(record, "horizontal plane"),
        "pole": lambda record: checks(record, "near the pole"),
    },
    pictures={"scales_and_angles": scales_and_angles, "pole": near_the_pole},
)

if __name__ == "__main__":
    main(EXPERIMENT)
