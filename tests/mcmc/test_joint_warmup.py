"""Warm-up of many chains at once: what they share, the trajectory length, the scales, devices and resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import geodax as gx
from geodax.mcmc import lengths
from geodax.mcmc.integrators import IntegratorState, leapfrog, logdensity_and_gradient
from geodax.mcmc.joint_warmup import joint_schedule
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.run import driver
from tests.marks import slow
from tests.suites.chains import assert_agree
from tests.suites.test_known_targets import TARGETS


def normal(x):
    return -0.5 * sum(jnp.sum(jnp.abs(leaf) ** 2) for leaf in jax.tree.leaves(x))


def run(key, algorithm, position, **settings):
    settings = {"num_warmup": 60, "num_samples": 20, "num_chains": 16, "progress": False} | settings
    return gx.sample(jax.random.clone(key), algorithm, position, **settings)


def starts(shape=(3,)):
    return lambda key: 2 * jax.random.normal(key, shape)


# -------------------------------------------------------------------------------------------- the right law


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "langevin-3x2",
        "product",
        slow("product-complex"),
        slow("unitary-3x2"),
        slow("orthogonal-2"),
        slow("both-5x2"),
        slow("bingham-3x2"),
    ],
)
@pytest.mark.parametrize("sampler", [gx.hmc, slow(gx.nuts)])
def test_expectations_after_joint_warmup(sampler, name, key):
    """Catches tuning that goes on while draws are kept, and lengths that depend on the position."""
    target = TARGETS[name]
    manifold = target.geometry(gx.Stiefel())
    algorithm = sampler(target.logdensity, manifold=manifold)

    def averages(key):
        tree = run(
            key,
            algorithm,
            lambda k: manifold.random_point(k, target.like),
            num_warmup=150,
            num_samples=400,
            num_chains=128,
            keep=lambda x: {"statistics": target.statistics(x)},
        )
        assert not tree["sample_stats"]["diverging"].values.any()
        return tree["posterior"]["statistics"].values.mean(axis=1)

    truth = target.truth()
    key_first, key_again = jax.random.split(key)
    assert_agree(
        averages(key_first),
        truth.mean,
        spread=np.maximum(truth.spread, 1e-9),
        truth_error=truth.error,
        max_bias=0.05,
        again=lambda: averages(key_again),
    )


# ---------------------------------------------------------------------------------------- what chains share


class TestSharing:
    @pytest.mark.thorough
    def test_sixteen_chains_share_step_size_and_length(self, key):
        """Catches chains that are tuned apart, and lengths that differ from chain to chain, so that all wait."""
        stats = run(key, gx.hmc(normal), starts())["sample_stats"]
        assert np.ptp(stats["step_size"].values) == 0
        assert (np.ptp(stats["n_steps"].values, axis=0) == 0).all()
        assert np.ptp(stats["n_steps"].values[0]) > 0  # lengths vary from iteration to iteration
        positions = run(key, gx.hmc(normal), starts())["posterior"]["position"].values
        assert np.ptp(positions[:, -1], axis=0).min() > 0

    @pytest.mark.thorough
    @pytest.mark.parametrize(("num_chains", "is_shared"), [(15, False), (16, True)])
    def test_nuts_and_fixed_lengths_share_from_sixteen_chains_on(self, key, num_chains, is_shared):
        for algorithm in (gx.nuts(normal), gx.hmc(normal, num_integration_steps=3)):
            steps = run(key, algorithm, starts(), num_chains=num_chains)["sample_stats"]["step_size"].values
            assert (np.ptp(steps) == 0) == is_shared

    @pytest.mark.thorough
    @pytest.mark.parametrize("num_chains", [1, 3])
    def test_few_chains_share_too_where_the_length_is_adapted(self, key, num_chains):
        stats = run(key, gx.hmc(normal), starts(), num_chains=num_chains, num_warmup=200)["sample_stats"]
        assert np.ptp(stats["step_size"].values) == 0
        assert 0.5 < stats["acceptance_rate"].values.mean() <= 1

    def test_a_given_step_size_is_not_tuned_and_takes_sixteen_steps(self, key):
        stats = run(key, gx.hmc(normal, step_size=0.05), starts(), num_warmup=0)["sample_stats"]
        np.testing.assert_array_equal(stats["step_size"], 0.05)
        np.testing.assert_array_equal(stats["n_steps"], 16)

    def test_adapted_lengths_need_warmup(self, key):
        with pytest.raises(ValueError, match="trains or tunes its step size during warm-up, but num_warmup is 0"):
            run(key, gx.hmc(normal), starts(), num_warmup=0)

    @pytest.mark.parametrize("name", ["length_jitter", "step_size_jitter"])
    def test_jitter_of_adapted_lengths_is_refused(self, name):
        with pytest.raises(ValueError, match="adapted lengths have their own variation; give num_integration_steps"):
            gx.hmc(normal, **{name: 0.3})


@pytest.mark.thorough
@pytest.mark.parametrize("num_warmup", [1, 19, 20, slow(2), slow(5), slow(33)])
def test_short_warmups(key, num_warmup):
    """Catches a phase that is empty, and a step size or a length that was never set."""
    tree = run(
        key,
        gx.hmc(lambda x: normal(x / 0.01)),
        lambda k: 0.01 * jax.random.normal(k, (2,)),
        num_warmup=num_warmup,
        num_samples=20,
    )
    stats = tree["sample_stats"]
    assert np.isfinite(stats["step_size"].values).all()
    assert stats["acceptance_rate"].values.mean() > 0.3
    assert stats["n_steps"].values.max() <= lengths.MOST_STEPS


@pytest.mark.parametrize("num_warmup", [0, 1, 19, 20, 50, 200, 1000])
def test_schedule(num_warmup):
    """Every window ends, and the last phase begins with the end of the last window."""
    is_slow, is_end, last_phase = joint_schedule(num_warmup)
    assert len(is_slow) == len(is_end) == num_warmup
    if num_warmup >= 20:
        slow = np.flatnonzero(is_slow)
        assert (np.diff(slow) == 1).all()
        assert np.flatnonzero(is_end)[-1] == slow[-1] == last_phase - 1
        assert num_warmup - last_phase >= 0.25 * num_warmup
    else:
        assert not is_slow.any()
        assert not is_end.any()


# ------------------------------------------------------------------------------------- chains that start far out

FAR_STARTS = {  # log density, manifold, start, statistic, its mean and its standard deviation
    "counts": (
        lambda z: jnp.sum(50.0 * z - jnp.exp(z)),  # Poisson, on the log scale
        None,
        lambda key: 4.0 + 5.0 * jax.random.normal(key, (5,)),
        lambda z: z[0],
        (digamma(50.0), polygamma(1, 50.0) ** 0.5),
    ),
    "frames": (
        lambda x: 1e4 * (x[0, 0] + x[1, 1]),
        gx.Stiefel(metric="embedded"),
        lambda key: gx.Stiefel().random_point(key, jnp.zeros((3, 2))),
        lambda x: 1e4 * jnp.sum((x - jnp.eye(3, 2)) ** 2),  # nearly chi-squared with 3 degrees of freedom
        (3.0, 6.0**0.5),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAR_STARTS)
@pytest.mark.parametrize("sampler", [gx.hmc, slow(gx.nuts)])
def test_chains_that_start_far_out_are_waited_for(sampler, name, key):
    """Catches a step size that suits most chains and that others, where the density is steep, refuse for ever."""
    density, manifold, start, statistic, (mean, spread) = FAR_STARTS[name]
    algorithm = sampler(density, manifold=manifold)
    tree = run(key, algorithm, start, num_warmup=400, num_samples=200, num_chains=64, keep=statistic)
    found = tree["posterior"]["position"].values
    assert np.ptp(found, axis=1).min() > 0  # no chain stands still
    assert_agree(found.mean(axis=1)[:, None], [mean], spread=[spread], max_bias=0.1)


# ----------------------------------------------------------------------------------- step size and scales


@pytest.mark.thorough
@pytest.mark.parametrize("target", [0.65, slow(0.9)])
@pytest.mark.parametrize("sampler", [gx.hmc, gx.nuts])
def test_acceptance(key, sampler, target):
    """Catches dual averaging with the wrong sign, of one chain, or the last step size instead of the average."""
    algorithm = sampler(normal, target_acceptance_rate=target)
    tree = run(key, algorithm, starts((20,)), num_chains=64, num_warmup=200, num_samples=100)
    assert abs(tree["sample_stats"]["acceptance_rate"].values.mean() - target) < 0.06


@pytest.mark.thorough
@pytest.mark.parametrize("metric", ["embedded", "canonical"])
def test_a_shared_scale_does_not_see_how_far_apart_equal_modes_are(key, metric):
    """Catches a frame's scale, and with it the steps of everything else, that chains in mirror images inflate.

    Chains begin at each of the four matrices that differ by signs of columns, between which nothing passes.
    """
    n = 6
    weights = 400.0 * jnp.array([1.0, 0.9, 0.0, 0.0, 0.0, 0.0])

    def density(x):
        along = jnp.sum(jnp.outer(weights, jnp.array([1.0, 0.5])) * x["w"] ** 2)
        return along - 0.5 * jnp.sum(x["b"] ** 2)

    signs = jnp.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    modes = jnp.tile(jax.vmap(lambda s: jnp.eye(n, 2) @ jnp.diag(s))(signs), (4, 1, 1))
    manifold = gx.Product({"w": gx.Stiefel(metric=metric)})
    algorithm = gx.hmc(density, manifold=manifold, num_integration_steps=8)
    adaptation = algorithm.adapt_jointly(100)

    def iterate(carry, i):
        states, warmup = carry
        keys = jax.random.split(jax.random.fold_in(key, i), 32)
        states, infos = jax.vmap(algorithm.step)(keys[:16], states)
        warmup, states = adaptation.update(keys[16:], warmup, states, infos, i)
        return (states, warmup), (states.position["w"], states.logdensity_grad["w"])

    states = adaptation.begin(jax.vmap(algorithm.init)({"w": modes, "b": jnp.zeros((16, 3))}))
    start = (states, adaptation.init(states))
    (states, _), (w, gradients) = jax.jit(lambda s: jax.lax.scan(iterate, s, jnp.arange(100)))(start)
    freedom, late = manifold.tree["w"].dim(modes[0]), slice(50, None)
    within = np.sqrt(np.asarray(w[late]).var(axis=0).sum((1, 2)).mean() / freedom)
    between = np.sqrt(2 / freedom)  # the spread of frames whose mean is zero
    length = 1 / np.sqrt((np.asarray(gradients[late]) ** 2).sum((2, 3)).mean() / freedom)
    assert within < 0.2 * between
    scale = np.asarray(states.scale["w"][0])
    if metric == "embedded":
        np.testing.assert_allclose(scale, np.sqrt(between * length), rtol=0.2)
        assert scale < 0.5 * between
    else:  # turns away from the anchor are as large in all images; the anchor's own, w standard deviations, counts as well
        ratio = scale * np.sqrt(np.array([[800.0, 40.0], [40.0, 360.0]]))
        assert (ratio > 0.8).all()
        assert (ratio < (1 + 2.5**2) ** 0.25).all()
    np.testing.assert_allclose(states.scale["b"][0], 1.0, atol=0.2)


@pytest.mark.thorough
def test_scales_make_a_stretched_normal_round(key):
    """Catches scales that are not used, or a length that is not carried over to the new unit of time."""
    spreads = jnp.logspace(-3, 3, 10)
    algorithm = gx.hmc(lambda x: normal(x / spreads))
    tree = run(
        key, algorithm, lambda k: spreads * jax.random.normal(k, (10,)), num_chains=64, num_warmup=200, num_samples=50
    )
    draws = tree["posterior"]["position"].values.reshape(-1, 10)
    np.testing.assert_allclose(draws.std(axis=0) / spreads, 1.0, atol=0.15)
    assert tree["sample_stats"]["n_steps"].values.mean() < 6


# --------------------------------------------------------------------------------------------- the length


def check_slopes(key) -> None:
    """The moments' slopes are derivatives: free motion over a little less and a little more time says the same."""
    space = gx.Product({"frame": gx.Stiefel(metric="embedded", flow="geodesic"), "sphere": gx.Sphere()})
    like = {"frame": jnp.zeros((5, 2)), "sphere": jnp.zeros(4), "free": jnp.zeros(3)}
    key_start, key_momentum, key_center = jax.random.split(key, 3)
    position = space.random_point(key_start, like)
    center = jax.tree.map(lambda x: 0.3 * x, space.random_point(key_center, like))
    scale = {"frame": jnp.asarray(0.7), "sphere": jnp.asarray(1.3), "free": jnp.asarray([0.5, 1.0, 2.0])}
    evaluate = logdensity_and_gradient(lambda x: 0.0 * normal(x), space)
    trajectory = lengths.adapted_trajectory(leapfrog(evaluate, space), space)
    start = IntegratorState(position, space.sample_momentum(key_momentum, position), *evaluate(position))
    length = lengths.initial_length(position)._replace(center=center)

    def moments(log_time: float) -> lengths.JumpMoments:
        step_size = jnp.exp(jnp.asarray(log_time)) / 3
        two_and_a_half = length._replace(time=3 * step_size / lengths._factor(length.iteration, step_size.dtype))
        result = trajectory(jax.random.key(0), start, step_size, MassMatrix(scale), two_and_a_half)
        assert int(result.num_integration_steps) == 3
        assert float(result.acceptance_rate) > 1 - 1e-12
        return result.length.moments

    here, width = moments(0.2), 1e-5
    above, below = moments(0.2 + width), moments(0.2 - width)
    for name in ("distance", "spread"):
        difference = (getattr(above, name) - getattr(below, name)) / (2 * width)
        np.testing.assert_allclose(getattr(here, f"{name}_slope"), difference, rtol=1e-7)


@pytest.mark.thorough
def test_slopes(key):
    check_slopes(key)


def check_relative_times() -> None:
    """Any hundred iterations in a row spread evenly between a half and one and a half times the mean time."""
    for first in (0, 12_345_678):
        times = np.sort(jax.vmap(lambda i: lengths._factor(i, jnp.float64))(jnp.arange(first, first + 100)))
        np.testing.assert_allclose(times, 0.5 + (np.arange(100) + 0.5) / 100, atol=0.02)


def test_relative_times():
    check_relative_times()


def best_time_on_a_normal() -> float:
    """Maximum of J for an isotropic normal, where D is 1 - cos t and S is sin(t)^2 up to factors, over the spread times."""
    time = np.linspace(0.5, 3.0, 501)[:, None]
    single = time * np.linspace(lengths.SHORTEST, lengths.LONGEST, 401)
    criterion = np.log((1 - np.cos(single)).mean(axis=1)) + np.log((np.sin(single) ** 2).mean(axis=1))
    return float(time[np.argmax(criterion - np.log(time[:, 0])), 0])


def check_length_on_a_normal(key) -> None:
    """The adapted time is that of the criterion's maximum, known in closed form for exact motion; far from zero."""
    mean, spread = 7.0, jnp.tile(jnp.array([0.2, 3.0]), 10)
    algorithm = gx.hmc(lambda x: normal((x - mean) / spread), target_acceptance_rate=0.95)

    def start(k):
        return mean + 2 * spread * jax.random.normal(k, (20,))

    tree = gx.sample(key, algorithm, start, num_warmup=300, num_samples=200, num_chains=64, progress=False)
    stats = tree["sample_stats"]
    found = float(stats["step_size"].values[0, 0] * stats["n_steps"].values.mean())
    expected = best_time_on_a_normal()
    assert 1.5 < expected < 2.0
    assert abs(found / expected - 1) < 0.1, f"found {found}, expected {expected}"


@pytest.mark.thorough
def test_length_on_a_normal(key):
    check_length_on_a_normal(key)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("manifold", "shape"),
    [(gx.Sphere(), (4,)), slow(gx.Stiefel(), (5, 2)), (gx.Stiefel(), (3, 3))],
)
def test_length_where_motion_is_free(key, manifold, shape):
    """Catches lengths that run away where every point is equally good and free motion comes back."""
    tree = run(
        key,
        gx.hmc(lambda x: 0.0 * jnp.sum(x), manifold=manifold),
        lambda k: manifold.random_point(k, jnp.zeros(shape)),
        num_chains=64,
        num_warmup=200,
        num_samples=60,
    )
    stats, draws = tree["sample_stats"], tree["posterior"]["position"].values
    assert stats["n_steps"].values.mean() < 4  # a step may be a quarter of a circle long
    assert_agree((draws**2).mean(axis=1).reshape(64, -1), 1 / shape[0])
    one_lag = (draws[:, 1:] * draws[:, :-1]).sum(axis=tuple(range(2, draws.ndim))).mean() / (draws[0, 0] ** 2).sum()
    assert abs(one_lag) < 0.5


@pytest.mark.thorough
def test_lengths_grow_where_steps_are_small(key):
    """Catches a length that stays at the few steps it begins with: a long valley takes dozens of them."""
    covariance = np.eye(10) + 99 * np.ones((10, 10)) / 10
    precision = jnp.asarray(np.linalg.inv(covariance))
    factor = jnp.asarray(np.linalg.cholesky(covariance))
    tree = run(
        key,
        gx.hmc(lambda x: -0.5 * x @ precision @ x, mass_matrix="diagonal"),
        lambda k: factor @ jax.random.normal(k, (10,)),
        num_chains=64,
        num_warmup=300,
        num_samples=50,
    )
    draws = tree["posterior"]["position"].values.sum(axis=-1)
    correlation = np.mean(draws[:, 1:] * draws[:, :-1]) / np.mean(draws**2)
    assert correlation < 0.5
    assert tree["sample_stats"]["n_steps"].values.mean() > 6


# ------------------------------------------------------------------------------- precision, devices, resume


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "is_complex"),
    [
        (jnp.float32, True),
        (jnp.float64, False),
        slow(jnp.float32, False),
        slow(jnp.float64, True),
    ],
)
def test_precision_is_kept(key, dtype, is_complex):
    """Catches a dtype that is written down somewhere."""
    kind = {jnp.float32: jnp.complex64, jnp.float64: jnp.complex128}[dtype] if is_complex else dtype
    space = gx.Product({"frame": gx.Stiefel()})
    like = {"frame": jnp.zeros((3, 2), kind), "free": jnp.zeros(2, dtype)}
    algorithm = gx.hmc(lambda x: normal(x["free"]) + jnp.sum(x["frame"].real), manifold=space)
    tree = run(key, algorithm, lambda k: space.random_point(k, like))
    assert tree["posterior"]["frame"].dtype == kind
    assert tree["sample_stats"]["step_size"].dtype == dtype
    assert 0.5 < tree["sample_stats"]["acceptance_rate"].values.mean() < 0.99


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.hmc, slow(gx.nuts)])
def test_chains_on_two_devices_are_tuned_together(key, sampler):
    """Catches tuning by the chains of one's own device, and chains that come back in another's place."""
    one = run(key, sampler(normal), starts(), devices=jax.devices()[:1], num_warmup=40, num_samples=4)
    two = run(key, sampler(normal), starts(), devices=jax.devices()[:2], num_warmup=40, num_samples=4)
    for group, name in (("posterior", "position"), ("sample_stats", "step_size"), ("sample_stats", "n_steps")):
        np.testing.assert_allclose(two[group][name], one[group][name], rtol=1e-6, err_msg=name)


class StopError(Exception):
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [slow(1), 2])
def test_resume_within_joint_warmup(key, tmp_path, monkeypatch, num_devices):
    """Catches something of the joint adaptation that a checkpoint forgets."""
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 0.0)
    settings = {"devices": jax.devices()[:num_devices], "num_warmup": 30, "num_samples": 10}
    whole = run(key, gx.hmc(normal), starts(), **settings)

    def stop(progress):
        if progress.iteration >= 12:
            raise StopError

    checkpoint = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 0.0}
    with pytest.raises(StopError):
        run(key, gx.hmc(normal), starts(), **settings, **checkpoint | {"progress": stop})
    resumed = run(key, gx.hmc(normal), starts(), **settings, **checkpoint)
    for group in ("posterior", "sample_stats"):
        for name, values in whole[group].data_vars.items():
            np.testing.assert_array_equal(values, resumed[group][name], err_msg=name)


def test_chains_of_a_vmap_need_no_masks():
    """The loop's bound is one number for all chains, also where vmaps are nested, and the largest one."""
    bounds = jnp.asarray([[3, 1], [2, 2]], jnp.int32)
    shared = jax.vmap(jax.vmap(lambda n: lengths._in_common(n) + 0 * n))(bounds)
    np.testing.assert_array_equal(shared, 3)
    jaxpr = jax.make_jaxpr(jax.vmap(lengths._in_common, out_axes=None))(bounds[0])
    assert jaxpr.out_avals[0].shape == ()
