"""The modes of the eigenmodel, and where its chains start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.app.network.modes import sign_findings
from geodax.models import Eigenmodel
from geodax.models.eigenmodel import density
from geodax.models.eigenmodel.density import EigenmodelPrior
from geodax.models.eigenmodel.modes import find_modes, starting_point

_CLUB = (
    "0 1:4 2:5 3:3 4:3 5:3 6:3 7:2 8:2 10:2 11:3 12:1 13:3 17:2 19:2 21:2 31:2;1 2:6 3:3 7:4 13:5 17:1 19:2 21:2 30:2;"
    "2 3:3 7:4 8:5 9:1 13:3 27:2 28:2 32:2;3 7:3 12:3 13:3;4 6:2 10:3;5 6:5 10:3 16:3;6 16:3;8 30:3 32:3 33:4;9 33:2;"
    "13 33:3;14 32:3 33:2;15 32:3 33:4;18 32:1 33:2;19 33:1;20 32:3 33:1;22 32:2 33:3;23 25:5 27:4 29:3 32:5 33:4;"
    "24 25:2 27:3 31:2;25 31:7;26 29:4 33:2;27 33:4;28 31:2 33:2;29 32:4 33:2;30 32:3 33:3;31 32:4 33:4;32 33:5"
)
"""Numbers of contexts in which the members of a karate club met (Zachary 1977)."""


@pytest.fixture(scope="module")
def club() -> np.ndarray:
    counts = np.zeros((34, 34))
    for row in _CLUB.split(";"):
        first, *others = row.split()
        for other in others:
            j, count = map(int, other.split(":"))
            counts[int(first), j] = counts[j, int(first)] = count
    return counts


@pytest.mark.parametrize("link", density.LINKS)
def test_modes_are_maxima_of_the_density(club, link):
    """With missing pairs and a prior of other scales; no neighbour is higher, and the value is that of the sampler."""
    matrix = club.copy() if link == "log" else np.minimum(club, 1)
    matrix[2, 3] = matrix[3, 2] = matrix[9, 33] = matrix[33, 9] = np.nan
    data, prior, generator = density.pairs(matrix), EigenmodelPrior(0.7, 2.0), np.random.default_rng(0)
    with jax.enable_x64(True):
        logdensity = jax.jit(density.log_density(data, link, prior))
        modes = find_modes(data, 3, link, prior)
        assert [mode.log_density for mode in modes] == sorted((mode.log_density for mode in modes), reverse=True)
        assert sorted(int(np.sum(mode.theta.eigenvalues > 0)) for mode in modes) == [0, 1, 2, 3]
        for mode in modes:
            at = mode.theta._asdict()
            np.testing.assert_allclose(mode.log_density, logdensity(at), rtol=1e-9)
            for _ in range(10):
                vectors, upper = np.linalg.qr(at["vectors"] + 0.01 * generator.standard_normal((34, 3)))
                near = {
                    "vectors": vectors * np.sign(np.diag(upper)),
                    "eigenvalues": at["eigenvalues"] + 0.3 * generator.standard_normal(3),
                    "intercept": jnp.asarray(at["intercept"] + 0.1 * generator.standard_normal()),
                }
                assert logdensity(near) < mode.log_density


@pytest.mark.thorough
def test_chains_start_near_the_highest_mode(club):
    """The two factions give two positive eigenvalues; the second largest of the logarithms is negative."""
    model = Eigenmodel(2, link="log", num_warmup=60, num_samples=20, num_chains=4, random_state=0, progress=False)
    model.fit(club)
    logs = np.log(club + 0.5)[np.triu_indices(34, 1)]
    centred = np.where(np.eye(34, dtype=bool), 0.0, np.log(club + 0.5) - logs.mean())
    eigenvalues = np.linalg.eigvalsh(centred)
    assert -eigenvalues[0] > eigenvalues[-2]
    assert model.modes_[0].log_density - model.modes_[1].log_density > 20
    assert (model.posterior_["posterior"]["eigenvalues"].values > 0).all()
    assert sign_findings(model.modes_[:1], np.ones((4, 20, 2))) == []


def test_chains_start_near_modes_in_proportion_to_their_density(club):
    modes = find_modes(density.pairs(club), 2, "log", EigenmodelPrior())
    modes[1] = modes[1]._replace(log_density=modes[0].log_density - 1.0)
    starts = [starting_point(key, modes) for key in jax.random.split(jax.random.key(0), 400)]
    signs = np.array([np.sum(start["eigenvalues"] > 0) for start in starts])
    expected = 1 / (1 + np.exp(-1.0))
    assert set(signs.tolist()) == {1, 2}
    assert abs(np.mean(signs == 2) - expected) < 4 * np.sqrt(expected * (1 - expected) / 400)
    np.testing.assert_allclose(starts[0]["vectors"].T @ starts[0]["vectors"], np.eye(2), atol=1e-12)


def test_signs_that_no_chain_visits_are_a_note(club):
    modes = find_modes(density.pairs(club), 2, "log", EigenmodelPrior())
    near = [modes[0], modes[1]._replace(log_density=modes[0].log_density - 4.0)]
    both = np.array([[[9.0, 5.0], [9.0, -5.0]]])
    assert sign_findings(modes, both[:, :1]) == []  # the others are far lower
    (note,) = sign_findings(near, both[:, :1])
    assert "a mode with 1 positive eigenvalues of 2, 4.0 units" in note.detail
    assert sign_findings(near, np.tile(both, (1, 60, 1))) == []
    (note,) = sign_findings(near, np.tile(both, (4, 1, 1)))
    assert (
        "50 % have 1, 50 % have 2 positive eigenvalues of 2, and the chains changed that number 4 times" in note.detail
    )
    flat = near[1].theta._replace(eigenvalues=np.array([-1e-4, 9.0]))
    assert sign_findings([modes[0], near[1]._replace(theta=flat)], both[:, :1]) == []
