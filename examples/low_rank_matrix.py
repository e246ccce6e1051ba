"""A low-rank matrix with missing entries: two Stiefel factors and ordered singular values.

Y = U diag(s) V^T + noise, U (20 x 2) and V (12 x 2) with orthonormal columns, s_1 > s_2 > 0. The signs of a
pair of columns are not identified: the diagnostics look at s and at the matrix itself, which do not see them.

    python examples/low_rank_matrix.py [--num-samples 1000]
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.diagnostics.findings import check, summarize

jax.config.update("jax_enable_x64", True)
NOISE = 0.3


def natural(theta):
    """Singular values as sums of positive gaps, the smallest first, and the matrix that they make."""
    s = jnp.cumsum(jnp.exp(theta["log_gaps"]))[::-1]
    return {"s": s, "matrix": (theta["U"] * s) @ theta["V"].T}


def main(num_samples):
    keys = jax.random.split(jax.random.key(0), 5)
    space = gx.Product({"U": gx.Stiefel(), "V": gx.Stiefel()})  # "log_gaps" is not named, so it is Euclidean
    like = {"U": jnp.zeros((20, 2)), "V": jnp.zeros((12, 2)), "log_gaps": jnp.zeros(2)}
    truth = natural(space.random_point(keys[0], like) | {"log_gaps": jnp.log(jnp.array([4.0, 4.0]))})
    Y = truth["matrix"] + NOISE * jax.random.normal(keys[1], (20, 12))
    is_observed = jax.random.bernoulli(keys[2], 0.6, Y.shape)

    def log_density(theta):
        now = natural(theta)
        errors = jnp.where(is_observed, Y - now["matrix"], 0.0) / NOISE
        log_prior = -0.5 * jnp.sum((now["s"] / 10.0) ** 2)  # half-normal s
        return log_prior + jnp.sum(theta["log_gaps"]) - 0.5 * jnp.sum(errors**2)  # Jacobian: d s / d log_gaps

    sampler = gx.nuts(log_density, manifold=space, target_acceptance_rate=0.9)
    start = partial(space.random_point, like=like)
    run = gx.sample(keys[3], sampler, start, num_samples=num_samples, num_warmup=1000, keep=natural)
    posterior = {name: variable.values for name, variable in run["posterior"].items()}
    stats = {name: variable.values for name, variable in run["sample_stats"].items()}
    low, high = np.quantile(posterior["matrix"], [0.05, 0.95], axis=(0, 1))
    is_covered = (low <= truth["matrix"]) & (truth["matrix"] <= high)
    print(summarize({"s": posterior["s"]}, stats))
    print(f"90 % intervals cover {100 * is_covered[~is_observed].mean():.0f} % of the missing entries")
    for finding in check(posterior, stats):
        print(finding)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-samples", type=int, default=1000)
    main(parser.parse_args().num_samples)
