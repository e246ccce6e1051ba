"""Importance and partial dependence of a linear network, whose values are known."""

import warnings
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from geodax.app.mlp import importance
from geodax.app.mlp.importance import partial_dependence, permutation_importance, with_some_draws
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.results import _of_counts, answer, judged_rows, results
from geodax.app.report.numbers import with_error
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor


@pytest.fixture(scope="module")
def fitted():
    """y = 2 a + an effect of the group + noise; b is noise."""
    generator = np.random.default_rng(0)
    a, b, group = generator.standard_normal(400), generator.standard_normal(400), generator.integers(3, size=400)
    y = 2 * a + np.array([0.0, 1.0, -1.0])[group] + 0.1 * generator.standard_normal(400)
    inputs = np.column_stack([a, b, np.eye(3)[group]])
    categories = (("group", "x"), ("group", "y"), ("group", "z"))
    names = ("a", "b", "group=x", "group=y", "group=z")
    data = LabelledTable(inputs, y, names, "y", np.arange(400) >= 300, (), categories)
    model = BayesianMLPRegressor(widths=(), num_warmup=500, num_samples=40, thinning=5, num_chains=2, random_state=0)
    return model.fit(*data.train), data


@pytest.mark.thorough
def test_permuting_an_input_costs_twice_its_variance(fitted):
    """For a linear function the expected increase of the squared error is 2 var(b x)."""
    model, data = fitted
    found = permutation_importance(model, data, judged_rows(model, data))
    assert list(found.scores) == ["a", "group", "b"]
    assert found.num_rows == 100
    total = data.test[1].var()
    for name, effect in (("a", 2 * data.test[0][:, 0]), ("group", data.test[0][:, 2:] @ [0.0, 1.0, -1.0])):
        score = found.scores[name]
        assert 0 < score.error < 0.3 * score.value
        assert abs(score.value - 2 * effect.var() / total) < 3 * score.error
    assert abs(found.scores["b"].value) < 0.01


def test_partial_dependence_of_a_linear_function_is_the_function(fitted):
    model, data = fitted
    numeric, category = partial_dependence(model, data, ["a", "group"])
    rows = np.tile(data.train[0][:1], (len(numeric.values), 1))
    rows[:, 0] = numeric.values
    own = with_some_draws(model).predict_draws(rows)
    np.testing.assert_allclose(np.diff(numeric.curves, axis=1), np.diff(own, axis=1), atol=1e-9)
    assert category.values == ["x", "y", "z"]
    medians = np.median(category.curves, axis=0)
    np.testing.assert_allclose(medians - medians[0], [0.0, 1.0, -1.0], atol=0.1)


def test_poisson_regression_converges_with_products_of_columns():
    """Without a warning; the residuals add up to zero, as at the maximum."""
    generator = np.random.default_rng(0)
    a = generator.uniform(10, 11, (100, 7))
    x = np.column_stack([a, *(a[:, i] * a[:, j] for i, j in combinations(range(7), 2))])
    y = generator.poisson(400 * np.exp(2 * np.sin(5 * a[:, 0]) * a[:, 1] / 10)).astype(float)
    names = tuple(f"x{i}" for i in range(28))
    data = LabelledTable(np.tile(x, (2, 1)), np.tile(y, 2), names, "y", np.arange(200) >= 100, (), ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = _of_counts(None, data, judged_rows(None, data))["linear model (Poisson)"].mean()
    assert rates.sum() == pytest.approx(y.sum(), rel=1e-8)


def test_of_many_categories_the_most_frequent_are_shown(fitted, monkeypatch):
    """With their own curves; missing cells do not count."""
    model, data = fitted
    (whole,) = partial_dependence(model, data, ["group"])
    monkeypatch.setattr(importance, "_MOST_LEVELS", 2)
    inputs = data.inputs.copy()
    inputs[inputs[:, 2] == 1, 2:] = [0.0, 0.0, 1.0]  # no row of the first is left
    inputs[0, 2:] = np.nan
    (some,) = partial_dependence(model, replace(data, inputs=inputs), ["group"])
    assert some.values == ["y", "z"]
    np.testing.assert_allclose(np.diff(some.curves, axis=1), np.diff(whole.curves, axis=1)[:, 1:], atol=1e-6)


def test_results_are_of_the_held_out_rows_beside_simpler_models(fitted):
    """A linear truth: the network and the linear model are alike, both far from the mean alone."""
    model, data = fitted
    found = results(model, data)
    network, linear, plain = (score.value for score in found.scores["RMSE"].values())
    x, y = data.test
    assert network == pytest.approx(np.sqrt(np.mean((model.predict(x) - y) ** 2)))
    assert linear == pytest.approx(0.1, abs=0.02)
    assert plain == pytest.approx(np.sqrt(np.mean((data.train[1].mean() - y) ** 2)))
    covered = found.scores["90 % coverage"]
    low, high = model.predict_quantiles(x)
    assert covered["network"].value == np.mean((low <= y) & (y <= high))
    assert covered["linear model (ridge)"].value == pytest.approx(0.9, abs=0.09)
    assert "On 100 held-out rows the network predicts `y` with R² = 0.99" in answer(found, "y")


def test_simpler_models_that_predict_better_are_named(fitted):
    """Where the relation is reversed, the mean predicts better than what follows the relation of the fitted rows."""
    model, data = fitted
    reversed_later = replace(data, targets=np.where(data.is_test, -data.targets, data.targets))
    found = results(model, reversed_later)
    gap = found.scores["RMSE"]["network"].minus(found.scores["RMSE"]["mean alone"])
    *_, last = found.lines()
    assert last == f"Simpler models predict these better: mean alone (RMSE {with_error(gap.value, gap.error)} lower)."
    assert gap.value > 1.0
    assert not any("mean alone (" in line for line in results(model, data).lines())


def test_many_rows_are_judged_by_some_of_them(fitted):
    model, data = fitted
    inputs, targets = np.tile(data.inputs, (125, 1)), np.tile(data.targets, 125)
    many = LabelledTable(inputs, targets, data.names, "y", np.ones(50_000, bool), (), data.categories)
    rows = judged_rows(model, many)
    assert rows.words == "20,000 of 50,000 held-out rows"
    np.testing.assert_array_equal(rows.targets, targets[np.linspace(0, 49_999, 20_000).astype(int)])


def test_without_held_out_rows_the_scores_are_of_the_fitted_rows_and_say_so(fitted):
    model, data = fitted
    inputs, targets = data.train
    alone = LabelledTable(inputs, targets, data.names, "y", np.zeros(300, bool), (), data.categories)
    found = results(model, alone)
    assert found.lines()[0].startswith("300 fitted rows")
    assert "too good" in found.rows.caution


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["real", "counts", "classes"])
def test_weighted_rows_have_the_scores_of_repeated_ones(kind):
    """Catches weights that miss a score or one of the models beside the network, and those of the fitted rows."""
    generator = np.random.default_rng(5)
    x, counts = generator.standard_normal((120, 2)), generator.integers(1, 5, 120)
    signal = x[:, 0] + 0.5 * generator.standard_normal(120)
    y = {"real": 3.0 * signal, "counts": generator.poisson(np.exp(signal)), "classes": np.digitize(signal, [-0.5, 1.0])}
    targets = np.array(["abc"[k] for k in y[kind]]) if kind == "classes" else y[kind].astype(float)
    data = LabelledTable(x, targets, ("a", "b"), "y", np.arange(120) % 3 == 0, (), weights=counts.astype(float))
    options = {"num_warmup": 50, "num_samples": 3, "num_chains": 2, "random_state": 0}
    options |= {"likelihood": "poisson"} if kind == "counts" else {}
    model = (BayesianMLPClassifier if kind == "classes" else BayesianMLPRegressor)((3,), **options)
    model.fit(*data.train, data.train_weights)
    repeated = LabelledTable(
        *(np.repeat(part, counts, axis=0) for part in (x, targets)),
        ("a", "b"),
        "y",
        np.repeat(data.is_test, counts),
        (),
    )
    found, expected, without = (
        results(model, data),
        results(model, repeated),
        results(model, replace(data, weights=np.zeros(0))),
    )
    assert found.lines()[0].startswith("40 weighted held-out rows")
    for name, each in expected.scores.items():
        for which, score in each.items():
            np.testing.assert_allclose(
                found.scores[name][which].value, score.value, rtol=1e-5, err_msg=f"{name}, {which}"
            )
        np.testing.assert_allclose(found.scores[name]["network"].value, each["network"].value, rtol=1e-12)
        assert abs(found.scores[name]["network"].value / without.scores[name]["network"].value - 1) > 1e-3


def test_few_held_out_rows_are_rough(fitted):
    model, data = fitted
    few = LabelledTable(data.inputs, data.targets, data.names, "y", np.arange(400) >= 399, (), data.categories)
    found = results(model, few)
    assert found.lines()[0].startswith("1 held-out row  ")
    assert "only 1 held-out row could be used" in found.rows.caution
    assert answer(found, "y").endswith("(± is one standard error).")
