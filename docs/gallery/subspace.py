"""How well the plane of a principal component analysis is known: 178 wines, 13 measurements."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import geodax as gx
from geodax.diagnostics.alignment import align_signs, mean_orthonormal, principal_angles

wine = gx.data.load("wine")
model = gx.models.BayesianPCA(n_components=2, random_state=0, num_warmup=300, num_samples=250, progress=False)
scores = model.fit(wine["features"]).sample_scores(wine["features"])
components = model.posterior_["posterior"]["components"].values
aligned, _ = align_signs(components)
angles = np.degrees(principal_angles(components, mean_orthonormal(aligned)))

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=(1.6, 1))
cultivars = np.unique(wine["labels"], return_inverse=True)[1]
mean, colours = scores.mean(axis=0), ("#2b6cb0", "#d9730d", "#2f855a")
for kind in range(3):
    rows = cultivars == kind
    cloud = scores[::20, rows].reshape(-1, 2)
    left.plot(*cloud.T, ".", ms=1, alpha=0.15, color=colours[kind])
    left.plot(*mean[rows].T, "o", ms=4, mec="white", color=colours[kind], label=f"cultivar {kind + 1}")
left.set(xlabel="first score", ylabel="second score", title="178 wines, posterior of their scores")
left.legend(frameon=False)
for j, name in enumerate(("smallest", "largest")):
    right.hist(angles[..., j].ravel(), bins=40, histtype="stepfilled", alpha=0.6, density=True, label=f"{name} angle")
right.set(xlabel="degrees from the mean plane", yticks=[], title="how far the plane may be turned")
right.legend(frameon=False)
figure.savefig(sys.argv[1], dpi=150)
