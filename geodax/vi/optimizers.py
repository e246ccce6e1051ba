r"""Adam, as a pair of functions with optax's protocol; any optax optimiser does as well.

.. math::
    m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \qquad
    \theta \leftarrow \theta - \ell_t \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon} .

Source:
    Kingma and Ba (2015), Adam: a method for stochastic optimization. ICLR.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, PyTree, Schedule


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
    """Moving averages of gradients and of their squares, and the number of updates."""

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
        return AdamState(_tree.zeros_like(params), _tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def update(gradients: PyTree, state: AdamState, params: PyTree | None = None) -> tuple[PyTree, AdamState]:
        del params
        mean = jax.tree.map(lambda m, g: beta1 * m + (1.0 - beta1) * g, state.mean, gradients)
        square = jax.tree.map(lambda v, g: beta2 * v + (1.0 - beta2) * g * g, state.square, gradients)
        count = state.count + 1
        rate = learning_rate(state.count)

        def move(m: Array, v: Array) -> Array:
            t = count.astype(m.dtype)
            m_hat, v_hat = m / (1.0 - beta1**t), v / (1.0 - beta2**t)
            return -rate.astype(m.dtype) * m_hat / (jnp.sqrt(v_hat) + epsilon)

        return jax.tree.map(move, mean, square), AdamState(mean, square, count)

    return Transformation(init, update)
