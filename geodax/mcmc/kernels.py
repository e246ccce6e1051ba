"""One iteration around a trajectory, shared by HMC and NUTS.

Draw a momentum, run the trajectory, propose a reflection if the manifold has two components, remove the
rounding error. :func:`exact_algorithm` turns a trajectory into the ``init``/``step`` pair that
:func:`geodax.sample` runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _tree
from geodax._precision import in_full_precision
from geodax._random import log_uniform
from geodax._types import (
    Adaptation,
    Array,
    Description,
    LogDensity,
    Position,
    PRNGKey,
    PyTree,
    SamplingAlgorithm,
    Scalar,
)
from geodax.geometry.manifolds import AbstractManifold, as_manifold
from geodax.mcmc.integrators import IntegratorState, Point, energy, leapfrog, logdensity_and_gradient, point_of
from geodax.mcmc.isokinetic import Isokinetic, isokinetic_leapfrog
from geodax.mcmc.joint_warmup import joint_adaptation
from geodax.mcmc.mass_matrix import KINDS, Correlation, MassMatrix, initial_mass
from geodax.mcmc.step_size import NO_STEP_SIZE, known_step_size
from geodax.mcmc.trajectories import Integrator, TrajectoryResult
from geodax.mcmc.warmup import window_adaptation


class HMCState(NamedTuple):
    """State of HMC and NUTS between iterations.

    Attributes:
        position: Current draw.
        logdensity: Its log density.
        logdensity_grad: Its tangent gradient, from the manifold's ``gradient``.
        step_size: Leapfrog step size in units of the scales; ``()`` before the warm-up that finds it.
        scale: Current estimates of the posterior standard deviations (the inverse mass matrix is their square): a tree
            like the position with an array of its shape for each Euclidean leaf, a ``p x p`` matrix for each frame
            (:mod:`geodax.geometry.stiefel`) and one scalar for each other manifold leaf.
        length: State of an adapted trajectory length (:class:`~geodax.mcmc.lengths.AdaptedLength`); empty for the
            other samplers.
        correlation: Correlations of the Euclidean entries (:class:`~geodax.mcmc.mass_matrix.Correlation`); empty for a
            diagonal mass matrix.
    """

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree
    step_size: Scalar
    scale: PyTree
    length: PyTree = ()
    correlation: Correlation | tuple[()] = ()

    @property
    def mass(self) -> MassMatrix:
        """The mass matrix."""
        return MassMatrix(self.scale, self.correlation)


class HMCInfo(NamedTuple):
    """Scalars that describe one iteration of HMC or NUTS.

    Attributes:
        acceptance_rate: Mean Metropolis acceptance probability of the trajectory.
        is_divergent: Whether the energy error passed 1,000 or became undefined, or the flow left the manifold.
        energy: Hamiltonian of the draw.
        num_integration_steps: Number of leapfrog steps, one gradient each.
        residual: Distance of the draw from the manifold.
    """

    acceptance_rate: Scalar
    is_divergent: Array
    energy: Scalar
    num_integration_steps: Array
    residual: Scalar


# PRNG key, initial state, step size, mass matrix, state of the length
Trajectory = Callable[[PRNGKey, IntegratorState, Scalar, MassMatrix, PyTree], TrajectoryResult]


def exact_algorithm(
    name: str,
    logdensity_fn: Callable[..., Scalar],
    build_trajectory: Callable[[Integrator, AbstractManifold], Trajectory],
    *,
    manifold: AbstractManifold | None,
    step_size: float | None,
    mass_matrix: str | None,
    target_acceptance_rate: float,
    settings: Mapping[str, Any],
    initial_length: Callable[[Position], PyTree] | None = None,
    is_isokinetic: bool = False,
    is_ragged: bool = False,
) -> SamplingAlgorithm:
    """Build an exact sampler around a trajectory, which a function makes from the leapfrog step and the manifold.

    The log density may have further arguments, for ``description.bind``. Without a step size, it and the scales are
    tuned during warm-up. ``initial_length`` maps an initial position to the state of the trajectory length, for a
    sampler with a length that is adapted over all chains. ``settings`` are the further arguments that identify
    checkpoints, and ``is_isokinetic`` says that the motion has constant speed (:mod:`geodax.mcmc.isokinetic`) instead
    of being Hamiltonian.
    """
    geometry = as_manifold(name, manifold)
    check_arguments(name, logdensity_fn, geometry, mass_matrix, is_isokinetic=is_isokinetic)
    _checks.number(name, "target_acceptance_rate", target_acceptance_rate, above=0.0, below=1.0)
    if step_size is not None:
        step_size = _checks.number(name, "step_size", step_size, above=0.0)
    evaluate = logdensity_and_gradient(logdensity_fn, geometry)
    manifold, integrator = geometry, leapfrog(evaluate, geometry)
    first_moves = (integrator, manifold)
    if is_isokinetic:
        manifold = Isokinetic(geometry)
        integrator = isokinetic_leapfrog(evaluate, manifold)
    trajectory = build_trajectory(integrator, manifold)

    @in_full_precision
    def init(position: Position, rng_key: PRNGKey | None = None) -> HMCState:
        del rng_key  # BlackJAX's loops pass one
        manifold.validate(position, "position")
        check_density(name, logdensity_fn, position)
        logdensity, gradient = evaluate(position)
        first_step = NO_STEP_SIZE if step_size is None else jnp.asarray(step_size, _tree.real_dtype(position))
        length = () if initial_length is None else initial_length(position)
        mass = initial_mass(mass_matrix if step_size is None else "diagonal", geometry, position)
        return HMCState(position, logdensity, gradient, first_step, mass.scale, length, mass.correlation)

    @in_full_precision
    def step(rng_key: PRNGKey, state: HMCState) -> tuple[HMCState, HMCInfo]:
        key_momentum, key_trajectory, key_reflect = jax.random.split(rng_key, 3)
        momentum = manifold.sample_momentum(key_momentum, state.position)
        start = IntegratorState(state.position, momentum, state.logdensity, state.logdensity_grad)
        result = trajectory(key_trajectory, start, known_step_size(name, state), state.mass, state.length)
        result = _reject_if_off_manifold(result, start, manifold)
        if not manifold.is_connected(state.position):
            result = _reflect(key_reflect, result, evaluate, manifold)
        position = manifold.renormalize(result.position)
        info = HMCInfo(
            acceptance_rate=result.acceptance_rate,
            is_divergent=result.is_divergent,
            energy=result.energy,
            num_integration_steps=result.num_integration_steps,
            residual=manifold.residual(position),
        )
        point = point_of(result)._replace(position=position)
        return state._replace(**point._asdict(), length=result.length), info

    def adapt(num_warmup: int) -> Adaptation:
        return window_adaptation(
            integrator, manifold, num_warmup=num_warmup, target_acceptance_rate=target_acceptance_rate
        )

    def adapt_jointly(num_warmup: int) -> Adaptation:
        return joint_adaptation(
            integrator,
            manifold,
            num_warmup=num_warmup,
            target_acceptance_rate=target_acceptance_rate,
            first_moves=first_moves,
        )

    def bind(*args: PyTree) -> SamplingAlgorithm:
        return exact_algorithm(
            name,
            lambda position: logdensity_fn(position, *args),
            build_trajectory,
            manifold=geometry,
            step_size=step_size,
            mass_matrix=mass_matrix,
            target_acceptance_rate=target_acceptance_rate,
            settings=settings,
            initial_length=initial_length,
            is_isokinetic=is_isokinetic,
        )

    named = {
        "sampler": name,
        "step_size": step_size,
        **settings,
        "mass_matrix": mass_matrix,
        "target_acceptance_rate": target_acceptance_rate,
        "manifold": geometry,
    }
    description = Description(tuple(named.items()), bind=bind, is_ragged=is_ragged)
    if step_size is not None:
        return SamplingAlgorithm(init, step, None, geometry, description=description)
    description = description._replace(adapted=("step_size", "scale", "correlation", "length"))
    # a length shared by all chains cannot be adapted by one chain alone
    alone = adapt if initial_length is None else None
    return SamplingAlgorithm(init, step, alone, geometry, adapt_jointly, description=description)


def _reject_if_off_manifold(
    result: TrajectoryResult, start: IntegratorState, manifold: AbstractManifold
) -> TrajectoryResult:
    """Stay at the old position, and report it, if the flow's solver has failed silently."""
    residual = manifold.residual(result.position)
    is_good = residual <= jnp.sqrt(jnp.finfo(residual.dtype).eps)
    return result._replace(
        **_tree.where(is_good, point_of(result), point_of(start))._asdict(),
        energy=jnp.where(is_good, result.energy, energy(start, manifold)),
        is_divergent=result.is_divergent | ~is_good,
    )


def _reflect(
    key: PRNGKey, result: TrajectoryResult, evaluate: Callable, manifold: AbstractManifold
) -> TrajectoryResult:
    """Metropolis step with the manifold's reflection, which makes a chain on two components irreducible."""
    key_propose, key_accept = jax.random.split(key)
    position = manifold.reflect(key_propose, result.position)
    there = Point(position, *evaluate(position))
    rise = there.logdensity - result.logdensity
    is_accepted = log_uniform(key_accept, rise.dtype) < rise
    return result._replace(
        **_tree.where(is_accepted, there, point_of(result))._asdict(),
        energy=jnp.where(is_accepted, result.energy + result.logdensity - there.logdensity, result.energy),
    )


def check_arguments(
    name: str, logdensity_fn: Any, manifold: AbstractManifold, mass_matrix: Any, *, is_isokinetic: bool
) -> None:
    """Raise TypeError or ValueError for arguments that all exact samplers share."""
    _checks.function(name, "logdensity_fn", logdensity_fn, "a function from a position to a scalar")
    properties = manifold.properties
    if not (properties.is_reversible and properties.is_volume_preserving):
        raise ValueError(
            f"{name}: the manifold's flow is not reversible and volume preserving, so no Metropolis step can make it "
            'exact; use the "cayley" or the "geodesic" flow here, or a stochastic-gradient sampler with this one.'
        )
    if is_isokinetic and not properties.is_symplectic:
        raise ValueError(
            f"{name}: motion at constant speed needs a kinetic energy that belongs to the flow, which the scheme "
            '"literal" lacks; use the metric "canonical" or "embedded", or nuts or hmc.'
        )
    if mass_matrix is not None:
        _checks.chosen(name, "mass_matrix", mass_matrix, KINDS)


def check_density(name: str, logdensity_fn: LogDensity, position: Position) -> None:
    """Raise TypeError unless a log density returns one real number."""
    returned: list = []
    jax.eval_shape(lambda x: returned.append(logdensity_fn(x)), position)
    found = jnp.asarray(returned[0]) if isinstance(returned[0], int | float | np.generic) else returned[0]
    if not hasattr(found, "shape") or found.shape != () or not jnp.issubdtype(found.dtype, jnp.floating):
        described = f"shape {found.shape} and dtype {found.dtype}" if hasattr(found, "shape") else type(found).__name__
        instead = "sum the log densities of independent parts"
        if getattr(found, "shape", None) == ():
            instead = "return a float, such as 0.0 for a constant"
        raise TypeError(
            f"{name}: logdensity_fn must return one real floating-point number, found {described}; {instead}."
        )
