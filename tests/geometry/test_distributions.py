"""Distributions of unit vectors and orthonormal matrices: constants, exact draws, Gibbs chains, errors."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import geodax as gx
from geodax.geometry.distributions import directions
from geodax.geometry.distributions.hypergeometric import log_0f1, log_0f1_pair, log_1f1, mean_resultant_length
from geodax.geometry.distributions.rejection import accepted, first_accepted
from tests.marks import slow
from tests.suites.references import by_quadrature, givens_frames, haar_frames, orthogonal_frames

dist = gx.distributions
NUM_DRAWS = 20_000


def with_slow(fast, others):
    """Cases, some of which are left out of the fast suite."""
    return [*fast, *(slow(case) for case in others)]


def nodes(n, p):
    """Quadrature over the whole manifold, both components of square matrices."""
    if n == p:
        return orthogonal_frames(n, 24 if n == 3 else 64)
    return givens_frames(n, p, 128 if n * p < 6 else 40)


def statistics(x):
    """Entries and their products in pairs."""
    flat = x.reshape(len(x), -1)
    rows, columns = np.triu_indices(flat.shape[1])
    return np.concatenate([flat, flat[:, rows] * flat[:, columns]], axis=1)


def assert_means(values, expected, what="") -> None:
    """Averages over independent draws (first axis) within 4 standard errors."""
    values = np.asarray(values, np.float64)
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    z = (values.mean(0) - expected) / np.maximum(error, 1e-7)
    assert np.all(np.abs(z) < 4), f"{what}: {np.round(z, 1)} standard errors"


def assert_on_manifold(x) -> None:
    x = np.asarray(x)
    gram = np.swapaxes(x.conj(), -1, -2) @ x
    tolerance = 100 * np.finfo(x.dtype).eps
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(x.shape[-1]), gram.shape), atol=tolerance)


def assert_follows(draws, distribution) -> None:
    """First and second moments of the draws against quadrature of the density."""
    draws = np.asarray(draws)
    assert_on_manifold(draws)
    truth = by_quadrature(
        nodes(*draws.shape[1:]), lambda x: np.asarray(distribution.log_prob(jnp.asarray(x))), statistics
    )
    assert_means(statistics(draws), truth.mean)


# -------------------------------------------------------------------------------------------- constants


@pytest.mark.thorough
@pytest.mark.parametrize("n", [1, 2, 3, 10, 62, 100])
def test_bessel_constant_agrees_with_scipy(n, dtype):
    """Over nine decades of concentration, across the switch to the asymptotic expansion."""
    order = n / 2 - 1
    x = np.concatenate([np.geomspace(1e-3, 1e6, 80), np.linspace(20, 40, 41)])
    scaled = scipy.special.ive(order, x)
    seen = scaled > 1e-280
    with np.errstate(divide="ignore"):
        expected = np.log(scaled) + x - order * np.log(x / 2) + scipy.special.gammaln(n / 2)
    ratio = scipy.special.ive(order + 1, x) / np.maximum(scaled, 1e-300)
    eps = jnp.finfo(dtype).eps
    found = np.asarray(log_0f1(n, jnp.asarray(x, dtype) ** 2))
    lengths = np.asarray(jax.vmap(lambda k: mean_resultant_length(n, k))(jnp.asarray(x, dtype)))
    # SciPy's own error for large orders, magnified by its small values, is the floor in float64
    np.testing.assert_allclose(found[seen], expected[seen], rtol=20 * eps, atol=max(20 * eps, 1e-12))
    np.testing.assert_allclose(lengths[seen], ratio[seen], rtol=20 * eps, atol=max(20 * eps, 1e-12))


def test_bessel_constant_is_smooth_at_zero():
    slopes = [jax.grad(lambda y: log_0f1(5, y)), jax.grad(jax.grad(lambda y: log_0f1(5, y)))]
    found = [float(jax.jit(slope)(jnp.zeros(()))) for slope in slopes]
    np.testing.assert_allclose(found, [1 / 10, -1 / (25 * 14)], rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("s", [(0, 0), (2, 0), (3, 2), (30, 5), (100, 100), (3e4, 1e4), (1e5, 1e5)], ids=str)
def test_pair_constant_has_its_closed_form_on_o2(s):
    """On O(2) it is ``(I_0(s_1 + s_2) + I_0(s_1 - s_2)) / 2``."""
    s = np.array(s, float)
    total, difference = s.sum(), s[0] - s[1]
    logs = [np.log(scipy.special.ive(0, t)) + t for t in (total, difference)]
    expected = np.logaddexp(*logs) - np.log(2)
    found = log_0f1_pair(2, jnp.asarray((s**2).sum()), jnp.asarray((s[0] * s[1]) ** 2))
    np.testing.assert_allclose(float(found), expected, rtol=1e-13, atol=1e-13)


F = {
    (2, 1): [[0.7], [-1.1]],
    (3, 1): [[2.0], [-1.0], [0.5]],
    (2, 2): [[1.5, -0.4], [0.3, 0.8]],
    (3, 2): [[2.0, 0.3], [-0.5, 1.4], [0.2, 0.9]],
    (3, 3): [[1.2, 0.1, 0.0], [-0.3, -0.9, 0.2], [0.4, 0.0, 0.6]],
}
LANGEVIN = {
    **{f"{n}x{p}": f for (n, p), f in F.items()},
    "zero": np.zeros((3, 2)),
    "rank one": np.outer([1.0, -2.0, 0.5], [1.0, 0.7]),
    "concentrated": 12.0 * np.array(F[3, 2]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in LANGEVIN if name != "3x3"])
def test_langevin_density_is_normalized(name):
    langevin = dist.MatrixLangevin(jnp.asarray(LANGEVIN[name]))
    frames, weight = nodes(*langevin.event_shape)
    assert langevin.is_normalized
    total = weight @ np.exp(np.asarray(langevin.log_prob(jnp.asarray(frames))))
    # the half-circle angles converge like a power of the number of nodes
    np.testing.assert_allclose(total, 1, rtol=1e-5 if name == "concentrated" else 1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["2x1", "3x1", "2x2", "3x2", "zero", "rank one"])
def test_gradient_of_the_constant_is_the_mean(name):
    langevin = dist.MatrixLangevin(jnp.asarray(LANGEVIN[name]))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda d: d.log_normalizer()))(langevin).f
    frames = nodes(*langevin.event_shape)
    truth = by_quadrature(frames, lambda x: np.einsum("np,cnp->c", LANGEVIN[name], x), lambda x: x.reshape(len(x), -1))
    np.testing.assert_allclose(np.ravel(gradient), truth.mean, atol=1e-7)


CURVATURES = {
    "zero": np.zeros((3, 2)),
    "first column": np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
    "second column": np.array([[0.0, 0.4], [0.0, -0.9], [0.0, 0.0]]),
    "rank one": np.outer([1.0, -2.0, 0.5], [1.0, 0.7]),
    "3x2": np.array(F[3, 2]),
    "large and small": np.array([[9.0, 0.1], [0.0, 0.3], [0.0, 0.0]]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CURVATURES)
def test_curvature_of_the_constant_is_the_covariance(name):
    """Catches a constant that is smooth only where both singular values are positive."""
    f = CURVATURES[name]
    found = jax.jit(jax.hessian(lambda z: dist.MatrixLangevin(z.reshape(3, 2)).log_normalizer()))(
        jnp.asarray(f.ravel())
    )
    moments = by_quadrature(
        nodes(3, 2),
        lambda x: np.einsum("np,cnp->c", f, x),
        lambda x: np.einsum("ci,cj->cij", x.reshape(len(x), -1), x.reshape(len(x), -1)).reshape(len(x), -1),
    )
    means = by_quadrature(nodes(3, 2), lambda x: np.einsum("np,cnp->c", f, x), lambda x: x.reshape(len(x), -1)).mean
    np.testing.assert_allclose(found, moments.mean.reshape(6, 6) - np.outer(means, means), atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [2, 3, 20, 100])
@pytest.mark.parametrize("s", [1e-6, 1e-3, 1e-2, 0.1])
def test_mean_near_zero_has_its_digits(n, s):
    """The mean is ``f / n`` and less than ``s^2`` beside it, in single precision too."""
    f = jnp.zeros((n, 2), jnp.float32).at[0, 0].set(s).at[1, 1].set(s)
    gradient = jax.jit(jax.grad(lambda f: dist.MatrixLangevin(f).log_normalizer()))(f)
    np.testing.assert_allclose(gradient[0, 0], np.float32(s) / n, rtol=2 * s**2 + 1e-6)
    np.testing.assert_allclose(gradient[1, 1], gradient[0, 0], rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("trace", [3.0, 15.9, 16.1, 80.0, 4e3, 1e8])
def test_pair_constant_is_one_function(trace, dtype):
    """Catches a step where the series gives way to the sum over logarithms, in the value and in both slopes."""
    for n in (2, 3, 9):
        edge = 4.0 * max(trace, 16.0)
        if edge > 0.25 * trace**2:
            continue
        sides = [jnp.asarray(edge * (1.0 + step), dtype) for step in (-1e-6, 1e-6)]
        value = jax.jit(jax.value_and_grad(lambda t, d: log_0f1_pair(n, t, d), argnums=(0, 1)))  # noqa: B023
        (below, slopes_below), (above, slopes_above) = (value(jnp.asarray(trace, dtype), d) for d in sides)
        tolerance = 2e-5 if dtype == jnp.float64 else 1e-3
        np.testing.assert_allclose(float(below), float(above), rtol=tolerance)
        np.testing.assert_allclose(slopes_below, slopes_above, rtol=tolerance)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [3, 8, 100, 1000])
def test_pair_constant_is_an_integral(n):
    """Given the second entry ``tanh v`` of the first column, both columns have linear forms on spheres of ``n - 1``."""
    v, step = np.linspace(0.0, 20.0, 40_001, retstep=True)
    square = 1 / np.cosh(v) ** 2
    vector = jax.jit(lambda y: log_0f1(n - 1, y))
    pair = jax.jit(jax.value_and_grad(lambda t, d: log_0f1_pair(n, t, d), argnums=(0, 1)))

    def reference(s):
        logs = 0.5 * (n - 1) * np.log(square) + sum(np.asarray(vector(jnp.asarray(x**2 * square))) for x in s)
        weights = np.where(v == 0, 0.5, 1.0)
        area = np.log(step) + np.log(2) - scipy.special.betaln(0.5, 0.5 * (n - 1))
        return scipy.special.logsumexp(logs, b=weights) + area

    for s in ((0.3, 0.2), (5.0, 5.0), (40.0, 3.0), (100.0, 90.0), (794.0, 397.0), (3e3, 3e3)):
        trace, determinant = s[0] ** 2 + s[1] ** 2, (s[0] * s[1]) ** 2
        value, slopes = pair(jnp.asarray(trace), jnp.asarray(determinant))
        np.testing.assert_allclose(float(value), reference(s), rtol=1e-11, atol=1e-12)
        along = 2 * s[0] * float(slopes[0]) + 2 * s[0] * s[1] ** 2 * float(slopes[1])
        h = 1e-4 * s[0]
        numeric = (reference((s[0] + h, s[1])) - reference((s[0] - h, s[1]))) / (2 * h)
        assert along == pytest.approx(numeric, rel=1e-6)


def test_fixed_parameters_have_their_constant_in_no_program():
    """A log density that is traced, differentiated or compiled contains no series if ``f`` is fixed."""
    langevin = dist.MatrixLangevin(jnp.asarray(F[3, 2]))
    text = str(jax.make_jaxpr(jax.grad(langevin.log_prob))(jnp.eye(3)[:, :2]))
    assert "while" not in text
    assert "scan" not in text
    free = jax.make_jaxpr(lambda f: dist.MatrixLangevin(f).log_prob(jnp.eye(3)[:, :2]))(langevin.f)
    assert "while" in str(free) or "scan" in str(free)


def test_constant_of_three_columns_is_left_out():
    langevin = dist.MatrixLangevin(jnp.asarray(F[3, 3]))
    assert not langevin.is_normalized
    assert float(langevin.log_prob(jnp.eye(3))) == pytest.approx(np.trace(F[3, 3]))
    with pytest.raises(NotImplementedError, match="is not implemented for 3 columns"):
        langevin.log_normalizer()


# --------------------------------------------------------------------------------- von Mises and Fisher


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n", "concentration"),
    [(2, 0.0), (2, 3.0), (5, 2.0), (5, 1e8), (30, 15.0)],
    ids=str,
)
def test_von_mises_fisher_moments(n, concentration, key):
    mean = np.arange(1, n + 1) * np.where(np.arange(n) % 2, 1, -1.0)
    mean = mean / np.linalg.norm(mean)
    fisher = dist.VonMisesFisher(jnp.asarray(mean), concentration)
    x = np.asarray(fisher.sample(key, (NUM_DRAWS,)))
    assert_on_manifold(x[:, :, None])
    along = x @ mean
    length = float(fisher.mean_resultant_length)
    assert_means(concentration * (1 - along), concentration * (1 - length), "mean resultant length")
    square = 1 - (n - 1) * length / concentration if concentration else 1 / n
    if concentration < 1e3:
        assert_means(along**2, square, "second moment")
    across = x - along[:, None] * mean
    assert_means(across, 0, "directions around the mean")
    scale = np.sqrt((1 - square) / (n - 1))
    expected = np.eye(n) - np.outer(mean, mean)
    assert_means((across[:, :, None] * across[:, None]) / scale**2, expected, "isotropy around the mean")


@pytest.mark.thorough
def test_von_mises_fisher_on_the_sphere_has_its_distribution(dtype, key):
    """On the ordinary sphere the cosine has an explicit distribution function."""
    k = 2.5
    fisher = dist.VonMisesFisher(jnp.array([0.0, 0.0, 1.0], dtype), jnp.asarray(k, dtype))
    x = fisher.sample(key, (NUM_DRAWS,))
    assert x.dtype == dtype
    cosine = np.asarray(x[:, 2], np.float64)
    test = scipy.stats.kstest(cosine, lambda t: (np.exp(k * t) - np.exp(-k)) / (np.exp(k) - np.exp(-k)))
    assert test.pvalue > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("n", [2, 3])
def test_von_mises_fisher_density_is_normalized(n):
    fisher = dist.VonMisesFisher(jnp.eye(n)[0], 4.0)
    frames, weight = nodes(n, 1)
    total = weight @ np.exp(np.asarray(fisher.log_prob(jnp.asarray(frames[:, :, 0]))))
    np.testing.assert_allclose(total, 1, rtol=1e-9)
    np.testing.assert_allclose(fisher.mean, fisher.mean_resultant_length * np.eye(n)[0])


# ----------------------------------------------------------------------------------------- exact draws


@pytest.mark.thorough
@pytest.mark.parametrize("name", with_slow(["2x1", "2x2", "3x2", "rank one", "3x3"], ["3x1", "zero", "concentrated"]))
def test_langevin_draws(name, key):
    langevin = dist.MatrixLangevin(jnp.asarray(LANGEVIN[name]))
    assert_follows(langevin.sample(key, (NUM_DRAWS,)), langevin)


@pytest.mark.thorough
def test_langevin_trace_has_the_distribution_of_rejected_haar_draws(key):
    f = np.random.default_rng(5).normal(size=(5, 3))
    rng = np.random.default_rng(6)
    proposals = haar_frames(rng, 400_000, 5, 3)
    trace = np.einsum("np,cnp->c", f, proposals)
    bound = np.linalg.svd(f, compute_uv=False).sum()
    expected = trace[np.log(rng.uniform(size=len(trace))) < trace - bound]
    assert len(expected) > 500
    found = np.einsum("np,cnp->c", f, dist.MatrixLangevin(jnp.asarray(f)).sample(key, (NUM_DRAWS,)))
    assert scipy.stats.ks_2samp(found, expected).pvalue > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(6, 3), slow((4, 4))], ids=str)
def test_highly_concentrated_langevin_draws_follow_laplace(shape, key):
    """Then the loss of the trace from its largest value is half a chi-square with the dimension as its freedom."""
    n, p = shape
    rng = np.random.default_rng(8)
    u, _, vt = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    scales = np.array([9e6, 5e6, 2e6, 1e6])[:p]
    f = (u * scales) @ vt
    x = np.asarray(dist.MatrixLangevin(jnp.asarray(f)).sample(key, (4000,)))
    # in this form no digit is lost
    loss = 0.5 * np.sum(scales * np.sum((x @ vt.T - u) ** 2, axis=1), axis=1)
    freedom = n * p - p * (p + 1) // 2
    assert_means(loss, freedom / 2)
    assert scipy.stats.kstest(2 * loss, scipy.stats.chi2(freedom).cdf).pvalue > 1e-4


A = np.array([[1.0, 0.5, -0.2], [0.5, -1.0, 0.8], [-0.2, 0.8, 0.4]])
QUADRATIC = {
    "circle": dist.MatrixBingham(jnp.asarray(A[:2, :2])),
    "sphere": dist.MatrixBingham(jnp.asarray(A)),
    "girdle": dist.MatrixBingham(jnp.asarray(6 * A), jnp.array([-1.5])),
    "equal weights": dist.MatrixBingham(jnp.asarray(2 * A), jnp.ones(2)),
    "weights": dist.MatrixBingham(jnp.asarray(A), jnp.array([2.0, 0.5])),
    "weights of both signs": dist.MatrixBingham(jnp.asarray(A), jnp.array([1.0, -0.7])),
    "square": dist.MatrixBingham(jnp.asarray(A), jnp.array([1.5, 0.5, -0.5])),
    "vector": dist.BinghamVonMisesFisher(jnp.asarray(F[3, 1]), jnp.asarray(A)),
    "vector against the axis": dist.BinghamVonMisesFisher(
        jnp.array([[4.0], [0.5], [0.0]]), jnp.diag(jnp.array([-6.0, 1.0, 0.0]))
    ),
    "matrix": dist.BinghamVonMisesFisher(jnp.asarray(F[3, 2]), jnp.asarray(A), jnp.array([1.0, 0.3])),
    "square matrix": dist.BinghamVonMisesFisher(jnp.asarray(F[2, 2]), jnp.asarray(A[:2, :2]), jnp.array([1.0, -0.5])),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    with_slow(
        ["sphere", "weights of both signs", "vector against the axis", "matrix"],
        ["circle", "girdle", "equal weights", "weights", "square", "vector", "square matrix"],
    ),
)
def test_quadratic_draws(name, key):
    distribution = QUADRATIC[name]
    assert_follows(distribution.sample(key, (NUM_DRAWS,)), distribution)


BINGHAM = {
    "circle": np.array(A)[:2, :2],
    "sphere": np.array(A),
    "girdle": -3.0 * np.array(A),
    "uniform": np.zeros((3, 3)),
    "axis": 7.0 * np.outer([0.6, 0.0, 0.8], [0.6, 0.0, 0.8]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", BINGHAM)
def test_bingham_density_of_one_column_is_normalized(name):
    """With the second moments as the gradient of the constant, also where eigenvalues are equal."""
    a = jnp.asarray(BINGHAM[name])
    bingham = dist.MatrixBingham(a)
    frames, weight = nodes(*bingham.event_shape)
    assert bingham.is_normalized
    density = weight * np.exp(np.asarray(bingham.log_prob(jnp.asarray(frames))))
    np.testing.assert_allclose(density.sum(), 1, rtol=1e-7)
    moments = np.einsum("k,kip,kjp->ij", density, frames, frames)
    slope = jax.grad(lambda a: dist.MatrixBingham(a).log_normalizer())(a)
    np.testing.assert_allclose(slope, moments, atol=1e-7)
    weighted = dist.MatrixBingham(-0.5 * a, jnp.array([-2.0]))
    np.testing.assert_allclose(weighted.log_normalizer(), bingham.log_normalizer(), rtol=1e-12, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float64, 1e-11), (jnp.float32, 1e-5)])
def test_constant_of_bingham_has_its_digits(dtype, rtol):
    """Watson's distributions, also of many dimensions where the largest eigenvalue begins to win; pairs of eigenvalues."""
    for n, k in [(2, 30.0), (3, 0.1), (3, -200.0), (10, 4.0), (100, 49.5), (100, 60.0), (100, -40.0), (100, 1.0)]:
        found = log_1f1(jnp.zeros(n, dtype).at[0].set(k))
        expected = np.log(scipy.special.hyp1f1(0.5, n / 2, k))
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol, err_msg=str((n, k)))
    values = np.array([2.0, -1.0, -30.0, -1e4])  # each twice: the integrand has poles only
    differences = values[:, None] - values + np.eye(4)
    expected = np.log(6.0 * np.sum(np.exp(values) / np.prod(differences, axis=1)))
    found = log_1f1(jnp.asarray(np.repeat(values, 2), dtype))
    np.testing.assert_allclose(found, expected, rtol=rtol)


def test_constant_of_two_bingham_columns_is_left_out():
    bingham = QUADRATIC["weights"]
    assert not bingham.is_normalized
    with pytest.raises(
        NotImplementedError, match="MatrixBingham: the normalising constant is not implemented for 2 columns"
    ):
        bingham.log_normalizer()


@pytest.mark.parametrize("scale", [1e2, 1e6])
def test_concentrated_bingham_draws_follow_laplace(scale, key):
    """Near the axis the density is Gaussian."""
    values = np.array([0.0, -1.0, -2.0, -5.0])
    x = np.asarray(dist.MatrixBingham(jnp.asarray(np.diag(scale * values))).sample(key, (NUM_DRAWS,)))[:, :, 0]
    ratio = x[:, 1:] / x[:, :1]
    bias = 30 / scale  # of Laplace's approximation, relative
    np.testing.assert_allclose(2 * scale * -values[1:] * (ratio**2).mean(0), 1, atol=4 * np.sqrt(2 / NUM_DRAWS) + bias)
    assert_means(x[:, 0] > 0, 0.5)


def test_envelope_of_fisher_bingham_is_tight(key):
    """The two envelopes multiply: neither may make most proposals fail, whatever the parameters."""
    fs = jnp.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [50.0, 10.0, 0.0], [4.0, 0.5, 0.0], [1000.0, 0.0, 5.0]])
    a_s = jnp.stack([jnp.diag(jnp.array(d)) for d in ([0.0, 0, 0], [-6.0, 1, 0], [3.0, -200, 0])])

    def rate(key, f, a):
        propose = directions.propose_fisher_bingham(f, a)
        log_probability = jax.vmap(propose)(jax.random.split(key, 500))[1]
        return jnp.mean(jnp.exp(log_probability)), jnp.max(log_probability)

    rates_of = jax.jit(jax.vmap(rate, (None, None, 0)))
    for f in fs:
        rates, largest = rates_of(key, f, a_s)
        assert np.all(np.asarray(rates) > 0.2), rates
        assert np.all(np.asarray(largest) < 1e-9)
        key = jax.random.fold_in(key, 1)


@pytest.mark.thorough
def test_envelope_of_fisher_bingham_keeps_its_digits(key):
    """In float32 as in float64, where the concentration has more digits than float32."""
    f, a = np.array([0.0, 3e7, 4e7]), np.diag([-1e7, 0.0, 1.0])

    def log_probability(dtype):
        propose = directions.propose_fisher_bingham(jnp.asarray(f, dtype), jnp.asarray(a, dtype))
        return np.asarray(jax.jit(jax.vmap(propose))(jax.random.split(jax.random.clone(key), 4000))[1], float)

    single, double = log_probability(jnp.float32), log_probability(jnp.float64)
    assert single.max() < 1e-3
    assert scipy.stats.ks_2samp(single, double).pvalue > 1e-4


# ----------------------------------------------------------------------------------------------- Gibbs


@pytest.mark.thorough
@pytest.mark.parametrize("name", with_slow(["3x3"], ["2x2", "3x2", "rank one"]))
def test_gibbs_chains_of_langevin(name, key):
    langevin = dist.MatrixLangevin(jnp.asarray(LANGEVIN[name]))
    assert_follows(langevin.gibbs_sample(key, (NUM_DRAWS // 4,), num_sweeps=20), langevin)


@pytest.mark.thorough
@pytest.mark.parametrize("name", with_slow(["matrix"], ["weights", "square", "square matrix"]))
def test_gibbs_chains_with_quadratic_terms(name, key):
    distribution = QUADRATIC[name]
    assert_follows(distribution.gibbs_sample(key, (NUM_DRAWS // 4,), num_sweeps=15), distribution)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 4), (4, 4)], ids=str)
def test_gibbs_agrees_with_rejection(shape, key):
    langevin = dist.MatrixLangevin(3.0 * jax.random.normal(jax.random.key(3), shape))
    key_exact, key_gibbs = jax.random.split(key)
    exact = langevin.sample(key_exact, (3000,))
    chains = langevin.gibbs_sample(key_gibbs, (3000,), num_sweeps=15)
    for of in (lambda x: langevin.log_prob(x), lambda x: x[:, 0, 0], lambda x: x[:, 1, 1] * x[:, 2, 2]):
        assert scipy.stats.ks_2samp(np.asarray(of(exact)), np.asarray(of(chains))).pvalue > 1e-4


def test_hopeless_rejection_is_refused(key):
    """Von Neumann's bound is met in a small region only."""
    distribution = dist.BinghamVonMisesFisher(np.ones((3, 2)), 50.0 * A, np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"one proposal in 10\^.*gibbs_sample"):
        distribution.sample(key, (3,))


@pytest.mark.slow
def test_gibbs_samples_what_rejection_refuses(key):
    """Eight columns at high concentration: the trace is near its Laplace value."""
    n, p = 10, 8
    scales = np.linspace(3e4, 2e4, p)
    langevin = dist.MatrixLangevin(jnp.asarray(np.eye(n, p) * scales))
    with pytest.raises(ValueError, match=r"one proposal in 10\^.*gibbs_sample"):
        langevin.sample(key, (3,))
    x = np.asarray(langevin.gibbs_sample(jax.random.fold_in(key, 1), (300,), num_sweeps=40))
    assert_on_manifold(x)
    loss = 0.5 * np.sum(scales * np.sum((x - np.eye(n, p)) ** 2, axis=1), axis=1)
    assert_means(loss, (n * p - p * (p + 1) / 2) / 2)


# --------------------------------------------------------------------------------------------- uniform


@pytest.mark.thorough
@pytest.mark.parametrize("dtype_", [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128], ids=str)
def test_uniform_draws(dtype_, key):
    uniform = dist.StiefelUniform(4, 2, dtype=dtype_)
    x = uniform.sample(key, (50, 400))
    assert x.dtype == dtype_
    assert x.shape == (50, 400, 4, 2)
    assert_on_manifold(x)
    x = np.asarray(x).reshape(-1, 4, 2)
    fourth = 2 / (4 * 5) if np.iscomplexobj(x) else 3 / (4 * 6)
    assert_means(x.real, 0)
    assert_means(np.abs(x) ** 2, 1 / 4)
    assert_means(np.abs(x) ** 4, fourth)
    assert uniform.is_normalized
    assert np.all(np.asarray(uniform.log_prob(jnp.asarray(x))) == 0)


# ------------------------------------------------------------------------------- types and compilation


def each_kind(dtype):
    f, a = jnp.asarray(F[3, 2], dtype), jnp.asarray(A, dtype)
    return [
        dist.StiefelUniform(3, 2, dtype),
        dist.VonMisesFisher(jnp.array([0.6, 0.8, 0.0], dtype), 3.0),
        dist.MatrixLangevin(f),
        dist.MatrixBingham(a, jnp.array([1.0, 0.5])),
        dist.BinghamVonMisesFisher(f, a),
    ]


@pytest.mark.thorough
def test_precision_and_shapes(key):
    """The type follows the parameters (the other tests are in double precision); densities map over stacks."""
    dtype = jnp.float32
    for distribution in each_kind(dtype):
        x = distribution.sample(key, (2, 3))
        event = (3,) if isinstance(distribution, dist.VonMisesFisher) else (3, 2)
        assert x.shape == (2, 3, *event)
        assert x.dtype == dtype
        log_prob = distribution.log_prob(x)
        assert log_prob.shape == (2, 3)
        assert log_prob.dtype == dtype
        single = distribution.log_prob(x[1, 2])
        np.testing.assert_allclose(single, log_prob[1, 2], rtol=100 * jnp.finfo(dtype).eps)
        key = jax.random.clone(key)


@pytest.mark.thorough
def test_a_compiled_call_gives_the_same_draws(key):
    langevin = dist.MatrixLangevin(jnp.asarray(F[3, 2]))
    x = langevin.sample(key, 6)
    compiled = eqx.filter_jit(lambda d, k: d.sample(k, 6))(langevin, jax.random.clone(key))
    np.testing.assert_allclose(x, compiled, atol=1e-14)
    one, none = jax.random.split(jax.random.clone(key))
    assert langevin.sample(one).shape == (3, 2)
    assert langevin.sample(none, 0).shape == (0, 3, 2)


def test_distributions_map_over_parameters(key):
    fs = jnp.stack([0 * jnp.asarray(F[3, 2]), 200 * jnp.asarray(F[3, 2])])
    draw = jax.jit(jax.vmap(lambda f, k: dist.MatrixLangevin(f).sample(k, (500,))))
    x = np.asarray(draw(fs, jax.random.split(key)))
    assert_on_manifold(x)
    assert_means(x[0], 0)
    u, _, vt = np.linalg.svd(np.array(F[3, 2]), full_matrices=False)
    np.testing.assert_allclose(x[1].mean(0), u @ vt, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [1e4, 1e8, 1e10])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_highly_concentrated_unit_vectors_in_float32(n, concentration, key):
    """Catches logarithms of acceptances that are differences of numbers as large as the concentration."""
    mean = jnp.asarray(np.arange(1.0, n + 1) / np.linalg.norm(np.arange(1.0, n + 1)), jnp.float32)
    x = dist.VonMisesFisher(mean, jnp.float32(concentration)).sample(key, (20_000,))
    assert x.dtype == jnp.float32
    fall = 0.5 * concentration * np.sum((np.asarray(x, float) - np.asarray(mean, float)) ** 2, axis=1)
    assert scipy.stats.kstest(fall, scipy.stats.gamma(0.5 * (n - 1)).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("shape", "concentration"),
    [((3, 2), 1e7), slow((4, 3), 1e8), slow((3, 3), 1e9)],
)
def test_highly_concentrated_frames_in_float32(shape, concentration, key):
    n, p = shape
    mode = jnp.asarray(np.linalg.qr(np.random.default_rng(0).normal(size=shape))[0], jnp.float32)
    x = dist.MatrixLangevin(jnp.float32(concentration) * mode).sample(key, (10_000,))
    fall = 0.5 * concentration * np.sum((np.asarray(x, float) - np.asarray(mode, float)) ** 2, axis=(1, 2))
    half = 0.5 * (n * p - p * (p + 1) / 2)
    assert abs(fall.mean() - half) < 4.5 * fall.std() / np.sqrt(len(fall))
    assert abs(fall.var() - half) < 4.5 * np.std((fall - fall.mean()) ** 2) / np.sqrt(len(fall))


def test_a_uniform_of_zero_accepts_nothing(key):
    """Catches the logarithm of zero, below that of any probability; this key draws a zero in its second attempt."""
    key = jax.random.split(jax.random.key(0), 200_000)[62_943]
    key_second = jax.random.split(jax.random.clone(key), 3)[0]
    assert jax.random.uniform(jax.random.split(key_second, 3)[2], (), jnp.float32) == 0.0

    def hopeless(key):
        return jax.random.normal(key, (3,), jnp.float32), jnp.float32(-1000.0)

    assert jnp.isnan(first_accepted(key, hopeless, 10)).all()


@pytest.mark.parametrize("kind", [2, slow(3), slow(4)])
def test_float32_draws_have_the_right_moments(key, kind):
    distribution, reference = (each_kind(dtype)[kind] for dtype in (jnp.float32, jnp.float64))
    assert_follows(distribution.sample(key, (NUM_DRAWS,)), reference)


@pytest.mark.thorough
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda f: lambda keys: jax.lax.map(f, keys)])
def test_a_draw_that_is_given_up_raises_under_transformations(key, transform):
    """Catches NaN among draws."""
    langevin = dist.MatrixLangevin(30.0 * jnp.eye(4, 3))
    keys = key if transform is jax.jit else jax.random.split(key, 5)

    def draw(key):
        return langevin.sample(key, (20,), max_proposals=1)

    with pytest.raises(RuntimeError, match="some draws had no accepted proposal in max_proposals = 1"):
        jax.block_until_ready(transform(draw)(keys))


def test_a_draw_that_is_not_used_does_not_raise(key):
    """Catches an error in models that are traced for their shapes, or whose draws are substituted."""
    langevin = dist.MatrixLangevin(30.0 * jnp.eye(4, 3))
    jax.block_until_ready(jax.jit(lambda k: jnp.ones(langevin.sample(k, (20,), max_proposals=1).shape))(key))


def test_log_density_serves_a_sampler(key):
    """The densities are what the Markov chain samplers expect."""
    langevin = dist.MatrixLangevin(jnp.asarray(F[3, 2]))
    value, gradient = jax.value_and_grad(langevin.log_prob)(langevin.sample(key))
    assert np.isfinite(value)
    np.testing.assert_allclose(gradient, F[3, 2])


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dist.StiefelUniform(2, 3), "n >= p >= 1, found n = 2, p = 3"),
        (lambda: dist.StiefelUniform(3, 2, int), "floating-point or complex dtype"),
        (lambda: dist.VonMisesFisher([1.0], 1.0), "at least 2 entries"),
        (lambda: dist.VonMisesFisher([1.0, 1.0], 1.0), "length 1, found length 1.41421; divide by it"),
        (lambda: dist.VonMisesFisher([1.0, 0.0], -1.0), "non-negative number, found -1"),
        (lambda: dist.VonMisesFisher([1.0, 0.0], np.inf), "concentration: expected finite"),
        (lambda: dist.VonMisesFisher([1.0, 0.0], [1.0]), "concentration: expected a number"),
        (lambda: dist.MatrixLangevin(np.ones((2, 3))), r"n >= p >= 1, found shape \(2, 3\)"),
        (lambda: dist.MatrixLangevin(np.ones(3)), r"expected a matrix, found shape \(3,\)"),
        (lambda: dist.MatrixLangevin(np.ones((3, 2)) * 1j), "only StiefelUniform is complex"),
        (lambda: dist.MatrixLangevin([[1.0], [np.nan]]), "finite entries, found 1 that"),
        (lambda: dist.MatrixBingham(np.ones((2, 3))), "square symmetric matrix"),
        (lambda: dist.MatrixBingham([[1.0, 2.0], [0.0, 1.0]]), "entry of size 2"),
        (lambda: dist.MatrixBingham(np.eye(2), np.ones(3)), "between 1 and 2 weights, found 3"),
        (lambda: dist.BinghamVonMisesFisher(np.ones((3, 2)), np.eye(2)), r"expected a of shape \(3, 3\)"),
        (lambda: dist.MatrixLangevin(np.ones((3, 2))).log_prob(jnp.ones((2, 3))), r"shape \(..., 3, 2\)"),
        (
            lambda: dist.MatrixLangevin(np.ones((3, 2))).gibbs_sample(jax.random.key(0), num_sweeps=0),
            "num_sweeps must be at least 1",
        ),
    ],
)
def test_wrong_arguments_say_what_was_expected(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_integer_parameters_are_taken_as_numbers():
    assert dist.MatrixLangevin(np.eye(3, 2, dtype=int)).f.dtype == jnp.zeros(()).dtype
    assert re.match(r"MatrixLangevin\(", repr(dist.MatrixLangevin(np.eye(3, 2))))


def test_accepted_proposals_fill_the_places_in_turn(key):
    """Uniform proposals accepted with their value as probability have the density 2 x; what is missing comes last."""

    def propose(key):
        value = jax.random.uniform(key)
        return value, jnp.log(value)

    draws = np.asarray(accepted(key, propose, 3000, 100))
    assert len(set(draws)) == 3000
    assert scipy.stats.kstest(draws, scipy.stats.beta(2, 1).cdf).pvalue > 1e-4
    some = np.asarray(accepted(jax.random.clone(key), propose, 3000, 1))
    number = np.isfinite(some).sum()
    assert 1000 < number < 2000
    np.testing.assert_array_equal(some[:number], draws[:number])
    assert np.isnan(some[number:]).all()
