"""Solving without pivoting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
