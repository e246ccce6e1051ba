"""The picture of the README: what a draw on the Stiefel manifold is, and what draws are good for.

    python docs/pictures/draws.py        writes docs/pictures/draws.png

Left: draws of a matrix Langevin distribution on 3 x 2 matrices with orthonormal columns, each draw two points
of the unit sphere at right angles, with one leapfrog trajectory of the sampler. Right: the wine data, with
posterior draws of the loadings of 13 measurements on the first two principal components.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import geodax as gx
from geodax.geometry.flows import Cayley

INK, SOFT, FAINT = "#1f2933", "#7b8794", "#d9dee3"
BLUE, ORANGE = "#2b6cb0", "#d9730d"
COLOURS = ["#2b6cb0", "#d9730d", "#2f855a", "#b83280", "#6b46c1", "#9c6b30", "#0e7c86", "#c53030"]
AZIMUTH, HEIGHT = np.radians(48), np.radians(24)  # from where the sphere is seen
VIEW = np.array(  # right, up, towards the reader
    [
        [-np.sin(AZIMUTH), np.cos(AZIMUTH), 0],
        [-np.sin(HEIGHT) * np.cos(AZIMUTH), -np.sin(HEIGHT) * np.sin(AZIMUTH), np.cos(HEIGHT)],
        [np.cos(HEIGHT) * np.cos(AZIMUTH), np.cos(HEIGHT) * np.sin(AZIMUTH), np.sin(HEIGHT)],
    ]
)


def sphere_draws():
    """Draws of St(3, 2), and one long trajectory from the mean."""
    concentration = jnp.array([[12.0, 0.0], [0.0, 12.0], [0.0, 0.0]])
    space = gx.Stiefel()
    run = gx.sample(
        jax.random.key(1),
        gx.nuts(lambda x: jnp.sum(concentration * x), manifold=space),
        lambda key: space.random_point(key, concentration),
        num_samples=1000,
        num_warmup=500,
        progress=False,
    )
    x, r = jnp.eye(3, 2), jnp.array([[0.0, -0.9], [0.9, 0.0], [1.5, -1.2]])
    path, step = [x], jnp.float32(0.01)
    for _ in range(285):
        r = r + 0.5 * step * space.project(x, concentration)
        x, r = Cayley()(x, r, step, metric="canonical")
        r = r + 0.5 * step * space.project(x, concentration)
        path.append(x)
    return run["posterior"]["position"].values.reshape(-1, 3, 2), np.array(path)


def wine_loadings():
    """Posterior draws of the first two columns of the loadings, and the names of the measurements."""
    wine = gx.data.load("wine")
    model = gx.models.BayesianPCA(n_components=3, random_state=0).fit(wine["features"])
    components = model.posterior_["posterior"]["components"].values
    return components.reshape(-1, *components.shape[2:])[..., :2], wine.feature_names


def draw_sphere(axes, points, path):
    angle = np.linspace(0, 2 * np.pi, 361)
    axes.add_patch(plt.Circle((0, 0), 1, facecolor="#f7f9fb", edgecolor=SOFT, lw=0.8, zorder=0))
    circles = [
        np.stack([np.cos(a) * np.cos(angle), np.sin(a) * np.cos(angle), np.sin(angle)])
        for a in np.arange(0, np.pi, np.pi / 6)
    ] + [
        np.stack([np.cos(b) * np.cos(angle), np.cos(b) * np.sin(angle), np.sin(b) + 0 * angle])
        for b in np.arange(-np.pi / 3, np.pi / 2, np.pi / 6)
    ]
    for circle in circles:
        across, up, near = VIEW @ circle
        axes.plot(np.where(near > 0, across, np.nan), np.where(near > 0, up, np.nan), color=FAINT, lw=0.6, zorder=1)
    for column, colour in ((0, BLUE), (1, ORANGE)):
        across, up, near = VIEW @ points[..., column].T
        axes.scatter(across[near > 0], up[near > 0], s=3, color=colour, alpha=0.16, lw=0, zorder=2)
        across, up, near = VIEW @ path[..., column].T
        axes.plot(across, up, color=INK, lw=1.1, zorder=3)
        axes.plot(across[-1], up[-1], "o", color=INK, ms=3.5, zorder=4)
    for column in range(2):
        across, up, _ = VIEW @ path[-1][:, column]
        axes.annotate(
            "",
            (across, up),
            (0, 0),
            arrowprops={"arrowstyle": "-", "color": INK, "lw": 1.0, "ls": (0, (2, 2))},
        )
    axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal")
    axes.axis("off")
    axes.set_title(
        "Draws of two orthonormal vectors in space,\nand a trajectory of the sampler", color=INK, fontsize=10
    )


def draw_loadings(axes, points, names):
    for spoke in (0.2, 0.4, 0.6):
        axes.add_patch(plt.Circle((0, 0), spoke, fill=False, edgecolor=FAINT, lw=0.6, zorder=0))
        axes.text(0.0, -spoke, f"{spoke}", color=SOFT, fontsize=6.5, ha="center", va="center", backgroundcolor="w")
    axes.plot([-0.6, 0.6], [0, 0], color=FAINT, lw=0.6, zorder=0)
    axes.plot([0, 0], [-0.6, 0.6], color=FAINT, lw=0.6, zorder=0)
    short = {"OD280/OD315 of diluted wines": "OD280/OD315", "alcalinity of ash": "alcalinity"}
    labels = []
    for j, name in enumerate(names):
        cloud, colour = points[:, j], COLOURS[j % len(COLOURS)]
        centre = cloud.mean(axis=0)
        axes.plot(*np.stack([np.zeros(2), centre]).T, color=colour, lw=0.8, alpha=0.8, zorder=2)
        axes.scatter(*cloud[::4].T, s=2.2, color=colour, alpha=0.16, lw=0, zorder=1)
        labels.append((short.get(name, name), centre, colour))
    for side in (-1, 1):  # labels in a column on either side, in the order of the clouds
        mine = sorted((label for label in labels if label[1][0] * side > 0), key=lambda label: label[1][1])
        heights = np.array([label[1][1] for label in mine])
        for _ in range(300):
            gaps = np.clip(0.068 - np.diff(heights), 0, None)
            heights[:-1] -= 0.3 * gaps
            heights[1:] += 0.3 * gaps
        for (name, centre, colour), height in zip(mine, heights, strict=True):
            axes.annotate(
                name, centre, (side * 0.66, height), color=colour, fontsize=7.5,
                ha="left" if side > 0 else "right", va="center",
                arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "alpha": 0.6, "shrinkB": 0},
            )  # fmt: skip
    axes.set(xlim=(-1.0, 1.0), ylim=(-0.65, 0.65), aspect="equal")
    axes.axis("off")
    axes.set_title(
        "Wine: posterior of the loadings of 13 measurements\non principal components 1 and 2",
        color=INK,
        fontsize=10,
    )


def main():
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), width_ratios=[1, 1.4], layout="constrained", facecolor="white")
    draw_sphere(axes[0], *sphere_draws())
    draw_loadings(axes[1], *wine_loadings())
    path = Path(__file__).with_suffix(".png")
    figure.savefig(path, dpi=140, bbox_inches="tight", pad_inches=0.12)
    with Image.open(path) as picture:  # a palette makes the file half as large
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
