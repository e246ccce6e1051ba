"""What batches in each order leave in the variance, against its exact value, in every order of a step."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import geodax as gx
from benchmarks._batch_variance import variance
from geodax.sgmcmc.underdamped import free_motion
from tests.marks import slow
from tests.suites.stochastic import chain_means

NUM_CHAINS, NUM_DATA, NUM_BATCHES = 800, 40, 4


@pytest.mark.parametrize("friction", [1e-6, 0.05, 0.6, 0.7, 0.99])
def test_free_motion_is_the_exact_one(friction):
    """Against the matrix exponential and van Loan's integral of the noise, over the time 1."""
    gamma = -math.log1p(-friction)
    drift = np.array([[0.0, 1.0], [0.0, -gamma]])
    both = expm(np.block([[-drift, np.diag([0.0, 2.0 * gamma])], [np.zeros((2, 2)), drift.T]]))
    found = free_motion(friction)
    np.testing.assert_allclose([found.drift, found.kept], both[2:, 2:].T[:, 1], rtol=1e-12)
    factor = np.array([[found.shared[1], found.own], [found.shared[0], 0.0]])
    np.testing.assert_allclose(factor @ factor.T, both[2:, 2:].T @ both[:2, 2:], rtol=1e-6, atol=1e-14)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ordering", "order", "step"),
    [
        ("ubu", "symmetric", 0.3),
        ("baoab", "epochs", 0.3),
        slow("ubu", "independent", 0.2),
        slow("baoab", "symmetric", 0.3),
        slow("ubu", "epochs", 0.3),
        slow("paper", "symmetric", 0.3),
        slow("paper", "epochs", 0.3),
    ],
)
def test_variance_is_the_exact_one(key, ordering, order, step):
    """Catches passes that are not reversed, batches that repeat, and a wrong coefficient of the motion."""
    data = np.random.default_rng(0).standard_normal(NUM_DATA)
    data = jnp.asarray((data - data.mean()) / data.std())
    posterior = gx.Posterior(
        log_prior=lambda t: jnp.zeros(()), log_likelihood=lambda t, x: -0.5 * (x - t) ** 2, num_data=NUM_DATA
    )
    algorithm = gx.sghmc(posterior, step_size=step / NUM_DATA**0.5, friction=0.2, ordering=ordering)
    batches = gx.data.batches(data, batch_size=NUM_DATA // NUM_BATCHES, order=order)

    def mean_square(key):
        key_batch, key_step, key_start = jax.random.split(key, 3)

        def one(carry, i):
            state, total = carry
            state, _ = algorithm.step(jax.random.fold_in(key_step, i), state, batches.draw(key_batch, i))
            return (state, total + jnp.where(i >= 200, state.position**2, 0.0)), None

        start = jax.random.normal(key_start) / NUM_DATA**0.5
        return NUM_DATA * jax.lax.scan(one, (algorithm.init(start), 0.0), jnp.arange(1000))[0][1] / 800

    found = np.asarray(jax.jit(jax.vmap(mean_square))(jax.random.split(key, NUM_CHAINS)))
    noise = NUM_BATCHES * (1 - 1 / NUM_BATCHES) * NUM_DATA / (NUM_DATA - 1)
    truth = variance(ordering, order, step, 0.2, NUM_BATCHES, noise)
    error = found.std() / NUM_CHAINS**0.5
    assert error < 0.01 * truth
    assert abs(found.mean() - truth) < 4.5 * error
    if order == "independent":
        assert truth > 1.1


@pytest.mark.thorough
def test_a_metric_is_the_mass(key):
    """A constant diagonal metric keeps the distribution of a normal target with scales of 1 and 30."""
    scales = jnp.array([1.0, 30.0])
    metric = gx.metrics.Frozen(gx.metrics.RMSProp(), after=300)
    algorithm = gx.sghmc(
        lambda x: -0.5 * jnp.sum((x / scales) ** 2), step_size=0.1, friction=0.2, ordering="ubu", metric=metric
    )
    key_start, key = jax.random.split(key)
    starts = jax.random.normal(key_start, (400, 2)) * scales[None]
    means = chain_means(algorithm, starts, lambda x: (x / scales) ** 2, key, num_steps=2000, num_discarded=400)
    error = means.std(axis=0) / len(means) ** 0.5
    assert np.all(np.abs(means.mean(axis=0) - 1) < 4.5 * error + 0.02)


def test_ubu_is_for_euclidean_positions_without_deduction():
    with pytest.raises(ValueError, match="baoab"):
        gx.sghmc(lambda x: jnp.sum(x), ordering="ubu", gradient_noise=0.1)
    algorithm = gx.sghmc(lambda x: jnp.sum(x), manifold=gx.Stiefel(), ordering="ubu", step_size=0.1)
    with pytest.raises(ValueError, match="Euclidean positions"):
        algorithm.init(jnp.eye(3, 2))
