"""Chains that hardly move: the measures beside known posteriors, and what `check` says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.diagnostics.movement import SLOW, STUCK, share_of_quarters
from geodax.run.draws import to_datatree

CURVATURES = jnp.array([1.0, 4.0, 25.0, 100.0])
CENTER = jnp.array([5.0, -3.0, 0.0, 2.0])


def logdensity(x):
    return -0.5 * jnp.sum(CURVATURES * (x - CENTER) ** 2)


def run(key, step_size, thinning, *, num_runs=1, num_samples=200, **options):
    algorithm = gx.sgrld(logdensity, step_size=step_size, **options)
    counts = {"num_samples": num_samples, "num_chains": 4 * num_runs, "progress": False}
    return gx.sample(jax.random.clone(key), algorithm, CENTER, thinning=thinning, **counts)


def titles(draws, **options):
    found = gx.diagnostics.check(draws["posterior"], draws["sample_stats"], **options)
    return {finding.title: finding.severity for finding in found}


def test_the_temperature_is_the_share_of_the_posterior_variance(key):
    """Catches a wrong sign, a wrong divisor, and a centre other than the chain's mean."""
    scales = np.array([0.1, 0.5, 1.0, 2.0])[:, None, None]  # of the deviation, by chain
    z = np.random.default_rng(2).standard_normal((4, 20, 4))
    x = np.asarray(CENTER) + 7.0 + scales * z / np.sqrt(np.asarray(CURVATURES))  # far from the mode
    found = gx.diagnostics.configurational_temperature(to_datatree({"posterior": {"position": x}}), logdensity, CENTER)
    np.testing.assert_allclose(found, (np.asarray(CURVATURES) * x.var(axis=1, ddof=1)).mean(axis=-1), rtol=1e-4)


@pytest.mark.thorough
def test_the_temperature_of_a_skewed_density_is_one(key):
    """Catches an identity that holds for normal densities alone."""
    density = lambda x: jnp.sum(x - jnp.exp(x))  # noqa: E731 - a log-gamma density
    run = gx.sample(key, gx.nuts(density), jnp.zeros(20), num_samples=400, num_warmup=300, num_chains=2, progress=False)
    found = gx.diagnostics.configurational_temperature(run, density, jnp.zeros(20), max_num_draws=400)
    np.testing.assert_allclose(found, 1.0, atol=0.1)


@pytest.mark.thorough
def test_arrays_on_manifolds_are_left_out(key):
    """Catches an identity applied where it does not hold, and a dimension that counts these arrays."""
    w, x = (np.random.default_rng(i).standard_normal((2, 500, *shape)) for i, shape in enumerate([(3, 2), (4,)]))
    w = np.linalg.qr(w)[0]
    draws = to_datatree({"posterior": {"w": w, "x": x}})
    density = lambda p: -0.5 * jnp.sum(p["x"] ** 2) - 50.0 * jnp.sum((p["w"] - jnp.eye(3, 2)) ** 2)  # noqa: E731
    like, space = {"w": jnp.eye(3, 2), "x": jnp.zeros(4)}, gx.Product({"w": gx.Stiefel()})
    found = gx.diagnostics.configurational_temperature(draws, density, like, manifold=space, max_num_draws=500)
    np.testing.assert_allclose(found, 1.0, atol=0.15)
    with pytest.raises(ValueError, match="no Euclidean array"):
        gx.diagnostics.configurational_temperature(draws, density, {"w": like["w"]}, manifold=space)


@pytest.mark.parametrize(("step_size", "thinning"), [(1e-6, 20), (5e-7, 40)])
def test_chains_that_stay_are_named_at_any_thinning(key, step_size, thinning):
    """Catches a check that half the step and twice the thinning pass."""
    draws = run(key, step_size, thinning)
    temperature = gx.diagnostics.configurational_temperature(draws, logdensity, CENTER)
    assert np.all(temperature < 0.1)
    assert titles(draws, configurational_temperature=temperature)[STUCK] == "severe"
    assert titles(draws)[SLOW] == "warning"


@pytest.mark.thorough
def test_a_stuck_network_in_each_of_two_modes_is_told_from_one_that_explores_its_mode(key):
    """Catches a measure that, as R-hat does, cannot tell the two."""
    modes = jnp.array([-50.0, 50.0])
    density = lambda x: jax.nn.logsumexp(-0.5 * jnp.sum((x[None] - modes[:, None]) ** 2, axis=1))  # noqa: E731
    starts = jnp.repeat(modes, 2)[:, None] * jnp.ones((4, 6))
    for step_size, expected in ((0.1, 1.0), (1e-5, 0.0)):
        sampler = gx.sgrld(density, step_size=step_size)
        draws = gx.sample(
            jax.random.clone(key), sampler, starts, stacked=True, num_samples=300, thinning=30, progress=False
        )
        temperature = gx.diagnostics.configurational_temperature(draws, density, starts[0], max_num_draws=300)
        np.testing.assert_allclose(temperature, expected, atol=0.2)
        found = titles(draws, configurational_temperature=temperature)
        assert "Chains that disagree" in found
        assert (STUCK in found, SLOW in found) == (expected == 0.0, False)


@pytest.mark.thorough
def test_no_well_mixed_run_is_flagged(key):
    """Catches thresholds that chance exceeds: 40 runs, with and without the density."""
    draws = run(key, 2e-3, 1000, num_runs=40, num_samples=60)
    for first in range(0, 160, 4):
        own = draws.isel(chain=slice(first, first + 4))
        temperature = gx.diagnostics.configurational_temperature(own, logdensity, CENTER)
        assert not {STUCK, SLOW} & {*titles(own, configurational_temperature=temperature), *titles(own)}


def test_hot_chains_are_named(key):
    """Catches noise of batches that nobody sees."""
    noisy = lambda key, gradient: gradient + 40.0 * jax.random.normal(key, gradient.shape)  # noqa: E731
    draws = run(key, 5e-3, 100, perturb_gradient=noisy)
    temperature = gx.diagnostics.configurational_temperature(draws, logdensity, CENTER)
    assert titles(draws, configurational_temperature=temperature)["Chains that are too hot"] == "warning"


@pytest.mark.thorough
def test_temperatures_are_relative_to_that_of_the_sampler(key):
    """Catches a cold posterior that is called stuck, and a chain without noise that is called anything."""
    draws = run(key, 2e-3, 500, temperature=0.05)
    temperature = gx.diagnostics.configurational_temperature(draws, logdensity, CENTER)
    np.testing.assert_allclose(temperature, 0.05, rtol=0.4)
    assert not {STUCK, SLOW} & {*titles(draws, configurational_temperature=temperature)}
    assert not {STUCK, SLOW} & {*titles(run(key, 2e-3, 10, temperature=0.0))}


def test_the_share_of_quarters_does_not_depend_on_units():
    """Catches a sum over numbers of different scales."""
    generator = np.random.default_rng(1)
    walk, noise = np.cumsum(generator.standard_normal((4, 400, 50)), axis=1), generator.standard_normal((4, 400, 50))
    assert share_of_quarters({"x": noise}) == pytest.approx(1.0, abs=0.02)
    assert 0.25 < share_of_quarters({"x": walk}) < 0.35
    expected = (share_of_quarters({"x": noise}) + share_of_quarters({"x": walk})) / 2
    assert share_of_quarters({"a": 1e6 * walk, "b": noise}) == pytest.approx(expected)
    assert np.isnan(share_of_quarters({"x": np.ones((2, 40, 3))}))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((1.0, CENTER), {}, TypeError, "posterior.full"),
        ((logdensity, CENTER), {"max_num_draws": 1}, ValueError, "max_num_draws must be at least 2"),
        ((logdensity, jnp.zeros(3)), {}, ValueError, "the position has an array"),
    ],
)
def test_what_it_refuses(arguments, options, error, message):
    """Catches arguments that fail inside a trace."""
    draws = to_datatree({"posterior": {"position": np.zeros((2, 10, 4))}})
    with pytest.raises(error, match=message):
        gx.diagnostics.configurational_temperature(draws, *arguments, **options)
