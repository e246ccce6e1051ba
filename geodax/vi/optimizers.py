r"""Adam, as a pair of functions with optax's interface; optax optimisers also work.

.. math::
    m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \qquad
    \theta \leftarrow \theta - \ell_t \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} .

In half precision :math:`\beta_2` rounds to 1 and small squared gradients to 0: moments are kept in single precision.

Source:
    Kingma and Ba (2015), Adam: a method for stochastic optimization. ICLR.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, PyTree, Scalar, Schedule


@runtime_checkable
class Optimizer(Protocol):
    """Any object with optax's ``init(params)`` and ``update(gradients, state, params) -> (updates, state)``."""

    @property
    def init(self) -> Any:
        """``params -> state``."""
        ...

    @property
    def update(self) -> Any:
        """``(gradients, state, params) -> (updates, state)``; updates are added to the parameters."""
        ...


def require_optimizer(owner: str, optimizer: Any) -> None:
    """Raise TypeError unless it has functions ``init`` and ``update``."""
    if not all(callable(getattr(optimizer, name, None)) for name in ("init", "update")):
        raise TypeError(
            f"{owner}: the optimizer must have functions init and update, as optax's have, found "
            f"{_checks.described(optimizer)}."
        )


class Transformation(NamedTuple):
    """An optimiser."""

    init: Any
    update: Any


class AdamState(NamedTuple):
    """Moving averages of gradients and of their squares, in at least single precision, and the number of updates."""

    mean: PyTree
    square: PyTree
    count: Array


def adam(learning_rate: Schedule, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Transformation:
    """Create the Adam optimiser.

    Args:
        learning_rate: A function of the update index, from 0.
        beta1: Decay rate of the average of gradients.
        beta2: Decay rate of the average of squared gradients.
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
    """Round parameters kept in single precision to the half-precision dtypes of the arrays (or dtypes) they represent.

    Steps are often smaller than half a unit in the last place in half precision and would be lost by direct addition.
    """

    def leaf(a: Array, kind: Any) -> Array:
        dtype = getattr(kind, "dtype", kind)
        return a.astype(dtype) if jnp.finfo(dtype).bits < 32 else a

    return jax.tree.map(leaf, wide, like)


def update_function(
    owner: str, optimizer: Optimizer, params: PyTree
) -> Callable[[PyTree, Any, PyTree, Scalar], tuple[PyTree, Any]]:
    """Return an optimiser's ``(gradients, state, params, value) -> (updates, state)``, with the arguments it needs.

    Optax optimisers with extra arguments receive ``value``, the loss, and ``grad``. Raises TypeError for others, as a
    line search requires ``value_fn``.
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
            f"{owner}: the optimizer requires more than gradients, value and grad ({error}). A line search compares "
            "values of one function, but every step here has its own random draws; use an optimiser with a learning "
            "rate, such as optax.adam(1e-3)."
        ) from error
    return update


def _extra_arguments(update: Callable) -> tuple[str, ...]:
    kinds = inspect.Parameter
    parameters = inspect.signature(update).parameters
    if any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters.values()):
        return "value", "grad"
    named = {name for name, parameter in parameters.items() if parameter.kind is kinds.KEYWORD_ONLY}
    return tuple(name for name in ("value", "grad") if name in named)
