r"""Algorithms 1 and 2 of Yanush and Kropotov (2019) with every ingredient exchangeable, to see what each does.

A scheme is a momentum draw, a kick, an energy and a drift, and how they are put together. :func:`mended` takes all four
from one of geodax's manifolds; the variants replace single ingredients by what is printed or by what is near at hand.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import geodax as gx


class Scheme(NamedTuple):
    """The ingredients of algorithm 1.

    Attributes:
        draw: From a position and standard normal noise to a momentum.
        kick: From a position and the ambient gradient to what is added to the momentum.
        energy: Kinetic energy of a position and a momentum.
        drift: Position and momentum moved for a time.
        ratio_sign: 1 for ``exp(H_old - H_new)``, -1 for the printed ``exp(H_new - H_old)``.
        proposes_previous: Whether the proposal is the state before the last step, as line 11 says.
    """

    draw: Callable
    kick: Callable
    energy: Callable
    drift: Callable
    ratio_sign: float = 1.0
    proposes_previous: bool = False


def mended(manifold: gx.Stiefel) -> Scheme:
    """All four ingredients from one manifold."""
    return Scheme(manifold.momentum, manifold.gradient, manifold.kinetic_energy, manifold.flow)


def _project(x, z):
    return gx.Stiefel().project(x, z)


def _half_square(x, r):
    return 0.5 * jnp.sum(r * r)


def _canonical_gradient(x, z):
    """What the paper calls the projection."""
    return z - x @ (z.T @ x)


def _projected_not_rotated(x, r, t):
    moved, _ = gx.Stiefel().flow(x, r, t)
    return moved, _project(moved, r)


LITERAL, CONSISTENT = mended(gx.Stiefel(metric="literal")), mended(gx.Stiefel())
GEODESIC = mended(gx.Stiefel(metric="embedded", flow="geodesic"))

VARIANTS = {
    "literal, mended": LITERAL,
    "consistent": CONSISTENT,
    "geodesic Monte Carlo": GEODESIC,
    "literal, momentum N(0, I) not projected": LITERAL._replace(draw=lambda x, z: z),
    "literal, kick by the projected gradient": LITERAL._replace(kick=_project),
    "plain gradient, momentum N(0, I) not projected": LITERAL._replace(draw=lambda x, z: z, kick=lambda x, g: g),
    "plain gradient, momentum projected": LITERAL._replace(kick=lambda x, g: g),
    "consistent, momentum drawn as orth(Z)": CONSISTENT._replace(draw=_project),
    "literal, energy in the canonical inner product": LITERAL._replace(
        energy=lambda x, r: 0.5 * jnp.sum(r * r) - 0.25 * jnp.sum((x.T @ r) ** 2)
    ),
    "literal, momentum drawn as P(Z)": LITERAL._replace(draw=_canonical_gradient),
    "literal, momentum projected instead of rotated": LITERAL._replace(drift=_projected_not_rotated),
    "literal, ratio as printed": LITERAL._replace(ratio_sign=-1.0),
    "literal, proposal one step early": LITERAL._replace(proposes_previous=True),
}


class Step(NamedTuple):
    """One iteration: the new position, its log density, the acceptance probability and the squared jump."""

    x: jax.Array
    logdensity: jax.Array
    acceptance: jax.Array
    jump: jax.Array


def leapfrog(scheme: Scheme, logdensity_fn: Callable) -> Callable:
    """One leapfrog step ``(x, r, step_size) -> (x, r)``."""
    gradient = jax.grad(logdensity_fn)

    def step(x, r, step_size):
        r = r + 0.5 * step_size * scheme.kick(x, gradient(x))
        x, r = scheme.drift(x, r, step_size)
        return x, r + 0.5 * step_size * scheme.kick(x, gradient(x))

    return step


def algorithm_1(scheme: Scheme, logdensity_fn: Callable) -> Callable:
    """One iteration ``(key, x, step_size, num_steps) -> Step``, line by line as printed but for the scheme's switches."""
    step = leapfrog(scheme, logdensity_fn)

    def iterate(key, x, step_size, num_steps):
        key_momentum, key_accept = jax.random.split(key)
        r = scheme.draw(x, jax.random.normal(key_momentum, x.shape, x.dtype))

        def total(x, r):
            return scheme.energy(x, r) - logdensity_fn(x)

        before = total(x, r)
        num_taken = num_steps - 1 if scheme.proposes_previous else num_steps
        new, r = jax.lax.fori_loop(0, num_taken, lambda _, state: step(*state, step_size), (x, r))
        log_ratio = scheme.ratio_sign * (before - total(new, r))
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        is_accepted = jnp.log(jax.random.uniform(key_accept, (), x.dtype)) < log_ratio
        after = jnp.where(is_accepted, new, x)
        # removes rounding only: drawn momenta are tangent to rounding, and the plain gradient stays on the manifold too
        after = gx.Stiefel().renormalize(after)
        return Step(after, logdensity_fn(after), jnp.exp(jnp.minimum(log_ratio, 0.0)), jnp.sum((after - x) ** 2))

    return iterate


class Stochastic(NamedTuple):
    """The ingredients of algorithm 2: a manifold, and the noise that is injected.

    Attributes:
        manifold: Gives drift, kick and tangent projection.
        noise: ``(manifold, x, z, step_size, friction, gradient_variance)`` from standard normal noise.
    """

    manifold: gx.Stiefel
    noise: Callable


def _noise_of_one_size(variance: Callable) -> Callable:
    """Noise with the momentum's distribution, times the root of a variance of (step size, friction, gradient variance)."""
    return lambda manifold, x, z, *numbers: jnp.sqrt(variance(*numbers)) * manifold.momentum(x, z)


STOCHASTIC = {
    "one more factor of the step size in the noise": Stochastic(
        gx.Stiefel(), _noise_of_one_size(lambda eps, a, v: 2 * a * eps)
    ),
    "isotropic noise with the canonical kick": Stochastic(
        gx.Stiefel(), lambda manifold, x, z, eps, a, v: jnp.sqrt(2 * a) * manifold.project(x, z)
    ),
    "literal, noise not projected": Stochastic(
        gx.Stiefel(metric="literal"), lambda manifold, x, z, eps, a, v: jnp.sqrt(2 * a) * z
    ),
    "exact Ornstein-Uhlenbeck variance": Stochastic(gx.Stiefel(), _noise_of_one_size(lambda eps, a, v: 2 * a - a**2)),
    "no deduction of the gradient's noise": Stochastic(gx.Stiefel(), _noise_of_one_size(lambda eps, a, v: 2 * a)),
    "literal, no deduction of the gradient's noise": Stochastic(
        gx.Stiefel(metric="literal"), _noise_of_one_size(lambda eps, a, v: 2 * a)
    ),
    "one β for every direction": Stochastic(
        gx.Stiefel(), _noise_of_one_size(lambda eps, a, v: 2 * (a - eps**2 * v / 2))
    ),
    "literal, one β for every direction": Stochastic(
        gx.Stiefel(metric="literal"), _noise_of_one_size(lambda eps, a, v: 2 * (a - eps**2 * v / 2))
    ),
}


def algorithm_2(scheme: Stochastic, logdensity_fn: Callable, friction: float, gradient_variance: float) -> Callable:
    """One step ``(key, (x, r), step_size) -> (x, r)``, as printed, with the gradient and the momentum kept tangent."""
    gradient = jax.grad(logdensity_fn)

    def step(key, state, step_size):
        key_gradient, key_noise = jax.random.split(key)
        x, r = scheme.manifold.flow(*state, step_size)
        g = gradient(x) + gradient_variance**0.5 * jax.random.normal(key_gradient, x.shape, x.dtype)
        z = jax.random.normal(key_noise, x.shape, x.dtype)
        noise = scheme.noise(scheme.manifold, x, z, step_size, friction, gradient_variance)
        r = (1 - friction) * r + step_size * scheme.manifold.gradient(x, g) + noise
        return scheme.manifold.renormalize(x), r

    return step
