"""Computations that need more than half precision, independent of the dtypes of a position.

A step adds a small move to each leaf, and half precision (bfloat16, float16) would lose what is below a rounding unit
of the sum. So samplers keep positions in single precision, and the target takes them in the dtypes in which they were
given (master weights: Micikevicius et al. 2018). Step sizes, temperatures and sums over many entries are scalars of at
least single precision; products with leaves are rounded once.
"""

import dataclasses

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, Position, PyTree, Scalar


def scalar_dtype(tree: PyTree) -> jnp.dtype:
    """The real dtype of scalars for a tree: that of its widest leaf, but at least single precision."""
    wide = [leaf for leaf in jax.tree.leaves(tree) if not _tree.is_half(leaf)]
    return _tree.real_dtype(wide) if wide else jnp.dtype(jnp.float32)


def scaled(factor: Scalar, tree: PyTree) -> PyTree:
    """``factor`` times each leaf, in the leaf's dtype; a factor too small for half precision keeps its digits."""

    def leaf_scaled(leaf: Array) -> Array:
        wide = _tree.widened(leaf)
        return (factor.astype(jnp.finfo(wide.dtype).dtype).astype(wide.dtype) * wide).astype(leaf.dtype)

    return jax.tree.map(leaf_scaled, tree)


def dot(a: PyTree, b: PyTree) -> Scalar:
    """Real inner product over all leaves, without overflow in half precision."""
    dtype = scalar_dtype(a)
    pairs = zip(jax.tree.leaves(_tree.widened(a)), jax.tree.leaves(_tree.widened(b)), strict=True)
    return sum((_tree.dot(x, y).astype(dtype) for x, y in pairs), start=jnp.zeros((), dtype))


def norm(tree: PyTree) -> Scalar:
    """Euclidean norm over all leaves, without overflow or underflow of the sum of squares."""
    dtype = scalar_dtype(tree)
    wide = _tree.widened(tree)
    sizes = [jnp.max(jnp.abs(leaf), initial=0.0).astype(dtype) for leaf in jax.tree.leaves(wide)]
    largest = jnp.max(jnp.stack(sizes)) if sizes else jnp.zeros((), dtype)
    # non-finite values stay non-finite
    unit = jnp.where(jnp.isfinite(largest) & (largest > 0), largest, jnp.ones_like(largest))
    scaled_down = jax.tree.map(lambda leaf: leaf / unit.astype(jnp.finfo(leaf.dtype).dtype), wide)
    return unit * jnp.sqrt(dot(scaled_down, scaled_down))


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class LeafDtypes:
    """The dtypes in which a target takes the leaves of a position; none if they are those of the position."""

    names: tuple[str, ...] = ()

    def cast(self, position: Position) -> Position:
        """Convert a position to what the target takes."""
        if not self.names:
            return position
        leaves, structure = jax.tree.flatten(position)
        return structure.unflatten([leaf.astype(name) for leaf, name in zip(leaves, self.names, strict=True)])


def in_single_precision(position: Position) -> tuple[Position, LeafDtypes]:
    """Widen half-precision leaves, which would lose small steps, and return the dtypes that they had."""
    leaves = jax.tree.leaves(position)
    if not any(map(_tree.is_half, leaves)):
        return position, LeafDtypes()
    return _tree.widened(position), LeafDtypes(tuple(jnp.dtype(leaf.dtype).name for leaf in leaves))
