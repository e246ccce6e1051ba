"""Bayesian networks of dense layers: posterior against closed forms, predictions, conformal sets, options, errors."""

import pickle
import warnings
from contextlib import nullcontext
from copy import deepcopy

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

import geodax as gx
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.mlp import INFERENCES, stochastic
from geodax.models.mlp.weights import whole_groups
from tests.marks import slow
from tests.models.prior import Prior

SMALL = {"num_warmup": 40, "num_samples": 6, "thinning": 2, "num_chains": 2, "random_state": 0}


def _linear(x, y, noise):
    """Posterior of the weights and the bias of linear regression in standardised units, by conjugacy."""
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    t, sd = (y - y.mean()) / y.std(), noise / y.std()
    design = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    prior = np.append(np.full(z.shape[1], z.shape[1] / 2.0), 1.0)  # variance 2 / fan-in, and 1 of the bias
    covariance = np.linalg.inv(design.T @ design / sd**2 + np.diag(prior))
    return design, covariance @ design.T @ t / sd**2, covariance


def test_inputs_of_two_values_are_divided_by_half_their_distance():
    """Catches rare categories that are as far from the others as their deviation is small."""
    x = np.random.default_rng(1).standard_normal((40, 4))
    x[:, 1] = np.arange(40) == 7
    x[:, 2] = np.where(np.arange(40) < 4, 3.0, -1.0)
    x[5:17, 2] = np.nan
    x[:, 3] = np.arange(40) % 3
    model = BayesianMLPRegressor((2,), random_state=0)
    inputs, *_ = model.prepare(x, x[:, 0])
    np.testing.assert_allclose(model.spread_, [x[:, 0].std(), 0.5, 2.0, x[:, 3].std()])
    np.testing.assert_allclose(
        np.ptp(inputs[:, 0], axis=0)[[1, 4]], 2.0, rtol=1e-6
    )  # the category, and what is missing
    model.halves_distances = False
    model.prepare(x, x[:, 0])
    np.testing.assert_allclose(model.spread_, np.nanstd(x, axis=0))


@pytest.fixture(scope="module")
def line():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((24, 3)) * np.array([1.0, 5.0, 0.2]) + 3
    return x, 2.0 * x[:, 0] - 10 * x[:, 2] + 1.5 * generator.standard_normal(24)


def _fitted(sampler, step_size, line):
    """Linear regression by a network without hidden layers; batches are all the data."""
    model = BayesianMLPRegressor(
        (), noise=1.5, sampler=sampler, step_size=step_size, num_warmup=200, num_samples=150, thinning=20, num_chains=16,
        random_state=0,
    )  # fmt: skip
    return model.fit(*line)


@pytest.fixture(scope="module")
def linear(line):
    return _fitted("sghmc", 0.04, line)


@pytest.mark.parametrize("sampler", ["sghmc", slow("sgrld")])
def test_a_network_without_hidden_layers_is_linear_regression(sampler, linear, line):
    """Mean and variance of the function agree with the conjugate posterior, within errors over chains.

    The order of the steps of sghmc leaves the variance of a Gaussian law alone; sgrld with step size h has the
    precision P - h P P / 2 in place of P, which is what is expected here.
    """
    x, y = line
    step_size = 0.001
    model = linear if sampler == "sghmc" else _fitted("sgrld", step_size, line)
    design, weights, covariance = _linear(x, y, 1.5)
    if sampler == "sgrld":
        precision = np.linalg.inv(covariance)
        covariance = np.linalg.inv(precision - 0.5 * step_size * precision @ precision)
    exact = np.einsum("ni,ij,nj->n", design, covariance, design) * y.var()
    draws = model.predict_draws(x).reshape(150, 16, len(x)) - (y.mean() + y.std() * design @ weights)
    for value, truth in ((draws, 0.0), (draws**2, exact)):
        chains = value.mean(axis=0)
        error = chains.std(axis=0, ddof=1) / 4
        np.testing.assert_array_less(np.abs(chains.mean(axis=0) - truth), 5 * error)


def test_predictions_belong_together(linear, line):
    x, y = line
    mean, deviation = linear.predict(x, return_std=True)
    parts, draws = linear.predict_parts(x, y), linear.predict_draws(x)
    np.testing.assert_allclose(parts.aleatoric, 1.5**2, rtol=1e-5)
    np.testing.assert_allclose(parts.epistemic, draws.var(axis=0), rtol=1e-9)
    np.testing.assert_allclose(mean, draws.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(linear.sample_y(x).std(axis=0), deviation, rtol=0.1)
    places = np.linspace(mean[0] - 30, mean[0] + 30, 2001)
    weights = np.exp(linear.log_predictive(np.repeat(x[:1], len(places), axis=0), places))
    np.testing.assert_allclose(np.trapezoid(weights, places), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.trapezoid(weights * (places - mean[0]) ** 2, places), deviation[0] ** 2, rtol=1e-4)
    low, high = linear.predict_quantiles(x[:1], (0.05, 0.9))
    np.testing.assert_allclose(np.trapezoid(weights * (places < low), places), 0.05, atol=2e-3)
    np.testing.assert_allclose(np.trapezoid(weights * (places < high), places), 0.9, atol=5e-3)
    np.testing.assert_allclose(linear.predict_cdf(x[:1], high), 0.9, rtol=1e-6)
    assert linear.score(x, y) > 0.6
    again = clone(linear).with_posterior(x, y, linear.posterior_)
    np.testing.assert_array_equal(again.predict(x), mean)


@pytest.fixture(scope="module")
def blobs():
    """Three classes with names, of which two overlap, on columns of very different scales."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, 240)
    centers = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 6.0]])
    x = (centers[labels] + generator.standard_normal((240, 2))) * np.array([1.0, 1e3])
    return x, np.array(["plum", "apple", "cherry"])[labels]


@pytest.fixture(scope="module")
def classifier(blobs, tmp_path_factory):
    x, y = blobs
    model = BayesianMLPClassifier(
        (8,),
        num_warmup=400,
        num_samples=20,
        num_chains=2,
        batch_size=40,
        calibration_fraction=0.4,
        random_state=0,
        checkpoint=tmp_path_factory.mktemp("classifier"),
    )
    return model.fit(x[:200], y[:200])


@pytest.mark.thorough
def test_classes(classifier, blobs):
    """Near the accuracy of the rule that knows the law; its parts of uncertainty add up; sets cover."""
    x, y = blobs
    scaled = x / np.array([1.0, 1e3])
    best = np.stack(
        [multivariate_normal.logpdf(scaled, center) for center in ((2.0, 0.0), (0.0, 6.0), (0.0, 0.0))], axis=1
    )
    assert classifier.classes_.tolist() == ["apple", "cherry", "plum"]
    assert classifier.score(x, y) > np.mean(classifier.classes_[best.argmax(axis=1)] == y) - 0.04
    parts = classifier.predict_parts(x)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-12)
    powers = classifier.predict_draws(x).mean(axis=0) ** (1 / classifier.scaling_temperature_)
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), parts.probabilities, atol=1e-12)
    numbers = np.searchsorted(classifier.classes_, y)
    np.testing.assert_allclose(
        classifier.log_predictive(x, y), np.log(parts.probabilities[np.arange(len(y)), numbers]), rtol=1e-10
    )
    assert (classifier.log_predictive(x[:1], ["pear"]) == -np.inf).all()
    probabilities, labels = classifier.calibration_
    assert len(labels) == 80
    assert probabilities.shape == (80, 3)
    members = classifier.predict_set(x[200:], alpha=0.2)
    # 40 rows, and a threshold from 80: five standard deviations of the beta-binomial law below 0.8
    assert members[np.arange(40), numbers[200:]].mean() > 0.8 - 5 * np.sqrt(0.16 / 40 + 0.16 / 80)


@pytest.mark.thorough
def test_the_set_of_a_row_is_its_own(classifier, blobs):
    """Alone, in other company and beside all others, although matrices of other shapes round otherwise."""
    x, _ = blobs
    together = classifier.predict_set(x)
    for rows in (*(slice(k, k + 1) for k in range(150, 240, 6)), slice(3, 40)):
        np.testing.assert_array_equal(classifier.predict_set(x[rows]), together[rows])


class _Shares(BayesianMLPClassifier):
    """Without a network: the shares of the classes among the fitted rows, whatever the inputs."""

    def _learn_targets(self, y, weights=None):
        numbers = super()._learn_targets(y, weights)
        self.shares_ = np.bincount(numbers) / len(numbers)
        return numbers

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))


@pytest.mark.thorough
@pytest.mark.parametrize("score", ["aps", "lac"])
def test_classes_that_the_fit_has_not_seen_count_in_the_calibration(score):
    """Their rows are missed by every set, so that the sets of the others have to be larger."""
    found, num_unseen = [], 0
    for trial in range(150):
        generator = np.random.default_rng(trial)
        law = generator.dirichlet(np.full(40, 0.4))
        y, new = generator.choice(40, 120, p=law), generator.choice(40, 300, p=law)
        model = _Shares((), calibration_fraction=0.4, temperature_scaling=False, random_state=trial)
        model.with_posterior(generator.standard_normal((120, 1)), y, None)
        assert len(model.calibration_[1]) == 48
        num_unseen += np.sum(model.calibration_[1] == -1)
        members = model.predict_set(np.zeros((300, 1)), alpha=0.2, score=score)
        place = np.minimum(np.searchsorted(model.classes_, new), len(model.classes_) - 1)
        found.append(np.mean((model.classes_[place] == new) & members[np.arange(300), place]))
    assert num_unseen > 150
    assert np.mean(found) > 0.8 - 3 * np.std(found) / np.sqrt(150)


@pytest.mark.thorough
def test_targets_and_levels_that_do_not_fit_are_errors(linear, line, classifier, blobs):
    x, y = line
    for targets in (y[:, None], y[:3], y[0]):
        with pytest.raises(ValueError, match="one target for each of the 24 rows"):
            linear.predict_cdf(x, targets)
    for level in (95, -0.1, np.nan):
        with pytest.raises(ValueError, match="a level must be at least 0 and at most 1"):
            linear.predict_quantiles(x, [0.05, level])
    for levels in (0.5, np.float64(0.5), "0.5"):
        with pytest.raises(TypeError, match=r"a sequence of probabilities such as \(0\.05, 0\.95\)"):
            linear.predict_quantiles(x, levels)
    assert linear.predict_quantiles(x, []).shape == (0, 24)
    np.testing.assert_array_equal(
        linear.predict_quantiles(x, np.array([0.0, 1.0])), np.array([[-np.inf], [np.inf]]).repeat(24, 1)
    )
    x, labels = blobs
    for found in (labels[:, None], labels[:3], pd.DataFrame({"kind": labels}), "plum"):
        with pytest.raises(ValueError, match="one label for each of the 240 rows"):
            classifier.log_predictive(x, found)
    np.testing.assert_array_equal(
        classifier.log_predictive(x, pd.Series(labels)), classifier.log_predictive(x, labels.tolist())
    )


@pytest.mark.slow
def test_an_interrupted_fit_goes_on(classifier, blobs):
    """The same call with more samples continues the stored run, and keeps the draws that are there."""
    x, y = blobs
    longer = clone(classifier).set_params(num_samples=24, checkpoint=classifier.checkpoint).fit(x[:200], y[:200])
    name = "layers.0.weight"
    before = classifier.posterior_["posterior"][name].values
    after = longer.posterior_["posterior"][name].values
    assert after.shape[1] == 24
    np.testing.assert_array_equal(after[:, :20], before)


@pytest.mark.slow
def test_intervals_of_a_regression(line):
    """Conformal intervals cover new rows of the same law, and parts on both sides are as wide."""
    generator = np.random.default_rng(2)
    x = generator.uniform(-3, 3, (300, 1))
    y = 100 + 20 * np.abs(x[:, 0]) + 4 * generator.standard_normal(300)
    model = BayesianMLPRegressor(
        (10,), num_warmup=400, num_samples=20, num_chains=2, calibration_fraction=0.3, random_state=1
    ).fit(x[:200], y[:200])
    found = model.predict_interval(x[200:], alpha=0.2)
    inside = np.mean((found.lower <= y[200:]) & (y[200:] <= found.upper))
    assert abs(inside - 0.8) < 5 * np.sqrt(0.16 / 100 + 0.16 / 60)
    np.testing.assert_allclose(found.upper + found.lower, 2 * model.predict(x[200:]), rtol=1e-9)
    noise = np.exp(model.posterior_["posterior"]["log_noise"].values) * model.target_spread_
    assert 3 < noise.mean() < 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "sgrld", "metric": "monge"},
        {"sampler": "sgrld", "metric": "rmsprop"},
        {"sampler": "sgrld", "metric": gx.metrics.Wenzel(), "prior": "laplace"},
        {"metric": "shampoo", "prior": "student-t"},
        {"orthogonal": True, "metric": "rmsprop"},
        {"rank": 2, "activation": "tanh"},
        {"prior": "horseshoe"},
        {"prior": "local-horseshoe"},
        {"prior": "laplace", "temperature": 0.1},
        {"prior": "hierarchical-horseshoe", "temperature": 0.0},
        {"prior": [("*bias", gx.nn.Gaussian(1.0)), ("*", gx.nn.Laplace(0.3))], "activation": "gelu"},
    ],
    ids=str,
)
def test_options(blobs, options):
    """Each combination learns the three classes."""
    x, y = blobs
    model = BayesianMLPClassifier((8, 8), num_warmup=600, num_samples=10, num_chains=2, random_state=0, **options)
    assert model.fit(x, y).score(x, y) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["sghmc", "sgrld"])
@pytest.mark.parametrize("metric", ["identity", "rmsprop"])
def test_defaults_on_digits(sampler, metric):
    """A metric of squared gradients that training shrinks to nothing, so that the first draws leave the numbers."""
    x, y = load_digits(return_X_y=True)
    x, test, y, labels = train_test_split(x, y, test_size=0.4, random_state=0)
    probabilities = BayesianMLPClassifier(sampler=sampler, metric=metric, random_state=0).fit(x, y).predict_proba(test)
    assert gx.scores.log_probability(probabilities, labels) > -0.25
    assert gx.scores.accuracy(probabilities, labels) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["horseshoe", "hierarchical-horseshoe"])
def test_no_chain_ends_in_the_pole_of_its_prior(prior):
    """Training at temperature 0, whose optimum is a layer of zeros."""
    x, y = load_breast_cancer(return_X_y=True)
    x, test, y, labels = train_test_split(x, y, test_size=0.4, random_state=0)
    model = BayesianMLPClassifier(prior=prior, num_samples=50, random_state=0).fit(x, y)
    assert gx.scores.log_probability(model.predict_proba(test), labels) > -0.12
    for name, draws in model.posterior_["posterior"].items():
        if name.endswith("weight"):
            sizes = np.sqrt((draws.values**2).mean(axis=tuple(range(1, draws.ndim))))  # of each chain
            assert sizes.min() > 0.02, name


def test_a_new_fit_forgets_the_calibration_of_the_last(line):
    """With no rows held out, by a fit as by draws that were made before."""
    x, y = line
    model = BayesianMLPRegressor((), inference=Prior(), calibration_fraction=0.3, random_state=0).fit(x, y)
    assert np.isfinite(model.predict_interval(x, alpha=0.2).threshold)
    model.set_params(calibration_fraction=0.0)
    for again in (lambda: model.fit(x, 1e3 * y), lambda: model.with_posterior(x, y, model.posterior_)):
        model.calibration_ = (y, y, np.ones(24))
        again()
        with pytest.raises(ValueError, match="no rows were held out"):
            model.predict_interval(x)


def test_rows_that_calibrate_can_be_given(line):
    """By number or by Booleans, in the rows of the call where some have no weight; they are not fitted."""
    x, y = line
    weights = np.where(np.arange(24) < 4, 0.0, 1.0)
    for rows in ([9, 3, 20], np.isin(np.arange(24), [3, 9, 20])):
        model = BayesianMLPRegressor((), inference=Prior(), random_state=0).fit(x, y, weights, calibration=rows)
        np.testing.assert_array_equal(model.calibration_[0], y[[9, 20]])
        np.testing.assert_allclose(model.center_, np.delete(x, [0, 1, 2, 3, 9, 20], axis=0).mean(axis=0))
        again = BayesianMLPRegressor((), inference=Prior(), random_state=0)
        again.with_posterior(x, y, model.posterior_, weights, calibration=rows)
        np.testing.assert_array_equal(again.calibration_, model.calibration_)
    for wrong in ([24], [-1], np.ones(23, bool), np.arange(24) % 2, [0.5], "all"):  # ones are no Booleans
        with pytest.raises(ValueError, match="calibration must be 24 Booleans"):
            model.fit(x, y, calibration=wrong)
    with pytest.raises(ValueError, match="calibration leaves 1 of 24 rows"):
        model.fit(x, y, calibration=np.arange(24) > 0)


def test_groups_are_held_out_whole(line):
    """For calibration, whichever rows have no weight; the network problem has the groups of the fitted rows."""
    x, y = line
    names = np.array([f"p{k}" for k in np.arange(24) // 3])
    weights = np.where(np.arange(24) < 3, 0.0, 1.0)
    model = BayesianMLPRegressor((), inference=Prior(), calibration_fraction=0.3, random_state=0)
    model.fit(x, y, weights, groups=names)
    is_calibrating = np.isin(y, model.calibration_[0])
    assert is_calibrating.sum() == 6
    assert not set(names[is_calibrating]) & set(names[~is_calibrating])
    groups = model.problem().groups
    assert sorted(np.bincount(groups)) == [0] * (groups.max() - 4) + [3] * 5
    with pytest.raises(ValueError, match="groups must be 24 labels"):
        model.fit(x, y, groups=names[:5])


def test_a_large_group_is_not_held_out():
    """Wherever it stands among the others; the last groups are taken as they are."""
    groups = np.repeat([0, 1, 2, 3, 4, 5], [80, 4, 4, 4, 4, 4])
    for seed in range(20):
        chosen = whole_groups(groups, 10, np.random.default_rng(seed))
        assert chosen.sum() in (8, 12)
        assert not chosen[0]
    assert whole_groups(5 - groups, 10).sum() == 80
    assert whole_groups(np.repeat([0, 1], 50), 10, np.random.default_rng(0)).sum() == 50


class _ChosenError(Exception):
    pass


@pytest.mark.parametrize("inference", ["mcmc", "ensemble", "multi-swag", "laplace"])
def test_training_holds_out_whole_groups(line, inference, monkeypatch):
    """Else it goes on while the network learns to know the groups by their inputs. One large group is split."""
    (x, y), choose = line, stochastic._held_out

    def chosen(*args):
        raise _ChosenError(choose(*args))

    monkeypatch.setattr(stochastic, "_held_out", chosen)
    for groups, number in ((np.arange(24) // 3, 3), (np.zeros(24), 2), (None, 2)):
        with pytest.raises(_ChosenError) as caught:
            BayesianMLPRegressor((4,), inference=inference, random_state=0).fit(x, y, groups=groups)
        rows = np.flatnonzero(caught.value.args[0])
        assert len(rows) == number
        if number == 3:
            assert len(set(rows // 3)) == 1


@pytest.mark.parametrize("held_out", [7, 40])
def test_training_scales_the_examples_that_it_takes_to_all(held_out, key):
    """Whole groups may be many more than a tenth of the examples."""
    values = np.arange(100.0, dtype=np.float32)
    posterior = gx.Posterior(log_prior=lambda w: -w, log_likelihood=lambda w, x: w * x, num_data=100)
    groups = np.repeat([0, 1], [held_out, 100 - held_out])
    _, (data, mark), training = stochastic.held_out_training(key, posterior, values, 1, 100, groups)
    assert mark.sum() == held_out
    expected = -2.0 + 2.0 * values[~mark].mean() * 100
    np.testing.assert_allclose(
        training["objective"](jnp.float32(2.0), jax.tree.map(jnp.asarray, (data, mark))), expected, rtol=1e-5
    )


@pytest.mark.thorough
def test_probabilities_for_new_groups_are_not_sharpened(blobs):
    """Leave-one-out predictions of a row know its group from the others."""
    x, y = blobs
    x = np.where(y[:, None] == "plum", 0.5, 1.0) * x
    options: dict = {"num_warmup": 200, "num_samples": 30, "num_chains": 2, "random_state": 0}
    model = BayesianMLPClassifier((8,), **options).fit(x, y)
    assert model.scaling_temperature_ < 1
    grouped = BayesianMLPClassifier((8,), **options).with_posterior(x, y, model.posterior_, groups=np.arange(240) // 4)
    assert grouped.scaling_temperature_ == 1


def test_a_share_of_few_rows_is_one_of_them(line):
    """Catches a share that is rounded to nothing, of which one hears at the first conformal prediction."""
    x, y = line
    model = BayesianMLPRegressor((), inference=Prior(), calibration_fraction=0.1, random_state=0).fit(x[:4], y[:4])
    assert [len(part) for part in model.calibration_] == [1, 1, 1]
    assert model.predict_interval(x, alpha=0.2).threshold == np.inf
    with pytest.raises(ValueError, match="leaves 1 of 2 rows to fit"):
        model.fit(x[:2], y[:2])


@pytest.mark.thorough
@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_each_fit_draws_a_seed_of_its_own(line, random_state, tmp_path):
    """As in scikit-learn; draws that are taken back have the seed of their fit, as have those of a folder."""
    x, y = line
    options: dict = {"inference": Prior(), "calibration_fraction": 0.3, "random_state": random_state}
    model = BayesianMLPRegressor((), **options)
    fits = []
    for _ in range(2):
        fits.append(model.fit(x, y).posterior_["posterior"]["log_noise"].values)
        rows = model.calibration_
        model.with_posterior(x, y, model.posterior_)
        np.testing.assert_array_equal(model.calibration_, rows)
    assert not np.array_equal(*fits)
    for folder in ("one", "two"):
        model.set_params(checkpoint=str(tmp_path / folder))
        fits += [model.fit(x, y).posterior_["posterior"]["log_noise"].values for _ in range(2)]
        np.testing.assert_array_equal(fits[-1], fits[-2])
        assert not np.array_equal(fits[-2], fits[-3])


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_a_data_frame_with_calibration_rows_is_no_surprise(estimator, line):
    """No warning about names of columns, which the fit has seen; and the same numbers as from an array."""
    x, y = line
    frame, targets = pd.DataFrame(x, columns=list("abc")), np.digitize(y, [np.median(y)])
    options: dict = {"inference": Prior(), "calibration_fraction": 0.25, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = estimator((), **options).fit(frame, targets)
    for one, other in zip(model.calibration_, estimator((), **options).fit(x, targets).calibration_, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"inference": Prior()}, {"activation": "tanh"}),
        ({"inference": Prior(), "noise": 0.5}, {"noise": 5.0}),
        ({"inference": Prior(), "noise": 0.5}, {"noise": None, "widths": "nothing", "inference": "nothing"}),
        ({"inference": Prior()}, {"prior": "hierarchical-horseshoe"}),
        ({"inference": Prior()}, {"likelihood": "log-normal"}),
        ({"metric": "rmsprop"}, {"widths": (2, 2)}),
        slow({"inference": "whvi"}, {"inference": "mcmc", "orthogonal": True}),
        slow({"prior": "hierarchical-horseshoe", "rank": 1}, {"rank": None}),
        *(slow({"metric": metric}, {"activation": "tanh"}) for metric in ("identity", "wenzel", "monge", "shampoo")),
    ],
    ids="-".join,
)
def test_options_that_are_set_after_the_fit_are_for_the_next_one(line, options, changed):
    """Predictions are those of the fit, also of a copy, and they can be kept; a clone has the new options and no fit."""
    x, y = line
    model = BayesianMLPRegressor(**SMALL | {"widths": (3,), "step_size": 1e-3} | options).fit(x, y)
    before = model.predict(x, return_std=True)
    model.set_params(**changed)
    assert len(pickle.dumps(model))
    for one in (model, deepcopy(model)):
        np.testing.assert_array_equal(one.predict(x, return_std=True), before)
        assert {name: one.get_params()[name] for name in changed} == changed
    copy = clone(model)
    assert {name: copy.get_params()[name] for name in changed} == changed
    with pytest.raises(NotFittedError):
        copy.predict(x)


def test_another_inference(blobs, monkeypatch):
    """One that is given as an object or registered by name; predictions come from its draws."""
    x, y = blobs
    monkeypatch.setitem(INFERENCES, "prior", Prior)
    by_name, given = (BayesianMLPClassifier((), inference=i, random_state=0).fit(x, y) for i in ("prior", Prior()))
    assert by_name.predict_parts(x).num_draws == 5
    for name, values in by_name.posterior_["posterior"].data_vars.items():
        np.testing.assert_array_equal(values, given.posterior_["posterior"][name])


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({}, None),
        ({"orthogonal": True}, 1.0),
        ({"orthogonal": True, "prior_scale": 0.3}, 0.3),
        ({"orthogonal": True, "widths": ()}, None),
    ],
)
def test_last_weights_after_orthonormal_ones_are_free_to_scale(blobs, options, scale):
    """Only there, and only where no scale is given; else a variance of 2 over the number of inputs."""
    estimator = BayesianMLPClassifier(**SMALL | {"num_samples": 1, "num_warmup": 2, "step_size": 1e-4} | options)
    estimator.prepare(*blobs)
    problem = estimator.problem()
    described = problem.priors.describe(problem.build(jax.random.key(0)))
    *others, (shape, last) = [(shape, law) for path, shape, law in described if "weight" in path]
    assert last.scale == (scale or pytest.approx((2 / shape[1]) ** 0.5))
    for shape, law in others:
        assert isinstance(law, gx.nn.Haar) or law.scale == pytest.approx((2 / shape[1]) ** 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"widths": (5, 0)}, "widths must be positive"),
        ({"widths": 5}, "widths must be integers"),
        ({"activation": "step"}, "activation must be one of"),
        ({"prior": "flat"}, "prior must be one of"),
        ({"prior_scale": -1.0}, "scale must be a positive number"),
        ({"inference": "guess"}, "inference must be one of"),
        ({"sampler": "nuts"}, "sampler must be one of"),
        ({"metric": "euclid"}, "metric must be one of"),
        ({"sampler": "sgrld", "orthogonal": True}, "use sampler='sghmc'"),
        ({"orthogonal": True, "rank": 2}, "choose one of"),
        ({"rank": (1,)}, "as many ranks"),
        ({"num_warmup": 0}, "num_warmup must be at least 1"),
        ({"batch_size": 0}, "batch_size"),
        ({"step_size": -1.0}, "step_size must be a positive number"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"prior": "horseshoe", "temperature": 0.9}, "leaves no proper posterior"),
        ({"prior": "horseshoe", "temperature": 0.0}, "collapses the array to zero"),
        ({"prior": [("*bias", gx.nn.Gaussian()), ("*", gx.nn.Horseshoe(local=True))]}, "least_scale=0.1"),
        ({"prior": [("*", gx.nn.HierarchicalHorseshoe(1.0, local=True))]}, "least_scale=0.1"),
        ({"calibration_fraction": 1.0}, "calibration_fraction must be at least 0 and below 1"),
        ({"calibration_fraction": 0.999}, "at least 2 are needed"),
        ({"metric": "rmsprop", "num_warmup": 0, "step_size": 0.01}, "adapts during warm-up"),
    ],
)
def test_errors_of_the_options(blobs, options, words):
    with pytest.raises(ValueError, match=words):
        BayesianMLPClassifier(**SMALL | options).fit(*blobs)


def test_errors_of_the_data(blobs, line):
    x, y = blobs
    with pytest.raises(ValueError, match="only one class, 'plum'"):
        BayesianMLPClassifier().fit(x, np.full(len(x), "plum"))
    with pytest.raises(ValueError, match="infinity"):
        BayesianMLPClassifier().fit(np.where(x > 0, np.inf, x), y)
    with pytest.raises(ValueError, match="7 in all rows"):
        BayesianMLPRegressor().fit(line[0], np.full(24, 7.0))
    with pytest.raises(ValueError, match="noise must be a positive number"):
        BayesianMLPRegressor(noise=0.0).fit(*line)
    with pytest.raises(NotFittedError):
        BayesianMLPRegressor().predict(line[0])
    with pytest.raises(ValueError, match="calibration_fraction, for instance"):
        BayesianMLPRegressor().with_posterior(*line, None)._calibration()


@pytest.mark.parametrize(
    "missing",
    [
        lambda y: pd.Series(y, dtype="string"),
        lambda y: pd.Series(y, dtype=object),
        lambda y: np.array(y, object),
        lambda y: pd.Series([1.5] * (len(y) - 1) + [pd.NA], dtype="Float64"),
    ],
    ids=["string", "object", "array", "number"],
)
@pytest.mark.parametrize(
    "model", [BayesianMLPClassifier, BayesianMLPRegressor, gx.models.UnitNetworkRegressor], ids=lambda m: m.__name__
)
def test_targets_that_pandas_calls_missing_are_counted(model, missing):
    """pd.NA is neither equal nor unequal to itself, and scikit-learn's checks end with an error about that."""
    y = missing(["a", "b"] * 10 + [pd.NA])
    with pytest.raises(ValueError, match=rf"{model.__name__}: Input y contains NaN .* in 1 of 21 rows, .* row 20"):
        model().fit(np.random.default_rng(0).normal(size=(21, 2)), y)


@pytest.mark.filterwarnings("error:::numpy")
@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_numbers_whose_squares_are_beyond_double_precision_are_standardised(size):
    """Their deviation was infinite, so that a column counted for nothing, or zero, so that it counted as constant."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = x[:, 0] - x[:, 1]
    for model in (BayesianMLPRegressor(), gx.models.UnitNetworkRegressor()):
        plain = model.prepare(x, y)
        found = model.prepare(x * np.array([size, 1.0]), y * size)
        for left, right in zip(plain[:2], found[:2], strict=True):
            np.testing.assert_allclose(right, left, rtol=1e-6, atol=1e-9)
        assert model.spread_[0] == pytest.approx(size * x[:, 0].std())


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["identity", "rmsprop", "monge", "wenzel", "shampoo"])
def test_horseshoe_with_a_scale_an_entry_has_no_kicks(metric):
    """Catches the pole of the prior, from which steps without a test of acceptance are kicked far away."""
    x, y = load_diabetes(return_X_y=True)
    x, test, y, values = train_test_split(x, y, test_size=0.2, random_state=0)
    model = BayesianMLPRegressor(prior="local-horseshoe", sampler="sgrld", metric=metric, random_state=0)
    assert model.fit(x, y).score(test, values) > 0.25


def test_data_of_less_than_two_batches_are_taken_whole(monkeypatch):
    """The noise of one batch of 1,000 of 1,001 rows kept chains from the posterior of collinear inputs."""
    x = np.random.default_rng(0).normal(size=(1201, 2))

    class SeenError(Exception):
        pass

    def batches(data, *, batch_size, order):
        raise SeenError(batch_size)

    monkeypatch.setattr(stochastic, "batches", batches)
    for batch_size, expected in ((None, 1201), (601, 1201), (600, 600)):
        with pytest.raises(SeenError) as caught:
            BayesianMLPRegressor((), batch_size=batch_size, random_state=0).fit(x, x[:, 0])
        assert caught.value.args == (expected,)


@pytest.mark.thorough
def test_many_rows_are_taken_in_parts(monkeypatch):
    """Four batches an iteration, which training takes as one; all rows in each step have an error of 0.27."""
    seen = []
    monkeypatch.setattr(stochastic, "batches", lambda *a, **k: seen.append(k["batch_size"]) or gx.data.batches(*a, **k))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 2))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.2 * rng.normal(size=3000)
    options = {"num_warmup": 400, "num_samples": 20, "thinning": 2, "num_chains": 2, "random_state": 0}
    model = BayesianMLPRegressor((20,), **options).fit(x[:2400], y[:2400])
    assert seen == [300]
    assert np.sqrt(np.mean((model.predict(x[2400:]) - y[2400:]) ** 2)) < 0.3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("num_rows", "batch_size", "score_every"), [(40, None, 1), (41, 10, 5), (49, 6, None), (19, None, "untrained")]
)
def test_rows_are_held_out_from_training_of_four_epochs(monkeypatch, num_rows, batch_size, score_every):
    """Scores of single batches, with other rows held out, or none, cannot be compared: those of epochs can."""
    seen = []

    class SeenError(Exception):
        pass

    def training(algorithm, num_training, **options):
        seen.append(options.get("score_every"))
        assert set(options) == ({"objective", "score", "score_every"} if seen[0] else set())
        raise SeenError

    monkeypatch.setattr(stochastic, "train_first", training)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 2))
    options = {"widths": (3,), "num_warmup": 28, "num_samples": 2, "thinning": 1, "num_chains": 1, "random_state": 0}
    with nullcontext() if score_every == "untrained" else pytest.raises(SeenError):
        BayesianMLPRegressor(**options, batch_size=batch_size).fit(x, x[:, 0] + 0.1 * rng.normal(size=num_rows))
    assert seen == ([] if score_every == "untrained" else [score_every])


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "options"), [(50, {}), (150, {}), (100, {"batch_size": 50, "num_warmup": 4000})])
def test_more_weights_than_rows(num_rows, options):
    """Training to the end fits all rows without error, and chains stay there: 30 or 40 % of new rows in the intervals."""
    rng = np.random.default_rng(num_rows)
    x = rng.normal(size=(num_rows + 500, 9))
    y = 3.0 + 2.0 * x[:, 0] - x[:, 1] + np.sin(2.0 * x[:, 2]) + 0.3 * rng.normal(size=len(x))
    model = BayesianMLPRegressor(random_state=0, **options).fit(x[:num_rows], y[:num_rows])
    low, high = model.predict_quantiles(x[num_rows:])
    assert np.mean((low <= y[num_rows:]) & (y[num_rows:] <= high)) > 0.8
    noise = model.target_spread_ * np.exp(model.posterior_["posterior"]["log_noise"].values)
    assert np.all((noise.mean(axis=1) > 0.15) & (noise.mean(axis=1) < 0.8))


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["identity", "shampoo"])
def test_a_default_classifier_of_few_rows_has_the_posterior_of_nuts(metric):
    """Probabilities for new rows, and their spread over the draws; two runs of the same posterior differ by 0.01."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(260, 4))
    logits = x @ rng.normal(size=(4, 3)) + np.array([2.0, 0.0, 0.0])  # the first class is the most frequent
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    model = BayesianMLPClassifier((10,), metric=metric, random_state=0).fit(x[:60], y[:60])
    found = model.predict_draws(x[60:])

    problem, (rows, labels, _) = model.problem(), model.prepare(x[:60], y[:60])
    new = jax.numpy.asarray((x[60:] - model.center_) / model.spread_, np.float32)
    posterior = gx.Posterior(log_prior=problem.priors, log_likelihood=problem.log_likelihood(), num_data=60)
    exact = gx.sample(
        jax.random.key(1),
        gx.nuts(posterior.full((jax.numpy.asarray(rows), jax.numpy.asarray(labels)))),
        problem.build,
        keep=lambda network: jax.nn.softmax(jax.vmap(network)(new)),
        num_samples=400,
        num_warmup=400,
        num_chains=2,
        progress=False,
    )["posterior"]["position"].values.reshape(-1, 200, 3)
    assert np.sqrt(np.mean((found.mean(axis=0) - exact.mean(axis=0)) ** 2)) < 0.03
    assert 0.9 < found.std(axis=0).mean() / exact.std(axis=0).mean() < 1.1


@pytest.mark.thorough
@pytest.mark.parametrize("rows", [3, 4, 8])
def test_few_rows_do_not_throw_the_noise(rows):
    """A step for the typical curvature threw chains from a small noise to one of exp(6) to exp(58), or to infinity."""
    for seed in range(3):
        rng = np.random.default_rng(100 + seed)
        x, y = rng.normal(size=(rows, 3)), rng.normal(size=rows)
        model = BayesianMLPRegressor((8,), num_warmup=400, num_samples=50, num_chains=8, random_state=seed).fit(x, y)
        assert model.posterior_["posterior"]["log_noise"].values.max() < 4


@pytest.mark.thorough
@pytest.mark.parametrize(("step_size", "num_steps"), [(0.01, 1), (None, 5)])
def test_only_a_step_size_that_is_found_is_shortened_for_few_rows(monkeypatch, step_size, num_steps):
    """By as much as there are more steps; with a given one more steps would sample for another time than asked."""
    made = []

    def kept(key, algorithm, start, **options):
        made.append((algorithm, start(key), options["batches"].draw(key, jax.numpy.int32(0))))
        return gx.sample(key, algorithm, start, **options)

    monkeypatch.setattr(stochastic, "sample", kept)
    rng = np.random.default_rng(0)
    options = {"step_size": step_size, "num_warmup": 20, "num_samples": 5, "num_chains": 1, "random_state": 0}
    BayesianMLPRegressor((3,), **options).fit(rng.normal(size=(8, 2)), rng.normal(size=8))
    ((algorithm, position, batch),) = made
    assert algorithm.num_batches == num_steps
    batches = batch if num_steps == 1 else jax.tree.map(lambda x: jax.numpy.stack([x] * num_steps), batch)
    state = algorithm.init(position)._replace(tuned_step_size=jax.numpy.asarray(0.01, jax.numpy.float32))
    state, info = algorithm.step(jax.random.key(0), state, batches)
    np.testing.assert_allclose([info.step_size, state.tuned_step_size], [0.01 / num_steps, 0.01], rtol=1e-6)
