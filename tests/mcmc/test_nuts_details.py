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
    """The balanced pieces (first, last) that recursion checks as it builds ``length`` points."""
    if length == 1:
        return []
    half = length // 2
    return [*pieces_of(start, half), *pieces_of(start + half, half), (start, start + length - 1)]


def checked_pieces(depth: int) -> list[tuple[int, int]]:
    """The pieces that are checked, found by letting one point at a time look back.

    Along a straight line nothing turns. A velocity that points back at an even point, which ends no piece,
    turns exactly the pieces that begin there.
    """
    length = 2**depth
    rows = jnp.zeros((depth, 1))

    def visit(carry, point):
        pieces, velocity_sum = carry
        index, velocity = point
        velocity_sum = velocity_sum + velocity
        is_first = index % 2 == 0
        pieces = trajectories._open(pieces, is_first, index, velocity, velocity_sum)
        turned = ~is_first & trajectories._turns_within(pieces, velocity, velocity_sum, index)
        return (pieces, velocity_sum), turned

    def follow(velocities):
        start = trajectories._OpenPieces(rows, rows, rows[:, 0]), jnp.zeros(1)
        return jax.lax.scan(visit, start, (jnp.arange(length, dtype=jnp.int32), velocities))[1]

    evens = np.arange(0, length, 2)
    velocities = np.ones((len(evens), length, 1))
    velocities[np.arange(len(evens)), evens] = -1.0
    turned = np.asarray(jax.jit(jax.vmap(follow))(jnp.asarray(velocities)))
    return [(int(evens[row]), int(last)) for row, last in np.argwhere(turned)]


@pytest.mark.parametrize("depth", range(1, 8))
def test_the_pieces_are_those_of_the_recursion(depth):
    """Catches a piece left out, an unbalanced one, and a slot that is written over while it is needed.

    There are no more slots than doublings before, as in the sampler.
    """
    assert sorted(checked_pieces(depth)) == sorted(pieces_of(0, 2**depth))


# ------------------------------------------------------------------------------ a whole trajectory


def has_turned(velocities):
    """The criterion on all velocities of a piece."""
    chord = velocities.sum(0) - 0.5 * (velocities[0] + velocities[-1])
    return velocities[0] @ chord <= 0 or velocities[-1] @ chord <= 0


def turns_inside(velocities):
    """Whether recursion would have stopped within these points, in the order in which they are visited.

    Returns:
        The number of points built before it stops, and whether it stopped.
    """
    for odd in range(1, len(velocities), 2):
        for first, last in pieces_of(0, len(velocities)):
            if last == odd and has_turned(velocities[first : last + 1]):
                return odd + 1, True
    return len(velocities), False


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
        built, is_turning = turns_inside(np.array([r for _, r in new]))
        num_steps += built
        if is_turning:
            return num_steps, depth + 1
        path = path + [r for _, r in new] if goes_right[depth] else [r for _, r in new][::-1] + path
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

    @pytest.mark.parametrize("most", [1, 4])
    def test_no_more_steps_than_allowed(self, key, most):
        """Catches a limit that is off by one; steps this small never turn before it."""
        algorithm = gx.nuts(density, step_size=1e-4, max_num_doublings=most)
        _, info = jax.jit(jax.vmap(algorithm.step, (0, None)))(jax.random.split(key, 50), algorithm.init(jnp.ones(3)))
        np.testing.assert_array_equal(info.num_integration_steps, 2**most - 1)

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
