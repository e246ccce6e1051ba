r"""A log density of orthonormal matrices (and other parameters) in unconstrained coordinates.

.. math:: \log\tilde\pi(z) = \log\pi(Q(z)) + \ell(z)

summed over the transformed parts. The result is an ordinary log density on a pytree of arrays, for any sampler,
optimiser or variational family without support for manifolds.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, LogDensity, Position, PyTree, Scalar
from geodax.geometry.transforms.base import AbstractTransform, describe


class Unconstrained(eqx.Module):
    """A log density in unconstrained coordinates, with the maps in both directions; created by :func:`unconstrain`."""

    logdensity_fn: Callable
    transforms: PyTree

    def logdensity(self, z: PyTree) -> Scalar:
        """Compute the log density of the unconstrained position, log volumes included."""
        position, log_volumes = self._forward(z)
        logdensity = self.logdensity_fn(position)
        return functools.reduce(lambda total, v: total + v.astype(total.dtype), log_volumes, logdensity)

    def constrain(self, z: PyTree) -> Position:
        """Map to the position; pass this function to ``gx.sample(..., keep=...)``."""
        return self._forward(z)[0]

    def unconstrain(self, position: Position) -> PyTree:
        """Map a position to unconstrained values, for instance the initial position of a chain."""
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
        A frame and a vector that is already unconstrained, sampled with ordinary NUTS::

            u = gx.transforms.unconstrain(logdensity_fn, {"frame": gx.transforms.Polar(10, 3)})
            start = u.unconstrain({"frame": q, "log_scale": s})
            gx.sample(key, gx.nuts(u.logdensity), start, keep=u.constrain, num_samples=1000, num_warmup=500)

    Args:
        logdensity_fn: Log density of a position; for orthonormal matrices with respect to the uniform measure, as in
            every sampler on ``Stiefel()``.
        transforms: A transform, or a tree of them that is a prefix of the position: a transform at a node applies to
            all arrays below it. Nodes without a transform (a missing key of a dict, or None) are unchanged. Leading
            axes of an array are independent copies.

    Returns:
        An object with ``logdensity(z)``, ``constrain(z)`` and ``unconstrain(position)``.

    Raises:
        TypeError: If the density is not a function, or a node of the tree is not a transform.
    """
    _checks.function("unconstrain", "logdensity_fn", logdensity_fn, "a function from a position to a scalar")
    _checks.tree("unconstrain", "transforms", transforms)
    for node in jax.tree.leaves(transforms, is_leaf=_is_node):
        if not _is_node(node):
            found = _checks.described(node)
            raise TypeError(f"unconstrain: expected transforms such as Polar(n, p), or None, found {found}.")
    # a bound method of a distribution is a pytree whose leaves are the parameters, a plain function has none
    is_plain = any(leaf is logdensity_fn for leaf in jax.tree.leaves(logdensity_fn))
    return Unconstrained(jax.tree_util.Partial(logdensity_fn) if is_plain else logdensity_fn, transforms)


def _is_node(node: Any) -> bool:
    return node is None or isinstance(node, AbstractTransform)


def _apply(transform: AbstractTransform, function: Callable, leaf: Array, shape: tuple[int, ...]) -> Any:
    if not hasattr(leaf, "shape") or leaf.shape[leaf.ndim - len(shape) :] != shape:
        found = f"shape {leaf.shape}" if hasattr(leaf, "shape") else f"a {type(leaf).__name__}"
        raise ValueError(
            f"unconstrain: {describe(transform)} expects an array of shape (..., {', '.join(map(str, shape))}), "
            f"found {found}."
        )
    for _ in range(leaf.ndim - len(shape)):
        function = jax.vmap(function)
    return function(leaf)


def _complete(prefix: PyTree, position: PyTree) -> PyTree:
    return _tree.complete_prefix(
        prefix,
        position,
        is_node=_is_node,
        missing=None,
        owner="unconstrain",
        whole="the tree of transforms",
        kind="transforms",
    )
