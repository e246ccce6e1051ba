"""The orthonormal factor of a matrix; a module of its own, so that the programs of the peers import nothing of geodax."""

import jax.numpy as jnp


def polar(x):
    """Orthonormal factor by the symmetric inverse root."""
    values, vectors = jnp.linalg.eigh(x.T @ x)
    return x @ ((vectors / jnp.sqrt(values)) @ vectors.T)
