"""The thermostat: noise of unknown size does not heat, on flat space and on frames; tuning and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow
from tests.sgmcmc.test_sghmc import F, frame_statistics, frame_truth
from tests.suites.stochastic import bias, chain_means

NUM_CHAINS = 600


def noisy(logdensity, num_data=100):
    """A posterior whose batches of one example add ``noise . x`` to the log density."""
    return gx.Posterior(
        log_prior=logdensity,
        log_likelihood=lambda x, b: jnp.sum(b * x[None], axis=tuple(range(1, b.ndim))) / num_data,
        num_data=num_data,
    )


def check_flat(key, *, sampler=gx.sgnht, deviation=4.0, **settings):
    """The variance of a standard normal distribution under gradient noise that raises that of sghmc by 0.8."""
    target = noisy(lambda x: -0.5 * jnp.sum(x**2))
    algorithm = sampler(target, step_size=0.1, friction=0.1, **settings)
    key_start, key = jax.random.split(key)
    starts = jax.random.normal(key_start, (NUM_CHAINS, 10))
    means = chain_means(
        algorithm,
        starts,
        lambda x: jnp.mean(x**2)[None],
        key,
        num_steps=1500,
        num_discarded=500,
        data=lambda k: deviation * jax.random.normal(k, (1, 10)),
    )
    return float(means.mean()), float(means.std() / NUM_CHAINS**0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("deviation", [slow(0.0), 4.0])
def test_noise_of_unknown_size_does_not_heat(key, deviation):
    found, error = check_flat(key, deviation=deviation)
    assert error < 0.005
    assert abs(found - 1) < 4.5 * error + 0.01


@pytest.mark.thorough
def test_the_same_noise_heats_sghmc(key):
    """The noise of the test above can be seen."""
    found, _ = check_flat(key, sampler=gx.sghmc)
    assert found > 1.5


@pytest.mark.slow
def test_temperature(key):
    found, error = check_flat(key, temperature=0.25)
    assert abs(found - 0.25) < 4.5 * error + 0.0025


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("temperature", "deviation"),
    [(0.25, 4.0), slow(1.0, 4.0), slow(0.25, 0.0)],
)
def test_the_friction_settles_at_what_the_noise_needs(key, temperature, deviation):
    """Catches injected noise of another size, for which the friction would make up without a trace in the draws."""
    target = noisy(lambda x: -0.5 * jnp.sum(x**2))
    algorithm = gx.sgnht(target, step_size=0.1, friction=0.1, temperature=temperature)

    def settled(key):
        def one(carry, i):
            state, total = carry
            key_step, key_data = jax.random.split(jax.random.fold_in(key, i))
            state, _ = algorithm.step(key_step, state, deviation * jax.random.normal(key_data, (1, 200)))
            return (state, total + jnp.where(i >= 500, state.friction, 0.0)), None

        start = (algorithm.init(jnp.zeros(200)), jnp.zeros(()))
        return jax.lax.scan(one, start, jnp.arange(1500))[0][1] / 1000

    found = float(jax.jit(jax.vmap(settled))(jax.random.split(key, 16)).mean())
    expected = -np.log(0.9) + 0.1**2 * deviation**2 / (2 * temperature)
    assert found == pytest.approx(expected, rel=0.03)


@pytest.mark.thorough
@pytest.mark.parametrize("deviation", [0.0, slow(3.0)])
def test_frames(key, deviation):
    """Catches a kinetic energy over the number of entries instead of the dimension."""
    manifold = gx.Stiefel(metric="embedded", flow="geodesic")
    target = noisy(lambda x: jnp.sum(jnp.asarray(F, x.dtype) * x))
    algorithm = gx.sgnht(target, manifold=manifold, step_size=0.1, friction=0.1)
    key_start, key = jax.random.split(key)
    starts = jax.vmap(lambda k: manifold.random_point(k, jnp.zeros((3, 2))))(jax.random.split(key_start, 1500))
    means = chain_means(
        algorithm,
        starts,
        frame_statistics,
        key,
        num_steps=500,
        num_discarded=300,
        data=lambda k: deviation * jax.random.normal(k, (1, 3, 2)),
    )
    found = bias(means, frame_truth().mean, frame_truth().spread)
    assert np.max(found.error) < 0.02
    assert np.max(np.abs(found.bias)) < 0.05 + 3 * np.max(found.error), found.bias


@pytest.mark.thorough
def test_a_step_size_is_found(key):
    """With batches whose noise would heat sghmc at the same step."""
    key_data, key = jax.random.split(key)
    data = jax.random.normal(key_data, (400,))
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * t**2, log_likelihood=lambda t, x: -0.5 * (x - t) ** 2, num_data=400
    )
    run = gx.sample(
        key,
        gx.sgnht(posterior),
        jnp.zeros(()),
        num_warmup=500,
        num_samples=4000,
        num_chains=8,
        batches=gx.data.batches(data, batch_size=20),
        progress=False,
    )
    draws = np.asarray(run["posterior"]["position"])
    assert 0.9 < draws.std() * 401**0.5 < 1.1
    assert 0.05 < float(run["sample_stats"]["step_size"][0, -1]) * 401**0.5 < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"friction": 1.0}, "friction"),
        ({"friction": 0.0}, "friction"),
        ({"rate": -1.0}, "rate"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_arguments_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        gx.sgnht(lambda x: -jnp.sum(x**2), **settings)
