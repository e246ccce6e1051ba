r"""Mass matrices of the Euclidean entries with correlations, estimated from draws and gradients.

With scales :math:`s` and an orthonormal :math:`V`, the inverse mass matrix of the Euclidean entries is

.. math::
    M^{-1} = \mathrm{diag}(s)\, C^2\, \mathrm{diag}(s), \qquad C = I + V \mathrm{diag}(c - 1) V^T,

where :math:`C`, its inverse and the identity apply in :math:`O(dk)` for :math:`V` of :math:`k` columns. Momenta are
standard normal in units of it: a leapfrog step adds :math:`\varepsilon\, s \circ C r` to the position and
:math:`\tfrac{\varepsilon}{2}\, C (s \circ \nabla \log\pi)` to the momentum. A leaf on another manifold keeps its
scales.

Let :math:`X` be the covariance of the draws of a window in units of the scales, and :math:`G` that of the gradients.
Then :math:`\Lambda = C^2` solves :math:`\Lambda G \Lambda = X`: it is the geometric mean of :math:`X` and
:math:`G^{-1}`, which minimises the Fisher divergence from a normal distribution (Seyboldt, Carlson and Carpenter 2026;
the estimate of nutpie). For a normal posterior it is exact with more draws than entries, where a covariance of draws
has an error of :math:`\sqrt{d/n}`. Of rank :math:`k < d/2` it is computed in the directions in which the draws, or the
gradients, vary most, :math:`k` of each: in the span of all draws and gradients the two are nearly collinear where there
are fewer than entries, and what tells them apart is rounding. All other directions share one value, which the scales
take.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold

KINDS = ("diagonal", "dense", "low_rank")
RANK = 32
"""Number of directions of ``"low_rank"``."""
_MOST_ENTRIES = 10_000
_NUM_ROWS = 512  # draws of a dense matrix, at least, and of a low-rank one, at most
_MOST_KEPT = 1 << 18  # low rank: numbers in the draws, beyond eight draws for each direction
_NUM_POWERS = 16
_REGULARIZATION = 1e-5  # of both covariances
_CUTOFF = 2.0  # low rank: eigenvalues closer to 1 than by this factor are 1


class Correlation(NamedTuple):
    """The matrix C."""

    vectors: Float[Array, "dim rank"]
    roots: Float[Array, " rank"]


class MassMatrix(NamedTuple):
    """Scales of all leaves, and the matrix C of the Euclidean entries; ``()`` is the identity."""

    scale: PyTree
    correlation: Correlation | tuple[()] = ()


class Rows(NamedTuple):
    """Draws of a window and their gradients, Euclidean entries only, one row each."""

    draws: Float[Array, "row dim"]
    gradients: Float[Array, "row dim"]


def euclidean_leaves(manifold: AbstractManifold, position: Position, scale: PyTree) -> PyTree:
    """For each leaf, as a bool, whether its entries are correlated: those of flat leaves with a scale for each entry.

    The scales alone do not tell: a curved leaf may be a single number, or have a scale for each entry, too.
    """
    return jax.tree.map(lambda flat, s, x: flat and s.shape == x.shape, manifold.is_flat(position), scale, position)


def initial_mass(kind: str | None, manifold: AbstractManifold, position: Position) -> MassMatrix:
    """The first scales, and the identity with the rank of one of :data:`KINDS`, or of the kind for the dimension."""
    scale = manifold.initial_scale(position)
    entries = _entries(position, euclidean_leaves(manifold, position, scale))
    dim, dtype = entries.size, entries.dtype
    if kind is None:
        kind = "low_rank" if dim <= _MOST_ENTRIES else "diagonal"
    rank = {"diagonal": 0, "dense": dim, "low_rank": min(RANK, dim)}[kind] if dim > 1 else 0
    return MassMatrix(scale, Correlation(jnp.eye(dim, rank, dtype=dtype), jnp.ones(rank, dtype)) if rank else ())


def correlated(mass: MassMatrix, tree: PyTree, flat: PyTree, *, inverse: bool = False) -> PyTree:
    """Multiply the Euclidean entries of a tree in units of the scales by C, or by its inverse; other leaves stay."""
    if not isinstance(mass.correlation, Correlation):
        return tree
    entries = _entries(tree, flat).astype(mass.correlation.roots.dtype)
    entries = _times(mass.correlation, entries, inverse)
    leaves, structure = jax.tree.flatten(tree)
    changed, start = [], 0
    for leaf, is_flat in zip(leaves, jax.tree.leaves(flat), strict=True):
        if not is_flat:
            changed.append(leaf)
            continue
        parts = []
        for _ in range(2 if jnp.iscomplexobj(leaf) else 1):
            parts.append(entries[start : start + leaf.size].reshape(leaf.shape))
            start += leaf.size
        changed.append((jax.lax.complex(*parts) if len(parts) == 2 else parts[0]).astype(leaf.dtype))
    return structure.unflatten(changed)


def where_euclidean(mass: MassMatrix, tree: PyTree, other: PyTree, flat: PyTree) -> PyTree:
    """Euclidean leaves of the first tree, all others of the second; the second alone without correlations."""
    if not isinstance(mass.correlation, Correlation):
        return other
    return jax.tree.map(lambda is_flat, x, y: x if is_flat else y, flat, tree, other)


def rows_to_keep(is_slow: np.ndarray, is_end: np.ndarray, num_new: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the ``num_new`` draws of each iteration of a warm-up are kept, evenly over each window.

    Returns for each iteration the first of its rows, ``room`` if it keeps none, and the number of rows of its window so
    far.
    """
    first, count = np.full(len(is_slow), room, np.int32), np.zeros(len(is_slow), np.int32)
    start = 0
    for end in np.flatnonzero(is_end) + 1:
        window = np.arange(start, end)[is_slow[start:end]]
        kept = window[:: -(-len(window) // (room // num_new))] if room else window[:0]
        first[kept] = num_new * np.arange(len(kept))
        count[window] = num_new * np.searchsorted(kept, window, side="right")
        start = end
    return first, count


def room_for(correlation: Correlation, num_draws: int) -> int:
    """Number of draws of a window to keep for the estimate."""
    dim, rank = correlation.vectors.shape
    enough = max(4 * dim, _NUM_ROWS) if rank == dim else max(8 * rank, min(4 * dim, _NUM_ROWS, _MOST_KEPT // dim))
    return max(min(num_draws, enough), rank)


def no_rows(correlation: Correlation | tuple[()], num_draws: int) -> Rows | tuple[()]:
    """Empty rows for some draws of a window of ``num_draws``; ``()`` without correlations."""
    if not isinstance(correlation, Correlation):
        return ()
    empty = jnp.zeros((room_for(correlation, num_draws), len(correlation.vectors)), correlation.vectors.dtype)
    return Rows(empty, empty)


def row_of(position: Position, gradient: PyTree, flat: PyTree) -> Rows:
    """A draw and its gradient as one row."""
    return Rows(_entries(position, flat), _entries(gradient, flat))


def with_rows(rows: Rows, first: Array, new: Rows) -> Rows:
    """Write one row, or several with a leading axis, from ``first`` on; nothing beyond the end."""

    def written(old: Array, new: Array) -> Array:
        new = jnp.atleast_2d(new).astype(old.dtype)
        return old.at[first + jnp.arange(len(new), dtype=first.dtype)].set(new, mode="drop")

    return jax.tree.map(written, rows, new)


def estimate(
    rows: Rows | tuple[()], count: Array, scale: PyTree, like: Position, before: Correlation | tuple[()], flat: PyTree
) -> MassMatrix:
    """Estimate C from the draws of a window. That of ``"low_rank"`` also changes the scales by a common factor.

    It has the rank of ``before``, which is kept if there are no draws or the estimate is not finite.
    """
    if not isinstance(rows, Rows) or not isinstance(before, Correlation):
        return MassMatrix(scale, before)
    dim, rank = before.vectors.shape
    units = _units(scale, like, flat)[None]
    draws, gradients = _centered(rows.draws / units, count), _centered(rows.gradients * units, count)
    basis = _extreme_directions(draws, gradients, rank) if rank < dim else None
    inner = (draws, gradients) if basis is None else (draws @ basis, gradients @ basis)
    values, vectors = _geometric_mean(*(x.T @ x / jnp.maximum(count - 1, 1).astype(x.dtype) for x in inner))
    weight = count.astype(values.dtype) / (count.astype(values.dtype) + 5.0)
    logs = weight * jnp.log(values)
    middle = jnp.zeros((), logs.dtype)
    if basis is not None:
        middle = weight * _common_log((draws, gradients), inner, values)
        logs = logs - middle
        logs = jnp.where(jnp.abs(logs) > math.log(_CUTOFF), logs, jnp.zeros_like(logs))
        _, largest = jax.lax.top_k(jnp.abs(logs), rank)
        logs, vectors = logs[largest], vectors[:, largest]
    found = Correlation(vectors if basis is None else basis @ vectors, jnp.exp(0.5 * logs))
    is_good = _tree.is_finite(found) & jnp.isfinite(middle) & (count > 1)
    factor = jnp.where(is_good, jnp.exp(0.5 * middle), jnp.ones_like(middle))
    scale = jax.tree.map(lambda is_flat, s: s * factor.astype(s.dtype) if is_flat else s, flat, scale)
    return MassMatrix(scale, _tree.where(is_good, found, before))


def log_growth(old: MassMatrix, new: MassMatrix, like: Position, flat: PyTree) -> Scalar:
    """Logarithm of the largest factor by which one unit of the new mass matrix is longer than one of the old.

    For correlated entries it comes from a few steps of the power method.
    """
    dtype = _tree.real_dtype(like)
    triples = zip(*map(jax.tree.leaves, (old.scale, new.scale, flat)), strict=True)
    before, after = old.correlation, new.correlation
    growths = [
        jnp.max(jnp.log(b) - jnp.log(a)).astype(dtype)
        for a, b, is_flat in triples
        if a.size and not (after and is_flat)
    ]
    if isinstance(before, Correlation) and isinstance(after, Correlation):
        ratio = _units(new.scale, like, flat) / _units(old.scale, like, flat)

        def grown(entries: Array) -> Array:
            return _times(before, ratio * _times(after, entries, False), True)

        def multiply(_: Array, entries: Array) -> Array:
            there = _times(after, ratio * _times(before, grown(entries), True), False)
            return there / jnp.linalg.norm(there)

        start = jnp.full_like(ratio, ratio.size**-0.5)
        growths.append(
            jnp.log(jnp.linalg.norm(grown(jax.lax.fori_loop(0, _NUM_POWERS, multiply, start)))).astype(dtype)
        )
    return jnp.max(jnp.stack(growths))


def _extreme_directions(draws: Array, gradients: Array, rank: int) -> Array:
    """Orthonormal basis of the directions in which draws, or gradients, vary most: ``rank`` of each."""

    def leading(rows: Array) -> Array:
        if rows.shape[0] > rows.shape[1]:
            return jnp.linalg.eigh(rows.T @ rows)[1][:, -rank:]
        columns = rows.T @ jnp.linalg.eigh(rows @ rows.T)[1][:, -rank:]
        return columns / jnp.maximum(jnp.linalg.norm(columns, axis=0), jnp.finfo(columns.dtype).tiny)[None]

    return jnp.linalg.qr(jnp.concatenate([leading(draws), leading(gradients)], axis=1))[0]


def _common_log(rows: tuple[Array, Array], inner: tuple[Array, Array], values: Array) -> Scalar:
    """Logarithm of the multiple of the identity that fits draws and gradients outside a subspace.

    It is the median of the eigenvalues inside if nothing is left outside.
    """
    total, within = (jnp.stack([jnp.sum(x**2) for x in pair]) for pair in (rows, inner))
    outside = total - within
    has_any = jnp.all(outside > jnp.sqrt(jnp.finfo(total.dtype).eps) * total)
    spread, steepness = jnp.where(has_any, outside, jnp.ones_like(outside))
    return jnp.where(has_any, 0.5 * (jnp.log(spread) - jnp.log(steepness)), jnp.log(values[len(values) // 2]))


def _geometric_mean(draws: Array, gradients: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of the positive definite solution L of L G L = X, with both regularised."""
    identity = _REGULARIZATION * jnp.eye(len(draws), dtype=draws.dtype)

    def decomposed(matrix: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return jnp.maximum(values, jnp.finfo(values.dtype).eps * values[-1]), vectors

    values, vectors = decomposed(gradients + identity)
    root, inverse = ((vectors * power) @ vectors.T for power in (jnp.sqrt(values)[None], 1.0 / jnp.sqrt(values)[None]))
    values, vectors = decomposed(root @ (draws + identity) @ root)
    mean = inverse @ ((vectors * jnp.sqrt(values)[None]) @ vectors.T) @ inverse
    return decomposed(0.5 * (mean + mean.T))


def _times(correlation: Correlation, entries: Array, inverse: bool) -> Array:
    vectors, roots = correlation
    factors = (1.0 / roots if inverse else roots) - 1.0
    return entries + vectors @ (factors * (entries @ vectors))


def _centered(rows: Array, count: Array) -> Array:
    is_there = (jnp.arange(len(rows), dtype=count.dtype) < count)[:, None]
    there = jnp.where(is_there, rows, jnp.zeros_like(rows))
    mean = jnp.sum(there, axis=0) / jnp.maximum(count, 1).astype(rows.dtype)
    return jnp.where(is_there, rows - mean[None], jnp.zeros_like(rows))


def _entries(tree: PyTree, flat: PyTree) -> Array:
    """Euclidean entries as a real vector, of at least single precision, in which JAX computes eigenvalues."""
    leaves = [leaf for leaf, is_flat in zip(*map(jax.tree.leaves, (tree, flat)), strict=True) if is_flat]
    dtype = _tree.real_dtype(_tree.widened(tree))
    return _tree.flatten(leaves, dtype) if leaves else jnp.zeros(0, dtype)


def _units(scale: PyTree, like: Position, flat: PyTree) -> Array:
    # those of the real and of the imaginary part of a complex entry
    return _entries(jax.tree.map(lambda s, x: jax.lax.complex(s, s) if jnp.iscomplexobj(x) else s, scale, like), flat)
