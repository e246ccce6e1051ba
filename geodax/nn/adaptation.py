"""Networks whose weights are constants and whose parameters are low-rank adapters of some dense layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax import _checks, _parameters
from geodax._types import PRNGKey, PyTree
from geodax.data.errors import listed, nearest
from geodax.nn.adapters import ADAPTERS, AdaptedLinear, is_dense, weight_of, with_weight
from geodax.nn.priors import VALUE, Pattern, meets

_OWNER = "adapt"
_NORMS = (eqx.nn.LayerNorm, eqx.nn.RMSNorm, eqx.nn.WeightNorm, eqx.nn.SpectralNorm)  # with the layers in them


class _Frozen:
    """A network that JAX does not look into: its arrays are constants and no leaves. Equal if its leaves are."""

    def __init__(self, network: PyTree):
        self.network = network
        leaves, structure = jax.tree.flatten(network)
        self._hash = hash((len(leaves), *(jnp.shape(leaf) for leaf in leaves if _is_array(leaf))))
        self._leaves, self._structure = leaves, structure

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _Frozen):
            return self is other
        return self._structure == other._structure and all(map(_is_same, self._leaves, other._leaves))

    def __repr__(self) -> str:
        return f"{type(self.network).__name__}(...)"


class Adapted(eqx.Module):
    """A network with frozen weights and an adapter beside some of its dense layers, made by :func:`adapt`.

    Its leaves are the arrays of the adapters alone: samplers, priors, :func:`~geodax.nn.geometry`, draws and
    checkpoints see nothing else. The frozen weights are constants of every function that calls it.

    Attributes:
        adapters: The adapters, by the path of their layer.
    """

    adapters: dict[str, Any]
    frozen: _Frozen = eqx.field(static=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        network = self.network
        if not callable(network):
            raise TypeError(
                f"Adapted: a {type(network).__name__} of parameters is no function. Call the network's apply function "
                "with merged(), which returns parameters of the same kind."
            )
        return network(*args, **kwargs)

    @property
    def network(self) -> Any:
        """Return the network with its adapters beside the layers, without the product of their factors.

        Adapted arrays that belong to no dense layer have the update added.
        """
        return self._changed(
            lambda node, adapter: AdaptedLinear(node, adapter) if is_dense(node) else node + adapter.matrix
        )

    def merged(self) -> Any:
        """Return an ordinary network, or tree of parameters, with the updates added to the weights.

        Layers other than :class:`equinox.nn.Linear` become such, since the sum has not their structure.
        """
        return self._changed(lambda node, adapter: with_weight(node, weight_of(node) + adapter.matrix))

    def _changed(self, change: Any) -> Any:
        named, structure = nodes_of(self.frozen.network)
        parts = [(node, self.adapters[name]) for name, node in named if name in self.adapters]
        # under Posterior(compute_dtype=...) the adapters are in half precision
        dtypes = {weight_of(node).dtype: jax.tree.leaves(adapter)[0].dtype for node, adapter in parts}

        def cast(leaf: Any) -> Any:
            dtype = dtypes.get(leaf.dtype, leaf.dtype) if eqx.is_inexact_array(leaf) else None
            return leaf if dtype is None or dtype == leaf.dtype else leaf.astype(dtype)

        nodes = [(name, jax.tree.map(cast, node)) for name, node in named]
        return structure.unflatten(
            [change(node, self.adapters[name]) if name in self.adapters else node for name, node in nodes]
        )


def adapt(
    network: PyTree,
    *,
    rank: int | Sequence[int],
    where: Pattern | Sequence[Pattern] | None = None,
    factorization: str = "svd",
    key: PRNGKey,
) -> Adapted:
    r"""Freeze a trained network and put low-rank adapters :math:`U \mathrm{diag}(s) V^T` beside its dense layers.

    The result is called like the network and starts as the same function, with s = 0. Its parameters are the adapters:
    U and V on Stiefel manifolds with uniform priors, and s with the prior that :class:`~geodax.nn.Priors` gives to
    ``"*.scales"`` (``"fan_in"`` is 1). With a normal prior of standard deviation :math:`\sigma` the update of a weight
    has the expected squared norm :math:`r \sigma^2`, whatever its size.

    Args:
        network: An Equinox module with dense layers (:class:`equinox.nn.Linear`, or those of :mod:`geodax.nn`), or any
            pytree of parameters.
        rank: Rank of the adapters, one number or one for each pattern.
        where: Pattern of the paths of layers, or several, of which the first match counts: shell patterns such as
            ``"layers.*"``, or functions ``(path, shape) -> bool``, as in :class:`~geodax.nn.Priors`. A pattern can
            also match an array with two axes that belongs to no dense layer. None means all dense layers, or all
            floating-point arrays with two axes where there are no such layers.
        factorization: ``"svd"``; ``"polar"``, the same distribution in free coordinates with normal priors, for
            :class:`geodax.vi.GaussianOver` and other methods without manifolds; or ``"bottleneck"``, a product of two
            free matrices (LoRA).
        key: PRNG key for the factors.

    Returns:
        The adapted network. :meth:`Adapted.merged` returns an ordinary one.

    Raises:
        TypeError: If an argument has the wrong type, or the weights are no floating-point arrays.
        ValueError: If a pattern matches no dense layer, the rank exceeds a layer's size, or there is no dense layer.

    Example:
        ``start = gx.nn.adapt(network, rank=4, where="layers.*", key=key)``, then
        ``gx.sghmc(posterior, manifold=gx.nn.geometry(start))``. With parameters of Flax, the likelihood's
        ``apply=lambda adapted, x: model.apply({"params": adapted.merged()}, x)``.
    """
    _checks.chosen(_OWNER, "factorization", factorization, tuple(ADAPTERS))
    key = _checks.random_key(_OWNER, key)
    if any(isinstance(node, Adapted) for node in jax.tree.leaves(network, is_leaf=lambda x: isinstance(x, Adapted))):
        raise ValueError(
            f"{_OWNER}: the network has adapters already. Pass network.merged() to adapt it once more, or make one "
            "adapted network of all layers with a rank for each pattern."
        )
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(network)):
        raise TypeError(
            f"{_OWNER}: the frozen weights are constants, found traced arrays; call it outside jit and vmap."
        )
    _parameters.undeleted(_OWNER, "network", network)
    named = nodes_of(network)[0]
    dense = {name: node for name, node in named if _is_matrix(node)}
    if not dense:
        stacks = [tuple(weight_of(node).shape) for _, node in named if is_dense(node) and _is_array(weight_of(node))]
        if stacks:
            raise ValueError(
                f"{_OWNER}: expected dense layers with weights of two axes, found stacked ones of shape {stacks[0]}. "
                "Adapt each network of a stack, jax.tree.map(lambda leaf: leaf[i], network), on its own."
            )
        raise ValueError(
            f"{_OWNER}: expected a network with dense layers, or with arrays that have two axes, found "
            f"{listed([name for name, _ in named]) or 'no arrays'}."
        )
    names = [name for name, node in named if _is_matrix(node)]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{_OWNER}: two layers of the network have the same path; rename one: {listed(sorted(names))}."
        )
    adapters = {}
    for name, its_rank in ranks_of(_OWNER, network, dense, rank, where).items():
        weight = weight_of(dense[name])
        if not eqx.is_inexact_array(weight) or jnp.iscomplexobj(weight):
            found = _checks.described(weight)
            raise TypeError(f"{_OWNER}: the weight of {name!r} must be a real floating-point array, found {found}.")
        m, n = weight.shape
        if its_rank > min(m, n):
            raise ValueError(
                f"{_OWNER}: the rank of an adapter is at most the smaller side of its weight, for {name!r}, {m} x {n}, "
                f"{min(m, n)}, found {its_rank}. Ranks can be given for each pattern: where=({name!r}, '*'), "
                f"rank=({min(m, n)}, {its_rank})."
            )
        part = jax.random.fold_in(key, names.index(name))
        adapters[name] = ADAPTERS[factorization](part, m, n, its_rank, weight.dtype)
    return Adapted(adapters, _Frozen(network))


def ranks_of(owner: str, network: PyTree, dense: Mapping[str, Any], rank: Any, where: Any) -> dict[str, int]:
    """Rank of each selected layer, by path; errors are those of ``owner``."""
    if where is None:
        layers = [name for name, node in dense.items() if is_dense(node)]
        layers = layers or [name for name, node in dense.items() if eqx.is_inexact_array(node)] or list(dense)
        return dict.fromkeys(layers, _checks.whole(owner, "rank", rank))
    patterns = where if isinstance(where, list | tuple) else (where,)
    if not patterns:
        raise ValueError(f"{owner}: where has no pattern. Leave it out to take all of {listed(list(dense))}.")
    for pattern in patterns:
        if not (isinstance(pattern, str) or callable(pattern)):
            raise TypeError(
                f"{owner}: where must be a pattern such as 'layers.*', a function of path and shape, or a list of "
                f"them, found {_checks.described(pattern)}."
            )
    ranks = list(rank) if isinstance(rank, list | tuple) else [rank] * len(patterns)
    if len(ranks) != len(patterns):
        raise ValueError(
            f"{owner}: rank must be one number, or one for each of {len(patterns)} patterns, found {len(ranks)}."
        )
    found: dict[str, int] = {}
    for pattern, each in zip(patterns, ranks, strict=True):
        met = [name for name, node in dense.items() if meets(pattern, name, weight_of(node).shape)]
        if not met:
            raise ValueError(f"{owner}: {_unmet(pattern, network)}; it has {listed(list(dense))}.")
        found = dict.fromkeys(met, _checks.whole(owner, "rank", each)) | found
    return found


def _unmet(pattern: Pattern, network: PyTree) -> str:
    leaves = {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(network)[0]}
    known = [name for name, _ in nodes_of(network)[0]]
    if not isinstance(pattern, str):
        return "the function where= selects no dense layer of the network"
    if pattern in leaves:
        return f"{pattern!r} is no dense layer but {_checks.described(leaves[pattern])}"
    inside = [name for name in leaves if name.startswith(f"{pattern}.")]
    if inside:
        return f"{pattern!r} is no dense layer; it holds {listed(inside)}"
    return f"the pattern {pattern!r} matches no dense layer of the network{nearest(pattern, known)}"


def nodes_of(network: PyTree) -> tuple[list[tuple[str, Any]], Any]:
    """Named dense layers, normalisations and other leaves of a network, and its structure over them."""
    paths, structure = jax.tree_util.tree_flatten_with_path(
        network, is_leaf=lambda node: is_dense(node) or isinstance(node, _NORMS)
    )
    return [(_name(path), node) for path, node in paths], structure


def _is_matrix(node: Any) -> bool:
    if is_dense(node):
        weight = weight_of(node)
        return hasattr(weight, "shape") and weight.ndim == 2  # not a placeholder of equinox.nn.Shared
    return _is_array(node) and node.ndim == 2


def _is_array(node: object) -> bool:
    return isinstance(node, np.ndarray | jax.Array)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".").removesuffix(VALUE)


def _is_same(a: Any, b: Any) -> bool:
    if not _is_array(a):
        return a is b or a == b
    return _is_array(b) and a.dtype == b.dtype and np.array_equal(a, b)
