"""Importance weights of variational fits, against conjugate posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import geodax as gx

pytest.importorskip("arviz")


@pytest.fixture(scope="module")
def regression():
    """Linear regression with correlated inputs: log density, mean, covariance and log evidence."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((30, 3)) @ np.array([[1.0, 0.8, 0.3], [0.0, 0.6, 0.5], [0.0, 0.0, 1.0]])
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.5 * generator.standard_normal(30)

    def logdensity(w):
        residuals = jnp.asarray(y) - jnp.asarray(x) @ w
        return jax.scipy.stats.norm.logpdf(residuals, scale=0.5).sum() + jax.scipy.stats.norm.logpdf(w).sum()

    covariance = np.linalg.inv(x.T @ x / 0.25 + np.eye(3))
    evidence = stats.multivariate_normal(np.zeros(30), x @ x.T + 0.25 * np.eye(30)).logpdf(y)
    return logdensity, covariance @ x.T @ y / 0.25, covariance, evidence


def _gaussian(mean, covariance):
    root = np.linalg.cholesky(covariance)
    family = gx.vi.FullGaussian(jnp.asarray(mean), jnp.log(jnp.diag(root)), jnp.asarray(root))
    return gx.vi.GaussianOver(jnp.asarray(mean), family)


def test_the_exact_posterior_has_equal_weights(regression):
    logdensity, mean, covariance, evidence = regression
    found = gx.diagnostics.importance_weights(jax.random.key(0), _gaussian(mean, covariance), logdensity)
    np.testing.assert_allclose(np.exp(found.log_weights), 1 / 2000, rtol=1e-6)
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-9)
    np.testing.assert_allclose(found.effective_sample_size, 2000, rtol=1e-6)


def test_weights_correct_a_wide_approximation_and_k_tells_a_narrow_one(regression):
    """Catches the densities exchanged, weights that are not normalised, and a tail index of the wrong tail."""
    logdensity, mean, covariance, evidence = regression
    shift = 0.5 * np.sqrt(np.diag(covariance))
    wide = gx.diagnostics.importance_weights(
        jax.random.key(1), _gaussian(mean + shift, 2.0 * covariance), logdensity, num_draws=4000
    )
    assert wide.pareto_k < 0.5
    error = np.sqrt(np.diag(covariance) / wide.effective_sample_size)
    np.testing.assert_array_less(np.abs(wide.expectation(lambda w: w) - mean), 5 * error)
    assert abs(wide.log_evidence - evidence) < 5 / np.sqrt(wide.effective_sample_size)
    narrow = gx.diagnostics.importance_weights(jax.random.key(1), _gaussian(mean, 0.1 * covariance), logdensity)
    assert narrow.pareto_k > 0.7


def test_wrong_arguments_are_named(regression):
    logdensity, mean, covariance, _ = regression
    q = _gaussian(mean, covariance)
    with pytest.raises(TypeError, match=r"expected an approximation with sample\(key\) and log_prob\(position\)"):
        gx.diagnostics.importance_weights(jax.random.key(0), gx.nn.WHVILinear(4, 4, key=jax.random.key(0)), logdensity)
    with pytest.raises(ValueError, match="num_draws must be at least 100"):
        gx.diagnostics.importance_weights(jax.random.key(0), q, logdensity, num_draws=10)
    with pytest.raises(ValueError, match="is not finite at"):
        gx.diagnostics.importance_weights(jax.random.key(0), q, lambda w: jnp.log(w[0] - 100.0))
