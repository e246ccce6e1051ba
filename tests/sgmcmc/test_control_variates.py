"""Control variates leave the full density and the expected gradient as they are, and take the noise out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.sgmcmc.control_variates import control_variates
from geodax.sgmcmc.gradients import as_target
from geodax.sgmcmc.precision import in_single_precision

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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_the_noise_is_smaller_near_the_centre(center, key):
    controlled = control_variates(posterior(), center, DATA)
    batches = gx.data.batches(DATA, batch_size=10)

    def spread(p, theta):
        gradients = jax.vmap(lambda i: jax.grad(p.logdensity)(theta, batches.draw(key, i)))(jnp.arange(500))
        return float(jnp.max(gradients.std(0)))

    assert spread(controlled, center) < 1e-10
    assert spread(controlled, center + 0.05) < 0.1 * spread(posterior(), center + 0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_samplers_see_the_controlled_density(center, num_micro_batches):
    """They take the centre apart from the position; catches a slope that is missing, or scaled by the batch."""
    plain = gx.Posterior(
        log_prior=posterior().log_prior,
        log_likelihood=posterior().log_likelihood,
        num_data=200,
        num_micro_batches=num_micro_batches,
    )
    controlled = control_variates(plain, center, DATA)
    assert controlled.num_micro_batches == num_micro_batches
    batch = jax.tree.map(lambda leaf: leaf[:20], DATA)
    ends = center + jnp.array([0.3, -0.2, 0.1]), center - 0.2
    target = as_target("test", controlled, None)
    for end, value, gradient in zip(ends, *target.gradients(batch, *ends), strict=True):
        expected = jax.value_and_grad(controlled.logdensity)(end, batch)
        np.testing.assert_allclose(value, expected[0], rtol=1e-12)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-10)
    changes = controlled.log_likelihood(ends[0], batch) - controlled.log_likelihood(ends[1], batch)
    np.testing.assert_allclose(target.batch_noise(*ends, batch), changes.var(ddof=1) * 200**2 / 20, rtol=1e-10)
    one = jax.tree.map(lambda leaf: leaf[:1], DATA)  # the square in place of the variance, so that the slope counts
    (change,) = controlled.log_likelihood(ends[0], one) - controlled.log_likelihood(ends[1], one)
    np.testing.assert_allclose(target.batch_noise(*ends, one), change**2 * 200**2, rtol=1e-10)


@pytest.mark.thorough
def test_half_precision(center):
    """The sampler keeps the position in single precision; catches a centre in another dtype."""
    half, data = center.astype(jnp.bfloat16), jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), DATA)
    controlled = control_variates(posterior(), half, data)
    position, dtypes = in_single_precision(half + 0.25)
    batch = jax.tree.map(lambda leaf: leaf[:20], data)
    (value,), (gradient,) = as_target("test", controlled, None).taking(dtypes).gradients(batch, position)
    assert gradient.dtype == value.dtype == jnp.float32
    single = jax.tree.map(lambda leaf: leaf.astype(float), (half, data, batch))
    expected = jax.grad(control_variates(posterior(), *single[:2]).logdensity)(position.astype(float), single[2])
    np.testing.assert_allclose(gradient, expected, rtol=0.1)


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
