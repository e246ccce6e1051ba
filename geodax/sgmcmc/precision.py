"""Computations that need more than half precision, independent of the dtypes of a position.

A step adds a small move to each leaf; half precision (bfloat16, float16) loses what is below a rounding unit of the
sum. Only the user can prevent that, so the sampler warns. Step sizes, temperatures and sums over many entries are
scalars of at least single precision; products with leaves are rounded once.
"""

import warnings

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


def rounded(position: Position) -> Position:
    """Round leaves to half precision: within one program XLA keeps more digits than the dtype has."""

    def leaf_rounded(leaf: Array) -> Array:
        if not _tree.is_half(leaf):
            return leaf
        info = jnp.finfo(leaf.dtype)
        return jax.lax.reduce_precision(leaf, exponent_bits=info.nexp, mantissa_bits=info.nmant)

    return jax.tree.map(leaf_rounded, position)


def warn_of_half_precision(sampler: str, position: Position) -> None:
    """Warn once that small steps are lost, naming the first leaf of half precision."""
    for name, leaf in zip(_tree.leaf_names(position), jax.tree.leaves(position), strict=True):
        if _tree.is_half(leaf):
            unit = float(jnp.finfo(leaf.dtype).eps)
            warnings.warn(
                f"{sampler}: {name} has dtype {leaf.dtype}, with a relative spacing of {unit:.1g}: "
                "smaller steps are lost, and the chain does not move or drifts. Keep the position in float32 "
                f"and cast inside the log density: x.astype(jnp.{leaf.dtype}).",
                UserWarning,
                stacklevel=3,
            )
            return
