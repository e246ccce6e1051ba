r"""Control variates: minibatch gradients whose noise vanishes at a centre.

With the gradient of the full likelihood at a centre c (a mode found by training) the log likelihood :math:`l_i` of each
example is replaced by

.. math::
    l_i(\theta) - l_i(c) - \langle \nabla l_i(c), \theta - c \rangle
    + \tfrac{1}{N} \Big( L(c) + \langle \nabla L(c), \theta - c \rangle \Big), \qquad L = \sum_i l_i,

which has the same sum over the data. So every batch still estimates the log density and its gradient without bias, but
the noise is of second order in :math:`\theta - c` (Baker, Fearnhead, Fox and Nemeth 2019).
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _tree
from geodax._types import Array, Description, Position, PyTree, SamplingAlgorithm, Scalar
from geodax.data.minibatches import require_no_batches
from geodax.posterior import Posterior

F = TypeVar("F", bound=Callable[..., SamplingAlgorithm])


class Controlled(eqx.Module):
    """The log likelihoods of examples with control variates.

    Attributes:
        slope: Gradient of the log likelihood of all data at the centre.
        total: The log likelihood there.
    """

    posterior: Posterior
    center: Position
    slope: PyTree
    total: Scalar

    def __call__(self, position: Position, batch: PyTree) -> Array:
        """Compute the log likelihood of each example of a batch."""
        away, likelihood = _tree.subtract(position, self.center), self.posterior.log_likelihood
        there, along = jax.jvp(lambda c: likelihood(c, batch), (self.center,), (away,))
        of_all = (self.total + _tree.dot(self.slope, away)) / self.posterior.num_data
        return likelihood(position, batch) - there - along + of_all


def control_variates(posterior: Posterior, center: Position, data: PyTree, *, chunk_size: int = 1000) -> Posterior:
    """Add control variates around a centre to a posterior.

    Args:
        posterior: The posterior.
        center: The centre, near the mode, with Euclidean floating-point leaves only. Leaves that are split over devices
            (:func:`geodax.shard`) stay split, and those of the gradient with them.
        data: All the data, arrays whose first axis runs over the examples (scalars are passed on unchanged).
        chunk_size: Number of examples whose gradients are computed at a time.

    Returns:
        A posterior with the same full density; a batch costs two evaluations instead of one.

    Raises:
        TypeError: If a leaf of the centre is not a real floating-point array, ``chunk_size`` is not an integer, or the
            data are batches or lists.
        ValueError: If the data do not have ``num_data`` examples, or ``chunk_size`` is not positive.
    """
    chunk_size = _checks.whole("control_variates", "chunk_size", chunk_size)
    for name, leaf in _tree.named_leaves(center, "center"):
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"control_variates: the centre must hold arrays of real floating-point numbers, with respect to which "
                f"gradients are taken, found {_checks.described(leaf)} as {name}. Convert it, for instance by "
                "jnp.asarray(x, float)."
            )
    require_no_batches("control_variates", data)
    _checks.arrays("control_variates", "data", data)
    num_data = posterior.num_data
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(data) if jnp.ndim(leaf)}
    if sizes != {num_data}:
        raise ValueError(
            f"control_variates: expected the full data, num_data = {num_data} examples along the first axis of each "
            f"array, found {sorted(sizes)}."
        )
    is_split = any(map(_tree.is_split, jax.tree.leaves(center)))

    def summed(position: Position, batch: PyTree) -> Scalar:
        return jnp.sum(posterior.log_likelihood(position, batch))

    places = (None, jax.tree.map(lambda leaf: leaf.sharding, center)) if is_split else None
    of_chunk = jax.jit(jax.value_and_grad(summed), out_shardings=places)

    def chunk(first: int) -> PyTree:
        rows = jax.tree.map(lambda leaf: leaf[first : first + chunk_size] if jnp.ndim(leaf) else leaf, data)
        return jax.tree.map(np.asarray, rows) if is_split else rows  # every device may take it

    parts = [of_chunk(center, chunk(first)) for first in range(0, num_data, chunk_size)]
    total = sum((value for value, _ in parts[1:]), start=parts[0][0])
    slope = jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *[gradient for _, gradient in parts])
    return Posterior(
        log_prior=posterior.log_prior,
        log_likelihood=Controlled(posterior, center, slope, jnp.asarray(np.asarray(total))),
        num_data=num_data,
        num_micro_batches=posterior.num_micro_batches,
    )


def with_arrays(make: F) -> F:
    """A constructor of a sampler that names centre and slope of control variates as arrays beside the position.

    So :func:`geodax.sample` passes them to its programs, where they are split like the position. Captured, they would
    be constants that every device holds whole.
    """

    @functools.wraps(make)
    def made(posterior: Any, **settings: Any) -> SamplingAlgorithm:
        algorithm = make(posterior, **settings)
        found = posterior.log_likelihood if isinstance(posterior, Posterior) else None
        if not isinstance(found, Controlled):
            return algorithm

        def bind(center: Position, slope: PyTree) -> SamplingAlgorithm:
            controlled = Controlled(found.posterior, center, slope, found.total)
            return make(eqx.tree_at(lambda p: p.log_likelihood, posterior, controlled), **settings)

        description = cast(Description, algorithm.description)
        return algorithm._replace(description=description._replace(bind=bind, arrays=(found.center, found.slope)))

    return cast(F, made)
