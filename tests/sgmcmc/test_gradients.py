"""What the stochastic-gradient samplers ask of a gradient."""

import jax.numpy as jnp
import pytest

from geodax.sgmcmc.gradients import looks_finite


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64, jnp.complex64], ids=str)
def test_what_is_finite_in_any_precision(dtype):
    """Catches a sum over many entries that overflows in half precision, beyond 65,504."""
    assert looks_finite({"w": jnp.ones(200_000, dtype), "empty": jnp.zeros(0, dtype)})
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert not looks_finite([jnp.ones(3, dtype), jnp.ones(5, dtype).at[2].set(bad)])
