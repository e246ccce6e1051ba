r"""Control variates: minibatch gradients whose noise vanishes at a centre.

With the gradient of the full likelihood at a centre c (a mode found by training) the log likelihood :math:`l_i` of each
example is replaced by

.. math::
    l_i(\theta) - l_i(c) - \langle \nabla l_i(c), \theta - c \rangle
    + \tfrac{1}{N} \Big( L(c) + \langle \nabla L(c), \theta - c \rangle \Big), \qquad L = \sum_i l_i,

which has the same sum over the data. So every batch still estimates the log density and its gradient without bias, but
the noise is of second order in :math:`\theta - c` (Baker, Fearnhead, Fox and Nemeth 2019).
"""

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree
from geodax.posterior import Posterior


def control_variates(posterior: Posterior, center: Position, data: PyTree, *, chunk_size: int = 1000) -> Posterior:
    """Add control variates around a centre to a posterior.

    Args:
        posterior: The posterior.
        center: The centre, near the mode, with Euclidean floating-point leaves only.
        data: All the data, arrays whose first axis runs over the examples (scalars are passed on unchanged).
        chunk_size: Number of examples whose gradients are computed at a time.

    Returns:
        A posterior with the same full density; a batch costs two evaluations instead of one.

    Raises:
        TypeError: If a leaf of the centre is not a real floating-point array, or ``chunk_size`` is not an integer.
        ValueError: If the data do not have ``num_data`` examples, ``chunk_size`` is not positive, or the centre is
            split over devices.
    """
    chunk_size = _checks.whole("control_variates", "chunk_size", chunk_size)
    for name, leaf in zip(_tree.leaf_names(center, "center"), jax.tree.leaves(center), strict=True):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"control_variates: the centre must hold arrays of real floating-point numbers, with respect to which "
                f"gradients are taken, found {_checks.described(leaf)} as {name}. Convert it, for instance by "
                "jnp.asarray(x, float)."
            )
        if isinstance(leaf, jax.Array) and not leaf.sharding.is_fully_replicated:
            raise ValueError(
                f"control_variates: {name} is split over devices, but the centre and its gradient are kept whole on "
                "every device. Give a centre on one device, or leave the control variates out."
            )
    num_data = posterior.num_data
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(data) if jnp.ndim(leaf)}
    if sizes != {num_data}:
        raise ValueError(
            f"control_variates: expected the full data, num_data = {num_data} examples along the first axis of each "
            f"array, found {sorted(sizes)}."
        )
    of_chunk = jax.jit(jax.value_and_grad(lambda position, batch: jnp.sum(posterior.log_likelihood(position, batch))))

    def chunk(first: int) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[first : first + chunk_size] if jnp.ndim(leaf) else leaf, data)

    parts = [of_chunk(center, chunk(first)) for first in range(0, num_data, chunk_size)]
    total = sum((value for value, _ in parts[1:]), start=parts[0][0])
    slope = jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *[gradient for _, gradient in parts])

    def log_likelihood(position: Position, batch: PyTree) -> Array:
        away = _tree.subtract(position, center)
        here = posterior.log_likelihood(position, batch)
        there, along = jax.jvp(lambda c: posterior.log_likelihood(c, batch), (center,), (away,))
        return here - there - along + (total + _tree.dot(slope, away)) / num_data

    return Posterior(log_prior=posterior.log_prior, log_likelihood=log_likelihood, num_data=num_data)
