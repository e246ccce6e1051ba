"""Sample a matrix Langevin distribution and compare it with the truth.

The density of a 5 x 2 matrix X with orthonormal columns is proportional to exp(tr(F^T X)), F = M diag(3, 2),
so the mean direction (the polar factor of E X) is M. The truth beside it comes from independent draws of the
uniform distribution, weighted by the density: no Markov chain is involved.

    python examples/matrix_langevin.py [--num-samples 5000]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.diagnostics.alignment import mean_orthonormal
from geodax.diagnostics.findings import ess, rhat

jax.config.update("jax_enable_x64", True)


def weighted_truth(key, space, F, num_draws):
    """Mean of tr(F^T X) and its standard error, by importance sampling from the uniform distribution."""
    draw = jax.jit(jax.vmap(lambda k: jnp.sum(F * space.random_point(k, F))))
    values = np.asarray(draw(jax.random.split(key, num_draws)))
    weights = np.exp(values - values.max())
    mean = np.sum(weights * values) / np.sum(weights)
    return mean, np.sqrt(np.sum((weights * (values - mean)) ** 2)) / np.sum(weights)


def main(num_samples):
    key_mean, key_run, key_truth = jax.random.split(jax.random.key(0), 3)
    space = gx.Stiefel()
    M = space.random_point(key_mean, jnp.zeros((5, 2)))
    F = M * jnp.array([3.0, 2.0])

    sampler = gx.nuts(lambda x: jnp.sum(F * x), manifold=space)
    run = gx.sample(key_run, sampler, lambda key: space.random_point(key, F), num_samples=num_samples, num_warmup=500)
    x = run["posterior"]["position"].values
    values = np.sum(np.asarray(F) * x, axis=(2, 3))
    error = values.std() / np.sqrt(ess(values))
    truth, truth_error = weighted_truth(key_truth, space, F, 40 * num_samples)
    print(f"E tr(F^T X): NUTS {values.mean():.4f} +- {error:.4f}, truth {truth:.4f} +- {truth_error:.4f}")
    print(f"difference in standard errors: {(values.mean() - truth) / np.hypot(error, truth_error):.1f}")
    direction = mean_orthonormal(x, up_to="nothing")
    print(f"mean direction: largest error of an entry {np.abs(direction - np.asarray(M)).max():.4f}")
    print(f"largest R-hat of an entry: {rhat(x).max():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-samples", type=int, default=5000)
    main(parser.parse_args().num_samples)
