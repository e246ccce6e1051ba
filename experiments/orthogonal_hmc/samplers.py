"""The samplers that the tables compare, on the matrix mixture, each by the name under which the tables know it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import geodax as gx
from experiments.orthogonal_hmc.matrix_mixture import MatrixMixture, coordinates, first_mode, log_density

POLAR = "polar"
SPACES = {
    POLAR: None,
    "gHMC": {"metric": "embedded", "flow": "geodesic"},
    "literal": {"metric": "literal", "flow": "cayley"},
    "consistent": {"metric": "canonical", "flow": "cayley"},
}


class Problem(NamedTuple):
    """What a sampler needs to know: density, geometry, start, and what to record."""

    logdensity_fn: Callable
    manifold: Any
    start: Any
    keep: Callable


def problem(mixture: MatrixMixture, space: str) -> Problem:
    """The mixture on one of the spaces: a Stiefel manifold, or the polar parametrisation."""
    density, start, keep = log_density(mixture), first_mode(mixture), coordinates(mixture)
    if SPACES[space] is not None:
        return Problem(density, gx.Product({"q": gx.Stiefel(**SPACES[space])}), start, keep)
    polar = gx.transforms.unconstrain(density, {"q": gx.transforms.Polar(mixture.n, mixture.p)})
    return Problem(polar.logdensity, None, polar.unconstrain(start), lambda z: keep(polar.constrain(z)))


def gaussian_noise(standard_deviation: float) -> Callable:
    """Independent normal noise on every entry of a gradient."""

    def perturb(key: jax.Array, gradient: Any) -> Any:
        leaves, structure = jax.tree.flatten(gradient)
        keys = jax.random.split(key, len(leaves))
        noise = [jax.random.normal(k, g.shape, g.dtype) for k, g in zip(keys, leaves, strict=True)]
        scale = [jnp.asarray(standard_deviation, g.dtype) for g in leaves]
        return structure.unflatten([g + s * z for g, s, z in zip(leaves, scale, noise, strict=True)])

    return perturb
