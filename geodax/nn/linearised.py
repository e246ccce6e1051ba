"""A network that is linear in its parameters around trained ones."""

from typing import Any

import equinox as eqx
import jax

from geodax import _tree
from geodax._types import PRNGKey, PyTree
from geodax.nn.likelihoods import WithCutPoints, WithNoise


class Linearised(eqx.Module):
    r"""A network :math:`f` linearised in its parameters at trained ones, evaluated at others.

    Its outputs are :math:`f(x; \hat\theta) + J(x; \hat\theta) (\theta - \hat\theta)`: the functions to which the draws
    :math:`\theta` of a Laplace approximation belong.

    Attributes:
        mode: The trained network, with parameters :math:`\hat\theta`.
        drawn: A network of the same structure with parameters :math:`\theta`.
    """

    mode: PyTree
    drawn: PyTree

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Compute the outputs for one example; the network is called without a key."""
        moving, fixed = eqx.partition(self.mode, eqx.is_inexact_array)
        step = _tree.subtract(eqx.filter(self.drawn, eqx.is_inexact_array), moving)
        y, change = jax.jvp(lambda moving: eqx.combine(moving, fixed)(x), (moving,), (step,))
        return y + change


def linearised(mode: Any, drawn: Any) -> Any:
    """Linearise a network at trained parameters; noise and cut points stay outside, and have to be the same in both."""
    if isinstance(mode, WithNoise | WithCutPoints):
        return eqx.tree_at(lambda node: node.network, mode, Linearised(mode.network, drawn.network))
    return Linearised(mode, drawn)
