"""Warnings where a log likelihood cannot be one: if it depends on the other examples of a batch, or is too large."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _tree
from geodax._types import Array, PyTree
from geodax.data.minibatches import Batches
from geodax.run.feeding import Feed
from geodax.run.programs import compiled

_CHANGE = 1e-3  # relative, beyond rounding
_MOST_LOG_DENSITY = 100.0  # of a number, where the smallest positive one in single precision is e^-103


def warn_if_examples_mix(
    owner: str, log_likelihood: Callable[[Any, PyTree], Array], num_data: int, feed: Feed, position: PyTree
) -> None:
    """Compare the likelihoods of half a batch beside two different other halves, at a position.

    A batch of all data is not looked at: there the sum is a likelihood of the data whatever its terms are.
    """
    size = feed.batch_size
    if not 2 <= size < num_data:
        return
    source, half = _source(feed), size // 2
    if isinstance(source, Batches):
        others = np.arange(source.num_data - size + half, source.num_data)
    else:
        others = np.arange(size - half) % half
    rows = np.stack([np.arange(size), np.concatenate([np.arange(half), others])])

    def likelihoods(position: PyTree, source: PyTree, rows: Array) -> Array:
        def of_rows(rows: Array) -> Array:
            return log_likelihood(position, _batch(source, rows))[:half]

        return jax.lax.map(of_rows, rows)

    found = compiled(likelihoods, position, source, rows, num_passes=1)(position, source, rows)
    one, other = np.asarray(_tree.widened(found))
    with np.errstate(invalid="ignore"):
        change = np.isfinite(one) & ~(np.abs(one - other) <= _CHANGE * (1 + np.abs(one)))
    if change.any():
        place = int(np.argmax(change))
        _checks.warn(
            f"{owner}: the log likelihood of an example depends on the others of its batch: "
            f"that of example {place} is {one[place]:.4g}, and {other[place]:.4g} beside others. Batches then have no "
            "common posterior. Usual causes: statistics of the batch, as in batch normalisation that is not frozen, "
            "and arrays of shapes (B,) and (B, 1) that are combined to (B, B)."
        )


def warn_if_likely_a_loss(owner: str, mean: float, feed: Feed, again: Callable[[], float] | None = None) -> None:
    """Warn if the mean log likelihood of an example is more than data in single precision can have.

    Where ``mean`` includes a log prior, which can be large, ``again`` computes it alone.
    """
    numbers = sum(leaf.size / leaf.shape[0] for leaf in jax.tree.leaves(feed.examples) if leaf.ndim)
    largest = _MOST_LOG_DENSITY * numbers
    if not numbers or not mean > largest:
        return
    mean = mean if again is None else again()
    if mean > largest:
        _checks.warn(
            f"{owner}: the log likelihood is {mean:.3g} an example, more than densities of {numbers:g} numbers can "
            "be. A usual cause is a loss in place of a log likelihood, which has the other sign."
        )


def mean_of_batch(log_likelihood: Callable[[Any, PyTree], Array], feed: Feed, position: PyTree) -> float:
    """Return the mean log likelihood of the examples of a batch."""
    batch = _batch(_source(feed), jnp.arange(feed.batch_size))
    return float(jnp.mean(_tree.widened(log_likelihood(position, batch))))


def _source(feed: Feed) -> PyTree:
    return feed.examples if feed.longest is not None else feed.load(0, 0)


def _batch(source: PyTree, rows: Array) -> PyTree:
    if isinstance(source, Batches):
        return source.gather(jax.random.key(0), jnp.int32(0), rows)
    return jax.tree.map(lambda x: x[rows] if jnp.ndim(x) else x, source)
