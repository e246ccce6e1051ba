"""Apply a network to rows, and notice fields of its modules that were taken out with its non-parameters.

``equinox.partition(network, equinox.is_inexact_array)`` leaves None for flags, activations and other fields. A module
that is then called without them computes something else, or fails.
"""

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping

from geodax import _checks
from geodax._types import Array, PyTree
from geodax.vi.modules import Rows


def apply_network(network: Any, x: Array) -> Array:
    """Apply a network to the rows of ``x``; a network with random weights draws new weights for each row.

    Raises TypeError if the network is not callable, or the call fails and its modules have lost fields to
    ``equinox.partition``. If the call succeeds in spite of that, there is a UserWarning.
    """
    inner = network.network if isinstance(network, Rows) else network
    if not callable(inner):
        raise TypeError(
            f"nn: expected a network, a function of one example, as the position, found {_checks.described(inner)}; "
            "for other positions pass apply=..., a function (position, x) -> outputs."
        )
    lost = lost_fields(inner)
    try:
        outputs: Any = network.rows(x) if isinstance(network, Rows) else jax.vmap(network)(x)
    except Exception as error:
        if not lost:
            raise
        raise TypeError(f"nn: {_advice(lost)} Without it the call failed: {error}") from error
    if lost:
        _checks.warn(f"nn: {_advice(lost)} Without it another network is applied.")
    return outputs


def _advice(lost: list[str]) -> str:
    named = ", ".join(lost[:4]) + (", ..." if len(lost) > 4 else "")
    one = len(lost) == 1
    return (
        f"the {'field' if one else 'fields'} {named} of the network {'is' if one else 'are'} None, which "
        f"{'its annotation does' if one else 'their annotations do'} not allow, as after equinox.partition. Give "
        "apply=lambda w, x: jax.vmap(eqx.combine(w, rest))(x), with the rest of the partition."
    )


def lost_fields(network: PyTree) -> list[str]:
    """List the fields of modules that are None although their annotation does not allow it, with their paths.

    There are none if a leaf is not a real or complex array, since a partition would have taken it out as well.
    """
    is_partition = all(
        hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(network)
    )
    return list(_lost(network, "")) if is_partition else []


def _lost(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, eqx.Module):
        for field in dataclasses.fields(node):
            name, value = f"{path}{field.name}", getattr(node, field.name, None)
            if field.metadata.get("static", False):
                continue
            if value is not None:
                yield from _lost(value, f"{name}.")
            elif field.default is not None and not _allows_none(_annotation(type(node), field)):
                yield name
        return
    for keys, child in jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda below: below is not node)[0]:
        if keys:
            yield from _lost(child, f"{path}{jax.tree_util.keystr(keys, simple=True, separator='.')}.")


def _annotation(cls: type, field: Any) -> Any:
    """The type of a field; Any if its text cannot be resolved."""
    if not isinstance(field.type, str):
        return field.type
    owner = next(base for base in cls.__mro__ if field.name in inspect.get_annotations(base))
    holder = types.SimpleNamespace(__annotations__={"field": field.type})
    try:
        return typing.get_type_hints(holder, vars(sys.modules[owner.__module__]))["field"]
    except Exception:
        return Any


def _allows_none(annotation: Any) -> bool:
    """Whether None is a value of the type; True for what is neither a class nor made of classes."""
    annotation = getattr(annotation, "__value__", annotation)  # of an alias by ``type``
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(map(_allows_none, typing.get_args(annotation)))
    if origin is typing.Annotated:
        return _allows_none(typing.get_args(annotation)[0])
    kind = annotation if origin is None else origin
    if not isinstance(kind, type) or issubclass(kind, jaxtyping.PyTree):
        return True
    return kind in (Any, object, type(None))
