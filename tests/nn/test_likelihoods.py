"""Likelihoods of targets that are no arrays yet."""

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


def test_whole_numbers_of_jax_are_a_noise_that_can_be_learned():
    """Catches a logarithm of the noise that is no parameter, for it is no floating-point number."""
    held = gx.nn.WithNoise(lambda x: x, jnp.asarray(-1))
    assert held.log_noise.dtype == jnp.float32
    assert float(held.log_noise) == -1
