"""The eigenbases of noisy K-FAC: the state of a layer, and its turn to new eigenvectors."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, PyTree
from geodax.data.parts import CHAIN_AXIS, DATA_AXIS, automatic_axes

_ROWS, _FEW = 64, 4096


class LayerState(NamedTuple):
    """A layer in its basis: mean, average of gradients, second moments of output gradients and inputs, basis.

    Of layers that are split over devices, ``inputs`` and ``right`` may have rows of zeros below them, so that devices
    divide their rows.
    """

    mean: Float[Array, "o i"]
    momentum: Float[Array, "o i"]
    outputs: Float[Array, "o o"]
    inputs: Float[Array, "j i"]
    left: Float[Array, "o o"]
    right: Float[Array, "j i"]

    def curvature(self) -> Float[Array, "o i"]:
        """Return the curvature of the mean loss of an example along the basis."""
        return jnp.diagonal(self.outputs)[:, None] * jnp.diagonal(self.inputs)[None]

    def specs_over(self, mesh: Mesh, num_leading: int = 0) -> "LayerState":
        """Return how each matrix is split, after so many leading axes that are not."""
        return jax.tree.map(lambda x: by_rows(x.shape[num_leading:], mesh), self)


def first_layer(
    matrix: Float[Array, "o i"], columns: Float[Array, " i"], curvature: float, mesh: Mesh | None
) -> LayerState:
    """Return the state before the first step, from the prior's deviation of each column and the initial curvature."""

    def first(matrix: Array, columns: Array) -> LayerState:
        left, right = (jnp.eye(size, dtype=matrix.dtype) for size in matrix.shape)
        inputs, size = curvature**0.5 * jnp.diag(columns**2), matrix.shape[1]
        rows = size if mesh is None or size**2 < _FEW else -(-size // _ROWS) * _ROWS
        like = jnp.zeros((rows, size), matrix.dtype)
        return LayerState(
            matrix / columns[None],
            jnp.zeros_like(matrix),
            curvature**0.5 * left,
            like_rows(inputs, like),
            left,
            like_rows(right, like),
        )

    if mesh is None:
        return first(matrix, columns)
    shapes = jax.eval_shape(first, matrix, columns)
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), shapes.specs_over(mesh))
    return jax.jit(first, out_shardings=places)(matrix, columns)


def mesh_of(network: PyTree) -> Mesh | None:
    """The mesh over which a network is split, or None."""
    places = (leaf.sharding for leaf in jax.tree.leaves(network) if _tree.is_split(leaf))
    meshes = (place.mesh for place in places if isinstance(place, NamedSharding))
    return next((mesh for mesh in meshes if isinstance(mesh, Mesh)), None)


def by_rows(shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """How an array is split over the axes for parameters: by its rows, if their number allows it."""
    axes = tuple(name for name in mesh.axis_names if name not in (CHAIN_AXIS, DATA_AXIS))
    return PartitionSpec(axes) if shape[0] % math.prod(mesh.shape[axis] for axis in axes) == 0 else PartitionSpec()


def placed_like(tree: PyTree, like: PyTree) -> PyTree:
    """Outside compiled functions: arrays split as others are."""

    def placed(x: Any, y: Any) -> Any:
        is_left = isinstance(x, Tracer) or not _tree.is_split(y)
        return x if is_left else jax.jit(lambda x: x, out_shardings=y.sharding)(x)

    return jax.tree.map(placed, tree, like)


def like_rows(matrix: Array, like: Array) -> Array:
    """Append rows of zeros, so that a matrix has as many as another one."""
    return jnp.pad(matrix, ((0, like.shape[0] - matrix.shape[0]), (0, 0)))


def refreshed(layers: tuple[LayerState, ...]) -> tuple[LayerState, ...]:
    """Turn the bases to the eigenvectors of the second moments."""
    size = [layer.mean.shape[1] for layer in layers]
    moments = [(layer.outputs, layer.inputs[:i]) for layer, i in zip(layers, size, strict=True)]
    found = iter(on_devices_in_turn(_eigenbasis, [moment for pair in moments for moment in pair]))

    def turned(layer: LayerState, i: int) -> LayerState:
        (outputs, u), (inputs, v) = next(found), next(found)
        return LayerState(
            u.T @ layer.mean @ v,
            u.T @ layer.momentum @ v,
            jnp.diag(outputs),
            like_rows(jnp.diag(inputs), layer.inputs),
            _orthonormal(layer.left @ u),
            like_rows(_orthonormal(layer.right[:i] @ v), layer.right),
        )

    return tuple(map(turned, layers, size))


def on_devices_in_turn(function: Callable[[Array], PyTree], matrices: list[Array]) -> list[PyTree]:
    """Apply a function that XLA does not divide; each device computes those of some matrices and sends them to all."""
    names = automatic_axes()
    if not names:
        return list(map(function, matrices))

    def own(matrices: list[Array]) -> list[PyTree]:
        here, size = jax.lax.axis_index(names), jax.lax.axis_size(names)

        def found(number: int, matrix: Array) -> PyTree:
            shapes = jax.eval_shape(function, matrix)
            nothing = lambda _: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
            return jax.lax.psum(jax.lax.cond(here == number % size, function, nothing, matrix), names)

        return [found(number, matrix) for number, matrix in enumerate(matrices)]

    everywhere = PartitionSpec()
    return jax.shard_map(own, in_specs=everywhere, out_specs=everywhere, axis_names=set(names), check_vma=False)(
        matrices
    )


def _eigenbasis(moment: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(moment)
    return jnp.maximum(values, 0.0), vectors


def _orthonormal(q: Array) -> Array:
    """Take a Newton step to the nearest orthogonal matrix, so that rounding errors of products do not add up."""
    return 1.5 * q - 0.5 * q @ (q.T @ q)
