"""What one iteration of an exact sampler reports belongs to the point at which it ends."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.mcmc import kernels, trajectories
from geodax.mcmc.integrators import IntegratorState, energy, logdensity_and_gradient


def check_metropolis(key) -> None:
    """Position, density, gradient and energy are those of the end or of the start, each with its probability."""
    manifold = gx.Euclidean()
    evaluate = logdensity_and_gradient(lambda x: -3.0 * jnp.sum((x - 2.0) ** 2), manifold)
    start, end = (
        IntegratorState(x, r, *evaluate(x))
        for x, r in ((jnp.array([2.5]), jnp.array([1.0])), (jnp.array([1.4]), jnp.array([1.2])))
    )
    energies = np.array([energy(state, manifold) for state in (start, end)])
    num_keys = 2000
    results = jax.jit(jax.vmap(lambda k: trajectories.metropolis(k, start, end, jnp.int32(3), manifold)))(
        jax.random.split(key, num_keys)
    )
    is_end = np.asarray(results.position[:, 0] == end.position[0])
    np.testing.assert_array_equal(results.energy, energies[is_end.astype(int)])
    for name in ("position", "logdensity", "logdensity_grad"):
        both = np.stack([np.asarray(getattr(state, name)) for state in (start, end)])
        np.testing.assert_array_equal(getattr(results, name), both[is_end.astype(int)])
    chance = np.exp(energies[0] - energies[1])
    assert 0.3 < chance < 0.7
    np.testing.assert_allclose(results.acceptance_rate, chance)
    assert abs(is_end.mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / num_keys)


def test_metropolis(key):
    check_metropolis(key)


def check_reflection_keeps_the_kinetic_energy(key) -> None:
    """A reflection moves the position and not the momentum, so that only the potential changes."""
    manifold = gx.Stiefel()
    weights = jnp.array([[0.8, 0.1], [-0.3, 0.5]])
    evaluate = logdensity_and_gradient(lambda x: jnp.sum(weights * x), manifold)

    def reflect(key):
        key_point, key_momentum, key_reflect = jax.random.split(key, 3)
        x = manifold.random_point(key_point, jnp.zeros((2, 2)))
        start = IntegratorState(x, manifold.sample_momentum(key_momentum, x), *evaluate(x))
        result = trajectories.metropolis(key, start, start, jnp.int32(1), manifold)
        return result, kernels._reflect(key_reflect, result, evaluate, manifold)

    with jax.debug_key_reuse(False):
        before, after = jax.jit(jax.vmap(reflect))(jax.random.split(key, 200))
    is_moved = np.linalg.det(before.position) * np.linalg.det(after.position) < 0
    assert 0.2 < is_moved.mean() < 0.95
    kinetic = before.energy + before.logdensity
    np.testing.assert_allclose(after.energy + after.logdensity, kinetic, atol=1e-13)
    density, gradient = jax.vmap(evaluate)(after.position)
    np.testing.assert_allclose(after.logdensity, density, atol=1e-13)
    np.testing.assert_allclose(after.logdensity_grad, gradient, atol=1e-13)


def test_reflection_keeps_the_kinetic_energy(key):
    check_reflection_keeps_the_kinetic_energy(key)


def test_algorithms_go_to_other_processes():
    """Catches a decorator that keeps a generator, which joblib cannot send. Type checks of the tests cannot be sent."""
    pytest.importorskip("cloudpickle")
    program = """
import cloudpickle, jax.numpy as jnp, geodax as gx
for sampler in (gx.hmc, gx.nuts, gx.adjusted_mclmc, gx.mclmc, gx.sgrld, gx.sghmc, gx.sgnht):
    cloudpickle.dumps(sampler(lambda x: -0.5 * jnp.sum(x**2), step_size=0.1))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.thorough
@pytest.mark.parametrize("build", [gx.nuts, gx.hmc, gx.mclmc, gx.adjusted_mclmc])
def test_a_step_before_the_warm_up_needs_a_step_size(build, key):
    """Catches a chain that runs with a step size that nobody chose."""
    algorithm = build(lambda x: -jnp.sum(x**2))
    state = algorithm.init(jnp.ones(3))
    with pytest.raises(ValueError, match="there is no step size yet"):
        jax.jit(algorithm.step)(jax.random.clone(key), state)
    states = state if algorithm.adapt else jax.vmap(algorithm.init)(jnp.ones((4, 3)))
    adaptation = (algorithm.adapt or algorithm.adapt_jointly)(100)
    with pytest.raises(ValueError, match=r"adaptation\.begin"):
        adaptation.init(states)
    begun = adaptation.begin(states)
    assert jnp.all(begun.step_size == 1.0)
    warm = begun._replace(step_size=0.5 * begun.step_size)  # of an earlier run
    assert jnp.all(adaptation.begin(warm).step_size == 0.5)
    moved, _ = algorithm.step(key, state._replace(step_size=0.25))
    assert jnp.all(moved.position != 1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("build", [gx.nuts, gx.hmc, gx.mclmc, gx.adjusted_mclmc])
@pytest.mark.parametrize("constant", [0.5, np.float64(0.5)])
def test_a_constant_that_is_no_array(build, constant, key):
    """Catches a density such as ``lambda x: 0.0``, the uniform distribution, whose energy would have no dtype."""
    algorithm = build(lambda x: constant, manifold=gx.Sphere(), step_size=0.5)
    state = algorithm.init(jnp.array([1.0, 0.0, 0.0], jnp.float32))
    moved, info = jax.jit(algorithm.step)(key, state)
    assert moved.logdensity == 0.5
    assert moved.position[0] < 1.0
    assert not info.is_divergent
