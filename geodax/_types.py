"""Array aliases and the small protocols that every room of the library agrees on."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Array, Bool, Float, Int, Key, PyTree

PRNGKey: TypeAlias = Key[Array, ""]
Position: TypeAlias = PyTree
Momentum: TypeAlias = PyTree
Scalar: TypeAlias = Float[Array, ""]
LogDensity: TypeAlias = Callable[[Position], Scalar]

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
]


class Adaptation(NamedTuple):
    """Warm-up of a sampler: a pair of pure functions beside its ``init`` and ``step``.

    Attributes:
        init: ``state -> adaptation_state``.
        update: ``(rng_key, adaptation_state, state, info, step) -> (adaptation_state, state)``, called after the
            sampler's warm-up iteration number ``step`` (0-based); it writes what it has tuned into the sampler's
            state.
    """

    init: Callable[..., Any]
    update: Callable[..., Any]


class SamplingAlgorithm(NamedTuple):
    """A Markov chain as a pair of pure functions, the same pair and field names as BlackJAX's.

    Attributes:
        init: ``position -> state``; ``state.position`` always exists.
        step: ``(rng_key, state) -> (state, info)``; ``info`` holds scalars only.
        adapt: ``num_warmup -> Adaptation``, or None when nothing is left to be tuned.
        manifold: The geometry of the position (None for an algorithm that knows of none); it lets
            :func:`geodax.sample` check the starting points and report the distance from the manifold.
    """

    init: Callable[[Position], Any]
    step: Callable[..., tuple[Any, Any]]
    adapt: Callable[[int], Adaptation] | None = None
    manifold: Any = None
