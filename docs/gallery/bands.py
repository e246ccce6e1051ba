"""Regression by Walsh-Hadamard layers, mean-field layers and draws of the posterior: bands where there are no data."""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import geodax as gx

generator = np.random.default_rng(0)
x = np.concatenate([generator.uniform(-2, -0.6, 40), generator.uniform(0.5, 2, 40)]).astype(np.float32)[:, None]
y = (np.sin(3 * x[:, 0]) + 0.5 * x[:, 0] + generator.normal(0, 0.1, len(x))).astype(np.float32)
grid = np.linspace(-3, 3, 200, dtype=np.float32)[:, None]
likelihood = gx.nn.GaussianLikelihood()
plain = gx.nn.MLP(1, "scalar", widths=(32, 32), key=jax.random.key(1))
priors = gx.nn.Priors(
    [("log_noise", gx.nn.Gaussian(2.0)), ("*weight", gx.nn.Gaussian("fan_in")), ("*", gx.nn.Gaussian(1.0))]
)

functions = {}
for name, kind in (("Walsh-Hadamard layers", "whvi"), ("mean-field layers", "mean-field")):
    network = gx.nn.WithNoise(gx.nn.variational(plain, kind, key=jax.random.key(2)), -2.0)
    fit = gx.vi.fit(
        jax.random.key(3),
        network,
        likelihood,
        (x, y),
        num_steps=6000,
        batch_size=80,
        learning_rate=5e-3,
        progress=False,
    )
    functions[name] = np.asarray(
        gx.vi.sample_functions(jax.random.key(4), fit.network, jnp.asarray(grid), num_samples=200)
    )
posterior = gx.Posterior(log_prior=priors, log_likelihood=likelihood, num_data=len(x))
start = gx.nn.WithNoise(plain, -2.0)
draws = gx.sample(
    jax.random.key(5),
    gx.nuts(posterior.full((x, y)), max_num_doublings=7),
    lambda key: start,
    num_samples=100,
    num_warmup=200,
    keep=lambda network: jax.vmap(network)(grid),
    num_chains=2,
    progress=False,
)
functions["no-U-turn sampler"] = draws["posterior"]["position"].values.reshape(-1, len(grid))

figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for ax, (name, values) in zip(axes, functions.items(), strict=True):
    for low, high, strength in ((5, 95, 0.2), (25, 75, 0.35)):
        ax.fill_between(grid[:, 0], *np.percentile(values, [low, high], axis=0), color="#2b6cb0", alpha=strength, lw=0)
    ax.plot(grid[:, 0], values[::40].T, color="#2b6cb0", lw=0.6, alpha=0.7)
    ax.plot(x[:, 0], y, "k.", ms=3)
    ax.set(title=name, ylim=(-4, 4), xlabel="x")
figure.savefig(sys.argv[1], dpi=150)
