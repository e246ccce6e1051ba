"""Families and flows against SciPy's densities, autodiff's determinants and Monte Carlo."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geodax as gx
from geodax import vi
from tests.marks import slow

D = 5


def family(name: str, dtype=jnp.float64):
    """A family of two vectors whose parameters are all different."""
    rng = np.random.default_rng(3)

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape) * 0.6, dtype)

    base = {
        "diagonal": lambda: vi.DiagonalGaussian(draw(2, D), draw(2, D)),
        "full": lambda: vi.FullGaussian(draw(2, D), draw(2, D), draw(2, D, D)),
        "low-rank": lambda: vi.LowRankGaussian(draw(2, D), draw(2, D), draw(2, D, 2)),
    }
    if name != "flows":
        return base[name]()
    flows = tuple(vi.PlanarFlow(3 * draw(2, D), 3 * draw(2, D), draw(2)) for _ in range(2))
    return vi.Flowed(base["diagonal"](), flows, num_samples=4000)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [slow("diagonal"), "full", "low-rank"])
def test_gaussians_are_their_densities(name, key):
    q = family(name)
    z = jax.random.normal(key, (2, D), jnp.float64)
    covariance = np.asarray(q.covariance())
    root = np.asarray(q.root())
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), covariance, rtol=1e-12, atol=1e-14)
    truth = [multivariate_normal(q.mean[i], covariance[i]).logpdf(z[i]) for i in range(2)]
    np.testing.assert_allclose(q.log_prob(z), truth, rtol=1e-11)


@pytest.mark.parametrize("name", ["diagonal", "full", "low-rank"])
def test_divergence_is_the_closed_form_of_dense_matrices(name):
    check_closed_divergence(name)


def check_closed_divergence(name):
    q, variance = family(name), 0.3
    found = float(q.kl(variance))
    expected = 0.0
    for mean, covariance in zip(np.asarray(q.mean), np.asarray(q.covariance()), strict=True):
        trace = (np.trace(covariance) + mean @ mean) / variance
        expected += 0.5 * (trace - D + D * np.log(variance) - np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        slow("diagonal"),
        slow("full"),
        "low-rank",
        "flows",
    ],
)
def test_divergence_is_the_mean_over_draws(name, key):
    check_divergence_over_draws(name, key)


def check_divergence_over_draws(name, key):
    """log_prob and sample are independent of kl; the flows' log_prob goes through their inverse."""
    q, variance, number = family(name), 0.7, 4000
    key_draws, key_kl = jax.random.split(key)

    @jax.jit
    def ratios(keys):
        def one(key):
            z = q.sample(key)
            log_prior = -0.5 * jnp.sum(z**2) / variance - D * np.log(2 * np.pi * variance)
            return jnp.sum(q.log_prob(z)) - log_prior

        return jax.vmap(one)(keys)

    values = np.asarray(ratios(jax.random.split(key_draws, number)))
    error = values.std(ddof=1) / np.sqrt(number)
    found = float(jax.jit(lambda key: q.kl(variance, key=key))(key_kl))
    error = error if name != "flows" else error * np.sqrt(2)
    assert abs(found - values.mean()) < 4 * error


def test_draws_have_the_covariance(key):
    q = family("low-rank")
    draws = np.asarray(jax.jit(jax.vmap(q.sample))(jax.random.split(key, 20_000)))[:, 0]
    covariance = np.asarray(q.covariance())[0]
    variances = np.diagonal(covariance)
    errors = np.sqrt((covariance**2 + np.outer(variances, variances)) / len(draws))
    assert np.abs((np.cov(draws.T) - covariance) / errors).max() < 4.5
    assert np.abs((draws.mean(0) - np.asarray(q.mean)[0]) / np.sqrt(variances / len(draws))).max() < 4


def test_planar_flow_has_the_determinant_and_an_inverse(key):
    check_planar_flow(key)


def check_planar_flow(key):
    key_flow, key_z = jax.random.split(key)
    u, w = 3 * jax.random.normal(key_flow, (2, D), jnp.float64)
    # w^T u = -3 and below: the raw direction would fold the space
    u = u - (jnp.dot(w, u) + 3.0) / jnp.dot(w, w) * w
    flow = vi.PlanarFlow(u, w, jnp.asarray(0.3, jnp.float64))
    jacobian = jax.jit(jax.jacfwd(lambda z: flow(z)[0]))
    for z in jax.random.normal(key_z, (3, D), jnp.float64):
        sign, truth = np.linalg.slogdet(np.asarray(jacobian(z)))
        assert sign == 1
        image, found = flow(z)
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-10)
        np.testing.assert_allclose(flow.inverse(image), z, atol=1e-9)
    along = jnp.linspace(-20.0, 20.0, 4001, dtype=jnp.float64)
    path = jax.jit(jax.vmap(lambda t: jnp.dot(w, flow(t * w / jnp.dot(w, w))[0])))(along)
    assert np.diff(path).min() > 0
    raw = np.asarray(along + jnp.dot(w, u) * jnp.tanh(along + 0.3))
    assert np.diff(raw).min() < 0


def test_flows_have_the_density_of_the_image(key):
    check_density_of_flows(key)


def check_density_of_flows(key):
    q = family("flows")
    start = jax.random.normal(key, (2, D), jnp.float64)
    jacobians = jax.jit(jax.jacfwd(lambda z: q.push(z)[0]))(start)
    volumes = [np.linalg.slogdet(np.asarray(jacobians[i, :, i]))[1] for i in range(2)]
    found = jax.jit(lambda z: q.log_prob(q.push(z)[0]))(start)
    np.testing.assert_allclose(found, np.asarray(q.base.log_prob(start)) - volumes, rtol=0, atol=1e-7)


def test_planar_flow_without_a_direction_is_a_shift():
    zero = jnp.zeros(D)
    flow = vi.PlanarFlow(jnp.ones(D), zero, jnp.asarray(0.5, zero.dtype))
    image, log_volume = flow(zero)
    np.testing.assert_allclose(image, np.tanh(0.5), rtol=1e-6)
    assert float(log_volume) == 0
    gradient = jax.grad(lambda w: jnp.sum(vi.PlanarFlow(jnp.ones(D), w, flow.b)(zero)[0]))(zero)
    assert np.isfinite(np.asarray(gradient)).all()


def test_first_flows_hardly_move_anything(key):
    base = vi.gaussian("diagonal", jnp.linspace(-1.0, 1.0, 8, dtype=jnp.float64), 0.3)
    pushed = vi.planar(base, 2, key=key)
    assert 0 < np.abs(np.asarray(pushed.location - base.mean)).max() < 0.1 * 0.3


def test_families_say_what_does_not_fit():
    mean = jnp.zeros(3)
    with pytest.raises(ValueError, match="'diagonal', 'full', 'low-rank'"):
        vi.gaussian("banded", mean, 0.1)
    with pytest.raises(ValueError, match="scale must be a positive number"):
        vi.gaussian("full", mean, 0.0)
    with pytest.raises(ValueError, match="rank must be at most 3"):
        vi.gaussian("low-rank", mean, 0.1, rank=4)
    with pytest.raises(ValueError, match="pass key="):
        gx.nn.WHVILinear(4, 4, num_flows=1, key=jax.random.key(0)).kl()


def test_directions_are_as_many_as_there_can_be():
    for size, rank in ((1, 1), (3, 3), (6, 4)):
        family = vi.GaussianOver({"a": jnp.zeros(size)}, "low-rank").family
        assert isinstance(family, vi.LowRankGaussian)
        assert (
            family.factor.shape == vi.gaussian("low-rank", jnp.zeros((2, size)), 0.1).factor.shape[1:] == (size, rank)
        )
    with pytest.raises(ValueError, match="GaussianOver: rank must be at most 3"):
        vi.GaussianOver(jnp.zeros(3), "low-rank", rank=4)
    with pytest.raises(ValueError, match="GaussianOver: scale must be a positive number"):
        vi.GaussianOver(jnp.zeros(3), scale=0.0)


def test_copies_of_a_posterior_over_a_network_draw_the_same_networks():
    """Catches the structure of Equinox's modules in the copy, which unflattened to a TypeError."""
    start = gx.vi.GaussianOver(eqx.nn.Linear(2, "scalar", dtype=jnp.float32, key=jax.random.key(0)))
    x = jnp.ones((4, 2), jnp.float32)
    back = copy.deepcopy(start)  # by the methods of pickle
    found, exact = (gx.vi.predict(jax.random.key(1), each, x, num_samples=3) for each in (back, start))
    np.testing.assert_array_equal(found, exact)
    assert jax.tree.structure(back) == jax.tree.structure(start)
