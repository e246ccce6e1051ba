"""Warm-up: the schedule, the step size, the scales."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.special import ive

import geodax as gx
from geodax.diagnostics.convergence import ess
from geodax.mcmc.warmup import add_draws, empty_window, moments, new_scale, window_schedule
from tests.marks import slow


def windows(num_warmup: int) -> tuple[int, list[int], int]:
    """First phase, lengths of the windows, last phase."""
    is_slow, is_end = window_schedule(num_warmup)
    slow = np.flatnonzero(is_slow)
    ends = np.flatnonzero(is_end)
    if len(slow) == 0:
        assert len(ends) == 0
        return num_warmup, [], 0
    assert (np.diff(slow) == 1).all()
    edges = [slow[0] - 1, *ends]
    return int(slow[0]), np.diff(edges).tolist(), int(num_warmup - slow[-1] - 1)


class TestSchedule:
    def test_stans_thousand(self):
        """The reference manual's figures: 75, windows from 25 on that double, 50."""
        assert windows(1000) == (75, [25, 50, 100, 200, 500], 50)

    @pytest.mark.parametrize(
        ("num_warmup", "expected"),
        [
            (0, (0, [], 0)),
            (1, (1, [], 0)),
            (19, (19, [], 0)),
            (20, (3, [7], 10)),
            (149, (22, [107], 20)),
            (150, (75, [25], 50)),
            (199, (75, [74], 50)),
            (200, (75, [25, 50], 50)),
            (500, (75, [25, 50, 100, 200], 50)),
            (2000, (75, [25, 50, 100, 200, 400, 1100], 50)),
        ],
    )
    def test_other_lengths(self, num_warmup, expected):
        assert windows(num_warmup) == expected

    @pytest.mark.parametrize("num_warmup", range(20, 700, 17))
    def test_every_window_ends_and_all_is_used(self, num_warmup):
        """Catches a window that never ends, or draws that count twice."""
        first, lengths, last = windows(num_warmup)
        assert first + sum(lengths) + last == num_warmup
        assert min(lengths) > 0


def test_twenty_iterations_find_a_step_size(key):
    """Catches a last phase of two iterations, of which the first ones try steps ten times as large."""
    algorithm = gx.hmc(lambda x: -0.5 * jnp.sum(x**2), num_integration_steps=2, mass_matrix="diagonal")
    options = {"num_warmup": 20, "num_samples": 50, "num_chains": 15, "progress": False}
    stats = gx.sample(key, algorithm, lambda k: jax.random.normal(k, (5,)), **options)["sample_stats"]
    acceptance = stats["acceptance_rate"].values.mean(axis=1)
    assert acceptance.mean() > 0.7
    assert acceptance.min() > 0.3


def test_moments_of_a_window(key):
    check_moments_of_a_window(key)


def check_moments_of_a_window(key) -> None:
    """Variances and squared gradients of all draws of a window, whatever the iteration and chain, far from zero."""
    draws = 30.0 + jax.random.normal(key, (7, 5, 4))
    draws = {"real": draws, "complex": jax.lax.complex(draws, 2.0 * draws[::-1])}
    manifold = gx.Euclidean()
    state = gx.hmc(lambda x: 0.0 * jnp.sum(x["real"])).init(jax.tree.map(lambda x: x[0, 0], draws))
    window = empty_window(state, manifold)
    for i in range(7):
        now = jax.tree.map(lambda x: x[i], draws)  # noqa: B023
        window = add_draws(window, manifold, now, jax.tree.map(lambda x: x - 29.0, now))
    assert float(window.count) == 35
    spread = {}
    for name, parts in {"real": 1, "complex": 2}.items():
        values = np.asarray(draws[name]).reshape(35, 4)
        variance, steepness = (moment[name] for moment in moments(window, manifold))
        np.testing.assert_allclose(variance, values.var(axis=0, ddof=1) / parts, rtol=1e-10)
        np.testing.assert_allclose(steepness, (np.abs(values - 29.0) ** 2).mean(axis=0) / parts, rtol=1e-12)
        spread[name] = values.std(axis=0, ddof=1) / np.sqrt(parts)
    scale = new_scale(manifold, window, state.scale)
    for name, expected in spread.items():
        np.testing.assert_allclose(scale[name], expected ** (35 / 40), rtol=1e-10)


def turned(frame: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """A frame turned by angles in the planes of its columns, and of a column and a direction outside."""
    n, p = frame.shape
    basis = np.linalg.qr(np.concatenate([frame, np.eye(n)], axis=1))[0]
    basis[:, :p] = frame
    generator = np.zeros((n, n))
    rows, columns = [i for i, _ in PLANES], [j for _, j in PLANES]
    generator[rows, columns], generator[columns, rows] = -angles, angles
    return basis @ scipy.linalg.expm(generator)[:, :p]


PLANES = [(0, 1), (0, 2), (1, 2), *((j, k) for j in range(3) for k in range(3, 6))]


def test_a_frame_has_a_scale_for_each_pair_of_columns(key):
    """Catches scales of another pair, and of a column that count the turns within the frame or too few directions."""
    angles = 1e-3 * np.array([1.0, 3.0, 0.3, *np.repeat([2.0, 0.5, 5.0], 3)])
    frame = np.asarray(gx.Stiefel().random_point(key, jnp.zeros((6, 3))))
    draws = np.random.default_rng(0).normal(size=(4000, len(angles))) * angles
    draws = jnp.asarray(np.stack([turned(frame, draw) for draw in draws]))
    manifold = gx.Stiefel()
    state = gx.hmc(jnp.sum, manifold=manifold).init(draws[0])
    window = add_draws(empty_window(state, manifold), manifold, draws, jnp.zeros_like(draws))
    variance, _ = moments(window, manifold)
    expected = np.diag([2.0, 0.5, 5.0])
    expected[[0, 0, 1], [1, 2, 2]] = expected[[1, 2, 2], [0, 0, 1]] = 1.0, 3.0, 0.3
    np.testing.assert_allclose(np.sqrt(variance), 1e-3 * expected, rtol=0.05)


def tune(key, density, position, *, num_warmup=1000, num_samples=400, num_chains=4, **settings):
    """Acceptance, scales and step size after warm-up, from a run of the sampler's own functions."""
    algorithm = gx.nuts(density, **settings)
    adaptation = algorithm.adapt(num_warmup)
    key_start, key_run = jax.random.split(key)
    positions = jax.vmap(position)(jax.random.split(key_start, num_chains))

    def chain(key, position):
        state = adaptation.begin(algorithm.init(position))
        warmup = adaptation.init(state)

        def step(iteration, carry):
            state, warmup = carry
            key_step, key_adapt = jax.random.split(jax.random.fold_in(key, iteration))
            state, info = algorithm.step(key_step, state)
            warmup, state = adaptation.update(key_adapt, warmup, state, info, iteration)
            return state, warmup

        state, _ = jax.lax.fori_loop(0, num_warmup, step, (state, warmup))

        def draw(state, iteration):
            state, info = algorithm.step(jax.random.fold_in(key, iteration), state)
            return state, (state.position, info)

        return state, *jax.lax.scan(draw, state, jnp.arange(num_warmup, num_warmup + num_samples))[1]

    # one loop for all chains would make each wait for the longest trajectory of any
    return jax.jit(lambda k, p: jax.lax.map(lambda kp: chain(*kp), (k, p)))(
        jax.random.split(key_run, num_chains), positions
    )


SCALES = np.logspace(-3, 3, 10)


def wide_gaussian(x):
    return -0.5 * sum(jnp.sum((x[f"{i}"] / scale) ** 2) for i, scale in enumerate(SCALES))


class TestTarget:
    @pytest.mark.thorough
    def test_scales_of_separate_leaves(self, key):
        """Catches variances of the wrong window, of the wrong leaf, or not corrected for their count."""

        def start(k):
            draws = SCALES * jax.random.normal(k, (10,))
            return {f"{i}": draws[i : i + 1] for i in range(10)}

        state, _, info = tune(key, wide_gaussian, start)
        found = np.concatenate([np.asarray(state.scale[f"{i}"]) for i in range(10)], axis=1)
        np.testing.assert_allclose(found / SCALES, 1.0, atol=0.2)
        assert abs(float(info.acceptance_rate.mean()) - 0.8) < 0.1
        assert float(info.num_integration_steps.mean()) < 16

    @pytest.mark.thorough
    def test_scales_within_one_leaf(self, key):
        """Catches shrinkage towards the mean variance of the leaf, which drowns its small entries."""

        def density(x):
            return -0.5 * jnp.sum((x / jnp.asarray(SCALES)) ** 2)

        state, _, info = tune(key, density, lambda k: jax.random.normal(k, (10,)) * SCALES)
        np.testing.assert_allclose(np.asarray(state.scale) / SCALES, 1.0, atol=0.2)
        assert abs(float(info.acceptance_rate.mean()) - 0.8) < 0.1
        assert float(info.num_integration_steps.mean()) < 16

    @pytest.mark.thorough
    @pytest.mark.parametrize(("target", "tolerance"), [(0.65, 0.07), (0.8, 0.05), (0.9, 0.03)])
    def test_acceptance(self, key, target, tolerance):
        """Catches dual averaging with the wrong sign or too long jumps, or the last step size instead of the average."""
        state, _, info = tune(
            key,
            lambda x: -0.5 * jnp.sum(x**2),
            lambda k: jax.random.normal(k, (10,)),
            target_acceptance_rate=target,
            num_warmup=500,
            num_chains=32,  # those of single chains differ by 0.03
        )
        assert abs(float(info.acceptance_rate.mean()) - target) < tolerance
        assert np.ptp(np.asarray(state.step_size)) > 0

    @pytest.mark.thorough
    @pytest.mark.parametrize(("metric", "shape"), [("embedded", ()), ("canonical", (2, 2))])
    def test_a_product_of_stiefel_and_euclidean(self, key, metric, shape):
        """Catches scales that are mixed up between leaves, and a leaf that is tuned although it is curved."""
        stiefel = gx.Stiefel(metric=metric)
        strength = jnp.diag(jnp.array([60.0, 30.0])) @ jnp.eye(2, 5)

        def density(x):
            small, large = x["small"] / 0.01, x["large"] / jnp.array([50.0, 100.0])
            return jnp.sum(strength.T * x["w"]) - 0.5 * (jnp.sum(small**2) + jnp.sum(large**2))

        def start(k):
            point = stiefel.random_point(k, jnp.zeros((5, 2)))
            return {"w": point, "small": jnp.zeros(1), "large": jnp.zeros(2)}

        manifold = gx.Product({"w": stiefel})
        state, positions, info = tune(key, density, start, manifold=manifold, num_chains=16)
        assert state.scale["w"].shape == (16, *shape)
        np.testing.assert_allclose(state.scale["small"] / 0.01, 1.0, atol=0.2)
        np.testing.assert_allclose(np.asarray(state.scale["large"]) / [50.0, 100.0], 1.0, atol=0.2)
        w = jnp.asarray(positions["w"].reshape(-1, 5, 2))
        if (
            metric == "embedded"
        ):  # one number: from its variance and its squared gradient a degree of freedom, 7 of them
            variance = np.asarray(w).var(axis=0).sum() / 7
            gradient = jax.vmap(lambda x: stiefel.gradient(x, strength.T))(w)
            square = (np.asarray(gradient) ** 2).sum((1, 2)).mean() / 7
            expected = (variance / square) ** 0.25
        else:  # near the mode a normal distribution: the precision of a turn of two columns is the sum
            expected = 1 / np.sqrt([[60.0, 90.0], [90.0, 30.0]])
        np.testing.assert_allclose(np.asarray(state.scale["w"]), np.broadcast_to(expected, (16, *shape)), rtol=0.2)
        assert abs(float(info.acceptance_rate.mean()) - 0.8) < 0.1

    @pytest.mark.thorough
    @pytest.mark.parametrize("manifold", [gx.Sphere(), gx.Stiefel()])
    def test_a_flat_density_on_a_compact_manifold(self, key, manifold):
        """Catches a step size that grows without bound where every step is accepted."""
        state, positions, info = tune(
            key,
            lambda x: 0.0 * jnp.sum(x),
            lambda k: manifold.random_point(k, jnp.zeros((5, 2) if isinstance(manifold, gx.Stiefel) else 5)),
            manifold=manifold,
            num_warmup=300,
        )
        longest = jax.vmap(manifold.max_time)(state.position, state.scale)
        assert (np.asarray(state.step_size) <= np.asarray(longest) * (1 + 1e-9)).all()
        assert (np.asarray(state.step_size) > 0.02).all()
        assert not np.asarray(info.is_divergent).any()
        assert float(info.residual.max()) < 1e-10
        # uniform: the mean of every entry is zero, its mean square one over the number of rows
        np.testing.assert_allclose((np.asarray(positions) ** 2).mean(axis=(0, 1)), 0.2, atol=0.08)


@pytest.mark.thorough
@pytest.mark.parametrize("num_warmup", [1, 20, 150, slow(5), slow(19), slow(149)])
def test_short_warmups(key, num_warmup):
    """Catches a schedule that leaves a phase empty, and a step size that was never set."""
    algorithm = gx.hmc(lambda x: -0.5 * jnp.sum((x / 0.01) ** 2), num_integration_steps=3)
    tree = gx.sample(
        key,
        algorithm,
        lambda k: 0.01 * jax.random.normal(k, (2,)),
        num_warmup=num_warmup,
        num_samples=50,
        num_chains=2,
        progress=False,
    )
    step_size = tree["sample_stats"]["step_size"].values
    assert np.isfinite(step_size).all()
    assert (step_size == step_size[:, :1]).all()
    assert (step_size > 1e-6).all()
    assert np.isfinite(tree["posterior"]["position"]).all()
    # the first iteration's step of 1 is a hundred times too long: the search has found a better one
    assert tree["sample_stats"]["acceptance_rate"].mean() > 0.3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "size"),
    [("hmc", 2), ("nuts", 3), slow("hmc", 3), slow("nuts", 2)],
)
def test_steps_near_the_largest_stable_ones_stay_on_a_sphere(key, name, size):
    """Catches norms whose rounding errors grow from iteration to iteration, and densities beside the sphere."""
    sphere, concentration = gx.Sphere(), 50.0
    tree = gx.sample(
        key,
        getattr(gx, name)(lambda x: concentration * x[0], manifold=sphere),
        lambda k: sphere.random_point(k, jnp.zeros(size)),
        num_warmup=1000,
        num_samples=1000,
        num_chains=8,
        progress=False,
    )
    assert not tree["sample_stats"]["diverging"].values.any()
    assert tree["sample_stats"]["lp"].max() < concentration * (1 + 1e-12)
    cosine = tree["posterior"]["position"].values[..., 0]
    expected = ive(size / 2, concentration) / ive(size / 2 - 1, concentration)
    error = cosine.std() / np.sqrt(float(ess(cosine)))
    assert abs(cosine.mean() - expected) < 5 * error < 0.2 * (1 - expected)
