"""Likelihoods of targets that are no arrays yet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx


def test_targets_may_be_a_list():
    likelihood = gx.nn.GaussianLikelihood(0.5, apply=lambda means, x: means)
    means, targets = jnp.asarray([0.0, 1.0, 3.0], jnp.float32), [0.5, 1.0, 2.0]
    expected = likelihood(means, (None, jnp.asarray(targets, jnp.float32)))
    np.testing.assert_array_equal(likelihood(means, (None, targets)), expected)
    with pytest.raises(ValueError, match=r"outputs have shape \(3,\), but the targets \(2,\)"):
        likelihood(means, (None, targets[:2]))


@pytest.mark.parametrize("batch_size", [2, 3])
@pytest.mark.parametrize("as_parts", [tuple, list, lambda y: tuple(y.tolist()), lambda y: {"a": y[0], "b": y[1]}])
def test_two_targets_are_columns(batch_size, as_parts, unchecked):
    """Catches targets (2, B) that are taken for (B, 2) in a batch of two examples."""
    likelihood = gx.nn.GaussianLikelihood(0.5, apply=lambda means, x: means)
    means, targets = jnp.zeros((batch_size, 2), jnp.float32), np.arange(2.0 * batch_size).reshape(2, batch_size)
    assert np.isfinite(likelihood(means, (None, targets.T))).all()
    with pytest.raises(TypeError, match=r"found several parts.*numpy.column_stack\(\[y_1, y_2\]\)"):
        likelihood(means, (None, as_parts(targets)))


def test_whole_numbers_of_jax_are_a_noise_that_can_be_learned():
    """Catches a logarithm of the noise that is no parameter, for it is no floating-point number."""
    held = gx.nn.WithNoise(lambda x: x, jnp.asarray(-1))
    assert held.log_noise.dtype == jnp.float32
    assert float(held.log_noise) == -1


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_labels_that_are_likely_have_a_gradient_in_half_precision(dtype):
    """Of 1000 examples with a probability of 0.9995 each, together half an example."""
    likelihood = gx.nn.CategoricalLikelihood(apply=lambda z, x: jnp.stack([z * x, jnp.zeros_like(x)], -1))
    batch = jnp.ones(1000, dtype), jnp.zeros(1000, jnp.int32)
    z = jnp.asarray(7.6, dtype)
    value, slope = jax.value_and_grad(lambda z: likelihood(z, batch).sum())(z)
    p = 1 / (1 + np.exp(-float(z)))
    np.testing.assert_allclose(float(value), 1000 * np.log(p), rtol=1e-3)
    np.testing.assert_allclose(float(slope), 1000 * (1 - p), rtol=0.05)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_targets_far_from_the_mean_have_a_likelihood_in_half_precision(dtype):
    """A square of 400 standard deviations, which float16 does not hold, of noise that is given and that is learned."""
    given = gx.nn.GaussianLikelihood(0.01, apply=lambda means, x: means)
    learned = gx.nn.GaussianLikelihood(apply=lambda position, x: position.network)
    means, targets = jnp.zeros(3, dtype), jnp.full(3, 4.0, dtype)
    expected = -0.5 * 400**2 - np.log(0.01) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(given(means, (None, targets)), np.full(3, expected), rtol=1e-5)
    held = gx.nn.WithNoise(means, np.log(0.01), dtype=dtype)
    scale = np.exp(float(held.log_noise))
    expected = -0.5 * (4 / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(learned(held, (None, targets)), np.full(3, expected), rtol=1e-5)


def test_positions_that_are_no_networks_need_an_apply(unchecked):
    position = {"w": jnp.zeros((3, 2), jnp.float32)}
    batch = jnp.zeros((5, 3), jnp.float32), jnp.zeros(5, jnp.int32)
    with pytest.raises(
        TypeError, match=r"a function of one example, as the position, found a dict; for other positions pass apply="
    ):
        gx.nn.CategoricalLikelihood()(position, batch)
