"""The plane of section 6.2: its density, and the ranges of angles as printed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geodax as gx
from experiments.givens import plane
from experiments.givens.figure_4 import tilt


@pytest.fixture(scope="module")
def points():
    return plane.points(plane.HORIZONTAL)


def test_density_is_that_of_the_rows(points, key):
    """The statistics' form against the normal law of each row; the prior and the volume element of the scales beside it."""
    density = plane.log_density(points)
    found, expected = [], []
    for number, k in enumerate(jax.random.split(key, 4)):
        position = plane.on_the_manifold(density).start(k)
        w, gaps, log_noise = position["w"], np.asarray(position["log_gaps"]), 0.1 * number
        scale = np.array([np.exp(gaps).sum(), np.exp(gaps[1])])
        found.append(float(density(position | {"log_noise": jnp.asarray(log_noise)})))
        loadings = np.asarray(w) * scale
        covariance = loadings @ loadings.T + np.exp(2 * log_noise) * np.eye(3)
        prior = -0.5 * (scale**2).sum() / 25 - 0.5 * np.exp(2 * log_noise) / 4 + gaps.sum() + log_noise
        expected.append(multivariate_normal(np.zeros(3), covariance).logpdf(points).sum() + prior)
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-9)


@pytest.mark.thorough
def test_ranges_of_ones_own_agree_with_the_chart(points, key):
    """Catches a missing volume element, of the rotations or of the logistic function."""
    density = plane.log_density(points)
    ours = plane.in_a_chart(density, gx.transforms.Givens(3, 2, half=True))
    own = plane.in_angles(density, np.full(3, -math.pi / 2), np.full(3, math.pi / 2))
    differences = []
    for k in jax.random.split(key, 3):
        z = ours.start(k)
        other = {"z": z["w"], "log_gaps": z["log_gaps"], "log_noise": z["log_noise"]}
        differences.append(float(ours.logdensity_fn(z) - own.logdensity_fn(other)))
        np.testing.assert_allclose(ours.read(z)["w"], own.read(other)["w"], atol=1e-12)
    np.testing.assert_allclose(np.diff(differences), 0.0, atol=1e-9)


def test_all_angles_in_full_ranges_have_every_matrix_twice():
    """The pair of angle vectors of one matrix that the printed ranges both contain."""
    chart = gx.transforms.Givens(3, 2)
    theta = jnp.array([0.4, 0.7, -0.3])
    turned = jnp.array([0.4 - math.pi, math.pi - 0.7, -0.3 - math.pi + 2 * math.pi])
    assert np.abs(turned).max() < math.pi
    np.testing.assert_allclose(chart.compose(turned), chart.compose(theta), atol=1e-14)


def test_tilt_is_the_angle_between_planes():
    c, s = math.cos(0.3), math.sin(0.3)
    w = np.array([[[1.0, 0.0], [0.0, c], [0.0, s]], [[-1.0, 0.0], [0.0, c], [0.0, s]]])
    np.testing.assert_allclose(tilt(w), np.degrees(0.3), rtol=1e-12)
