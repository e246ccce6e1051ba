"""Runs that begin with the step size, mass matrix and trajectory length of an earlier run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

SCALES = np.array([0.01, 1.0, 100.0])


def density_around(mean: float):
    """A normal log density with scales four orders of magnitude apart, beside a frame."""

    def logdensity(position):
        y = (position["x"] - mean * SCALES) / SCALES
        return -0.5 * jnp.sum(y**2) - y[0] * y[1] * 0.5 + 3.0 * jnp.sum(position["frame"][:2, :2] * jnp.eye(2))

    return logdensity


MANIFOLD = gx.Product({"frame": gx.Stiefel()})


def start(key):
    key_frame, key_x = jax.random.split(key)
    x = jax.random.normal(key_x, (3,)) * jnp.asarray(SCALES)
    return {"frame": gx.Stiefel().random_point(key_frame, jnp.zeros((4, 2))), "x": x}


SAMPLERS = {
    "nuts": (gx.nuts, 4),
    "hmc": (gx.hmc, 32),
    "adjusted_mclmc": (gx.adjusted_mclmc, 32),
    "mclmc": (gx.mclmc, 32),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAMPLERS)
def test_new_data_without_warm_up(name):
    """Another mean and no warm-up: the right moments, with step size, scales and length of the earlier run."""
    sampler, num_chains = SAMPLERS[name]
    options = {"num_chains": num_chains, "progress": False}
    earlier = gx.sample(
        jax.random.key(1),
        sampler(density_around(0.0), manifold=MANIFOLD),
        start,
        num_samples=5,
        num_warmup=400,
        **options,
    )
    num_samples = 6400 // num_chains
    later = gx.sample(
        jax.random.key(2),
        sampler(density_around(2.0), manifold=MANIFOLD),
        lambda key: {"frame": start(key)["frame"], "x": jnp.asarray(2.0 * SCALES)},
        num_samples=num_samples,
        warm_start=earlier,
        **options,
    )
    for variable, values in earlier["adaptation"].data_vars.items():
        if variable in (
            "step_size",
            "scale.x",
            "scale.frame",
            "correlation.vectors",
            "correlation.roots",
            "length.time",
            "length",
        ):
            np.testing.assert_array_equal(later["adaptation"][variable], values)
    assert set(earlier["adaptation"].data_vars) >= {"step_size", "scale.x", "scale.frame", "correlation.roots"}
    np.testing.assert_array_equal(
        later["sample_stats"]["step_size"],
        np.repeat(earlier["adaptation"]["step_size"].values[:, None], num_samples, 1),
    )
    x = later["posterior"]["x"].values / SCALES
    np.testing.assert_allclose(x.mean(axis=(0, 1)), 2.0, atol=0.2)
    np.testing.assert_allclose(x.std(axis=(0, 1)), [1 / np.sqrt(0.75)] * 2 + [1.0], atol=0.2)


@pytest.mark.thorough
def test_few_iterations_of_warm_up_begin_there():
    """Catches tuned values that the warm-up's first iteration throws away."""
    options = {"num_chains": 4, "num_samples": 50, "progress": False}
    earlier = gx.sample(
        jax.random.key(1), gx.nuts(density_around(0.0), manifold=MANIFOLD), start, num_warmup=400, **options
    )
    later = gx.sample(
        jax.random.key(1),
        gx.nuts(density_around(0.0), manifold=MANIFOLD),
        start,
        num_warmup=5,
        warm_start=earlier,
        **options,
    )
    np.testing.assert_array_equal(later["adaptation"]["scale.x"], earlier["adaptation"]["scale.x"])
    cold = gx.sample(jax.random.key(1), gx.nuts(density_around(0.0), manifold=MANIFOLD), start, num_warmup=5, **options)
    expected, found, without = (tree["adaptation"]["step_size"].values for tree in (earlier, later, cold))
    assert (np.abs(np.log(found / expected)) < np.log(4.0)).all()
    assert (without < 0.2 * expected).all()


@pytest.mark.thorough
def test_other_numbers_of_chains():
    earlier = gx.sample(
        jax.random.key(1),
        gx.nuts(density_around(0.0), manifold=MANIFOLD),
        start,
        num_samples=5,
        num_warmup=100,
        num_chains=2,
        progress=False,
    )
    later = gx.sample(
        jax.random.key(1),
        gx.nuts(density_around(0.0), manifold=MANIFOLD),
        start,
        num_samples=5,
        num_chains=5,
        warm_start=earlier,
        progress=False,
    )
    found, expected = later["adaptation"]["step_size"].values, earlier["adaptation"]["step_size"].values
    np.testing.assert_array_equal(found, expected[[0, 1, 0, 1, 0]])


@pytest.mark.thorough
def test_what_does_not_fit_is_refused():
    options = {"num_samples": 5, "num_warmup": 20, "num_chains": 2, "progress": False}

    def position(key):
        return jax.random.normal(key, (3,))

    nuts = gx.nuts(lambda x: -0.5 * jnp.sum(x**2))
    earlier = gx.sample(jax.random.key(1), nuts, position, **options)
    with pytest.raises(TypeError, match="result of an earlier"):
        gx.sample(jax.random.key(1), nuts, position, warm_start=earlier["posterior"], **options)
    with pytest.raises(ValueError, match=r"scale of the warm_start has the shape \(3,\)"):
        gx.sample(jax.random.key(1), nuts, lambda key: jax.random.normal(key, (4,)), warm_start=earlier, **options)
    with pytest.raises(ValueError, match=r"no 'length\.time'"):
        gx.sample(jax.random.key(1), gx.hmc(lambda x: -0.5 * jnp.sum(x**2)), position, warm_start=earlier, **options)
    fixed = gx.nuts(lambda x: -0.5 * jnp.sum(x**2), step_size=0.1)
    with pytest.raises(TypeError, match="nothing to tune"):
        gx.sample(jax.random.key(1), fixed, position, warm_start=earlier, **options)
    stochastic = gx.sghmc(lambda x: -0.5 * jnp.sum(x**2))
    with pytest.raises(ValueError, match="500 to 1,000 is usual; or construct"):  # and no warm_start, which it refuses
        gx.sample(jax.random.key(1), stochastic, position, num_samples=5, num_warmup=0, num_chains=2, progress=False)
