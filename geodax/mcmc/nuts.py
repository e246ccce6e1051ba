"""The no-U-turn sampler on any manifold: HMC that finds the length of each trajectory.

Multinomial sampling from a doubling trajectory (Hoffman and Gelman 2014; Betancourt 2017) with a turning
criterion that has the same meaning on a manifold as in Euclidean space; see :mod:`geodax.mcmc.trajectories`.
"""

from collections.abc import Callable

import numpy as np

from geodax import _checks
from geodax._types import SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.kernels import exact_algorithm
from geodax.mcmc.trajectories import Integrator, dynamic_trajectory


def nuts(
    logdensity_fn: Callable[..., Scalar],
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | None = None,
    max_num_doublings: int | np.integer = 10,
    mass_matrix: str | None = None,
    target_acceptance_rate: float = 0.8,
) -> SamplingAlgorithm:
    """No-U-turn sampler.

    Args:
        logdensity_fn: Log density of a position with respect to the manifold's uniform measure, up to a constant.
            Further arguments, such as data, are given to :func:`geodax.sample` as ``logdensity_args``.
        manifold: Geometry of the position, for instance ``Stiefel()`` or ``Product({"loadings": Stiefel()})``;
            None is ordinary NUTS on a pytree of unconstrained arrays.
        step_size: Leapfrog step size; None finds it during the warm-up of :func:`geodax.sample`, together with the
            scales of the leaves. In a loop of your own give one.
        max_num_doublings: A trajectory has at most ``2**max_num_doublings - 1`` leapfrog steps.
        mass_matrix: What warm-up learns of the posterior covariance of the Euclidean entries: ``"diagonal"`` (standard
            deviations), ``"dense"`` (all correlations; :math:`O(d^2)` work per step for :math:`d` entries) or
            ``"low_rank"`` (the 32 directions that deviate most from the diagonal, :math:`O(d)` work), both from draws
            and gradients. None is ``"low_rank"``, or ``"diagonal"`` for more than 10,000 entries. A leaf on another
            manifold has a single scale. With a given ``step_size`` nothing is learned.
        target_acceptance_rate: Target of the warm-up; raise it to 0.9 or 0.95 if there are divergences.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init`` and ``step``.

    Raises:
        ValueError: For an argument out of its range, or a flow that is not reversible and volume preserving.
        TypeError: For arguments of the wrong type.
    """
    max_num_doublings = _checks.whole("nuts", "max_num_doublings", max_num_doublings, most=20)

    def build(integrator: Integrator, manifold: AbstractManifold):
        trajectory = dynamic_trajectory(integrator, manifold, max_num_doublings)
        return lambda key, start, step_size, mass, _: trajectory(key, start, step_size, mass)

    return exact_algorithm(
        "nuts",
        logdensity_fn,
        build,
        manifold=manifold,
        step_size=step_size,
        mass_matrix=mass_matrix,
        target_acceptance_rate=target_acceptance_rate,
        settings={"max_num_doublings": max_num_doublings},
        is_ragged=True,
    )
