r"""Hamiltonian Monte Carlo with trajectories of a given length, on any manifold.

Each iteration draws a momentum :math:`r` from the manifold's Gaussian law, takes :math:`L` leapfrog steps of size
:math:`\varepsilon`, and accepts the end with probability :math:`\min(1, e^{H_{\mathrm{old}} -
H_{\mathrm{new}}})`.

On the Stiefel manifold with the canonical metric and the Cayley flow this is the consistent form of orthogonal
HMC (Yanush and Kropotov 2019, algorithm 1, with the gradient projected, the momentum's law and the energy
matched, and the sign of the acceptance ratio corrected); with the embedded metric and the geodesic flow it is
geodesic Monte Carlo (Byrne and Girolami 2013).
"""

import jax
import jax.numpy as jnp

from geodax._types import LogDensity, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState
from geodax.mcmc.kernels import exact_algorithm
from geodax.mcmc.trajectories import Integrator, TrajectoryResult, fixed_trajectory


def hmc(
    logdensity_fn: LogDensity,
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | None = None,
    num_integration_steps: int = 16,
    length_jitter: float = 0.0,
    step_size_jitter: float = 0.0,
    target_acceptance_rate: float = 0.8,
) -> SamplingAlgorithm:
    """Hamiltonian Monte Carlo.

    Args:
        logdensity_fn: Log density of a position with respect to the manifold's uniform measure, up to a constant.
        manifold: Geometry of the position, for instance ``Stiefel()`` or ``Product({"loadings": Stiefel()})``;
            None is ordinary HMC on a pytree of unconstrained arrays.
        step_size: Leapfrog step size; None finds it during warm-up, together with the scales of the leaves.
        num_integration_steps: Leapfrog steps of a trajectory.
        length_jitter: In [0, 1]: the number of steps is drawn uniformly within this fraction of
            ``num_integration_steps`` on either side. Fixed lengths can resonate with the target's periods, at a
            healthy acceptance rate; a jitter of 0.3 or more does not.
        step_size_jitter: In [0, 1): each iteration multiplies the step size by a uniform draw within this
            fraction of 1.
        target_acceptance_rate: What warm-up aims at.

    Returns:
        The algorithm, to be run by :func:`geodax.sample` or by hand through ``init`` and ``step``.

    Raises:
        ValueError: For an argument out of its range, or a flow that is not reversible and volume preserving.
        TypeError: For arguments of the wrong kind.
    """
    if (
        isinstance(num_integration_steps, bool)
        or not isinstance(num_integration_steps, int)
        or num_integration_steps < 1
    ):
        raise ValueError(
            f"hmc: num_integration_steps must be a positive whole number, found {num_integration_steps!r}."
        )
    if not 0 <= length_jitter <= 1:
        raise ValueError(f"hmc: length_jitter must lie in [0, 1], found {length_jitter!r}.")
    if not 0 <= step_size_jitter < 1:
        raise ValueError(f"hmc: step_size_jitter must lie in [0, 1), found {step_size_jitter!r}.")
    fewest = max(1, round(num_integration_steps * (1 - length_jitter)))
    most = max(fewest, round(num_integration_steps * (1 + length_jitter)))

    def build(integrator: Integrator, manifold: AbstractManifold):
        trajectory = fixed_trajectory(integrator, manifold)

        def run(key: PRNGKey, start: IntegratorState, step_size: Scalar, scale: PyTree) -> TrajectoryResult:
            key_accept, key_length, key_step = jax.random.split(key, 3)
            num_steps = jax.random.randint(key_length, (), fewest, most + 1, jnp.int32)
            stretch = jax.random.uniform(key_step, (), step_size.dtype, 1 - step_size_jitter, 1 + step_size_jitter)
            jittered = step_size * stretch if step_size_jitter else step_size
            return trajectory(key_accept, start, jittered, scale, num_steps)

        return run

    return exact_algorithm(
        "hmc",
        logdensity_fn,
        build,
        manifold=manifold,
        step_size=step_size,
        target_acceptance_rate=target_acceptance_rate,
    )
