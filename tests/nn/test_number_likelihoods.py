"""Likelihoods of numbers and of ordered classes, and weights: against SciPy's distributions and closed forms."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import geodax as gx

RNG = np.random.default_rng(0)
F = RNG.normal(size=(5, 2))
REAL, COUNTS = RNG.normal(size=(5, 2)), RNG.poisson(3.0, (5, 2)).astype(float)
LOG_NOISE = np.array([-0.7, 0.4])


def outputs_of(position, x):
    return getattr(position, "network", position)


CASES = {  # likelihood, position, targets, the distributions by name
    "gaussian, own noise": (
        gx.nn.GaussianLikelihood(apply=outputs_of), (F, LOG_NOISE), REAL, stats.norm(F, np.exp(LOG_NOISE))
    ),
    "heteroscedastic, one target": (
        gx.nn.HeteroscedasticLikelihood(outputs_of), F, REAL[:, 0], stats.norm(F[:, 0], np.exp(F[:, 1]))
    ),
    "heteroscedastic, two targets": (
        gx.nn.HeteroscedasticLikelihood(outputs_of), np.hstack([F, REAL]), REAL, stats.norm(F, np.exp(REAL))
    ),
    "student-t": (
        gx.nn.StudentTLikelihood(degrees_of_freedom=3.0, apply=outputs_of), (F, LOG_NOISE), REAL,
        stats.t(3.0, F, np.exp(LOG_NOISE)),
    ),
    "poisson": (
        gx.nn.PoissonLikelihood((2.0, 5.0), outputs_of), F, COUNTS, stats.poisson(np.array([2.0, 5.0]) * np.exp(F))
    ),
    "negative binomial": (
        gx.nn.NegativeBinomialLikelihood(base_rate=3.0, apply=outputs_of), (F, LOG_NOISE), COUNTS,
        stats.nbinom(np.exp(-2 * LOG_NOISE), 1 / (1 + 3 * np.exp(F + 2 * LOG_NOISE))),
    ),
    "custom": (
        gx.nn.CustomLikelihood(
            lambda f, y: jnp.sum(-jnp.abs(y - f) - jnp.log(2.0)), stats.laplace, outputs_per_example=2, apply=outputs_of
        ),
        F, REAL, stats.laplace(F),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_compiled_densities_and_predictions_are_of_the_same_distribution(name):
    """Catches a wrong density, a variance for a deviation, and parameters that predictions take in another order."""
    likelihood, position, targets, law = CASES[name]
    if isinstance(position, tuple):
        position = gx.nn.WithNoise(*(jnp.asarray(part) for part in position))
    position = jax.tree.map(jnp.asarray, position)
    each = likelihood(position, (None, jnp.asarray(targets)))
    exact = law.logpmf(targets) if hasattr(law, "logpmf") else law.logpdf(targets)
    np.testing.assert_allclose(each, exact.reshape(5, -1).sum(axis=1), rtol=1e-10)
    parameters = likelihood.parameters(position, likelihood.apply(position, None))
    predicted = likelihood.distribution(*map(np.asarray, parameters))
    np.testing.assert_allclose(predicted.mean(), law.mean(), rtol=1e-10)
    np.testing.assert_allclose(predicted.var(), law.var(), rtol=1e-10)
    np.testing.assert_allclose(predicted.cdf(targets), law.cdf(targets), rtol=1e-9)


@pytest.mark.parametrize("log_dispersion", [-18.0, -4.7, -4.5, 2.0])
def test_small_dispersions_keep_their_digits_in_single_precision(log_dispersion):
    """Catches differences of large log gamma functions: at 1.5e-8 they are of 1e9, and all digits were lost."""
    counts = np.array([0.0, 1.0, 38.0, 300.0])
    likelihood = gx.nn.NegativeBinomialLikelihood(0.5)
    found = {}
    for dtype in (jnp.float32, jnp.float64):
        parameters = (jnp.full(4, np.log(30.0), dtype), jnp.full(4, log_dispersion, dtype))
        found[dtype] = np.asarray(likelihood.log_density(parameters, jnp.asarray(counts, dtype)), np.float64)
    rounding = 4 * np.finfo(np.float32).eps * special.gammaln(301.0)  # of the largest terms
    np.testing.assert_allclose(found[jnp.float32], found[jnp.float64], rtol=2e-6, atol=rounding)
    near = stats.nbinom(np.exp(-log_dispersion), 1 / (1 + 30 * np.exp(log_dispersion))).logpmf(counts)
    np.testing.assert_allclose(found[jnp.float64], near, rtol=1e-7)


def test_what_does_not_fit_is_refused():
    noisy = gx.nn.WithNoise(jnp.asarray(F))
    for likelihood in (
        gx.nn.StudentTLikelihood(0.5, apply=outputs_of), gx.nn.NegativeBinomialLikelihood(0.5, apply=outputs_of)
    ):  # fmt: skip
        with pytest.raises(ValueError, match="and the position has a noise parameter too"):
            likelihood(noisy, (None, jnp.asarray(COUNTS)))
    with pytest.raises(ValueError, match=r"neither given nor a parameter; give dispersion=\.\.\., or sample nn"):
        gx.nn.NegativeBinomialLikelihood(apply=outputs_of)(jnp.asarray(F), (None, jnp.asarray(COUNTS)))
    with pytest.raises(ValueError, match=r"two outputs for each target.*found outputs of shape \(5, 3\)"):
        gx.nn.HeteroscedasticLikelihood(outputs_of)(jnp.zeros((5, 3)), (None, jnp.asarray(REAL)))
    with pytest.raises(ValueError, match=r"one log_noise, or one for each of the targets of shape \(2,\)"):
        gx.nn.GaussianLikelihood(apply=outputs_of)(
            gx.nn.WithNoise(jnp.asarray(F), jnp.zeros(3)), (None, jnp.asarray(REAL))
        )
    wrong = gx.nn.PoissonLikelihood(apply=outputs_of)(jnp.zeros(3), (None, jnp.asarray([1.0, 1.5, -1.0])))
    np.testing.assert_array_equal(np.isnan(wrong), [False, True, True])


@pytest.mark.thorough
def test_integer_weights_are_repeated_rows_and_batches_are_unbiased():
    """Catches N taken as the sum of the weights: rows are drawn equally often, whatever their weights."""
    x, y, weights = F[:, 0], REAL[:, 0], np.array([1, 2, 0, 3, 1])
    likelihood = gx.nn.StudentTLikelihood(0.5, apply=lambda p, x: p * x)
    weighted = gx.Posterior(log_prior=lambda p: -(p**2), log_likelihood=gx.nn.Weighted(likelihood), num_data=5)
    repeated = gx.Posterior(log_prior=lambda p: -(p**2), log_likelihood=likelihood, num_data=7)
    data = jax.tree.map(jnp.asarray, (x, y, weights.astype(float)))
    p = jnp.asarray(0.8)
    exact = repeated.full(jax.tree.map(jnp.asarray, (np.repeat(x, weights), np.repeat(y, weights))))(p)
    np.testing.assert_allclose(weighted.full(data)(p), exact, rtol=1e-14)
    pairs = jnp.asarray(list(itertools.combinations(range(5), 2)))
    each = jax.vmap(lambda rows: weighted.logdensity(p, jax.tree.map(lambda leaf: leaf[rows], data)))(pairs)
    np.testing.assert_allclose(each.mean(), exact, rtol=1e-13)
    with pytest.raises(ValueError, match=r"expected batches \(x, y, weights\)"):
        gx.nn.Weighted(likelihood)(p, data[:2])


@pytest.mark.thorough
def test_ordered_classes_have_cumulative_logits():
    """Catches cut points in another order and probabilities of far classes that round to zero."""
    spacings = jnp.asarray([0.3, -0.5])
    start = gx.nn.WithCutPoints(lambda x: x, 4, dtype=jnp.float64)
    held = eqx.tree_at(lambda model: model.log_spacings, start, spacings)
    cuts = np.concatenate([[0.0], np.cumsum(np.exp(spacings))])
    cuts -= cuts.mean()
    f = np.array([-200.0, -1.0, 0.4, 200.0])
    logits = np.asarray(jax.vmap(held)(jnp.asarray(f)))
    below = special.expit(cuts - f[1:3, None])
    np.testing.assert_allclose(np.cumsum(np.exp(logits[1:3]), axis=1)[:, :3], below, rtol=1e-12)
    np.testing.assert_allclose(np.exp(logits).sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(logits[0, 3], -200 - cuts[2], rtol=1e-12)
    np.testing.assert_allclose(logits[3, 0], cuts[0] - 200, rtol=1e-12)
    assert np.isfinite(jax.jacobian(held)(jnp.asarray(200.0))).all()
    two = gx.nn.WithCutPoints(lambda x: x, 2, dtype=jnp.float64)
    np.testing.assert_allclose(two(jnp.asarray(0.7))[1], special.log_expit(0.7), rtol=1e-12)
