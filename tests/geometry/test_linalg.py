"""Solving without pivoting, and the derivative of the polar factor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.geometry import linalg
from geodax.geometry.linalg import solve_accretive


def system(size: int, dtype=jnp.float64):
    rng = np.random.default_rng(size)
    skew = rng.normal(size=(3, size, size))
    matrix = np.eye(size) + 2.0 * (skew - np.swapaxes(skew, -1, -2))
    return jnp.asarray(matrix, dtype), jnp.asarray(rng.normal(size=(3, size, 5)), dtype)


@pytest.mark.parametrize("size", [1, 10, 11, 16, 37])  # unrolled, blocks with and without padding
def test_solves_systems_with_a_large_skew_part(size):
    matrix, right = system(size)
    found = jax.jit(solve_accretive)(matrix, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=1e-13)
    found = solve_accretive(*system(size, jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=2e-5)


def test_derivative():
    matrix, right = system(11)

    def energy(solve):
        return jax.grad(lambda m: jnp.sum(jnp.sin(solve(m, right))))(matrix)

    np.testing.assert_allclose(energy(solve_accretive), energy(jnp.linalg.solve), rtol=0, atol=1e-12)


def test_no_call_that_waits_for_other_threads():
    """Batches of LAPACK calls in the loop of several chains have been seen to wait for each other for ever."""
    text = jax.jit(jax.vmap(solve_accretive)).lower(*system(40)).compile().as_text()
    assert "custom-call" not in text


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (2, 5)])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
@pytest.mark.parametrize("is_degenerate", [False, True])
def test_the_polar_factor_has_its_derivative(shape, dtype, is_degenerate):
    """Against central differences, also where singular values are equal; and reverse mode is the transpose of forward."""
    generator = np.random.default_rng(3)

    def drawn():
        parts = generator.standard_normal((2, *shape))
        return parts[0] + 1j * parts[1] if dtype == jnp.complex128 else parts[0]

    x, change, weights = drawn(), drawn(), drawn()
    if is_degenerate:
        x = 1.7 * np.asarray(linalg.polar_factor(jnp.asarray(x)))
    x, change, weights = (jnp.asarray(a) for a in (x, change, weights))
    tangent = jax.jit(lambda x: jax.jvp(linalg.polar_factor, (x,), (change,))[1])(x)
    step = 1e-5
    difference = (linalg.polar_factor(x + step * change) - linalg.polar_factor(x - step * change)) / (2 * step)
    np.testing.assert_allclose(tangent, difference, atol=1e-8)
    (pulled,) = jax.vjp(linalg.polar_factor, x)[1](weights)
    np.testing.assert_allclose(jnp.sum(pulled * change).real, jnp.sum(weights * tangent).real, rtol=1e-9)


def test_polar_factors_are_differentiated_on_several_devices():
    """Batched within ``shard_map`` on the devices of the tests, where LAPACK takes one matrix at a time."""
    devices = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.asarray(devices), ("chain",))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2 * len(devices), 4, 2)))

    def gradient(x):
        return jax.vmap(jax.grad(lambda m: jnp.sum(linalg.polar_factor(m)[0])))(x)

    spec = jax.sharding.PartitionSpec("chain")
    shared = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(x)
    np.testing.assert_allclose(shared, gradient(x), rtol=1e-10, atol=1e-12)
