"""What a transform has to fulfil, checked at random points: for transforms of one's own."""

import math

import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._precision import full_precision
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.laws import relative_error
from geodax.geometry.transforms.base import AbstractTransform, describe, log_spheres

_NUM_POINTS = 8
_LAWS = {
    "orthonormal": "forward gives orthonormal matrices",
    "together": "forward_and_log_volume gives the results of forward and of log_volume",
    "inverse": "forward maps inverse(q) to q",
    "size": "an injective transform has as many unconstrained numbers as the matrices have dimensions",
    "volume": "log_volume is the logarithm of the volume element of the uniform probability measure",
}


def check_transform(transform: AbstractTransform, rng_key: PRNGKey | None = None) -> None:
    """Check a transform of your own: its inverse, and its log volume against automatic differentiation.

    Use double precision. The volume of a redundant transform is not compared, since its density of what the matrix does
    not determine is free: compare draws of a constant density with those of
    :class:`geodax.distributions.StiefelUniform`.

    Args:
        transform: The transform.
        rng_key: A PRNG key for the points, which are standard normal; None takes a fixed one.

    Raises:
        TypeError: If it is not a transform.
        ValueError: If a law is broken; the message names all of them, with the largest relative error.
    """
    if not isinstance(transform, AbstractTransform):
        raise TypeError(f"check_transform: expected a transform, found {_checks.described(transform)}.")
    key = jax.random.key(0) if rng_key is None else _checks.random_key("check_transform", rng_key)
    z = jax.random.normal(key, (_NUM_POINTS, transform.num_unconstrained))
    with full_precision():
        errors = jax.jit(jax.vmap(lambda z: _errors(transform, z)))(z)
    found = {law: float(jnp.max(error)) for law, error in errors.items()}
    bound = 10.0 * float(jnp.finfo(z.dtype).eps) ** 0.5
    broken = [f"{text} (error {found[law]:.2g})" for law, text in _LAWS.items() if not found.get(law, 0.0) <= bound]
    if broken:
        raise ValueError(
            f"check_transform: {describe(transform)} breaks {len(broken)} of {len(found)} laws: {'; '.join(broken)}."
        )


def _errors(transform: AbstractTransform, z: Array) -> dict[str, Scalar]:
    n, p = transform.shape
    q, log_volume = transform.forward_and_log_volume(z)
    found = {
        "orthonormal": relative_error(q.T @ q, jnp.eye(p, dtype=q.dtype)),
        "together": relative_error((transform.forward(z), transform.log_volume(z)), (q, log_volume)),
        "inverse": relative_error(transform.forward(transform.inverse(q)), q),
    }
    if transform.is_injective:
        found["size"] = jnp.abs(jnp.asarray(z.size - (n * p - p * (p + 1) // 2), z.dtype))
        jacobian = jax.jacobian(transform.forward)(z).reshape(n * p, z.size)
        # p (p - 1) / 2 of the coordinates move two entries each
        total = log_spheres(n, p) + 0.25 * p * (p - 1) * math.log(2.0)
        element = 0.5 * jnp.linalg.slogdet(jacobian.T @ jacobian)[1] - total
        found["volume"] = relative_error(log_volume, element)
    return found
