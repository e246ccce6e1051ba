"""Scores against cases by hand and loops, conformal sets against the coverage that theory gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from geodax.app.report.calibration import reliability_plot
from geodax.predict import scores
from geodax.predict.conformal import conformal_quantile, prediction_intervals, prediction_sets


def test_scores_of_a_case_by_hand():
    p = np.array([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25], [0.2, 0.6, 0.2], [0.0, 0.2, 0.8]])
    y = np.array([0, 1, 1, 0])
    assert scores.accuracy(p, y) == 0.5
    assert scores.log_probability(p[:3], y[:3]) == pytest.approx(np.log([0.9, 0.35, 0.6]).mean())
    assert scores.log_probability(p, y) == -np.inf
    first, second = 0.01 + 0.01, 0.16 + 0.65**2 + 0.0625
    third, fourth = 0.04 + 0.16 + 0.04, 1 + 0.04 + 0.64
    assert scores.brier(p, y) == pytest.approx((first + second + third + fourth) / 4)
    assert scores.mean_confidence(p) == pytest.approx((0.9 + 0.4 + 0.6 + 0.8) / 4)
    # two bins: (0, 0.5] holds the second example, wrong; (0.5, 1] holds 0.9 right, 0.6 right, 0.8 wrong
    assert scores.ece(p, y, num_bins=2) == pytest.approx(0.25 * 0.4 + 0.75 * abs(2 / 3 - 2.3 / 3))
    bins = scores.reliability(p, y, num_bins=2)
    np.testing.assert_array_equal(bins.counts, [1, 3])
    np.testing.assert_allclose(bins.confidence, [0.4, 2.3 / 3])
    assert scores.rmse([1.0, 2.0], [2.0, 4.0]) == pytest.approx(np.sqrt(2.5))
    assert scores.mnll([-1.0, 3.0]) == -1.0


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_calibration_error_against_a_loop(num_bins):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=200).round(1)
    p = np.maximum(p, 1e-3)
    p /= p.sum(axis=1, keepdims=True)
    p[:5] = [0.6, 0.2, 0.2]  # on an edge: belongs to the bin below it
    y = rng.integers(3, size=200)
    total = 0.0
    for b in range(num_bins):
        inside = [i for i in range(200) if b / num_bins < p[i].max() <= (b + 1) / num_bins]
        if inside:
            confidence = np.mean([p[i].max() for i in inside])
            right = np.mean([p[i].argmax() == y[i] for i in inside])
            total += len(inside) / 200 * abs(right - confidence)
    assert scores.ece(p, y, num_bins=num_bins) == pytest.approx(total, rel=1e-12)


def test_calibrated_predictions_have_no_calibration_error():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), size=200_000)
    y = (rng.random((200_000, 1)) > p.cumsum(axis=1)).sum(axis=1)
    assert scores.ece(p, y) < 15 * 0.5 / np.sqrt(200_000)
    assert scores.ece(p**3 / (p**3).sum(axis=1, keepdims=True), y) > 0.1


@pytest.mark.parametrize(
    ("p", "y", "words"),
    [
        ([[0.5, 0.5]], [2], "integer labels from 0 to 1"),
        ([[0.5, 0.5]], [0.0], "integer labels"),
        ([[2.0, -1.0]], [0], "softmax"),
        ([0.5, 0.5], [0], "a label per example"),
    ],
)
def test_scores_refuse_what_is_no_prediction(p, y, words):
    with pytest.raises(ValueError, match=words):
        scores.accuracy(np.array(p), np.array(y))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_probabilities_in_half_precision(dtype):
    """They sum to 1 up to the rounding of their type, and count as divided by their sums."""
    rng = np.random.default_rng(4)
    given = jax.nn.softmax(jnp.asarray(rng.normal(size=(200, 10)), dtype))
    labels = rng.integers(10, size=200)
    p = np.asarray(given).astype(np.float64)
    assert np.abs(p.sum(axis=1) - 1.0).max() > 1e-4
    p /= p.sum(axis=1, keepdims=True)
    for score in (scores.ece, scores.brier, scores.log_probability):
        assert score(given, labels) == pytest.approx(score(p, labels), rel=1e-12)
    for kind in ("aps", "lac"):
        found = prediction_sets(given[:100], labels[:100], given[100:], score=kind)
        np.testing.assert_array_equal(
            found.members, prediction_sets(p[:100], labels[:100], p[100:], score=kind).members
        )
    wrong = jnp.asarray([[0.5, 0.4], [0.5, 0.5]], dtype)
    with pytest.raises(ValueError, match="apply a softmax first"):
        scores.ece(wrong, [0, 1])
    with pytest.raises(ValueError, match="apply a softmax first"):
        prediction_sets(p[:, :2] / p[:, :2].sum(axis=1, keepdims=True), labels % 2, wrong)
    with pytest.raises(ValueError, match="apply a softmax first"):
        scores.ece(np.asarray(given).astype(np.float64), labels)


def test_quantile_of_few_scores():
    values = [5.0, 1.0, 4.0, 2.0, 3.0, 7.0, 6.0, 9.0, 8.0]
    assert conformal_quantile(values, 0.9) == 9.0  # (9 + 1) 0.9 = 9
    assert conformal_quantile(values, 0.91) == np.inf
    assert conformal_quantile(values, 1e-12) == 1.0
    assert conformal_quantile(values, 0.3) == 3.0  # 10 * 0.3 rounds up in floating point
    with pytest.raises(ValueError, match="between 0 and 1"):
        conformal_quantile(values, 1.0)


def coverage_is(found, n, coverage):
    """Whether shares of covered examples, one a calibration set, follow the Beta law of split-conformal sets."""
    rank = int(np.ceil((n + 1) * coverage - 1e-9))
    mean = rank / (n + 1)
    law = stats.beta(rank, n + 1 - rank)
    standard_error = found.std() / np.sqrt(len(found))
    assert mean >= coverage
    assert abs(found.mean() - mean) < 4 * standard_error
    # shares of 2,000 examples add a binomial error to the law's own
    variance = law.var() + mean * (1 - mean) / 2000
    assert abs(found.var() / variance - 1) < 4 * np.sqrt(2 / len(found))


def wrong_model(rng, size):
    """Probabilities that have little to do with how the labels come about."""
    truth = rng.dirichlet(np.ones(4), size=size)
    labels = (rng.random((size, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    return special.softmax(3 * np.log(truth) + rng.normal(size=truth.shape), axis=1), labels


@pytest.mark.thorough
@pytest.mark.parametrize("score", ["aps", "lac"])
def test_sets_cover_as_often_as_theory_says(score):
    rng = np.random.default_rng(2)
    found = []
    for trial in range(300):
        calibration, labels = wrong_model(rng, 49)
        new, truth = wrong_model(rng, 2000)
        sets = prediction_sets(calibration, labels, new, coverage=0.85, score=score, random_state=trial)
        found.append(sets.members[np.arange(2000), truth].mean())
    coverage_is(np.array(found), 49, 0.85)


@pytest.mark.parametrize("scaled", [False, True])
def test_intervals_cover_as_often_as_theory_says(scaled):
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        x, new = rng.normal(size=49), rng.normal(size=2000)
        y, truth = rng.gumbel(size=49) * (1 + x**2), rng.gumbel(size=2000) * (1 + new**2)
        scales = {"calibration_scale": 1 + np.abs(x), "scale": 1 + np.abs(new)} if scaled else {}
        interval = prediction_intervals(0.3 * x, y, 0.3 * new, coverage=0.85, **scales)
        found.append(((interval.lower <= truth) & (truth <= interval.upper)).mean())
    coverage_is(np.array(found), 49, 0.85)


def test_sets_of_a_case_by_hand():
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6]])
    y = np.array([1, 1, 2])
    new = np.array([[0.45, 0.35, 0.2], [0.05, 0.9, 0.05]])
    # 1 - p of the labels: 0.7, 0.3, 0.4; half of 4 is the second of them
    sets = prediction_sets(p, y, new, coverage=0.5, score="lac")
    assert sets.threshold == pytest.approx(0.4)
    np.testing.assert_array_equal(sets.members, [[False, False, False], [False, True, False]])
    # probability of the label and of what is more probable: 0.8, 0.7, 0.6
    sets = prediction_sets(p, y, new, coverage=0.75, random_state=None)
    assert sets.threshold == pytest.approx(0.8)
    np.testing.assert_array_equal(sets.members, [[True, True, False], [False, False, False]])
    assert prediction_sets(p, y, new, coverage=0.9).members.all()
    with pytest.raises(ValueError, match="score must be one of"):
        prediction_sets(p, y, new, score="raps")
    with pytest.raises(ValueError, match="or neither"):
        prediction_intervals(y, y, y, scale=y)


def test_weights_count_examples_of_a_reliability_diagram():
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.full(3, 0.3), size=400)
    y = (rng.random((400, 1)) > p.cumsum(axis=1)).sum(axis=1)
    counts = rng.integers(0, 4, 400)
    found = scores.reliability(p, y, num_bins=10, weights=counts)
    repeated = scores.reliability(np.repeat(p, counts, axis=0), np.repeat(y, counts), num_bins=10)
    for name in ("confidence", "accuracy", "shares"):
        np.testing.assert_allclose(getattr(found, name), getattr(repeated, name), rtol=1e-12)
    assert (found.counts <= scores.reliability(p, y, num_bins=10).counts).all()
    assert (found.counts[found.shares > 0] > 0).all()
    np.testing.assert_allclose(scores.reliability(p, y, num_bins=10, weights=np.full(400, 0.2)).counts.sum(), 400)
    title = reliability_plot(found).axes[0].get_title(loc="left")
    assert title == reliability_plot(repeated).axes[0].get_title(loc="left")


def test_reliability_diagram_shows_the_bins():
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.full(3, 0.3), size=400)
    y = (rng.random((400, 1)) > p.cumsum(axis=1)).sum(axis=1)
    bins = scores.reliability(p, y, num_bins=10)
    upper, lower = reliability_plot(bins).axes
    shown = upper.lines[1].get_xydata()
    is_used = bins.counts > 0
    np.testing.assert_allclose(shown, np.stack([bins.confidence, bins.accuracy], axis=1)[is_used])
    ends = np.array([segment[:, 1] for segment in upper.collections[0].get_segments()])
    n, share = bins.counts[is_used][:, None], bins.accuracy[is_used][:, None]
    np.testing.assert_allclose(np.abs(ends - share), 2 * np.sqrt(ends * (1 - ends) / n), atol=1e-12)  # Wilson's
    assert f"{scores.ece(p, y, num_bins=10):.3f} in 10 bins" in upper.get_title(loc="left")
    heights = [bar.get_height() for bar in lower.patches]
    np.testing.assert_allclose(heights, bins.counts / 400)
    empty = scores.Reliability(bins.edges, 0 * bins.counts, 0 * bins.confidence, 0 * bins.accuracy, 0 * bins.shares)
    assert "no examples" in [text.get_text() for text in reliability_plot(empty).axes[0].texts]
