"""Leapfrog on every metric and flow: its order, the form it preserves, and what happens when its solver fails."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import geodax as gx
from geodax import _tree
from geodax.geometry import flows
from geodax.mcmc import hmc, integrators, nuts
from geodax.mcmc.mass_matrix import MassMatrix
from tests.marks import slow
from tests.suites.cases import FLOWS, METRICS, named_case, quadratic, stiefel_case

STEP_SIZES = (0.1, 0.05, 0.025)
NUM_STARTS = 64


def phase_state(manifold, evaluate, like, key) -> integrators.IntegratorState:
    """A uniform point with a momentum from its law."""
    key_point, key_momentum = jax.random.split(key)
    x = manifold.random_point(key_point, like)
    return integrators.IntegratorState(x, manifold.sample_momentum(key_momentum, x), *evaluate(x))


def energy_errors(manifold, logdensity_fn, like, key, leapfrog=None) -> np.ndarray:
    """Root mean square energy error after one unit of time, for each step size."""
    evaluate = integrators.logdensity_and_gradient(logdensity_fn, manifold)
    step = (leapfrog or integrators.leapfrog)(evaluate, manifold)

    def run(start, step_size, num_steps):
        mass = MassMatrix(manifold.initial_scale(start.position))
        end = jax.lax.fori_loop(0, num_steps, lambda _, s: step(s, step_size, mass), start)
        return integrators.energy(end, manifold) - integrators.energy(start, manifold)

    @jax.jit
    def errors(keys, step_sizes, nums_steps):
        starts = jax.vmap(lambda key: phase_state(manifold, evaluate, like, key))(keys)
        changes = jax.vmap(jax.vmap(run, (0, None, None)), (None, 0, 0))(starts, step_sizes, nums_steps)
        return jnp.sqrt(jnp.mean(changes**2, axis=1))

    step_sizes = np.array(STEP_SIZES)
    return np.asarray(errors(jax.random.split(key, NUM_STARTS), step_sizes, np.round(1 / step_sizes).astype(int)))


def check_order(manifold, logdensity_fn, like, key, leapfrog=None) -> None:
    """Energy errors that do not fall by 4 when the step is halved."""
    errors = energy_errors(manifold, logdensity_fn, like, key, leapfrog)
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), 2, atol=0.15)


@pytest.mark.parametrize(
    ("flow", "dtype"),
    [
        pytest.param(flow, dtype, marks=[] if (dtype == jnp.float64) == (flow == "cayley") else [pytest.mark.slow])
        for flow in FLOWS
        for dtype in (jnp.float64, jnp.complex128)
    ],
)
@pytest.mark.parametrize("metric", METRICS)
def test_energy_error_is_of_second_order(metric, flow, dtype, key):
    """A kick that is not halved, an energy that does not belong to the flow, a gradient not conjugated: order 1 or 0."""
    check_order(gx.Stiefel(metric=metric, flow=flow), quadratic((5, 3)), jnp.zeros((5, 3), dtype), key)


def coupled(x):
    """Quadratic in every leaf, and the product of two linear functions of each pair of neighbours."""
    columns = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(x)]
    flat = [_tree.flatten(leaf, jnp.float64) for leaf in columns]
    sums = [jnp.sum(jnp.cos(jnp.arange(entries.size)) * entries) for entries in flat]
    return sum(quadratic(leaf.shape)(leaf) for leaf in columns) + sum(map(jnp.multiply, sums[1:], sums[:-1])) / 4


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["euclidean", "euclidean-complex", "product-complex"])
def test_energy_error_is_of_second_order_beside_complex_leaves(name, key):
    """Catches the gradient of a complex leaf without its conjugate, which a Metropolis step hides."""
    check_order_beside_complex_leaves(name, key)


def check_order_beside_complex_leaves(name: str, key) -> None:
    case = named_case(name)
    check_order(case.manifold, coupled, case.like(jnp.float64), key)


def test_energy_error_is_of_second_order_on_spheres(key):
    """The same on great circles."""
    target = quadratic((5, 1))
    check_order(gx.Sphere(), lambda x: target(x[:, None]), jnp.zeros(5), key)


def compiled(function):
    """Compiled without optimisation, because it runs once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def as_real(z):
    """Real coordinates of an array: itself, or real and imaginary parts."""
    return jnp.stack([z.real, z.imag]) if jnp.iscomplexobj(z) else z


def from_real(z, is_complex: bool):
    return jax.lax.complex(z[0], z[1]) if is_complex else z


def form_defects(manifold, shape, is_complex, key, step_size=0.3) -> tuple[float, float]:
    """How far one leapfrog step is from preserving d theta ^ d r on the cotangent bundle, and its volume.

    The bundle is cut out of the ambient space by x^T x = I and sym(x^T r) = 0; bases of its tangent spaces at both ends
    are the null spaces of the differentiated constraints.
    """
    evaluate = integrators.logdensity_and_gradient(quadratic(shape), manifold)
    step = integrators.leapfrog(evaluate, manifold)
    like = jnp.zeros(shape, jnp.complex128 if is_complex else jnp.float64)
    start = jax.jit(lambda key: phase_state(manifold, evaluate, like, key))(key)
    mass = MassMatrix(manifold.initial_scale(start.position))

    def unpack(z):
        return from_real(z[0], is_complex), from_real(z[1], is_complex)

    def move(z):
        x, r = unpack(z)
        end = step(integrators.IntegratorState(x, r, *evaluate(x)), jnp.asarray(step_size), mass)
        return jnp.stack([as_real(end.position), as_real(end.momentum)])

    def constraints(z):
        x, r = unpack(z)
        xh = jnp.conj(x).T
        return jnp.stack([as_real(xh @ x), as_real(xh @ r + jnp.conj(r).T @ x)])

    z = jnp.stack([as_real(start.position), as_real(start.momentum)])
    end, derivative = compiled(lambda z: (move(z), jax.jacfwd(move)(z)))(z)
    size = z.size
    derivative = np.asarray(derivative).reshape(size, size)

    def tangent_basis(point):
        jacobian = np.asarray(compiled(jax.jacfwd(constraints))(point)).reshape(-1, size)
        return scipy.linalg.null_space(jacobian, rcond=1e-10)

    half = size // 2
    ambient = np.block([[np.zeros((half, half)), np.eye(half)], [-np.eye(half), np.zeros((half, half))]])
    before, after = tangent_basis(z), tangent_basis(end)
    assert before.shape[1] == 2 * manifold.dim(like)
    carried = derivative @ before
    form = before.T @ ambient @ before
    symplectic = np.max(np.abs(carried.T @ ambient @ carried - form))
    # Liouville volume: the root of the form's determinant, in either basis
    volume = np.linalg.det(after.T @ carried)
    ratio = np.sqrt(np.linalg.det(after.T @ ambient @ after) / np.linalg.det(form))
    return float(symplectic), float(abs(abs(volume) * ratio - 1))


def check_symplectic(manifold, shape, is_complex, key) -> None:
    """Both defects vanish; what says it is not symplectic keeps the volume, and the form where n = p alone."""
    symplectic, volume = form_defects(manifold, shape, is_complex, key)
    assert volume < 1e-10
    if manifold.properties.is_symplectic or shape[0] == shape[1]:
        assert symplectic < 1e-10
    else:
        assert symplectic > 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "is_complex"),
    [
        ((3, 2), False),
        ((5, 2), False),
        ((3, 2), True),
        slow((2, 2), False),
        slow((4, 4), False),
        slow((5, 3), False),
    ],
    ids=["3x2", "5x2", "unitary-3x2", "2x2", "4x4", "5x3"],
)
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("metric", METRICS)
def test_leapfrog_is_symplectic(metric, flow, shape, is_complex, key):
    """A momentum that is not carried by the transpose of the position's motion: a wrong distribution, quietly.

    The literal scheme's kick is that of no Hamiltonian, and both that and its volume must show.
    """
    check_symplectic(stiefel_case(metric, flow, shape, is_complex).manifold, shape, is_complex, key)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "speed"), [((5, 1), 1.0), ((4, 4), 2.0**0.5)], ids=["unit vectors: the same", "square: another clock"]
)
def test_the_literal_scheme_is_the_canonical_one_on(shape, speed, key):
    """With r / speed for the literal r and speed * step for its step; a kick with another factor on the skew part."""
    literal, canonical = gx.Stiefel(metric="literal"), gx.Stiefel()
    target = quadratic(shape)
    ends = []
    x = literal.random_point(key, jnp.zeros(shape))
    r = literal.sample_momentum(jax.random.fold_in(key, 1), x)
    for manifold, step_size, momentum in ((literal, 0.3, r), (canonical, 0.3 * speed, r / speed)):
        evaluate = integrators.logdensity_and_gradient(target, manifold)
        state = integrators.IntegratorState(x, momentum, *evaluate(x))
        start = integrators.energy(state, manifold)
        step = jax.jit(integrators.leapfrog(evaluate, manifold))
        for _ in range(5):
            state = step(state, jnp.asarray(step_size), MassMatrix(manifold.initial_scale(x)))
        ends.append((state, integrators.energy(state, manifold) - start))
    (end, change), (same_end, same_change) = ends
    np.testing.assert_allclose(end.position, same_end.position, rtol=0, atol=1e-13)
    np.testing.assert_allclose(end.momentum, speed * same_end.momentum, rtol=0, atol=1e-12)
    np.testing.assert_allclose(change, same_change, rtol=0, atol=1e-12)
    assert abs(change) > 1e-4  # the steps are not so small that anything would agree


class ProjectedMomentum(flows.AbstractFlow):
    """Planted fault: the position moves rightly, the momentum is projected instead of rotated."""

    is_reversible: ClassVar[bool] = True
    is_volume_preserving: ClassVar[bool] = True
    is_symplectic: ClassVar[bool] = True
    order: ClassVar[float] = 2.0

    def __call__(self, x, r, t, *, metric):
        moved, _ = flows.Cayley()(x, r, t, metric=metric)
        return moved, r - moved @ (0.5 * (moved.T @ r + r.T @ moved))


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (4, 4), (5, 3)], ids=str)
def test_a_projected_momentum_is_seen(shape, key):
    """That the defects can be seen at all."""
    symplectic, volume = form_defects(gx.Stiefel(flow=ProjectedMomentum()), shape, False, key)
    assert symplectic > 1e-3
    assert volume > 1e-3


class FailingFlow(flows.AbstractFlow):
    """A solver that fails: it returns NaN, or leaves the manifold without a word."""

    factor: float = 1.01

    is_reversible: ClassVar[bool] = True
    is_volume_preserving: ClassVar[bool] = True
    is_symplectic: ClassVar[bool] = True
    order: ClassVar[float] = 2.0

    def __call__(self, x, r, t, *, metric):
        moved = flows.Cayley()(x, r, t, metric=metric)
        return jnp.asarray(self.factor, x.dtype) * moved[0], moved[1]


class IrreversibleFlow(flows.AbstractFlow):
    """A flow that says what it is."""

    is_reversible: ClassVar[bool] = False
    is_volume_preserving: ClassVar[bool] = True
    is_symplectic: ClassVar[bool] = False
    order: ClassVar[float] = 1.0

    def __call__(self, x, r, t, *, metric):
        return x, r


SAMPLERS = {
    "hmc": lambda logdensity_fn, manifold: hmc.hmc(
        logdensity_fn, manifold=manifold, step_size=0.3, num_integration_steps=4
    ),
    "nuts": lambda logdensity_fn, manifold: nuts.nuts(logdensity_fn, manifold=manifold, step_size=0.3),
}


def check_failures_are_rejected(sampler: str, manifold, logdensity_fn, key) -> None:
    """From every start the position stays as it was, finite and on the manifold, and the flag is up."""
    algorithm = SAMPLERS[sampler](logdensity_fn, manifold)

    @jax.jit
    @jax.vmap
    def iterate(key):
        key_point, key_step = jax.random.split(key)
        state = algorithm.init(gx.Stiefel().random_point(key_point, jnp.zeros((5, 3))))
        new, info = algorithm.step(key_step, state)
        return state, new, info

    before, after, info = iterate(jax.random.split(key, 32))
    np.testing.assert_array_equal(info.is_divergent, True)
    np.testing.assert_allclose(after.position, before.position, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(after.logdensity, before.logdensity)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_failed_solver_is_rejected(sampler, key):
    """A solver's NaN taken for a move."""
    check_failures_are_rejected(sampler, gx.Stiefel(flow=FailingFlow(float("nan"))), quadratic((5, 3)), key)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_flow_that_leaves_the_manifold_is_rejected(sampler, key):
    """A finite point that is no point of the manifold; the energy is flat, so nothing else would reject it."""
    manifold = gx.Stiefel(metric="embedded", flow=FailingFlow(1.01))
    check_failures_are_rejected(sampler, manifold, lambda x: 0 * jnp.sum(x), key)


def walled(x):
    """Standard, but undefined on half of the manifold."""
    return jnp.where(x[0, 0] > 0, jnp.nan, jnp.sum(x))


def check_undefined_density_is_never_entered(sampler: str, key) -> None:
    """Short steps from the defined half: no draw may lie in the undefined one."""
    algorithm = SAMPLERS[sampler](walled, gx.Stiefel())

    @jax.jit
    @jax.vmap
    def run(key):
        key_point, key_chain = jax.random.split(key)
        x = gx.Stiefel().random_point(key_point, jnp.zeros((5, 3)))
        x = x * jnp.where(x[0, 0] > 0, -1.0, 1.0)

        def body(state, iteration):
            state, info = algorithm.step(jax.random.fold_in(key_chain, iteration), state)
            return state, (state.position[0, 0], state.logdensity, info.is_divergent)

        return jax.lax.scan(body, algorithm.init(x), jnp.arange(20))[1]

    corner, logdensity, is_divergent = run(jax.random.split(key, 32))
    assert np.all(corner <= 0)
    assert np.all(np.isfinite(logdensity))
    assert np.any(is_divergent)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_undefined_density_is_never_entered(sampler, key):
    """An energy error that is undefined and counted as none."""
    check_undefined_density_is_never_entered(sampler, key)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_irreversible_flow_is_refused(sampler):
    """A flow that no Metropolis step can make exact, accepted without a word; also as a part of a product."""
    manifold = gx.Stiefel(flow=IrreversibleFlow())
    for refused in (manifold, gx.Product({"a": manifold, "b": gx.Sphere()})):
        with pytest.raises(ValueError, match=r"not reversible and volume preserving.*\"cayley\" or the \"geodesic\""):
            SAMPLERS[sampler](lambda x: jnp.zeros(()), refused)
