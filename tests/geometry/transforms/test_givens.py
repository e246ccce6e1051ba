"""Products of Givens rotations: against a loop, their derivative, their cost, and the options of the chart."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import geodax as gx
from geodax.geometry.transforms import Givens, rotations, unconstrain
from tests.suites import references
from tests.suites.chains import assert_agree, run_chains


def by_loop(theta: np.ndarray, n: int, p: int, sign: float = 1.0) -> np.ndarray:
    """One rotation after the other, counterclockwise for ``sign = 1``."""
    q = np.eye(n, p)
    for (i, j), angle in reversed(list(zip(itertools.combinations(range(n), 2), theta, strict=False))):
        c, s = np.cos(angle), sign * np.sin(angle)
        q[i], q[j] = c * q[i] - s * q[j], s * q[i] + c * q[j]
    return q


def random_angles(n: int, p: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-np.pi, np.pi, rotations.num_angles(n, p))


SIZES = [(1, 1), (2, 1), (4, 1), (2, 2), (3, 2), (5, 3), (6, 6), (131, 1), (150, 4), (140, 75)]
FEW = [(3, 2), (6, 6), (150, 4)]  # one pipeline, square, several pipelines with rows that fill none


@functools.cache
def compose(n: int, p: int):
    return jax.jit(Givens(n, p).compose)


@pytest.mark.parametrize(("n", "p"), SIZES)
def test_rotations_agree_with_a_loop(n, p):
    theta = random_angles(n, p)
    np.testing.assert_allclose(compose(n, p)(theta), by_loop(theta, n, p), atol=1e-13)


def test_rotations_are_counterclockwise():
    """The algorithm printed in the paper is clockwise: the same of the negative angles."""
    theta = random_angles(5, 3)
    np.testing.assert_allclose(compose(5, 3)(-theta), by_loop(theta, 5, 3, sign=-1.0), atol=1e-14)
    np.testing.assert_allclose(compose(2, 1)(np.array([0.3]))[:, 0], [np.cos(0.3), np.sin(0.3)], atol=1e-15)


def check_rotation_gradient(n: int, p: int) -> None:
    """Reverse mode through a scan over rotations, without a rule of our own."""
    theta = jnp.asarray(random_angles(n, p))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(n, p)))
    i, j = np.triu_indices(p, 1, n)
    pairs = jnp.asarray(np.stack([i, j], axis=1)[::-1].copy())

    def plainly(theta):
        def rotate(q, pair_and_angle):
            pair, angle = pair_and_angle
            rows, c, s = q[pair], jnp.cos(angle), jnp.sin(angle)
            return q.at[pair].set(jnp.stack([c * rows[0] - s * rows[1], s * rows[0] + c * rows[1]])), None

        return jnp.sum(weights * jax.lax.scan(rotate, jnp.eye(n, p), (pairs, theta[::-1]))[0] ** 2)

    ours = jax.jit(jax.grad(lambda theta: jnp.sum(weights * Givens(n, p).compose(theta) ** 2)))(theta)
    np.testing.assert_allclose(ours, jax.jit(jax.grad(plainly))(theta), atol=1e-12)


@pytest.mark.parametrize(("n", "p"), FEW)
def test_gradient_agrees_with_a_scan_over_rotations(n, p):
    check_rotation_gradient(n, p)


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [((20, 3), (100, 3)), ((200, 3), (2000, 3)), ((200, 3), (300, 20))])
def test_program_does_not_grow(sizes):
    """Neither with n nor with p, forward, backward, inverse."""

    def count(jaxpr) -> int:
        inner = [v for eqn in jaxpr.eqns for v in eqn.params.values()]
        inner = [getattr(v, "jaxpr", v) for v in inner]
        return len(jaxpr.eqns) + sum(count(v) for v in inner if hasattr(v, "eqns"))

    def programs(n, p):
        t = Givens(n, p)
        z, q = jnp.zeros(t.num_unconstrained), jnp.eye(n, p)
        value = jax.value_and_grad(lambda z: jnp.sum(t.forward(z)) + t.log_volume(z))
        return [count(jax.make_jaxpr(f)(x).jaxpr) for f, x in ((t.forward, z), (value, z), (t.inverse, q))]

    first, second = (programs(*size) for size in sizes)
    assert first == second


@pytest.mark.thorough
def test_backward_pass_keeps_a_few_matrices_only():
    """Not the rows of every tick, of which there are p times as many numbers."""
    n, p = 400, 20
    theta = jnp.asarray(random_angles(n, p))
    _, pull = jax.vjp(lambda c, s: rotations.rotate(c, s, n, p), jnp.cos(theta), jnp.sin(theta))
    assert sum(leaf.size for leaf in jax.tree.leaves(pull)) < 12 * n * p


def test_angles_of_uniform_frames_have_their_laws():
    """Longitudes uniform, squared sines of latitudes Beta."""
    t = Givens(6, 3)
    q = references.haar_frames(np.random.default_rng(4), 4000, 6, 3)
    theta = np.asarray(jax.jit(jax.vmap(t.decompose))(q))
    for k, (i, j) in enumerate(zip(*np.triu_indices(3, 1, 6), strict=True)):
        law = stats.uniform(-np.pi, 2 * np.pi) if j == i + 1 else stats.beta(0.5, (j - i) / 2)
        values = theta[:, k] if j == i + 1 else np.sin(theta[:, k]) ** 2
        assert stats.kstest(values, law.cdf).pvalue > 1e-5
    np.testing.assert_allclose(jax.jit(jax.vmap(t.compose))(theta), q, atol=1e-12)


def test_angles_there_and_back():
    for t in (Givens(5, 3), Givens(5, 3, shift=2.0), Givens(5, 3, half=True, shift=-0.5), Givens(5, 3, wrap="circle")):
        z = jnp.asarray(np.random.default_rng(5).normal(size=t.num_unconstrained))

        @jax.jit
        def ways(z, t=t):
            theta = t.angles(z)
            return theta, t.compose(theta), t.forward(z), t.angles(t.from_angles(theta))

        theta, composed, forward, again = ways(z)
        assert theta.shape == (9,)
        np.testing.assert_allclose(composed, forward, atol=1e-14)
        np.testing.assert_allclose(again, theta, atol=1e-14)


def test_ranges_of_the_angles():
    z = jnp.full(9, 40.0)
    longitudes = np.array([1, 0, 0, 0, 1, 0, 0, 1, 0], bool)
    for options, width in (({}, np.pi), ({"half": True}, np.pi / 2), ({"epsilon": 0.1}, np.pi - 0.1)):
        ends = np.where(longitudes, width, np.pi / 2 - options.get("epsilon", 0))
        t = Givens(5, 3, **options)
        np.testing.assert_allclose(t.angles(z), ends, rtol=1e-12)
        np.testing.assert_allclose(t.angles(-z), -ends, rtol=1e-12)
    shifted = Givens(5, 3, shift=[0.1, 0.2, 0.3])
    ends = np.where(longitudes, np.pi, np.pi / 2)
    ends[longitudes] += [0.1, 0.2, 0.3]
    np.testing.assert_allclose(shifted.angles(z), ends, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 3)])
def test_half_ranges_hold_one_of_the_mirror_images(shape):
    """Exactly one of the flips of columns (of square matrices: of an even number of them)."""
    n, p = shape
    half, whole = Givens(n, p, half=True, shift=0.4), Givens(n, p)
    inverse = jax.jit(jax.vmap(half.inverse))
    decompose, forward = jax.jit(jax.vmap(whole.decompose)), eqx.filter_jit(half.forward)
    flips = np.array(list(itertools.product([1.0, -1.0], repeat=p)))
    flips = flips[flips.prod(1) > 0] if n == p else flips
    longitudes = [sum(n - 1 - k for k in range(i)) for i in range(min(p, n - 1))]
    for seed in range(5):
        q = references.haar_frames(np.random.default_rng(seed), 1, n, p)[0]
        q = q * np.where(np.arange(p) == 0, np.linalg.det(q), 1) if n == p else q
        images = jnp.asarray(flips[:, None, :] * q)
        middle = np.asarray(decompose(images))[:, longitudes] - 0.4
        is_inside = np.all(np.cos(middle) > 0, axis=1)
        assert is_inside.sum() == 1
        z = inverse(images)
        np.testing.assert_allclose(z, np.broadcast_to(z[0], z.shape), atol=1e-9)
        np.testing.assert_allclose(forward(z[0]), images[is_inside][0], atol=1e-12)


def test_epsilon_restricts_the_density():
    """The share of the uniform law that is left, from the laws of the angles."""
    t, num = Givens(4, 2, epsilon=0.2), 200_000
    z = np.random.default_rng(6).logistic(size=(num, 5))
    weight = np.exp(np.asarray(jax.jit(jax.vmap(t.log_volume))(jnp.asarray(z))) - stats.logistic.logpdf(z).sum(1))
    latitude = {d: stats.beta(0.5, d / 2).cdf(np.sin(np.pi / 2 - 0.2) ** 2) for d in (2, 3)}
    share = (1 - 0.2 / np.pi) ** 2 * latitude[2] ** 2 * latitude[3]
    assert_agree(weight[:, None], [share])


@pytest.mark.thorough
def test_center_is_the_middle_of_the_chart():
    for n, p in ((5, 3), (3, 3), (4, 1)):
        q = jnp.asarray(references.haar_frames(np.random.default_rng(7), 3, n, p)[0])
        t = Givens(n, p, center=q)
        np.testing.assert_allclose(eqx.filter_jit(t.forward)(jnp.zeros(t.num_unconstrained)), q, atol=1e-14)
        spread = gx.Stiefel().nearest(q[None] + 0.1 * jnp.asarray(np.random.default_rng(8).normal(size=(50, n, p))))
        again = Givens(n, p).centered_on(spread)
        assert np.abs(jax.jit(jax.vmap(again.decompose))(spread)).max() < 1.0


def test_cuts_are_shifted_into_gaps():
    """Frames on both sides of a cut come together."""
    theta = np.array([3.0, 0.2, -0.3, -2.9, 0.4]) + 0.3 * np.random.default_rng(9).normal(size=(100, 5))
    frames = jax.jit(jax.vmap(Givens(4, 2).compose))(jnp.asarray(theta))
    whole, half = Givens(4, 2), Givens(4, 2, half=True)
    assert np.ptp(np.asarray(jax.jit(jax.vmap(whole.decompose))(frames))[:, 0]) > 6
    for t, width in ((whole.shifted_for(frames), np.pi), (half.shifted_for(frames), np.pi / 2)):
        angles = jax.jit(jax.vmap(lambda q, t=t: t.angles(t.inverse(q))))
        away = np.asarray(angles(frames))[:, [0, 3]] - np.asarray(t.shift)
        assert np.ptp(away, axis=0).max() < 2.0
        assert np.abs(away).max() < width - 0.1


def wrapped_target(t):
    """A von Mises law of the plane whose mode is at the cut, as a log density of unconstrained vectors."""
    return unconstrain(lambda q: -2.0 * q[0, 0], t)


@pytest.mark.thorough
def test_chains_walk_round_the_circle(key):
    """All start on one side of the cut, with trajectories that cannot go round the other way in one step."""
    u = wrapped_target(Givens(2, 1, wrap="circle"))
    start = jax.vmap(lambda _: u.unconstrain(jnp.array([[-1.0], [0.02]])))(jnp.arange(256))
    chains = run_chains(
        gx.nuts(u.logdensity, step_size=0.3, max_num_doublings=5),
        start,
        lambda z: jnp.concatenate([u.constrain(z).ravel(), jnp.heaviside(u.constrain(z)[1], 0.5)]),
        key,
        num_iterations=100,
        num_discarded=30,
    )
    assert_agree(chains.means, [-0.6977746579640077, 0.0, 0.5])  # I1(2) / I0(2)


def test_cut_at_the_mode_makes_two_modes():
    """With the cut at the mode the density of the coordinate has two modes; a shift makes it one."""
    z = jnp.linspace(-12, 12, 400)[:, None]
    for t, modes in ((Givens(2, 1), 2), (Givens(2, 1, shift=np.pi), 1)):
        values = np.asarray(jax.jit(jax.vmap(wrapped_target(t).logdensity))(z))
        assert np.sum((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) == modes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 2.0}, "epsilon"),
        ({"wrap": "circle", "half": True}, "no ranges to halve"),
        ({"shift": [1.0, 2.0, 3.0]}, "2 of them"),
        ({"determinant": -1}, "determinant"),
        ({"center": np.ones((3, 2))}, "orthonormal"),
        ({"center": np.eye(3)}, "shape"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Givens(3, 2, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (40, 3)])
def test_derivatives_in_both_modes_and_twice(shape):
    """Forward mode is the transpose of reverse mode, and second derivatives agree with differences."""
    generator = np.random.default_rng(0)
    chart, both = Givens(*shape), Givens(*shape, forward_mode=True)
    z = jnp.asarray(0.5 * generator.normal(size=chart.num_unconstrained))
    weights = jnp.asarray(generator.normal(size=shape))

    def value(chart):
        return lambda z: jnp.sum(weights * chart.forward(z)) + jnp.sum(chart.forward(z) ** 4) + chart.log_volume(z)

    slope = jax.jit(jax.grad(value(chart)))
    gradient = slope(z)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(value(both)))(z), gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.grad(value(both)))(z), gradient, rtol=1e-9, atol=1e-12)
    direction = jnp.asarray(generator.normal(size=z.shape))
    along = jax.jit(jax.grad(lambda z: jnp.vdot(slope(z), direction)))(z)
    width = 1e-5
    difference = slope(z + width * direction) - slope(z - width * direction)
    np.testing.assert_allclose(along, difference / (2 * width), rtol=1e-5, atol=1e-7)
