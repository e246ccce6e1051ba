"""Stochastic-gradient HMC on frames: the stationary law in both orders, with and without gradient noise, and its limit of training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import iv

import geodax as gx
from tests.marks import slow
from tests.suites import references
from tests.suites.stochastic import bias, chain_means

NUM_CHAINS = 1500
F = np.array([[1.5, 0.3], [0.0, 1.0], [0.4, -0.6]])


def langevin(x):
    return jnp.sum(jnp.asarray(F, x.dtype) * x)


def entries(x):
    return jnp.concatenate([jnp.ravel(x), jnp.ravel(x) ** 2])


@functools.cache
def frame_truth():
    """Moments of the matrix Langevin law on 3 x 2 frames, and of its log density."""
    values = lambda x: np.concatenate(  # noqa: E731
        [x.reshape(len(x), -1), x.reshape(len(x), -1) ** 2, np.sum(F * x, axis=(1, 2))[:, None]], axis=1
    )
    return references.by_quadrature(references.givens_frames(3, 2, 48), lambda x: np.sum(F * x, axis=(1, 2)), values)


def frame_statistics(x):
    return jnp.concatenate([entries(x), langevin(x)[None]])


def frame_bias(key, *, num_steps=500, num_discarded=250, metric="canonical", flow="cayley", **settings):
    manifold = gx.Stiefel(metric=metric, flow=flow)
    algorithm = gx.sghmc(langevin, manifold=manifold, **{"step_size": 0.1, "friction": 0.1} | settings)
    key_start, key_run = jax.random.split(key)
    like = jnp.zeros((3, 2))
    starts = jax.vmap(lambda k: manifold.random_point(k, like))(jax.random.split(key_start, NUM_CHAINS))
    means = chain_means(algorithm, starts, frame_statistics, key_run, num_steps=num_steps, num_discarded=num_discarded)
    truth = frame_truth()
    return bias(means, truth.mean, truth.spread)


def check_frames(key, **settings):
    found = frame_bias(key, **settings)
    assert np.max(found.error) < 0.02, "too few draws to tell"
    assert np.max(np.abs(found.bias)) < 0.05, found.bias


def add_noise(deviation):
    return lambda key, g: jax.tree.map(
        lambda leaf: leaf + deviation * jax.random.normal(key, leaf.shape, leaf.dtype), g
    )


class TestStationaryLaw:
    @pytest.mark.thorough
    @pytest.mark.parametrize("ordering", ["paper", slow("baoab")])
    def test_rotations_of_the_plane(self, key, ordering):
        """E cos phi = I1(2k) / I0(2k) for the density exp(k tr x) on SO(2)."""
        k = 1.3
        manifold = gx.Stiefel()
        algorithm = gx.sghmc(
            lambda x: k * jnp.trace(x), manifold=manifold, step_size=0.1, friction=0.1, ordering=ordering
        )
        starts = jnp.broadcast_to(jnp.eye(2), (NUM_CHAINS, 2, 2))
        means = chain_means(
            algorithm, starts, lambda x: 0.5 * jnp.trace(x)[None], key, num_steps=600, num_discarded=200
        )
        truth = iv(1, 2 * k) / iv(0, 2 * k)
        spread = np.sqrt(0.5 * (1 + iv(2, 2 * k) / iv(0, 2 * k)) - truth**2)
        found = bias(means, [truth], [spread])
        assert truth == pytest.approx(0.775451, abs=1e-6)
        assert found.error < 0.015
        assert abs(found.bias) < 0.05

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("metric", "flow", "ordering"),
        [
            ("canonical", "cayley", "baoab"),
            ("embedded", "polar", "paper"),
            slow("canonical", "cayley", "paper"),
            slow("embedded", "polar", "baoab"),
            slow("literal", "cayley", "paper"),
            slow("embedded", "geodesic", "paper"),
            slow("embedded", "geodesic", "baoab"),
        ],
    )
    def test_frames(self, key, metric, flow, ordering):
        """Catches noise off the momentum's own law: isotropic noise is off by 0.4 standard deviations here."""
        check_frames(key, metric=metric, flow=flow, ordering=ordering)

    @pytest.mark.slow
    @pytest.mark.parametrize("ordering", ["paper", "baoab"])
    def test_new_momenta(self, key, ordering):
        check_frames(key, ordering=ordering, resample_momentum=True, num_inner_steps=8, friction=0.05)

    @pytest.mark.thorough
    def test_temperature(self, key):
        """At temperature tau the law is that of the log density divided by it."""
        manifold, temperature = gx.Stiefel(), 2.0
        algorithm = gx.sghmc(
            lambda x: temperature * langevin(x),
            manifold=manifold,
            step_size=0.07,
            friction=0.1,
            temperature=temperature,
        )
        key_start, key_run = jax.random.split(key)
        starts = jax.vmap(lambda k: manifold.random_point(k, jnp.zeros((3, 2))))(
            jax.random.split(key_start, NUM_CHAINS)
        )
        means = chain_means(algorithm, starts, frame_statistics, key_run, num_steps=400, num_discarded=200)
        found = bias(means, frame_truth().mean, frame_truth().spread)
        assert np.max(np.abs(found.bias)) < 0.05, found.bias

    @pytest.mark.slow
    def test_noise_variance_belongs_to_the_order(self, key):
        """Strong friction tells 2 alpha from 2 alpha - alpha^2: with the other one the temperature is wrong by a quarter."""
        for ordering in ("paper", "baoab"):
            check_frames(key, ordering=ordering, step_size=0.1, friction=0.5, num_steps=1500)
            key = jax.random.fold_in(key, 1)


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["paper", "baoab"])
def test_bias_of_the_polar_flow_is_of_second_order(key, ordering):
    """The log density's mean at steps of 0.2 and 0.4; a momentum that is only projected loses energy in each step."""
    long, short = (
        frame_bias(
            jax.random.fold_in(key, i),
            metric="embedded",
            flow="polar",
            ordering=ordering,
            step_size=step_size,
            num_steps=round(400 / step_size),
            num_discarded=round(30 / step_size),
        )
        for i, step_size in enumerate((0.4, 0.2))
    )
    ratio = long.bias[-1] / short.bias[-1]
    error = ratio * np.hypot(long.error[-1] / long.bias[-1], short.error[-1] / short.bias[-1])
    assert abs(ratio - 4.0) < 4 * error + 0.4, (ratio, error)
    assert abs(long.bias[-1]) < {"paper": 0.15, "baoab": 0.05}[ordering]


@pytest.mark.thorough
@pytest.mark.parametrize("ordering", ["paper", "baoab"])
@pytest.mark.parametrize("num_inner_steps", [1, 5])
def test_new_momenta_keep_the_law_of_a_gaussian(key, ordering, num_inner_steps):
    """On a standard normal target an iteration is x' = a x + noise, so a and the noise give the variance b / (1 - a^2).

    Catches momenta of the wrong variance (off by 5 to 19 per cent) or of another time than the position (by 4 and more).
    """
    settings = {"step_size": 0.1, "friction": 0.5, "ordering": ordering, "num_inner_steps": num_inner_steps}
    settings["resample_momentum"] = True
    target = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    still = gx.sghmc(target, temperature=0.0, **settings)
    moving = gx.sghmc(target, **settings)
    key_still, key_moving = jax.random.split(key)
    a = float(still.step(key_still, still.init(jnp.ones(1)))[0].position[0])
    start = moving.init(jnp.zeros(400_000))
    noise = np.asarray(moving.step(key_moving, start)[0].position)
    assert noise.var() / (1 - a**2) == pytest.approx(1.0, abs=0.003 + 4 * np.sqrt(2 / 400_000))


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["paper", "baoab"])
@pytest.mark.parametrize(
    ("metric", "flow"),
    [("canonical", "cayley"), ("embedded", "geodesic"), ("embedded", "polar"), ("literal", "cayley")],
)
def test_gradient_noise_is_deducted(key, metric, flow, ordering):
    check_noise(key, metric, flow, ordering)


def check_noise(key, metric="canonical", flow="cayley", ordering="paper"):
    """Isotropic noise of variance 10: without the right share for the skew part the bias is 0.07 to 0.4."""
    deviation = np.sqrt(10.0)
    found = frame_bias(
        key,
        metric=metric,
        flow=flow,
        ordering=ordering,
        friction=0.3,
        gradient_noise=deviation,
        perturb_gradient=add_noise(deviation),
        num_steps=2000,
    )
    assert np.max(found.error) < 0.015
    assert np.max(np.abs(found.bias)) < 0.05, found.bias


class TestNoise:
    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "case",
        [
            (gx.Euclidean(), (4,)),
            (gx.Sphere(), (4,)),
            (gx.Stiefel(), (5, 1)),
            *((gx.Stiefel(metric=m), s) for m in ("canonical", "embedded", "literal") for s in ((4, 2), (3, 3))),
        ],
        ids=str,
    )
    def test_covariance(self, key, case):
        """Noise is linear in z, so its covariance is exact: variance times the momentum's less the kick's."""
        manifold, shape = case
        x = manifold.random_point(key, jnp.zeros(shape))
        share = 0.9 * manifold.noise_capacity(x)
        basis = jnp.eye(x.size).reshape(x.size, *shape)

        def covariance(function):
            columns = jax.vmap(function)(basis).reshape(x.size, x.size)
            return columns.T @ columns

        two, part = jnp.asarray(2.0), jnp.asarray(2.0 * share)
        found = covariance(lambda z: manifold.noise(x, z, two, part))
        momentum, kick = covariance(lambda z: manifold.momentum(x, z)), covariance(lambda z: manifold.gradient(x, z))
        np.testing.assert_allclose(found, 2.0 * momentum - 2.0 * share * kick, atol=1e-12)
        beyond = manifold.noise(x, jnp.ones(shape), two, 1.01 * two * manifold.noise_capacity(x))
        assert not np.isfinite(beyond).all()

    @pytest.mark.thorough
    def test_complex_frames(self, key):
        manifold = gx.Stiefel()
        x = manifold.random_point(key, jnp.zeros((4, 2), complex))
        basis = jnp.concatenate([jnp.eye(8, dtype=complex), 1j * jnp.eye(8, dtype=complex)]).reshape(16, 4, 2)

        def covariance(function):
            moved = jax.vmap(function)(basis).reshape(16, 8)
            columns = jnp.concatenate([moved.real, moved.imag], axis=1)
            return columns.T @ columns

        one, part = jnp.asarray(1.0), jnp.asarray(0.4)
        found = covariance(lambda z: manifold.noise(x, z, one, part))
        expected = covariance(lambda z: manifold.momentum(x, z)) - 0.4 * covariance(lambda z: manifold.gradient(x, z))
        np.testing.assert_allclose(found, expected, atol=1e-12)

    def test_more_noise_than_friction_is_refused(self):
        algorithm = gx.sghmc(langevin, manifold=gx.Stiefel(), step_size=0.1, friction=0.1, gradient_noise=4.0)
        with pytest.raises(ValueError, match="larger friction or a smaller step_size"):
            algorithm.init(jnp.eye(3, 2))

    @pytest.mark.thorough
    @pytest.mark.parametrize("ordering", ["paper", "baoab"])
    def test_where_the_temperature_is_zero_nothing_is_deducted(self, key, ordering):
        """Catches the root of a negative variance, and a refusal at a start which explores."""
        temperature = gx.sgmcmc.schedules.cyclical_temperature(num_iterations=4)
        settings = {"manifold": gx.Stiefel(), "step_size": 0.1, "friction": 0.1, "gradient_noise": 0.5}
        algorithm = gx.sghmc(langevin, temperature=temperature, ordering=ordering, **settings)
        tree = gx.sample(key, algorithm, jnp.eye(3, 2), num_samples=9, num_chains=2, progress=False)
        np.testing.assert_array_equal(tree.sample_stats.temperature[0], [0, 1, 1, 1, 0, 1, 1, 1, 0])
        positions = tree.posterior.position.values
        assert np.isfinite(positions).all()
        np.testing.assert_array_equal(positions[0, 0], positions[1, 0])  # of one start, without noise
        assert np.abs(positions[0, 2] - positions[1, 2]).max() > 1e-3

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "schedule",
        [
            {"step_size": gx.sgmcmc.schedules.polynomial(0.1)},
            {"step_size": lambda t: jnp.where(t < 10, 0.1, 0.05)},
            {"temperature": gx.sgmcmc.schedules.cyclical(1.0, num_iterations=50)},
        ],
    )
    def test_it_is_looked_at_with_schedules(self, key, schedule):
        """Catches numbers of a schedule that a compiled init does not know."""
        settings = {"manifold": gx.Stiefel(), "step_size": 0.1, "friction": 0.1} | schedule
        run = {"num_samples": 3, "num_chains": 2, "progress": False}
        tree = gx.sample(
            jax.random.clone(key), gx.sghmc(langevin, gradient_noise=0.5, **settings), jnp.eye(3, 2), **run
        )
        assert np.isfinite(tree["posterior"]["position"].values).all()
        with pytest.raises(ValueError, match="larger friction or a smaller step_size"):
            gx.sample(jax.random.clone(key), gx.sghmc(langevin, gradient_noise=4.0, **settings), jnp.eye(3, 2), **run)


@pytest.mark.thorough
@pytest.mark.parametrize("metric", ["canonical", "embedded", "literal"])
def test_at_temperature_zero_it_is_gradient_descent_with_momentum(key, metric):
    """The same path as v <- mu v + lr grad, (x, v) moved along the flow for unit time, to 1e-12."""
    manifold = gx.Product({"frame": gx.Stiefel(metric=metric), "w": None})
    step_size, friction, num_steps = 0.2, 0.3, 60

    def density(position):
        return (
            langevin(position["frame"])
            - 0.5 * jnp.sum((position["w"] - 1.0) ** 2)
            + position["w"][0] * position["frame"][0, 0]
        )

    key_start, key_run = jax.random.split(key)
    start = {"frame": gx.Stiefel().random_point(key_start, jnp.zeros((3, 2))), "w": jnp.zeros(2)}
    algorithm = gx.sghmc(
        density, manifold=manifold, step_size=step_size, friction=friction, temperature=0.0, renormalize_every=1000
    )

    @jax.jit
    def ours(key, state):
        return algorithm.step(key, state)[0]

    @jax.jit
    def descent(x, v):
        x, v = manifold.flow(x, v, 1.0)
        gradient = manifold.gradient(x, jax.grad(density)(x))
        return x, jax.tree.map(lambda v, g: (1 - friction) * v + step_size**2 * g, v, gradient)

    state, x, v = algorithm.init(start), start, jax.tree.map(jnp.zeros_like, start)
    for i in range(num_steps):
        state = ours(jax.random.fold_in(key_run, i), state)
        x, v = descent(x, v)
        for name in x:
            np.testing.assert_allclose(state.position[name], x[name], atol=1e-12)
            np.testing.assert_allclose(step_size * state.momentum[name], v[name], atol=1e-12)
    gradient = manifold.project(x, jax.grad(density)(x))
    assert all(float(jnp.max(jnp.abs(g))) < 0.02 for g in gradient.values()), "it should climb to the maximum"


class TestStaysOnTheManifold:
    @pytest.mark.slow
    def test_long_runs(self, key, dtype):
        """Position and momentum keep their equations over 20,000 steps."""
        manifold = gx.Stiefel()
        algorithm = gx.sghmc(langevin, manifold=manifold, step_size=0.2, friction=0.1)
        state = algorithm.init(jnp.eye(3, 2, dtype=dtype))

        def iterate(state, i):
            state, info = algorithm.step(jax.random.fold_in(key, i), state)
            x, r = state.position, state.momentum
            return state, (info.residual, jnp.max(jnp.abs(x.T @ r + r.T @ x)))

        _, (residual, symmetric) = jax.jit(lambda s: jax.lax.scan(iterate, s, jnp.arange(20_000)))(state)
        eps = float(jnp.finfo(dtype).eps)
        assert float(jnp.max(residual)) < 200 * eps
        assert float(jnp.max(symmetric)) < 2000 * eps

    def test_dtype_is_kept(self, key, dtype):
        manifold = gx.Product({"frame": gx.Stiefel()})
        algorithm = gx.sghmc(
            lambda p: langevin(p["frame"]) - jnp.sum(p["w"] ** 2), manifold=manifold, step_size=0.1, num_inner_steps=2
        )
        state = algorithm.init({"frame": jnp.eye(3, 2, dtype=dtype), "w": jnp.ones(2, dtype)})
        after, info = algorithm.step(key, state)
        assert jax.tree.map(lambda a: a.dtype, after) == jax.tree.map(lambda a: a.dtype, state)
        assert all(value.dtype in (dtype, bool) and value.shape == () for value in info)


class TestBatches:
    def posterior(self):
        return gx.Posterior(
            log_prior=lambda t: -0.5 * jnp.sum(t**2),
            log_likelihood=lambda t, b: -0.5 * jnp.sum((b - t[None]) ** 2, axis=-1),
            num_data=40,
        )

    def test_each_inner_step_takes_its_own_batch(self, key):
        """Two inner steps with stacked batches are two iterations with one batch each, at temperature 0."""
        batches = jax.random.normal(key, (2, 5, 3))
        settings = {"step_size": 0.05, "temperature": 0.0}
        once = gx.sghmc(self.posterior(), num_inner_steps=2, **settings)
        twice = gx.sghmc(self.posterior(), **settings)
        key_step = jax.random.key(0)
        stacked, _ = once.step(key_step, once.init(jnp.zeros(3)), batches)
        state = twice.init(jnp.zeros(3))
        for batch in batches:
            state, _ = twice.step(jax.random.clone(key_step), state, batch)
        np.testing.assert_allclose(stacked.position, state.position, rtol=1e-12)
        assert once.num_batches == 2
        assert twice.num_batches == 1

    def test_a_missing_batch_is_named(self, key):
        algorithm = gx.sghmc(self.posterior(), step_size=0.05)
        with pytest.raises(TypeError, match=r"step needs a batch.*batches"):
            algorithm.step(key, algorithm.init(jnp.zeros(3)))

    def test_a_batch_without_the_axis_of_steps_is_named(self, key):
        algorithm = gx.sghmc(self.posterior(), step_size=0.05, num_inner_steps=4)
        with pytest.raises(ValueError, match="leading axis of 4"):
            algorithm.step(key, algorithm.init(jnp.zeros(3)), jnp.zeros((5, 3)))


def test_a_failed_step_says_so(key):
    algorithm = gx.sghmc(lambda x: jnp.log(x[0]), step_size=0.1)
    _, info = algorithm.step(key, algorithm.init(jnp.array([-1.0])))
    assert not info.is_finite


METRICS = [
    gx.metrics.Identity(),
    gx.metrics.RMSProp(),
    gx.metrics.Wenzel(),
    gx.metrics.Frozen(gx.metrics.Monge(), after=3),
    gx.metrics.Shampoo(),
    gx.metrics.Frozen(gx.metrics.Wenzel(), after=3),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
def test_a_metric_needs_a_euclidean_leaf(metric):
    manifold = gx.Product({"frame": gx.Stiefel()})
    algorithm = gx.sghmc(lambda p: langevin(p["frame"]), manifold=manifold, metric=metric, step_size=0.1)
    frame = {"frame": jnp.eye(3, 2)}
    with pytest.raises(
        ValueError, match=rf"metric {type(metric).__name__} is the mass .* on Product\. Leave metric out"
    ):
        algorithm.init(frame)
    state = algorithm.init(frame | {"w": jnp.zeros(2)})
    assert jax.tree.structure(state.position) == jax.tree.structure(frame | {"w": 0})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
def test_a_metric_is_no_mass_of_complex_numbers(metric):
    """Catches complex squares in the place of squared lengths, whose draws were those of no target."""
    algorithm = gx.sghmc(lambda p: -jnp.sum(jnp.abs(p["z"]) ** 2), metric=metric, step_size=0.1)
    with pytest.raises(TypeError, match=rf"{type(metric).__name__}: z is complex; metrics act on real arrays"):
        algorithm.init({"z": jnp.zeros(3, complex)})
    beside = gx.sghmc(
        lambda p: langevin(p["a"]), manifold=gx.Product({"z": gx.Stiefel()}), metric=metric, step_size=0.1
    )
    beside.init({"a": jnp.eye(3, 2), "z": jnp.eye(3, 2, dtype=complex)})


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (gx.metrics.Monge(), "Monge follows the gradient"),
        (gx.metrics.Monge(gamma="none", lag=False), "Monge follows the gradient"),
        (gx.metrics.RMSProp(gamma="averaged"), "RMSProp needs its divergence"),
    ],
)
def test_metrics_that_must_be_frozen(metric, reason):
    """Catches a gamma that is ignored, and chains that leave: of a standard deviation of 0.1 there was 15,000."""
    with pytest.raises(ValueError, match=rf"{reason}.* gx\.metrics\.Frozen\(metric, after=num_warmup\)"):
        gx.sghmc(lambda x: -jnp.sum(x**2), metric=metric)
    gx.sghmc(lambda x: -jnp.sum(x**2), metric=gx.metrics.Frozen(metric, after=100))


def test_a_class_is_no_metric():
    with pytest.raises(TypeError, match="found the class RMSProp itself"):
        gx.sghmc(lambda x: -jnp.sum(x**2), metric=gx.metrics.RMSProp)


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "scale"), [(1, 0.1), (20, 0.03)])
def test_a_frozen_monge_metric_does_not_heat_while_it_learns(key, size, scale):
    """At a weight far above the gradient's scale: in use while it learns it made the variance 90 to 10^9 times as large."""
    draws = gx.sample(
        key,
        gx.sghmc(
            lambda x: -0.5 * jnp.sum((x / scale) ** 2),
            metric=gx.metrics.Frozen(gx.metrics.Monge(alpha2=1.0), after=1000),
        ),
        jnp.zeros(size),
        num_samples=400,
        num_warmup=1000,
        thinning=10,
        num_chains=32,
        progress=False,
    )
    assert 0.9 < draws["posterior"]["position"].values.var() / scale**2 < 1.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step_size": 0.0}, "step_size must be a positive number"),
        ({"friction": 1.5}, "friction must be above 0 and at most 1"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"ordering": "abc"}, "ordering must be one of"),
        ({"num_inner_steps": 0}, "num_inner_steps must be at least 1"),
        ({"step_size": float("nan")}, "step_size must be a positive number"),
    ],
)
def test_arguments_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        gx.sghmc(langevin, **{"step_size": 0.1} | settings)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["num_inner_steps", "renormalize_every", "metric_warmup"])
def test_numbers_of_steps_are_whole(name):
    """Catches half a step taken for none, and NumPy's numbers refused."""
    settings = dict(gx.sghmc(langevin, step_size=0.1, **{name: np.int64(3)}).description.settings)
    assert settings[name] == 3
    assert type(settings[name]) is int
    for wrong in (0.5, 3.0, True):
        with pytest.raises(TypeError, match=rf"sghmc: {name} must be an integer, found {wrong}"):
            gx.sghmc(langevin, step_size=0.1, **{name: wrong})
