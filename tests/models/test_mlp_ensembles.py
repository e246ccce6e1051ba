"""Deep ensembles, SWAG and multi-SWAG as inferences of the network estimators."""

import numpy as np
import pytest

from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.mlp import INFERENCES

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

GENERATOR = np.random.default_rng(4)
X = GENERATOR.uniform(-2, 2, (120, 2))
Y = np.tanh(2 * X[:, 0]) + 0.1 * GENERATOR.normal(size=120)
SMALL = {"widths": (10,), "num_warmup": 300, "num_samples": 8, "num_chains": 3, "random_state": 0}
KINDS = ("ensemble", "swag", "multi-swag")


@pytest.fixture(scope="module")
def fitted():
    return {kind: BayesianMLPRegressor(**SMALL, inference=kind).fit(X, Y) for kind in KINDS}


@pytest.mark.thorough
def test_chains_are_networks_of_their_own_except_under_swag(fitted):
    """Catches one network for all chains of an ensemble, and several for SWAG."""
    weights = {kind: model.posterior_["posterior"]["network.layers.0.weight"].values for kind, model in fitted.items()}
    assert weights["ensemble"].shape[:2] == (3, 1)
    assert weights["swag"].shape[:2] == weights["multi-swag"].shape[:2] == (3, 8)
    centers = {kind: values.mean(axis=1) for kind, values in weights.items()}
    within = weights["multi-swag"].std(axis=1).mean()
    between = {kind: values.std(axis=0).mean() for kind, values in centers.items()}
    assert between["ensemble"] > 0.1
    assert between["multi-swag"] > 3 * within
    assert between["swag"] < weights["swag"].std(axis=1).mean()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_beat_the_mean(fitted, kind):
    """Catches networks that are not trained, or draws far from them."""
    mean, deviation = fitted[kind].predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.5 * Y.std()
    assert fitted[kind].log_predictive(X, Y).mean() > -np.log(Y.std()) - 1.42
    assert np.all(deviation > 0)


@pytest.mark.thorough
def test_classes_and_conformal_sets(fitted):
    """Catches draws that later steps cannot take."""
    labels = np.where(Y > 0, "up", "down")
    model = BayesianMLPClassifier(**SMALL, inference="multi-swag", calibration_fraction=0.3).fit(X, labels)
    assert np.mean(model.predict(X) == labels) > 0.8
    assert model.predict_set(X)[np.arange(120), np.searchsorted(model.classes_, labels)].mean() > 0.8


@pytest.mark.thorough
def test_structured_weights_are_for_ensembles():
    """Catches orthonormal weights that leave their manifold."""
    options = SMALL | {"widths": (6, 6), "orthogonal": True, "num_warmup": 50}
    with pytest.raises(ValueError, match="use inference='ensemble' or 'mcmc'"):
        BayesianMLPRegressor(**options, inference="swag").fit(X, Y)
    draws = BayesianMLPRegressor(**options, inference="ensemble").fit(X, Y).posterior_["posterior"]
    weights = draws["network.layers.1.weight"].values[:, 0]
    np.testing.assert_allclose(weights.swapaxes(1, 2) @ weights, np.broadcast_to(np.eye(6), (3, 6, 6)), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.5}, "temperature must be 1 for inference='swag'"),
        ({"prior": "horseshoe"}, "optimum is an array of zeros"),
        ({"step_size": -1.0}, "step_size"),
        ({"num_warmup": 0}, "num_warmup"),
    ],
)
def test_what_they_refuse(options, words):
    """Catches options that fail later, or are ignored without a word."""
    with pytest.raises(ValueError, match=words):
        BayesianMLPRegressor(**SMALL | options, inference="swag").fit(X, Y)


def test_they_are_known_by_name():
    """Catches a baseline that is not registered."""
    assert set(KINDS) <= set(INFERENCES)
