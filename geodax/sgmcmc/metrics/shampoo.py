r"""The Shampoo metric: a Kronecker product of one matrix per side of each weight matrix.

For a matrix-shaped gradient :math:`\hat g` (Gupta, Koren and Singer 2018; as a metric Yu, Hartmann, Williams and Klami
2023, with the sign of the exponent of G corrected), starting at :math:`\epsilon I`,

.. math::
    L \leftarrow \lambda L + (1 - \lambda)\, \hat g \hat g^T, \quad
    R \leftarrow \lambda R + (1 - \lambda)\, \hat g^T \hat g, \qquad
    G = L^{1/4} \otimes R^{1/4}, \quad G^{-1/2} z = L^{-1/8} z R^{-1/8},

and for a vector :math:`G = H^{1/2}` with :math:`H \leftarrow \lambda H + (1 - \lambda) \hat g \hat g^T`: the exponents
are :math:`1 / 2d` for an array with d sides. Large matrices are split into blocks, each treated as its own matrix.
Arrays with more than two axes are reshaped to matrices: the second side runs over all axes but the first.

The full matrix of a vector has the rank of the gradients within the window of its average; in all other directions its
inverse is the root of :math:`1 / \epsilon`. Vectors and scalars can use the diagonal of H instead, or the identity,
which Yu et al. used for biases and prior scales, as common implementations of the optimiser do.

In the SOAP variant (Vyas et al. 2024) L and R only provide eigenvectors :math:`Q_L, Q_R`; the metric is diagonal in
them, :math:`G = \sqrt V + \epsilon` with a bias-corrected moving average V of :math:`(Q_L^T \hat g Q_R)^2`.

Statistics are updated every few gradients and roots every few hundred. Both are also updated at the first gradient and
at one that is out of proportion to those before it (:mod:`geodax.sgmcmc.metrics.sizes`). In between the metric is
constant. Before the first gradient nothing moves, and the first roots contain one gradient only, so let the metric
learn before the position moves (``metric_warmup``).
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.geometry.linalg import eye_like, in_pieces, inverse_root
from geodax.sgmcmc.metrics.base import AbstractMetric, Curvature, before_first
from geodax.sgmcmc.metrics.blocks import on_own_devices
from geodax.sgmcmc.metrics.sizes import OUT, Sizes
from geodax.sgmcmc.periodic import when
from geodax.sgmcmc.precision import scalar_dtype

_METHODS = ("eigh", "newton")
_VARIANTS = ("shampoo", "soap")
_VECTORS = ("full", "diagonal", "identity")


class LeafState(NamedTuple):
    """Statistics and factors of both sides of a leaf, in blocks (rows, columns, side, side), and SOAP's squares."""

    left: Array
    right: Array
    left_factor: Array
    right_factor: Array
    squares: Array


_Leaves = tuple[LeafState | None, ...]


class ShampooState(NamedTuple):
    """State of the metric.

    Attributes:
        leaves: States of the leaves, None for those with the identity.
        sizes: Sizes of the gradients in the statistics of the other leaves.
        rooted: Sizes at the last computation of the roots.
    """

    leaves: _Leaves
    sizes: Sizes
    rooted: Sizes
    count: Array


class Shampoo(AbstractMetric):
    """Kronecker-factored metric.

    Args:
        decay: Decay of the statistics per update.
        epsilon: Initial value of the statistics, and the smallest relative eigenvalue when roots are computed; in units
            of the squared gradient of the mean potential.
        block_size: Largest side of a block.
        statistics_every: Number of gradients between updates of the statistics.
        update_every: Number of gradients between computations of the roots.
        method: How to compute roots: ``"eigh"`` by eigenvalues, or ``"newton"`` by a coupled Newton iteration that uses
            matrix products only.
        variant: ``"shampoo"``, or ``"soap"`` for the variant that is diagonal in the eigenvectors.
        vectors: The metric of vectors and scalars: ``"full"`` matrices, as above, their ``"diagonal"``, or the
            ``"identity"``, so that they move at the sampler's own step size.
    """

    decay: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    block_size: int = eqx.field(static=True)
    statistics_every: int = eqx.field(static=True)
    update_every: int = eqx.field(static=True)
    method: str = eqx.field(static=True)
    variant: str = eqx.field(static=True)
    vectors: str = eqx.field(static=True)

    def __init__(
        self,
        *,
        decay: float = 0.99,
        epsilon: float = 1e-6,
        block_size: int = 128,
        statistics_every: int = 10,
        update_every: int = 100,
        method: str = "eigh",
        variant: str = "shampoo",
        vectors: str = "full",
    ):
        self.decay = _checks.number("Shampoo", "decay", decay, least=0.0, below=1.0)
        self.epsilon = _checks.number("Shampoo", "epsilon", epsilon, above=0.0)
        self.block_size = _checks.whole("Shampoo", "block_size", block_size)
        self.statistics_every = _checks.whole("Shampoo", "statistics_every", statistics_every)
        self.update_every = _checks.whole("Shampoo", "update_every", update_every)
        if update_every % statistics_every:
            raise ValueError(
                "Shampoo: update_every must be a multiple of statistics_every, so that roots are taken of new "
                f"statistics; found {update_every} and {statistics_every}."
            )
        _checks.chosen("Shampoo", "method", method, _METHODS)
        _checks.chosen("Shampoo", "variant", variant, _VARIANTS)
        _checks.chosen("Shampoo", "vectors", vectors, _VECTORS)
        self.method, self.variant, self.vectors = method, variant, vectors

    def init(self, position: Position) -> ShampooState:
        leaves = tuple(self._init_leaf(leaf) for leaf in jax.tree.leaves(position))
        sizes = Sizes.none(_learning(leaves, position), scalar_dtype(position))
        return ShampooState(leaves, sizes, sizes, jnp.zeros((), jnp.int32))

    def update(self, state: ShampooState, position: Position, grad: PyTree) -> ShampooState:
        count = state.count + 1
        shapes = [g.shape for g in jax.tree.leaves(grad)]
        mean_squares = state.sizes.mean_squares(_learning(state.leaves, grad))

        def learn(
            state: ShampooState, roots_are_due: Array, mean_squares: Array, gradients: list[Array]
        ) -> ShampooState:
            sizes, shares = state.sizes.updated(self.decay, mean_squares)
            given = zip(_learning(state.leaves, gradients), shares, strict=True)
            learnt = tuple(None if leaf is None else self._learn(leaf, *next(given)) for leaf in state.leaves)
            state = state._replace(leaves=learnt, sizes=sizes)
            # roots are due only at an update of the statistics, so that most steps test one condition
            roots_are_due = roots_are_due | sizes.exceeds(state.rooted)
            return when(roots_are_due, lambda state: self._rooted(state, shapes), state)

        # a gradient out of proportion to the statistics enters them immediately
        is_out = jnp.any(mean_squares > OUT * state.sizes.squares)
        is_due = self._is_due(count, self.statistics_every) | is_out
        roots_are_due = self._is_due(count, self.update_every) | is_out
        state = when(is_due, learn, state, roots_are_due, mean_squares, jax.tree.leaves(grad))
        return state._replace(count=count)

    def conclude(self, state: ShampooState, position: Position) -> ShampooState:
        # SOAP keeps the eigenvectors in which its squares were taken
        if self.variant == "soap":
            return state
        return self._rooted(state, [x.shape for x in jax.tree.leaves(position)])

    def apply_inverse(self, state: ShampooState, u: PyTree) -> PyTree:
        return self.apply_inverse_sqrt(state, self.apply_inverse_sqrt(state, u))

    def apply_inverse_sqrt(self, state: ShampooState, z: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(z)
        added = before_first(state.count, self.epsilon)
        least = iter(state.sizes.least(self.decay))
        pairs = zip(state.leaves, leaves, strict=True)
        return structure.unflatten([x if s is None else self._root(s, x, next(least), added) for s, x in pairs])

    def drift(self, state: ShampooState, position: Position, curvature: Curvature | None = None) -> PyTree:
        return _tree.zeros_like(position)

    @staticmethod
    def _is_due(count: Array, every: int) -> Array:
        return (count % every == 0) | (count == 1)

    def _block_size(self, leaf: Array) -> int:
        return 1 if leaf.ndim < 2 and self.vectors == "diagonal" else self.block_size

    def _init_leaf(self, leaf: Array) -> LeafState | None:
        if leaf.size == 0 or (leaf.ndim < 2 and self.vectors == "identity"):
            return None
        blocks = _to_blocks(leaf, self._block_size(leaf))
        rows, columns, n, p = blocks.shape

        # LAPACK has no half precision, and averages of many gradients need more
        dtype = jnp.dtype(jnp.float32) if _tree.is_half(leaf) else leaf.dtype

        def identity(size: int) -> Array:
            return jnp.broadcast_to(jnp.eye(size, dtype=dtype), (rows, columns, size, size))

        # a vector has one side: the other factor stays the identity
        right_size = p if _num_sides(leaf) == 2 else 1
        return LeafState(
            self.epsilon * identity(n),
            self.epsilon * identity(right_size),
            identity(n) if self.variant == "soap" else jnp.zeros_like(identity(n)),
            identity(right_size),
            jnp.zeros(blocks.shape if self.variant == "soap" else (), dtype),
        )

    def _learn(self, state: LeafState, gradient: Array, share: Scalar) -> LeafState:
        g = _to_blocks(gradient, self._block_size(gradient)).astype(state.left.dtype)
        keep, take = self.decay, 1.0 - self.decay
        state = state._replace(left=keep * state.left + take * (g @ jnp.swapaxes(g, -1, -2)))
        if _num_sides(gradient) == 2:
            state = state._replace(right=keep * state.right + take * (jnp.swapaxes(g, -1, -2) @ g))
        if self.variant == "soap":
            rotated = jnp.swapaxes(state.left_factor, -1, -2) @ g @ state.right_factor
            squares = state.squares + share.astype(rotated.dtype) * (rotated**2 - state.squares)
            state = state._replace(squares=squares)
        return state

    def _rooted(self, state: ShampooState, shapes: list[tuple[int, ...]]) -> ShampooState:
        is_known, scale = state.sizes.known()
        bounds = zip(
            is_known, jnp.broadcast_to(scale, is_known.shape), state.sizes.least_share(self.decay), strict=True
        )
        pairs = zip(state.leaves, shapes, strict=True)
        leaves = tuple(None if s is None else self._factorize(s, shape, *next(bounds)) for s, shape in pairs)
        return state._replace(leaves=leaves, rooted=state.sizes)

    def _factorize(
        self, state: LeafState, shape: tuple[int, ...], is_known: Array, scale: Scalar, share: Scalar
    ) -> LeafState:
        num_sides = 2 if len(shape) > 1 else 1
        power = 4 * num_sides  # the denominator of the exponent for half of the inverse

        def root(m: Array) -> Array:
            if self.variant == "soap":
                return on_own_devices(lambda m: in_pieces(lambda m: jnp.linalg.eigh(m)[1], m), shape, m)
            unknown = (scale**2).astype(m.dtype) * eye_like(m)
            level = share.astype(m.dtype) * jnp.mean(jnp.diagonal(m, axis1=-2, axis2=-1))
            m = jnp.where(is_known, m, jnp.broadcast_to(unknown, m.shape))
            least = jnp.maximum(level, self.epsilon)
            if self.method == "newton":  # products, which XLA divides, and one stop for all blocks
                return inverse_root(m, power, least, self.method)
            return on_own_devices(lambda m, least: inverse_root(m, power, least), shape, m, least)

        state = state._replace(left_factor=root(state.left))
        return state._replace(right_factor=root(state.right)) if num_sides == 2 else state

    def _root(self, state: LeafState, z: Array, least: Scalar, added: Scalar) -> Array:
        blocks = _to_blocks(z, self._block_size(z)).astype(state.left.dtype)
        has_right = _num_sides(z) == 2
        if self.variant == "soap":
            rotated = jnp.swapaxes(state.left_factor, -1, -2) @ blocks
            rotated = rotated @ state.right_factor if has_right else rotated
            diagonal = jnp.maximum(jnp.sqrt(state.squares), least.astype(rotated.dtype)) + added.astype(rotated.dtype)
            rotated = rotated / jnp.sqrt(diagonal)
            moved = state.left_factor @ rotated
            moved = moved @ jnp.swapaxes(state.right_factor, -1, -2) if has_right else moved
        else:
            moved = state.left_factor @ blocks
            moved = moved @ state.right_factor if has_right else moved
        return _from_blocks(moved.astype(z.dtype), z)


def _learning(leaves: _Leaves, tree: PyTree) -> list[Array]:
    """The leaves of a tree that do not have the identity."""
    return [x for state, x in zip(leaves, jax.tree.leaves(tree), strict=True) if state is not None]


def _num_sides(leaf: Array) -> int:
    """2 for a matrix, including one with a single row or column, 1 for a vector or scalar."""
    return 2 if leaf.ndim > 1 else 1


def _block_shape(size: int, largest: int) -> tuple[int, int]:
    """Number and size of the blocks that need the least padding."""
    count = -(-size // largest)
    return count, -(-size // count)


def _to_blocks(leaf: Array, largest: int) -> Array:
    matrix = leaf.reshape(leaf.shape[0], -1) if leaf.ndim > 1 else leaf.reshape(-1, 1)
    (rows, n), (columns, p) = (_block_shape(size, largest) for size in matrix.shape)
    fill = (rows * n - matrix.shape[0], columns * p - matrix.shape[1])
    if any(fill):
        matrix = jnp.pad(matrix, ((0, fill[0]), (0, fill[1])))
    return matrix.reshape(rows, n, columns, p).transpose(0, 2, 1, 3)


def _from_blocks(blocks: Array, like: Array) -> Array:
    rows, columns, n, p = blocks.shape
    matrix = blocks.transpose(0, 2, 1, 3).reshape(rows * n, columns * p)
    num_rows = like.shape[0] if like.ndim > 1 else like.size
    return matrix[:num_rows, : like.size // max(num_rows, 1)].reshape(like.shape)
