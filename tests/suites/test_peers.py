"""Ordinary HMC and NUTS beside BlackJAX's, at the same step size: the same distribution, no higher cost of a draw."""

from typing import NamedTuple

import arviz
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow
from tests.suites.chains import assert_agree

pytestmark = pytest.mark.relaxed

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 4.0]])
PRECISION = np.linalg.inv(COVARIANCE)


class Target(NamedTuple):
    """A density on R^d with means of its entries, their squares and the product of the first two."""

    logdensity: object
    dim: int
    mean: np.ndarray
    square: np.ndarray
    product: float
    step_size: float


def banana(x):
    """x_0 standard normal; given it, x_1 has the mean x_0^2 / 2 and the standard deviation 1/2."""
    return -0.5 * x[0] ** 2 - 2 * (x[1] - 0.5 * x[0] ** 2) ** 2


TARGETS = {
    "gaussian": Target(lambda x: -0.5 * x @ jnp.asarray(PRECISION) @ x, 3, np.zeros(3), np.diag(COVARIANCE), 0.9, 0.35),
    "banana": Target(
        banana, 2, np.array([0, 0.5]), np.array([1, 1.0]), 0.0, 0.15
    ),  # larger steps are unstable in the tails
}
NUM_CHAINS, NUM_DISCARDED = 64, 50


def run(algorithm, target: Target, key, num_draws: int = 1000) -> dict[str, np.ndarray]:
    """Draws (chain, draw, entry) with acceptance rates, energies and numbers of leapfrog steps."""

    def chain(key):
        key_start, key_run = jax.random.split(key)
        state = algorithm.init(jax.random.normal(key_start, (target.dim,)))

        def iterate(state, iteration):
            state, info = algorithm.step(jax.random.fold_in(key_run, iteration), state)
            return state, (state.position, info.acceptance_rate, info.energy, info.num_integration_steps)

        return jax.lax.scan(iterate, state, jnp.arange(NUM_DISCARDED + num_draws))[1]

    kept = jax.jit(jax.vmap(chain))(jax.random.split(key, NUM_CHAINS))
    position, acceptance, energy, steps = (np.asarray(a, np.float64)[:, NUM_DISCARDED:] for a in kept)
    return {"position": position, "acceptance": acceptance, "energy": energy, "steps": steps}


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Averages of independent chains within 4 standard errors of each other."""
    ours, theirs = ours.mean(1), theirs.mean(1)
    error = np.sqrt(theirs.var(0, ddof=1) / len(theirs))
    assert_agree(ours.reshape(len(ours), -1), theirs.mean(0).ravel(), truth_error=error.ravel())


def smallest_ess(position: np.ndarray) -> float:
    """Smallest effective number of draws for the mean of an entry; that of a square is too noisy where tails are long."""
    return min(float(arviz.ess(position[..., i], method="mean")) for i in range(position.shape[-1]))


@pytest.mark.thorough
@pytest.mark.parametrize(("step_size", "expected"), [(0.42, 7.5), (0.9, 3.7)])
def test_trajectories_do_not_go_round(step_size, expected, key):
    """BlackJAX's do at these step sizes, whose whole trajectories pass from less than half a period to more than one."""
    target = Target(lambda x: -0.5 * x @ x, 50, np.zeros(50), np.ones(50), 0.0, step_size)
    ours = run(gx.nuts(target.logdensity, step_size=step_size), target, key, num_draws=100)
    theirs = run(blackjax.nuts(target.logdensity, step_size, jnp.ones(50)), target, key, num_draws=100)
    assert abs(ours["steps"].mean() - expected) < 0.1
    assert ours["steps"].max() <= 8
    assert theirs["steps"].mean() > 4 * expected


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["gaussian", slow("banana")])
@pytest.mark.parametrize("sampler", ["hmc", "nuts"])
def test_agrees_with_blackjax(sampler, name, key):
    """A tree that stops early or late, a sum of velocities that misses a point, a biased choice of the draw."""
    target = TARGETS[name]
    mass = jnp.ones(target.dim)
    if sampler == "hmc":
        ours = gx.hmc(target.logdensity, step_size=target.step_size, num_integration_steps=7)
        theirs = blackjax.hmc(target.logdensity, target.step_size, mass, 7)
    else:
        ours = gx.nuts(target.logdensity, step_size=target.step_size)
        theirs = blackjax.nuts(target.logdensity, target.step_size, mass)
    key_ours, key_theirs = jax.random.split(key)
    ours, theirs = run(ours, target, key_ours), run(theirs, target, key_theirs)
    for draws in (ours["position"], theirs["position"]):
        first, second = draws[..., 0], draws[..., 1]
        values = np.concatenate([draws, draws**2, (first * second)[..., None]], axis=-1).mean(1)
        assert_agree(values, [*target.mean, *target.square, target.product])
    # BlackJAX's HMC reports the energy at the end of the trajectory, accepted or not; ours that of the draw. Our NUTS also checks
    # where halves of a trajectory meet, so that some end earlier.
    for quantity in ("acceptance", "steps") if sampler == "hmc" else ("energy",):
        assert_same(ours[quantity], theirs[quantity])
    efficiency = [smallest_ess(run["position"]) / run["steps"].sum() for run in (ours, theirs)]
    assert efficiency[0] / efficiency[1] > 0.75
