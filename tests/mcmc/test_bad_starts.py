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


def starts(key, num_chains: int, num_bad: int, dtype=jnp.float64):
    """First bad starts, at log densities between -1e45 and -1e35, or -1e34 and -1e24 in single precision; then good ones."""
    nearest = 7.0 if dtype == jnp.float64 else 5.8
    key_bad, key_good = jax.random.split(key)
    sizes = jax.random.uniform(key_bad, (num_chains, 3), dtype, minval=nearest, maxval=nearest + 1.2)
    bad = jnp.array([[1.0, -1.0, 1.0]], dtype) * sizes
    assert (jax.vmap(steep)(bad) < (-1e33 if dtype == jnp.float64 else -1e23)).all()
    is_bad = (jnp.arange(num_chains) < num_bad)[:, None]
    return jnp.where(is_bad, bad, jax.random.normal(key_good, (num_chains, 3), dtype))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "num_chains", "num_bad", "dtype", "num_warmup"),
    [
        slow(gx.nuts, 1, 1, jnp.float64, 1000, id="one"),
        pytest.param(gx.nuts, 8, 8, jnp.float64, 1000, id="alone"),
        # 16 or more chains, and those of hmc, share a step size
        pytest.param(gx.nuts, 16, 16, jnp.float64, 200, id="together"),
        pytest.param(gx.hmc, 32, 3, jnp.float32, 200, id="together-few-bad-single"),
        slow(gx.hmc, 4, 4, jnp.float64, 200, id="together-four"),
        slow(gx.nuts, 32, 31, jnp.float32, 200, id="together-most-bad-single"),
        slow(gx.adjusted_mclmc, 32, 3, jnp.float64, 200, id="isokinetic"),
    ],
)
def test_all_chains_come_back(key, sampler, num_chains, num_bad, dtype, num_warmup):
    """Catches a floor of the step size that is too high, chains that only rounding errors move, or that wait for others."""
    key_start, key_run = jax.random.split(key)
    tree = gx.sample(
        key_run,
        sampler(steep),
        starts(key_start, num_chains, num_bad, dtype),
        num_warmup=num_warmup,
        num_samples=100,
        num_chains=num_chains,
        stacked=True,
        progress=False,
    )
    stats = tree["sample_stats"]
    # chi-squared variates with 3 degrees of freedom exceed 60 once in 1e12
    assert stats["lp"].values.min() > -30.0
    assert np.ptp(tree["posterior"]["position"].values, axis=1).min() > 0.0
    # tuned as from good starts: a standard normal of 3 dimensions
    assert 0.5 < np.median(stats["step_size"].values) < 2.0
