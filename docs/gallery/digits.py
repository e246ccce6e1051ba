"""An orthogonal network reads handwritten digits and says where it is not sure. MNIST, 5,000 images."""

import sys

import jax
import matplotlib.pyplot as plt
import numpy as np

import geodax as gx

mnist = gx.data.load("mnist")
x, y = (mnist[name] for name in ("train_images", "train_labels"))
x, y = x.reshape(len(x), -1)[:7000].astype(np.float32) / 255, y[:7000].astype(np.int32)
network = gx.nn.MLP(784, 10, widths=(64, 64), orthogonal=True, key=jax.random.key(0))
priors = gx.nn.Priors([("layers.2.weight", gx.nn.Gaussian(2.0)), ("*", gx.nn.Gaussian("fan_in"))])
posterior = gx.Posterior(log_prior=priors, log_likelihood=gx.nn.CategoricalLikelihood(), num_data=5000)
draws = gx.sample(
    jax.random.key(1),
    gx.sghmc(posterior, manifold=gx.nn.geometry(network), step_size=0.001, friction=0.05),
    lambda key: priors.sample(key, network),
    batches=gx.data.batches((x[:5000], y[:5000]), batch_size=100),
    num_samples=25,
    num_warmup=1500,
    thinning=40,
    num_chains=2,
    progress=False,
)
found = gx.predictive.predict_classes(draws, network, x[5000:])
accuracy = gx.scores.accuracy(found.probabilities, y[5000:])

figure, axes = plt.subplots(2, 8, figsize=(10, 3), layout="constrained", height_ratios=(1.5, 1))
for column, i in zip(axes.T, np.argsort(-found.epistemic)[:8], strict=True):
    column[0].imshow(x[5000 + i].reshape(28, 28), cmap="gray_r")
    column[0].set_axis_off()
    column[1].bar(
        range(10), found.probabilities[i], color=["#d9730d" if k == y[5000 + i] else "#2b6cb0" for k in range(10)]
    )
    column[1].set(xticks=range(10), yticks=[], ylim=(0, 1))
    column[1].tick_params(labelsize=6)
figure.suptitle(
    f"2,000 held-out digits, {accuracy:.1%} right; the eight on which the draws differ most (orange: the label)",
    fontsize=10,
)
figure.savefig(sys.argv[1], dpi=150)
