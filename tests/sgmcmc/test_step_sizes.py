"""The step size that warm-up finds where none is given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import geodax as gx
from benchmarks._batch_variance import variance
from geodax._types import Cycle
from geodax.run.errors import NonFiniteError
from geodax.sgmcmc.control_variates import control_variates
from geodax.sgmcmc.step_sizes import Stiffness
from tests.marks import slow

CURVATURES = jnp.array([25.0, 4.0, 1.0])
SGRLD, SGHMC = (slow(sampler, id=sampler.__name__) for sampler in (gx.sgrld, gx.sghmc))


def gaussian(x):
    return -0.5 * jnp.sum(CURVATURES * x**2)


@pytest.mark.thorough
@pytest.mark.parametrize(("sampler", "truth"), [(gx.sgrld, 0.2 / 25), (gx.sghmc, 0.4 / 5)])
def test_it_follows_the_largest_curvature(key, sampler, truth):
    draws = gx.sample(key, sampler(gaussian), jnp.ones(3), num_samples=5, num_warmup=60, num_chains=2, progress=False)
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, truth, rtol=1e-3)


def test_curvature_is_measured_at_random_distances():
    """Catches a measurement at the position itself, which may be a pole that the chain hardly leaves."""
    algorithm = gx.sghmc(lambda x: -jnp.sum(x**4))
    adaptation, state = algorithm.adapt(200, None), algorithm.init(jnp.full(3, 0.5))
    update = jax.jit(lambda key: adaptation.update(key, adaptation.init(state), state, None, jnp.int32(0))[0].growth)
    found = np.array([update(jax.random.key(number)) for number in (0, 1, 2, 0)])
    assert found[3] == found[0]
    assert len(set(found.tolist())) == 3


def normal_mean(num_data):
    """The mean of normal laws of precision 1 and 4; the prior has precision 1."""
    scales = jnp.array([1.0, 0.5])
    data = scales[None] * jax.random.normal(jax.random.key(1), (num_data, 2))
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.5 * jnp.sum(((b - t[None]) / scales[None]) ** 2, axis=-1),
        num_data=num_data,
    )
    return posterior, data - data.mean(axis=0)[None]


def tuned(key, algorithm, data, batch_size, num_warmup=400, order="independent", **settings):
    draws = gx.sample(
        jax.random.clone(key),
        algorithm,
        jnp.zeros(2),
        batches=gx.data.batches(data, batch_size=batch_size, order=order),
        num_warmup=num_warmup,
        progress=False,
        **({"num_samples": 1} | settings),
    )
    return draws["sample_stats"]["step_size"].values[:, -1], next(iter(draws["posterior"].data_vars.values())).values


@pytest.mark.thorough
def test_it_sees_the_whole_data(key):
    """A likelihood of 30 examples, all of them in each batch: there is no noise."""
    posterior, data = normal_mean(30)
    np.testing.assert_allclose(tuned(key, gx.sgrld(posterior), data, 30)[0], 0.2 / 121, rtol=1e-3)
    cold = gx.sgrld(posterior, temperature=0.0)
    np.testing.assert_allclose(tuned(key, cold, data, 10)[0], 0.2 / 121, rtol=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("batch_size", [2, slow(1), slow(20)])
def test_it_counts_the_noise_of_batches(key, batch_size):
    """Along the stiffest direction a batch's derivative has the variance N^2 / B times that of an example's, 4."""
    posterior, data = normal_mean(400)
    noise = 400**2 / batch_size * float(jnp.var(data[:, 1])) * 16
    curvature = 400 * 4 + 1
    # so long that chains forget the larger steps of the first half: away from the mode a single example counts its mean
    settings = {"num_warmup": 15_000 if batch_size == 1 else 4000, "num_chains": 40}
    found = tuned(key, gx.sgrld(posterior), data, batch_size, **settings)[0]
    np.testing.assert_allclose(np.mean(1 / found), (curvature + noise) / 0.2, rtol=0.2)
    found = tuned(key, gx.sghmc(posterior, friction=0.2, temperature=2.0), data, batch_size, **settings)[0]
    np.testing.assert_allclose(np.mean(found**-2.0), curvature / 0.16 + noise / 2.0 / (0.2 * 0.2), rtol=0.2)


@pytest.mark.thorough
@pytest.mark.parametrize(("order", "batch_size"), [("epochs", 50), slow("symmetric", 50), slow("epochs", 7)])
def test_errors_that_cancel_in_a_pass_allow_larger_steps(key, order, batch_size):
    """They heat by a tenth at most, by the exact variance, and more than a twentieth; with examples left out too."""
    posterior, data = normal_mean(400)
    curvature, num_batches = 400 * 4 + 1, 400 // batch_size
    noise = 400**2 / batch_size * float(jnp.var(data[:, 1], ddof=1)) * 16
    settings = {"num_warmup": 2000, "num_chains": 10, "order": order}
    relative = noise / curvature * (1 - batch_size / 400)  # without replacement
    step = curvature**0.5 * tuned(key, gx.sghmc(posterior, ordering="baoab"), data, batch_size, **settings)[0].mean()
    assert 1.05 < variance("baoab", order, step, 0.1, num_batches, relative) < 1.11
    assert step > 1.8 * (1 / 0.16 + 47.5 * noise / curvature) ** -0.5
    if order == "epochs":
        decay = 1.0 - curvature * tuned(key, gx.sgrld(posterior), data, batch_size, **settings)[0].mean()
        assert 1.0 - decay > 1.8 * 0.2 / (1.0 + noise / curvature)
        lags = np.arange(1, num_batches)
        left = 1.0 - 2.0 * np.sum((num_batches - lags) * decay**lags) / (num_batches * (num_batches - 1))
        heat = 0.5 * (1.0 - decay) * relative * num_batches / (num_batches - 1) * left
        assert 1.05 < (1.0 + heat) / (1.0 - 0.5 * (1.0 - decay)) < 1.13


@pytest.mark.parametrize("left_out", [0.0, 0.3, 1.0])
def test_examples_that_a_pass_leaves_out_count_wholly(left_out):
    """The largest step solves its equation, in which the excess counts as before."""
    stiffness, left, weight = Stiffness(*map(jnp.asarray, (2.0, 5.0, 0.0, 0.5))), 0.7, 4.0
    fixed, noise = jnp.asarray(3.0), jnp.asarray(60.0)
    u = float(stiffness.largest(fixed, weight, noise, Cycle(4, left_out), left))
    cancelled = min(1.0, left * 2.0 * u) * (1.0 - left_out) * 0.5 * noise
    assert u * (fixed + weight * (max(0.5 * left_out * noise, 1.0) + cancelled)) == pytest.approx(1.0)
    alone = float(stiffness.largest(fixed, weight, noise))
    assert u == pytest.approx(alone) if left_out == 1.0 else u > 1.1 * alone


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sgrld, SGHMC])
def test_many_examples_in_single_precision(sampler):
    """The square of their number is no integer of 32 bits."""
    with jax.enable_x64(False):
        posterior, data = normal_mean(100_000)
        found, draws = tuned(jax.random.key(5), sampler(posterior), data, 1000, num_warmup=4000, num_chains=8)
    assert found.dtype == draws.dtype == np.float32
    noise = 400_000 * 100
    truth = 0.2 / (400_000 + noise) if sampler is gx.sgrld else (400_000 / 0.16 + 10 * noise / 0.2) ** -0.5
    np.testing.assert_allclose(found, truth, rtol=0.15)


@pytest.mark.thorough
def test_functions_that_know_their_own_gradients(key):
    """Forward differentiation does not exist for them, such as the Givens transform."""
    posterior, data = normal_mean(100)
    turned = jax.custom_vjp(lambda t: t)
    turned.defvjp(lambda t: (t, None), lambda _, g: (g,))
    other = gx.Posterior(
        log_prior=posterior.log_prior,
        log_likelihood=lambda t, b: posterior.log_likelihood(turned(t), b),
        num_data=100,
    )
    found = [tuned(key, gx.sgrld(target), data, 10, num_chains=2)[0] for target in (posterior, other)]
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.thorough
def test_noise_that_is_known_is_deducted(key):
    """Noise of standard deviation 400 in each entry, which friction could not absorb at the step for the curvature."""
    posterior, data = normal_mean(100)
    options = {"perturb_gradient": lambda key, g: g + 400 * jax.random.normal(key, g.shape), "gradient_noise": 400.0}
    settings = {"num_warmup": 2000, "num_samples": 500, "thinning": 60, "num_chains": 24}
    found, draws = tuned(key, gx.sghmc(posterior, **options), data, 100, **settings)
    np.testing.assert_allclose(found**-2.0, 401 / 0.16 + 400**2 / 0.2, rtol=1e-3)
    ratio = np.mean(draws**2, axis=(0, 1)) * np.array([101.0, 401.0])
    assert np.all((ratio > 0.85) & (ratio < 1.15)), ratio


@pytest.mark.thorough
def test_control_variates_make_it_larger(key):
    posterior, data = normal_mean(400)
    steady = control_variates(posterior, jnp.zeros(2), data)
    plain, large = (tuned(key, gx.sgrld(target), data, 20, num_chains=4)[0] for target in (posterior, steady))
    np.testing.assert_allclose(large, 0.2 / 1601, rtol=1e-3)
    assert np.all(plain < large / 10)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ordering", "temperature"),
    [
        (None, 3.0),
        ("baoab", 1.0),
        slow(None, 1.0),
        slow("paper", 1.0),
        slow("paper", 3.0),
        slow("baoab", 3.0),
    ],
)
def test_the_posterior_has_its_width(key, ordering, temperature):
    """Batches of 20 of 1,000 examples: were their noise not counted, variances would be 5 to 40 times as large."""
    posterior, data = normal_mean(1000)
    options = {"temperature": temperature}
    algorithm = (
        gx.sgrld(posterior, **options) if ordering is None else gx.sghmc(posterior, ordering=ordering, **options)
    )
    settings = {"num_warmup": 4000, "num_samples": 500, "thinning": 60, "num_chains": 24}
    _, draws = tuned(key, algorithm, data, 20, **settings)
    ratio = np.mean(draws**2, axis=(0, 1)) * np.array([1001.0, 4001.0]) / temperature
    assert np.all((ratio > 0.85) & (ratio < 1.25)), ratio


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "start"),
    [
        (gx.sgrld, 3.0),
        (gx.sghmc, 0.0),
        slow(gx.sgrld, 0.0),
        slow(gx.sghmc, 3.0),
    ],
    ids=["sgrld-far", "sghmc-mode", "sgrld-mode", "sghmc-far"],
)
def test_warmup_ends_where_the_posterior_is(key, sampler, start):
    """Steps that leave the noise of batches out, here of 20 of 20,000, make chains some hundred times as hot."""
    posterior, data = normal_mean(20_000)
    draws = gx.sample(
        key,
        sampler(posterior),
        jnp.full(2, start),
        batches=gx.data.batches(data, batch_size=20),
        num_samples=1,
        num_warmup=2000,
        num_chains=12,
        progress=False,
    )
    heat = np.mean(draws["posterior"]["position"].values ** 2 * np.array([20_001.0, 80_001.0]))
    assert heat < 8, heat


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [SGRLD, gx.sghmc])
def test_a_batch_of_all_examples_has_no_noise(key, sampler):
    posterior, data = normal_mean(200)
    settings = {"num_warmup": 200, "num_samples": 1000, "thinning": 10, "num_chains": 12}
    _, draws = tuned(key, sampler(posterior), data, 200, **settings)
    ratio = np.mean(draws**2, axis=(0, 1)) * np.array([201.0, 801.0])
    assert np.all((ratio > 0.9) & (ratio < 1.25)), ratio


def regression(num_data, num_columns, is_sparse):
    """Rows, a posterior, its mean and its precision: independent normal inputs, or one of them 1 and the others 0."""
    keys = jax.random.split(jax.random.key(2), 4)
    x = jax.random.normal(keys[0], (num_data, num_columns))
    if is_sparse:
        x = jax.nn.one_hot(jax.random.randint(keys[1], (num_data,), 0, num_columns), num_columns, dtype=x.dtype)
    y = x @ jax.random.normal(keys[2], (num_columns,)) + jax.random.normal(keys[3], (num_data,))
    posterior = gx.Posterior(
        log_prior=lambda w: -0.5 * jnp.sum(w**2),
        log_likelihood=lambda w, rows: -0.5 * (rows[1] - rows[0] @ w) ** 2,
        num_data=num_data,
    )
    precision = x.T @ x + jnp.eye(num_columns)
    return (x, y), posterior, jnp.linalg.solve(precision, x.T @ y), precision


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        (gx.sgrld, {}),
        (gx.sghmc, {"control": True}),
        slow(gx.sghmc, {}),
        slow(gx.sghmc, {"temperature": 0.0}),
        slow(gx.sgrld, {"metric": gx.metrics.Frozen(gx.metrics.RMSProp(), after=300), "metric_warmup": 50}),
        slow(gx.sgrld, {"control": True}),
    ],
    ids=["sgrld", "sghmc-control", "sghmc", "training", "rmsprop", "sgrld-control"],
)
def test_batches_that_miss_a_direction(key, sampler, options):
    """Half of the batches have no example of a level: the mean of their curvatures would allow steps that diverge."""
    data, posterior, mean, precision = regression(10_000, 20, is_sparse=True)
    options = dict(options)
    if options.pop("control", False):
        posterior = control_variates(posterior, mean, data)
    draws = gx.sample(
        key,
        sampler(posterior, **options),
        mean,
        batches=gx.data.batches(data, batch_size=10),
        num_samples=200,
        num_warmup=1000,
        num_chains=4,
        progress=False,
    )
    away = draws["posterior"]["position"].values - np.asarray(mean)
    heat = np.mean(np.einsum("cdi,ij,cdj->cd", away, np.asarray(precision), away)) / 20
    if options.get("temperature") == 0.0:
        # at steps of training the noise of batches is what keeps chains from the mode
        assert heat < 1000, heat
    else:
        assert 0.02 < heat < 10, heat


@pytest.mark.thorough
def test_curvatures_of_single_examples(key):
    """``E|H_B v|^2 / E v^T H_B v`` is N (d + 2) for normal inputs, and ``E|H_B v|`` is N d E|cos|."""
    data, posterior, mean, _ = regression(4000, 6, is_sparse=False)
    draws = gx.sample(
        key,
        gx.sgrld(posterior, temperature=0.0),
        mean,
        batches=gx.data.batches(data, batch_size=1),
        num_samples=1,
        num_warmup=4000,
        num_chains=40,
        progress=False,
    )
    curvature = 6 * 2 / (np.sqrt(np.pi) * special.gamma(3.5))
    expected = 4000 * (curvature + 0.2 * (8 - curvature))
    found = np.mean(0.2 / draws["sample_stats"]["step_size"].values[:, -1])
    np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_curvatures_whose_square_overflows(sampler):
    with jax.enable_x64(False):
        draws = gx.sample(
            jax.random.key(7),
            sampler(lambda x: -0.5 * jnp.sum(CURVATURES.astype(x.dtype) * (x / 1e-12) ** 2)),
            jnp.full(3, 1e-12),
            num_samples=5,
            num_warmup=60,
            progress=False,
        )
    truth = 0.2 / 25e24 if sampler is gx.sgrld else 0.4 / 5e12
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, truth, rtol=1e-2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "local"),
    [
        (gx.sgrld, True),
        (gx.sghmc, False),
        slow(gx.sgrld, False),
        slow(gx.sghmc, True),
    ],
    ids=["sgrld-local", "sghmc-shared", "sgrld-shared", "sghmc-local"],
)
def test_poles_of_the_horseshoe_do_not_stop_a_chain(key, sampler, local):
    """Second derivatives are infinite at zero: a step as small as they ask for would never leave it again."""
    prior = gx.nn.Horseshoe(1.0, local=local)

    def steps(log_prior, key):
        draws = gx.sample(
            key,
            sampler(lambda x: log_prior(x) - 0.5 * jnp.sum(x**2)),
            jnp.full(20, 0.3),
            num_samples=3,
            num_warmup=400,
            num_chains=4,
            progress=False,
        )
        return draws["sample_stats"]["step_size"].values[:, -1]

    keys = jax.random.split(key)
    smooth, found = steps(gx.nn.Gaussian(1.0).log_density, keys[0]), steps(prior.log_density, keys[1])
    assert np.all(found > 0.2 * smooth)
    assert np.all(found < 5 * smooth)


@pytest.mark.thorough
def test_densities_that_are_not_finite_everywhere(key):
    """A normal law within a box: the differences are taken nearer where they do not exist."""

    def logdensity(x):
        return jnp.where(jnp.all(jnp.abs(x) < 0.004), gaussian(x / 0.001), jnp.nan)

    draws = gx.sample(key, gx.sgrld(logdensity), jnp.zeros(3), num_samples=1, num_warmup=11, progress=False)
    np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, 0.2 / 25e6, rtol=0.05)


def test_densities_that_are_curved_at_kinks_only(key):
    """The second derivatives of a Laplace law are zero almost everywhere."""
    algorithm = gx.sgrld(gx.nn.Laplace(1.0).log_density)
    draws = gx.sample(key, algorithm, jnp.ones(3), num_samples=1, num_warmup=300, num_chains=4, progress=False)
    found = draws["sample_stats"]["step_size"].values
    assert np.all((found > 0.05) & (found < 0.8))


FIRST = jnp.eye(5)[:, :3]
EMBEDDED = gx.Stiefel(metric="embedded", flow="polar")


TURNING = {
    "canonical": (gx.Stiefel(), 2),
    "embedded": (gx.Stiefel(metric="embedded"), 1),
    "polar": (EMBEDDED, 1),
    "literal": (gx.Stiefel(metric="literal"), 4),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manifold", "turning", "is_complex"),
    [
        pytest.param(*case, is_complex, id=f"{name}-{kind}", marks=[] if name in fast else [pytest.mark.slow])
        for kind, is_complex, fast in (("real", False, ("canonical", "polar")), ("complex", True, ("embedded",)))
        for name, case in TURNING.items()
    ],
)
def test_the_curvature_is_that_on_the_manifold(key, manifold, turning, is_complex):
    """A linear density has curvature 1e4 on frames; columns turn twice as far in the canonical metric's motion."""
    first = FIRST.astype(complex) if is_complex else FIRST
    algorithm = gx.sghmc(lambda x: 1e4 * jnp.vdot(first, x).real, manifold=manifold)
    draws = gx.sample(key, algorithm, first, num_samples=1, num_warmup=400, num_chains=4, progress=False)
    found = draws["sample_stats"]["step_size"].values
    np.testing.assert_allclose(found, 0.4 / np.sqrt(1e4 * turning), rtol=0.03)


@pytest.mark.thorough
def test_curvature_beside_a_metric(key):
    """Units of the metric on the flat leaf, where the curvature is 100 times as large as on the sphere."""

    def logdensity(x):
        return 100.0 * x["direction"][0] - 0.5 * 1e4 * jnp.sum(x["flat"] ** 2)

    algorithm = gx.sghmc(
        logdensity,
        manifold=gx.Product({"direction": gx.Sphere()}),
        metric=gx.metrics.Frozen(gx.metrics.RMSProp(), after=100),
    )
    start = {"direction": jnp.eye(4)[0], "flat": jnp.full(2, 0.01)}
    draws = gx.sample(key, algorithm, start, num_samples=500, thinning=10, num_warmup=400, num_chains=8, progress=False)
    spread = np.var(draws["posterior"]["flat"].values, axis=(0, 1))
    assert np.all((spread > 0.8e-4) & (spread < 1.3e-4)), spread
    height = 1.0 - draws["posterior"]["direction"].values[..., 0].mean()
    assert 0.85 < height / (1.5 / 100) < 1.25


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manifold", "flatness"),
    [
        pytest.param(manifold, flatness, id=f"{name}-{flatness}", marks=[] if flatness == fast else [pytest.mark.slow])
        for name, manifold, fast in (
            ("sphere", gx.Sphere(), 0.0),
            ("canonical", gx.Stiefel(), 1e-3),
            ("polar", EMBEDDED, None),
        )
        for flatness in (0.0, 1e-3)
    ],
)
def test_almost_uniform_laws_of_frames(key, manifold, flatness):
    """The manifold bounds the step where the density does not."""
    start = jnp.eye(4)[0] if isinstance(manifold, gx.Sphere) else jnp.eye(4)[:, :2]
    algorithm = gx.sghmc(lambda x: flatness * jnp.sum(x[:2]), manifold=manifold)
    settings = {"num_samples": 1000, "thinning": 10, "num_warmup": 20, "num_chains": 8}
    draws = gx.sample(key, algorithm, start, progress=False, **settings)["posterior"]["position"].values
    np.testing.assert_allclose(np.mean(draws**2, axis=(0, 1)), 0.25, atol=0.03)


def directions(num_data):
    """Directions of a von Mises-Fisher law of known concentration 5; the posterior of their mean is one too."""
    data = jax.random.normal(jax.random.key(2), (num_data, 3)) + jnp.array([2.0, 0.0, 0.0])[None]
    data = data / jnp.linalg.norm(data, axis=1, keepdims=True)
    posterior = gx.Posterior(
        log_prior=lambda x: jnp.zeros(()), log_likelihood=lambda x, b: 5.0 * b @ x, num_data=num_data
    )
    return posterior, data


@pytest.mark.thorough
@pytest.mark.parametrize("ordering", ["paper", slow("baoab")])
def test_the_posterior_of_a_direction_has_its_width(key, ordering):
    """Batches of 20 of 1,000 examples."""
    posterior, data = directions(1000)
    total = jnp.sum(data, axis=0)
    center, concentration = total / jnp.linalg.norm(total), 5.0 * float(jnp.linalg.norm(total))
    draws = gx.sample(
        key,
        gx.sghmc(posterior, manifold=gx.Sphere(), ordering=ordering),
        center,
        batches=gx.data.batches(data, batch_size=20),
        num_warmup=4000,
        num_samples=500,
        thinning=60,
        num_chains=24,
        progress=False,
    )
    ratio = float(np.mean(1.0 - draws["posterior"]["position"].values @ np.asarray(center))) * concentration
    assert 0.85 < ratio < 1.25


@pytest.mark.thorough
@pytest.mark.parametrize(
    "manifold",
    [pytest.param(gx.Stiefel(), id="canonical"), slow(EMBEDDED, id="polar")],
)
def test_the_posterior_of_a_frame_has_its_width(key, manifold):
    """A matrix Langevin likelihood; in the canonical metric batches push the skew part twice as hard."""
    num_data = 1000
    data = FIRST[None] + jax.random.normal(jax.random.key(2), (num_data, 5, 3))
    u, sizes, vt = jnp.linalg.svd(data.sum(axis=0), full_matrices=False)
    posterior = gx.Posterior(
        log_prior=lambda x: jnp.zeros(()),
        log_likelihood=lambda x, b: jnp.sum(b * x[None], axis=(1, 2)),
        num_data=num_data,
    )
    draws = gx.sample(
        key,
        gx.sghmc(posterior, manifold=manifold),
        u @ vt,
        batches=gx.data.batches(data, batch_size=20),
        num_warmup=4000,
        num_samples=500,
        thinning=60,
        num_chains=24,
        progress=False,
    )
    found = draws["posterior"]["position"].values
    # half of the parameters' number, 9, by the law of large concentrations
    height = float(jnp.sum(sizes)) - np.mean(np.einsum("cdij,ij->cd", found, np.asarray(data.sum(axis=0))))
    assert 0.85 < height / 4.5 < 1.25


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "num_warmup"),
    [
        pytest.param(sampler, number, marks=[] if number == fast else [pytest.mark.slow])
        for sampler, fast in ((gx.sgrld, 1), (gx.sghmc, 2))
        for number in (1, 2, 9)
    ],
)
def test_after_a_short_warmup_too(key, sampler, num_warmup):
    draws = gx.sample(
        key, sampler(gaussian), jnp.ones(3), num_samples=5, num_warmup=num_warmup, num_chains=2, progress=False
    )
    assert np.all(draws["sample_stats"]["step_size"].values > 0)


@pytest.mark.thorough
def test_a_flat_density_has_no_step_size(key):
    with pytest.raises(NonFiniteError, match="so flat that it found none"):
        gx.sample(key, gx.sgrld(lambda x: jnp.sum(x)), jnp.zeros(3), num_samples=5, num_warmup=50, progress=False)


def test_without_warmup_it_is_asked_for(key):
    with pytest.raises(ValueError, match="construct the sampler with a step_size"):
        gx.sample(key, gx.sgrld(gaussian), jnp.zeros(3), num_samples=3, progress=False)


@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_by_hand_it_is_asked_for(key, sampler):
    algorithm = sampler(gaussian)
    state = algorithm.init(jnp.ones(3))
    with pytest.raises(ValueError, match="To call its steps by hand construct it with a step_size"):
        algorithm.step(key, state)
    _, info = jax.jit(algorithm.step)(key, state)
    assert not info.is_finite
