"""Draw docs/pictures/architecture.svg: the packages of geodax, each above those that it may import."""

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

matplotlib.rcParams["svg.fonttype"] = "none"

LAYERS = (  # from the top; a package imports lower layers only
    (("app", "tables, run folders, reports, commands"),),
    (("models", "estimators and their densities"),),
    (("interop", "NumPyro, PyMC, Stan, optax"),),
    (("diagnostics", "what draws say"), ("predict", "what a posterior says of new examples")),
    (("run", "sample, vi.fit: the loop, draws, checkpoints"),),
    (("nn", "layers, priors, likelihoods"),),
    (("mcmc", "hmc, nuts"), ("sgmcmc", "sgrld, sghmc, metrics"), ("vi", "families, flows, bounds")),
    (("geometry", "manifolds, flows"), ("posterior", "prior, likelihood, N"), ("data", "sets, batches")),
)
COLOURS = ("#e69f00", "#56b4e9", "#cc79a7", "#009e73", "#0072b2", "#d55e00", "#f0e442", "#999999")

figure = Figure(figsize=(8.4, 6.2))
ax = figure.add_axes((0, 0, 1, 1))
ax.set_xlim(0, 100)
ax.set_ylim(0, 10 * len(LAYERS))
ax.axis("off")
for i, (layer, colour) in enumerate(zip(LAYERS, COLOURS, strict=True)):
    width = 96 / len(layer)
    for j, (name, words) in enumerate(layer):
        x, y = 2 + j * width, 10 * (len(LAYERS) - 1 - i) + 1
        ax.add_patch(
            FancyBboxPatch(
                (x, y), width - 1.5, 7.6, boxstyle="round,pad=0.2", facecolor=colour, alpha=0.28, edgecolor="#445"
            )
        )
        ax.text(x + width / 2 - 0.75, y + 5, name, ha="center", va="center", fontsize=13, weight="bold")
        ax.text(x + width / 2 - 0.75, y + 2, words, ha="center", va="center", fontsize=9.5)
figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})
