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
        num_micro_batches: Number of parts of a batch whose gradients are computed one after the other and added up, so
            that memory holds the activations of one part. The log density is the same up to rounding.
        checkpoint_activations: Whether the backward pass computes the activations of the likelihood again instead of
            keeping them. Finer choices are those of ``jax.checkpoint`` within the likelihood.
        compute_dtype: Half-precision dtype to which the likelihood's floating-point inputs (position and batch) are
            rounded, such as ``jnp.bfloat16``; the position itself, gradients and sums keep their precision. None rounds
            nothing.
    """

    log_prior: Callable[[Position], Scalar]
    log_likelihood: Callable[[Position, PyTree], Array]
    num_data: int = eqx.field(static=True)
    num_micro_batches: int = eqx.field(static=True, default=1)

    def __init__(
        self,
        *,
        log_prior: Any,
        log_likelihood: Any,
        num_data: Any,
        num_micro_batches: Any = 1,
        checkpoint_activations: bool = False,
        compute_dtype: Any = None,
    ):
        """See the class.

        Raises:
            TypeError: If a density is not a function, a number is not an integer, or the dtype not floating-point.
            ValueError: If a number is less than 1.
        """
        for name, function in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
            _checks.function("Posterior", name, function)
        if compute_dtype is not None:
            log_likelihood = _in_dtype(log_likelihood, _checks.real_dtype("Posterior", compute_dtype))
        self.log_prior = log_prior
        self.log_likelihood = jax.checkpoint(log_likelihood) if checkpoint_activations else log_likelihood
        self.num_micro_batches = _checks.whole("Posterior", "num_micro_batches", num_micro_batches)
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
        total, size = self._sum(position, batch)
        return prior + (self.num_data / size) * total.astype(prior.dtype)

    def likelihoods(self, position: Position, batch: PyTree) -> Array:
        """Return ``log_likelihood(position, batch)``, with its shape checked.

        Raises:
            TypeError: If these are not real floating-point numbers.
            ValueError: If there is not one number for each example of the batch.
        """
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
                f"shape {values.shape}{_many_axes(values.shape)}."
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

    def _sum(self, position: Position, batch: PyTree) -> tuple[Scalar, int]:
        """Sum of the log likelihoods of a batch, and their number."""

        def total(rows: PyTree) -> Scalar:
            return jnp.sum(_tree.widened(self.likelihoods(position, rows)))

        count, sizes = self.num_micro_batches, dict(_first_axes(batch))
        if count == 1 or not sizes:
            likelihoods = self.likelihoods(position, batch)
            return jnp.sum(_tree.widened(likelihoods)), likelihoods.size
        for name, size in sizes.items():
            if size % count != 0:
                raise ValueError(
                    f"Posterior: {name} has {size} examples of a batch, or of a device's part of it, which cannot be "
                    f"divided evenly among num_micro_batches={count}."
                )
        leaves, structure = jax.tree.flatten(batch)
        arrays = [x.reshape(count, -1, *x.shape[1:]) for x in leaves if jnp.ndim(x)]

        def of_part(arrays: list[Array]) -> Scalar:
            rest = iter(arrays)
            return total(structure.unflatten([next(rest) if jnp.ndim(x) else x for x in leaves]))

        # the backward pass of a loop adds up the gradients of its passes
        return jnp.sum(jax.lax.map(jax.checkpoint(of_part), arrays)), max(sizes.values())


def _many_axes(shape: tuple[int, ...]) -> str:
    if len(shape) == 2 and shape[0] == shape[1] > 1:
        return (
            ". If B is that number, arrays of shapes (B, 1) and (B,) were combined to (B, B), such as outputs and "
            "targets: give both the same shape. If not, sum over all axes but the first"
        )
    return "; sum over all axes but the first"


def _in_dtype(log_likelihood: Callable[[Position, PyTree], Array], dtype: Any) -> Callable[[Position, PyTree], Array]:
    def rounded(x: Any) -> Any:
        return x.astype(dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    def of_rounded(position: Position, batch: PyTree) -> Array:
        values = jnp.asarray(log_likelihood(*jax.tree.map(rounded, (position, batch))))
        return _tree.widened(values)

    return of_rounded


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
