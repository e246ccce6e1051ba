r"""Adam, as a pair of functions with optax's protocol; optimisers of optax do as well.

.. math::
    m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \qquad
    \theta \leftarrow \theta - \ell_t \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} .

In half precision :math:`\beta_2` would be 1 and the square of a small gradient 0: moments are kept in single precision.

Source:
    Kingma and Ba (2015), Adam: a method for stochastic optimization. ICLR.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, PyTree, Scalar, Schedule


@runtime_checkable
class Optimizer(Protocol):
    """Whatever has optax's ``init(params)`` and ``update(gradients, state, params) -> (updates, state)``."""

    @property
    def init(self) -> Any:
        """Parameters to state."""
        ...

    @property
    def update(self) -> Any:
        """Gradients, state and parameters to what is added to the parameters, and the state."""
        ...


class Transformation(NamedTuple):
    """An optimiser."""

    init: Any
    update: Any


class AdamState(NamedTuple):
    """Moving averages of gradients and of their squares, in single precision at least, and the number of updates."""

    mean: PyTree
    square: PyTree
    count: Array


def adam(learning_rate: Schedule, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Transformation:
    """Adam.

    Args:
        learning_rate: A function of the number of the update, from 0.
        beta1: Memory of the gradients' average.
        beta2: Memory of the squares' average.
        epsilon: Added to the root.

    Returns:
        The pair of functions.
    """

    def init(params: PyTree) -> AdamState:
        wide = _tree.widened(params)
        return AdamState(_tree.zeros_like(wide), _tree.zeros_like(wide), jnp.zeros((), jnp.int32))

    def update(gradients: PyTree, state: AdamState, params: PyTree | None = None) -> tuple[PyTree, AdamState]:
        del params
        wide = _tree.widened(gradients)
        mean = jax.tree.map(lambda m, g: beta1 * m + (1.0 - beta1) * g, state.mean, wide)
        square = jax.tree.map(lambda v, g: beta2 * v + (1.0 - beta2) * g * g, state.square, wide)
        count = state.count + 1
        rate = learning_rate(state.count)

        def move(m: Array, v: Array, g: Array) -> Array:
            t = count.astype(m.dtype)
            m_hat, v_hat = m / (1.0 - beta1**t), v / (1.0 - beta2**t)
            step = -rate.astype(m.dtype) * m_hat / (jnp.sqrt(v_hat) + epsilon)
            return step.astype(g.dtype)

        return jax.tree.map(move, mean, square, gradients), AdamState(mean, square, count)

    return Transformation(init, update)


def rounded(wide: PyTree, like: PyTree) -> PyTree:
    """Parameters kept in single precision, in the half precision of the arrays that they stand for.

    Steps are often less than half a unit in the last place of half precision: added to arrays of it they would be lost.

    Args:
        wide: The parameters.
        like: Arrays, or their dtypes, leaf by leaf.

    Returns:
        ``wide``, rounded where ``like`` has less than single precision.
    """

    def leaf(a: Array, kind: Any) -> Array:
        dtype = getattr(kind, "dtype", kind)
        return a.astype(dtype) if jnp.finfo(dtype).bits < 32 else a

    return jax.tree.map(leaf, wide, like)


def update_function(
    owner: str, optimizer: Optimizer, params: PyTree
) -> Callable[[PyTree, Any, PyTree, Scalar], tuple[PyTree, Any]]:
    """An optimiser's update, with what it needs beside the gradients.

    Those of optax's optimisers that take extra arguments are handed ``value``, what is made small, and ``grad``.

    Args:
        owner: Whose argument the optimiser is, for error messages.
        optimizer: The optimiser.
        params: Arrays of the kind it will move.

    Returns:
        ``(gradients, state, params, value) -> (updates, state)``.

    Raises:
        TypeError: If it asks for more, as a line search does for ``value_fn``.
    """
    extra = _extra_arguments(optimizer.update)

    def update(gradients: PyTree, state: Any, params: PyTree, value: Scalar) -> tuple[PyTree, Any]:
        given = {"value": value, "grad": gradients}
        return optimizer.update(gradients, state, params, **{name: given[name] for name in extra})

    try:
        jax.eval_shape(lambda p: update(p, optimizer.init(p), p, jnp.zeros((), _tree.real_dtype(p))), params)
    except TypeError as error:
        if "required keyword-only argument" not in str(error):
            raise
        raise TypeError(
            f"{owner}: the optimizer asks for more than gradients, value and grad ({error}). A search along a line "
            "compares values of one function, but here every step has random draws of its own; take an optimiser with "
            "a learning rate, such as optax.adam(1e-3)."
        ) from error
    return update


def _extra_arguments(update: Callable) -> tuple[str, ...]:
    """Which of value and grad an update function takes by name."""
    kinds = inspect.Parameter
    parameters = inspect.signature(update).parameters
    if any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters.values()):
        return "value", "grad"
    named = {name for name, parameter in parameters.items() if parameter.kind is kinds.KEYWORD_ONLY}
    return tuple(name for name in ("value", "grad") if name in named)
