"""Scores against scikit-learn, their standard errors against the bootstrap."""

import numpy as np
import pytest
from sklearn import metrics

from geodax.predict import held_out


def _numbers(n=400):
    generator = np.random.default_rng(0)
    y = 3.0 + generator.gamma(2.0, size=n)
    return y + 0.5 * generator.standard_normal(n), y


def _classes(num_classes, n=400):
    """Probabilities with ties, and labels that often are the most probable class."""
    generator = np.random.default_rng(1)
    p = generator.dirichlet(np.ones(num_classes), size=n).round(1) + 0.01
    p /= p.sum(axis=1, keepdims=True)
    return p, np.array([generator.choice(num_classes, p=row) for row in p])


NUMBERS = [
    (held_out.r_squared, lambda m, y: metrics.r2_score(y, m)),
    (held_out.root_mean_squared_error, lambda m, y: metrics.root_mean_squared_error(y, m)),
    (held_out.mean_absolute_error, lambda m, y: metrics.mean_absolute_error(y, m)),
]
CLASSES = [
    (held_out.accuracy, lambda p, y: metrics.accuracy_score(y, p.argmax(axis=1))),
    (held_out.log_loss, lambda p, y: metrics.log_loss(y, p, labels=range(p.shape[1]))),
    (held_out.auc, lambda p, y: metrics.roc_auc_score(y, p if p.shape[1] > 2 else p[:, 1], multi_class="ovr")),
]
CASES = [(score, theirs, _numbers()) for score, theirs in NUMBERS]
CASES += [(score, theirs, _classes(k)) for score, theirs in CLASSES for k in (2, 4)]


@pytest.mark.thorough
@pytest.mark.parametrize(("score", "theirs", "data"), CASES)
def test_scores_and_errors(score, theirs, data):
    predicted, y = data
    found = score(predicted, y)
    np.testing.assert_allclose(found.value, theirs(predicted, y), rtol=1e-10)
    np.testing.assert_allclose(found.influence.sum(), 0, atol=1e-8)
    generator = np.random.default_rng(2)
    drawn = [generator.integers(len(y), size=len(y)) for _ in range(400)]
    bootstrap = np.std([theirs(predicted[rows], y[rows]) for rows in drawn])
    # the bootstrap's own relative error is 1 / sqrt(800) = 0.035
    np.testing.assert_allclose(found.error, bootstrap, rtol=0.15)


SCORES = [*(score for score, _ in NUMBERS + CLASSES), held_out.brier]


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_copies_of_a_row_in_one_group_tell_nothing_more(score):
    """Value and error are those of the rows alone, also of a difference; rows that are groups change nothing."""
    for data in (_classes(2), _classes(3)) if score in SCORES[3:] else (_numbers(),):
        predicted, y = data
        found = score(predicted, y)
        np.testing.assert_array_equal(found.by_group(np.arange(len(y))).influence, found.influence)
        rows = np.random.default_rng(5).permutation(np.repeat(np.arange(len(y)), 4))
        copies = score(predicted[rows], y[rows]).by_group(rows.astype(str))
        np.testing.assert_allclose([copies.value, copies.error], [found.value, found.error], rtol=1e-10)
        other, of_copies = score(predicted[::-1], y), score(predicted[::-1][rows], y[rows]).by_group(rows.astype(str))
        np.testing.assert_allclose(of_copies.minus(copies).error, other.minus(found).error, rtol=1e-10)


def test_groups_of_hits_alone():
    """The error of a proportion of 1 is that of as many rows as groups, not of all rows."""
    hits = np.ones(400)
    found = held_out.proportion(hits).by_group(np.arange(400) // 20)
    assert found.value == 1
    np.testing.assert_allclose(found.error, held_out.proportion(hits[:20]).error, rtol=1e-12)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_weights_count_rows(score):
    """Against rows that are repeated; catches weights that are lost in a mean, a rank or the number of classes."""
    for data in (_classes(2), _classes(3)) if score in SCORES[3:] else (_numbers(),):
        predicted, y = data
        counts = np.random.default_rng(4).integers(0, 4, len(y))
        found = score(predicted, y, 2.5 * counts)
        repeated = score(np.repeat(predicted, counts, axis=0), np.repeat(y, counts))
        np.testing.assert_allclose(found.value, repeated.value, rtol=1e-12)
        np.testing.assert_allclose(found.influence.sum(), 0, atol=1e-8)
        same, without = score(predicted, y, np.full(len(y), 0.3)), score(predicted, y)
        np.testing.assert_allclose([same.value, same.error], [without.value, without.error], rtol=1e-12)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_errors_of_weighted_scores(score):
    """Against the bootstrap of rows with their weights; catches errors of repeated rows as if they were others."""
    predicted, y = _classes(3) if score in SCORES[3:] else _numbers()
    weights = np.random.default_rng(5).gamma(1.0, size=len(y))
    generator = np.random.default_rng(2)
    drawn = [generator.integers(len(y), size=len(y)) for _ in range(400)]
    bootstrap = np.std([score(predicted[rows], y[rows], weights[rows]).value for rows in drawn])
    np.testing.assert_allclose(score(predicted, y, weights).error, bootstrap, rtol=0.15)


def test_weights_are_checked():
    for weights in ([1.0, 2.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0]):
        with pytest.raises(ValueError, match="a weight of at least 0 for each of 3 rows"):
            held_out.mean([1.0, 2.0, 3.0], weights)


def test_differences_are_paired():
    """Two nearly equal predictions differ by less than the error of either."""
    predicted, y = _numbers()
    other = predicted + 0.01 * np.random.default_rng(3).standard_normal(len(y))
    one, two = (held_out.mean_absolute_error(m, y) for m in (predicted, other))
    gap = one.minus(two)
    assert gap.value == pytest.approx(one.value - two.value)
    assert gap.error < 0.1 * one.error
    each = np.abs(predicted - y) - np.abs(other - y)
    assert gap.error == pytest.approx(each.std(ddof=1) / np.sqrt(len(y)))


def test_proportions_of_one_have_an_error():
    found = held_out.proportion(np.ones(12, bool))
    share = 14 / 16
    assert found.value == 1
    assert found.error == pytest.approx(np.sqrt(share * (1 - share) / 16))


def test_scores_that_do_not_exist():
    assert np.isnan(held_out.r_squared([1.0, 2.0], [3.0, 3.0]).value)
    assert np.isnan(held_out.auc([[0.3, 0.7], [0.5, 0.5]], [1, 1]).value)
    assert held_out.log_loss([[1.0, 0.0], [0.5, 0.5]], [1, 1]).value == np.inf
    assert np.isnan(held_out.mean([1.0]).error)
    with pytest.raises(ValueError, match=r"shape \(2,\), but the targets \(3,\)"):
        held_out.r_squared([1.0, 2.0], [1.0, 2.0, 3.0])
