"""Checks of the stochastic-gradient samplers in a form that planted faults can be run against."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.suites.stochastic import bias, chain_means

DATA = np.random.default_rng(5).normal(1.5, 2.0, size=(40, 2))


def check_conjugate_mean(key):
    """sgrld with small steps on the mean of a normal law: width and centre of the posterior, with batches of a quarter."""
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=len(DATA),
    )
    batches = gx.data.batches(DATA, batch_size=20)
    precision = 1 + len(DATA) / 4
    step_size = 0.01 / precision
    # gradient noise of variance C adds h^2 C to the noise 2 h of a step
    noise = len(DATA) ** 2 / 20 * DATA.var(0) / 16
    variance = (2 * step_size + step_size**2 * noise) / (1 - (1 - step_size * precision) ** 2)
    truth = np.concatenate([DATA.sum(0) / 4 / precision, variance])
    center = jnp.asarray(truth[:2])
    start = center[None] + jax.random.normal(jax.random.fold_in(key, 1), (1500, 2)) * np.sqrt(variance)[None]
    means = chain_means(
        gx.sgrld(posterior, step_size=step_size),
        start,
        lambda t: jnp.concatenate([t, (t - center) ** 2]),
        key,
        num_steps=800,
        num_discarded=300,
        data=lambda k: batches.draw(k, jnp.int32(0)),
    )
    found = bias(means, truth, np.concatenate([np.sqrt(variance), np.sqrt(2) * variance]))
    assert np.all(found.error < 0.02)
    assert np.all(np.abs(found.bias) < 4.5 * found.error + 0.01), found


def check_monge(key):
    """The variance of a standard normal law in Monge's metric with its divergence."""
    metric = gx.metrics.Monge(alpha2=1.0, decay=0.0)
    algorithm = gx.sgrld(lambda x: -0.5 * jnp.sum(x**2), metric=metric, step_size=0.01)
    start = jax.random.normal(jax.random.fold_in(key, 1), (2000, 1))
    means = chain_means(algorithm, start, lambda x: x**2, key, num_steps=2000, num_discarded=500)
    assert abs(means.mean() - 1.0) < 0.05, means.mean()


def check_sphere(key):
    """The von Mises-Fisher law on the sphere in 3 dimensions: E x_1 = coth k - 1 / k."""
    k, manifold = 2.0, gx.Sphere()
    algorithm = gx.sghmc(lambda x: k * x[0], manifold=manifold, step_size=0.1, friction=0.1)
    starts = jax.vmap(lambda key: manifold.random_point(key, jnp.zeros(3)))(
        jax.random.split(jax.random.fold_in(key, 1), 1500)
    )
    means = chain_means(algorithm, starts, lambda x: x, key, num_steps=500, num_discarded=200)
    mean = 1 / np.tanh(k) - 1 / k
    spread = np.sqrt([1 - 2 * mean / k - mean**2, mean / k, mean / k])
    found = bias(means, [mean, 0.0, 0.0], spread)
    assert np.max(found.error) < 0.02
    assert np.max(np.abs(found.bias)) < 0.05, found


@pytest.mark.thorough
def test_sphere(key):
    check_sphere(key)


@pytest.mark.thorough
def test_conjugate_mean(key):
    check_conjugate_mean(key)


@pytest.mark.thorough
def test_monge(key):
    check_monge(key)
