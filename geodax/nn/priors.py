"""Priors over a whole network, by rules on the paths and shapes of its arrays.

A rule is a pair of a pattern and a distribution. An array has the distribution of the first rule whose pattern matches
its path. Structured arrays (orthonormal weights, singular values) have the distribution of their layer, unless a rule
with a structured distribution matches them: rules with ordinary distributions, such as one for ``"*"``, skip them.

An unused rule is usually a mistake. A pattern without a wildcard that matches no array raises an error; one with a
wildcard (except ``"*"``) gives a warning, once for each network.
"""

import dataclasses
import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree, Scalar
from geodax.data.errors import listed, nearest
from geodax.nn.adapters import PolarAdapter, SVDAdapter
from geodax.nn.densities import (
    AbstractPrior,
    AbstractStructuredPrior,
    Gaussian,
    Haar,
    Laplace,
    StudentT,
    fan_in_scale,
    resolve_scale,
)
from geodax.nn.horseshoe import AbstractHierarchicalPrior
from geodax.nn.image_layers import OrthogonalConv2d
from geodax.nn.layers import BottleneckLinear, LowRankLinear, OrthogonalLinear
from geodax.nn.structure import is_structured

Pattern = str | Callable[[str, tuple[int, ...]], bool]
Prior = AbstractPrior | AbstractHierarchicalPrior

VALUE = ".value"  # ends the paths of the variables of Flax NNX
_NORMS = (eqx.nn.LayerNorm, eqx.nn.RMSNorm)  # their weights may have any number of axes
_OF_MEMBERS = (Gaussian, Laplace, StudentT, Haar)  # apply to each array of a stack
_CONVOLUTIONS = (eqx.nn.Conv, eqx.nn.ConvTranspose)
_AXES = {  # axes of the arrays of other layers
    eqx.nn.Linear: {"weight": 2},
    OrthogonalLinear: {"weight": 2},
    OrthogonalConv2d: {"weight": 2},
    LowRankLinear: {"left": 2, "right": 2, "log_gaps": 1},
    BottleneckLinear: {"left": 2, "right": 2},
    SVDAdapter: {"left": 2, "right": 2, "scales": 1},
    PolarAdapter: {"left": 2, "right": 2, "scales": 1},
}


class Hierarchical(eqx.Module):
    """A network with the scale parameters of its hierarchical priors; calling it calls the network.

    Attributes:
        network: The network.
        scales: Unconstrained scale parameters, by the path of their array.
    """

    network: PyTree
    scales: dict[str, Array]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.network(*args, **kwargs)


class _Rules(tuple):
    """Rules, with the networks they were checked against, which equality ignores."""

    def __init__(self, _: Any):
        self.checked: set[tuple[Any, ...]] = set()


class Priors(eqx.Module):
    """Independent priors of the arrays of a network; as a function of a position, their log density.

    With ``scale="fan_in"`` the role of an array depends on its name: ``bias`` is a bias and ``weight`` a weight,
    whatever their shapes; a ``kernel`` is one of Flax, with the outputs in its last axis; the arrays of Equinox's
    ``LayerNorm`` and ``RMSNorm`` have scale 1. An array of another name is a bias if it has one axis, or at least three
    of which only the first is longer than 1; so is a ``weight`` of one axis.

    In a stack of layers, as created by ``equinox.filter_vmap``, the additional leading axes do not count, and the
    density is that of all layers together; ``jax.vmap(priors)(networks)`` gives one density per network. Distributions
    of a whole array (a horseshoe with one scale, singular values) raise ValueError for stacks.

    Args:
        rules: Pairs of a pattern and a distribution; the first match applies. A pattern is a shell pattern of the path,
            such as ``"*.bias"`` or ``"layers.0.*"``, or a function ``(path, shape) -> bool``. The ending ``.value`` of
            the paths in a state of Flax NNX may be left out. None means ``[("*", Gaussian("fan_in"))]``.

    Example:
        >>> priors = Priors([("*bias", Gaussian(1.0)), ("*", Laplace(0.1))])  # doctest: +SKIP
        >>> posterior = gx.Posterior(log_prior=priors, ...)  # doctest: +SKIP
    """

    rules: tuple[tuple[Pattern, Prior], ...] = eqx.field(static=True)

    def __init__(self, rules: Sequence[Any] | None = None):
        """See the class.

        Raises:
            TypeError: If a rule is not a pair of a pattern and a distribution.
        """
        rules = [("*", Gaussian("fan_in"))] if rules is None else rules
        if not isinstance(rules, Sequence) or isinstance(rules, str | bytes):
            raise TypeError(f"Priors: expected a list of rules, found {_checks.described(rules)}.")
        for rule in rules:
            is_pair = isinstance(rule, tuple) and len(rule) == 2
            if not is_pair or not (isinstance(rule[0], str) or callable(rule[0])) or not isinstance(rule[1], Prior):
                raise TypeError(
                    "Priors: a rule is a pair of a pattern (a string such as '*.bias', or a function of path and "
                    f"shape) and a distribution such as nn.Gaussian(1.0), found {rule!r}."
                )
        self.rules = _Rules(rules)

    def __call__(self, position: PyTree) -> Scalar:
        """Compute the log density of a network, or of the result of :meth:`extend`.

        Returns:
            The sum over its arrays, normalised with respect to the uniform measure of :func:`~geodax.nn.geometry`.

        Raises:
            ValueError: If no rule matches an array, a rule without a wildcard matches none, or scales are missing.
        """
        network, scales = _parts(position)
        total = None
        for path, array, prior in self._governed(network):
            if isinstance(prior, AbstractHierarchicalPrior):
                if path not in scales:
                    raise ValueError(
                        f"Priors: the prior of {path} has scales that are parameters, but the position does not "
                        "contain them; start from priors.extend(network)."
                    )
                value = prior.log_density(array, scales[path])
            else:
                value = prior.log_density(array)
            total = value if total is None else total + value.astype(total.dtype)
        if total is None:
            raise ValueError("Priors: the network holds no array.")
        return total

    def extend(self, network: PyTree) -> PyTree:
        """Add the scale parameters of hierarchical priors to a network.

        Returns:
            A :class:`Hierarchical`, or the network itself if no prior is hierarchical.
        """
        scales = {
            path: prior.initial_scales(array)
            for path, array, prior in self._governed(network)
            if isinstance(prior, AbstractHierarchicalPrior)
        }
        return Hierarchical(network, scales) if scales else network

    def sample(self, key: PRNGKey, like: PyTree) -> PyTree:
        """Draw a network from the prior, as an initial position or for prior predictive checks.

        Args:
            key: A PRNG key.
            like: A network, or the result of :meth:`extend`.

        Returns:
            The same tree with drawn arrays.
        """
        network, scales = _parts(like)
        arrays, drawn_scales = [], {}
        for i, (path, array, prior) in enumerate(self._governed(network)):
            part = jax.random.fold_in(key, i)
            if isinstance(prior, AbstractHierarchicalPrior):
                drawn, drawn_scales[path] = prior.sample(part, array)
            else:
                drawn = prior.sample(part, array)
            arrays.append(drawn)
        drawn_network = jax.tree.structure(network).unflatten(arrays)
        return Hierarchical(drawn_network, drawn_scales) if scales else drawn_network

    def describe(self, network: PyTree) -> list[tuple[str, tuple[int, ...], Prior]]:
        """List path, shape and distribution of each array of a network, with the number that ``"fan_in"`` is for it."""
        return [(path, array.shape, prior) for path, array, prior in self._governed(_parts(network)[0])]

    def variances(self, network: PyTree) -> list[float | None]:
        """Return the variance of each array's prior, None where it is not normal with mean 0."""
        return [
            resolve_scale(prior.scale, shape, "Gaussian") ** 2
            if isinstance(prior, Gaussian) and prior.mean == 0
            else None
            for _, shape, prior in self.describe(network)
        ]

    def _governed(self, network: PyTree) -> list[tuple[str, Array, Prior]]:
        named = _named_arrays(network)
        self._check_rules([(path, array.shape, own is not None) for path, array, own, *_ in named])
        governed = []
        for path, array, own, is_norm, stacked in named:
            prior = _by_name(self._prior_of(path, array, own), path, array.shape, is_norm=is_norm, stacked=stacked)
            governed.append((path, array, prior))
        paths = [path for path, _, _ in governed]
        for path, _, prior in governed:
            if isinstance(prior, AbstractHierarchicalPrior) and paths.count(path) > 1:
                raise ValueError(
                    f"Priors: {paths.count(path)} arrays are named {path!r}, so the scale parameters of their prior "
                    "are ambiguous; rename one of them, for instance a key that contains a dot."
                )
        return governed

    def _check_rules(self, arrays: list[tuple[str, tuple[int, ...], bool]]) -> None:
        structure = tuple((path, is_own) for path, _, is_own in arrays)
        checked = getattr(self.rules, "checked", set())
        # a position that is only the noise is part of a network to which the other rules apply
        if structure in checked or all(path.split(".")[-1] == "log_noise" for path, _, _ in arrays):
            return
        paths, unmet = [path for path, _, _ in arrays], []
        for pattern, prior in self.rules:
            if not isinstance(pattern, str) or set(pattern) == {"*"}:
                continue
            met = [(path, is_own) for path, shape, is_own in arrays if meets(pattern, path, shape)]
            if any(is_own == isinstance(prior, AbstractStructuredPrior) for _, is_own in met):
                continue
            if any(sign in pattern for sign in "*?["):
                # a rule for the noise is allowed if the noise is known
                unmet += [] if pattern.endswith("log_noise") else [pattern]
            elif met:
                raise ValueError(f"Priors: the rule for {pattern!r} cannot apply: {_mismatch(prior, is_own=met[0][1])}")
            else:
                raise ValueError(
                    f"Priors: the rule for {pattern!r} matches no array{nearest(pattern, paths)}; the network has "
                    f"{listed(paths)}. A pattern such as '*{pattern}' matches a name at any depth."
                )
        checked.add(structure)
        if unmet:
            one = len(unmet) == 1
            _checks.warn(
                f"Priors: the rule{'' if one else 's'} for {listed(unmet)} match{'es' if one else ''} no array of this "
                f"network, which has {listed(paths)}; correct the pattern, or leave the rule out. (Rules with an "
                "ordinary distribution skip orthonormal weights and singular values.)"
            )

    def _prior_of(self, path: str, array: Array, own: AbstractStructuredPrior | None) -> Prior:
        for pattern, prior in self.rules:
            is_fit = isinstance(prior, AbstractStructuredPrior) == (own is not None)
            if is_fit and meets(pattern, path, array.shape):
                return prior
        if own is None:
            raise ValueError(
                f"Priors: no rule matches {path or 'the array'} of shape {array.shape}; add a rule for '*'."
            )
        return own


def log_prior(network: PyTree, rules: Sequence[Any] | None = None) -> Scalar:
    """Compute the normalised log density of a network under priors by rule: ``Priors(rules)(network)``."""
    return Priors(rules)(network)


def _named_arrays(network: PyTree) -> list[tuple[str, Array, AbstractStructuredPrior | None, bool, int]]:
    """List the arrays of a network.

    Each with its path, the distribution of its structured layer (if any), whether it belongs to a normalisation, and
    the number of additional leading axes compared with a single layer.
    """
    found = []
    for path, node in jax.tree_util.tree_flatten_with_path(network, is_leaf=_is_layer)[0]:
        own = node.structured_priors() if is_structured(node) else {}
        for inner, array in jax.tree_util.tree_flatten_with_path(node)[0]:
            name = jax.tree_util.keystr((*path, *inner), simple=True, separator=".")
            if not hasattr(array, "dtype") or not jnp.issubdtype(array.dtype, jnp.floating):
                kind = getattr(array, "dtype", type(array).__name__)
                raise TypeError(
                    f"Priors: {name or 'the network'} is {kind}, but a prior is over real arrays; extract the "
                    "parameters with equinox.partition(network, equinox.is_inexact_array)."
                )
            field = jax.tree_util.keystr(inner, simple=True, separator=".")
            stacked = max(array.ndim - _num_axes(node, field, array.ndim), 0)
            found.append((name, array, own.get(field), isinstance(node, _NORMS), stacked))
    return found


def _is_layer(node: object) -> bool:
    return is_structured(node) or isinstance(node, (*_NORMS, *_CONVOLUTIONS, *_AXES))


def _num_axes(node: object, field: str, found: int) -> int:
    """Number of axes of a layer's array as defined by the layer, if known; else the number found."""
    if isinstance(node, _CONVOLUTIONS):
        return node.num_spatial_dims + 2 if field == "weight" else found
    for kind, axes in _AXES.items():
        if isinstance(node, kind):
            return axes.get(field, found)
    return found


def _by_name(prior: Prior, path: str, shape: tuple[int, ...], *, is_norm: bool, stacked: int) -> Prior:
    """Replace ``"fan_in"`` by a number: the role of an array may differ from what its shape alone suggests."""
    if stacked and not (isinstance(prior, _OF_MEMBERS) or getattr(prior, "local", False)):
        raise ValueError(
            f"Priors: {path} of shape {shape} is a stack of arrays of shape {shape[stacked:]}, and "
            f"{type(prior).__name__} is the distribution of one of them; use jax.vmap(priors)(networks) for the log "
            "density of each network of a stack, and equinox.filter_vmap for its other methods."
        )
    scale: Any = getattr(prior, "scale", None)
    if not isinstance(scale, str) or isinstance(prior, AbstractStructuredPrior):
        return prior
    name = path.removesuffix(VALUE).rpartition(".")[2]
    if is_norm or name == "bias":
        named = 1.0
    elif stacked or (name == "weight" and len(shape) > 1):
        inner = shape[stacked:]
        named = fan_in_scale(inner) if len(inner) > 1 else 1.0
    elif name == "kernel" and len(shape) > 1:
        named = fan_in_scale((shape[-1], *shape[:-1]))
    else:
        named = resolve_scale(scale, shape, "Priors")
    changed: Any = prior
    return dataclasses.replace(changed, scale=named)


def _mismatch(prior: Prior, *, is_own: bool) -> str:
    name = type(prior).__name__
    if is_own:
        return (
            f"the array is orthonormal or a set of singular values, and {name} is a distribution of free arrays. Leave "
            "the rule out, or use a structured distribution such as nn.Haar()."
        )
    return f"the array is free, and {name} is for structured layers. Use a distribution such as nn.Gaussian(1.0)."


def _parts(position: PyTree) -> tuple[PyTree, dict[str, Array]]:
    return (position.network, position.scales) if isinstance(position, Hierarchical) else (position, {})


def meets(pattern: Pattern, path: str, shape: tuple[int, ...]) -> bool:
    """Whether a pattern matches an array or a layer."""
    if not isinstance(pattern, str):
        return bool(pattern(path, shape))
    return any(fnmatch.fnmatchcase(name, pattern) for name in (path, path.removesuffix(VALUE)))
