"""Control variates leave the full density and the expected gradient as they are, and take the noise out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.sgmcmc.control_variates import control_variates

RNG = np.random.default_rng(0)
DATA = {"x": jnp.asarray(RNG.normal(size=(200, 3))), "y": jnp.asarray(RNG.integers(0, 2, 200), float)}


def posterior():
    def log_likelihood(theta, batch):
        scores = batch["x"] @ theta
        return batch["y"] * scores - jnp.logaddexp(0.0, scores)

    return gx.Posterior(log_prior=lambda t: -0.5 * jnp.sum(t**2), log_likelihood=log_likelihood, num_data=200)


@pytest.fixture
def center():
    theta = jnp.zeros(3)
    for _ in range(20):
        theta = theta + 0.01 * jax.grad(posterior().full(DATA))(theta)
    return theta


def test_the_full_density_is_the_same(center):
    controlled = control_variates(posterior(), center, DATA, chunk_size=64)
    theta = center + jnp.array([0.3, -0.2, 0.1])
    for function in (lambda p: p.full(DATA)(theta), lambda p: jax.grad(p.full(DATA))(theta)):
        np.testing.assert_allclose(function(controlled), function(posterior()), rtol=1e-10)


def test_data_may_hold_a_scalar(center):
    """As they may for the posterior itself."""
    data = DATA | {"temper": jnp.asarray(0.5), "number": 2.0}

    def log_likelihood(theta, batch):
        return batch["number"] * batch["temper"] * posterior().log_likelihood(theta, batch)

    plain = gx.Posterior(log_prior=posterior().log_prior, log_likelihood=log_likelihood, num_data=200)
    theta = center + jnp.array([0.3, -0.2, 0.1])
    controlled = control_variates(plain, center, data, chunk_size=64)
    np.testing.assert_allclose(controlled.full(data)(theta), posterior().full(DATA)(theta), rtol=1e-10)


def test_the_noise_is_smaller_near_the_centre(center, key):
    controlled = control_variates(posterior(), center, DATA)
    batches = gx.data.batches(DATA, batch_size=10)

    def spread(p, theta):
        gradients = jax.vmap(lambda i: jax.grad(p.logdensity)(theta, batches.draw(key, i)))(jnp.arange(500))
        return float(jnp.max(gradients.std(0)))

    assert spread(controlled, center) < 1e-10
    assert spread(controlled, center + 0.05) < 0.1 * spread(posterior(), center + 0.05)


def test_part_of_the_data_is_refused(center):
    with pytest.raises(ValueError, match=r"num_data = 200 .*found \[50\]"):
        control_variates(posterior(), center, jax.tree.map(lambda a: a[:50], DATA))


@pytest.mark.parametrize(
    "make", [lambda c: jnp.zeros(3, jnp.int32), lambda c: np.zeros(3, int), lambda c: c.astype(complex)]
)
def test_a_centre_without_gradients_is_named(center, make):
    """Catches an error from within JAX, or a centre to which no position can be compared."""
    with pytest.raises(TypeError, match=r"control_variates: the centre must hold .* as weights\. Convert it"):
        control_variates(posterior(), {"weights": make(center)}, DATA)


@pytest.mark.parametrize(("size", "error"), [(0, ValueError), (-5, ValueError), (True, TypeError)])
def test_chunk_sizes_are_positive_whole_numbers(center, size, error):
    with pytest.raises(error, match="control_variates: chunk_size must be"):
        control_variates(posterior(), center, DATA, chunk_size=size)
