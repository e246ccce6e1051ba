"""The linearised Laplace approximation as an inference of the network estimators."""

import copy
import dataclasses
import shutil

import jax
import numpy as np
import pytest
from scipy import optimize

import geodax as gx
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.mlp import INFERENCES, LaplaceInference
from geodax.models.mlp.laplace import whole_rows
from geodax.run.positions import position_variables, positions_at

nn = gx.nn
GENERATOR = np.random.default_rng(4)
X = GENERATOR.uniform(-2, 2, (120, 2)) * [1.0, 30.0]
Y = 7.0 + 5.0 * np.tanh(2 * X[:, 0]) + 0.5 * GENERATOR.normal(size=120)
SMALL = {"widths": (10,), "num_warmup": 300, "num_samples": 200, "num_chains": 2, "random_state": 0}
INFERENCE = LaplaceInference(layers="all", num_warmup=300, num_samples=200, num_chains=2)
KEPT = {"widths": (10,), "calibration_fraction": 0.25, "random_state": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laplace")


@pytest.fixture(scope="module")
def model(folder):
    return BayesianMLPRegressor(**KEPT, inference=INFERENCE, checkpoint=folder).fit(X, Y)


def posteriors_of(model):
    """The trained networks of the chains with the approximations around them, computed anew from the kept draws."""
    problem, inference = model._fitted
    like = inference.form(problem).like
    found = positions_at(position_variables("test", model.posterior_, like), like, [0])
    x, y, _ = copy.copy(model).prepare(X, Y)  # which forgets the calibration
    for k in range(2):
        kept = jax.tree.map(lambda leaf, k=k: leaf[k, 0], found)
        network = nn.WithNoise(kept.network.mode, kept.log_noise)
        yield network, nn.laplace_posterior(network, problem.likelihood, (x, y)).maximised()


@pytest.mark.thorough
def test_draws_have_the_moments_of_the_closed_form_around_each_network(model):
    """Catches draws of the network that is not linear, one network for all chains, and a prior or noise left as it was."""
    new = X[:7] * 2.0
    drawn = model.predict_draws(new).reshape(200, 2, 7)
    x = model._inputs(new).astype(np.float32)
    starts = []
    for k, (network, posterior) in enumerate(posteriors_of(model)):
        assert posterior.log_noise is not None
        # the noise is at the maximum already, and the prior variances are found again
        np.testing.assert_allclose(posterior.log_noise, network.log_noise, atol=1e-3)
        exact = posterior.linearised(x)
        deviation = model.target_spread_ * np.sqrt(np.asarray(exact.variance))
        z = (drawn[:, k] - model.target_center_ - model.target_spread_ * np.asarray(exact.mean)) / deviation
        assert np.abs(z.mean(axis=0)).max() < 4.5 / np.sqrt(200)
        assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / 200)
        starts.append(network)
    assert np.abs(starts[0].network.layers[0].weight - starts[1].network.layers[0].weight).max() > 0.1
    mode = model.posterior_["posterior"]["network.mode.layers.0.weight"].values
    assert (mode == mode[:, :1]).all()


@pytest.mark.thorough
def test_predictions_and_conformal_intervals(model):
    """Catches networks that are not trained, and draws that later steps cannot take."""
    mean = model.predict(X)
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.3 * Y.std()
    assert model.log_predictive(X, Y).mean() > -np.log(Y.std()) - 1.42 + 0.5
    assert model.predict_parts(2 * X).epistemic.mean() > 2 * model.predict_parts(X).epistemic.mean()
    interval = model.predict_interval(X)
    assert np.mean((interval.lower <= Y) & (interval.upper >= Y)) > 0.8


@pytest.mark.thorough
def test_more_draws_go_on_from_the_kept_ones(model, folder, tmp_path):
    """Catches a second training, and draws that depend on their number."""
    inference, copied = dataclasses.replace(INFERENCE, num_samples=210), shutil.copytree(folder, tmp_path / "copy")
    longer = BayesianMLPRegressor(**KEPT, inference=inference, checkpoint=copied).fit(X, Y)
    assert longer.posterior_["posterior"].sizes["draw"] == 210
    np.testing.assert_array_equal(longer.predict_draws(X[:2])[:400], model.predict_draws(X[:2]))


@pytest.mark.thorough
def test_ordered_classes_with_missing_inputs_and_weights():
    """Catches rows with holes and weights that do not reach the approximation, and linearised log probabilities."""
    labels = np.digitize(Y, [4.0, 9.0])
    holes = X.copy()
    holes[::4, 1] = np.nan
    options = SMALL | {
        "num_samples": 20,
        "likelihood": "ordinal",
        "inference": LaplaceInference(num_warmup=300, num_chains=1),
    }
    model = BayesianMLPClassifier(**options).fit(holes, labels, sample_weight=np.where(np.arange(120) % 3, 1.0, 2.0))
    probabilities = model.predict_proba(holes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(model.predict(holes) == labels) > 0.8
    x, y, weights = whole_rows(model._fitted[0], model.prepare(holes, labels, np.arange(1.0, 121.0))[:3])
    assert weights is not None
    assert len(x) == len(y) == len(weights) > 120
    np.testing.assert_allclose(weights.sum(), np.arange(1, 121).sum(), rtol=1e-6)
    np.testing.assert_allclose(np.bincount(y, weights), np.bincount(labels, np.arange(1, 121)), rtol=1e-6)


@pytest.mark.thorough
def test_the_last_layer_alone():
    """It is the default. Catches hidden layers that move, and a structure that is not passed on."""
    inference = LaplaceInference(num_warmup=100, num_chains=1, num_samples=5, structure="full")
    found = BayesianMLPRegressor((4,), inference=inference, random_state=0).fit(X, Y).posterior_["posterior"]
    for layer, moves in ((0, False), (1, True)):
        mode, drawn = (found[f"network.{name}.layers.{layer}.weight"].values for name in ("mode", "drawn"))
        assert (np.abs(drawn - mode).max() > 0) == moves


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.5}, "temperature must be 1 for inference='laplace'"),
        ({"prior": "student-t"}, r"inference='laplace'.*nn\.Gaussian with mean 0"),
        ({"prior": "hierarchical-horseshoe"}, "inference='laplace' requires normal priors"),
        ({"orthogonal": True}, "inference='laplace' supports only free weights"),
        ({"likelihood": "student-t"}, "normal noise of one size; use likelihood='gaussian'"),
        ({"likelihood": "poisson"}, "normal noise of one size"),
        ({"step_size": 0.1}, "step_size must be left out"),
        ({"num_warmup": 0}, "num_warmup"),
        ({"num_samples": 0}, "num_samples"),
        ({"inference": LaplaceInference(structure="kfac")}, "structure"),
    ],
)
def test_what_it_refuses(options, words):
    """Catches options that fail later, or are ignored without a word."""
    with pytest.raises(ValueError, match=words):
        BayesianMLPRegressor(**SMALL | {"inference": "laplace"} | options).prepare(X, np.round(np.abs(Y)))


@pytest.mark.thorough
@pytest.mark.parametrize(("structure", "layers"), [("kronecker", "last"), ("diagonal", "all"), ("full", "all")])
def test_several_targets_of_a_linear_network_have_their_conjugate_posteriors(structure, layers):
    """Catches a noise of other targets, one noise for all, and a prior or noise away from the marginal likelihood's."""
    noises = np.array([2.0, 0.3])
    y = np.c_[3.0 * X[:, 0] + 10.0, X[:, 1] - X[:, 0]] + noises * GENERATOR.normal(size=(120, 2))
    inference = LaplaceInference(num_warmup=500, num_samples=1000, num_chains=2, structure=structure, layers=layers)
    model = BayesianMLPRegressor(widths=(), inference=inference, random_state=0).fit(X, y)
    design = np.c_[model._inputs(X), np.ones(120)]
    targets = (y - model.target_center_) / model.target_spread_
    found = model.posterior_["posterior"]
    drawn = model.predict_draws(X[:5]).reshape(1000, 2, 5, 2)
    for chain in range(2):
        names = [f"network.mode.layers.0.{name}" for name in ("weight", "bias")]
        weight, bias = (found[name].values[chain, 0].astype(np.float64) for name in names)
        theta, sigma = np.c_[weight, bias], np.exp(found["log_noise"].values[chain, 0].astype(np.float64))
        gram = design.T @ design if structure != "diagonal" else np.diag(np.sum(design**2, axis=0))

        def surplus(delta, theta=theta, sigma=sigma, gram=gram):
            return (
                6
                - sum(delta * np.trace(np.linalg.inv(gram / s**2 + delta * np.eye(3))) for s in sigma)
                - (delta * np.sum(theta**2))
            )

        delta = optimize.brentq(surplus, 1e-4, 1e4)
        covariances = [np.linalg.inv(gram / s**2 + delta * np.eye(3)) for s in sigma]
        squares = np.sum((targets - design @ theta.T) ** 2, axis=0) + [np.sum(gram * c) for c in covariances]
        np.testing.assert_allclose(sigma, np.sqrt(squares / 120), rtol=1e-3)
        np.testing.assert_allclose(sigma * model.target_spread_, noises, rtol=0.3)
        for k, covariance in enumerate(covariances):
            deviation = model.target_spread_[k] * np.sqrt(np.einsum("ni,ij,nj->n", design[:5], covariance, design[:5]))
            mean = model.target_center_[k] + model.target_spread_[k] * design[:5] @ theta[k]
            z = (drawn[:, chain, :, k] - mean) / deviation
            assert np.abs(z.mean(axis=0)).max() < 4.5 / np.sqrt(1000)
            assert np.abs((z**2).mean(axis=0) - 1).max() < 5 * np.sqrt(2 / 1000)
    parts = model.predict_parts(X)
    np.testing.assert_allclose(parts.aleatoric.mean(axis=0), noises**2, rtol=0.5)
    np.testing.assert_allclose(model.for_target(1).predict(X), parts.mean[:, 1])


def test_it_is_known_by_name():
    assert INFERENCES["laplace"] is LaplaceInference
