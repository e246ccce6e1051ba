"""Warm-up from starts at log densities of about -1e40, where the fitting step size grows by twenty orders of magnitude."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow


def steep(x):
    """Standard normal but for terms that are about exp(20 |x|) far out."""
    return -0.5 * jnp.sum(x**2) - jnp.sum(jnp.expm1(20.0 * jnp.maximum(jnp.abs(x) - 3.0, 0.0)))


def start(key):
    """Log densities between -1e35 and -1e45."""
    return jnp.array([1.0, -1.0, 1.0]) * jax.random.uniform(key, (3,), minval=7.0, maxval=8.2)


@pytest.mark.parametrize("num_chains", [slow(1), 8])
def test_all_chains_come_back(key, num_chains):
    """Catches a floor of the step size that is too high, and chains that only rounding errors move."""
    key_start, key_run = jax.random.split(key)
    starts = jax.vmap(start)(jax.random.split(key_start, num_chains))
    assert (jax.vmap(steep)(starts) < -1e33).all()
    tree = gx.sample(
        key_run,
        gx.nuts(steep),
        starts,
        num_warmup=1000,
        num_samples=100,
        num_chains=num_chains,
        stacked=True,
        progress=False,
    )
    # chi-squared variates with 3 degrees of freedom exceed 60 once in 1e12
    assert tree["sample_stats"]["lp"].values.min() > -30.0
    assert np.ptp(tree["posterior"]["position"].values, axis=1).min() > 0.0
