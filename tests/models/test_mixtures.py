"""Quantiles of mixtures of normal distributions."""

import numpy as np
import pytest

from geodax.models import mixtures
from geodax.models.mixtures import mixture_probability, mixture_quantiles


@pytest.mark.parametrize("level", [0.01, 0.5, 0.95])
def test_quantiles_have_the_probability_that_was_asked_for(level):
    """Of one normal distribution, of modes far apart with little between, of widths that differ a thousandfold."""
    generator = np.random.default_rng(0)
    means = np.stack([np.full(40, 2.5), np.repeat([-30.0, 40.0], 20), generator.normal(1, 3, 40)], axis=1)
    deviations = np.stack([np.full(40, 0.3), np.full(40, 0.5), np.geomspace(1e-2, 10, 40)], axis=1)
    found = mixture_quantiles((level,), means, deviations)[0]
    is_flat = np.array([False, level == 0.5, False])
    probability = mixture_probability(found, means, deviations)
    np.testing.assert_allclose(probability[~is_flat], level, rtol=1e-9)
    np.testing.assert_allclose(probability[is_flat], level, atol=1e-12)


def test_parts_without_width_have_quantiles():
    """At one of them, where the probability steps over the level."""
    means = np.array([[1.0], [2.0], [3.0]])
    assert mixture_quantiles((0.5,), means, np.zeros((3, 1)))[0, 0] == pytest.approx(2.0, abs=1e-9)


def test_a_quantile_takes_few_evaluations(monkeypatch):
    """Where the parts overlap, as draws of a posterior do."""
    calls, ndtr = [], mixtures.ndtr
    monkeypatch.setattr(mixtures, "ndtr", lambda z: calls.append(1) or ndtr(z))
    means = np.random.default_rng(1).normal(3, 0.2, (400, 500))
    mixture_quantiles((0.05,), means, np.full((400, 500), 0.7))
    assert len(calls) < 12
