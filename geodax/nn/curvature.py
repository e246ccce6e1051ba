r"""Curvature of a network in its inputs (Srinivas et al. 2022).

For an example with the loss :math:`f(x) = -\log p(y \mid x)`,

.. math::
    \mathcal{C}(x) = \frac{\lVert \nabla_x^2 f(x) \rVert_2}{\lVert \nabla_x f(x) \rVert_2 + \epsilon},

spectral over Euclidean norm, with :math:`\epsilon = 10^{-6}` as in the authors' program. Its mean over examples is the
:math:`\mathcal{C}(\theta)` of a network, whose mean over draws tells how curved the functions are that a sampler
visits. The spectral norm is the length of a Hessian-vector product after some steps of power iteration; it is
approached from below.

Source:
    Srinivas, Matoba, Lakkaraju and Fleuret (2022), Efficient training of low-curvature neural networks. NeurIPS.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks as _arguments
from geodax._types import Array, Position, PRNGKey, PyTree
from geodax.nn.likelihoods import CategoricalLikelihood


class InputCurvature(NamedTuple):
    """Curvature at each example.

    Attributes:
        curvature: The ratio of the next two.
        hessian_norm: Spectral norm of the Hessian of the loss in the input.
        gradient_norm: Euclidean norm of its gradient.
    """

    curvature: Float[Array, " B"]
    hessian_norm: Float[Array, " B"]
    gradient_norm: Float[Array, " B"]


def input_curvature(
    position: Position,
    batch: tuple[PyTree, Array],
    *,
    key: PRNGKey,
    log_likelihood: Callable[[Position, tuple[Array, Array]], Array] | None = None,
    num_iterations: int = 20,
    epsilon: float = 1e-6,
) -> InputCurvature:
    """Curvature of the loss of each example with respect to its input.

    Args:
        position: The parameters, by default a network of one example.
        batch: Inputs and labels.
        key: Randomness of the directions that the power iterations begin with.
        log_likelihood: ``(position, (x, y)) -> (B,)``; None for classes.
        num_iterations: Steps of power iteration.
        epsilon: Added to the gradient's norm. Where a network is sure of itself gradients are smaller than that, and
            the mean curvature depends on it: compare figures of one epsilon only.

    Returns:
        One number for each example; take the mean over examples for the measure of a network.
    """
    num_iterations = _arguments.whole("input_curvature", "num_iterations", num_iterations)
    likelihood = CategoricalLikelihood() if log_likelihood is None else log_likelihood

    def one(key: PRNGKey, x: Array, y: Array) -> InputCurvature:
        slope = jax.grad(lambda x: -likelihood(position, (x[None], y[None]))[0])
        gradient, product = jax.linearize(slope, x)

        def advance(_: Array, u: Array) -> Array:
            image = product(u)
            length = _length(image)
            return jnp.where(length > 0, image / jnp.where(length > 0, length, 1.0), u)

        start = jax.random.normal(key, x.shape, x.dtype)
        direction = jax.lax.fori_loop(0, num_iterations, advance, start / _length(start))
        hessian_norm, gradient_norm = _length(product(direction)), _length(gradient)
        return InputCurvature(hessian_norm / (gradient_norm + epsilon), hessian_norm, gradient_norm)

    x, y = batch
    return jax.vmap(one)(jax.random.split(key, x.shape[0]), x, y)


def _length(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x))
