r"""A posterior: a log prior, a log likelihood for each example, and the number of examples.

For a batch :math:`B` of the :math:`N` examples,

.. math::
    \log\pi_B(\theta) = \log p(\theta) + \frac{N}{|B|} \sum_{i \in B} \log p(y_i \mid \theta),

is an unbiased estimate of the log density up to a constant. This is the only place in the library that rescales a
batch sum to the whole data.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar


class Posterior(eqx.Module):
    """Log prior, log likelihood of each example, number of examples.

    Attributes:
        log_prior: ``position -> scalar``, the log density of the prior with respect to the manifold's uniform measure,
        log_likelihood: ``(position, batch) -> (B,)``, the log likelihood of each example in a batch, neither summed nor
            averaged.
        num_data: Number of examples in the whole data set.
    """

    log_prior: Callable[[Position], Scalar]
    log_likelihood: Callable[[Position, PyTree], Array]
    num_data: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        log_prior: Any,
        log_likelihood: Any,
        num_data: Any,
    ):
        """See the class.

        Raises:
            TypeError: If a density is not a function, or ``num_data`` is not an integer.
            ValueError: If ``num_data`` is less than 1.
        """
        for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
            if not callable(function):
                raise TypeError(f"Posterior: {name} must be a function, found a {type(function).__name__}.")
        self.log_prior = log_prior
        self.log_likelihood = log_likelihood
        self.num_data = _checks.whole("Posterior", "num_data", num_data)

    def logdensity(self, position: Position, batch: PyTree) -> Scalar:
        """Return an unbiased estimate of the log density from one batch.

        Args:
            position: The parameters.
            batch: Arrays whose first axis indexes the examples; scalars are passed through unchanged.

        Returns:
            ``log_prior + N / B * sum(log_likelihood)``.

        Raises:
            TypeError: If a function does not return real floating-point numbers.
            ValueError: If a function returns an array of the wrong shape.
        """
        # half-precision sums overflow or keep only about two digits
        prior = _tree.widened(self._prior(position))
        likelihoods = self._likelihoods(position, batch)
        total = jnp.sum(_tree.widened(likelihoods)).astype(prior.dtype)
        return prior + (self.num_data / likelihoods.size) * total

    def full(self, data: PyTree) -> Callable[[Position], Scalar]:
        """Return the log density of the whole data, for exact samplers and as a reference.

        Args:
            data: Arrays whose first axis indexes all ``num_data`` examples.

        Returns:
            ``position -> log_prior + sum(log_likelihood)``.

        Raises:
            TypeError: If the data contain a list of numbers.
            ValueError: If the data do not have ``num_data`` examples.
        """
        _checks.arrays("Posterior.full", "data", data)
        for name, size in _first_axes(data):
            if size != self.num_data:
                raise ValueError(
                    f"Posterior.full: expected the whole data, num_data = {self.num_data} examples along the first "
                    f"axis, but {name} has {size}."
                )
        return lambda position: self.logdensity(position, data)

    def _prior(self, position: Position) -> Scalar:
        value = jnp.asarray(self.log_prior(position))
        _require_real(value, "log_prior")
        if value.shape != ():
            raise ValueError(
                f"Posterior: log_prior must return a scalar, found an array of shape {value.shape}; sum over the "
                "entries."
            )
        return value

    def _likelihoods(self, position: Position, batch: PyTree) -> Array:
        values = jnp.asarray(self.log_likelihood(position, batch))
        _require_real(values, "log_likelihood")
        if values.ndim == 0:
            raise ValueError(
                "Posterior: log_likelihood returned a scalar, but it must return one number for each example of the "
                "batch, shape (B,). Leave out the sum or mean over the batch: Posterior scales by num_data / B."
            )
        if values.ndim > 1:
            raise ValueError(
                f"Posterior: log_likelihood must return one number for each example of the batch, shape (B,), found "
                f"shape {values.shape}; sum over all axes but the first."
            )
        for name, size in _first_axes(batch):
            if size != values.size:
                raise ValueError(
                    f"Posterior: log_likelihood returned {values.size} numbers for {size} examples ({name} has {size} "
                    "along its first axis); it must return one for each example."
                )
        if values.size == 0:
            raise ValueError("Posterior: the batch is empty.")
        return values


def _first_axes(batch: PyTree) -> list[tuple[str, int]]:
    """Names and sizes of the first axes of a batch's arrays."""
    named = jax.tree_util.tree_flatten_with_path(batch)[0]
    keys = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named]
    return [
        (f"the array {key!r}" if key else "the array", leaf.shape[0])
        for key, (_, leaf) in zip(keys, named, strict=True)
        if getattr(leaf, "ndim", 0) > 0
    ]


def _require_real(value: Array, name: str) -> None:
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"Posterior: {name} must return real floating-point numbers, found dtype {value.dtype}.")
