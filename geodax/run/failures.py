"""What the errors about non-finite values say of their cause: the data, the start or the step size."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _tree
from geodax._types import Array, PyTree
from geodax._wording import LABELS, argument
from geodax.run import hosts
from geodax.run.advance import Sampler, description_of
from geodax.run.feeding import Feed
from geodax.run.split import Split
from geodax.run.starts import starting_positions

_LARGE = 30.0  # root mean square of data that are not standardised


def cause_of(
    algorithm: Sampler, feed: Feed | None, where: tuple, split: Split | None, chain_keys: Array, chain: int, at: int
) -> str:
    """Say why a chain is no longer finite at an iteration; ``where`` has the arguments of `starting_positions`."""
    description = description_of(algorithm)
    settings, densities = dict(description.settings), dict(description.densities)
    examples, when, batches = (), "", [None]
    if feed is not None:
        examples, when = feed.examples, ", with the batch of that iteration"
        batches = _batches_of(feed, chain_keys[chain], at, getattr(algorithm, "num_batches", 1))
    if "training score" in densities:  # it need not have a gradient
        score = densities["training score"]
        densities["training score"] = lambda position, batch: score(jax.lax.stop_gradient(position), batch)
    named = [name for name in ("log density", "training objective", "training score") if name in densities]
    if named and split is None and not hosts.is_several():
        position = jax.tree.map(lambda x: x[chain], starting_positions(algorithm, *where))
        for name in named:
            if not all(is_defined(densities[name], position, batch) for batch in batches):
                return from_the_start(name, when, examples)
    undefined = (
        "a log density that is undefined where the chain went or grows without bound, as with a loss in place of a log "
        "likelihood"
    )
    if description.owner == "train_ensemble" or at < settings.get("num_training", 0):
        advice = f"a learning rate that is too large (try a third of it), or {undefined}"
    elif settings.get("step_size", 0) is None:  # found in warm-up
        advice = (
            f"{undefined}, or much more curved there than where warm-up found the step size (then give a smaller "
            f"{argument('step_size')}), or so flat that it found none"
        )
    else:
        advice = f"a step size that is too large for the curvature (try a third of it), or {undefined}"
    return f"{suspected(examples)}The usual cause is {advice}.{of_large_numbers(examples)}"


def from_the_start(what: str, when: str, examples: PyTree) -> str:
    """Say that a function is not finite at the initial position, and that its data are the usual cause."""
    return (
        f"The {what} or its gradient is not finite even at the start{when}, so no smaller step would help. "
        f"{usual_cause(examples)}"
    )


def usual_cause(examples: PyTree) -> str:
    """Say what is wrong with the data, or usually is."""
    usual = f"The usual cause is the data: {LABELS}, counts whole and not negative, and all numbers finite."
    return suspected(examples).rstrip() or usual


def suspected(examples: PyTree) -> str:
    """Say where the examples are NaN or infinite; empty if they are finite."""
    for name, leaf in _tree.named_leaves(examples, "the array"):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and getattr(leaf, "is_fully_addressable", True):
            is_bad = ~np.isfinite(np.asarray(leaf))
            if is_bad.any():
                rows = np.flatnonzero(is_bad.reshape(len(leaf), -1).any(axis=1))
                return (
                    f"The data have NaN or infinity in {len(rows)} of {len(leaf)} examples ({name}), first in "
                    f"{rows[0]}: the likely cause, unless the log likelihood masks them. "
                )
    return ""


def of_large_numbers(examples: PyTree) -> str:
    """Say which of the examples are far from standardised; empty if none is."""
    for name, leaf in _tree.named_leaves(examples, "the array"):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and getattr(leaf, "is_fully_addressable", True):
            size = float(np.sqrt(np.mean(np.square(np.asarray(leaf, np.float64)))))
            if size > _LARGE:
                return (
                    f" The numbers of the data ({name}) have the root mean square {size:.3g}; standardised inputs and "
                    "targets, with 1, suit the usual step sizes and priors."
                )
    return ""


def is_defined(function: Callable[[Any, Any], Any], position: PyTree, batch: PyTree) -> bool:
    """Whether a function of position and batch and its gradient are finite."""
    found = jax.jit(jax.value_and_grad(function))(position, batch)
    return bool(_tree.is_finite(found))


def _batches_of(feed: Feed, key: Array, at: int, count: int) -> list[PyTree]:
    """The batches of a chain in an iteration, each of them once the first, at which densities look."""
    drawn = feed.of_chain(feed.load(at, at + 1), key, at)
    return [drawn] + [jax.tree.map(lambda x, i=i: jnp.roll(x, -i, axis=0), drawn) for i in range(1, count)]
