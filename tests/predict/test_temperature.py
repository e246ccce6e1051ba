"""Temperature scaling: the temperature against exact leave-one-out predictions, and what it changes in predictions."""

import numpy as np
import pytest
from scipy import optimize, special

import geodax as gx
from geodax.models import BayesianMLPClassifier
from geodax.predict.classes import classes_from_logits, loo_temperature

SMALL = {"num_warmup": 400, "num_samples": 25, "num_chains": 2, "random_state": 0}


def beta_draws(prior, powers, chances, num_draws=4000):
    """Labels of examples in groups with a chance each, their logits at draws of its posterior, and exact predictions.

    The prior of a group's chance is Beta(prior, prior), so that the posterior without an example has a closed form.
    """
    generator = np.random.default_rng(3)
    group = np.repeat(np.arange(len(chances)), len(powers) // len(chances))
    y = (generator.random(len(group)) < chances[group]).astype(int)
    counts = np.zeros((len(chances), 2))
    np.add.at(counts, (group, y), powers)
    drawn = generator.beta(prior + counts[:, 1], prior + counts[:, 0], (num_draws, len(chances)))[:, group]
    logits = np.stack([np.log1p(-drawn), np.log(drawn)], axis=-1)
    left = prior + counts[group]
    left[np.arange(len(y)), y] -= powers
    return y, logits, left / left.sum(axis=1, keepdims=True)


def best_temperature(p, y, powers):
    """The minimum over temperatures up to 1, one example in n + 2 of the other class."""
    share = 1 / (len(y) + 2)

    def loss(temperature):
        log_p = special.log_softmax(np.log(p) / temperature, axis=1)
        own, other = log_p[np.arange(len(y)), y], log_p[np.arange(len(y)), 1 - y]
        return -powers @ ((1 - share) * own + share * other)

    return optimize.minimize_scalar(loss, bounds=(0.001, 1.0), method="bounded", options={"xatol": 1e-8}).x


@pytest.mark.parametrize("power", [1.0, 0.3, 2.5, "unequal"])
@pytest.mark.parametrize("prior", [12.0, 40.0])
def test_the_temperature_is_that_of_exact_predictions(prior, power):
    """Within the error of 4,000 draws, seen in parts of them."""
    powers = np.random.default_rng(0).uniform(0.2, 2.0, 120) if power == "unequal" else np.full(120, power)
    y, logits, exact = beta_draws(prior, powers, np.array([0.05, 0.95, 0.1, 0.8]))
    expected = best_temperature(exact, y, powers)
    assert expected < 0.9
    given = powers if power == "unequal" else power
    parts = [loo_temperature(part, y, power=given) for part in np.split(logits, 10)]
    error = np.std(parts, ddof=1) / np.sqrt(10)
    assert abs(loo_temperature(logits, y, power=given) - expected) < 4 * error + 0.002 * expected


def test_it_never_flattens():
    """Draws that are too sure of themselves, and predictions that are right on average."""
    y, logits, exact = beta_draws(1.0, np.ones(400), np.array([0.3, 0.5]))
    assert loo_temperature(3 * logits, y) == 1.0
    well = best_temperature(exact, y, np.ones(400))
    assert loo_temperature(logits, y) == pytest.approx(well, abs=0.05)


@pytest.mark.parametrize("num_examples", [1, 4, 50])
def test_examples_that_are_all_predicted_right_leave_it_positive(num_examples):
    """The least loss is where one example in n + 2 has the other class: p = (n + 1) / (n + 2) for equal predictions."""
    y = np.arange(num_examples) % 2
    p = np.where(y[:, None] == [0, 1], 0.6, 0.4)
    scaled = (p[0] ** (1 / loo_temperature(np.log(p)[None], y))).tolist()
    assert max(scaled) / sum(scaled) == pytest.approx((num_examples + 1) / (num_examples + 2))


def test_labels_that_some_draws_hold_impossible():
    """They are as unlikely as a number can be."""
    logits = np.log(np.full((60, 4, 3), 1 / 3))
    logits[:5, 0, 0] = -np.inf
    finite = np.where(np.isinf(logits), -1000.0, logits)
    assert loo_temperature(logits, [0, 1, 2, 0]) == loo_temperature(finite, [0, 1, 2, 0])


def test_scaled_predictions():
    """Powers of the probabilities; parts of the entropy keep their proportion; impossible classes stay so."""
    logits = np.array([[[0.0, 1.0, -np.inf], [2.0, 0.0, 1.0], [0.0, -np.inf, -np.inf]]] * 2)
    logits[1, 0, 1] = -1.0
    found = classes_from_logits(logits)
    sharp = found.at_temperature(0.5)
    squares = found.probabilities**2
    np.testing.assert_allclose(sharp.probabilities, squares / squares.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(sharp.total, special.entr(sharp.probabilities).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(sharp.total, sharp.aleatoric + sharp.epistemic, atol=1e-12)
    np.testing.assert_allclose(sharp.epistemic[0] / sharp.total[0], found.epistemic[0] / found.total[0], rtol=1e-12)
    assert sharp.epistemic[0] > 0.0
    assert sharp.total[2] == 0.0
    each = found.at_temperature([1.0, 0.5, 2.0])
    np.testing.assert_array_equal(each.probabilities[0], found.probabilities[0])
    np.testing.assert_array_equal(each.probabilities[1], sharp.probabilities[1])
    for part, same in zip(found.at_temperature(1.0), found, strict=True):
        np.testing.assert_array_equal(part, same)


def test_what_does_not_fit_is_named():
    logits = np.zeros((5, 3, 2))
    for labels in ([0, 1], [0, 1, 2], [0, 1, -1], [0.0, 1.0, 1.0], ["a", "b", "b"]):
        with pytest.raises(ValueError, match="expected 3 labels from 0 to 1, one for each example, found"):
            loo_temperature(logits, labels)
    for power in (0.0, -1.0, np.inf, [1.0, 1.0]):
        with pytest.raises(ValueError, match=r"loo_temperature: expected power to be a positive number, or one for"):
            loo_temperature(logits, [0, 1, 1], power=power)
        with pytest.raises(ValueError, match="at_temperature: expected temperature to be a positive number"):
            classes_from_logits(logits).at_temperature(power)


@pytest.fixture(scope="module")
def rows():
    """Two classes that a line tells apart, and columns that say nothing."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((400, 3))
    y = (x[:, 0] + 0.1 * generator.standard_normal(400) > 0).astype(int)
    return x, y


@pytest.mark.thorough
def test_classifiers_of_rows_told_apart_are_sharpened(rows):
    """Better on new rows; not without scaling, for optima, and with fewer than 50 draws."""
    x, y = rows
    model = BayesianMLPClassifier((8,), **SMALL).fit(x[:100], y[:100])
    assert 0.1 < model.scaling_temperature_ < 0.8
    plain = BayesianMLPClassifier((8,), temperature_scaling=False, **SMALL).fit(x[:100], y[:100])
    np.testing.assert_allclose(plain.predict_proba(x), plain.predict_draws(x).mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(plain.predict_draws(x), model.predict_draws(x))
    assert (model.log_predictive(x[100:], y[100:]) - plain.log_predictive(x[100:], y[100:])).mean() > 0.02
    again = BayesianMLPClassifier((8,), **SMALL).with_posterior(x[:100], y[:100], model.posterior_)
    assert again.scaling_temperature_ == model.scaling_temperature_
    for other in ({"num_samples": 24}, {"inference": "ensemble"}, {"inference": "swag"}, {"temperature": 0.0}):
        unscaled = BayesianMLPClassifier((8,), **SMALL | other).fit(x[:100], y[:100])
        assert unscaled.scaling_temperature_ == 1.0


@pytest.mark.thorough
def test_the_temperature_of_a_fit_is_that_of_its_draws(rows):
    """Rows with missing cells take no part; weights and the sampler's temperature are powers of the likelihood."""
    x, y = rows[0][:80].copy(), rows[1][:80]
    x[:20, 2] = np.nan
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 80)
    model = BayesianMLPClassifier((8,), temperature=0.5, **SMALL).fit(x, y, weights)
    logits = np.log(model.predict_draws(x[20:]))
    expected = gx.predictive.loo_temperature(logits, y[20:], power=2 * weights[20:])
    # single precision of the fitted rows and weights
    assert model.scaling_temperature_ == pytest.approx(expected, rel=1e-5)
    assert expected < 0.8
    parts = model.predict_proba(x), model.predict_draws(x).mean(axis=0)
    np.testing.assert_allclose(parts[0][:20], parts[1][:20], atol=1e-12)
    assert (np.abs(parts[0] - parts[1])[20:] > 1e-4).mean() > 0.9
