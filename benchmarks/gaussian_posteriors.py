"""Gaussian posteriors of small networks for the digits: IVON and noisy K-FAC by steps, Laplace by prior variance.

    python benchmarks/gaussian_posteriors.py     # writes benchmarks/results/gaussian_posteriors.json, in some minutes

The digits of scikit-learn, 1,000 rows for training and 797 held out. Variational fits: a network 64-32-10 with the
prior ``Priors()``, batches of 100; accuracy and log probability of the held-out rows by 100 draws, and the bound at the
end, means of three starts. Laplace: the linearised predictions of all dense layers, one training of each network.
"""

import argparse
import json
import platform
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from _versions import installed
from sklearn.datasets import load_digits

import geodax as gx
from geodax.sgmcmc.schedules import polynomial

RESULTS = Path(__file__).parent / "results" / "gaussian_posteriors.json"
LENGTHS, STARTS = (300, 1000, 3000), 3
FALLING = polynomial(1.0, offset=30.0, power=0.5)
METHODS = {
    "`ivon`, 0.05": (gx.vi.ivon, 0.05, {}),
    "`ivon`, 0.3": (gx.vi.ivon, 0.3, {}),
    "`ivon`, 1": (gx.vi.ivon, 1.0, {}),
    "`ivon`, `polynomial(1.0, offset=30.0, power=0.5)`": (gx.vi.ivon, FALLING, {}),
    "`ivon`, 0.05, `initial_hessian=0.1`": (gx.vi.ivon, 0.05, {"initial_hessian": 0.1}),
    "`noisy_kfac`, 0.05": (gx.vi.noisy_kfac, 0.05, {}),
}
VARIANCES = (1.0, 0.1, 0.01, 0.003)
LIKELIHOOD = gx.nn.CategoricalLikelihood()


def digits():
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = (x / 16 - 0.3).astype(np.float32)[order], y.astype(np.int32)[order]
    return (x[:1000], y[:1000]), (x[1000:], y[1000:])


def dense(key):
    return gx.nn.MLP(64, 10, widths=(32,), key=key)


def convolutional(key):
    first, second, last = jax.random.split(key, 3)
    return eqx.nn.Sequential(
        [
            eqx.nn.Lambda(lambda x: x.reshape(1, 8, 8)),
            eqx.nn.Conv2d(1, 16, 3, padding=1, key=first),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(16, 32, 3, padding=1, key=second),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(512, 10, key=last),
        ]
    )


def trained(network, train, num_steps, optimizer, log_prior):
    """Descent of the mean potential of all rows."""
    weights, rest = eqx.partition(network, eqx.is_inexact_array)

    def potential(weights):
        network = eqx.combine(weights, rest)
        return -LIKELIHOOD(network, train).mean() - log_prior(network) / len(train[0])

    def step(_, carry):
        weights, state = carry
        updates, state = optimizer.update(jax.grad(potential)(weights), state, weights)
        return optax.apply_updates(weights, updates), state

    run = jax.jit(lambda weights: jax.lax.fori_loop(0, num_steps, step, (weights, optimizer.init(weights)))[0])
    return eqx.combine(run(weights), rest)


def variational(name, num_steps, start, train, held_out):
    method, rate, options = METHODS[name]
    keys = jax.random.split(jax.random.key(start), 3)
    network = dense(keys[0])
    algorithm = method(network, LIKELIHOOD, rate, num_data=len(train[0]), priors=gx.nn.Priors(), **options)
    found = gx.vi.fit(
        keys[1], network, LIKELIHOOD, train, num_steps=num_steps, batch_size=100, algorithm=algorithm, progress=False
    )
    logits = gx.vi.predict(keys[2], found.network, held_out[0], num_samples=100)
    probabilities = gx.predictive.classes_from_logits(logits).probabilities
    return scored(probabilities, held_out) | {"bound": float(np.mean(found.history.elbo[-10:]))}


def scored(probabilities, held_out):
    return {
        "accuracy": float(gx.scores.accuracy(probabilities, held_out[1])),
        "log_probability": float(gx.scores.log_probability(probabilities, held_out[1])),
    }


def laplace(train, held_out, most_steps):
    def flat(network):
        return 0.0

    def normal(network):
        return -0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))

    key, falling = jax.random.key(0), optax.cosine_decay_schedule(3e-3, 6000)
    for name, network in (
        (
            "64-32-10, to the mode for variance 1",
            trained(dense(key), train, min(6000, most_steps), optax.adam(falling), normal),
        ),
        (
            "64-32-10, 6,000 steps of Adam, no prior",
            trained(dense(key), train, min(6000, most_steps), optax.adam(1e-3), flat),
        ),
        (
            "convolutions, 800 steps of AdamW",
            trained(convolutional(key), train, min(800, most_steps), optax.adamw(1e-3), flat),
        ),
    ):
        logits = jax.vmap(network)(held_out[0])
        row = {"network": name, "point": scored(np.asarray(jax.nn.softmax(logits)), held_out), "variances": {}}
        for variance in VARIANCES:
            found = gx.nn.laplace_posterior(network, LIKELIHOOD, train, prior_variance=variance)
            row["variances"][str(variance)] = predicted(found, held_out)
            if variance == 1.0:
                row["maximised"] = predicted(found.maximised(), held_out)
        yield row


def predicted(posterior, held_out):
    return scored(np.asarray(posterior.linearised(held_out[0]).probabilities()), held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--most-steps", type=int, default=6000, help="of the trainings for Laplace")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    train, held_out = digits()
    facts = {"machine": platform.machine(), "versions": installed("jax", "equinox", "optax", "scikit-learn")}
    facts |= {
        "starts": options.starts,
        "variational": [],
        "laplace": list(laplace(train, held_out, options.most_steps)),
    }
    for name in METHODS:
        for length in options.lengths:
            rows = [variational(name, length, start, train, held_out) for start in range(options.starts)]
            means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            facts["variational"].append({"method": name, "steps": length} | means)
            print(name, length, *(f"{value:.3f}" for value in means.values()), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
