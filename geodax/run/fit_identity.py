"""Facts that a checkpoint of a variational fit must share with the fit that resumes from it, and their comparison.

Data, initial network and counts must be equal. Contents of functions (a likelihood, a prior, an optimiser) are
identified by their effect: the first step of the fit from its initial network, and from a point nearby, since an
initial network in the middle of a prior does not show its width. Facts missing from a checkpoint of an earlier version
are skipped.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from geodax import _tree
from geodax._types import PRNGKey, PyTree
from geodax.run.errors import CheckpointError
from geodax.run.feeding import data_digest
from geodax.run.fit_chunks import Carry
from geodax.run.identity import DISTANCE, agree, direction, other_setting, plain_setting

_PLAIN = bool | int | float | str
_STEPS = "length of the first steps"


def fit_facts(
    key: PRNGKey, network: PyTree, data: PyTree, state: Any, learning_rate: Any, counts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return JSON-compatible facts of a fit that are known before compilation, in the order of comparison.

    ``learning_rate`` is that of Adam, None if the optimiser or the algorithm has its own; ``counts`` has arguments that
    must be equal, by name.
    """
    return {
        **counts,
        "random key": hashlib.sha256(np.asarray(jax.random.key_data(key)).tobytes()).hexdigest()[:16],
        "settings": {"learning_rate": plain_setting(learning_rate)} | _fields(network, "network"),
        "data and start": data_digest(data, state),
    }


def start_facts(
    network: PyTree,
    data: PyTree,
    fitted: Callable[[Any], PyTree],
    first_step: Callable[[PyTree], tuple[Any, Carry]],
    log_prior: Callable[[PyTree], Any] | None,
) -> dict[str, list[float]]:
    """Return what the first step of a fit computes, at the initial network and near it, by readable name.

    ``fitted`` maps the state of the algorithm to the network, ``first_step`` a network to that state and the carry
    after one step. The prior counts by itself, for its scale is small beside that of the likelihood. In half precision,
    rounding differs too much between machines for a comparison.
    """
    leaves = [leaf for leaf in jax.tree.leaves((network, data)) if eqx.is_inexact_array(leaf)]
    if any(_tree.is_half(leaf) for leaf in leaves):
        return {}
    near = jax.tree.map(lambda x: x + DISTANCE * direction(x) if eqx.is_inexact_array(x) else x, network)
    found, steps = {}, []
    for where, start in (("at", network), ("near", near)):
        state, after = first_step(start)
        prior = 0.0 if log_prior is None else eqx.filter_jit(lambda network: log_prior(network))(start)
        found[f"log prior {where} the start"] = np.asarray(prior)
        _, found[f"log likelihood {where} the start"], found[f"divergence {where} the start"] = np.asarray(after.sums)
        steps.append(_relative_length(fitted(state), fitted(after.state)))
    # as precise as the arrays they were computed from, whatever their type
    kind = np.float32 if any(leaf.dtype in (np.float32, np.complex64) for leaf in leaves) else np.float64
    facts = {name: [float(kind(value))] for name, value in found.items()}
    return facts | {_STEPS: [float(kind(step)) for step in steps]}


def require_same_facts(there: Mapping[str, Any], here: Mapping[str, Any], folder: Path | None) -> None:
    """Raise CheckpointError unless the facts of a checkpoint are those of a fit, from :func:`fit_facts`."""
    for name, value in here.items():
        if name == "settings":
            other = other_setting(there.get(name) or {}, value, "steps")
            if other is not None:
                raise _other_fit(folder, *other)
        elif there.get(name) != value:
            raise _other_fit(folder, name, there.get(name), value)


def require_same_start(there: Mapping[str, Any], here: Mapping[str, Any], folder: Path | None) -> None:
    """Require equal results of the first steps, from :func:`start_facts`; see :func:`require_same_facts`."""
    for name, value in here.items():
        # a step is a ratio: Adam turns gradients that are only rounding errors into full steps
        is_same = _are_same_steps if name == _STEPS else lambda a, b: agree(a, b, 1e-2)
        if name in there and not is_same(there[name], value):
            raise _other_fit(folder, name, there[name], value)


def _other_fit(folder: Path | None, name: str, there: Any, here: Any) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint in {folder} belongs to another fit: its {name} is {there!r}, here it is {here!r}. Use another "
        "folder, or the arguments it was written with."
    )


def _are_same_steps(there: list[float], here: list[float]) -> bool:
    rounding = 1e-6 if all(float(np.float32(value)) == value for value in here) else 1e-12
    return np.allclose(there, here, rtol=0.02, atol=rounding, equal_nan=True)


def _relative_length(before: PyTree, after: PyTree) -> float:
    """Distance between the arrays of two networks, relative to their size."""
    moved, size = 0.0, 0.0
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        if eqx.is_inexact_array(a):
            first, second = (a, b) if _tree.is_split(a) else (np.asarray(a), np.asarray(b))
            moved += float((abs(second - first).astype(float) ** 2).sum())
            size += float((abs(first).astype(float) ** 2).sum())
    return moved**0.5 / (1.0 + size**0.5)


def _fields(node: Any, path: str) -> dict[str, Any]:
    """Numbers, strings and classes of the modules of a network, by path; no arrays or functions."""
    if node is None or isinstance(node, _PLAIN):
        return {path: node}
    if isinstance(node, eqx.Module):
        parts = {f"{path}.{field.name}": getattr(node, field.name, None) for field in dataclasses.fields(node)}
        fields = {f"class of {path}": type(node).__qualname__}
    elif isinstance(node, Mapping):
        parts, fields = {f"{path}[{key!r}]": part for key, part in node.items()}, {}
    elif isinstance(node, list | tuple):
        parts, fields = {f"{path}[{number}]": part for number, part in enumerate(node)}, {}
    else:
        return {}
    for name, part in parts.items():
        fields |= _fields(part, name)
    return fields
