"""Array aliases and the small protocols that every room of the library agrees on."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Array, Bool, Float, Int, Key, PyTree

PRNGKey: TypeAlias = Key[Array, ""]
Position: TypeAlias = PyTree
Momentum: TypeAlias = PyTree
Scalar: TypeAlias = Float[Array, ""]
LogDensity: TypeAlias = Callable[[Position], Scalar]
Schedule: TypeAlias = Callable[[Int[Array, ""]], Scalar]

__all__ = [
    "Adaptation",
    "Array",
    "Bool",
    "Float",
    "Int",
    "LogDensity",
    "Momentum",
    "PRNGKey",
    "Position",
    "PyTree",
    "SamplingAlgorithm",
    "Scalar",
    "Schedule",
]


class Adaptation(NamedTuple):
    """Warm-up of a sampler: a pair of pure functions beside its ``init`` and ``step``.

    Attributes:
        init: ``state -> adaptation_state``.
        update: ``(rng_key, adaptation_state, state, info, step) -> (adaptation_state, state)``, called after the
            sampler's warm-up iteration number ``step`` (0-based); it writes what it has tuned into the sampler's
            state.
        begin: ``state -> state``, called before the first iteration, or None.

    An adaptation of all chains at once has the same two functions, but ``rng_key``, ``state`` and ``info`` carry a
    leading chain axis there, and there is one adaptation state for all.
    """

    init: Callable[..., Any]
    update: Callable[..., Any]
    begin: Callable[[Any], Any] | None = None


class SamplingAlgorithm(NamedTuple):
    """A Markov chain as a pair of pure functions, the same pair and field names as BlackJAX's.

    Attributes:
        init: ``position -> state``; ``state.position`` always exists.
        step: ``(rng_key, state) -> (state, info)``, with a batch as third argument where ``num_batches`` is positive;
            ``info`` holds scalars only.
        adapt: ``num_warmup -> Adaptation``, or None when nothing is left to be tuned.
        manifold: The geometry of the position (None for an algorithm that knows of none); it lets
            :func:`geodax.sample` check the starting points and report the distance from the manifold.
        adapt_jointly: ``num_warmup -> Adaptation`` of all chains at once, or None. :func:`geodax.sample` prefers it
            with 16 chains or more, and uses it whenever there is no ``adapt``.
        num_batches: Batches of data that an iteration takes; with more than one they are stacked along a leading axis.
        num_data: Examples that the whole data must have, 0 where that is not known or there are no batches.
        densities: Names and functions ``(position, batch) -> scalar`` of what makes the target of an algorithm whose
            states hold no ``logdensity``; the batch is what an iteration takes.
        settings: Names and values of the arguments that the algorithm was made with. By these and the densities
            :func:`geodax.sample` tells whether a checkpoint is of the same sampler and target.
        num_waiting: Iterations at the beginning in which the position stays where it is; a warm-up of
            :func:`geodax.sample` must have them all.
    """

    init: Callable[[Position], Any]
    step: Callable[..., tuple[Any, Any]]
    adapt: Callable[[int], Adaptation] | None = None
    manifold: Any = None
    adapt_jointly: Callable[[int], Adaptation] | None = None
    num_batches: int = 0
    num_data: int = 0
    densities: tuple[tuple[str, Callable[[Position, PyTree], Scalar]], ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    num_waiting: int = 0
