"""Priors over a whole network, by rules on the path and shape of its arrays.

A rule is a pattern and a law. The first rule whose pattern meets the path of an array governs it. Arrays of structured
layers that are no free arrays (orthonormal weights, singular values) have the law of their layer, unless a rule with a
structured law meets them: patterns such as ``"*"`` with an ordinary law pass over them.
"""

import fnmatch
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _arguments
from geodax._types import Array, PRNGKey, PyTree, Scalar
from geodax.nn.densities import AbstractPrior, AbstractStructuredPrior, Gaussian
from geodax.nn.horseshoe import AbstractHierarchicalPrior
from geodax.nn.structure import is_structured

Pattern = str | Callable[[str, tuple[int, ...]], bool]
Law = AbstractPrior | AbstractHierarchicalPrior


class Hierarchical(eqx.Module):
    """A network together with the scale parameters of its hierarchical priors; called, it is the network.

    Attributes:
        network: The network.
        scales: Unconstrained scale parameters by the path of the array they belong to.
    """

    network: PyTree
    scales: dict[str, Array]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the network."""
        return self.network(*args, **kwargs)


class Priors(eqx.Module):
    """Independent priors of the arrays of a network; as a function of a position, their log density.

    Args:
        rules: Pairs of a pattern and a law, the first match counts. A pattern is a shell pattern of the path, such as
            ``"*.bias"`` or ``"layers.0.*"``, or a function ``(path, shape) -> bool``. None stands for
            ``[("*", Gaussian("fan_in"))]``.

    Example:
        >>> priors = Priors([("*bias", Gaussian(1.0)), ("*", Laplace(0.1))])  # doctest: +SKIP
        >>> posterior = gx.Posterior(log_prior=priors, ...)  # doctest: +SKIP
    """

    rules: tuple[tuple[Pattern, Law], ...] = eqx.field(static=True)

    def __init__(self, rules: Sequence[Any] | None = None):
        """See the class.

        Raises:
            TypeError: If a rule is no pair of a pattern and a law.
        """
        rules = [("*", Gaussian("fan_in"))] if rules is None else rules
        if not isinstance(rules, Sequence) or isinstance(rules, str | bytes):
            raise TypeError(f"Priors: expected a list of rules, found {_arguments.described(rules)}.")
        for rule in rules:
            is_pair = isinstance(rule, tuple) and len(rule) == 2
            if not is_pair or not (isinstance(rule[0], str) or callable(rule[0])) or not _is_law(rule[1]):
                raise TypeError(
                    "Priors: a rule is a pair of a pattern (a string such as '*.bias', or a function of path and "
                    f"shape) and a law such as nn.Gaussian(1.0), found {rule!r}."
                )
        self.rules = tuple(rules)

    def __call__(self, position: PyTree) -> Scalar:
        """The log density of a network, or of a network with its scales, normalised.

        Args:
            position: The network, or what :meth:`extend` made of it.

        Returns:
            The sum over its arrays, with respect to the uniform measure of :func:`~geodax.nn.geometry`.

        Raises:
            ValueError: If no rule meets an array, or its scales are missing.
        """
        network, scales = _parts(position)
        total = None
        for path, array, law in self._governed(network):
            if isinstance(law, AbstractHierarchicalPrior):
                if path not in scales:
                    raise ValueError(
                        f"Priors: the prior of {path} has scales that are parameters, but the position does not hold "
                        "them; begin with priors.extend(network)."
                    )
                value = law.log_density(array, scales[path])
            else:
                value = law.log_density(array)
            total = value if total is None else total + value.astype(total.dtype)
        if total is None:
            raise ValueError("Priors: the network holds no array.")
        return total

    def extend(self, network: PyTree) -> PyTree:
        """Add the scale parameters that hierarchical priors need.

        Args:
            network: The network.

        Returns:
            A :class:`Hierarchical`, or the network itself where no prior is hierarchical.
        """
        scales = {
            path: law.initial_scales(array)
            for path, array, law in self._governed(network)
            if isinstance(law, AbstractHierarchicalPrior)
        }
        return Hierarchical(network, scales) if scales else network

    def sample(self, key: PRNGKey, like: PyTree) -> PyTree:
        """Draw a network from the prior: a start for a chain, or a draw of the prior predictive.

        Args:
            key: A random key.
            like: A network, or what :meth:`extend` made of it.

        Returns:
            The same tree with other arrays.
        """
        network, scales = _parts(like)
        arrays, drawn_scales = [], {}
        for i, (path, array, law) in enumerate(self._governed(network)):
            part = jax.random.fold_in(key, i)
            if isinstance(law, AbstractHierarchicalPrior):
                drawn, drawn_scales[path] = law.sample(part, array)
            else:
                drawn = law.sample(part, array)
            arrays.append(drawn)
        drawn_network = jax.tree.structure(network).unflatten(arrays)
        return Hierarchical(drawn_network, drawn_scales) if scales else drawn_network

    def describe(self, network: PyTree) -> list[tuple[str, tuple[int, ...], Law]]:
        """Which law governs which array.

        Args:
            network: The network.

        Returns:
            ``(path, shape, law)`` for each array.
        """
        return [(path, array.shape, law) for path, array, law in self._governed(_parts(network)[0])]

    def _governed(self, network: PyTree) -> list[tuple[str, Array, Law]]:
        return [(path, array, self._law(path, array, own)) for path, array, own in _named_arrays(network)]

    def _law(self, path: str, array: Array, own: AbstractStructuredPrior | None) -> Law:
        for pattern, law in self.rules:
            is_fit = isinstance(law, AbstractStructuredPrior) == (own is not None)
            if is_fit and _meets(pattern, path, array.shape):
                return law
        if own is None:
            raise ValueError(
                f"Priors: no rule meets {path or 'the array'} of shape {array.shape}; add a rule with the pattern '*'."
            )
        return own


def log_prior(network: PyTree, rules: Sequence[Any] | None = None) -> Scalar:
    """The log density of a network under priors by rule: ``Priors(rules)(network)``.

    Args:
        network: The network.
        rules: As for :class:`Priors`.

    Returns:
        The normalised log density.
    """
    return Priors(rules)(network)


def _named_arrays(network: PyTree) -> list[tuple[str, Array, AbstractStructuredPrior | None]]:
    """Path, array and the law of its own that a structured layer has for it."""
    found = []
    for path, node in jax.tree_util.tree_flatten_with_path(network, is_leaf=is_structured)[0]:
        own = node.structured_priors() if is_structured(node) else {}
        for inner, array in jax.tree_util.tree_flatten_with_path(node)[0]:
            name = jax.tree_util.keystr((*path, *inner), simple=True, separator=".")
            if not hasattr(array, "dtype") or not jnp.issubdtype(array.dtype, jnp.floating):
                kind = getattr(array, "dtype", type(array).__name__)
                raise TypeError(
                    f"Priors: {name or 'the network'} is {kind}, but a prior is over real arrays; take the parameters "
                    "out with equinox.partition(network, equinox.is_inexact_array)."
                )
            found.append((name, array, own.get(jax.tree_util.keystr(inner, simple=True, separator="."))))
    return found


def _parts(position: PyTree) -> tuple[PyTree, dict[str, Array]]:
    return (position.network, position.scales) if isinstance(position, Hierarchical) else (position, {})


def _meets(pattern: Pattern, path: str, shape: tuple[int, ...]) -> bool:
    return fnmatch.fnmatchcase(path, pattern) if isinstance(pattern, str) else bool(pattern(path, shape))


def _is_law(law: Any) -> bool:
    return isinstance(law, (AbstractPrior, AbstractHierarchicalPrior))
