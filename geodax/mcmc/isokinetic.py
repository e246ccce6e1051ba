r"""Isokinetic dynamics: motion at constant speed, on any manifold.

A state is a point :math:`x` with a momentum :math:`r` on the sphere :math:`|r|_* = \sqrt{d - 1}` of its cotangent
space, where :math:`d` is the dimension of the manifold and :math:`|\cdot|_*` the norm of its kinetic energy. One sphere
holds the momenta of all leaves of a product. The dynamics (Ver Steeg and Galstyan 2021; Robnik, De Luca, Silverstein
and Seljak 2023)

.. math::
    \dot x = \mathrm{velocity}(x, r), \qquad \dot r = \nabla \log\pi(x) - \frac{\langle \nabla \log\pi(x), r
    \rangle_*}{d - 1}\, r \quad \text{(and free motion)}

keep :math:`\pi(x)` times the uniform distribution of :math:`r` on the sphere. Time has the unit of Hamiltonian
dynamics: at this speed the force is that of HMC, without its part along the momentum. A step is a half kick, a flow and
a half kick.

*Flow.* The manifold's flow preserves the volume of the cotangent bundle, and exactly the kinetic energy: the geodesic
flow by definition, the Cayley flow because it is a rotation that leaves the momentum map :math:`W = r x^T - x r^T` as
it is, with :math:`K = |W|^2 / 4` in the canonical metric and :math:`K = |r|^2 / 2` in the embedded one. So it preserves
the volume of the bundle of spheres. Each leaf keeps its share of the kinetic energy; kicks exchange it.

*Kick.* Over a time :math:`h`, with :math:`f = h \nabla \log\pi(x)`, the unit vectors :math:`u` of :math:`r` and
:math:`e` of :math:`f`, :math:`\delta = |f|_* / \sqrt{d - 1}` and :math:`c = \langle e, u \rangle_*`,

.. math::
    u \mapsto \frac{u + (\sinh\delta + c\, (\cosh\delta - 1))\, e}{\cosh\delta + c \sinh\delta}, \qquad
    \kappa = (d - 1) \log(\cosh\delta + c \sinh\delta),

a map of the sphere with the Jacobian determinant :math:`e^{-\kappa}`. The sum of :math:`\kappa` plays the part of a
kinetic energy: :math:`\kappa - \log\pi` is conserved in the limit of small steps, and its change is the exponent of the
Metropolis ratio.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold, FlowProperties
from geodax.mcmc.integrators import IntegratorState
from geodax.mcmc.mass_matrix import MassMatrix, correlated, euclidean_leaves, where_euclidean
from geodax.mcmc.trajectories import Integrator


class IsokineticMomentum(NamedTuple):
    """A momentum of fixed length, and the sum of the kicks' kappa along the trajectory."""

    direction: Momentum
    work: Scalar


def _of_manifold(name: str) -> Any:
    """A method that is the manifold's."""

    def method(self: "Isokinetic", *args: Any) -> Any:
        return getattr(self.manifold, name)(*args)

    return method


class Isokinetic(AbstractManifold):
    """A manifold whose momenta are :class:`IsokineticMomentum`; everything else is that of the manifold."""

    manifold: AbstractManifold

    dim, residual, is_flat, is_connected = map(_of_manifold, ("dim", "residual", "is_flat", "is_connected"))
    project, gradient, nearest, renormalize = map(_of_manifold, ("project", "gradient", "nearest", "renormalize"))
    noise, noise_capacity, random_point = map(_of_manifold, ("noise", "noise_capacity", "random_point"))
    degrees_of_freedom, squares, scaled = map(_of_manifold, ("degrees_of_freedom", "squares", "scaled"))
    max_time, reflect = map(_of_manifold, ("max_time", "reflect"))

    def momentum(self, x: Position, z: PyTree) -> IsokineticMomentum:
        """Uniform on the sphere."""
        direction = self.normalized(x, self.manifold.momentum(x, z))
        return IsokineticMomentum(direction, jnp.zeros((), _tree.real_dtype(x)))

    def normalized(self, x: Position, r: Momentum) -> Momentum:
        """Scale a momentum to the squared norm ``dim - 1``."""
        factor = jnp.sqrt((self.manifold.dim(x) - 1) / (2.0 * self.manifold.kinetic_energy(x, r)))
        return jax.tree.map(lambda leaf: factor.astype(leaf.dtype) * leaf, r)

    def refresh(self, key: PRNGKey, x: Position, r: Momentum, time: Scalar) -> Momentum:
        """Mix a momentum with a new one; it keeps the fraction ``exp(-time)``. Zero becomes a new momentum."""
        new = self.manifold.sample_momentum(key, x)
        weight = jnp.sqrt(jnp.expm1(2.0 * time))
        return self.normalized(x, jax.tree.map(lambda a, b: a + weight.astype(b.dtype) * b, r, new))

    def kinetic_energy(self, x: Position, r: IsokineticMomentum) -> Scalar:
        return r.work

    def velocity(self, x: Position, r: IsokineticMomentum | Momentum) -> PyTree:
        """Of a momentum, or of a gradient."""
        return self.manifold.velocity(x, r.direction if isinstance(r, IsokineticMomentum) else r)

    def flow(self, x: Position, r: IsokineticMomentum, t: PyTree) -> tuple[Position, IsokineticMomentum]:
        x, direction = self.manifold.flow(x, r.direction, t)
        return x, r._replace(direction=direction)

    def turn(self, x: Position, r: IsokineticMomentum, f: PyTree) -> IsokineticMomentum:
        """Apply a kick: ``f`` is the tangent gradient times its duration. No exponential can overflow."""
        raised = self.manifold.velocity(x, f)
        norm = jnp.sqrt(_tree.dot(f, raised))
        speed = jnp.sqrt(jnp.asarray(self.manifold.dim(x) - 1, norm.dtype))
        safe = jnp.where(norm > 0, norm, jnp.ones_like(norm))
        # a momentum that rounding makes opposite to a strong force must turn, or it leaves without an energy error
        nearly_opposite = -1.0 + 4.0 * jnp.finfo(norm.dtype).eps
        cosine = jnp.clip(_tree.dot(r.direction, raised) / (safe * speed), nearly_opposite, 1.0)
        delta = norm / speed
        decay = jnp.exp(-delta)
        denominator = (1.0 + cosine) + (1.0 - cosine) * decay**2
        kept = 2.0 * decay / denominator
        gained = speed * ((1.0 - decay) * (1.0 + decay + cosine * (1.0 - decay))) / (denominator * safe)
        work = speed**2 * (delta + jnp.log1p(0.5 * (1.0 - cosine) * jnp.expm1(-2.0 * delta)))

        def turned(old: jax.Array, force: jax.Array) -> jax.Array:
            dtype = old.dtype
            return kept.astype(dtype) * old + gained.astype(dtype) * force

        return IsokineticMomentum(jax.tree.map(turned, r.direction, f), r.work + work.astype(r.work.dtype))

    def validate(self, x: Position, name: str) -> None:
        """Require two dimensions besides: on a line there is no direction to change."""
        self.manifold.validate(x, name)
        dim = self.manifold.dim(x)
        if dim < 2:
            raise ValueError(
                f"{name}: isokinetic dynamics needs a position of at least 2 dimensions, found {dim}; use nuts or hmc."
            )

    @property
    def properties(self) -> FlowProperties:
        return self.manifold.properties


def isokinetic_leapfrog(evaluate: Callable[[Position], tuple[Scalar, PyTree]], manifold: Isokinetic) -> Integrator:
    """Build the step ``(state, step_size, mass) -> state``, as :func:`geodax.mcmc.integrators.leapfrog` does."""

    def step(state: IntegratorState, step_size: Scalar, mass: MassMatrix) -> IntegratorState:
        flat = euclidean_leaves(manifold, state.position, mass.scale)
        time = jax.tree.map(lambda s: s * step_size.astype(s.dtype), mass.scale)

        def kicked(x: Position, r: IsokineticMomentum, gradient: PyTree) -> IsokineticMomentum:
            force = manifold.scaled(x, gradient, _tree.scale(0.5, time))
            return manifold.turn(x, r, correlated(mass, force, flat))

        momentum = kicked(state.position, state.momentum, state.logdensity_grad)
        position, moved = manifold.flow(
            state.position, momentum._replace(direction=correlated(mass, momentum.direction, flat)), time
        )
        logdensity, gradient = evaluate(position)
        direction = where_euclidean(mass, momentum.direction, moved.direction, flat)
        momentum = kicked(position, momentum._replace(direction=direction), gradient)
        return IntegratorState(position, momentum, logdensity, gradient)

    return step
