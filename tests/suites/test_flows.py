"""Every flow on every manifold, at steps so large that an approximate inverse would not pass for a true one."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import geodax as gx
from geodax import _tree
from geodax.geometry import flows
from geodax.mcmc import integrators
from geodax.mcmc.mass_matrix import MassMatrix
from tests.marks import slow
from tests.suites.cases import CASES, FLOWS, METRICS, Case, marked, quadratic, stiefel_case

TIMES = (1.0, 2.0, 3.0)  # times the momentum's norm, which is 1 for each case
NUM_STARTS = 8


class Motion(NamedTuple):
    """A flow at one time from many starts, with what the laws compare: pairs of position and momentum."""

    start: tuple
    end: tuple
    end_at_zero: tuple
    initial_derivative: object
    initial_velocity: object
    end_momentum_projected: object
    residual: jax.Array
    energies: tuple
    squared_norms: tuple
    reversed_back: tuple
    negative_back: tuple
    in_two_parts: tuple


def distance(a, b) -> float:
    """Largest absolute difference of two trees."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.max(np.abs(np.asarray(x) - np.asarray(y)))) for x, y in pairs)


def phase_point(manifold, like, key):
    """A uniform point with a momentum of norm 1."""

    @jax.jit
    def draw(key):
        key_point, key_momentum = jax.random.split(key)
        x = manifold.random_point(key_point, like)
        r = manifold.sample_momentum(key_momentum, x)
        norm = jnp.sqrt(_tree.dot(r, r))
        r = jax.tree.map(lambda leaf: leaf / norm.astype(leaf.dtype), r)
        return x, manifold.project(x, r)  # a small draw has a large relative rounding error

    return draw(key)


def compiled(function):
    """Map over starts; compiled without optimisation, because it runs a few times only."""
    return jax.jit(jax.vmap(function), compiler_options={"xla_backend_optimization_level": 0})


def move(case: Case, dtype, key) -> Motion:
    """Flow for every time from several starts each."""
    manifold, like = case.manifold, case.like(dtype)
    start = compiled(lambda k: phase_point(manifold, like, k))(jax.random.split(key, NUM_STARTS * len(TIMES)))
    times = jnp.repeat(jnp.asarray(TIMES, dtype), NUM_STARTS)
    flow = compiled(manifold.flow)

    @compiled
    def describe(x, r):
        return (
            manifold.residual(x),
            manifold.kinetic_energy(x, r),
            _tree.dot(r, r),
            manifold.velocity(x, r),
            manifold.project(x, r),
        )

    def reverse(x, r):
        return x, jax.tree.map(jnp.negative, r)

    end = flow(*start, times)
    nearby = jnp.cbrt(jnp.finfo(dtype).eps) * jnp.ones_like(times)
    difference = _tree.subtract(flow(*start, nearby)[0], flow(*start, -nearby)[0])
    _, energy, squared_norm, velocity, _ = describe(*start)
    residual, end_energy, end_squared_norm, _, projected = describe(*end)
    return Motion(
        start=start,
        end=end,
        end_at_zero=flow(*start, 0 * times),
        initial_derivative=jax.tree.map(lambda d: d / (2.0 * nearby[0]).astype(d.dtype), difference),
        initial_velocity=velocity,
        end_momentum_projected=projected,
        residual=residual,
        energies=(energy, end_energy),
        squared_norms=(squared_norm, end_squared_norm),
        reversed_back=reverse(*flow(*reverse(*end), times)),
        negative_back=flow(*end, -times),
        in_two_parts=flow(*flow(*start, 0.25 * times), 0.75 * times),
    )


# What must vanish up to rounding, and the fault that shows there.
LAWS = {
    # drifting off, an approximate solve
    "stays on the manifold": lambda m: float(np.max(m.residual)),
    # a momentum that is not carried along
    "momentum stays tangent": lambda m: distance(m.end_momentum_projected, m.end[1]),
    # an offset
    "identity at time 0": lambda m: distance(m.end_at_zero, m.start),
    # a momentum that is projected instead of rotated
    "momentum keeps its norm": lambda m: distance(*m.squared_norms),
    # the same, and an energy of the other metric
    "kinetic energy is conserved": lambda m: distance(*m.energies),
    # an approximation that is not reversible
    "returns with the momentum reversed": lambda m: distance(m.reversed_back, m.start),
    # a step that is not its own adjoint
    "returns in negative time": lambda m: distance(m.negative_back, m.start),
}
EXACT_LAWS = {
    # a curve that is no geodesic
    "composes": lambda m: distance(m.in_two_parts, m.end),
}


def check_flow(case: Case, dtype, key) -> None:
    """Every law at every start and time, to 64 roundings for each of the one or two steps that a law takes."""
    motion = move(case, dtype, key)
    eps = float(jnp.finfo(dtype).eps)
    laws = LAWS | EXACT_LAWS if case.is_exact else LAWS
    # in units of what rounding explains
    violations = {name: law(motion) / (2 * eps) for name, law in laws.items()}
    # a wrong sign or speed: the Cayley transform of -W passes every other law; central differences have this error
    violations["starts with the velocity"] = distance(motion.initial_derivative, motion.initial_velocity) / eps ** (
        2 / 3
    )
    broken = {name: violation for name, violation in violations.items() if not violation < 64}
    assert not broken, case.name


def in_both_precisions(cases) -> list:
    """The cases in double precision, and every third also in single; the others in single are slow."""
    both = []
    for i, case in enumerate(cases):
        rest = [] if i % 3 == 0 else [pytest.mark.slow]
        for dtype, marks in ((jnp.float64, []), (jnp.float32, rest)):
            name = f"{dtype.__name__}-{case.id}"
            both.append(pytest.param(*case.values, dtype, id=name, marks=[*case.marks, *marks]))
    return both


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "dtype"), in_both_precisions(marked(CASES)))
def test_flow_keeps_its_laws(case, dtype, key):
    """The table of laws says which fault shows where."""
    check_flow(case, dtype, key)


def test_leafwise_times_equal_separate_flows(key):
    """A product that gives every part the same time, or a part the time of its neighbour."""
    dtype = jnp.float64
    parts = {"frame": gx.Stiefel(), "unit": gx.Sphere(), "free": gx.Euclidean()}
    manifold = gx.Product({"frame": parts["frame"], "unit": parts["unit"]})
    like = {"frame": jnp.zeros((4, 2), dtype), "unit": jnp.zeros(3, dtype), "free": jnp.zeros(2, dtype)}
    x, r = phase_point(manifold, like, key)
    times = {
        "frame": jnp.asarray(0.7, dtype),
        "unit": jnp.asarray(-1.3, dtype),
        "free": jnp.asarray([0.2, 3.0], dtype),
    }
    together = jax.jit(lambda x, r, t: manifold.flow(x, r, t))(x, r, times)
    for name, part in parts.items():
        separate = jax.jit(part.flow)(x[name], r[name], times[name])
        np.testing.assert_allclose(together[0][name], separate[0], rtol=0, atol=1e-15)
        np.testing.assert_allclose(together[1][name], separate[1], rtol=0, atol=1e-15)


def generator(x, r):
    """The dense n x n momentum map, in NumPy."""
    return r @ x.conj().T - x @ r.conj().T


SOLVES = (flows._cayley_dense, flows._cayley_low_rank)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize(
    "shape",
    [(5, 3), (10, 3), slow((150, 70)), slow((3, 1)), slow((4, 4)), slow((50, 5))],
    ids=str,
)
def test_cayley_agrees_with_the_dense_transform(shape, is_complex, dtype, key):
    """Wrong blocks in the 2p x 2p solve; both ways of solving are compared where both apply."""
    case = stiefel_case("canonical", "cayley", shape, is_complex)
    x, r = phase_point(case.manifold, case.like(dtype), key)
    t = jnp.asarray(2.0, dtype)
    wide = np.complex128 if is_complex else np.float64
    x64, r64 = np.asarray(x, wide), np.asarray(r, wide)
    w, identity = generator(x64, r64), np.eye(shape[0])
    expected = [np.linalg.solve(identity - w, y + w @ y) for y in (x64, r64)]
    tolerance = 1e-12 if dtype == jnp.float64 else 1e-5

    @jax.jit
    def move(x, r, t):
        return case.manifold.flow(x, r, t), *(way(x, r, t.astype(x.dtype)) for way in SOLVES)

    for moved in move(x, r, t):
        for found, reference in zip(moved, expected, strict=True):
            np.testing.assert_allclose(found, reference, rtol=0, atol=tolerance)


def check_geodesic(metric, shape, is_complex, key) -> None:
    """Against scipy's exponential of the dense generators."""
    case = stiefel_case(metric, "geodesic", shape, is_complex)
    x, r = phase_point(case.manifold, case.like(jnp.float64), key)
    moved = jax.jit(case.manifold.flow)(x, r, jnp.asarray(3.0))
    x, r = np.asarray(x), np.asarray(r)
    left = scipy.linalg.expm(3.0 * generator(x, r))
    right = scipy.linalg.expm(-3.0 * x.conj().T @ r) if metric == "embedded" else np.eye(shape[1])
    for found, start in zip(moved, (x, r), strict=True):
        np.testing.assert_allclose(found, left @ start @ right, rtol=0, atol=1e-13)


# dense and low rank, one of them complex; the others are slow
FAST_GEODESICS = [
    *(("canonical", shape, False) for shape in ((5, 3), (10, 3))),
    *(("embedded", shape, is_complex) for shape, is_complex in (((5, 3), False), ((10, 3), True))),
]
GEODESICS = itertools.product(METRICS, [(3, 1), (5, 3), (10, 3), (4, 4)], [False, True])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("metric", "shape", "is_complex"),
    [pytest.param(*g, marks=[] if g in FAST_GEODESICS else [pytest.mark.slow]) for g in GEODESICS],
)
def test_geodesic_agrees_with_dense_exponentials(metric, shape, is_complex, key):
    """A wrong block of the 2p x 2p generator, or the right rotation of the other metric."""
    check_geodesic(metric, shape, is_complex, key)


@pytest.mark.parametrize("shape", [(3, 2), (5, 3), (10, 3)], ids=str)
def test_embedded_geodesic_solves_its_equation(shape, key):
    """A curve that is no geodesic of the embedded metric: X'' = -X X'^T X' by Runge-Kutta."""
    case = stiefel_case("embedded", "geodesic", shape)
    x, r = phase_point(case.manifold, case.like(jnp.float64), key)
    found = jax.jit(case.manifold.flow)(x, r, jnp.asarray(2.0))
    state, h = np.stack([x, r]), 2.0 / 2000

    def slope(s):
        return np.stack([s[1], -s[0] @ s[1].T @ s[1]])

    for _ in range(2000):
        k1 = slope(state)
        k2 = slope(state + 0.5 * h * k1)
        k3 = slope(state + 0.5 * h * k2)
        k4 = slope(state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    np.testing.assert_allclose(np.stack(found), state, rtol=0, atol=1e-11)


POLAR_SHAPES = [((3, 1), False), ((5, 3), False), ((4, 4), False), ((2, 7, 3), False), ((3, 2), True), ((4, 1), True)]


def check_polar_order(shape, is_complex, key) -> None:
    """Errors of position and momentum against the geodesic at two times, and of the energy."""
    polar, geodesic = (stiefel_case("embedded", flow, shape, is_complex) for flow in ("polar", "geodesic"))
    start = phase_point(polar.manifold, polar.like(jnp.float64), key)

    @jax.jit
    def errors(t):
        x, r = polar.manifold.flow(*start, t)
        expected = geodesic.manifold.flow(*start, t)
        r = polar.manifold.project(x, r)
        distances = [jnp.linalg.norm(a - b) for a, b in zip((x, r), expected, strict=True)]
        return jnp.stack([*distances, jnp.abs(_tree.dot(r, r) - _tree.dot(start[1], start[1]))])

    long, short = errors(0.04), errors(0.02)
    assert np.all(long[:2] > 1e-7), "nothing to tell orders by"
    np.testing.assert_allclose(long[:2] / short[:2], 8.0, rtol=0.02)
    assert long[2] < 0.04**4
    assert short[2] < 0.02**4


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "is_complex"), POLAR_SHAPES)
def test_polar_flow_is_of_second_order(shape, is_complex, key):
    """Catches a momentum that is only projected, whose length would shrink in proportion to t^2."""
    check_polar_order(shape, is_complex, key)


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "is_complex"), POLAR_SHAPES)
def test_polar_flow_stays_on_the_manifold(shape, is_complex, dtype, key):
    """In short and long steps, back from a point that is off by rounding, and not at all in no time."""
    case = stiefel_case("embedded", "polar", shape, is_complex)
    eps = float(jnp.finfo(dtype).eps)
    x, r = phase_point(case.manifold, case.like(dtype), key)
    flow = jax.jit(case.manifold.flow)
    residual = jax.jit(lambda x, r, t: case.manifold.residual(flow(x * (1 + 1e-4), r, t)[0]))
    for t in (1e-4, 0.01, -0.3, 1.0, 3.0):
        assert float(residual(x, r, t)) < 64 * eps, t
    assert distance(flow(x, r, 0.0), (x, r)) < 64 * eps


def test_short_steps_of_the_polar_flow_add_up(key):
    """In single precision, where they take fewer products: no drift in 3,000 steps, and energy and end of a longer one.

    Catches a defect that is not measured anew in each step, and a momentum whose length shrinks.
    """
    case = stiefel_case("embedded", "polar", (40, 12))
    start = phase_point(case.manifold, case.like(jnp.float32), key)
    t = 3e-3

    def step(carry, _):
        x, r = case.manifold.flow(*carry, jnp.float32(t))
        r = case.manifold.kick(x, r)
        return (x, r), case.manifold.residual(x)

    (x, r), residuals = jax.jit(lambda start: jax.lax.scan(step, start, length=3000))(start)
    assert float(jnp.max(residuals)) < 2e-6
    np.testing.assert_allclose(_tree.dot(r, r), _tree.dot(start[1], start[1]), rtol=1e-4)
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), start)
    geodesic = stiefel_case("embedded", "geodesic", (40, 12)).manifold
    expected = jax.jit(geodesic.flow)(*wide, jnp.asarray(3000 * t))
    assert distance(expected, wide) > 0.1
    assert distance((x, r), expected) < 3e-3


def long_run(case: Case, dtype, key, num_steps: int, step_size: float = 0.1):
    """Worst distance from the manifold and worst energy error along one trajectory."""
    manifold, like = case.manifold, case.like(dtype)
    evaluate = integrators.logdensity_and_gradient(quadratic(like.shape), manifold)
    step = integrators.leapfrog(evaluate, manifold)

    @jax.jit
    def run(key):
        key_point, key_momentum = jax.random.split(key)
        x = manifold.random_point(key_point, like)
        start = integrators.IntegratorState(x, manifold.sample_momentum(key_momentum, x), *evaluate(x))
        initial_energy = integrators.energy(start, manifold)

        def body(carry, _):
            state, residual, error = carry
            state = step(state, jnp.asarray(step_size, dtype), MassMatrix(manifold.initial_scale(x)))
            error = jnp.maximum(error, jnp.abs(integrators.energy(state, manifold) - initial_energy))
            return (state, jnp.maximum(residual, manifold.residual(state.position)), error), None

        zero = jnp.zeros((), dtype)
        (_, residual, error), _ = jax.lax.scan(body, (start, zero, zero), length=num_steps)
        return residual, error

    return [float(value) for value in run(key)]


def check_long_run(case: Case, dtype, key) -> None:
    """Ten thousand steps stay on the manifold and keep their energy."""
    residual, error = long_run(case, dtype, key, 10_000)
    assert residual < (1e-10 if dtype == jnp.float64 else 1e-4)
    assert error < 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "is_complex"),
    [
        ((5, 3), False),
        ((7, 3), False),
        slow((5, 3), True),
        slow((7, 3), True),
    ],
    ids=["5x3", "7x3", "unitary-5x3", "unitary-7x3"],
)
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("metric", METRICS)
def test_long_trajectories_stay(metric, flow, shape, is_complex, dtype, key):
    """Rounding errors that are amplified from step to step.

    They may end on another orthonormal matrix, so the worst point of the path counts, and the energy.
    """
    check_long_run(stiefel_case(metric, flow, shape, is_complex), dtype, key)
