"""Per-device parts of a batch, and means over them.

With D devices along the data axis, each holds B / D examples of a batch of size B. A quantity that an algorithm
computes from its part as if that were the batch (an estimate of the log density, a gradient, an evidence lower bound)
is itself an unbiased estimate. The mean of these estimates over the devices, one all-reduce, is the estimate for the
whole batch.

A position may be split over further axes of the mesh, which then divide the batch as well. An array is gathered where
it is used, and again in the backward pass, and its gradient is summed by a reduce-scatter, so that a device keeps
gradients of its own entries only (Rajbhandari, Rasley, Ruwase and He 2020, stage 3).
"""

import contextlib
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.sharding import AxisType, PartitionSpec

from geodax._precision import configured_precision
from geodax._types import Array, PRNGKey, PyTree
from geodax.data.minibatches import Batches

CHAIN_AXIS, DATA_AXIS, MODEL_AXIS = "chain", "data", "model"
T = TypeVar("T")
_CHECKPOINTS = ("checkpoint", "remat", "remat2")  # names of the primitive in versions of JAX


class Part(eqx.Module):
    """One device's part of the work on a batch.

    Attributes:
        batch: The examples on this device; those of all devices of ``model_axes`` outside :func:`mean_over_parts`.
        axes: Names of the mesh axes that divide the work: ``"data"`` for the examples, ``"chain"`` for the Monte Carlo
            draws of :func:`geodax.vi.fit`.
        model_axes: Names of the mesh axes that divide both the position and the examples.
        split: How each leaf of the position is split over them.
    """

    batch: PyTree
    axes: tuple[str, ...] = eqx.field(static=True)
    model_axes: tuple[str, ...] = eqx.field(static=True, default=())
    split: tuple[PartitionSpec, ...] = eqx.field(static=True, default=())

    @property
    def all_axes(self) -> tuple[str, ...]:
        """Names of all mesh axes that divide the examples or the draws."""
        return self.axes + self.model_axes

    def share(self, *names: str) -> tuple[Array | None, int]:
        """Index of this device along mesh axes (None if none divides the work), and the number of divisions."""
        axes = tuple(axis for axis in self.all_axes if axis in names)
        return (jax.lax.axis_index(axes), jax.lax.axis_size(axes)) if axes else (None, 1)


def mean_over_parts(function: Callable[..., T], batch: PyTree, *positions: PyTree) -> T:
    """Return ``function(batch, *positions)``; for a :class:`Part`, the mean of the function over the devices' parts.

    The function maps a batch, or this device's part, and positions, trees with the structure of the position, to a
    pytree of arrays, each an estimate that averages over examples. :func:`own_examples` returns the examples,
    :func:`whole` an undivided position. The mean is equal on all participating devices.
    """
    with _precision_for(batch):
        return _mean(lambda *args: (function(*args), ()), batch, positions, 0)[0]


def gradients_over_parts(
    function: Callable[..., tuple[T, tuple[PyTree, ...]]], batch: PyTree, *positions: PyTree, given: tuple = ()
) -> tuple[T, tuple[PyTree, ...]]:
    """Like :func:`mean_over_parts`, for a function that also returns a gradient for each position.

    The function also takes what is ``given``, since it must not capture traced arrays, and returns estimates and a
    tuple of gradients, those of :func:`value_and_gradient` or :func:`gradient_and_aux`. The gradients are split like
    the position.
    """
    with _precision_for(batch):
        return _mean(function, batch, positions, len(positions), given)


def _precision_for(batch: PyTree) -> contextlib.AbstractContextManager[Any]:
    """The noise of batches is larger than the rounding of products; without a batch a gradient is exact."""
    return contextlib.nullcontext() if batch is None else configured_precision()


def _mean(
    function: Callable[..., tuple[T, tuple[PyTree, ...]]],
    batch: PyTree,
    positions: tuple[PyTree, ...],
    num_gradients: int,
    given: tuple = (),
) -> tuple[T, tuple[PyTree, ...]]:
    if not isinstance(batch, Part) or not batch.all_axes:
        return function(batch, *positions, *given)
    if not batch.model_axes:
        return jax.lax.pmean(function(batch, *positions, *given), batch.axes)
    specs = [jax.tree.unflatten(jax.tree.structure(position), batch.split) for position in positions]

    def own(examples: PyTree, *args: PyTree) -> tuple[T, tuple[PyTree, ...]]:
        part = Part(examples, batch.axes, batch.model_axes, batch.split)
        found, gradients = function(part, *args)

        def mean(gradient: Array, spec: PartitionSpec) -> Array:
            scattered = {name for axis in axes_of(spec) for name in axis}
            others = tuple(axis for axis in batch.all_axes if axis not in scattered)
            total = jax.lax.axis_size(batch.all_axes)
            return (jax.lax.psum(gradient, others) if others else gradient) / total

        return jax.lax.pmean(found, batch.all_axes), jax.tree.map(mean, gradients, tuple(specs[:num_gradients]))

    examples = jax.tree.map(lambda x: PartitionSpec(batch.model_axes) if x.ndim else PartitionSpec(), batch.batch)
    return jax.shard_map(
        own,
        in_specs=(examples, *specs, *(PartitionSpec() for _ in given)),
        out_specs=(PartitionSpec(), tuple(specs[:num_gradients])),
        axis_names=set(batch.model_axes),
        check_vma=False,
    )(batch.batch, *positions, *given)


def over_rows(
    function: Callable[..., tuple[T, PyTree]], batch: PyTree, arrays: PyTree, like: PyTree, *given: PyTree
) -> tuple[T, PyTree]:
    """Like :func:`mean_over_parts`, with arrays and results that are split by their first axis.

    The function maps a batch, arrays and what is given, since it must not capture traced arrays, to estimates and a
    tree of further ones, of the shapes of ``like``. The arrays are split over the model axes where these divide their
    first axis, as are the further estimates; :func:`whole` gathers them.
    """
    if not isinstance(batch, Part) or not batch.model_axes:
        return mean_over_parts(lambda part: function(part, arrays, *given), batch)
    axes, everywhere = batch.model_axes, PartitionSpec()
    size = math.prod(jax.sharding.get_abstract_mesh().shape[axis] for axis in axes)

    def specs(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: PartitionSpec(axes) if x.ndim and x.shape[0] % size == 0 else everywhere, tree)

    def own(examples: PyTree, arrays: PyTree, *given: PyTree) -> tuple[T, PyTree]:
        part = Part(examples, batch.axes, axes, places)
        found, sums = function(part, arrays, *given)

        def mean(total: Array, spec: PartitionSpec) -> Array:
            total = jax.lax.psum(total, batch.axes) if batch.axes else total
            scattered = jax.lax.psum_scatter(total, axes, tiled=True) if spec else jax.lax.psum(total, axes)
            return scattered / jax.lax.axis_size(batch.all_axes)

        return jax.lax.pmean(found, batch.all_axes), jax.tree.map(mean, sums, specs(like))

    places = tuple(jax.tree.leaves(specs(arrays)))
    examples = jax.tree.map(lambda x: PartitionSpec(axes) if x.ndim else everywhere, batch.batch)
    with _precision_for(batch):
        return jax.shard_map(
            own,
            in_specs=(examples, specs(arrays), *(everywhere for _ in given)),
            out_specs=(everywhere, specs(like)),
            axis_names=set(axes),
            check_vma=False,
        )(batch.batch, arrays, *given)


def whole(batch: PyTree, position: PyTree) -> PyTree:
    """Within :func:`mean_over_parts`: gather the leaves of a position that are split."""
    return _over_axes(
        batch, position, lambda leaf, name, number: jax.lax.all_gather(leaf, name, axis=number, tiled=True)
    )


def scattered(batch: PyTree, gradient: PyTree) -> PyTree:
    """Within :func:`gradients_over_parts`: sum gradients at a whole position, and keep those of own entries."""
    return _over_axes(
        batch,
        gradient,
        lambda leaf, name, number: jax.lax.psum_scatter(leaf, name, scatter_dimension=number, tiled=True),
    )


def _over_axes(batch: PyTree, tree: PyTree, collective: Callable[[Array, tuple[str, ...], int], Array]) -> PyTree:
    """Apply a collective to each axis of a leaf that is split."""
    if not isinstance(batch, Part) or not batch.model_axes:
        return tree

    def applied(leaf: Array, spec: PartitionSpec) -> Array:
        for number, name in enumerate(axes_of(spec)):
            if name:
                leaf = collective(leaf, name, number)
        return leaf

    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(list(map(applied, leaves, batch.split)))


def value_and_gradient(function: Callable[[PyTree], Array], batch: PyTree, position: PyTree) -> tuple[Array, PyTree]:
    """Within :func:`gradients_over_parts`: a function of the whole position, and its gradient."""
    return jax.value_and_grad(_of_split(function, batch))(position)


def gradient_and_aux(
    function: Callable[[PyTree], tuple[Array, T]], batch: PyTree, position: PyTree
) -> tuple[PyTree, T]:
    """Within :func:`gradients_over_parts`: the gradient of the first result of a function, and the second one."""
    return jax.grad(_of_split(function, batch), has_aux=True)(position)


def _of_split(function: Callable[[PyTree], T], batch: PyTree) -> Callable[[PyTree], T]:
    """The function of a split position; whole arrays are not kept for the backward pass but gathered again.

    What else is kept would include the activations that an inner ``jax.checkpoint`` computes again, so with one nothing
    is kept.
    """
    if not isinstance(batch, Part) or not batch.model_axes:
        return function

    return gathered_again(lambda position: function(whole(batch, position)))


def gathered_again(function: Callable[..., T]) -> Callable[..., T]:
    """A function whose backward pass gathers arrays again."""

    def again(*args: PyTree) -> T:
        policy = None if _has_checkpoint(jax.make_jaxpr(function)(*args)) else _is_kept
        return jax.checkpoint(function, policy=policy)(*args)

    return again


def _has_checkpoint(program: Any) -> bool:
    program = program.jaxpr if isinstance(program, ClosedJaxpr) else program  # since JAX 0.12 one class
    if not isinstance(program, Jaxpr):
        return False
    inner = jax.tree.leaves([e.params for e in program.eqns], is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr))
    is_one = any(e.primitive.name in _CHECKPOINTS for e in program.eqns)
    return is_one or any(map(_has_checkpoint, inner))


def _is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name != "all_gather"


def axes_of(spec: PartitionSpec) -> list[tuple[str, ...]]:
    """The mesh axes over which each axis of an array is split."""
    return [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec]


def own_examples(batch: PyTree) -> PyTree:
    """Return the arrays of a batch, or of this device's part of it."""
    return batch.batch if isinstance(batch, Part) else batch


def one_by_one(rows: PyTree) -> tuple[PyTree, PyTree]:
    """Return examples as batches of one along a leading axis, and the axes over which ``vmap`` maps them."""
    single = jax.tree.map(lambda leaf: leaf[:, None] if jnp.ndim(leaf) else leaf, rows)
    return single, jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, rows)


def automatic_axes() -> tuple[str, ...]:
    """Return the names of the mesh's axes over which XLA divides arrays by itself."""
    mesh = jax.sharding.get_abstract_mesh()
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, kind in kinds if kind == AxisType.Auto and mesh.shape[name] > 1)


def draw_part(batches: Batches, key: PRNGKey, index: Array, axis: str) -> PyTree:
    """Return this device's examples of batch number ``index``, one of :meth:`Batches.rows`."""
    size = batches.batch_size // jax.lax.axis_size(axis)
    first = jax.lax.axis_index(axis) * size
    rows = jax.lax.dynamic_slice_in_dim(batches.rows(key, index), first, size)
    return batches.gather(key, index, rows, first)
