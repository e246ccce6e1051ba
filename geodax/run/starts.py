"""Where chains start: one point for all, or one a chain; checked before anything is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _arguments, _tree
from geodax._types import Position, PRNGKey
from geodax.geometry.product import named_parts
from geodax.run.advance import Sampler
from geodax.run.errors import StartError

_FAR = 1e-3  # farther from the manifold than rounding explains


def starting_positions(
    rng_key: PRNGKey,
    algorithm: Sampler,
    position: Position | Callable[[PRNGKey], Position],
    num_chains: int,
    stacked: bool,
    num_superchains: int | None = None,
) -> Position:
    """Bring the user's starting point to one position a chain, on the manifold.

    Args:
        rng_key: Randomness for a ``position`` that is a function.
        algorithm: The sampler; its manifold, if it has one, is used for the checks.
        position: A position, a function ``key -> position``, or positions with a leading chain axis.
        num_chains: Number of chains.
        stacked: Whether ``position`` has the chain axis.
        num_superchains: Number of starting points that the chains share, in order; None for one a chain.

    Returns:
        Positions with a leading chain axis.

    Raises:
        StartError: If a point is not finite or off the manifold; the message names the leaf and the chain.
        TypeError: If a leaf is no array.
        ValueError: If a shape does not fit.
    """
    if num_superchains is not None:
        starts = starting_positions(rng_key, algorithm, position, num_superchains, stacked)
        return jax.tree.map(lambda x: jnp.repeat(x, num_chains // num_superchains, axis=0), starts)
    if not callable(position):
        _arguments.tree("sample", "the position", position)
    if _is_function(position):
        keys = jax.random.split(rng_key, num_chains)
        chains = [_as_arrays(position(k)) for k in keys]
        stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)
    else:
        stack = _as_arrays(position)
        if not stacked:
            stack = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), stack)
    if not jax.tree.leaves(stack):
        raise ValueError("sample: the position holds no array, so there is nothing to sample.")
    for name, leaf in zip(_tree.leaf_names(stack), jax.tree.leaves(stack), strict=True):
        if leaf.ndim == 0 or leaf.shape[0] != num_chains:
            raise ValueError(
                f"sample: with stacked=True every leaf needs a leading axis of {num_chains} chains, but "
                f"{name} has shape {leaf.shape}."
            )
        bad = ~np.isfinite(np.asarray(leaf)).reshape(num_chains, -1).all(axis=1)
        if bad.any():
            raise StartError(f"sample: {name} is not finite at the start of chain {int(np.argmax(bad))}.")
    manifold = getattr(algorithm, "manifold", None)
    if manifold is None:
        return stack
    first = jax.tree.map(lambda x: x[0], stack)
    manifold.validate(first, "position")
    for chain in range(num_chains):
        here = jax.tree.map(lambda x: x[chain], stack)  # noqa: B023 - used at once
        for name, part_manifold, part in named_parts(manifold, here, "position"):
            residual = float(part_manifold.residual(part))
            if not residual <= _FAR:
                raise StartError(
                    f"sample: {name} is off its manifold at the start of chain {chain}: the residual of "
                    f"{type(part_manifold).__name__}() is {residual:.3g}, expected at most {_FAR:g}. Start "
                    "from a point on it, for instance manifold.nearest(x) or manifold.random_point(key, x)."
                )
    return jax.vmap(manifold.nearest)(stack)


def check_states(states: Any) -> None:
    """Refuse to start where the density or its gradient is undefined.

    Args:
        states: The sampler's states, with a leading chain axis.

    Raises:
        StartError: Naming the chain and, for a gradient, the leaf.
    """
    logdensity = getattr(states, "logdensity", None)
    if logdensity is not None:
        values = np.asarray(logdensity)
        bad = ~np.isfinite(values)
        if bad.any():
            chain = int(np.argmax(bad))
            meaning = {
                "nan": "the density is undefined there",
                "-inf": "the point is outside the support",
                "inf": "the density is infinite there",
            }[str(values[chain])]
            raise StartError(
                f"sample: the log density is {values[chain]} at the start of chain {chain}: {meaning}. Start "
                "from a point where it is finite, and check the density at that point by hand."
            )
    gradient = getattr(states, "logdensity_grad", None)
    if gradient is not None:
        for name, leaf in zip(_tree.leaf_names(gradient), jax.tree.leaves(gradient), strict=True):
            flat = np.isfinite(np.asarray(leaf)).reshape(leaf.shape[0], -1).all(axis=1)
            if not flat.all():
                raise StartError(
                    f"sample: the gradient of the log density with respect to {name} is not finite at the "
                    f"start of chain {int(np.argmin(flat))}, although the density is. Look for sqrt, norm, "
                    "log or where at an edge of their domain."
                )


def _is_function(position: Any) -> bool:
    """Whether to call it: a network may be called too, but as a position it is a pytree of nothing but arrays."""
    if not callable(position) or isinstance(position, jax.tree_util.Partial):
        return callable(position)
    leaves = jax.tree.leaves(position)
    return not leaves or not all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves)


def _as_arrays(position: Position) -> Position:
    def convert(leaf: Any) -> jax.Array:
        if np.ma.is_masked(leaf):
            raise ValueError("sample: a leaf of the position has masked entries; fill them.")
        try:
            return jnp.asarray(np.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf)
        except (TypeError, ValueError) as error:
            raise TypeError(f"sample: a leaf of the position is a {type(leaf).__name__}, which is no array.") from error

    return jax.tree.map(convert, position)
