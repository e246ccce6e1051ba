"""Ratings predicted with their uncertainty: a film that few have rated is known less well. MovieLens-100k."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import geodax as gx

data = gx.data.load("movielens-100k")
pairs, ratings = np.column_stack([data["users"], data["items"]]), data["ratings"]
order = np.random.default_rng(0).permutation(len(ratings))
train, test = order[:90_000], order[90_000:]
model = gx.models.LowRankFactorization(
    rank=4, random_state=0, num_chains=2, num_warmup=600, num_samples=60, thinning=4, progress=False
)
model.fit(pairs[train], ratings[train])
parts = model.predict_parts(pairs[test])
counts = np.bincount(pairs[train][:, 1], minlength=pairs[:, 1].max() + 1)[pairs[test][:, 1]]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
left.semilogx(np.maximum(counts, 0.5), np.sqrt(parts.epistemic), ".", ms=2, alpha=0.3, color="#2b6cb0")
left.set_xticks([0.5, 1, 10, 100], ["0", "1", "10", "100"])
left.set(
    xlabel="ratings of the film in the fit", ylabel="standard deviation, stars", title="what is not known of the mean"
)
level = np.sqrt(parts.variance)
edges = np.quantile(level, np.linspace(0, 1, 11))
group = np.clip(np.searchsorted(edges, level) - 1, 0, 9)
errors = np.abs(ratings[test] - parts.mean)
said = [level[group == g].mean() for g in range(10)]
found = [np.sqrt((errors[group == g] ** 2).mean()) for g in range(10)]
right.plot(said, found, "o", color="#d9730d")
right.axline((np.mean(said), np.mean(said)), slope=1, color="#7b8794", lw=1)
right.set(
    xlabel="standard deviation that was predicted",
    ylabel="root mean squared error",
    title="10,000 ratings that were held out",
)
figure.savefig(sys.argv[1], dpi=150)
