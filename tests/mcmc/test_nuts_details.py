"""The bookkeeping of the doubling trajectory, against a recursive reference written without JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.geometry.manifolds import Euclidean
from geodax.mcmc import step_size as sizes
from geodax.mcmc import trajectories
from geodax.mcmc.integrators import IntegratorState, energy_error, leapfrog, logdensity_and_gradient
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.mcmc.trajectories import dynamic_trajectory


def pieces_of(start: int, length: int) -> list[tuple[int, int]]:
    """The stretches (first, last) that recursion checks as it builds ``length`` points.

    Every balanced piece, and its halves together with the nearest point of the other half.
    """
    if length == 1:
        return []
    half, last = length // 2, start + length - 1
    halves = [(start, start + half), (start + half - 1, last)] if length > 2 else []
    return [*pieces_of(start, half), *pieces_of(start + half, half), *halves, (start, last)]


def has_turned(velocities):
    """The criterion on all velocities of a piece."""
    chord = velocities.sum(0) - 0.5 * (velocities[0] + velocities[-1])
    return velocities[0] @ chord <= 0 or velocities[-1] @ chord <= 0


def turned_at(velocities):
    """Whether a stretch has turned that ends at each point."""
    turned = np.zeros(len(velocities), bool)
    for first, last in pieces_of(0, len(velocities)):
        turned[last] |= has_turned(velocities[first : last + 1])
    return turned


@pytest.mark.thorough
@pytest.mark.parametrize("depth", range(1, 8))
def test_the_pieces_are_those_of_the_recursion(depth):
    """Catches a piece left out, an unbalanced one, and a slot that is written over while it is needed.

    There are no more slots than doublings, as in the sampler. Walks turn more or less slowly, so that up to 32 points
    each stretch is for some walk the only one that has turned among those with its end.
    """
    length, num_walks = 2**depth, 4000
    random = np.random.default_rng(depth)
    angles = random.normal(size=(num_walks, length)).cumsum(1) * 3.0 * random.uniform(size=(num_walks, 1)) ** 2
    walks = np.stack([np.cos(angles), np.sin(angles)], -1) * np.exp(random.normal(size=(num_walks, length, 1)))
    rows = trajectories._Mark(jnp.zeros((depth + 1, 2)), jnp.zeros((depth + 1, 2)))

    def visit(carry, point):
        pieces, before, velocity_sum = carry
        index, velocity = point
        velocity_sum = velocity_sum + velocity
        mark = trajectories._Mark(velocity, velocity_sum - 0.5 * velocity)
        neighbours = trajectories._Neighbours(mark, before)
        pieces = trajectories._open(pieces, neighbours, index)
        return (pieces, mark, velocity_sum), trajectories._turns_at(pieces, neighbours, index)

    def follow(velocities):
        straight = trajectories._Mark(velocities[0], -1e9 * velocities[0])  # with the old tree the first has not turned
        pieces = trajectories._with_row(
            trajectories._Neighbours(rows, rows), trajectories._Neighbours(straight, straight), 0
        )
        points = (jnp.arange(length, dtype=jnp.int32), velocities)
        return jax.lax.scan(visit, (pieces, straight, jnp.zeros(2)), points)[1]

    found = np.asarray(jax.jit(jax.vmap(follow))(jnp.asarray(walks)))
    expected = np.array([turned_at(walk) for walk in walks])
    np.testing.assert_array_equal(found, expected)
    for left_out in pieces_of(0, length) if depth < 6 else ():
        others = [piece for piece in pieces_of(0, length) if piece != left_out and piece[1] == left_out[1]]
        assert any(
            has_turned(walk[left_out[0] : left_out[1] + 1])
            and not any(has_turned(walk[first : last + 1]) for first, last in others)
            for walk in walks
        ), left_out


# ------------------------------------------------------------------------------ a whole trajectory


def turns_inside(old, new):
    """Whether recursion would have stopped within new points, in the order in which they are visited.

    Args:
        old: Velocities of the tree so far, its nearest point last.
        new: Velocities of the points that double it.

    Returns:
        The number of points built before it stops, and whether the new half is not used.
    """
    if len(old) > 1 and has_turned(np.concatenate([old, new[:1]])):
        return 1, True
    turned = turned_at(new)
    if turned.any():
        return int(turned.argmax()) + 1, True
    return len(new), len(old) > 1 and has_turned(np.concatenate([old[-1:], new]))


def reference(x, r, step_size, precision, goes_right, max_num_doublings):
    """Number of leapfrog steps, and whether the tree turned, for the given directions; on a normal target."""

    def leap(x, r, step):
        r = r - 0.5 * step * precision * x
        x = x + step * r
        return x, r - 0.5 * step * precision * x

    left = right = (x, r)
    path, num_steps = [r], 0
    for depth in range(max_num_doublings):
        end, new = (right if goes_right[depth] else left), []
        for _ in range(2**depth):
            end = leap(*end, step_size if goes_right[depth] else -step_size)
            new.append(end)
        momenta = [r for _, r in new]
        built, is_turning = turns_inside(np.array(path if goes_right[depth] else path[::-1]), np.array(momenta))
        num_steps += built
        if is_turning:
            return num_steps, depth + 1
        path = path + momenta if goes_right[depth] else momenta[::-1] + path
        if goes_right[depth]:
            right = end
        else:
            left = end
        if has_turned(np.array(path)):
            return num_steps, depth + 1
    return num_steps, max_num_doublings


PRECISION = np.array([1.0, 0.25, 4.0])


def density(x):
    return -0.5 * jnp.sum(jnp.asarray(PRECISION, x.dtype) * x**2)


class TestTrajectory:
    @pytest.mark.thorough
    @pytest.mark.parametrize("step_size", [0.03, 0.2, 0.7])
    def test_it_stops_where_the_recursion_stops(self, key, step_size):
        """Catches a piece that is not checked, checked too late, or with the wrong half-ends of its sum.

        Recursion gives a number of steps for each sequence of directions; their distribution must be met.
        """
        most = 6
        manifold = Euclidean()
        evaluate = logdensity_and_gradient(density, manifold)
        trajectory = dynamic_trajectory(leapfrog(evaluate, manifold), manifold, most)
        x, r = np.array([0.7, -1.0, 0.3]), np.array([0.9, 0.4, -1.1])
        start = IntegratorState(jnp.asarray(x), jnp.asarray(r), *evaluate(jnp.asarray(x)))
        keys = jax.random.split(key, 600)
        run = jax.jit(jax.vmap(lambda k: trajectory(k, start, jnp.asarray(step_size), MassMatrix(jnp.ones(3)))))
        found = np.asarray(run(keys).num_integration_steps)
        outcomes = {}
        for code in range(2**most):
            goes_right = [bool(code >> i & 1) for i in range(most)]
            num_steps, _ = reference(x, r, step_size, PRECISION, goes_right, most)
            outcomes[num_steps] = outcomes.get(num_steps, 0.0) + 2.0**-most
        assert set(found) <= set(outcomes)
        for num_steps, probability in outcomes.items():
            error = np.sqrt(probability * (1 - probability) / len(found))
            assert abs((found == num_steps).mean() - probability) <= 5 * error + 1e-12, num_steps

    @pytest.mark.thorough
    @pytest.mark.parametrize("most", [1, 4])
    def test_no_more_steps_than_allowed(self, key, most):
        """Catches a limit that is off by one; steps this small never turn before it."""
        algorithm = gx.nuts(density, step_size=1e-4, max_num_doublings=most)
        _, info = jax.jit(jax.vmap(algorithm.step, (0, None)))(jax.random.split(key, 50), algorithm.init(jnp.ones(3)))
        np.testing.assert_array_equal(info.num_integration_steps, 2**most - 1)

    @pytest.mark.thorough
    def test_statistics_stay_in_their_range(self, key, dtype):
        """Catches an iteration without steps, a mean over the wrong count, and NaN after a divergence."""
        algorithm = gx.nuts(density, step_size=1.0, max_num_doublings=5)
        state = algorithm.init(jnp.ones(3, dtype))
        step = jax.jit(jax.vmap(algorithm.step, (0, None)))
        for number, step_size in enumerate((0.05, 0.3, 0.9, 50.0)):
            keys = jax.random.split(jax.random.fold_in(key, number), 400)
            new, info = step(keys, state._replace(step_size=jnp.asarray(step_size, dtype)))
            assert (info.num_integration_steps >= 1).all()
            assert (info.num_integration_steps <= 31).all()
            assert (info.acceptance_rate >= 0).all()
            assert (info.acceptance_rate <= 1 + 4 * np.finfo(dtype).eps).all()
            assert np.isfinite(info.energy).all()
            assert np.isfinite(new.position).all()
            if step_size == 50.0:
                assert info.is_divergent.mean() > 0.9
                assert (info.num_integration_steps[info.is_divergent] <= 3).all()
                np.testing.assert_array_equal(new.position, np.ones((400, 3)))
            else:
                assert not info.is_divergent.any()

    def test_every_draw_is_a_point_of_its_trajectory(self, key):
        """Catches a draw whose log density, gradient or energy belongs to another point."""
        manifold = Euclidean()
        evaluate = logdensity_and_gradient(density, manifold)
        trajectory = dynamic_trajectory(leapfrog(evaluate, manifold), manifold, 6)
        x, r = jnp.array([0.7, -1.0, 0.3]), jnp.array([0.9, 0.4, -1.1])
        start = IntegratorState(x, r, *evaluate(x))
        run = jax.jit(jax.vmap(lambda k: trajectory(k, start, jnp.asarray(0.2), MassMatrix(jnp.ones(3)))))
        results = run(jax.random.split(key, 100))
        values, gradients = jax.vmap(evaluate)(results.position)
        np.testing.assert_allclose(results.logdensity, values, rtol=1e-12)
        np.testing.assert_allclose(results.logdensity_grad, gradients, rtol=1e-12)
        whole = np.array(0.5 * jnp.sum(r**2) - start.logdensity)
        assert np.abs(np.asarray(results.energy) - whole).max() < 0.1

    @pytest.mark.thorough
    @pytest.mark.parametrize("step_size", [0.25, 0.45, 0.8, 1.3])
    def test_exact_draws_stay_exact(self, key, step_size):
        """Catches a rule that depends on where in its trajectory the chain was: few steps, most trees refused."""
        key_start, key_run = jax.random.split(key)
        algorithm = gx.nuts(density, step_size=step_size, max_num_doublings=5)
        starts = np.asarray(jax.random.normal(key_start, (40_000, 3))) / np.sqrt(PRECISION)

        step = jax.jit(jax.vmap(algorithm.step))
        states = jax.vmap(algorithm.init)(jnp.asarray(starts))
        for keys in jax.random.split(key_run, (5, len(starts))):
            states, _ = step(keys, states)
        ends = states.position
        squares = np.asarray(ends) ** 2 * PRECISION
        for moment, expected in ((squares, 1.0), (squares**2, 3.0), (squares * squares[:, [1, 2, 0]], 1.0)):
            error = moment.std(0) / np.sqrt(len(moment))
            assert (np.abs(moment.mean(0) - expected) < 4.5 * error).all()

    @pytest.mark.thorough
    def test_two_points_that_have_turned_are_a_trajectory(self, key):
        """Otherwise a chain whose single steps turn would not move."""
        algorithm = gx.nuts(lambda x: -0.5 * jnp.sum(x**2), step_size=1.9)
        state, info = jax.vmap(algorithm.step, (0, None))(jax.random.split(key, 200), algorithm.init(jnp.array([0.5])))
        assert (info.num_integration_steps == 1).mean() > 0.5
        assert (state.position != 0.5).mean() > 0.3

    def test_undefined_energies_are_infinite_errors(self):
        """Catches NaN that compares as no error."""
        changes = energy_error(jnp.zeros(3), jnp.array([jnp.nan, jnp.inf, 1.0]))
        np.testing.assert_array_equal(changes, [np.inf, np.inf, 1.0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_bounds_of_step_sizes_are_numbers_of_the_dtype(dtype):
    """In float16 the largest was infinite, of which NumPy warned, and the smallest zero."""
    first = jnp.ones((), dtype)

    def search(is_small_enough: bool):
        return sizes.search_step(
            lambda place, size, _: (jnp.array(is_small_enough), place, jnp.zeros_like(size)), (), first, jnp.inf
        )[1]

    largest, smallest = search(True), search(False)
    assert largest.dtype == smallest.dtype == dtype
    np.testing.assert_allclose(float(largest), min(1e7, float(jnp.finfo(dtype).max)), rtol=0.01)
    np.testing.assert_allclose(float(smallest), {jnp.float16: 6.1e-5}.get(dtype, 1.08e-19), rtol=0.01)
    state = sizes.restart(first)
    for _ in range(3):
        state = sizes.observe(state, jnp.ones((), dtype), jnp.inf)
    assert jnp.isfinite(state.log_average)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_has_its_width(key, dtype):
    """In float16 the words of uniform variates overflowed, and nothing was ever taken by chance."""
    chains = gx.sample(
        key,
        gx.nuts(lambda x: -0.5 * x**2, step_size=1.0),
        jnp.zeros((), dtype),
        num_samples=500,
        num_warmup=300,
        num_chains=8,
        progress=False,
    )
    draws = np.asarray(chains["posterior"]["position"].values, float)
    variances = draws.var(axis=1)
    error = variances.std(ddof=1) / np.sqrt(8)
    assert abs(variances.mean() - 1.0) < 4 * error + 0.05
    assert np.asarray(chains["sample_stats"]["lp"].values, float).min() < -1.0


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_has_a_mass_matrix_with_correlations(key, dtype):
    """JAX computes no eigenvalues in half precision."""
    chains = gx.sample(
        key,
        gx.nuts(lambda x: -0.5 * (x[0] ** 2 + (x[1] - 2.0 * x[0]) ** 2)),
        jnp.zeros(2, dtype),
        num_samples=500,
        num_warmup=300,
        num_chains=8,
        progress=False,
    )
    variances = np.asarray(chains["posterior"]["position"].values, float).var(axis=1)
    error = variances.std(axis=0, ddof=1) / np.sqrt(8)
    assert np.all(np.abs(variances.mean(axis=0) - [1.0, 5.0]) < 4 * error + [0.05, 0.25])
