"""Motion at constant speed: what one step preserves, on every kind of leaf and on products."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import geodax as gx
from geodax import _tree
from geodax.mcmc import integrators, isokinetic
from geodax.mcmc.mass_matrix import Correlation, MassMatrix, euclidean_leaves
from tests.suites.test_integrators import check_order, compiled, coupled

STEP = 0.7
GEODESIC = gx.Stiefel(metric="embedded", flow="geodesic")
CASES = {
    "euclidean": (gx.Euclidean(), (4,)),
    "sphere": (gx.Sphere(), (4,)),
    "canonical": (gx.Stiefel(), (5, 2)),
    "dense": (gx.Stiefel(), (4, 2)),
    "canonical geodesic": (gx.Stiefel(flow="geodesic"), (5, 2)),
    "square": (gx.Stiefel(flow="geodesic"), (3, 3)),
    "embedded": (gx.Stiefel(metric="embedded"), (4, 2)),
    "geodesic": (GEODESIC, (4, 2)),
    "product": (gx.Product({"a": gx.Stiefel(), "b": GEODESIC, "c": gx.Sphere()}), {"a": (3, 2), "b": (3, 2), "c": (3,), "d": (2,)}),
}  # fmt: skip


def of_case(name: str):
    """Manifold, zeros like a position, log density."""
    manifold, shapes = CASES[name]
    like = jax.tree.map(jnp.zeros, shapes, is_leaf=lambda node: isinstance(node, tuple))
    return manifold, like, coupled


def units_of(manifold, like) -> MassMatrix:
    """Scales other than one, and correlated Euclidean entries."""
    scale = jax.tree.map(
        lambda s: s * 0.8 + 0.1 * jnp.arange(float(s.size)).reshape(s.shape), manifold.initial_scale(like)
    )
    scale = jax.tree.map(lambda s: 0.5 * (s + s.T), scale)  # a frame's matrix is symmetric
    is_entry = jax.tree.leaves(euclidean_leaves(manifold, like, scale))
    size = sum(x.size for x, entry in zip(jax.tree.leaves(like), is_entry, strict=True) if entry)
    if not size:
        return MassMatrix(scale)
    vector = jnp.cos(jnp.arange(1.0, size + 1.0))[:, None]
    return MassMatrix(scale, Correlation(vector / jnp.linalg.norm(vector), jnp.asarray([1.6])))


def constraints(manifold, x, r) -> jax.Array:
    """Equations of the cotangent bundle: zero on it, leaf by leaf; a leaf that is no frame and no sphere has none."""
    parts = manifold._parts(x, r) if isinstance(manifold, gx.Product) else [(manifold, "", x, r)]
    found = []
    for m, _, x, r in parts:
        if isinstance(m, gx.Euclidean):
            continue
        x, r = (z.reshape(len(z), -1) for z in (x, r))
        rows = np.triu_indices(x.shape[1])
        found += [(x.T @ x)[rows], (x.T @ r + r.T @ x)[rows]]
    return jnp.concatenate(found) if found else jnp.zeros(0)


def defects(name: str, key) -> tuple[float, float, float]:
    """Of one step: from volume preservation, from constant speed, and from reversibility.

    The volume of the bundle of spheres {K = k} is the symplectic volume over dK: that of a basis of its tangent space and a vector n with
    dK(n) = 1. One step multiplies it by exp(-work).
    """
    manifold, like, logdensity = of_case(name)
    outer = isokinetic.Isokinetic(manifold)
    evaluate = integrators.logdensity_and_gradient(logdensity, manifold)
    step = isokinetic.isokinetic_leapfrog(evaluate, outer)
    mass = units_of(manifold, like)
    key_point, key_momentum = jax.random.split(key)
    start = manifold.random_point(key_point, like)
    momentum = outer.sample_momentum(key_momentum, start).direction
    x_flat, unravel = jax.flatten_util.ravel_pytree(start)
    size = x_flat.size

    def unpack(z):
        return unravel(z[:size]), unravel(z[size:])

    def move(z):
        x, r = unpack(z)
        r = isokinetic.IsokineticMomentum(r, jnp.zeros(()))
        end = step(integrators.IntegratorState(x, r, *evaluate(x)), jnp.asarray(STEP), mass)
        pair = (end.position, end.momentum.direction)
        return jnp.concatenate([jax.flatten_util.ravel_pytree(part)[0] for part in pair]), end.momentum.work

    def equations(z):
        x, r = unpack(z)
        return jnp.concatenate([constraints(manifold, x, r), manifold.kinetic_energy(x, r)[None]])

    z = jnp.concatenate([x_flat, jax.flatten_util.ravel_pytree(momentum)[0]])
    end, work = compiled(move)(z)
    derivative = np.asarray(compiled(jax.jacfwd(lambda z: move(z)[0]))(z))
    form = np.block([[np.zeros((size, size)), np.eye(size)], [-np.eye(size), np.zeros((size, size))]])

    def log_volume(z, basis):
        normal = np.concatenate([np.zeros(size), z[size:]]) / (2 * float(equations(z)[-1]))
        frame = np.column_stack([basis, normal])
        return 0.5 * np.linalg.slogdet(frame.T @ form @ frame)[1]

    basis = scipy.linalg.null_space(np.asarray(compiled(jax.jacfwd(equations))(z)), rcond=1e-10)
    assert basis.shape[1] == 2 * manifold.dim(like) - 1
    volume = log_volume(np.asarray(end), derivative @ basis) - log_volume(np.asarray(z), basis) + float(work)
    energies = np.array([2 * float(equations(point)[-1]) for point in (z, end)])
    turned = end * jnp.where(jnp.arange(2 * size) < size, 1.0, -1.0)
    back, undone = compiled(move)(turned)
    reverse = max(np.abs(np.asarray(back[:size] - z[:size])).max(), abs(float(undone + work)))
    assert abs(float(work)) > 1e-3
    return abs(volume), np.abs(energies - (manifold.dim(like) - 1)).max(), reverse


SLOW = ("square", "embedded", "geodesic")  # leaves of the product have their flows too
MARKED = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MARKED)
def test_a_step_keeps_the_measure_and_the_speed(name, key):
    """Catches a wrong d - 1, a kick out of the tangent space or in another metric than the flow's, and a wrong Jacobian."""
    check_a_step(name, key)


def check_a_step(name: str, key) -> None:
    assert max(defects(name, key)) < 1e-9


@pytest.mark.thorough
@pytest.mark.parametrize("name", MARKED)
def test_energy_error_is_of_second_order(name, key):
    """Catches a work that does not belong to the kick, and a force in the wrong unit of time."""
    manifold, like, logdensity = of_case(name)
    outer = isokinetic.Isokinetic(manifold)
    check_order(outer, logdensity, like, key, leapfrog=isokinetic.isokinetic_leapfrog)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["canonical", "product"])
def test_refreshment_keeps_the_uniform_distribution(name, key):
    """Momenta from the uniform distribution stay so, tangent and of the right norm; the kept fraction is exp(-t)."""
    manifold, like, _ = of_case(name)
    outer = isokinetic.Isokinetic(manifold)
    key_point, *keys = jax.random.split(key, 3)
    x, num, time = manifold.random_point(key_point, like), 20_000, 0.5

    @jax.jit
    @jax.vmap
    def run(first, second):
        old = outer.sample_momentum(first, x).direction
        new = outer.refresh(second, x, old, jnp.asarray(time))
        overlap = _tree.dot(manifold.velocity(x, old), new)
        shares = (
            [m.kinetic_energy(x, r) for m, _, x, r in manifold._parts(x, new)] if name == "product" else [jnp.ones(())]
        )
        off = _tree.subtract(manifold.project(x, new), new)
        return overlap, jnp.stack(shares), 2 * manifold.kinetic_energy(x, new), _tree.dot(off, off)

    overlap, shares, norms, off = run(*(jax.random.split(k, num) for k in keys))
    dim = manifold.dim(like)
    np.testing.assert_allclose(norms, dim - 1, rtol=1e-10)
    assert np.max(off) < 1e-20
    kept = np.asarray(overlap) / (dim - 1)
    # the norm of the noise varies by 1 / sqrt(dim)
    np.testing.assert_allclose(kept.mean(), np.exp(-time), atol=0.5 / dim)
    if name == "product":
        dims = np.array([m.dim(x) for m, _, x in manifold._parts(x)])
        error = np.asarray(shares).std(0) / np.sqrt(num)
        assert np.all(np.abs(np.asarray(shares).mean(0) - 0.5 * (dim - 1) * dims / dim) < 4.5 * error)


def test_extreme_gradients_leave_finite_momenta(key):
    """Forces of 0 and of 1e200: a division by zero, or an exponential that overflows."""
    outer = isokinetic.Isokinetic(gx.Euclidean())
    x = jnp.zeros(5)
    r = outer.sample_momentum(key, x)
    still = outer.turn(x, r, jnp.zeros(5))
    np.testing.assert_allclose(still.direction, r.direction, rtol=1e-14)
    assert still.work == 0
    pulled = outer.turn(x, r, jnp.full(5, 1e150))
    np.testing.assert_allclose(pulled.direction, np.full(5, np.sqrt(4 / 5)), rtol=1e-12)
    assert np.isfinite(pulled.work)
