"""Missing inputs: their joint distribution, draws given the observed cells, and networks that average over them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.missing import NUM_DRAWS, draw_missing, indicator_columns, joint_normal, num_draws_for
from geodax.models.unit_network import density

COVARIANCE = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])


@pytest.fixture(scope="module")
def holes():
    """Normal rows; the second column is missing where the first is large, the third in a fifth of the rows."""
    generator = np.random.default_rng(0)
    rows = generator.multivariate_normal(np.zeros(3), COVARIANCE, 5000)
    data = rows.copy()
    data[rows[:, 0] > 0.5, 1] = np.nan
    data[generator.random(5000) < 0.2, 2] = np.nan
    return rows, data


def test_em_corrects_for_cells_that_are_missing_at_random(holes):
    _, data = holes
    joint = joint_normal(data)
    assert abs(np.nanmean(data[:, 1])) > 0.3  # what the observed cells alone suggest
    np.testing.assert_allclose(joint.mean, 0.0, atol=0.06)
    np.testing.assert_allclose(np.linalg.inv(joint.precision), COVARIANCE, atol=0.06)


def test_draws_have_the_conditional_distribution_and_keep_observed_cells(holes):
    rows, data = holes
    joint = joint_normal(rows)
    some = np.array([[1.0, np.nan, np.nan], [np.nan, 0.5, np.nan], [1.0, 0.5, 0.2]])
    drawn = draw_missing(joint, np.repeat(some, 500, axis=0), NUM_DRAWS, np.random.default_rng(1))
    drawn = drawn.reshape(3, -1, 3)
    np.testing.assert_array_equal(drawn[2], np.broadcast_to(some[2], drawn[2].shape))
    np.testing.assert_array_equal(drawn[0, :, 0], 1.0)
    np.testing.assert_allclose(drawn[0].mean(axis=0), [1.0, 0.8, 0.3], atol=0.05)
    rest = COVARIANCE[1:, 1:] - np.outer(COVARIANCE[0, 1:], COVARIANCE[0, 1:])
    np.testing.assert_allclose(np.cov(drawn[0, :, 1:].T), rest, atol=0.05)
    np.testing.assert_allclose(drawn[1, :, [0, 2]].mean(axis=1), [0.4, 0.25], atol=0.05)
    low, high = joint.lowest, joint.highest
    assert ((low <= drawn) & (drawn <= high)).all()
    alone, among = draw_missing(joint, data[:1], 4), draw_missing(joint, data[:50], 4)
    np.testing.assert_array_equal(alone[0], among[0])


def test_indicators_are_of_columns_that_are_often_missing_each_pattern_once():
    missing = np.zeros((100, 5), bool)
    missing[:20, 0] = missing[:20, 1] = missing[10:25, 2] = True
    missing[:4, 3] = True
    assert indicator_columns(missing).tolist() == [0, 2]
    many = np.arange(3000)[:, None] < np.array([0, 30, 300])
    assert [num_draws_for(rows) for rows in (many[:, :1], many[:, :2], many, missing)] == [1, 2, 8, 16]


@pytest.fixture(scope="module")
def noisy_line():
    """y = 2 a plus noise 0.3; a is missing in half of the rows, and b has the correlation 0.8 with it."""
    generator = np.random.default_rng(2)
    a, b = generator.multivariate_normal(np.zeros(2), [[1.0, 0.8], [0.8, 1.0]], 300).T
    y = 2 * a + 0.3 * generator.standard_normal(300)
    x = np.column_stack([np.where(generator.random(300) < 0.5, np.nan, a), b])
    model = BayesianMLPRegressor((), num_warmup=600, num_samples=60, thinning=8, num_chains=4, random_state=0)
    return model.fit(x, y), x, y


@pytest.mark.thorough
def test_a_regression_on_an_input_that_is_often_missing(noisy_line):
    """The coefficients are not attenuated, the noise is that of the complete rows, and missing inputs widen."""
    model, x, y = noisy_line
    assert model.indicators_.tolist() == [0]
    rest = (y - 1.6 * x[:, 1])[np.isnan(x[:, 0])]  # its mean is the coefficient of the indicator
    mean, deviation = model.predict([[1.0, 0.5], [0.0, 0.5], [np.nan, 1.0], [np.nan, -1.0]], return_std=True)
    np.testing.assert_allclose(mean[0] - mean[1], 2.0, atol=0.2)
    np.testing.assert_allclose(mean[2:], rest.mean() + np.array([1.6, -1.6]), atol=0.25)
    np.testing.assert_allclose(deviation[:2], 0.3, atol=0.05)
    np.testing.assert_allclose(deviation[2:], rest.std(), atol=0.15)


@pytest.mark.thorough
def test_predictions_of_rows_with_missing_cells_are_their_own(noisy_line):
    model, x, y = noisy_line
    rows = np.flatnonzero(np.isnan(x[:, 0]))[:3]
    together = model.log_predictive(x[:40], y[:40])
    assert np.isfinite(together).all()
    for row in rows:
        np.testing.assert_allclose(model.log_predictive(x[[row]], y[[row]]), together[row], rtol=1e-9)
    assert model.predict_draws(x[:40]).shape == (240, 40)
    again = BayesianMLPRegressor(**model.get_params()).with_posterior(x, y, model.posterior_)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.thorough
def test_the_likelihood_is_averaged_over_the_draws(noisy_line):
    model, x, y = noisy_line
    problem, (inputs, targets, _) = model.problem(), model.prepare(x, y)
    assert inputs.shape == (300, 16, 3)
    network = problem.build(jax.random.key(0))
    position, y_batch = network, jnp.asarray(targets[:5])
    of_one = eqx.filter_jit(problem_of_one(problem))
    each = [of_one(position, (jnp.asarray(inputs[:5, k]), y_batch)) for k in range(16)]
    found = eqx.filter_jit(problem.log_likelihood())(position, (jnp.asarray(inputs[:5]), y_batch))
    np.testing.assert_allclose(found, np.log(np.mean(np.exp(each), axis=0)), rtol=1e-5)
    bound = eqx.filter_jit(problem.log_likelihood(as_bound=True))(position, (jnp.asarray(inputs[:5]), y_batch))
    np.testing.assert_allclose(bound, np.mean(each, axis=0), rtol=1e-5)


def problem_of_one(problem):
    return dataclasses.replace(problem, num_incomplete=0).log_likelihood()


@pytest.mark.thorough
def test_a_classifier_takes_missing_cells_and_names_empty_columns():
    generator = np.random.default_rng(3)
    x = generator.standard_normal((60, 2))
    labels = np.where(x[:, 0] > 0, "up", "down")
    x[::3, 0] = np.nan
    small: dict[str, Any] = {"num_warmup": 200, "num_samples": 8, "thinning": 4, "num_chains": 2, "random_state": 0}
    for inference in ("mcmc", "mean-field"):
        model = BayesianMLPClassifier((), inference=inference, calibration_fraction=0.2, **small).fit(x, labels)
        p = model.predict_proba([[3.0, 0.0], [np.nan, 0.0], [-3.0, 0.0]])[:, 1]
        assert p[0] > 0.7 > p[1] > 0.3 > p[2]
    x[:, 1] = np.nan
    with pytest.raises(ValueError, match="column 1 of X has no value in the fitted rows"):
        model.fit(x, labels)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.where(np.isnan(x), np.inf, x), labels)


@pytest.mark.thorough
def test_the_density_of_a_unit_network_is_averaged_over_the_draws():
    generator = np.random.default_rng(4)
    x, y = generator.standard_normal((6, 5, 2)), generator.standard_normal(6)
    form, prior = density.UnitNetworkForm(), density.UnitNetworkPrior()
    position = {"units": jnp.array([[0.6, 0.8, 0.0]]), "output": jnp.ones(1), "intercept": jnp.zeros(())}
    position |= {"log_noise": jnp.asarray(-0.5)}
    found = density.log_density(x, y, form, prior)(position)
    each = np.array([[row_density(x[i : i + 1, k], y[i : i + 1], position) for k in range(5)] for i in range(6)])
    alone = density.log_density(x[:0, 0], y[:0], form, prior)(position)  # the prior
    expected = alone + np.log(np.mean(np.exp(each - alone), axis=1)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def row_density(x, y, position):
    return density.log_density(x, y, density.UnitNetworkForm(), density.UnitNetworkPrior())(position)
