"""Likelihoods, several targets, ordered classes and weights of the network estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from sklearn.linear_model import LogisticRegression

import geodax as gx
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from tests.models.prior import Prior

PRIOR = {"inference": Prior(), "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((40, 3)) * np.array([1.0, 5.0, 0.2]) + 3
    return x, 500 + 20 * x[:, 0] + 30 * generator.standard_normal(40), generator.poisson(np.exp(x[:, 0]))


@pytest.mark.thorough
@pytest.mark.parametrize("likelihood", ["heteroscedastic", "student-t", "log-normal", "negative-binomial", "poisson"])
def test_predictions_belong_together_in_the_units_of_y(likelihood, rows):
    """Catches densities without the units of y, moments of another distribution, and intervals between integers."""
    x, real, counts = rows
    is_count = likelihood in ("negative-binomial", "poisson")
    y = counts if is_count else real
    model = BayesianMLPRegressor((4,), likelihood=likelihood, calibration_fraction=0.4, **PRIOR).fit(x, y)
    parts, (mean, deviation) = model.predict_parts(x, y), model.predict(x, return_std=True)
    np.testing.assert_allclose(mean, model.predict_draws(x).mean(axis=0), rtol=1e-10)
    low, high = model.predict_quantiles(x, (0.2, 0.8))
    places = np.arange(20_000.0) if is_count else mean[0] + np.linspace(-3000, 3000, 40_001)
    places = places - places[0] + 1e-3 if likelihood == "log-normal" else places
    few = model.predict_distribution(x[:1])
    each = few.distribution(*few.parameters)
    mass = (each.pmf(places) if is_count else each.pdf(places)).mean(axis=0) * (places[1] - places[0])
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-3)
    np.testing.assert_allclose(mass @ places, mean[0], rtol=2e-3)
    np.testing.assert_allclose(np.sqrt(mass @ (places - mean[0]) ** 2), deviation[0], rtol=0.03)
    nearest = np.argmin(np.abs(places - y[0]))
    if is_count:
        np.testing.assert_allclose(np.exp(parts.log_density[0]), mass[nearest], rtol=1e-8)
        interval = model.predict_interval(x, alpha=0.3)
        for ends in (low, high, interval.lower, interval.upper):
            np.testing.assert_array_equal(ends, np.round(ends))
        assert (interval.lower >= 0).all()
        assert (model.predict_cdf(x, high) >= 0.8).all()
    else:
        np.testing.assert_allclose(model.predict_cdf(x, high), 0.8, rtol=1e-7)
        density = model.log_predictive(np.repeat(x[:1], 2, axis=0), places[[nearest, nearest]])
        np.testing.assert_allclose(np.exp(density[0]), mass[nearest] / (places[1] - places[0]), rtol=1e-8)


@pytest.mark.thorough
def test_several_targets_have_their_own_units_and_noise(rows):
    """Catches one scale for all targets, and joint densities that are those of one target."""
    x, real, counts = rows
    y = np.stack([real, 0.01 * counts], axis=1)
    model = BayesianMLPRegressor((4,), calibration_fraction=0.4, **PRIOR).fit(x, y)
    assert model.posterior_["posterior"]["log_noise"].shape == (1, 5, 2)
    noise = np.exp(model.posterior_["posterior"]["log_noise"].values[0]) * model.target_spread_
    draws = model.predict_draws(x)
    assert draws.shape == (5, 40, 2)
    exact = np.log(np.exp(stats.norm(draws, noise[:, None]).logpdf(y).sum(axis=-1)).mean(axis=0))
    np.testing.assert_allclose(model.log_predictive(x, y), exact, rtol=1e-6)
    np.testing.assert_allclose(model.predict_parts(x).aleatoric, np.tile((noise**2).mean(axis=0), (40, 1)), rtol=1e-6)
    quantiles = model.predict_quantiles(x, (0.1, 0.9))
    np.testing.assert_allclose(model.predict_cdf(x, quantiles[1]), 0.9, rtol=1e-7)
    interval = model.predict_interval(x)
    np.testing.assert_allclose(interval.upper + interval.lower, 2 * model.predict(x), rtol=1e-9)
    assert np.isfinite(model.score(x, y))
    for k in (0, 1):
        one = model.for_target(k)
        exact = np.log(np.exp(stats.norm(draws[..., k], noise[:, None, k]).logpdf(y[:, k])).mean(axis=0))
        np.testing.assert_allclose(one.log_predictive(x, y[:, k]), exact, rtol=1e-6)
        np.testing.assert_allclose(one.predict_quantiles(x, (0.1, 0.9)), quantiles[..., k])
        np.testing.assert_allclose(one.predict_interval(x).upper, interval.upper[:, k])
    with pytest.raises(ValueError, match="number must be at most 1, found 2"):
        model.for_target(2)
    with pytest.raises(ValueError, match="expected a fit to several targets"):
        model.for_target(0).for_target(0)
    with pytest.raises(ValueError, match="has one for each of several targets"):
        BayesianMLPRegressor(noise=1.0, **PRIOR).fit(x, y)


def test_a_custom_likelihood_takes_y_in_its_own_units(rows):
    """Scores are of the distribution, although the density of the fit lacks its constant."""
    x, _, counts = rows
    law = gx.nn.CustomLikelihood(
        lambda f, y: -y / jnp.exp(f) - f + 3.0, lambda f: stats.expon(scale=np.exp(f)), outputs_per_example=None
    )
    model = BayesianMLPRegressor((4,), likelihood=law, **PRIOR)
    _, targets, _ = model.prepare(x, 5.0 + counts)
    np.testing.assert_array_equal(targets, 5.0 + counts)
    model = model.fit(x, 5.0 + counts)
    rates = model.predict_draws(x)
    exact = np.log((np.exp(-(5.0 + counts) / rates) / rates).mean(axis=0))
    np.testing.assert_allclose(model.log_predictive(x, 5.0 + counts), exact, rtol=1e-8)


def test_censored_times_have_a_log_score(rows):
    """A target of two numbers, of which the distribution predicts one; no score was available."""
    x, _, counts = rows

    def log_density(f, target):  # exponential times with mean exp(f)
        return -target[0] / jnp.exp(f) - jnp.where(target[1] > 0, f, 0.0)

    y = np.column_stack([1.0 + counts, counts > 1])
    with pytest.raises(ValueError, match=r"a target for each of 40 examples, found an array of shape \(2, 40\)"):
        gx.nn.CustomLikelihood(log_density, apply=lambda w, x: x @ w)(
            jnp.ones(x.shape[1]), (jnp.asarray(x), jnp.asarray(y.T))
        )
    for law in (lambda f: stats.expon(scale=np.exp(f[..., 0])), None):
        likelihood = gx.nn.CustomLikelihood(lambda f, t: log_density(f[0], t), law, outputs_per_example=1)
        model = BayesianMLPRegressor((4,), likelihood=likelihood, calibration_fraction=0.2 if law else 0.0, **PRIOR)
        score = model.fit(x, y).log_predictive(x, y)
        if law:
            f = np.log(model.predict_draws(x))
            exact = special.logsumexp(-y[:, 0] / np.exp(f) - f * y[:, 1], axis=0) - np.log(len(f))
            np.testing.assert_allclose(score, exact, rtol=1e-8)
            with pytest.raises(ValueError, match="intervals need a prediction of each number of a target"):
                model.predict_interval(x)
            with pytest.raises(ValueError, match=r"use predictive\.log_score"):
                model.predict_parts(x, y)


@pytest.mark.thorough
def test_log_normal_targets_are_those_of_the_logarithm(rows):
    """Catches a density without the factor 1 / y, intervals below zero, and noise in the units of y."""
    x, real, _ = rows
    options = {"calibration_fraction": 0.4, "noise": 0.1, **PRIOR}
    of_logarithm = BayesianMLPRegressor((4,), **options).fit(x, np.log(real))
    model = BayesianMLPRegressor((4,), likelihood="log-normal", **options).fit(x, real)
    density = model.log_predictive(x, real)
    np.testing.assert_allclose(density, of_logarithm.log_predictive(x, np.log(real)) - np.log(real), rtol=1e-6)
    np.testing.assert_allclose(
        model.predict_quantiles(x, (0.1, 0.9)), np.exp(of_logarithm.predict_quantiles(x, (0.1, 0.9))), rtol=1e-6
    )
    for found, expected in zip(model.predict_interval(x), of_logarithm.predict_interval(x), strict=True):
        np.testing.assert_allclose(found, np.exp(expected) if np.ndim(found) else expected, rtol=1e-6)
    np.testing.assert_array_equal(model.log_predictive(x[:2], [0.0, -1.0]), -np.inf)
    with pytest.raises(ValueError, match=r"likelihood='log-normal' expects positive numbers in y, found 0"):
        BayesianMLPRegressor(likelihood="log-normal", **PRIOR).fit(x, real * (np.arange(40) != 3))
    with pytest.raises(ValueError, match="y is 5 in all rows"):
        BayesianMLPRegressor(likelihood="log-normal", **PRIOR).fit(x, np.full(40, 5.0))


@pytest.mark.parametrize("y", [[0.5, 1.0, 2.0, 3.0], [-1, 0, 1, 2], [0, 0, 0, 0]])
def test_counts_are_counts(y):
    with pytest.raises(ValueError, match=r"likelihood='poisson' expects counts in y, integers from 0"):
        BayesianMLPRegressor(likelihood="poisson", **PRIOR).fit(np.arange(4.0)[:, None], y)
    with pytest.raises(ValueError, match="noise cannot be given, found 2: likelihood='poisson' has none"):
        BayesianMLPRegressor(likelihood="poisson", noise=2.0, **PRIOR).fit(np.arange(4.0)[:, None], [0, 1, 2, 3])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["gaussian", "poisson", "ordinal"])
def test_integer_weights_are_repeated_rows(kind, rows):
    """Catches standardisation without weights, weights that are normalised, and rows of weight zero that count."""
    x, real, counts = rows
    weights = np.arange(40) % 3
    options = {"likelihood": kind, **PRIOR}
    make, y = (BayesianMLPClassifier, counts % 4) if kind == "ordinal" else (BayesianMLPRegressor, counts)
    y = real if kind == "gaussian" else y
    values = []
    for data in ((x, y, weights), (np.repeat(x, weights, axis=0), np.repeat(y, weights), None)):
        model = make((4,), **options)
        *arrays, _ = model.prepare(*data)
        problem = model.problem()
        position = problem.priors.sample(jax.random.key(1), problem.build(jax.random.key(0)))
        values.append(
            float(problem.log_likelihood()(position, tuple(map(jnp.asarray, arrays))).astype(np.float64).sum())
        )
        assert len(arrays[0]) == (np.sum(weights > 0) if data[2] is not None else weights.sum())
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)
    for wrong in (-weights, 0 * weights, weights[:3]):
        with pytest.raises(ValueError, match=r"[Ww]eight"):
            make((4,), **options).fit(x, y, wrong)


def test_weights_that_are_shares_are_named(rows, recwarn):
    """Catches silence about weights that add up to 1, with which the data say as much as one row."""
    x, real, _ = rows
    model = BayesianMLPRegressor((), **PRIOR).fit(x, real, np.full(40, 0.06))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="the weights add up to 1, and all 40 rows count as that many") as found:
        model.fit(x, real, np.full(40, 1 / 40))
    assert found[0].filename == __file__


def test_class_weights_are_scikit_learns(rows):
    """Catches balanced weights that ignore the weights of rows: repeated rows give the same ones."""
    x, _, counts = rows
    y, weights = counts % 3, 1 + np.arange(40) % 2
    *_, found, _ = BayesianMLPClassifier(class_weight="balanced", **PRIOR).prepare(x, y, weights)
    totals = np.bincount(y, weights=found)
    np.testing.assert_allclose(totals, weights.sum() / 3, rtol=1e-6)
    np.testing.assert_allclose(found[y == 0] / found[y == 0][0], weights[y == 0] / weights[y == 0][0], rtol=1e-6)
    *_, found, _ = BayesianMLPClassifier(class_weight={0: 2.0, 1: 0.5, 2: 1.0}, **PRIOR).prepare(x, y)
    np.testing.assert_array_equal(found, np.array([2.0, 0.5, 1.0])[y])
    with pytest.raises(TypeError, match="class_weight must be a dict of weights by class, 'balanced' or None"):
        BayesianMLPClassifier(class_weight="equal", **PRIOR).fit(x, y)


def test_ordered_classes_keep_the_order_of_scikit_learn_outside(rows):
    """Catches columns of probabilities in the order of the levels, and names ordered by the alphabet."""
    x, _, counts = rows
    names = np.array(["low", "mid", "high"])[counts % 3]
    model = BayesianMLPClassifier((4,), likelihood="ordinal", class_order=["low", "mid", "high"], **PRIOR)
    model = model.fit(x, names)
    _, targets, _ = model.prepare(x, names)
    np.testing.assert_array_equal(targets, counts % 3)
    assert model.classes_.tolist() == ["high", "low", "mid"]
    by_number = BayesianMLPClassifier((4,), likelihood="ordinal", **PRIOR).fit(x, counts % 3)
    np.testing.assert_allclose(model.predict_proba(x), by_number.predict_proba(x)[:, [2, 0, 1]], rtol=1e-12)
    np.testing.assert_allclose(model.log_predictive(x, names), by_number.log_predictive(x, counts % 3), rtol=1e-12)
    for order, words in ((None, "needs the order of classes that are not numbers"), (["low", "mid"], "without 'high'")):
        with pytest.raises(ValueError, match=words):
            BayesianMLPClassifier(likelihood="ordinal", class_order=order, **PRIOR).fit(x, names)
    with pytest.raises(ValueError, match="class_order is for likelihood='ordinal'"):
        BayesianMLPClassifier(class_order=["low", "mid", "high"], **PRIOR).fit(x, names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "student-t", "ordinal", "weights"])
def test_posteriors_of_linear_models_agree_with_an_exact_sampler(kind, rows):
    """Means of the expected target at the rows, within errors over independent chains, against nuts on the same density."""
    x, real, counts = rows
    weights = np.arange(40) % 3 if kind == "weights" else None
    y = {"poisson": counts, "student-t": real, "ordinal": counts % 4, "weights": real}[kind]
    make = BayesianMLPClassifier if kind == "ordinal" else BayesianMLPRegressor
    options = {} if kind == "weights" else {"likelihood": kind}
    model = make(
        (), step_size=0.01, num_warmup=1000, num_samples=150, thinning=40, num_chains=16, random_state=0, **options
    )
    model.fit(x, y, weights)
    *data, _ = model.prepare(x, y, weights)
    problem = model.problem()
    posterior = gx.Posterior(log_prior=problem.priors, log_likelihood=problem.log_likelihood(), num_data=len(data[0]))
    exact = gx.sample(
        jax.random.key(1), gx.nuts(posterior.full(tuple(map(jnp.asarray, data)))), problem.build,
        num_warmup=500, num_samples=500, num_chains=16, progress=False,
    )  # fmt: skip
    reference = make((), random_state=0, **options).with_posterior(x, y, exact, weights)
    chains = []
    for each, count in ((model, 150), (reference, 500)):
        drawn = each.predict_draws(x)
        chains.append(drawn.reshape(count, 16, -1).mean(axis=0))
    error = np.sqrt(sum(found.var(axis=0, ddof=1) / 16 for found in chains))
    np.testing.assert_array_less(np.abs(chains[0].mean(axis=0) - chains[1].mean(axis=0)), 5 * error)


@pytest.mark.slow
def test_counts_and_outliers_are_predicted_better_by_their_own_likelihood():
    """Held-out log scores beside normal noise, and the coverage of the intervals."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (400, 2))
    f = np.sin(1.5 * x[:, 0]) + 0.3 * x[:, 1]
    tables = {
        "negative-binomial": generator.poisson(np.exp(1 + f) * generator.gamma(3, 1 / 3, 400)),
        "student-t": f + 0.2 * generator.standard_t(2, 400),
        "heteroscedastic": f + np.exp(-1 + 0.7 * x[:, 1]) * generator.standard_normal(400),
    }
    for likelihood, y in tables.items():
        scores = {}
        for name in (likelihood, "gaussian"):
            model = BayesianMLPRegressor((20,), likelihood=name, num_warmup=1000, num_samples=40, random_state=0)
            model.fit(x[:200], y[:200])
            scores[name] = model.log_predictive(x[200:], y[200:]).mean()
            if name == likelihood:
                low, high = model.predict_quantiles(x[200:])
                assert np.mean((low <= y[200:]) & (y[200:] <= high)) > 0.9 - 5 * np.sqrt(0.09 / 200), likelihood
        assert scores[likelihood] > scores["gaussian"], likelihood


@pytest.mark.slow
def test_two_ordered_classes_are_logistic_regression(rows):
    """At temperature 0, where the weights are the mode under a normal prior, and there is no cut point to learn."""
    x, _, counts = rows
    y = (counts > np.median(counts)).astype(int)
    model = BayesianMLPClassifier((), likelihood="ordinal", temperature=0.0, num_samples=1, random_state=0).fit(x, y)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.column_stack([np.sqrt(2 / 3) * z, np.ones(len(z))])  # prior variances 2 / 3, and 1 of the bias
    exact = LogisticRegression(fit_intercept=False, tol=1e-8, max_iter=1000).fit(design, y).predict_proba(design)
    np.testing.assert_allclose(model.predict_proba(x), exact, atol=2e-3)


@pytest.mark.slow
def test_large_counts_are_fitted_as_their_logarithms():
    """Catches a start at a mean of 1, and a sampler that begins far from the narrow posterior and stays there."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (600, 2))
    log_mean = np.log(2000) + np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    y = generator.poisson(np.exp(log_mean))
    options = {"widths": (20,), "num_samples": 20, "random_state": 0}
    model = BayesianMLPRegressor(likelihood="poisson", **options).fit(x[:300], y[:300])
    error = np.log(model.predict(x[300:])) - log_mean[300:]
    # normal noise of the logarithms is as large as that of counts on average
    normal = BayesianMLPRegressor(noise=2000**-0.5, **options).fit(x[:300], np.log(y[:300]))
    other = normal.predict(x[300:]) - log_mean[300:]
    assert np.sqrt(np.mean(error**2)) < 1.5 * np.sqrt(np.mean(other**2))
