"""The experiments of the Walsh-Hadamard paper: their functions and counts of parameters."""

import jax
import numpy as np
import pytest

from experiments.walsh_hadamard import figure_4


@pytest.mark.thorough
@pytest.mark.parametrize("covariance", figure_4.COVARIANCES)
def test_methods_have_as_many_parameters(covariance):
    """The others' posteriors have at least as many parameters as Walsh-Hadamard's, and not one entry more than needed."""
    labels = {"covariance": covariance, "features": 256}
    x = np.zeros((100, 3))
    counts = {}
    for method in figure_4.METHODS:
        network = figure_4.process(labels | {"method": method}, x, jax.random.key(0))
        if method == "WHVI":
            weight = network.layer.layer.weight
            law = weight.g
            counts[method] = weight.s1.size + weight.s2.size
        else:
            law = network.v if method == "inducing points" else network.layer.layer.weight
            counts[method] = 0
        size = law.location.size
        counts[method] += size + (size if covariance == "diagonal" else size * (size + 1) // 2)
    asked = figure_4.budget(covariance, 256)
    assert counts["WHVI"] == asked
    for method in figure_4.METHODS[1:]:
        assert asked <= counts[method] < asked + (2 if covariance == "diagonal" else 30)
