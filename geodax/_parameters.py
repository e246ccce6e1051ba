"""Checks of a model's parameters: positions of samplers and the arrays of networks that are fitted.

Arguments and errors are those of :mod:`geodax._checks`.
"""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax import _checks
from geodax._types import PyTree

_STATISTICS = re.compile("^batch_stats$|/~/(mean|var)_ema$")  # a collection of Flax Linen; modules of Haiku's BatchNorm
_STATES = {"BatchStat", "RngState", "Cache", "Intermediate"}
PARAMETERS_ONLY = (
    "Sample the parameters only, and let the log likelihood take the rest: graph, params, rest = "
    'nnx.split(model, nnx.Param, ...) in Flax NNX, variables["params"] in Flax Linen, the first result of init in '
    "Haiku, the first one of equinox.nn.make_with_state in Equinox."
)


def leaves(owner: str, name: str, value: PyTree) -> list[Any]:
    """Return the leaves of a position; raise TypeError for batch statistics and PRNG states of networks.

    They are recognised by the type of their NNX variable or Equinox module, by the names of Flax Linen and Haiku in
    their path, or by the dtype of PRNG keys; a parameter may be called "mean". ``name`` may end with the path of the
    position.
    """
    found = _checks.tree(owner, name, value)
    undeleted(owner, name, value)
    for path, node in jax.tree_util.tree_flatten_with_path(value, is_leaf=_is_state)[0]:
        parts = [*name.split("."), *(jax.tree_util.keystr((key,), simple=True) for key in path)]
        is_key = isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key)
        if is_key or _is_state(node) or any(_STATISTICS.search(part) for part in parts):
            kind = "a PRNG key" if is_key else type(node).__name__ if _is_state(node) else "a batch statistic"
            raise TypeError(f"{owner}: {'.'.join(parts)} is no parameter (but {kind}). {PARAMETERS_ONLY}")
    return found


def undeleted(owner: str, name: str, value: PyTree) -> None:
    """Raise ValueError for arrays that a compiled function has taken over (``donate_argnums``)."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer) and leaf.is_deleted():
            place = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ValueError(
                f"{owner}: {'.'.join(filter(None, (name, place)))} has been deleted, as arrays are that a program of "
                "jax.jit with donate_argnums has taken. Pass what the program returned, or a copy made before, "
                "jax.tree.map(jnp.copy, tree)."
            )


def _is_state(node: Any) -> bool:
    if isinstance(node, eqx.nn.State | eqx.nn.StateIndex):  # without arrays in networks of make_with_state
        return any(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(node))
    return any(kind.__name__ in _STATES and kind.__module__.startswith("flax.") for kind in type(node).__mro__)


def warn_if_tied(owner: str, name: str, value: PyTree) -> None:
    """Warn if two leaves are one array, unless its entries are equal, as of zeros that were made only once."""
    seen: dict[int, str] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        here = jax.tree_util.keystr(path, simple=True, separator=".")
        there = seen.setdefault(id(leaf), here)
        if there != here and _varies(leaf):
            _checks.warn(
                f"{owner}: {there} and {here} of the {name} are one array, but two parameters, which have their own "
                "values as soon as they move. To tie them, leave one out, as equinox.nn.Shared does; a copy of one "
                "says that two are meant."
            )
            return


def _varies(leaf: Any) -> bool:
    is_known = isinstance(leaf, np.ndarray) or (isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer))
    return (
        is_known
        and getattr(leaf, "is_fully_addressable", True)
        and bool(np.any(np.asarray(leaf) != np.ravel(leaf)[:1]))
    )


def explain(error: Exception, network: PyTree) -> bool:
    """Add what to do to the error of a network in training mode or of a stack of networks; return whether it is one."""
    layers = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    weights = [layer.weight for layer in layers if isinstance(layer, eqx.nn.Linear)]
    if type(error).__name__ == "TraceContextError":  # of Flax, which need not be installed
        error.add_note("The network changes its state when it is applied; call model.eval() before nnx.split.")
    elif "Dropout requires a key" in str(error):  # of Equinox
        error.add_note("The network is in training mode; apply equinox.nn.inference_mode to it first.")
    elif any(isinstance(weight, np.ndarray | jax.Array) and weight.ndim > 2 for weight in weights):
        error.add_note(
            "The network is a stack of networks, as equinox.filter_vmap makes it. Give one of them, "
            "jax.tree.map(lambda x: x[0] if equinox.is_array(x) else x, stack), or apply all by equinox.filter_vmap."
        )
    else:
        return False
    return True
