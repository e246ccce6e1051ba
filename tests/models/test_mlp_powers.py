"""Power transforms of skewed inputs."""

import numpy as np
import pytest
from scipy import stats

from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.mlp.powers import find_powers


@pytest.fixture(scope="module")
def columns():
    """Skewed to the right, to the left, around another value, with zeros; and columns that stay as they are."""
    generator = np.random.default_rng(0)
    normal = generator.standard_normal((400, 6))
    zeros = np.where(generator.uniform(size=400) < 0.3, 0.0, np.exp(3 + normal[:, 3]))
    left_alone = [normal[:, 4], np.full(400, 7.0), np.arange(400) % 50 == 0, generator.uniform(5, 6, 400)]
    return np.column_stack(
        [np.exp(2 * normal[:, 0]), 100 - np.exp(normal[:, 1]), np.sinh(normal[:, 2]) ** 2 - 3, zeros, *left_alone]
    )


def test_skewed_columns_become_nearly_normal_and_others_stay(columns):
    """Catches transforms of columns that need none, and powers of the wrong side."""
    found = find_powers(columns)
    np.testing.assert_array_equal(found.power[4:], 1.0)
    bent = found(columns)
    np.testing.assert_array_equal(bent[:, 4:], columns[:, 4:])
    before, after = (np.abs(stats.skew(values[:, :4])) for values in (columns, bent))
    assert (before > 1.0).all()
    assert (after < 0.6 * before).all()
    assert found.power[0] < 0.3
    assert found.power[1] > 1.5


def test_only_clear_tails_are_shortened(columns):
    """Catches powers of mild skewness, of the spike of one value, and of three equally spaced values."""
    generator = np.random.default_rng(1)
    spike = np.where(generator.uniform(size=400) < 0.6, 0.0, np.exp(3 + generator.standard_normal(400)))
    others = np.column_stack([generator.gamma(8, 1, 400), spike, np.arange(400) % 3.0])
    np.testing.assert_array_equal(find_powers(others).power, 1.0)
    bent = find_powers(columns)(columns)[:, 0]
    assert abs(stats.skew(bent)) < 1.0  # around the median alone it is 2.2 or more


def test_transforms_are_monotone_beyond_the_data_and_keep_missing_cells(columns):
    """Catches the two branches joined with a jump, and a logarithm that ends at the smallest value."""
    found = find_powers(columns)
    places = np.concatenate([-np.logspace(100, -8, 200), [0.0], np.logspace(-8, 150, 200)])
    values = found(np.repeat(places[:, None], columns.shape[1], axis=1))
    assert (np.diff(values[:, :4], axis=0) >= 0).all()
    steps = found(np.repeat(np.linspace(-5, 5, 2001)[:, None], columns.shape[1], axis=1))[:, :4]
    assert (np.diff(steps, axis=0) > 0).all()
    assert np.isfinite(values).all()
    holes = columns.copy()
    holes[::3, 0] = np.nan
    holes[:, 3] = np.nan
    kept = find_powers(holes)
    assert kept.power[3] == 1.0
    np.testing.assert_array_equal(np.isnan(kept(holes)), np.isnan(holes))


def test_transforms_do_not_depend_on_units(columns):
    """Catches a logarithm of 1 + x, which is a line for small numbers."""
    scales = np.array([1e-6, 1e5, 1e-200, 1e3, 1.0, 1.0, 1.0, 1.0])
    one, other = find_powers(columns), find_powers(columns * scales)
    np.testing.assert_array_equal(one.power, other.power)
    np.testing.assert_allclose(one(columns)[:, :4], other(columns * scales)[:, :4], rtol=1e-6)


def test_weights_are_repeated_rows(columns):
    weights = np.arange(400) % 3 + 1
    one = find_powers(columns, weights.astype(float))
    other = find_powers(np.repeat(columns, weights, axis=0))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    assert not np.array_equal(one.unit, find_powers(columns).unit)


@pytest.mark.parametrize("make", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_networks_see_transformed_inputs_and_linear_models_do_not(columns, make):
    """Catches predictions of raw inputs, a linear model of powers, and earlier fits with other inputs than theirs."""
    y = np.arange(400) % 2
    model = make((3,), random_state=0)
    inputs, *_ = model.prepare(columns, y)
    z, x = find_powers(columns)(columns)[:, :4], columns[:, :4]
    np.testing.assert_allclose(inputs[:, :4], (z - z.mean(axis=0)) / z.std(axis=0), rtol=1e-5, atol=1e-6)
    plain = (x - x.mean(axis=0)) / x.std(axis=0)
    linear, *_ = make((), random_state=0).prepare(columns, y)
    np.testing.assert_allclose(linear[:, :4], plain, rtol=1e-5, atol=1e-6)
    model.has_powers = False
    earlier, *_ = model.prepare(columns, y)
    np.testing.assert_allclose(earlier[:, :4], plain, rtol=1e-5, atol=1e-6)
