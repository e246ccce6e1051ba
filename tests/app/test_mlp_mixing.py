"""Findings about the mixing of a network's chains, judged by what they mean for predictions."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from geodax.app.families import run_kind
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.mixing import judged_by_predictions
from geodax.diagnostics.findings import check
from geodax.models import BayesianMLPRegressor


def chains(apart: float) -> np.ndarray:
    """Four chains of 200 draws of 3 numbers with deviation 1, whose means are apart."""
    draws = np.random.default_rng(0).standard_normal((4, 200, 3))
    return draws + apart * np.array([-1.0, 0.0, 0.0, 1.0])[:, None, None]


@pytest.mark.parametrize(("noise", "title"), [(30.0, "Chains that move slowly"), (1.0, "Chains that disagree")])
def test_slow_chains_of_a_regressor_are_judged_beside_the_noise(noise, title):
    """Catches warnings about a Monte Carlo error that is small beside the noise, and notes where it is not."""
    draws = {
        "fit": chains(3.0),
        "noise": np.full((4, 200), noise) + 0.01 * np.random.default_rng(1).normal(size=(4, 200)),
    }
    found = judged_by_predictions(check(draws, {}), draws)
    assert title in [finding.title for finding in found]
    assert ("warning" in [finding.severity for finding in found]) == (title == "Chains that disagree")


@pytest.mark.parametrize(("place", "is_sharp"), [(9.0, True), (0.0, False)])
def test_slow_chains_of_a_classifier_are_judged_by_probabilities(place, is_sharp):
    draws = {"log_odds": place + chains(1.0)}
    found = judged_by_predictions(check(draws, {}), draws)
    assert ("Chains that move slowly" in [finding.title for finding in found]) == is_sharp


def test_nothing_is_added_to_chains_that_agree():
    draws = {"fit": np.random.default_rng(0).standard_normal((4, 1000, 3)), "noise": chains(0.0)[..., 0]}
    assert not [f for f in judged_by_predictions(check({"fit": draws["fit"]}, {}), draws)]


@pytest.mark.parametrize(
    ("inference", "num_draws", "title"),
    [
        ("ensemble", 1, "A deep ensemble"),
        ("swag", 9, "Draws around one network"),
        *((name, 9, "Draws around several networks") for name in ("laplace", "multi-swag", "whvi", "ivon")),
    ],
)
def test_independent_networks_are_no_markov_chain(inference, num_draws, title):
    """Catches advice to draw more because R-hat sees that networks differ, as they should."""
    model = SimpleNamespace(posterior_={"posterior": xr.Dataset({"x": (("chain", "draw"), np.zeros((4, num_draws)))})})
    data = LabelledTable(np.zeros((2, 1)), np.zeros(2), ("x",), "y", np.zeros(2, bool), ())
    (found,) = run_kind("regressor").diagnose({"options": {"inference": inference}}, data, model)
    assert (found.severity, found.title) == ("note", title)


@pytest.mark.thorough
@pytest.mark.parametrize("inference", ["ivon", "mean-field"])
def test_a_noise_that_is_estimated_has_no_rhat(inference):
    """Catches infinite R-hats of one estimate a fit, and those of all other numbers left out too."""
    x = np.random.default_rng(2).standard_normal((60, 1))
    y = x[:, 0] + 0.3 * np.random.default_rng(3).standard_normal(60)
    data = LabelledTable(x, y, ("x",), "y", np.zeros(60, bool), ())
    options = {"widths": (3,), "num_warmup": 50, "num_chains": 3, "num_samples": 100}
    model = BayesianMLPRegressor(**options, inference=inference, random_state=0).fit(x, y)
    run = run_kind("regressor")
    noise, *fits = run.summary(data, model)
    assert 0 < noise.quantile_5 < noise.quantile_95
    assert np.isnan([noise.ess_bulk, noise.rhat]).all()
    assert np.isfinite([row.rhat for row in fits]).all()
    findings = run.diagnose({"options": {"inference": inference}}, data, model)
    assert "noise" not in "".join(finding.detail for finding in findings)
    model.inference = "mcmc"
    assert run.summary(data, model)["noise"].rhat == np.inf
