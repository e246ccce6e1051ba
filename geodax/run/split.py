"""Split parameters over devices: how each array of a position is split, and everything of its shape with it.

A mesh may have further axes beside ``"chain"`` and ``"data"``, usually one named ``"model"``. Over them the arrays of a
position are split, and with them the arrays of a sampler's state: momenta, averages of gradients, what warm-up adapts.
They also divide the examples of each batch (:mod:`geodax.data.parts`). XLA partitions all other work on these axes.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from geodax import _checks, _tree
from geodax._types import PyTree
from geodax.data.parts import CHAIN_AXIS, DATA_AXIS, MODEL_AXIS, Part, axes_of
from geodax.run.sharding import model_axes, placed
from geodax.sgmcmc.metrics.shampoo import LeafState

Rules = Mapping[str, Sequence[Any]] | Callable[[str, tuple[int, ...]], Sequence[Any] | None] | None
"""How to split arrays: shell patterns of their paths, or a function of path and shape; see :func:`shard`."""
_FEW = 4096  # entries below which an array of the state that is not like one of the position is kept whole


@dataclasses.dataclass(frozen=True)
class Split:
    """How a position is split.

    Attributes:
        mesh: The mesh, with an axis ``"chain"``, perhaps ``"data"``, and those over which the position is split.
        specs: The axes of the mesh over which the axes of the leaves are split.
    """

    mesh: Mesh
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    specs: tuple[PartitionSpec, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes over which the position is split."""
        return model_axes(self.mesh)

    def part(self, drawn: PyTree) -> Part:
        """A batch, or this device's part of one, whose examples are also divided among the devices of a position."""
        if isinstance(drawn, Part):
            return Part(drawn.batch, drawn.axes, self.axes, self.specs)
        return Part(drawn, (), self.axes, self.specs)

    def specs_of(self, tree: PyTree, num_leading: int = 0) -> PyTree:
        """The axes of the mesh over which the arrays of a state are split; ``num_leading`` axes of each are not."""

        def of_leaf(path: Any, leaf: Any) -> Any:
            if isinstance(leaf, LeafState):
                blocks = self._of_blocks(path)
                return jax.tree.map(lambda x: blocks(x.shape[num_leading:]), leaf)
            if _knows_its_place(leaf):
                return leaf.specs_over(self.mesh, num_leading)
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            return self._of_shape(name, tuple(leaf.shape[num_leading:]))

        return jax.tree_util.tree_map_with_path(
            of_leaf, tree, is_leaf=lambda x: isinstance(x, LeafState) or _knows_its_place(x)
        )

    def shardings(self, tree: PyTree, *leading: str | None) -> PyTree:
        """Shardings of arrays, whose leading axes are split over these axes of the mesh."""
        specs = self.specs_of(tree, len(leading))
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, PartitionSpec(*leading, *spec)), specs)

    def pinned(self, tree: PyTree, *leading: str | None) -> PyTree:
        """Within a compiled function: arrays with their shardings."""
        return jax.lax.with_sharding_constraint(tree, self.shardings(tree, *leading))

    def pinned_within(self, tree: PyTree, num_leading: int) -> PyTree:
        """Within :func:`geodax.run.sharding.over_chains`, where leading axes are this device's: the same."""
        if not self.axes:
            return tree
        specs = jax.tree.map(lambda spec: PartitionSpec(*[None] * num_leading, *spec), self.specs_of(tree, num_leading))
        return jax.lax.with_sharding_constraint(tree, specs)

    def placed(self, tree: PyTree, *leading: str | None) -> PyTree:
        """Place arrays on the mesh."""
        return placed(tree, self.shardings(tree, *leading))

    def made(self, function: Callable[..., PyTree], *args: PyTree, leading: tuple[str, ...] = ()) -> PyTree:
        """The result of a function, computed in its place."""
        places = self.shardings(jax.eval_shape(function, *args), *leading)
        return jax.jit(function, out_shardings=places)(*args)

    def check_records(self, shapes: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
        """Require that several processes record no whole parameters, which each device would have to gather."""
        for name, (shape, _) in shapes.items():
            if jax.process_count() > 1 and math.prod(shape) >= _FEW and any(self._of_shape(name, shape)):
                raise ValueError(
                    f"sample: {name} is split over the devices of {jax.process_count()} processes, and to keep its "
                    "draws in memory each of them would gather it. Give store=... for draws on disk, which are written "
                    "by shard, or record a function of the position with keep=..., such as some of its entries."
                )

    def _of_shape(self, name: str, shape: tuple[int, ...]) -> PartitionSpec:
        for extra in range(len(shape) + 1):  # such as an axis of chains or of draws
            alike = [i for i, own in enumerate(self.shapes) if own == shape[extra:] and own]
            if alike:
                i = next((i for i in alike if f".{name}".endswith(f".{self.names[i]}")), alike[0])
                return PartitionSpec(*[None] * extra, *self.specs[i])
        if math.prod(shape) < _FEW:
            return PartitionSpec()
        return _largest_axis(shape, self.mesh, self.axes)

    def _of_blocks(self, path: Any) -> Callable[[tuple[int, ...]], PartitionSpec]:
        """The blocks of Shampoo are where the rows and columns of their leaf are."""
        number = next((key.idx for key in reversed(path) if hasattr(key, "idx")), None)
        spec = self.specs[number] if number is not None and number < len(self.specs) else PartitionSpec()

        def of_array(shape: tuple[int, ...]) -> PartitionSpec:
            kept = [
                axis if axis and size % _size(self.mesh, axis) == 0 else None
                for axis, size in zip(axes_of(spec)[:2], shape[:2], strict=False)
            ]
            if any(kept) or len(shape) != 4 or math.prod(shape) < _FEW:
                return PartitionSpec(*kept)
            return _largest_axis(shape, self.mesh, self.axes)

        return of_array


def shard(position: PyTree | Callable[[], PyTree], mesh: Mesh, rules: Rules = None) -> PyTree:
    """Split the arrays of a position over the devices of a mesh.

    Args:
        position: A pytree with arrays, such as a network; or a function without arguments that makes one, whose arrays
            are then never whole on any device: ``lambda: init(key)``.
        mesh: A mesh of :func:`geodax.device_mesh` with an axis ``"model"``.
        rules: How to split arrays. A dict from shell patterns of paths to the axes of the mesh over which the axes of
            an array are split, None for those that are not: ``{"*.embedding": ("model", None), "*.bias": ()}``. The
            first pattern that matches counts. Or a function of path and shape that returns the same, or None. Arrays
            without a rule are split along their largest axis that ``"model"`` divides, or are whole on every device.

    Returns:
        The position, for :func:`geodax.sample`, which keeps its split.

    Raises:
        TypeError: If an argument has another type.
        ValueError: If the mesh has no further axis than ``"chain"`` and ``"data"``, a pattern matches no array, or a
            rule names an unknown axis or one that does not divide the array.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(f"shard: mesh must come from gx.device_mesh(...), found {_checks.described(mesh)}.")
    if not set(mesh.axis_names) - {CHAIN_AXIS, DATA_AXIS}:
        raise ValueError(
            f"shard: parameters are split over an axis {MODEL_AXIS!r}, but the mesh has only {list(mesh.axis_names)}; "
            f"make one with gx.device_mesh(model={mesh.size})."
        )
    is_made = callable(position) and not any(map(eqx.is_array_like, jax.tree.leaves(position)))
    if not is_made:
        _checks.tree("shard", "the position", position)
        arrays, rest = eqx.partition(position, eqx.is_array_like)
        return eqx.combine(placed(arrays, shardings("shard", arrays, mesh, rules)), rest)
    make: Any = position
    arrays, rest = eqx.partition(eqx.filter_eval_shape(make), lambda x: isinstance(x, jax.ShapeDtypeStruct))
    places = shardings("shard", arrays, mesh, rules)
    return eqx.combine(jax.jit(lambda: eqx.filter(make(), eqx.is_array), out_shardings=places)(), rest)


def shardings(owner: str, position: PyTree, mesh: Mesh, rules: Rules = None) -> PyTree:
    """The shardings of :func:`shard`, for arrays or their shapes."""
    names, leaves = _tree.leaf_names(position), jax.tree.leaves(position)
    if isinstance(rules, Mapping):
        for pattern in rules:
            if not fnmatch.filter(names, pattern):
                raise ValueError(f"{owner}: the pattern {pattern!r} of the rules matches none of {names}.")
    elif rules is not None and not callable(rules):
        found = _checks.described(rules)
        raise TypeError(f"{owner}: rules must be a dict of patterns or a function of path and shape, found {found}.")
    axes = model_axes(mesh)

    def of_leaf(name: str, shape: tuple[int, ...]) -> NamedSharding:
        if isinstance(rules, Mapping):
            rule = next((rule for pattern, rule in rules.items() if fnmatch.fnmatchcase(name, pattern)), None)
        else:
            rule = None if rules is None else rules(name, shape)
        spec = _largest_axis(shape, mesh, axes) if rule is None else PartitionSpec(*rule)
        _check_spec(owner, name, shape, spec, mesh)
        return NamedSharding(mesh, spec)

    found = [of_leaf(name, tuple(np.shape(leaf))) for name, leaf in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(position), found)


def mesh_of(owner: str, position: PyTree) -> Mesh | None:
    """The mesh over which the arrays of a position are split, or None."""
    meshes: dict[Any, str] = {}
    for name, leaf in _tree.named_leaves(position):
        if not _tree.is_split(leaf):
            continue
        sharding = leaf.sharding
        if not isinstance(sharding, NamedSharding):
            raise ValueError(
                f"{owner}: {name} is split over devices without a mesh ({type(sharding).__name__}). Split the position "
                "with gx.shard(position, mesh)."
            )
        meshes[sharding.mesh] = name
    if len(meshes) > 1:
        (one, name), (other, another) = list(meshes.items())[:2]
        raise ValueError(
            f"{owner}: {name} is split over the mesh {dict(one.shape)}, but {another} over {dict(other.shape)}; all "
            "arrays of the position need one mesh. Split the position with gx.shard(position, mesh)."
        )
    return next(iter(meshes), None)


def _knows_its_place(node: Any) -> bool:
    """Whether a part of a state says itself how it is split, as the layers of noisy K-FAC do."""
    return hasattr(node, "specs_over")


def split_of(owner: str, position: PyTree, mesh: Mesh | None, is_stacked: bool) -> Split | None:
    """The split that a position comes with, or that of the default rule if it is whole; None on a mesh for whole ones.

    Raises ValueError if the position is split over other devices than those of the run.
    """
    own = mesh_of(owner, position)
    _require_same_devices(owner, own, mesh)
    if mesh is None or (own is None and not model_axes(mesh)):
        return None
    names, leaves = _tree.leaf_names(position), jax.tree.leaves(position)
    shapes = [tuple(np.shape(leaf)[1 if is_stacked else 0 :]) for leaf in leaves]
    if own is None:
        specs = [_largest_axis(shape, mesh, model_axes(mesh)) for shape in shapes]
        return Split(mesh, tuple(names), tuple(shapes), tuple(specs))
    specs = []
    for name, leaf, shape in zip(names, leaves, shapes, strict=True):
        spec = leaf.sharding.spec if isinstance(getattr(leaf, "sharding", None), NamedSharding) else PartitionSpec()
        spec = PartitionSpec(*(_longer_than_one(axis, own) for axis in axes_of(spec)[1 if is_stacked else 0 :]))
        _check_spec(owner, name, shape, spec, mesh)
        specs.append(spec)
    return Split(mesh, tuple(names), tuple(shapes), tuple(specs))


def _require_same_devices(owner: str, own: Mesh | None, mesh: Mesh | None) -> None:
    if own is None:
        return
    there = [device.id for device in own.devices.flat]
    run_on: list[Any] = [jnp.zeros(()).device] if mesh is None else list(mesh.devices.flat)
    here = [device.id for device in run_on]
    if set(there) != set(here):
        raise ValueError(
            f"{owner}: the position is split over the devices {there}, but devices= has {here}. Split it over a "
            "mesh of these with gx.shard(position, mesh), or leave out devices=."
        )


def _largest_axis(shape: tuple[int, ...], mesh: Mesh, axes: tuple[str, ...]) -> PartitionSpec:
    size = _size(mesh, axes)
    divisible = [length if length % size == 0 else 0 for length in shape]
    if size == 1 or not any(divisible):
        return PartitionSpec()
    number = int(np.argmax(divisible))
    return PartitionSpec(*[None] * number, axes[0] if len(axes) == 1 else axes)


def _longer_than_one(axis: tuple[str, ...], mesh: Mesh) -> tuple[str, ...] | str | None:
    kept = tuple(name for name in axis if mesh.shape[name] > 1)
    return (kept[0] if len(kept) == 1 else kept) if kept else None


def _size(mesh: Mesh, axes: Sequence[str]) -> int:
    return math.prod(mesh.shape[axis] for axis in axes)


def _check_spec(owner: str, name: str, shape: tuple[int, ...], spec: PartitionSpec, mesh: Mesh) -> None:
    axes = model_axes(mesh)
    if len(spec) > len(shape):
        raise ValueError(f"{owner}: {name} has shape {shape}, but its rule names {len(spec)} axes: {tuple(spec)}.")
    for number, names in enumerate(axes_of(spec)):
        wrong = [axis for axis in names if axis not in axes]
        if wrong:
            meaning = {CHAIN_AXIS: ", which divides chains", DATA_AXIS: ", which divides batches"}.get(wrong[0], "")
            raise ValueError(
                f"{owner}: {name} is split over the axis {wrong[0]!r}{meaning}, but parameters can be split over "
                f"{list(axes)} of this mesh. Split them with gx.shard(position, gx.device_mesh(..., model=...))."
            )
        if shape[number] % _size(mesh, names) != 0:
            raise ValueError(
                f"{owner}: axis {number} of {name}, of length {shape[number]}, cannot be shared out evenly among "
                f"{_size(mesh, names)} devices of {list(names)}; split another axis of it, or none, with a rule of "
                "gx.shard(position, mesh, rules)."
            )
