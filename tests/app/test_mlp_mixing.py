"""Findings about the mixing of a network's chains, judged by what they mean for predictions."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from geodax.app.families import run_kind
from geodax.app.mlp.files import LabelledTable
from geodax.app.mlp.mixing import judged_by_predictions
from geodax.diagnostics.findings import check


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
        *((name, 9, "Draws around several networks") for name in ("laplace", "multi-swag")),
    ],
)
def test_independent_networks_are_no_markov_chain(inference, num_draws, title):
    """Catches advice to draw more because R-hat sees that networks differ, as they should."""
    model = SimpleNamespace(posterior_={"posterior": xr.Dataset({"x": (("chain", "draw"), np.zeros((4, num_draws)))})})
    data = LabelledTable(np.zeros((2, 1)), np.zeros(2), ("x",), "y", np.zeros(2, bool), ())
    (found,) = run_kind("regressor").diagnose({"options": {"inference": inference}}, data, model)
    assert (found.severity, found.title) == ("note", title)
