"""A million leapfrog steps in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow


@pytest.mark.thorough
@pytest.mark.parametrize("metric", ["canonical", "embedded", slow("literal")])
def test_orthogonality_survives_a_million_single_precision_steps(key, metric):
    """The worst residual along the path stays below 1e-5 (a flow whose errors feed on themselves fails within hundreds)."""
    n, p, num_steps, num_iterations = 10, 3, 100, 10_000
    key_target, key_start, key_run = jax.random.split(key, 3)
    direction = jax.random.normal(key_target, (n, p), jnp.float32)
    manifold = gx.Stiefel(metric=metric)
    algorithm = gx.hmc(
        lambda x: 3.0 * jnp.sum(direction * x), manifold=manifold, step_size=0.1, num_integration_steps=num_steps
    )
    state = algorithm.init(manifold.random_point(key_start, direction))

    @jax.jit
    def run(state):
        def iterate(state, i):
            state, info = algorithm.step(jax.random.fold_in(key_run, i), state)
            return state, (info.residual, info.is_divergent)

        return jax.lax.scan(iterate, state, jnp.arange(num_iterations))

    _, (residual, is_divergent) = run(state)
    assert residual.dtype == jnp.float32
    assert float(np.max(residual)) < 1e-5
    assert not np.any(is_divergent)
