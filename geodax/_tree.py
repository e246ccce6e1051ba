"""Arithmetic on pytrees of arrays."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax._types import Array, PyTree, Scalar


def add(a: PyTree, b: PyTree) -> PyTree:
    """Leafwise sum."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """Leafwise difference."""
    return jax.tree.map(jnp.subtract, a, b)


def multiply(a: PyTree, b: PyTree) -> PyTree:
    """Leafwise product; a leaf of ``a`` may be a scalar."""
    return jax.tree.map(lambda x, y: x * y, a, b)


def scale(c: float | Array, a: PyTree) -> PyTree:
    """Multiply every leaf by one scalar."""
    return jax.tree.map(lambda x: c * x, a)


def add_scaled(a: PyTree, c: PyTree, b: PyTree) -> PyTree:
    """Compute ``a + c * b``; ``c`` has the structure of ``a`` and broadcastable leaves."""
    return jax.tree.map(lambda x, s, y: x + s * y, a, c, b)


def zeros_like(a: PyTree) -> PyTree:
    """Zeros with the shapes and dtypes of ``a``."""
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: PyTree, b: PyTree) -> Scalar:
    """Real inner product over all leaves; for complex leaves the real part."""
    return total([_real_dot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)])


def total(scalars: Sequence[Scalar]) -> Scalar:
    """Sum scalars in their common dtype, even where JAX's implicit dtype promotion is off."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*scalars)
    return functools.reduce(jnp.add, [scalar.astype(dtype) for scalar in scalars])


def squared(x: Array) -> Array:
    """Squared moduli."""
    return (x * jnp.conj(x)).real


def _real_dot(x: Array, y: Array) -> Scalar:
    if jnp.iscomplexobj(x):
        return jnp.sum(x.real * y.real + x.imag * y.imag)
    return jnp.sum(x * y)


def flatten(a: PyTree, dtype: Any) -> Array:
    """Concatenate all entries into one real vector (real before imaginary parts, leaf by leaf)."""
    parts = []
    for leaf in jax.tree.leaves(a):
        parts += [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]
    return jnp.concatenate([jnp.ravel(part).astype(dtype) for part in parts])


def on_device(x: np.ndarray | np.generic) -> Array:
    """Copy to the default device.

    JAX alone may share the memory of ``x``, or read it later, when its owner may have changed it; ``jnp.asarray`` also
    compiles a program for each shape.
    """
    return jax.device_put(np.array(x))


def where(condition: Array, a: PyTree, b: PyTree) -> PyTree:
    """Select one of two trees by a scalar condition."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def is_finite(a: PyTree) -> Array:
    """Whether every entry of every leaf is finite."""
    flags = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(a)]
    return jnp.all(jnp.stack(flags)) if flags else jnp.array(True)


def real_dtype(a: PyTree) -> Any:
    """The widest real floating dtype among the leaves, used for scalars computed from the tree."""
    dtypes = [jnp.finfo(leaf.dtype).dtype for leaf in jax.tree.leaves(a)]
    return max(dtypes, key=lambda dtype: dtype.itemsize)


def leaf_names(a: PyTree, bare: str = "position") -> list[str]:
    """Names of the leaves: path parts joined by dots, also for slashes; ``bare`` names a tree that is an array."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(a)[0]]
    return [jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".") or bare for path in paths]


def named_leaves(a: PyTree, bare: str = "position") -> list[tuple[str, Any]]:
    """The leaves with their :func:`leaf_names`."""
    return list(zip(leaf_names(a, bare), jax.tree.leaves(a), strict=True))


def is_split(leaf: Any) -> bool:
    """Whether no device has the whole array."""
    is_placed = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    return is_placed and not leaf.sharding.is_fully_replicated


def is_half(leaf: Array) -> bool:
    """Whether an array has less than single precision."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact) and jnp.finfo(leaf.dtype).bits < 32)


def widened(a: PyTree) -> PyTree:
    """Convert half-precision leaves to single precision."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if is_half(leaf) else leaf, a)


def repeated_names(a: PyTree) -> list[str]:
    """Names that several leaves share, as in ``{"a.b": x, "a": {"b": y}}``."""
    return sorted(name for name, count in Counter(leaf_names(a)).items() if count > 1)


def entries_of(mapping: PyTree) -> tuple[dict[Any, PyTree], Callable[[dict[Any, PyTree]], PyTree]]:
    """Return the entries of a mapping by key, and the function that makes a mapping of its kind of others.

    An item of an NNX State is not the node that JAX has there.
    """
    named, structure = jax.tree_util.tree_flatten_with_path(mapping, is_leaf=lambda node: node is not mapping)
    inner = {getattr(path[-1], "key", None) if path else None: part for path, part in named}
    return inner, lambda entries: structure.unflatten([entries[key] for key in inner])


def _filled(node: Any, part: PyTree, missing: Any) -> Any:
    if node is not None:
        # an array in a variable of NNX stays in it
        return jax.tree.map(lambda _: node, part) if hasattr(part, "shape") and hasattr(part, "dtype") else node
    return missing if jax.tree.leaves(part) else part


def complete_prefix(
    prefix: PyTree,
    position: PyTree,
    *,
    is_node: Callable[[Any], bool],
    missing: Any,
    owner: str,
    whole: str,
    kind: str,
    path: str = "",
) -> PyTree:
    """Complete a prefix tree so that it covers every part of a position.

    The prefix is dicts, lists and tuples with nodes as leaves; None means ``missing``, or nothing where the position
    has no leaves. Messages name its owner, ``whole`` (itself), ``kind`` (its nodes) and the path.

    Raises ValueError if it does not match the position, TypeError if it has anything other than nodes as leaves, or a
    mapping in the position is a pytree node without named entries.
    """
    where, below = path or "the position", f"{path}." if path else ""
    complete = functools.partial(complete_prefix, is_node=is_node, missing=missing, owner=owner, whole=whole, kind=kind)
    if prefix is None or is_node(prefix):
        return _filled(prefix, position, missing)
    if isinstance(prefix, Mapping):
        if not isinstance(position, Mapping):
            raise ValueError(
                f"{owner}: {whole} names the entries {sorted(map(str, prefix))} of {where}, but there the "
                f"position is a {type(position).__name__}, not a dict."
            )
        unknown = [key for key in prefix if key not in position]
        if unknown:
            raise ValueError(
                f"{owner}: {whole} names {unknown}, which {where} does not have; it has {sorted(map(str, position))}."
            )
        inner, rebuilt = entries_of(position)
        if inner.keys() != set(position):
            raise TypeError(
                f"{owner}: {where} is a {type(position).__name__}, whose keys JAX does not know; convert it to a dict."
            )
        return rebuilt({key: complete(prefix.get(key), part, path=f"{below}{key}") for key, part in inner.items()})
    if isinstance(prefix, (list, tuple)):
        if not isinstance(position, type(prefix)) or len(position) != len(prefix):
            size = f" of {len(position)}" if hasattr(position, "__len__") else ""
            raise ValueError(
                f"{owner}: the {kind} of {where} are a {type(prefix).__name__} of {len(prefix)} entries, but the "
                f"position is a {type(position).__name__}{size}."
            )
        pairs = zip(prefix, position, strict=True)
        parts = [complete(part, inner, path=f"{below}{i}") for i, (part, inner) in enumerate(pairs)]
        return type(prefix)(*parts) if hasattr(prefix, "_fields") else type(prefix)(parts)
    ends = jax.tree.leaves(prefix, is_leaf=is_node)
    if not ends or not all(map(is_node, ends)):
        found = f"the class {prefix.__name__} itself" if isinstance(prefix, type) else f"a {type(prefix).__name__}"
        raise TypeError(f"{owner}: expected a pytree of {kind} at {where}, found {found}.")
    try:
        return jax.tree.map(
            lambda node, part: _filled(node, part, missing), prefix, position, is_leaf=lambda n: n is None or is_node(n)
        )
    except ValueError as error:
        raise ValueError(f"{owner}: the {kind} of {where} do not have the position's structure. {error}") from None
