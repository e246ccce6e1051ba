"""Bayesian PCA of a table with missing cells: what is the value of a cell nobody measured?

One cell in ten of the wine data is hidden. The model is fitted to the rest; the hidden cells are then drawn
from their posterior predictive distribution and compared with what was hidden. A picture goes to a file.

    python examples/pca_missing_cells.py [--num-samples 1000] [--out missing_cells.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import geodax as gx


def main(num_samples, out):
    wine = gx.data.load("wine")
    X = wine["features"]
    is_hidden = np.random.default_rng(1).random(X.shape) < 0.1
    observed = np.where(is_hidden, np.nan, X)

    model = gx.models.BayesianPCA(
        n_components=3, num_samples=num_samples, num_warmup=max(200, num_samples // 2), random_state=0
    ).fit(observed)
    filled = model.impute(observed)  # draws x rows x columns; observed cells are as they were
    low, middle, high = np.quantile(filled, [0.05, 0.5, 0.95], axis=0)[:, is_hidden]
    truth = X[is_hidden]
    coverage = np.mean((low <= truth) & (truth <= high))
    spread = np.broadcast_to(model.spread_, X.shape)[is_hidden]
    column_mean = np.broadcast_to(model.center_, X.shape)[is_hidden]
    rms = np.sqrt(np.mean(((middle - truth) / spread) ** 2))
    rms_mean = np.sqrt(np.mean(((column_mean - truth) / spread) ** 2))
    print(f"{is_hidden.sum()} hidden cells; 90 % intervals cover {100 * coverage:.0f} % of them")
    print(f"root mean squared error in standard deviations: {rms:.2f} (of the column means: {rms_mean:.2f})")

    figure, axes = plt.subplots(figsize=(5, 4.6), layout="constrained")
    values = [(v - column_mean) / spread for v in (truth, middle, low, high)]
    lengths = [values[1] - values[2], values[3] - values[1]]
    axes.errorbar(values[0], values[1], yerr=lengths, fmt="o", ms=3, lw=0.6, alpha=0.6)
    axes.axline((0, 0), slope=1, color="0.6", lw=1)
    axes.set(xlabel="hidden value (standardised)", ylabel="posterior predictive median and 90 % interval")
    figure.savefig(out, dpi=150)
    print(f"Picture: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--out", default="missing_cells.png")
    arguments = parser.parse_args()
    main(arguments.num_samples, arguments.out)
