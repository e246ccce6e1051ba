"""Products of manifolds over a pytree: a prefix tree of geometries for a tree of arrays."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import EXACT, AbstractManifold, Euclidean, FlowProperties, Noise, require_alike, spread


class Product(AbstractManifold):
    """A pytree of manifolds over a pytree of arrays, itself a manifold.

    ``tree`` is a *prefix* of the position: a manifold at a node governs everything below it. Nodes without a manifold
    (a missing key of a dict, or None) are Euclidean. Products may be nested.

    Example:
        ``Product({"loadings": Stiefel()})`` for a position ``{"loadings": w, "log_scale": s}``.
    """

    tree: PyTree

    def project(self, x: Position, u: PyTree) -> Momentum:
        require_alike(x, u, "Product.project")
        return self._map(lambda m, x, u: m.project(x, u), x, u)

    def gradient(self, x: Position, g: PyTree) -> Momentum:
        return self._map(lambda m, x, g: m.gradient(x, g), x, g)

    def momentum(self, x: Position, z: PyTree) -> Momentum:
        return self._map(lambda m, x, z: m.momentum(x, z), x, z)

    def noise(self, x: Position, z: PyTree, variance: Scalar, deducted: Scalar) -> Momentum:
        return self._map(lambda m, x, z: m.noise(x, z, variance, deducted), x, z)

    def kick(
        self, x: Position, r: Momentum, *, kept: Scalar | float = 1.0, g: PyTree = None, noise: Noise | None = None
    ) -> Momentum:
        nothing = [None] * len(self._parts(x))
        gradients = nothing if g is None else [part for *_, part in self._parts(x, g)]
        noises = nothing if noise is None else [noise._replace(z=z) for *_, z in self._parts(x, noise.z)]
        moved = [
            m.kick(x, r, kept=kept, g=g, noise=noise)
            for (m, _, x, r), g, noise in zip(self._parts(x, r), gradients, noises, strict=True)
        ]
        return self._structure(x).unflatten(moved)

    def noise_capacity(self, x: Position) -> float:
        return min(m.noise_capacity(part) for m, _, part in self._parts(x))

    def is_flat(self, x: Position) -> PyTree:
        return self._map(lambda m, x: m.is_flat(x), x)

    def corrects_itself(self, x: Position) -> PyTree:
        return self._map(lambda m, x: m.corrects_itself(x), x)

    def kinetic_energy(self, x: Position, r: Momentum) -> Scalar:
        return _tree.total([m.kinetic_energy(x, r) for m, _, x, r in self._parts(x, r)])

    def velocity(self, x: Position, r: Momentum) -> PyTree:
        return self._map(lambda m, x, r: m.velocity(x, r), x, r)

    def flow(self, x: Position, r: Momentum, t: PyTree) -> tuple[Position, Momentum]:
        moved = [m.flow(x, r, t) for m, _, x, r, t in self._parts(x, r, spread(t, x))]
        rebuild = self._structure(x).unflatten
        return rebuild([x for x, _ in moved]), rebuild([r for _, r in moved])

    def random_point(self, key: PRNGKey, like: Position) -> Position:
        key = _checks.random_key("Product.random_point", key)
        return self._map_keyed(lambda m, k, x: m.random_point(k, x), key, like)

    def nearest(self, x: Position) -> Position:
        self.validate(x, "Product.nearest: x")
        return self._map(lambda m, x: m.nearest(x), x)

    def renormalize(self, x: Position) -> Position:
        return self._map(lambda m, x: m.renormalize(x), x)

    def residual(self, x: Position) -> Scalar:
        """The largest residual of the parts, in the coarsest dtype of a curved part, which limits the precision."""
        self.validate(x, "Product.residual: x")
        residuals = [(m.residual(part), all(jax.tree.leaves(m.is_flat(part)))) for m, _, part in self._parts(x)]
        curved = [residual.dtype for residual, is_flat in residuals if not is_flat]
        dtype = max(curved, key=lambda dtype: jnp.finfo(dtype).eps) if curved else _tree.real_dtype(x)
        return jnp.max(jnp.stack([residual.astype(dtype) for residual, _ in residuals]))

    def dim(self, x: Position) -> int:
        return sum(m.dim(x) for m, _, x in self._parts(x))

    def validate(self, x: Position, name: str) -> None:
        for m, path, part in self._parts(x):
            m.validate(part, f"{name}.{path}" if path else name)

    def is_connected(self, x: Position) -> bool:
        return all(m.is_connected(x) for m, _, x in self._parts(x))

    def reflect(self, key: PRNGKey, x: Position) -> Position:
        """Reflect one of the parts that have two components, chosen at random."""
        parts = self._parts(x)
        candidates = [i for i, (m, _, x) in enumerate(parts) if not m.is_connected(x)]
        key_choice, key_move = jax.random.split(key)
        chosen = jax.random.randint(key_choice, (), 0, max(len(candidates), 1))
        moved = [x for _, _, x in parts]
        for rank, i in enumerate(candidates):
            m, _, part = parts[i]
            reflected = m.reflect(jax.random.fold_in(key_move, rank), part)
            moved[i] = _tree.where(chosen == rank, reflected, part)
        return self._structure(x).unflatten(moved)

    def degrees_of_freedom(self, x: Position) -> PyTree:
        return self._map(lambda m, x: m.degrees_of_freedom(x), x)

    def squares(self, x: Position, u: PyTree) -> PyTree:
        return self._map(lambda m, x, u: m.squares(x, u), x, u)

    def scaled(self, x: Position, u: PyTree, scale: PyTree) -> PyTree:
        return self._map(lambda m, x, u, s: m.scaled(x, u, s), x, u, scale)

    def max_time(self, x: Position, scale: PyTree) -> float | Scalar:
        bounds = [m.max_time(x, s) for m, _, x, s in self._parts(x, scale)]
        return functools.reduce(jnp.minimum, bounds)

    @property
    def properties(self) -> FlowProperties:
        parts = [m.properties for m in jax.tree.leaves(self.tree, is_leaf=_is_manifold) if _is_manifold(m)]
        return FlowProperties(*[min(values) for values in zip(*parts, EXACT, strict=True)])

    def _structure(self, x: Position) -> Any:
        return jax.tree.structure(_complete(self.tree, x), is_leaf=_is_manifold)

    def _parts(self, x: Position, *others: PyTree) -> list[tuple[Any, ...]]:
        """(manifold, path, part of x, parts of the others...) for each node that a manifold governs."""
        full = _complete(self.tree, x)
        named, structure = jax.tree_util.tree_flatten_with_path(full, is_leaf=_is_manifold)
        paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named]
        columns = [structure.flatten_up_to(tree) for tree in (x, *others)]
        return list(zip([m for _, m in named], paths, *columns, strict=True))

    def _map(self, function, *trees: PyTree) -> PyTree:
        parts = self._parts(*trees)
        return self._structure(trees[0]).unflatten([function(m, *rest) for m, _, *rest in parts])

    def _map_keyed(self, function, key: PRNGKey, x: Position) -> PyTree:
        parts = self._parts(x)
        keys = jax.random.split(key, len(parts))
        return self._structure(x).unflatten([function(m, k, x) for (m, _, x), k in zip(parts, keys, strict=True)])


def _is_manifold(node: Any) -> bool:
    return isinstance(node, AbstractManifold)


def _complete(prefix: PyTree, position: Position) -> PyTree:
    """Fill missing nodes of the prefix with Euclidean(), so that every part of the position has a manifold."""
    _checks.tree("Product", "the geometry", prefix)
    if not _checks.tree("Product", "the position", position):
        raise ValueError("Product: the position is empty; it needs at least one array.")
    return _tree.complete_prefix(
        prefix,
        position,
        is_node=_is_manifold,
        missing=Euclidean(),
        owner="Product",
        whole="the geometry",
        kind="manifolds",
    )


def named_parts(manifold: AbstractManifold, x: Position, name: str) -> list[tuple[str, AbstractManifold, Position]]:
    """List ``(name, manifold, part)`` of the parts of a position; products are flattened."""
    if not isinstance(manifold, Product):
        return [(name, manifold, x)]
    parts = [named_parts(m, part, f"{name}.{path}" if path else name) for m, path, part in manifold._parts(x)]
    return [part for group in parts for part in group]
