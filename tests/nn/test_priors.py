"""Priors: normalised by quadrature, draws that follow the density, rules by path and shape."""

import itertools
import math
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import geodax as gx
from geodax.nn.densities import resolve_scale
from geodax.nn.horseshoe import log_scaled_exp1
from tests.marks import slow

nn = gx.nn


def one(law):
    """The log density of one number, compiled."""
    function = jax.jit(lambda x: law.log_density(x))
    return lambda x: float(function(jnp.asarray(x, jnp.float64)))


SCALAR_LAWS = {
    "gaussian": (nn.Gaussian(0.7, mean=0.3), stats.norm(0.3, 0.7)),
    "laplace": (nn.Laplace(0.7), stats.laplace(0, 0.7)),
    "student": (nn.StudentT(2.5, 0.7), stats.t(2.5, 0, 0.7)),
}


@pytest.mark.parametrize("name", SCALAR_LAWS)
def test_laws_of_entries_are_scipys(name, key):
    law, reference = SCALAR_LAWS[name]
    x = np.random.default_rng(0).normal(size=(3, 4)) * 2
    np.testing.assert_allclose(law.log_density(jnp.asarray(x)), reference.logpdf(x).sum(), rtol=1e-12)
    draws = np.asarray(law.sample(key, jnp.zeros(20_000, jnp.float64)))
    assert stats.kstest(draws, reference.cdf).pvalue > 1e-4


def test_local_horseshoe_integrates_its_scale_out(key):
    law = nn.Horseshoe(0.7, local=True)
    density = one(law)

    def mixture(x):
        return integrate.quad(lambda s: stats.norm.pdf(x, 0, 0.7 * s) * 2 / (math.pi * (1 + s * s)), 0, np.inf)[0]

    for x in (0.01, 0.4, 3.0, 40.0):
        assert density(x) == pytest.approx(math.log(mixture(x)), abs=1e-8)
    total = 2 * integrate.quad(lambda t: math.exp(density(math.exp(t)) + t), -40, 25, limit=200)[0]
    assert total == pytest.approx(1.0, abs=1e-8)
    draws = np.abs(np.asarray(law.sample(key, jnp.zeros(20_000, jnp.float64))))
    below = [2 * integrate.quad(lambda t: math.exp(density(math.exp(t)) + t), -40, math.log(q))[0] for q in (0.1, 1, 5)]
    for q, share in zip((0.1, 1, 5), below, strict=True):
        assert abs((draws < q).mean() - share) < 4 * math.sqrt(share * (1 - share) / draws.size)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        (2, jnp.float64),
        (1000, jnp.float32),
        slow(3, jnp.float64),
        slow(2, jnp.float32),
        slow(1000, jnp.float64),
    ],
)
def test_shared_horseshoe_integrates_its_scale_out(size, dtype):
    law = nn.Horseshoe(0.5)
    x = np.random.default_rng(size).normal(size=size) * 0.3
    value, slope = jax.jit(jax.value_and_grad(law.log_density))(jnp.asarray(x, dtype))
    q = float(np.sum((x / 0.5) ** 2))
    a = 0.5 * (size + 1)
    top = 2 * a / q

    def integrand(u, power=0.0):
        exponent = (a - 1 + power) * np.log(u) - 0.5 * q * u - np.log1p(u)
        reference = (a - 1) * np.log(top) - 0.5 * q * top
        return np.exp(exponent - reference)

    edges = [0, *(top * np.exp(np.linspace(-6, 6, 25) * (1 if size < 10 else 0.2))), np.inf]
    total = sum(integrate.quad(integrand, *pair, epsabs=0)[0] for pair in itertools.pairwise(edges))
    raised = sum(integrate.quad(integrand, *pair, args=(1.0,), epsabs=0)[0] for pair in itertools.pairwise(edges))
    constant = -0.5 * size * math.log(2 * math.pi * 0.25) - math.log(math.pi)
    expected = math.log(total) + (a - 1) * math.log(top) - 0.5 * q * top + constant
    eps = float(jnp.finfo(dtype).eps)
    assert float(value) == pytest.approx(expected, rel=20 * eps, abs=max(1e-8, 20 * eps))
    np.testing.assert_allclose(slope, -x / 0.25 * raised / total, rtol=max(1e-7, 60 * eps))


@pytest.mark.parametrize("least", [0.1, 3.0])
def test_horseshoe_with_a_least_scale_integrates_its_scale_out(key, least):
    law = nn.Horseshoe(0.7, local=True, least_scale=least)

    def weight(s):
        return math.exp(-0.5 * (least / s) ** 2) / (1 + s * s) if s > 0 else 0.0

    total = integrate.quad(weight, 0, np.inf)[0]
    for x in (0.0, 0.01, 0.4, 3.0, 40.0):
        expected = integrate.quad(lambda s, x=x: stats.norm.pdf(x, 0, 0.7 * s) * weight(s) / total, 0, np.inf)[0]
        assert one(law)(x) == pytest.approx(math.log(expected), abs=1e-7)
    draws = np.abs(np.asarray(law.sample(key, jnp.zeros(20_000, jnp.float64))))
    for q in (0.1, 1.0, 5.0):
        share = integrate.quad(lambda s, q=q: (2 * stats.norm.cdf(q / (0.7 * s)) - 1) * weight(s) / total, 0, np.inf)[0]
        assert abs((draws < q).mean() - share) < 4 * math.sqrt(share * (1 - share) / draws.size)


@pytest.mark.parametrize("size", [2, 50])
def test_least_temperature_is_where_the_pole_can_be_integrated(size):
    """Over r from 0 the integral of r^(k - 1) exists for k > 0; here k is the size plus the slope over the temperature."""
    law = nn.Horseshoe(0.5)
    direction = jnp.full(size, size**-0.5, jnp.float64)
    slope_at = jax.jit(jax.grad(lambda log_r: law.log_density(jnp.exp(log_r) * direction)))
    slope = float(slope_at(jnp.asarray(-20.0, jnp.float64)))
    for temperature, is_integrable in ((0.99, False), (1.01, True)):
        scaled = temperature * law.least_temperature(size)
        assert (size + slope / scaled > 0) == is_integrable
    assert nn.Horseshoe(local=True).least_temperature(size) == law.least_temperature(1) == 0
    assert nn.HierarchicalHorseshoe().least_temperature(size) == law.least_temperature(size)


def test_which_horseshoes_kick():
    assert [nn.Horseshoe().has_kicks(size) for size in (1, 2, 3)] == [True, True, False]
    assert nn.Horseshoe(local=True).has_kicks(3)
    assert nn.HierarchicalHorseshoe(local=True).has_kicks(3)
    assert not nn.Horseshoe(local=True, least_scale=0.1).has_kicks(1)


@pytest.mark.slow
def test_shared_horseshoe_has_a_second_derivative():
    law = nn.Horseshoe(0.5)
    x = jnp.asarray([0.3, -0.2, 0.5], jnp.float64)
    hessian = jax.jit(jax.hessian(law.log_density))(x)
    step = 1e-5
    slope = jax.jit(jax.grad(law.log_density))
    columns = [(slope(x + step * e) - slope(x - step * e)) / (2 * step) for e in jnp.eye(3, dtype=jnp.float64)]
    np.testing.assert_allclose(hessian, np.stack(columns), atol=1e-6)


@pytest.mark.parametrize("least", [0.0, 1.5])
def test_hierarchical_horseshoe_is_the_marginal_one_with_its_scale(dtype, least):
    x = jnp.asarray([0.3, -0.2, 0.5], dtype)
    joint = jax.jit(jax.vmap(nn.HierarchicalHorseshoe(0.5, least_scale=least).log_density, (None, 0)))
    grid = np.linspace(-30, 400, 40_001)
    values = np.asarray(joint(x, jnp.asarray(grid, dtype)), np.float64)
    total = np.trapezoid(np.exp(values), grid)
    marginal = float(jax.jit(nn.Horseshoe(0.5, least_scale=least).log_density)(x))
    assert math.log(total) == pytest.approx(marginal, abs=1e-5 if dtype == jnp.float64 else 1e-3)
    scales = nn.HierarchicalHorseshoe(0.5).initial_scales(x)
    np.testing.assert_allclose(jax.nn.softplus(scales), 1.0, rtol=1e-6)


def test_scaled_exponential_integral_against_scipy(dtype):
    x = np.concatenate([np.logspace(-30, 3, 200), [1.9999, 2.0, 2.0001]]).astype(dtype)
    near, far = np.minimum(x.astype(float), 50), np.maximum(x.astype(float), 50)
    series = sum((-1.0) ** n * math.factorial(n) / far**n for n in range(25)) / far
    truth = np.where(x < 50, np.log(special.exp1(near)) + near, np.log(series))
    eps = float(jnp.finfo(dtype).eps)
    x = np.append(x, np.zeros(1, dtype))
    value, slope = jax.jit(lambda x: jax.jvp(log_scaled_exp1, (x,), (jnp.ones_like(x),)))(jnp.asarray(x))
    assert np.isfinite(value[-1])
    assert slope[-1] == 0.0
    x, value, slope = x[:-1], value[:-1], slope[:-1]
    np.testing.assert_allclose(value, truth, rtol=30 * eps, atol=30 * eps)
    expected = 1 - 1 / (x.astype(float) * np.exp(truth))
    is_safe = x < 100  # beyond, the reference cancels
    np.testing.assert_allclose(np.asarray(slope)[is_safe], expected[is_safe], rtol=2000 * eps)


def test_the_shared_horseshoe_is_stable_far_out():
    """Catches squares that overflow in single precision: the tail falls like a power, not to zero."""
    values = [
        jax.jit(jax.value_and_grad(nn.Horseshoe(1.0).log_density))(jnp.array([1e10, 1.0], dtype))
        for dtype in (jnp.float32, jnp.float64)
    ]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-5)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-4)


@pytest.mark.parametrize("covariance", ["matern12", "matern32", "matern52", "rbf"])
def test_correlated_normal_is_a_multivariate_normal(covariance, key):
    law = nn.CorrelatedNormal(0.6, length=1.5, covariance=covariance)
    x = np.random.default_rng(1).normal(size=(2, 3, 2, 3))
    places = np.array(list(itertools.product(range(2), range(3))))
    d = np.linalg.norm(places[:, None] - places[None], axis=-1) / 1.5
    if covariance == "rbf":
        k = np.exp(-(d**2) / 2)
    else:
        nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[covariance]
        s = np.sqrt(2 * nu) * np.where(d == 0, 1e-12, d)
        k = np.where(d == 0, 1.0, 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s))
    reference = stats.multivariate_normal(np.zeros(6), 0.36 * k)
    np.testing.assert_allclose(
        law.log_density(jnp.asarray(x)), reference.logpdf(x.reshape(6, 6)).sum(), rtol=1e-9, atol=1e-7
    )
    if covariance == "matern32":
        draws = np.asarray(law.sample(key, jnp.zeros((4000, 1, 2, 3), jnp.float64))).reshape(4000, 6)
        np.testing.assert_allclose(draws.T @ draws / 4000, 0.36 * k, atol=5 * 0.36 * math.sqrt(2 / 4000))


LAWS = [
    nn.Gaussian(0.5),
    nn.Laplace(0.5),
    nn.StudentT(3.0, 0.5),
    nn.CorrelatedNormal(0.5),
    nn.Horseshoe(0.5, local=True),
]


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_arrays_of_half_precision_have_the_density_of_their_numbers(law, dtype, key):
    """Catches sums that overflow: the density of many weights was infinite."""
    x = jax.jit(law.sample)(key, jnp.zeros((300, 300, 2, 2), dtype))
    density = jax.jit(law.log_density)
    found = density(x)
    assert (x.dtype, found.dtype) == (dtype, jnp.float32)
    np.testing.assert_allclose(found, density(x.astype(jnp.float32)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize(
    "law", [nn.Gaussian(1.0), nn.Laplace(1.0), nn.CorrelatedNormal(1.0)], ids=["normal", "laplace", "pixels"]
)
def test_draws_in_half_precision_have_the_laws_moments(law, dtype, key):
    """Catches variates that are made in half precision: in bfloat16 their mean is 12 standard errors below zero."""
    draws = np.asarray(jax.jit(law.sample)(key, jnp.zeros((2000, 500, 1, 1), dtype)), np.float64)
    assert abs(draws.mean()) < 4 * math.sqrt(draws.var() / draws.size)
    np.testing.assert_allclose(draws.var(), 2.0 if isinstance(law, nn.Laplace) else 1.0, rtol=0.01)


@pytest.mark.parametrize("number", [np.float64(3.0), jnp.asarray(3.0), np.asarray(3)], ids=["numpy", "jax", "whole"])
def test_numbers_of_numpy_and_jax_leave_types_as_they_are(number, key, unchecked):
    laws = [nn.Gaussian(1.0, number), nn.StudentT(number, 1.0), nn.SingularValues(4, 3, number)]
    for law in laws:
        x = law.sample(jax.random.clone(key), jnp.zeros(3, jnp.float32))
        assert x.dtype == jax.jit(law.log_density)(x).dtype == jnp.float32


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("is_hierarchical", [False, True])
def test_horseshoes_of_half_precision_keep_their_tails(is_hierarchical, dtype, key):
    kind = nn.HierarchicalHorseshoe if is_hierarchical else nn.Horseshoe
    law, like = kind(1.0, local=True), jnp.zeros(1_000_000, dtype)
    drawn = jax.jit(law.sample)(key, like)
    draws = np.abs(np.asarray(drawn[0] if is_hierarchical else drawn, np.float64))
    assert np.isfinite(draws).all()
    share = integrate.quad(lambda s: 2 * stats.norm.sf(500 / s) * 2 / (math.pi * (1 + s * s)), 0, np.inf)[0]
    assert abs((draws > 500).mean() - share) < 5 * math.sqrt(share / draws.size)


def test_singular_values_are_those_of_a_gaussian_matrix_at_full_rank(key):
    # W = U diag(s) V^T with uniform U, V: at full rank the entries of W are independent normal
    law = nn.SingularValues(4, 3, 0.8)
    draws = jax.jit(jax.vmap(lambda k: law.sample(k, jnp.zeros(3, jnp.float64))))(jax.random.split(key, 4000))
    s = np.cumsum(np.exp(np.asarray(draws))[:, ::-1], axis=1)[:, ::-1]
    gaussian = 0.8 * np.random.default_rng(2).normal(size=(4000, 4, 3))
    reference = np.linalg.svd(gaussian, compute_uv=False)
    for column in range(3):
        assert stats.ks_2samp(s[:, column], reference[:, column]).pvalue > 1e-4


def test_density_of_singular_values_is_normalised_and_fits_its_draws(key):
    law = nn.SingularValues(5, 4, 0.7)  # two values of a 5 x 4 matrix: those of a 2 x 7 Gaussian one
    density = jax.jit(jax.vmap(law.log_density))
    grid = np.linspace(-14, 4, 361)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    values = np.exp(np.asarray(density(jnp.asarray(points.reshape(-1, 2))))).reshape(361, 361)
    total = np.trapezoid(np.trapezoid(values, grid), grid)
    assert total == pytest.approx(1.0, abs=1e-6)
    power = np.exp(points[..., 1]) ** 2 + (np.exp(points[..., 0]) + np.exp(points[..., 1])) ** 2
    mean = np.trapezoid(np.trapezoid(values * power, grid), grid)
    assert mean == pytest.approx(0.49 * 14, rel=1e-5)
    gaps = np.trapezoid(np.trapezoid(values * points[..., 0], grid), grid)
    draw = jax.jit(jax.vmap(lambda k: law.sample(k, jnp.zeros(2, jnp.float64))))
    drawn = np.asarray(draw(jax.random.split(key, 4000)))
    assert abs(drawn[:, 0].mean() - gaps) < 4 * drawn[:, 0].std() / math.sqrt(4000)


def test_fan_in_keeps_the_size_of_a_low_rank_weight_that_of_a_full_one(key):
    law = nn.SingularValues(6, 8)
    draw = jax.jit(jax.vmap(lambda key: law.sample(key, jnp.zeros(2, jnp.float64))))
    gaps = np.exp(np.asarray(draw(jax.random.split(key, 2000))))
    power = gaps[:, 1] ** 2 + gaps.sum(axis=1) ** 2
    assert abs(power.mean() - 2 * 6) < 4 * power.std() / math.sqrt(2000)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((5,), 1.0), ((), 1.0), ((5, 8), 0.5), ((7, 2, 2, 2), 0.5), ((7, 1, 1), 1.0), ((5, 1), math.sqrt(2))],
)
def test_fan_in(shape, expected):
    x = jnp.ones(shape, jnp.float64)
    np.testing.assert_allclose(nn.Gaussian().log_density(x), stats.norm(0, expected).logpdf(np.ones(shape)).sum())


def test_rules_govern_by_path_and_shape_and_leave_structure_alone(key):
    network = nn.MLP(6, 3, widths=(5, 4), orthogonal=True, dtype=jnp.float64, key=key)
    priors = nn.Priors(
        [
            ("layers.0.*", nn.Laplace(0.3)),
            (lambda path, shape: len(shape) == 1, nn.Gaussian(0.2)),
            ("*", nn.StudentT(3.0, 0.4)),
        ]
    )
    laws = {path: type(law).__name__ for path, _, law in priors.describe(network)}
    assert laws == {
        "layers.0.weight": "Haar",
        "layers.0.bias": "Laplace",
        "layers.1.weight": "Haar",
        "layers.1.bias": "Gaussian",
        "layers.2.weight": "StudentT",
        "layers.2.bias": "Gaussian",
    }
    expected = (
        stats.laplace(0, 0.3).logpdf(network.layers[0].bias).sum()
        + stats.norm(0, 0.2).logpdf(np.concatenate([network.layers[1].bias, network.layers[2].bias])).sum()
        + stats.t(3, 0, 0.4).logpdf(network.layers[2].weight).sum()
    )
    np.testing.assert_allclose(priors(network), expected, rtol=1e-12)
    np.testing.assert_allclose(nn.log_prior(network, priors.rules), expected, rtol=1e-12)


def test_a_structured_law_can_be_replaced(key):
    layer = nn.LowRankLinear(6, 5, rank=2, dtype=jnp.float64, key=key)
    narrow = nn.SingularValues(5, 6, 0.01)
    priors = nn.Priors([("*log_gaps", narrow), ("*", nn.Gaussian(1.0))])
    expected = narrow.log_density(layer.log_gaps) + stats.norm().logpdf(np.zeros(5)).sum()
    np.testing.assert_allclose(priors(layer), expected, rtol=1e-12)


def test_draws_have_the_networks_form_and_lie_on_its_manifold(key):
    key_net, key_prior = jax.random.split(key)
    network = nn.MLP(6, 3, widths=(5,), rank=2, key=key_net)
    drawn = nn.Priors().sample(key_prior, network)
    assert jax.tree.structure(drawn) == jax.tree.structure(network)
    assert float(nn.geometry(network).residual(drawn)) < 1e-5
    pairs = zip(jax.tree.leaves(drawn), jax.tree.leaves(network), strict=True)
    assert all(a.dtype == b.dtype and a.shape == b.shape and not np.array_equal(a, b) for a, b in pairs)


@pytest.mark.thorough
def test_scales_that_are_parameters_live_beside_the_network(key):
    key_net, key_prior = jax.random.split(key)
    network = nn.MLP(4, 2, widths=(3,), dtype=jnp.float64, key=key_net)
    law = nn.HierarchicalHorseshoe(0.5)
    priors = nn.Priors([("*weight", law), ("*", nn.Gaussian(1.0))])
    position = priors.extend(network)
    assert sorted(position.scales) == ["layers.0.weight", "layers.1.weight"]
    x = jnp.ones(4, jnp.float64)
    np.testing.assert_array_equal(position(x), network(x))
    expected = sum(law.log_density(n.weight, s) for n, s in zip(network.layers, position.scales.values(), strict=True))
    biases = np.concatenate([layer.bias for layer in network.layers])
    np.testing.assert_allclose(priors(position), expected + stats.norm().logpdf(biases).sum(), rtol=1e-12)
    drawn = priors.sample(key_prior, position)
    assert jax.tree.structure(drawn) == jax.tree.structure(position)
    manifold = nn.geometry(position)
    assert manifold.dim(position) == sum(leaf.size for leaf in jax.tree.leaves(position))
    with pytest.raises(ValueError, match=r"priors\.extend"):
        priors(network)
    assert nn.Priors().extend(network) is network


def test_rules_that_do_not_fit_say_so(key):
    network = nn.Linear(3, 2, key=key)
    with pytest.raises(TypeError, match="pair of a pattern"):
        nn.Priors([("*", 1.0)])
    with pytest.raises(ValueError, match="no rule matches bias of shape"):
        nn.Priors([("weight", nn.Gaussian(1.0))])(network)
    with pytest.raises(TypeError, match=r"equinox\.partition"):
        nn.Priors()({"n": 3})
    with pytest.raises(ValueError, match="scale must be a positive number"):
        nn.Laplace(-1.0)
    with pytest.raises(ValueError, match="kernels only"):
        nn.Priors([("*", nn.CorrelatedNormal(1.0))])(network)
    with pytest.raises(ValueError, match="between 1 and 3 singular values"):
        nn.SingularValues(3, 4).log_density(jnp.zeros(4))


def scales(network):
    """The scale of a Gaussian law by the path of its array."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    laws = nn.Priors([("*", nn.Gaussian("fan_in"))]).describe(arrays)
    return {path: resolve_scale(law.scale, shape, "Gaussian") for path, shape, law in laws}


def test_fan_in_goes_by_the_name_first(key):
    root = math.sqrt(2)
    keys = iter(jax.random.split(key, 4))
    for layer, weight in (
        (eqx.nn.Conv1d(2, 4, 3, key=next(keys)), math.sqrt(2 / 6)),
        (eqx.nn.Conv1d(1, 4, 1, key=next(keys)), root),
        (eqx.nn.Conv2d(1, 8, 1, key=next(keys)), root),
        (eqx.nn.LayerNorm((3, 4, 4)), 1.0),
        (eqx.nn.RMSNorm((3, 4)), 1.0),
        (eqx.nn.LayerNorm(3), 1.0),
        (nn.Linear(8, 2, key=next(keys)), 0.5),
    ):
        assert scales({"a": [layer]}) == pytest.approx({"a.0.weight": weight, "a.0.bias": 1.0}), layer
    # where the name says nothing the shape does
    assert scales({"k": jnp.ones((4, 8)), "b": jnp.ones((4, 1, 1))}) == pytest.approx({"k": 0.5, "b": 1.0})
    kernel = {"weight": jnp.full((3, 1, 1, 1), 0.7, jnp.float64), "bias": jnp.full((3, 1, 1), 0.7, jnp.float64)}
    expected = stats.norm(0, root).logpdf(0.7) * 3 + stats.norm(0, 1).logpdf(0.7) * 3
    np.testing.assert_allclose(nn.Priors()(kernel), expected, rtol=1e-12)
    law = nn.HierarchicalHorseshoe(local=True, least_scale=0.1)
    changed = nn.Priors([("*", law)]).describe(kernel)
    assert [(found.local, found.least_scale, found.scale) for _, _, found in changed] == [
        (True, 0.1, 1.0),
        (True, 0.1, pytest.approx(root)),
    ]


class TestStacksOfNetworks:
    """Networks along a leading axis, as they come from ``equinox.filter_vmap``."""

    @staticmethod
    def stack(make, key):
        return eqx.filter_jit(eqx.filter_vmap(make))(jax.random.split(key, 3))

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "make",
        [
            lambda k: nn.MLP(8, "scalar", widths=(5, 2), dtype=jnp.float64, key=k),
            lambda k: nn.MLP(8, 2, widths=(5,), orthogonal=True, dtype=jnp.float64, key=k),
            lambda k: nn.BottleneckLinear(8, 5, rank=2, dtype=jnp.float64, key=k),
            lambda k: [eqx.nn.Conv2d(2, 4, 3, key=k), eqx.nn.LayerNorm((4, 2))],
            lambda k: [eqx.nn.ConvTranspose1d(2, 3, 2, key=k), eqx.nn.RMSNorm((4, 2))],
            lambda k: nn.OrthogonalConv2d(2, 4, 3, dtype=jnp.float64, key=k),
        ],
        ids=["dense", "orthogonal", "bottleneck", "images", "transposed", "orthogonal-images"],
    )
    def test_scales_are_those_of_one_network(self, key, make):
        """Catches a fan-in that is multiplied by the number of outputs."""
        networks = self.stack(make, key)
        for priors in (nn.Priors(), nn.Priors([("*", nn.Horseshoe("fan_in", local=True))])):
            together, each = jax.jit(lambda n, priors=priors: (priors(n), jax.vmap(priors)(n)))(networks)
            assert each.shape == (3,)
            np.testing.assert_allclose(together, np.sum(each), rtol=1e-6)

    def test_draws_have_the_scale_of_one_network(self, key):
        networks = self.stack(lambda k: nn.Linear(200, 100, key=k), jax.random.clone(key))
        drawn = nn.Priors().sample(key, networks)
        assert float(drawn.weight.std()) == pytest.approx(0.1, rel=0.02)

    @pytest.mark.parametrize(
        ("make", "rules", "words"),
        [
            (lambda k: nn.Linear(8, 5, key=k), [("*", nn.Horseshoe(1.0))], r"weight of shape \(3, 5, 8\) .* Horseshoe"),
            (lambda k: nn.LowRankLinear(8, 5, rank=2, key=k), None, r"log_gaps of shape \(3, 2\) .* SingularValues is"),
        ],
    )
    def test_laws_of_a_whole_array_are_refused(self, key, make, rules, words):
        networks = self.stack(make, key)
        with pytest.raises(ValueError, match=words):
            nn.Priors(rules)(networks)
        assert np.isfinite(jax.jit(jax.vmap(nn.Priors(rules).__call__))(networks)).all()


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 0, 2, 2)])
def test_arrays_without_entries_have_a_density(shape, key):
    empty = jnp.zeros(shape, jnp.float64)
    for law, part in zip((nn.Gaussian(), nn.Laplace(), nn.StudentT()), jax.random.split(key, 3), strict=True):
        assert float(law.log_density(empty)) == 0
        assert law.sample(part, empty).shape == shape


def test_rules_that_name_no_array_are_refused(key):
    key_plain, key_orthogonal, key_draw = jax.random.split(key, 3)
    plain = nn.MLP(4, 2, widths=(5,), key=key_plain)
    rest = ("*", nn.Gaussian())
    with pytest.raises(ValueError, match=r"'layer\.0\.weight' matches no array \(did you mean 'layers\.0\.weight'\?\)"):
        nn.Priors([("layer.0.weight", nn.Gaussian(5.0)), rest])(plain)
    with pytest.raises(ValueError, match=r"'layers\.0\.weight' matches no array.*'\*layers\.0\.weight' matches a name"):
        nn.Priors([("layers.0.weight", nn.Gaussian(5.0)), rest]).describe(nn.WithNoise(plain))
    orthogonal = nn.MLP(4, 2, widths=(5,), orthogonal=True, key=key_orthogonal)
    with pytest.raises(ValueError, match=r"Gaussian is a distribution of free arrays.*nn\.Haar"):
        nn.Priors([("layers.0.weight", nn.Gaussian(5.0)), rest]).extend(orthogonal)
    with pytest.raises(ValueError, match=r"the array is free, and Haar is for structured layers"):
        nn.Priors([("layers.1.weight", nn.Haar()), rest]).sample(key_draw, orthogonal)


@pytest.mark.thorough
def test_wildcards_that_meet_no_array_are_told_once(key):
    key_plain, key_deep, key_orthogonal = jax.random.split(key, 3)
    plain = nn.MLP(4, 2, widths=(5,), key=key_plain)
    deep = nn.MLP(4, 2, widths=(5, 5), key=key_deep)
    orthogonal = nn.MLP(4, 2, widths=(5,), orthogonal=True, key=key_orthogonal)
    priors = nn.Priors([("*.weigth", nn.Gaussian(3.0)), ("*", nn.Gaussian())])
    with pytest.warns(UserWarning, match=r"'\*\.weigth' matches no array"):
        value = priors(plain)
    again = jax.jit(lambda p, net: p(net))(priors, plain)  # a warning is an error here
    assert float(again) == pytest.approx(float(value))
    priors.describe(plain)
    with pytest.warns(UserWarning, match="matches no array"):
        priors(deep)
    for use in (  # the warning points at this file, at any depth of the library's own calls
        lambda fresh: fresh(plain),
        lambda fresh: fresh.extend(plain),
        lambda fresh: fresh.sample(jax.random.key(1), plain),
        lambda fresh: fresh.variances(plain),
        lambda fresh: jax.jit(jax.grad(lambda net: fresh(net)))(plain),
        lambda fresh: gx.sghmc(fresh, step_size=0.1).step(
            jax.random.key(2), gx.sghmc(fresh, step_size=0.1).init(plain)
        ),
    ):
        with pytest.warns(UserWarning, match="matches no array") as found:
            use(nn.Priors([("*.weigth", nn.Gaussian(3.0)), ("*", nn.Gaussian())]))
        assert [one.filename for one in found] == [__file__]
    with pytest.warns(UserWarning, match="skip orthonormal"):
        nn.Priors([("layers.0.w*", nn.Gaussian(3.0)), ("*", nn.Gaussian())])(orthogonal)
    with warnings.catch_warnings():  # a rule for the noise where it is known, a catch-all, the noise alone
        warnings.simplefilter("error")
        nn.Priors([("*log_noise", nn.Gaussian(2.0)), ("*", nn.Haar()), ("*", nn.Gaussian())])(plain)
        nn.Priors([("*.weight", nn.Gaussian(2.0)), ("layers.0.bias", nn.Gaussian(1.0)), ("*", nn.Gaussian())])(
            {"log_noise": jnp.zeros(())}
        )
    assert nn.Priors([("*", nn.Gaussian())]) == nn.Priors([("*", nn.Gaussian())])


def test_scales_of_arrays_of_one_name_are_not_merged():
    network = {"a.b": jnp.ones(2), "a": {"b": jnp.ones(3)}}
    priors = nn.Priors([("*", nn.HierarchicalHorseshoe(1.0))])
    with pytest.raises(ValueError, match=r"2 arrays are named 'a\.b'"):
        priors.extend(network)
    assert np.isfinite(nn.Priors([("*", nn.Gaussian(1.0))])(network))


def test_a_singular_covariance_of_pixels_names_the_length():
    law = nn.CorrelatedNormal(1.0, 20.0, "rbf")
    with pytest.raises(ValueError, match=r"CorrelatedNormal: with covariance='rbf' and length=20.*shorter length"):
        law.log_density(jnp.ones((1, 1, 7, 7), jnp.float64))


def test_one_logit_is_no_law_of_classes():
    likelihood = nn.CategoricalLikelihood(lambda position, x: position)
    z = jnp.asarray([[0.3], [-1.0]], jnp.float64)
    with pytest.raises(ValueError, match=r"at least two classes, found one.*jnp\.zeros_like\(z\), z"):
        likelihood(z, (None, jnp.zeros(2, jnp.int32)))
    two = likelihood(jnp.concatenate([jnp.zeros_like(z), z], -1), (None, jnp.asarray([1, 0])))
    np.testing.assert_allclose(two, stats.bernoulli(special.expit(z[:, 0])).logpmf([1, 0]), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8"])
def test_labels_of_few_bits_meet_many_classes(dtype):
    logits = jnp.zeros((2, 200), jnp.float64).at[:, 144].set(9.0)
    last = -1 if dtype != "uint8" else 255
    labels = jnp.asarray(np.array([100, last]).astype(dtype))
    found = nn.CategoricalLikelihood(lambda position, x: position)(logits, (None, labels))
    np.testing.assert_allclose(found[0], special.log_softmax(np.asarray(logits[0]))[100], rtol=1e-12)
    assert np.isnan(found[1])
    many = nn.CategoricalLikelihood(lambda position, x: position)(jnp.zeros((1, 256)), (None, labels[1:]))
    assert np.isnan(many[0]) == (dtype != "uint8")


def test_likelihoods_are_scipys(key):
    logits = np.random.default_rng(3).normal(size=(5, 3))
    labels = jnp.asarray([0, 2, 1, 3, -1])
    found = nn.CategoricalLikelihood(lambda position, x: position)(jnp.asarray(logits), (None, labels))
    expected = special.log_softmax(logits, axis=1)[np.arange(3), [0, 2, 1]]
    np.testing.assert_allclose(found[:3], expected, rtol=1e-12)
    assert np.isnan(found[3:]).all()
    means = jnp.asarray(logits)
    targets = means + 0.5
    network = nn.WithNoise(lambda x: x, math.log(0.3), dtype=jnp.float64)
    expected = stats.norm(0, 0.3).logpdf(0.5) * 3 * np.ones(5)
    np.testing.assert_allclose(nn.GaussianLikelihood()(network, (means, targets)), expected, rtol=1e-12)
    known = nn.GaussianLikelihood(0.3, lambda position, x: x)
    np.testing.assert_allclose(known(None, (means, targets)), expected, rtol=1e-12)
    with pytest.raises(ValueError, match='"scalar"'):
        known(None, (means, targets[:, 0]))
    with pytest.raises(TypeError, match="labels must be integers"):
        nn.CategoricalLikelihood(lambda position, x: position)(means, (None, targets[:, 0]))
    with pytest.raises(ValueError, match="WithNoise"):
        nn.GaussianLikelihood()(eqx.nn.Identity(), (means, targets))


@pytest.mark.parametrize("wrap", [lambda network: network, lambda network: nn.priors.Hierarchical(network, {})])
def test_a_noise_that_is_given_twice_is_refused(wrap):
    """Catches a parameter of the noise that the data never see."""
    position = wrap(nn.WithNoise(lambda x: x, math.log(0.3), dtype=jnp.float64))
    with pytest.raises(
        ValueError, match=r"the noise is given, as 0\.5, and the position has a noise parameter .* Leave out noise=, or"
    ):
        nn.GaussianLikelihood(0.5)(position, (jnp.zeros((2, 3)), jnp.zeros((2, 3))))
