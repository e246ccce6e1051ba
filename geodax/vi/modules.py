"""Modules with random weights, and networks that hold them.

A variational module is called like any Equinox layer, ``module(x, key=key)``; without a key it stands for its mean.
The networks that hold such layers need not know of keys: :func:`seeded` hands every variational module of a network a
key of its own, and :class:`Rows` hands every *row of a batch* other keys. Weights that are drawn anew for each example
have the same expected log likelihood as weights drawn once a batch, and gradients of far smaller variance (local
reparametrisation: Kingma, Salimans and Welling 2015).

Layers whose weights are independent normal vectors need not draw weights for that: they draw what they return
(:class:`AbstractLocal`). That is the law of one output for one key. Outputs for several inputs share their weights, and
have the right law together only where weights are drawn: :class:`Rows` looks at the network and draws the weights of
those layers that one example passes through several times.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks as _arguments
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar


class AbstractVariational(eqx.Module):
    """A module whose weights have a variational posterior.

    :func:`total_kl`, :func:`seeded` and :func:`geodax.vi.fit` know these modules by this class, wherever in a network
    they are.
    """

    @abc.abstractmethod
    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Apply the module to one example, with weights drawn by the key, or with mean weights."""

    @abc.abstractmethod
    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Divergence of the weights' posterior from their prior, or an unbiased estimate of it by the key."""

    def fixed(self, key: PRNGKey) -> Any:
        """One function: the module with randomness that is drawn once, for as many inputs as it is applied to.

        Args:
            key: A random key.

        Returns:
            A module that is called without a key. As it is here, for modules that draw the same weights for the same
            key, it is the module with its key.
        """
        return Seeded(self, key)


class AbstractLocal(AbstractVariational):
    """A module that, called with a key, draws what it returns for that input, and no weights.

    The law of one output is right, that of outputs for several inputs with the same key is not: :meth:`fixed` is for
    these. It is to be overridden.
    """

    @property
    def is_local(self) -> bool:
        """Whether the module does so, or draws weights like others."""
        return True

    @property
    def is_joint(self) -> bool:
        """Whether it has no weights that could be drawn, so that :meth:`fixed` is for the inputs of one call."""
        return False

    @abc.abstractmethod
    def fixed(self, key: PRNGKey) -> Any:
        """One function: see :meth:`AbstractVariational.fixed`."""


class AbstractWhole(AbstractVariational):
    """A variational posterior over all arrays of a module or of any other position, drawn as a whole."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey) -> Position:
        """Draw a position."""


class Seeded(eqx.Module):
    """A variational module with a key that it uses where none is handed to it."""

    module: AbstractVariational
    key: PRNGKey

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Call the module."""
        return self.module(x, key=self.key if key is None else key)


class Rows(eqx.Module):
    """A network with drawn weights, other ones for each row of a batch.

    Attributes:
        network: The network.
        key: Randomness of the weights.
        share: Where the rows of a batch are shared out among devices, the number of this share.
        num_shares: How many shares there are.
    """

    network: PyTree
    key: PRNGKey
    share: Any = None
    num_shares: int = eqx.field(static=True, default=1)

    def __call__(self, x: Any) -> Any:
        """Outputs for one example, with weights drawn by the key: the same ones for every example."""
        if _has_joint(self.network):
            _require_one_use(self.network, _uses(self.network, lambda network: network(x)), is_function=False)

        def drawn(_: int, node: AbstractVariational, key: PRNGKey) -> Any:
            return node.fixed(key) if is_local(node) and not node.is_joint else Seeded(node, key)

        return _replace(self.network, self.key, drawn)(x)

    def rows(self, x: Array) -> Array:
        """Outputs for the rows of x, with other weights for each row.

        Raises:
            ValueError: If a module that draws values at one input is applied several times to one row.
        """
        keys = jax.random.split(self.key, self.num_shares * x.shape[0])
        if self.share is not None:
            keys = jax.lax.dynamic_slice_in_dim(keys, self.share * x.shape[0], x.shape[0])
        uses = _uses_of_a_row(self.network, x)
        _require_one_use(self.network, uses, is_function=False)

        def drawn(i: int, node: AbstractVariational, key: PRNGKey) -> Any:
            is_seen_once = i in uses and not uses[i].is_several
            return Seeded(node, key) if is_seen_once or not is_local(node) or node.is_joint else node.fixed(key)

        return jax.vmap(lambda key, row: _replace(self.network, key, drawn)(row))(keys, x)

    def jointly(self, x: Array) -> Array:
        """Outputs for the rows of x as those of one function, with the same weights for all rows.

        Raises:
            ValueError: If a module without weights that could be drawn is called several times.
        """
        if _has_joint(self.network):
            _require_one_use(self.network, _uses_of_a_row(self.network, x), is_function=True)
        return jax.vmap(_replace(self.network, self.key, lambda _, node, key: node.fixed(key)))(x)


class Use(NamedTuple):
    """How one example passes through a module.

    Attributes:
        calls: Number of calls; one in a loop counts as two.
        is_batched: Whether a call is for several inputs, by ``jax.vmap``, or for derivatives in forward mode.
    """

    calls: int
    is_batched: bool

    @property
    def is_several(self) -> bool:
        """Whether the module sees more than one input."""
        return self.calls > 1 or self.is_batched


class _Marked(eqx.Module):
    """A module that stands for its mean and leaves a mark in the program wherever it is called."""

    module: AbstractVariational
    place: int = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        def mark(arrays: list[Array]) -> list[Array]:
            return arrays

        arrays, rest = eqx.partition(x, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        leaves = leaves or [jnp.zeros(())]
        mark.__name__ = "_".join([_MARK, str(self.place), *(str(leaf.ndim) for leaf in leaves)])
        marked = jax.jit(mark)(leaves)[: structure.num_leaves]
        return self.module(eqx.combine(structure.unflatten(marked), rest))


def is_variational(node: object) -> bool:
    """Whether a node of a pytree is a variational module."""
    return isinstance(node, AbstractVariational)


def is_local(node: object) -> TypeGuard[AbstractLocal]:
    """Whether a node of a pytree is a module that draws what it returns, not its weights."""
    return isinstance(node, AbstractLocal) and node.is_local


def require_network(owner: str, network: PyTree) -> None:
    """Refuse a bare position, arrays without any module that could have a posterior or be called.

    Args:
        owner: Whose argument it is.
        network: What was handed over.

    Raises:
        TypeError: If it is one.
    """
    nodes = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, eqx.Module))
    if not callable(network) and not any(isinstance(node, eqx.Module) for node in nodes):
        raise TypeError(
            f"{owner}: expected a network, or a posterior over a position, found {_arguments.described(network)}; for "
            "a posterior over it wrap it in vi.GaussianOver(position)."
        )


def seeded(network: PyTree, key: PRNGKey) -> Any:
    """Hand every variational module of a network a key of its own.

    For one example. A layer that one example passes through several times (``jax.vmap(layer)`` over the tokens of a
    text, a loop) must draw its weights, not what it returns: mean-field layers do so with ``local=False``.
    :func:`geodax.vi.fit` and :func:`geodax.vi.predict` see to that themselves.

    Args:
        network: An Equinox module, or any pytree with such modules in it.
        key: A random key.

    Returns:
        The network; called without keys, its variational modules draw their weights.
    """
    return _replace(network, key, lambda _, node, key: Seeded(node, key))


def draw(network: PyTree, key: PRNGKey, share: Any = None, num_shares: int = 1) -> Any:
    """What a log likelihood is evaluated at: a position drawn from a variational posterior.

    Args:
        network: A network with variational modules in it, or one posterior over a whole position.
        key: A random key.
        share: As for :class:`Rows`.
        num_shares: As for :class:`Rows`.

    Returns:
        A :class:`Rows` of the network, posteriors over whole positions (:class:`AbstractWhole`) drawn once for all
        rows; where the network is such a posterior itself, the drawn position.
    """
    if isinstance(network, AbstractWhole):
        return network.sample(key)
    key_whole, key_rows = jax.random.split(key)

    def drawn(_: int, node: AbstractVariational, key: PRNGKey) -> Any:
        return node.sample(key) if isinstance(node, AbstractWhole) else node

    return Rows(_replace(network, key_whole, drawn), key_rows, share, num_shares)


def total_kl(network: PyTree, *, key: PRNGKey | None = None) -> Scalar:
    """The sum of the divergences of all variational modules of a network.

    Args:
        network: An Equinox module, or any pytree with such modules in it.
        key: Randomness of those that are estimated (flows); None where all are exact.

    Returns:
        The sum in nats; 0 for a network without such modules.
    """
    modules = [node for node in jax.tree.leaves(network, is_leaf=is_variational) if is_variational(node)]
    total = None
    for i, module in enumerate(modules):
        value = module.kl(key=None if key is None else jax.random.fold_in(key, i))
        total = value if total is None else total + value.astype(total.dtype)
    return jnp.zeros(()) if total is None else total


_MARK = "geodax_use"


def _local(network: PyTree) -> dict[int, AbstractLocal]:
    """The modules that draw what they return, by their places among the nodes of a network."""
    nodes = jax.tree.leaves(network, is_leaf=is_variational)
    return {i: node for i, node in enumerate(nodes) if is_local(node)}


def _has_joint(network: PyTree) -> bool:
    return any(node.is_joint for node in _local(network).values())


def _uses_of_a_row(network: PyTree, x: Array) -> dict[int, Use]:
    row = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    return _uses(network, lambda network, row: network(row), row)


def _uses(network: PyTree, call: Callable[..., Any], *args: Any) -> dict[int, Use]:
    """How one example passes through the modules that draw what they return, by their places.

    The network is traced once more, with a marked call in place of each of them, and nothing is computed: the program
    says how often each is called, in which loops, and with how many axes.
    """
    if not _local(network):
        return {}
    nodes, structure = jax.tree.flatten(network, is_leaf=is_variational)
    marked = structure.unflatten([_Marked(node, i) if is_local(node) else node for i, node in enumerate(nodes)])

    def traced(*args: Any) -> tuple[()]:
        call(marked, *args)
        return ()

    uses: dict[int, Use] = {}
    _count(jax.make_jaxpr(traced)(*args).jaxpr, 1, uses)
    return uses


def _count(jaxpr: Any, times: int, uses: dict[int, Use]) -> None:
    for equation in jaxpr.eqns:
        name = equation.params.get("name")
        if isinstance(name, str) and name.startswith(_MARK):
            place, *ndims = map(int, name.removeprefix(_MARK).split("_")[1:])
            there = [variable.aval.ndim for variable in equation.invars]
            # derivatives in forward mode are inputs too, and those of one call have the same weights
            _add(uses, place, Use(times, there != ndims))
            continue
        if equation.primitive.name == "cond":  # one of the branches is taken
            branches: list[dict[int, Use]] = []
            for branch in equation.params["branches"]:
                branches.append({})
                _count(branch.jaxpr, times, branches[-1])
            for place in set().union(*branches):
                found = [branch[place] for branch in branches if place in branch]
                _add(uses, place, Use(max(use.calls for use in found), any(use.is_batched for use in found)))
            continue
        inner_times = 2 * times if equation.primitive.name in ("scan", "while") else times
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    _count(inner, inner_times, uses)


def _add(uses: dict[int, Use], place: int, use: Use) -> None:
    before = uses.get(place, Use(0, False))
    uses[place] = Use(before.calls + use.calls, before.is_batched or use.is_batched)


def _require_one_use(network: PyTree, uses: dict[int, Use], *, is_function: bool) -> None:
    """Refuse several values of a module that draws the value at one input only."""
    for i, node in _local(network).items():
        use = uses.get(i, Use(0, False))
        if node.is_joint and (use.calls > 1 if is_function else use.is_several):
            found = "in several calls or in a loop" if use.calls > 1 else "under jax.vmap"
            raise ValueError(
                f"vi: {type(node).__name__} draws its value at one input, but the network applies it to several inputs "
                f"of one example, {found}, and these values depend on each other. "
                + ("Call it once; " if is_function else "Apply it to one input of each example; ")
                + "gx.nn.RandomFeatureGP has weights, and may be applied as often as you like."
            )


def _replace(network: PyTree, key: PRNGKey, function: Callable[[int, Any, PRNGKey], Any]) -> Any:
    nodes, structure = jax.tree.flatten(network, is_leaf=is_variational)
    return structure.unflatten(
        [
            function(i, node, jax.random.fold_in(key, i)) if is_variational(node) else node
            for i, node in enumerate(nodes)
        ]
    )
