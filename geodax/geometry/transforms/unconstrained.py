r"""A log density of orthonormal matrices (and other parameters) as one of unconstrained vectors.

.. math:: \log\tilde\pi(z) = \log\pi(Q(z)) + \ell(z)

summed over the transformed parts. What comes out is an ordinary log density on a pytree of arrays, for any sampler,
optimiser or variational family that knows nothing of manifolds.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks as _arguments
from geodax import _tree
from geodax._types import Array, LogDensity, Position, PyTree, Scalar
from geodax.geometry.transforms.base import AbstractTransform, describe


class Unconstrained(eqx.Module):
    """A log density in other coordinates, with the way there and back; made by :func:`unconstrain`."""

    logdensity_fn: Callable
    transforms: PyTree

    def logdensity(self, z: PyTree) -> Scalar:
        """Log density of the unconstrained position, log volumes included."""
        position, log_volumes = self._forward(z)
        logdensity = self.logdensity_fn(position)
        return functools.reduce(lambda total, v: total + v.astype(total.dtype), log_volumes, logdensity)

    def constrain(self, z: PyTree) -> Position:
        """The position itself; pass this function to ``gx.sample(..., keep=...)``."""
        return self._forward(z)[0]

    def unconstrain(self, position: Position) -> PyTree:
        """Unconstrained values of a position, a start for a chain for instance."""
        full = _complete(self.transforms, position)
        return jax.tree.map(
            lambda t, x: x if t is None else jax.tree.map(lambda leaf: _apply(t, t.inverse, leaf, t.shape), x),
            full,
            position,
            is_leaf=_is_node,
        )

    def _forward(self, z: PyTree) -> tuple[Position, list[Scalar]]:
        full = _complete(self.transforms, z)
        nodes, structure = jax.tree.flatten(full, is_leaf=_is_node)
        parts, log_volumes = [], []
        for transform, part in zip(nodes, structure.flatten_up_to(z), strict=True):
            if transform is None:
                parts.append(part)
                continue
            leaves, inner = jax.tree.flatten(part)
            sizes = (transform.num_unconstrained,)
            pairs = [_apply(transform, transform.forward_and_log_volume, leaf, sizes) for leaf in leaves]
            parts.append(inner.unflatten([q for q, _ in pairs]))
            log_volumes += [jnp.sum(log_volume) for _, log_volume in pairs]
        return structure.unflatten(parts), log_volumes


def unconstrain(logdensity_fn: LogDensity, transforms: PyTree) -> Unconstrained:
    """Express a log density in the coordinates of some transforms.

    Example:
        A frame beside a vector that is unconstrained anyway, sampled with ordinary NUTS::

            u = gx.transforms.unconstrain(logdensity_fn, {"frame": gx.transforms.Polar(10, 3)})
            start = u.unconstrain({"frame": q, "log_scale": s})
            gx.sample(key, gx.nuts(u.logdensity), start, keep=u.constrain, num_samples=1000, num_warmup=500)

    Args:
        logdensity_fn: Log density of a position; of orthonormal matrices with respect to the uniform measure, as
            every sampler on ``Stiefel()`` expects it.
        transforms: A transform, or a tree of them that is a prefix of the position: a transform at a node governs
            all arrays below it; what is not named (a missing key of a dict, or None) stays as it is. Leading axes of
            an array are independent copies.

    Returns:
        An object with ``logdensity(z)``, ``constrain(z)`` and ``unconstrain(position)``.

    Raises:
        TypeError: If the density is no function, or the tree holds something else than transforms.
    """
    if not callable(logdensity_fn):
        raise TypeError(
            "unconstrain: logdensity_fn must be a function from a position to a scalar, found "
            f"{type(logdensity_fn).__name__}."
        )
    _arguments.tree("unconstrain", "transforms", transforms)
    for node in jax.tree.leaves(transforms, is_leaf=_is_node):
        if not _is_node(node):
            raise TypeError(
                f"unconstrain: expected transforms such as Polar(n, p), or None, found a {type(node).__name__}."
            )
    # a method of a distribution is a pytree with the parameters for leaves, a plain function has none
    is_plain = any(leaf is logdensity_fn for leaf in jax.tree.leaves(logdensity_fn))
    return Unconstrained(jax.tree_util.Partial(logdensity_fn) if is_plain else logdensity_fn, transforms)


def _is_node(node: Any) -> bool:
    return node is None or isinstance(node, AbstractTransform)


def _apply(transform: AbstractTransform, function: Callable, leaf: Array, shape: tuple[int, ...]) -> Any:
    """Apply a method of one transform over the leading axes of an array."""
    if not hasattr(leaf, "shape") or leaf.shape[leaf.ndim - len(shape) :] != shape:
        found = f"shape {leaf.shape}" if hasattr(leaf, "shape") else f"a {type(leaf).__name__}"
        raise ValueError(
            f"unconstrain: {describe(transform)} expects an array of shape (..., {', '.join(map(str, shape))}) here, "
            f"found {found}."
        )
    for _ in range(leaf.ndim - len(shape)):
        function = jax.vmap(function)
    return function(leaf)


def _complete(prefix: PyTree, position: PyTree) -> PyTree:
    """The prefix with None for what it leaves out of a dict."""
    return _tree.complete_prefix(
        prefix,
        position,
        is_node=_is_node,
        missing=None,
        owner="unconstrain",
        whole="the tree of transforms",
        kind="transforms",
    )
