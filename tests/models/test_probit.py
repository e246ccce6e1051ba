"""The log of the normal distribution function and its derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

from geodax.models.eigenmodel.probit import log_normal_cdf

POINTS = np.concatenate([np.linspace(-40, 40, 4001), [-1e8, -3e3, 0.0, 3e3]])


def test_value_and_derivative_in_double_precision():
    """In both tails too, where a ratio of densities would be 0 / 0."""
    with jax.enable_x64(True):
        value, slope = jax.vmap(jax.value_and_grad(log_normal_cdf))(jnp.asarray(POINTS))
    np.testing.assert_allclose(value, log_ndtr(POINTS), rtol=1e-13, atol=1e-15)
    central = np.abs(POINTS) < 100
    expected = np.exp(norm.logpdf(POINTS[central]) - log_ndtr(POINTS[central]))
    np.testing.assert_allclose(np.asarray(slope)[central], expected, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(slope[-4:], [1e8, 3e3 + 1 / 3e3, np.sqrt(2 / np.pi), 0.0], rtol=1e-13)


def test_single_precision():
    points = jnp.asarray(POINTS, jnp.float32)
    value, slope = jax.vmap(jax.value_and_grad(log_normal_cdf))(points)
    assert value.dtype == slope.dtype == jnp.float32
    np.testing.assert_allclose(value, log_ndtr(POINTS.astype(np.float32)), rtol=1e-5, atol=1e-6)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("point", [np.nan, -np.inf])
def test_undefined_points_stay_undefined(point):
    assert not np.isfinite(log_normal_cdf(jnp.asarray(point)))
