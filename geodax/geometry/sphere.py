"""Unit vectors, which move freely along great circles."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._precision import with_full_precision
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.flows import great_circle
from geodax.geometry.manifolds import (
    EXACT,
    AbstractManifold,
    FlowProperties,
    require_alike,
    require_array,
    require_inexact,
)


@with_full_precision
class Sphere(AbstractManifold):
    """Unit vectors along the last axis; leading axes are independent copies."""

    def project(self, x: Float[Array, "*batch n"], u: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Remove the radial part completely, even if rounding has moved ``x`` slightly off the sphere.

        A remaining fraction would change the norm at the next step, and with it the fraction: in Hamiltonian dynamics
        with steps near the stability limit the error of the norm then grows from step to step.
        """
        self.validate(x, "Sphere.project: x")
        require_alike(x, u, "Sphere.project")
        return u - x * (jnp.sum(x * u, axis=-1, keepdims=True) / jnp.sum(x * x, axis=-1, keepdims=True))

    def gradient(self, x: Float[Array, "*batch n"], g: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        return self.project(x, g)

    def momentum(self, x: Float[Array, "*batch n"], z: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        return self.project(x, z)

    def noise(
        self, x: Float[Array, "*batch n"], z: Float[Array, "*batch n"], variance: Scalar, deducted: Scalar
    ) -> Float[Array, "*batch n"]:
        return jnp.sqrt(variance - deducted).astype(x.dtype) * self.project(x, z)

    def noise_capacity(self, x: Float[Array, "*batch n"]) -> float:
        return 1.0

    def is_flat(self, x: Float[Array, "*batch n"]) -> PyTree:
        return False

    def kinetic_energy(self, x: Float[Array, "*batch n"], r: Float[Array, "*batch n"]) -> Scalar:
        return 0.5 * _tree.dot(r, r)

    def velocity(self, x: Float[Array, "*batch n"], r: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        return r

    def flow(self, x: Float[Array, "*batch n"], r: Float[Array, "*batch n"], t: Scalar):
        return great_circle(x, r, t)

    def random_point(self, key: PRNGKey, like: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        self.validate(like, "Sphere.random_point: like")
        key = _checks.random_key("Sphere.random_point", key)
        return self.nearest(jax.random.normal(key, like.shape, like.dtype))

    def nearest(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        self.validate(x, "Sphere.nearest: x")
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    def renormalize(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """One Newton step for the norm."""
        return x * (1.5 - 0.5 * jnp.sum(x * x, axis=-1, keepdims=True))

    def residual(self, x: Float[Array, "*batch n"]) -> Scalar:
        self.validate(x, "Sphere.residual: x")
        if not x.size:
            raise ValueError(f"Sphere.residual: expected an array with entries, found shape {x.shape}.")
        return jnp.max(jnp.abs(jnp.sum(x * x, axis=-1) - 1.0))

    def dim(self, x: Float[Array, "*batch n"]) -> int:
        self.validate(x, "Sphere.dim: x")
        return x.size // x.shape[-1] * (x.shape[-1] - 1)

    def validate(self, x: Position, name: str) -> None:
        require_array(x, name, "Sphere()")
        require_inexact(x, name)
        if jnp.iscomplexobj(x) or x.ndim < 1 or x.shape[-1] < 2:
            raise ValueError(
                f"{name}: Sphere() expects a real array whose last axis holds a unit vector of at least 2 entries, "
                f"found shape {x.shape} and dtype {x.dtype}; use Stiefel() for complex unit vectors."
            )

    def is_connected(self, x: Position) -> bool:
        return True

    def reflect(self, key: PRNGKey, x: Position) -> Position:
        return x

    def max_time(self, x: Float[Array, "*batch n"], scale: Scalar) -> float | Scalar:
        """A quarter of a circle for a momentum of length ``sqrt(n)``."""
        return 0.5 * math.pi / math.sqrt(x.shape[-1]) / scale

    @property
    def properties(self) -> FlowProperties:
        return EXACT
