"""The experiments of the Walsh-Hadamard paper: their functions and counts of parameters, each at its smoke size."""

import jax
import numpy as np
import pytest

from experiments.common import experiment as common
from experiments.walsh_hadamard import classification, figure_2, figure_4, figure_5_6, functions, table_2

EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in (classification, figure_2, figure_4, figure_5_6)}
EXPERIMENTS[table_2.EXPERIMENT.name] = table_2.EXPERIMENT


def test_functions_at_known_points():
    """Hartman's minimum, Rastrigin's, a straight arm, and values of the other two worked out step by step."""
    lowest = np.array([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]])
    assert functions.FUNCTIONS["hartman6"].values(lowest)[0] == pytest.approx(-3.32237, abs=1e-5)
    rastrigin = functions.FUNCTIONS["rastrigin5"].values
    np.testing.assert_allclose(rastrigin(np.array([[0.5] * 5, [0.5 + 1 / 10.24] * 5])), [0.0, 5.0], atol=1e-10)
    arm = functions.FUNCTIONS["robot"].values(
        np.array([[0.3, 0, 0, 0, 0.1, 0.2, 0.3, 1.0], [0.3, 0.5, 0, 0, 1, 1, 0, 0]])
    )
    np.testing.assert_allclose(arm, [1.6, 0.0], atol=1e-12)
    # rw .1, r 25025, tu 89335, hu 1050, tl 89.55, hl 760, l 1400, kw 10950
    log_ratio = np.log(250_250)
    flow = (
        2 * np.pi * 89_335 * 290 / (log_ratio * (1 + 2 * 1400 * 89_335 / (log_ratio * 0.01 * 10_950) + 89_335 / 89.55))
    )
    assert functions.FUNCTIONS["borehole"].values(np.full((1, 8), 0.5))[0] == pytest.approx(flow)
    # rb1 100, rb2 47.5, rf 1.75, rc1 1.85, rc2 .725, beta 175: load 1701.875
    voltage = (12 * 47.5 / 147.5 + 0.74) * 1701.875 / 1703.625 + 11.35 * 1.75 / 1703.625
    voltage += 0.74 * 1.75 * 1701.875 / (1703.625 * 1.85)
    assert functions.FUNCTIONS["otlcircuit"].values(np.full((1, 6), 0.5))[0] == pytest.approx(voltage)
    x, y = functions.points("rastrigin5", 100)
    assert (x.shape, y.shape) == ((100, 5), (100,))
    assert 0.4 < x.mean() < 0.6


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


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke(name, tmp_path):
    """Every piece runs, is kept, is not run again, and can be shown."""
    experiment = EXPERIMENTS[name]
    record = common.run(experiment, experiment.smoke, results=tmp_path, report=lambda _: None)
    assert len(record.pieces) == len(list(experiment.pieces(experiment.smoke)))
    for piece in record.pieces:
        values = [v for v in piece["figures"].values() if isinstance(v, float | int)]
        assert np.isfinite(values).all()
    again = common.run(experiment, experiment.smoke, results=tmp_path, report=lambda _: None)
    assert [piece["wall_time"] for piece in again.pieces] == [piece["wall_time"] for piece in record.pieces]
    assert all(render(record).count("|") > 8 for render in experiment.tables.values())
    for draw in experiment.pictures.values():
        draw(record).savefig(tmp_path / "picture.png")
