r"""Curvature of a network with respect to its inputs (Srinivas et al. 2022).

For an example with the loss :math:`f(x) = -\log p(y \mid x)`,

.. math::
    \mathcal{C}(x) = \frac{\lVert \nabla_x^2 f(x) \rVert_2}{\lVert \nabla_x f(x) \rVert_2 + \epsilon},

the spectral norm over the Euclidean norm, with :math:`\epsilon = 10^{-6}` as in the authors' code. The mean over
examples is the curvature :math:`\mathcal{C}(\theta)` of a network; its mean over draws measures how curved the sampled
functions are. The spectral norm is estimated by the length of a Hessian-vector product after power iteration, which
approaches it from below.

Source:
    Srinivas, Matoba, Lakkaraju and Fleuret (2022), Efficient training of low-curvature neural networks. NeurIPS.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, Position, PRNGKey, PyTree
from geodax.nn.likelihoods import CategoricalLikelihood


class InputCurvature(NamedTuple):
    """Curvature at each example.

    Attributes:
        curvature: Ratio of ``hessian_norm`` to ``gradient_norm + epsilon``.
        hessian_norm: Spectral norm of the Hessian of the loss with respect to the input.
        gradient_norm: Euclidean norm of the gradient.
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
    """Compute the curvature of each example's loss with respect to its input.

    Args:
        position: The parameters; by default a network that takes one example.
        batch: Inputs and labels.
        key: PRNG key for the initial directions of the power iterations.
        log_likelihood: ``(position, (x, y)) -> (B,)``; None for classification.
        num_iterations: Number of power iterations.
        epsilon: Added to the gradient's norm. Where a network is confident, gradients are smaller than that and the
            mean curvature depends on epsilon: compare only results with equal epsilon.

    Returns:
        One number per example; the mean over examples is the curvature of the network.
    """
    num_iterations = _checks.whole("input_curvature", "num_iterations", num_iterations)
    likelihood = CategoricalLikelihood() if log_likelihood is None else log_likelihood

    def one(key: PRNGKey, x: Array, y: Array) -> InputCurvature:
        slope = jax.grad(lambda x: -likelihood(position, (x[None], y[None]))[0])
        gradient, product = jax.linearize(slope, x)

        def advance(_: Array, u: Array) -> Array:
            image = product(u)
            length = jnp.linalg.norm(image)
            return jnp.where(length > 0, image / jnp.where(length > 0, length, 1.0), u)

        start = jax.random.normal(key, x.shape, x.dtype)
        direction = jax.lax.fori_loop(0, num_iterations, advance, start / jnp.linalg.norm(start))
        hessian_norm, gradient_norm = jnp.linalg.norm(product(direction)), jnp.linalg.norm(gradient)
        return InputCurvature(hessian_norm / (gradient_norm + epsilon), hessian_norm, gradient_norm)

    x, y = batch
    return jax.vmap(one)(jax.random.split(key, x.shape[0]), x, y)
