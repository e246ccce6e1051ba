"""Modules with random weights, and networks that contain them.

A variational module is called like any Equinox layer, ``module(x, key=key)``; without a key it uses its mean weights.
Networks need not pass keys to such layers: :func:`seeded` gives every variational module its own key, and
:class:`Rows` uses different keys for every *row of a batch*. Drawing new weights for each example leaves the expected
log likelihood unchanged and gives gradients of far smaller variance than one draw per batch (local
reparametrisation: Kingma, Salimans and Welling 2015).

Layers whose weights are independent normal vectors (:class:`AbstractLocal`) can draw their outputs directly instead of
their weights. This gives the right distribution of one output per key. Outputs for several inputs share weights, and
their joint distribution is right only if weights are drawn: :class:`Rows` inspects the network and draws the weights of
layers that one example passes through more than once.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.vi.stand_ins import AbstractStandIn


class AbstractVariational(eqx.Module):
    """A module whose weights have a variational posterior.

    :func:`total_kl`, :func:`seeded` and :func:`geodax.vi.fit` find instances of this class anywhere in a network.
    """

    @abc.abstractmethod
    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Apply the module to one example, with weights drawn using the key, or with mean weights without one."""

    @abc.abstractmethod
    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Return the divergence of the weights' posterior from their prior, or an unbiased estimate using the key."""

    def fixed(self, key: PRNGKey) -> Any:
        """Return the module as a deterministic function: its randomness is drawn once, for any number of inputs.

        Args:
            key: A PRNG key.

        Returns:
            A module that is called without a key. The default, for modules that draw the same weights for the same key,
            is the module together with its key.
        """
        return Seeded(self, key)


class AbstractLocal(AbstractVariational):
    """A module that, called with a key, draws its output for that input instead of its weights.

    Outputs for several inputs with the same key do not have the right joint distribution; :meth:`fixed` does, and must
    be overridden.
    """

    @property
    def is_local(self) -> bool:
        """Whether the module draws its output, rather than its weights."""
        return True

    @property
    def is_joint(self) -> bool:
        """Whether the module has no weights to draw, so that :meth:`fixed` covers the inputs of one call."""
        return False

    @abc.abstractmethod
    def fixed(self, key: PRNGKey) -> Any:
        """See :meth:`AbstractVariational.fixed`."""


class AbstractWhole(AbstractVariational):
    """A variational posterior over all arrays of a module or other position, drawn jointly."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey) -> Position:
        """Draw a position."""


class Seeded(AbstractStandIn):
    """A variational module with a default key."""

    layer: AbstractVariational
    key: PRNGKey

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        return self.layer(x, key=self.key if key is None else key)


class Rows(eqx.Module):
    """A network with random weights, drawn independently for each row of a batch.

    Attributes:
        key: PRNG key for the weights.
        share: Index of this device's rows if devices divide the rows of a batch.
    """

    network: PyTree
    key: PRNGKey
    share: Any = None
    num_shares: int = eqx.field(static=True, default=1)

    def __call__(self, x: Any) -> Any:
        """Return the outputs for one example; the key determines the weights, equal for every example."""
        if _has_joint(self.network):
            _require_one_use(self.network, _uses(self.network, lambda network: network(x)), is_function=False)

        def drawn(_: int, node: AbstractVariational, key: PRNGKey) -> Any:
            return node.fixed(key) if is_local(node) and not node.is_joint else Seeded(node, key)

        return _replace(self.network, self.key, drawn)(x)

    def rows(self, x: Array) -> Array:
        """Return the outputs for the rows of x, with different weights for each row."""
        keys = jax.random.split(self.key, self.num_shares * x.shape[0])
        if self.share is not None:
            keys = jax.lax.dynamic_slice_in_dim(keys, self.share * x.shape[0], x.shape[0])
        uses = _uses_of_a_row(self.network, x)
        _require_one_use(self.network, uses, is_function=False)

        def drawn(i: int, node: AbstractVariational, key: PRNGKey) -> Any:
            is_seen_once = i in uses and not uses[i].is_several
            return Seeded(node, key) if is_seen_once or not is_local(node) or node.is_joint else node.fixed(key)

        return jax.vmap(lambda key, row: _replace(self.network, key, drawn)(row))(keys, x)

    def jointly(self, x: Array, apply: Callable[[Any, Array], Any]) -> Any:
        """Return ``apply(network, x)`` with the same weights for all rows of x, as one function."""
        if _has_joint(self.network):
            _require_one_use(self.network, _uses(self.network, apply, x), is_function=True)
        return apply(_replace(self.network, self.key, lambda _, node, key: node.fixed(key)), x)


class Use(NamedTuple):
    """How one example passes through a module.

    Attributes:
        calls: Number of calls; a call in a loop counts as two.
        is_batched: Whether a call has several inputs, through ``jax.vmap`` or forward-mode derivatives.
        num_inputs: Largest number of inputs of a call; 1 for a batch of one.
    """

    calls: int
    is_batched: bool
    num_inputs: int = 1

    @property
    def is_several(self) -> bool:
        """Whether the module sees more than one input."""
        return self.calls > 1 or self.is_batched


class _Marked(AbstractStandIn):
    """A module that marks every call in the traced program; a variational one uses its mean."""

    layer: Any
    place: int = eqx.field(static=True)

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        def mark(arrays: list[Array]) -> list[Array]:
            return arrays

        arrays, rest = eqx.partition(x, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        leaves = leaves or [jnp.zeros(())]
        mark.__name__ = "_".join([_MARK, str(self.place), *(f"{leaf.ndim}_{leaf.size}" for leaf in leaves)])
        marked = jax.jit(mark)(leaves)[: structure.num_leaves]
        return self.layer(eqx.combine(structure.unflatten(marked), rest))


def is_variational(node: object) -> bool:
    """Whether a node of a pytree is a variational module."""
    return isinstance(node, AbstractVariational)


def has_posterior(network: PyTree) -> bool:
    """Whether a pytree contains a variational module."""
    return any(map(is_variational, jax.tree.leaves(network, is_leaf=is_variational)))


def is_local(node: object) -> TypeGuard[AbstractLocal]:
    """Whether a node of a pytree is a module that draws its outputs instead of its weights."""
    return isinstance(node, AbstractLocal) and node.is_local


def require_network(owner: str, network: PyTree) -> None:
    """Raise TypeError for a plain position: arrays without any module that has a posterior or can be called."""
    nodes = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, eqx.Module))
    if not callable(network) and not any(isinstance(node, eqx.Module) for node in nodes):
        raise TypeError(
            f"{owner}: expected a network, or a posterior over a position, found {_checks.described(network)}; for "
            "a posterior over it use vi.GaussianOver(position)."
        )


def seeded(network: PyTree, key: PRNGKey) -> Any:
    """Give every variational module of a network its own key.

    Valid for one example. A layer that one example passes through several times (``jax.vmap(layer)`` over the tokens of
    a text, a loop) must draw its weights instead of its outputs: pass ``local=False`` to mean-field layers.
    :func:`geodax.vi.fit` and :func:`geodax.vi.predict` handle this automatically.

    Args:
        network: An Equinox module, or any pytree that contains such modules.
        key: A PRNG key.

    Returns:
        The network; its variational modules draw their weights when called without keys.
    """
    return _replace(network, key, lambda _, node, key: Seeded(node, key))


def draw(network: PyTree, key: PRNGKey, share: Any = None, num_shares: int = 1) -> Any:
    """Draw the position at which a log likelihood is evaluated from a variational posterior.

    Args:
        network: A network that contains variational modules, or a posterior over a whole position.
        key: A PRNG key.
        share: As for :class:`Rows`.
        num_shares: As for :class:`Rows`.

    Returns:
        A :class:`Rows` of the network, in which posteriors over whole positions (:class:`AbstractWhole`) are drawn once
        for all rows; if there are no variational modules but such posteriors, the drawn network or position.
    """
    if isinstance(network, AbstractWhole):
        return network.sample(key)
    key_whole, key_rows = jax.random.split(key)

    def drawn(_: int, node: AbstractVariational, key: PRNGKey) -> Any:
        return node.sample(key) if isinstance(node, AbstractWhole) else node

    network = _replace(network, key_whole, drawn)
    return Rows(network, key_rows, share, num_shares) if has_posterior(network) else network


def total_kl(network: PyTree, *, key: PRNGKey | None = None) -> Scalar:
    """Sum the divergences of all variational modules of a network.

    Args:
        network: An Equinox module, or any pytree that contains such modules.
        key: PRNG key for estimated divergences (flows); None if all are exact.

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
    """Modules that draw their outputs, by their index among the nodes of a network."""
    nodes = jax.tree.leaves(network, is_leaf=is_variational)
    return {i: node for i, node in enumerate(nodes) if is_local(node)}


def _has_joint(network: PyTree) -> bool:
    return any(node.is_joint for node in _local(network).values())


def _uses_of_a_row(network: PyTree, x: Array) -> dict[int, Use]:
    row = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    return _uses(network, lambda network, row: network(row), row)


def _uses(network: PyTree, call: Callable[..., Any], *args: Any) -> dict[int, Use]:
    return uses(network, is_variational, is_local, call, *args)


def uses(
    network: PyTree,
    is_node: Callable[[Any], bool],
    is_marked: Callable[[Any], bool],
    call: Callable[..., Any],
    *args: Any,
) -> dict[int, Use]:
    """Find how one example passes through the marked modules of a network, by their index among its nodes.

    The network is traced once more with marked calls, and nothing is computed. The traced program shows how often each
    module is called, in which loops, and with how many axes.

    ``call`` is ``(network, *args) -> outputs`` for one example, from arrays or their shapes and dtypes; ``is_node``
    says whether a node is not flattened further.
    """
    nodes, structure = jax.tree.flatten(network, is_leaf=is_node)
    if not any(map(is_marked, nodes)):
        return {}
    marked = structure.unflatten([_Marked(node, i) if is_marked(node) else node for i, node in enumerate(nodes)])

    def traced(*args: Any) -> tuple[()]:
        call(marked, *args)
        return ()

    found: dict[int, Use] = {}
    _count(jax.make_jaxpr(traced)(*args).jaxpr, 1, found)
    return found


def _count(jaxpr: Any, times: int, uses: dict[int, Use]) -> None:
    for equation in jaxpr.eqns:
        name = equation.params.get("name")
        if isinstance(name, str) and name.startswith(_MARK):
            place, *numbers = map(int, name.removeprefix(_MARK).split("_")[1:])
            there = [variable.aval for variable in equation.invars]
            # forward-mode derivatives are inputs too, and share the weights of their call
            is_batched = [array.ndim for array in there] != numbers[::2]
            _add(uses, place, Use(times, is_batched, sum(array.size for array in there) // max(1, sum(numbers[1::2]))))
            continue
        if equation.primitive.name == "cond":  # only one branch runs
            branches: list[dict[int, Use]] = []
            for branch in equation.params["branches"]:
                branches.append({})
                _count(branch.jaxpr, times, branches[-1])
            for place in set().union(*branches):
                found = [branch[place] for branch in branches if place in branch]
                _add(uses, place, Use(*map(max, zip(*found, strict=True))))
            continue
        inner_times = 2 * times if equation.primitive.name in ("scan", "while") else times
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    _count(inner, inner_times, uses)


def _add(uses: dict[int, Use], place: int, use: Use) -> None:
    before = uses.get(place, Use(0, False))
    num_inputs = max(before.num_inputs, use.num_inputs)
    uses[place] = Use(before.calls + use.calls, before.is_batched or use.is_batched, num_inputs)


def _require_one_use(network: PyTree, uses: dict[int, Use], *, is_function: bool) -> None:
    """Raise ValueError if a module that draws its value at one input is applied to several."""
    for i, node in _local(network).items():
        use = uses.get(i, Use(0, False))
        if node.is_joint and (use.calls > 1 if is_function else use.is_several):
            found = "in several calls or in a loop" if use.calls > 1 else "under jax.vmap"
            raise ValueError(
                f"vi: {type(node).__name__} draws its value at one input, but the network applies it to several inputs "
                f"of one example, {found}, and these values are dependent. "
                + ("Call it once; " if is_function else "Apply it to one input of each example; ")
                + "gx.nn.RandomFeatureGP draws weights and may be applied any number of times."
            )


def _replace(network: PyTree, key: PRNGKey, function: Callable[[int, Any, PRNGKey], Any]) -> Any:
    nodes, structure = jax.tree.flatten(network, is_leaf=is_variational)
    return structure.unflatten(
        [
            function(i, node, jax.random.fold_in(key, i)) if is_variational(node) else node
            for i, node in enumerate(nodes)
        ]
    )
