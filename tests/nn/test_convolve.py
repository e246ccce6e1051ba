"""Convolutions as sums of products against XLA's, and their use in loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.nn.convolve import convolve, patches_of

CASES = [
    ((9, 8), (3, 3), 1, 1),
    ((9, 8), (3, 2), 2, 0),
    ((7, 10), (1, 1), 2, 0),
    ((8, 8), (5, 4), 3, "SAME"),
    ((8, 7), (2, 2), 2, "VALID"),
    ((7, 8), (2, 3), 2, "SAME_LOWER"),
]


def by_xla(x, kernel, stride, padding):
    sides = padding if isinstance(padding, str) else [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x[None], kernel, (stride, stride), sides)[0]


@pytest.mark.thorough
@pytest.mark.parametrize(("image", "sizes", "stride", "padding"), CASES)
def test_values_and_derivatives_are_those_of_xla(image, sizes, stride, padding, key):
    """A kernel that is mirrored, a shift by one, a last row that is lost, a stride in one direction only."""
    keys = jax.random.split(key, 3)
    x, kernel = jax.random.normal(keys[0], (3, *image)), jax.random.normal(keys[1], (4, 3, *sizes))
    weights = jax.random.normal(keys[2], by_xla(x, kernel, stride, padding).shape)

    def of(function):
        def value(x, kernel):
            y = function(x, kernel, stride, padding)
            return jnp.sum(weights * y**2), y

        return jax.jit(jax.value_and_grad(value, (0, 1), has_aux=True))(x, kernel)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), of(convolve), of(by_xla))
    expected = jax.lax.conv_general_dilated_patches(
        x[None], sizes, (stride, stride), padding if isinstance(padding, str) else [(padding, padding)] * 2
    )[0]
    np.testing.assert_array_equal(patches_of(x, sizes, stride, padding), expected)


def test_half_precision_is_summed_in_single(key):
    """288 products whose sum is rounded at each of the nine entries of the kernel."""
    x, kernel = (
        jax.random.uniform(k, s, jnp.bfloat16)
        for k, s in zip(jax.random.split(key), ((32, 6, 6), (2, 32, 3, 3)), strict=True)
    )
    found = convolve(x, kernel, 1, 1)
    assert found.dtype == jnp.bfloat16
    exact = by_xla(x.astype(jnp.float32), kernel.astype(jnp.float32), 1, 1)
    np.testing.assert_allclose(found.astype(jnp.float32), exact, rtol=2**-8)


@pytest.mark.thorough
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on accelerators XLA's convolutions are used")
def test_a_loop_holds_no_convolution(key):
    """Networks whose samplers take 30 times as long as their gradients."""
    network = gx.nn.ResNet20(width=2, blocks_a_stage=1, key=key)
    x, y = jnp.zeros((5, 3, 32, 32), jnp.float32), jnp.zeros(5, jnp.int32)
    posterior = gx.Posterior(log_prior=gx.nn.Priors(), log_likelihood=gx.nn.CategoricalLikelihood(), num_data=5)
    algorithm = gx.sgrld(posterior, step_size=1e-4)

    def steps(key, state):
        return jax.lax.fori_loop(
            0, 3, lambda i, state: algorithm.step(jax.random.fold_in(key, i), state, (x, y))[0], state
        )

    program = jax.jit(steps).lower(key, jax.eval_shape(algorithm.init, network)).compile().as_text()
    assert " dot(" in program
    assert " convolution(" not in program
