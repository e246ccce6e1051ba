r"""Hamiltonian Monte Carlo with trajectories of a given or an adapted length, on any manifold.

Each iteration draws a momentum :math:`r` from the manifold's Gaussian distribution, takes :math:`L` leapfrog steps of
size :math:`\varepsilon`, and accepts the end with probability :math:`\min(1, e^{H_{\mathrm{old}} -
H_{\mathrm{new}}})`.

On the Stiefel manifold with the canonical metric and the Cayley flow this is the consistent form of orthogonal
HMC (Yanush and Kropotov 2019, algorithm 1, with the gradient projected, the momentum's distribution and the energy
matched, and the sign of the acceptance ratio corrected); with the embedded metric and the geodesic flow it is
geodesic Monte Carlo (Byrne and Girolami 2013).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._types import PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState
from geodax.mcmc.kernels import exact_algorithm
from geodax.mcmc.lengths import adapted_trajectory, initial_length
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.mcmc.trajectories import Integrator, TrajectoryResult, fixed_trajectory

_UNTUNED_STEPS = 16


def hmc(
    logdensity_fn: Callable[..., Scalar],
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | None = None,
    num_integration_steps: int | np.integer | None = None,
    length_jitter: float = 0.0,
    step_size_jitter: float = 0.0,
    mass_matrix: str | None = None,
    target_acceptance_rate: float = 0.8,
) -> SamplingAlgorithm:
    """Hamiltonian Monte Carlo.

    Args:
        logdensity_fn: Log density of a position with respect to the manifold's uniform measure, up to a constant.
            Further arguments, such as data, are given to :func:`geodax.sample` as ``logdensity_args``.
        manifold: Geometry of the position, for instance ``Stiefel()`` or ``Product({"loadings": Stiefel()})``;
            None is ordinary HMC on a pytree of unconstrained arrays.
        step_size: Leapfrog step size; None finds it during the warm-up of :func:`geodax.sample`, together with the
            scales of the leaves. In a loop of your own give one.
        num_integration_steps: Number of leapfrog steps of a trajectory. None (default) lets warm-up find one length for
            all chains from the distances that trajectories cover. The length of each trajectory then varies between
            0.5 and 1.5 times that length, so that it does not resonate. The estimate is noisy with few chains; 16 or
            more are advisable. With a given ``step_size`` nothing is tuned, and None means 16 steps.
        length_jitter: In [0, 1], for a given number of steps: the number is drawn uniformly within this fraction of
            ``num_integration_steps`` on either side. Fixed lengths can resonate with the target's periods even if the
            acceptance rate is good; a jitter of 0.3 or more prevents it.
        step_size_jitter: In [0, 1): each iteration multiplies the step size by a uniform draw within this
            fraction of 1.
        mass_matrix: As for :func:`geodax.nuts`.
        target_acceptance_rate: Target of the warm-up.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init`` and ``step``.

    Raises:
        ValueError: For an argument out of its range, or a flow that is not reversible and volume preserving.
        TypeError: For arguments of the wrong type.
    """
    return trajectory_sampler(
        "hmc",
        logdensity_fn,
        manifold=manifold,
        step_size=step_size,
        num_integration_steps=num_integration_steps,
        length_jitter=length_jitter,
        step_size_jitter=step_size_jitter,
        mass_matrix=mass_matrix,
        target_acceptance_rate=target_acceptance_rate,
    )


def trajectory_sampler(
    name: str,
    logdensity_fn: Callable[..., Scalar],
    *,
    manifold: AbstractManifold | None,
    step_size: float | None,
    num_integration_steps: int | np.integer | None,
    length_jitter: float,
    step_size_jitter: float,
    mass_matrix: str | None,
    target_acceptance_rate: float,
    is_isokinetic: bool = False,
) -> SamplingAlgorithm:
    """Build :func:`hmc`, or its isokinetic form :func:`geodax.adjusted_mclmc`; the arguments are theirs."""
    is_adapted = num_integration_steps is None and step_size is None
    if num_integration_steps is not None:
        num_integration_steps = _checks.whole(name, "num_integration_steps", num_integration_steps)
    settings = {
        "num_integration_steps": num_integration_steps,
        "length_jitter": length_jitter,
        "step_size_jitter": step_size_jitter,
    }
    num_steps = _UNTUNED_STEPS if num_integration_steps is None else num_integration_steps
    length_jitter = _checks.number(name, "length_jitter", length_jitter, least=0.0, most=1.0)
    step_size_jitter = _checks.number(name, "step_size_jitter", step_size_jitter, least=0.0, below=1.0)
    if is_adapted and (length_jitter or step_size_jitter):
        raise ValueError(
            f"{name}: adapted lengths have their own variation; give num_integration_steps=... with length_jitter or "
            "step_size_jitter, or leave all three out."
        )
    fewest = max(1, round(num_steps * (1 - length_jitter)))
    most = max(fewest, round(num_steps * (1 + length_jitter)))

    def build(integrator: Integrator, manifold: AbstractManifold):
        if is_adapted:
            return adapted_trajectory(integrator, manifold)
        trajectory = fixed_trajectory(integrator, manifold)

        def run(
            key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix, length: PyTree
        ) -> TrajectoryResult:
            del length  # unused
            key_accept, key_length, key_step = jax.random.split(key, 3)
            if fewest == most:  # a bound shared by all chains of a vmap needs no masks
                num_steps = jnp.asarray(fewest, jnp.int32)
            else:
                num_steps = jax.random.randint(key_length, (), fewest, most + 1, jnp.int32)
            factor = jax.random.uniform(key_step, (), step_size.dtype, 1 - step_size_jitter, 1 + step_size_jitter)
            jittered = step_size * factor if step_size_jitter else step_size
            return trajectory(key_accept, start, jittered, mass, num_steps)

        return run

    return exact_algorithm(
        name,
        logdensity_fn,
        build,
        manifold=manifold,
        step_size=step_size,
        mass_matrix=mass_matrix,
        target_acceptance_rate=target_acceptance_rate,
        initial_length=initial_length if is_adapted else None,
        settings=settings,
        is_isokinetic=is_isokinetic,
    )
