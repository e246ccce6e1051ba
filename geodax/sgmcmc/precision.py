"""What is computed in more than half precision, whatever the leaves of a position have.

A step adds to each leaf a move that is small beside it; half precision (bfloat16, float16) loses what is below a
rounding unit of the sum. That nobody can mend but the user, who is told so. Step sizes, temperatures and sums over many
entries are scalars, in single precision at least, and meet the leaves in products that are rounded once.
"""

import warnings

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, Position, PyTree, Scalar


def scalar_dtype(tree: PyTree) -> jnp.dtype:
    """The real dtype of scalars about a tree: that of its widest leaf, and single precision at least."""
    wide = [leaf for leaf in jax.tree.leaves(tree) if not _tree.is_half(leaf)]
    return _tree.real_dtype(wide) if wide else jnp.dtype(jnp.float32)


def scaled(factor: Scalar, tree: PyTree) -> PyTree:
    """``factor`` times each leaf, in the leaf's dtype; a factor too small for half precision keeps its digits."""

    def leaf_scaled(leaf: Array) -> Array:
        wide = _tree.widened(leaf)
        return (factor.astype(jnp.finfo(wide.dtype).dtype).astype(wide.dtype) * wide).astype(leaf.dtype)

    return jax.tree.map(leaf_scaled, tree)


def dot(a: PyTree, b: PyTree) -> Scalar:
    """Real inner product over all leaves, which does not overflow where their entries are half precision."""
    dtype = scalar_dtype(a)
    pairs = zip(jax.tree.leaves(_tree.widened(a)), jax.tree.leaves(_tree.widened(b)), strict=True)
    return sum((_tree.dot(x, y).astype(dtype) for x, y in pairs), start=jnp.zeros((), dtype))


def norm(tree: PyTree) -> Scalar:
    """Length of all leaves as one vector, also where the sum of the squares would overflow, or vanish."""
    dtype = scalar_dtype(tree)
    wide = _tree.widened(tree)
    sizes = [jnp.max(jnp.abs(leaf), initial=0.0).astype(dtype) for leaf in jax.tree.leaves(wide)]
    largest = jnp.max(jnp.stack(sizes)) if sizes else jnp.zeros((), dtype)
    # what is not finite stays so
    unit = jnp.where(jnp.isfinite(largest) & (largest > 0), largest, jnp.ones_like(largest))
    scaled_down = jax.tree.map(lambda leaf: leaf / unit.astype(jnp.finfo(leaf.dtype).dtype), wide)
    return unit * jnp.sqrt(dot(scaled_down, scaled_down))


def rounded(position: Position) -> Position:
    """Leaves of half precision as they are: within one program XLA keeps more digits of them than they have."""

    def leaf_rounded(leaf: Array) -> Array:
        if not _tree.is_half(leaf):
            return leaf
        info = jnp.finfo(leaf.dtype)
        return jax.lax.reduce_precision(leaf, exponent_bits=info.nexp, mantissa_bits=info.nmant)

    return jax.tree.map(leaf_rounded, position)


def warn_of_half_precision(sampler: str, position: Position) -> None:
    """Say what becomes of small steps, once, naming the first leaf that loses them."""
    for name, leaf in zip(_tree.leaf_names(position), jax.tree.leaves(position), strict=True):
        if _tree.is_half(leaf):
            unit = float(jnp.finfo(leaf.dtype).eps)
            warnings.warn(
                f"{sampler}: {name} has dtype {leaf.dtype}, whose numbers are {unit:.1g} of their size apart: "
                "smaller steps are lost, and the chain stands still or drifts. Keep the position in float32 "
                f"and cast inside the log density: x.astype(jnp.{leaf.dtype}).",
                UserWarning,
                stacklevel=3,
            )
            return
