"""Array aliases and protocols shared by the whole library."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Array, Float, Int, Key, PyTree
from jaxtyping import Bool as Bool

PRNGKey: TypeAlias = Key[Array, ""]
Position: TypeAlias = PyTree
Momentum: TypeAlias = PyTree
Scalar: TypeAlias = Float[Array, ""]
LogDensity: TypeAlias = Callable[[Position], Scalar]
Schedule: TypeAlias = Callable[[Int[Array, ""]], Scalar]


class Adaptation(NamedTuple):
    """Warm-up of a sampler: a pair of pure functions next to its ``init`` and ``step``.

    Attributes:
        init: ``state -> adaptation_state``.
        update: ``(rng_key, adaptation_state, state, info, step) -> (adaptation_state, state)``, called after the
            sampler's warm-up iteration number ``step`` (0-based). It writes the tuned values into the sampler's state.
        begin: ``state -> state``, called before the first iteration, or None.
        num_idle: Number of initial iterations without a step of the sampler, because ``update`` moves the chain itself.
            It is given infos of zeros.

    A joint adaptation of all chains has the same two functions, but ``rng_key``, ``state`` and ``info`` have a leading
    chain axis, and the chains share one adaptation state.
    """

    init: Callable[..., Any]
    update: Callable[..., Any]
    begin: Callable[[Any], Any] | None = None
    num_idle: int = 0


class Cycle(NamedTuple):
    """A pass through the data in batches without replacement.

    Attributes:
        num_batches: Number of batches of the pass.
        left_out: Fraction of the examples that do not fill a batch.
    """

    num_batches: int
    left_out: float


class Description(NamedTuple):
    """What :func:`geodax.sample` must know of a sampler besides its functions.

    Attributes:
        settings: Names and values of the arguments that the sampler was made with. Settings and densities tell whether
            a checkpoint has the same sampler and target.
        densities: Names and functions ``(position, batch) -> scalar`` that make up the target, for a sampler whose
            states hold no ``logdensity``. The batch is that of an iteration.
        num_waiting: Number of initial iterations in which the position does not move. The warm-up must include all of
            them.
        adapted: Fields of the state that warm-up tunes, for ``gx.sample(warm_start=...)``.
        bind: ``*logdensity_args -> SamplingAlgorithm``, or None: the same sampler for
            ``position -> logdensity_fn(position, *logdensity_args)``. With ``arrays`` it takes those.
        arrays: Pytrees with the structure of the position on which the target depends. Programs take them as arguments,
            split over devices like the position.
        is_ragged: Whether iterations of different chains take different numbers of gradients.
        owner: The function that errors of a run name.
        log_likelihood: ``(position, batch) -> (B,)``, the likelihoods of which the target is made, each of its own
            example alone; None for other targets.
    """

    settings: tuple[tuple[str, Any], ...] = ()
    densities: tuple[tuple[str, Callable[[Position, PyTree], Scalar]], ...] = ()
    num_waiting: int = 0
    adapted: tuple[str, ...] = ()
    bind: Callable[..., Any] | None = None
    arrays: tuple[PyTree, ...] = ()
    is_ragged: bool = False
    owner: str = "sample"
    log_likelihood: Callable[[Position, PyTree], Array] | None = None


class SamplingAlgorithm(NamedTuple):
    """A Markov chain as a pair of pure functions, with the same field names as in BlackJAX.

    Attributes:
        init: ``position -> state``; ``state.position`` always exists.
        step: ``(rng_key, state) -> (state, info)``, with a batch as third argument if ``num_batches`` is positive;
            ``info`` holds scalars only.
        adapt: ``num_warmup -> Adaptation``, or None if there is nothing to tune. With batches the second argument is
            the :class:`Cycle` of their order, or None if they are drawn independently.
        manifold: The geometry of the position, or None. With it :func:`geodax.sample` checks the initial positions and
            reports the distance from the manifold.
        adapt_jointly: ``num_warmup -> Adaptation`` of all chains at once, or None. :func:`geodax.sample` prefers it
            with 16 chains or more, and uses it whenever there is no ``adapt``.
        num_batches: Number of data batches per iteration; several are stacked along a leading axis.
        num_data: Required number of examples in the full data; 0 if it is unknown or there are no batches.
        description: What :func:`geodax.sample` must know besides, or None.
    """

    init: Callable[[Position], Any]
    step: Callable[..., tuple[Any, Any]]
    adapt: Callable[..., Adaptation] | None = None
    manifold: Any = None
    adapt_jointly: Callable[[int], Adaptation] | None = None
    num_batches: int = 0
    num_data: int = 0
    description: Description | None = None
