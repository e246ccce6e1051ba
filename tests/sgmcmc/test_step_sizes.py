"""The step size that warm-up finds where none is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

CURVATURES = jnp.array([25.0, 4.0, 1.0])


def gaussian(x):
    return -0.5 * jnp.sum(CURVATURES * x**2)


@pytest.mark.parametrize(("sampler", "truth"), [(gx.sgrld, 0.2 / 25), (gx.sghmc, 0.4 / 5)])
def test_it_follows_the_largest_curvature(key, sampler, truth):
    draws = gx.sample(key, sampler(gaussian), jnp.ones(3), num_samples=5, num_warmup=60, num_chains=2, progress=False)
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, truth, rtol=1e-3)


def test_it_is_in_units_of_the_metric_and_sees_the_whole_data(key):
    """A likelihood of 30 examples in batches of 10, with curvature 1 each."""
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.5 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=30,
    )
    draws = gx.sample(
        key,
        gx.sgrld(posterior),
        jnp.zeros(2),
        batches=gx.data.batches(jax.random.normal(jax.random.key(1), (30, 2)), batch_size=10),
        num_samples=3,
        num_warmup=30,
        num_chains=2,
        progress=False,
    )
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, 0.2 / 31, rtol=1e-3)


@pytest.mark.parametrize("local", [False, True], ids=["shared", "local"])
@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_poles_of_the_horseshoe_do_not_stop_a_chain(key, sampler, local):
    """Second derivatives are infinite at zero: a step as small as they ask for would never leave it again."""
    prior = gx.nn.Horseshoe(1.0, local=local)

    def steps(log_prior, key):
        draws = gx.sample(
            key,
            sampler(lambda x: log_prior(x) - 0.5 * jnp.sum(x**2)),
            jnp.full(20, 0.3),
            num_samples=3,
            num_warmup=400,
            num_chains=4,
            progress=False,
        )
        return draws["sample_stats"]["step_size"].values[:, -1]

    keys = jax.random.split(key)
    smooth, found = steps(gx.nn.Gaussian(1.0).log_density, keys[0]), steps(prior.log_density, keys[1])
    assert np.all(found > 0.2 * smooth)
    assert np.all(found < 5 * smooth)


def test_densities_that_are_not_finite_everywhere(key):
    """A normal law within a box: the differences are taken nearer where they do not exist."""

    def logdensity(x):
        return jnp.where(jnp.all(jnp.abs(x) < 0.004), gaussian(x / 0.001), jnp.nan)

    draws = gx.sample(key, gx.sgrld(logdensity), jnp.zeros(3), num_samples=1, num_warmup=11, progress=False)
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, 0.2 / 25e6, rtol=0.05)


def test_densities_that_are_curved_at_kinks_only(key):
    """The second derivatives of a Laplace law are zero almost everywhere."""
    algorithm = gx.sgrld(gx.nn.Laplace(1.0).log_density)
    draws = gx.sample(key, algorithm, jnp.ones(3), num_samples=1, num_warmup=300, num_chains=4, progress=False)
    found = draws["sample_stats"]["step_size"].values
    assert np.all((found > 0.05) & (found < 0.8))


def test_without_warmup_it_is_asked_for(key):
    with pytest.raises(ValueError, match="construct the sampler with a step_size"):
        gx.sample(key, gx.sgrld(gaussian), jnp.zeros(3), num_samples=3, progress=False)
