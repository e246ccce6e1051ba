"""Curvature in the inputs against dense Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.nn.curvature import input_curvature
from tests.marks import slow


@pytest.mark.thorough
@pytest.mark.parametrize("activation", [jax.nn.tanh, slow(jax.nn.relu)])
def test_curvature_is_the_ratio_of_norms(activation, key):
    key_net, key_x, key_run = jax.random.split(key, 3)
    network = gx.nn.MLP(4, 3, widths=(6,), activation=activation, dtype=jnp.float64, key=key_net)
    x = 2 * jax.random.normal(key_x, (5, 2, 2), jnp.float64)
    y = jnp.asarray([0, 1, 2, 0, 1])
    found = input_curvature(network, (x, y), key=key_run, num_iterations=400)

    def loss(x, label):
        return -jax.nn.log_softmax(network(x.reshape(2, 2)))[label]

    flat = x.reshape(5, 4)
    hessians, gradients = (jax.jit(jax.vmap(of(loss)))(flat, y) for of in (jax.hessian, jax.grad))
    for i in range(5):
        hessian, gradient = np.linalg.norm(hessians[i], 2), np.linalg.norm(gradients[i])
        np.testing.assert_allclose(found.hessian_norm[i], hessian, rtol=1e-5)
        np.testing.assert_allclose(found.gradient_norm[i], gradient, rtol=1e-12)
        np.testing.assert_allclose(found.curvature[i], hessian / (gradient + 1e-6), rtol=1e-5)


@pytest.mark.thorough
def test_a_linear_loss_has_no_curvature_and_a_saddle_has_its_norm(key):
    key_line, key_saddle = jax.random.split(key)
    x, y = jnp.ones((2, 3), jnp.float64), jnp.zeros(2, jnp.float64)
    line = input_curvature(None, (x, y), key=key_line, log_likelihood=lambda _, b: -2.0 * b[0][:, 0])
    np.testing.assert_array_equal(line.curvature, 0)
    np.testing.assert_allclose(line.gradient_norm, 2)
    with pytest.raises(ValueError, match="input_curvature: num_iterations must be at least 1, found 0"):
        input_curvature(None, (x, y), key=key_line, log_likelihood=lambda _, b: b[0][:, 0] ** 2, num_iterations=0)
    # eigenvalues 2 and -2: no single direction dominates, their size does
    saddle = input_curvature(
        None, (x, y), key=key_saddle, log_likelihood=lambda _, b: b[0][:, 0] ** 2 - b[0][:, 1] ** 2
    )
    np.testing.assert_allclose(saddle.hessian_norm, 2, rtol=1e-10)
