"""Figures 6 to 8 of the Givens paper: the simulated data, and each experiment at its smoke size."""

import numpy as np
import pytest

from experiments import render
from experiments.common import experiment as common
from experiments.givens import grouped_views
from geodax.models.cca import density as cca_density

EXPERIMENTS = render.experiments()
NAMES = ("givens/figure_6_7_8", "givens/figure_7_8_wine", "givens/figure_7_8_quality")


@pytest.mark.thorough
def test_simulated_groups_have_the_covariances_they_claim():
    """Frames are orthonormal and as far apart as the spread says; rows have the covariance of the truth."""
    data = grouped_views.simulate(0, 0.1, (16, 86), 4000)
    n_1, n_2 = len(grouped_views.PROTEINS), len(grouped_views.CLOTS)
    assert [int((data.groups == g).sum()) for g in (0, 1)] == [16, 86]
    for frame in data.truth[:4]:
        np.testing.assert_allclose(np.linalg.norm(frame, axis=1), 1.0, rtol=1e-12)
    apart = [grouped_views.simulate(seed, 0.1, (16, 86), 1).truth.shared_1 for seed in range(100)]
    angles = np.radians([grouped_views.degrees_between(w[0], w[1])[0] for w in apart])
    np.testing.assert_allclose(np.sqrt(np.mean(angles**2)), 0.1 * np.sqrt(2 * (n_1 - 1)), rtol=0.15)
    wanted = np.asarray(cca_density.covariance(data.truth))
    for g in (0, 1):
        found = np.cov(data.test[data.test_groups == g].T)
        diagonal = np.diag(wanted[g])
        error = np.sqrt((wanted[g] ** 2 + np.outer(diagonal, diagonal)) / 4000)
        assert np.abs((found - wanted[g]) / error).max() < 4.5
    assert found.shape == (n_1 + n_2, n_1 + n_2)


def test_lines_and_angles():
    """Signs do not matter, neither for angles nor for mean directions."""
    generator = np.random.default_rng(0)
    line = np.array([0.6, 0.8, 0.0])[:, None]
    noisy = line + 0.05 * generator.standard_normal((300, 2, 3, 1))
    noisy = noisy / np.linalg.norm(noisy, axis=-2, keepdims=True) * generator.choice([-1.0, 1.0], (300, 2, 1, 1))
    assert grouped_views.degrees_between(grouped_views.mean_line(noisy), line).max() < 1.0
    np.testing.assert_allclose(grouped_views.degrees_between(line, -line), 0.0, atol=1e-5)
    np.testing.assert_allclose(grouped_views.degrees_between(line, np.array([[0.8], [-0.6], [0.0]])), 90.0)


def test_wines_are_split_without_loss():
    """Rows fitted and rows held out are all wines, each once."""
    data = grouped_views.real_groups("wine", 3, (40, 60, 16))
    assert [int((data.groups == g).sum()) for g in grouped_views.REAL["wine"].groups] == [40, 60, 16]
    both = np.concatenate([data.rows, data.test])
    whole = grouped_views.real_groups("wine", 0, (59, 71, 48)).rows
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(whole, axis=0))
    assert len(both) == 178


@pytest.mark.parametrize("name", NAMES)
def test_tables_and_pictures_come_from_the_record(name):
    """What the documentation shows can be made from the committed figures alone."""
    made = common.load(EXPERIMENTS[name])
    assert all(table(made).startswith("|") for table in EXPERIMENTS[name].tables.values())
    assert all(picture(made).axes for picture in EXPERIMENTS[name].pictures.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path, request):
    """Every piece at a small size, and all that is made of it."""
    if name.endswith("quality"):
        request.getfixturevalue("geodax_data")
    experiment = EXPERIMENTS[name]
    record = common.run(experiment, experiment.smoke, results=tmp_path)
    assert {piece["labels"]["pooling"] for piece in record.pieces} == {"separate", "hierarchical", "complete"}
    assert all(np.isfinite(row["rhat"]) and np.isfinite(row["num_steps"]) for row in record.rows())
    assert all(table(record).startswith("|") for table in experiment.tables.values())
    assert all(picture(record).axes for picture in experiment.pictures.values())
