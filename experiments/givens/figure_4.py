"""Figure 4 of Pourzanjani et al. (2021): points around a plane, the plane of classical PCA and planes of the posterior.

python -m experiments.givens.figure_4 [--smoke]

The paper's points are not published; these are drawn from the same distribution, by a seed whose classical plane is tilted as theirs.
"""

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np

import geodax as gx
from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, blank, number, table
from experiments.givens import plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes.

    Attributes:
        seeds: One run of several chains each.
        num_chains: Chains.
        num_warmup: Warm-up iterations.
        num_samples: Draws of each chain.
        num_planes: Planes of the posterior that are shown.
    """

    seeds: tuple[int, ...] = (0,)
    num_chains: int = 8
    num_warmup: int = 500
    num_samples: int = 750
    num_planes: int = 24


def pieces(config: Config) -> list[Labels]:
    """A run a seed."""
    return [{"seed": seed} for seed in config.seeds]


def tilt(w: np.ndarray) -> np.ndarray:
    """Angles in degrees between planes and the horizontal one."""
    normal = np.cross(w[..., 0], w[..., 1])
    return np.degrees(np.arccos(np.clip(np.abs(normal[..., 2]), 0, 1)))


def measure(config: Config, labels: Labels) -> Figures:
    """The points, the classical plane, draws of the plane, and how far each is from the truth."""
    x = plane.points(plane.HORIZONTAL)
    target = plane.on_the_manifold(plane.log_density(x))
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
    draws = run["posterior"]["w"].values.reshape(-1, 3, 2)
    w, scale, noise = plane.classical(x)
    normals = np.cross(draws[..., 0], draws[..., 1])
    axis = np.linalg.eigh(np.einsum("di,dj->ij", normals, normals))[1][:, -1]
    angles = tilt(draws)
    shown = draws[:: max(1, len(draws) // config.num_planes)][: config.num_planes]
    return {
        "points": np.round(x, 4),
        "classical": np.round(w, 5),
        "classical_scale": np.round(scale, 4),
        "classical_noise": round(noise, 4),
        "classical_tilt": float(tilt(w)),
        "mean_plane_tilt": float(np.degrees(np.arccos(abs(axis[2])))),
        "tilt_histogram": np.histogram(angles, np.linspace(0, 90, 31))[0],
        "tilt_quantiles": np.quantile(angles, [0.05, 0.25, 0.5, 0.75, 0.95]),
        "share_closer_than_classical": float(np.mean(angles < tilt(w))),
        "planes": np.round(shown, 4),
        "divergences": int(run["sample_stats"]["diverging"].values.sum()),
    }


def tilts(record: Record) -> str:
    """Angles from the true plane."""
    rows = []
    for row in record.rows():
        low, _, middle, _, high = row["tilt_quantiles"]
        rows.append(
            [
                str(row["seed"]),
                number(row["classical_tilt"]),
                number(row["mean_plane_tilt"]),
                f"{number(middle)} ({number(low)} to {number(high)})",
                f"{100 * row['share_closer_than_classical']:.0f} %",
                str(row["divergences"]),
            ]
        )
    header = ["seed", "classical PCA", "mean plane of the posterior", "median (5 % to 95 %) of the posterior"]
    return table([*header, "draws closer than classical PCA", "divergences"], rows)


def picture(record: Record) -> "Figure":
    """The points and discs of the planes; the tilt of the posterior's planes."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    row = record.row(seed=record.config["seeds"][0])
    x, classical, planes = (np.asarray(row[name]) for name in ("points", "classical", "planes"))
    reach = 1.05 * np.linalg.norm(x, axis=1).max()
    figure = blank(figsize=(8.8, 3.9), dpi=120)
    ax = figure.add_axes((0.0, 0.02, 0.56, 0.98), projection="3d", computed_zorder=False)
    for place, w in enumerate(planes):
        ax.plot(*_circle(w, reach), color=SERIES[5], alpha=0.55, linewidth=0.8, label="" if place else "posterior")
    for w, colour, words in ((np.eye(3, 2), SERIES[0], "true plane"), (classical, SERIES[1], "classical PCA")):
        disc = Poly3DCollection([_circle(w, reach).T], facecolor=colour, edgecolor=colour, alpha=0.35, label=words)
        ax.add_collection3d(disc)
    ax.scatter(*x.T, color=INK, s=16, depthshade=False, zorder=5, label="data")
    ax.view_init(16, -62)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach), box_aspect=(1, 1, 0.85))
    for axis, name in ((ax.xaxis, "$x_1$"), (ax.yaxis, "$x_2$"), (ax.zaxis, "$x_3$")):
        axis.set_label_text(name, fontsize=8)
        axis.set_pane_color((1, 1, 1, 1))
    ax.tick_params(labelsize=6, colors=INK, pad=0)
    ax.grid(False)
    ax.legend(fontsize=7, frameon=False, loc="upper left", ncols=2)
    right = figure.add_axes((0.64, 0.16, 0.33, 0.74))
    edges = np.linspace(0, 90, 31)
    right.stairs(row["tilt_histogram"], edges, fill=True, color=SERIES[5], alpha=0.5, label="posterior")
    uniform = np.sum(row["tilt_histogram"]) * -np.diff(np.cos(np.radians(edges)))
    right.stairs(uniform, edges, color=INK, linewidth=0.9, linestyle=":", label="prior")
    right.axvline(row["classical_tilt"], color=SERIES[1], label="classical PCA")
    right.axvline(0, color=SERIES[0], linewidth=3, label="true plane")
    right.set(xlim=(0, 90), yticks=[])
    right.set_xlabel("tilt in degrees", fontsize=9)
    right.legend(fontsize=7, frameon=False, loc="upper right", ncols=2)
    right.set_ylim(top=1.3 * max(row["tilt_histogram"]))
    right.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right", "left"):
        right.spines[side].set_visible(False)
    return figure


def _circle(w: np.ndarray, radius: float) -> np.ndarray:
    """Points of a circle about the origin in a plane, 3 x number."""
    turn = np.linspace(0, 2 * np.pi, 73)
    return radius * w @ np.stack([np.cos(turn), np.sin(turn)])


EXPERIMENT = Experiment(
    name="givens/figure_4",
    config=Config(),
    smoke=Config(num_chains=2, num_warmup=60, num_samples=60, num_planes=6),
    pieces=pieces,
    measure=measure,
    tables={"tilts": tilts},
    pictures={"planes": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
