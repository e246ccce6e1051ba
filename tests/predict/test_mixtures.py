"""Mixtures of distributions over draws: quantiles, probabilities, samples, scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import geodax as gx
from geodax._normal import Normal
from geodax.predict.mixtures import Mixture
from geodax.run.draws import to_datatree

RNG = np.random.default_rng(0)
MEANS, SCALES = RNG.normal(size=(7, 4, 2)) * 3, np.exp(RNG.normal(size=(7, 4, 2)))
REAL = {
    "normal": Mixture(Normal, (MEANS, SCALES)),
    "t": Mixture(lambda m, s: stats.t(1.5, m, s), (MEANS, SCALES)),  # its variance is infinite
    "gamma": Mixture(lambda s: stats.gamma(2.0, scale=s), (SCALES,)),
}
COUNTS = Mixture(lambda m, s: stats.nbinom(1 / s, 1 / (1 + np.exp(m) * s)), (MEANS, SCALES))


@pytest.mark.parametrize("name", REAL)
def test_quantiles_invert_the_distribution_function(name):
    mixture = REAL[name]
    levels = (0.0, 0.03, 0.5, 0.99, 1.0)
    found = mixture.quantiles(levels)
    assert found.shape == (5, 4, 2)
    for level, values in zip(levels[1:-1], found[1:-1], strict=True):
        np.testing.assert_allclose(mixture.cdf(values), level, rtol=1e-8)
        np.testing.assert_array_equal(mixture.ranks(values), mixture.cdf(values))
    assert (found[0] == (0.0 if name == "gamma" else -np.inf)).all()
    assert (found[-1] == np.inf).all()


def test_distributions_without_quantiles_of_their_own():
    """Mixtures of normals have none in closed form; it was an AttributeError."""

    class Bare:
        def __init__(self, law):
            self._law = law

        def __getattr__(self, name):
            if name in ("ppf", "std") or name.startswith("__"):
                raise AttributeError(name)
            return getattr(self._law, name)

    levels = (1e-6, 0.03, 0.5, 0.99)
    for mixture in (REAL["normal"], REAL["gamma"], COUNTS):
        bare = Mixture(lambda *parameters, law=mixture.distribution: Bare(law(*parameters)), mixture.parameters)
        np.testing.assert_allclose(bare.quantiles(levels), mixture.quantiles(levels), rtol=1e-10)
    bare = Mixture(lambda *parameters: Bare(REAL["t"].distribution(*parameters)), (MEANS, SCALES))
    with pytest.raises(ValueError, match="without finite moments need a method ppf"):
        bare.quantiles(levels)


def test_several_targets_of_a_row_need_no_more_steps_than_one():
    """Catches a step from the root itself, which has no Newton step, while another target of the row is open."""
    steps = 0

    class Counted(Normal):
        def cdf(self, x):
            nonlocal steps
            steps += 1
            return super().cdf(x)

    generator = np.random.default_rng(1)
    means, scales = generator.normal(size=(50, 200, 3)), 0.2 + generator.random((50, 200, 3))
    Mixture(Counted, (means, scales)).quantiles([0.05])
    assert steps < 20


def test_values_have_the_shape_of_the_targets():
    """A column of as many values as there are draws was taken for values of the draws."""
    square = Mixture(Normal, (MEANS[:4, :, 0], SCALES[:4, :, 0]))
    for values in (np.zeros((4, 1)), np.zeros((4, 4))):
        with pytest.raises(ValueError, match=r"one value for each target, of shape \(4,\), found \(4, "):
            square.ranks(values)
    np.testing.assert_array_equal(square.cdf(0.5), square.cdf(np.full(4, 0.5)))


def test_quantiles_of_counts_are_the_smallest_integers_that_suffice():
    """Catches quantiles one too large or too small, and bounds taken from single draws."""
    levels = (0.0, 0.05, 0.5, 0.95)
    found = COUNTS.quantiles(levels)
    assert COUNTS.is_discrete
    np.testing.assert_array_equal(found, np.round(found))
    np.testing.assert_array_equal(found[0], 0)
    for level, values in zip(levels[1:], found[1:], strict=True):
        assert (COUNTS.cdf(values) >= level).all()
        assert (COUNTS.cdf(values - 1) < level).all()


def test_samples_have_the_moments_and_uniform_ranks():
    """Catches ranks of counts that are their distribution function, which is not uniform."""
    wide = Mixture(COUNTS.distribution, tuple(np.repeat(p[:, :1, :1], 4000, axis=1)[..., 0] for p in COUNTS.parameters))
    mixed = wide.sample(2)[RNG.integers(0, 7, 4000), np.arange(4000)]
    assert abs(mixed.mean() - wide.mean()[0]) < 5 * wide.std()[0] / np.sqrt(4000)
    assert stats.kstest(wide.ranks(mixed), "uniform").pvalue > 1e-4
    assert stats.kstest(wide.cdf(mixed), "uniform").pvalue < 1e-6


def test_functions_of_predictions_agree_on_any_likelihood():
    """Catches a log score over other draws or targets than the predictive density's, and parts that do not add up."""
    slopes, log_noise = np.array([[1.0, 2.0, 4.0]]), np.array([[-1.0, 0.0, 0.5]])
    tree = to_datatree({"posterior": {"network": slopes, "log_noise": log_noise}, "sample_stats": {}})
    like = gx.nn.WithNoise(jnp.zeros((), jnp.float64), dtype=jnp.float64)
    x, y = jnp.linspace(-1, 1, 4), np.array([0.0, 2.0, 1.0, 30.0])
    likelihood = gx.nn.NegativeBinomialLikelihood(apply=lambda position, x: position.network * x)
    found = gx.predictive.predict_numbers(tree, like, x, targets=y, likelihood=likelihood)
    alpha, means = np.exp(2 * log_noise).T, np.exp(slopes.T * np.asarray(x))
    law = stats.nbinom(1 / alpha, 1 / (1 + alpha * means))
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.aleatoric, (means + alpha * means**2).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.log_density, np.log(law.pmf(y).mean(axis=0)), rtol=1e-10)
    score = gx.predictive.log_score(tree, like, (x, jnp.asarray(y)), likelihood=likelihood)
    np.testing.assert_allclose(score, found.log_density, rtol=1e-10)
    mixture = gx.predictive.predict_distribution(tree, like, x, likelihood=likelihood)
    np.testing.assert_allclose(mixture.std() ** 2, found.variance, rtol=1e-12)
    with pytest.raises(ValueError, match="give likelihood=, which contains them, or noise= and apply="):
        gx.predictive.predict_numbers(tree, like, x, likelihood=likelihood, noise=1.0)
    with pytest.raises(ValueError, match=r"need distribution_fn=\.\.\."):
        gx.nn.CustomLikelihood(lambda f, y: jax.nn.log_sigmoid(f)).distribution(y)
