r"""Laplace approximation of the posterior of a trained network's last layer.

With the other layers fixed, the posterior of the last layer's parameters :math:`\theta` is approximated by a normal
distribution at :math:`\hat\theta` whose precision is minus the Hessian there,

.. math::
    \Lambda = - \sum_{i=1}^N \nabla^2_\theta \log p(y_i \mid \hat\theta) + \lambda^{-1} I .

For a linear last layer with a normal or a categorical likelihood the Hessian is the generalised Gauss-Newton matrix, so
the precision is positive definite wherever training stopped.

Source:
    Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), Laplace redux. NeurIPS.
"""

import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._types import Array, PyTree
from geodax.vi.families import FullGaussian
from geodax.vi.positions import GaussianOver


def last_layer_laplace(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    data: PyTree,
    *,
    where: Callable[[PyTree], Any],
    prior_variance: float = 1.0,
    batch_size: int = 512,
) -> Any:
    """Replace the last layer of a trained network by a Gaussian posterior over it.

    Args:
        network: A network trained to the posterior mode, at least of its last layer.
        log_likelihood: ``(position, batch) -> (B,)``.
        data: Arrays whose first axis indexes the examples.
        where: Selects the layer: ``lambda network: network.layers[-1]``.
        prior_variance: Variance of the normal prior of every parameter of the layer.
        batch_size: Number of examples whose Hessian is computed at a time.

    Returns:
        The network with a :class:`~geodax.vi.GaussianOver` as its last layer, for :func:`geodax.vi.predict`.

    Raises:
        TypeError: If ``batch_size`` is not an integer.
        ValueError: If the log likelihood or an array of the data does not have one entry for each example, or the
            precision is not positive definite, which can happen away from a mode if the Hessian of the likelihood is
            not a Gauss-Newton matrix.
    """
    batch_size = _checks.whole("last_layer_laplace", "batch_size", batch_size)
    over = GaussianOver(where(network), prior_variance=prior_variance)
    mean = over.family.location
    data = jax.tree.map(jnp.asarray, data)
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            "last_layer_laplace: expected arrays with equal numbers of examples along their first axis, found "
            f"{sorted(sizes)}."
        )
    num_data = sizes.pop()

    @jax.jit
    def hessian(theta: Array, batch: PyTree) -> Array:
        def total(theta: Array) -> Array:
            values = log_likelihood(eqx.tree_at(where, network, over.position(theta)), batch)
            rows = jax.tree.leaves(batch)[0].shape[:1]
            if values.shape != rows:
                raise ValueError(
                    f"last_layer_laplace: log_likelihood must return one number for each of the {rows[0]} examples of "
                    f"a batch, neither summed nor averaged, found shape {values.shape}."
                )
            return jnp.sum(values)

        return jax.hessian(total)(theta)

    precision = jnp.eye(mean.size, dtype=mean.dtype) / over.prior_variance
    for start in range(0, num_data, batch_size):
        rows = slice(start, start + batch_size)
        precision = precision - hessian(mean, jax.tree.map(operator.itemgetter(rows), data))
    # the flipped inverse Cholesky factor is a Cholesky factor of the inverse
    flipped = jnp.linalg.cholesky(precision[::-1, ::-1])
    if not bool(jnp.isfinite(flipped).all()):
        raise ValueError(
            "last_layer_laplace: the precision is not positive definite. Train the last layer to its mode, or use a "
            "likelihood that is log-concave in the network's outputs."
        )
    root = jax.lax.linalg.triangular_solve(
        flipped[::-1, ::-1].T, jnp.eye(mean.size, dtype=mean.dtype), left_side=True, lower=True
    )
    family = FullGaussian(mean, jnp.log(jnp.diagonal(root)), jnp.tril(root, -1))
    return eqx.tree_at(where, network, eqx.tree_at(lambda tree: tree.family, over, family))
