r"""Step sizes and temperatures as functions of the iteration.

A schedule maps the iteration (0, 1, ...; warm-up iterations count, except with :func:`after_warmup`) to a value:

* constant: :math:`\varepsilon_t = \varepsilon`;
* polynomial: :math:`\varepsilon_t = a\,(1 + t / b)^{-\gamma}`;
* cyclical (Zhang, Li, Zhang, Chen and Wilson 2020):
  :math:`\varepsilon_t = \tfrac{a}{2}\,(1 + \cos(\pi\,(t \bmod c) / c))`, together with a temperature of 0 in the first
  part of each cycle, which explores, and of :math:`\tau` in the rest, which samples.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._types import Schedule


def constant(value: float) -> Schedule:
    """The same value at every iteration."""
    _checks.number("schedules.constant", "value", value, above=0.0)
    return lambda iteration: jnp.asarray(value, float)


def polynomial(initial: float, *, offset: float = 1000.0, power: float = 0.55) -> Schedule:
    """``initial * (1 + iteration / offset) ** -power``.

    Args:
        initial: The first value.
        offset: Number of iterations before the decay sets in.
        power: In (0.5, 1] for the convergence theorems of stochastic-gradient Langevin dynamics.

    Returns:
        The schedule.
    """
    for name, number in (("initial", initial), ("offset", offset), ("power", power)):
        _checks.number("schedules.polynomial", name, number, above=0.0)
    return lambda iteration: initial * (1.0 + jnp.asarray(iteration, float) / offset) ** -power


def cyclical(initial: float, *, num_iterations: Any) -> Schedule:
    """Half cosine waves that restart every ``num_iterations`` iterations: explore first, then sample.

    Args:
        initial: The value at the beginning of each cycle.
        num_iterations: Length of a cycle, an integer.

    Returns:
        The schedule, which is always positive.

    Raises:
        TypeError: If the length is not an integer.
        ValueError: If a number is not positive.
    """
    _checks.number("schedules.cyclical", "initial", initial, above=0.0)
    phase = _phase("schedules.cyclical", num_iterations)
    return lambda iteration: 0.5 * initial * (1.0 + jnp.cos(jnp.pi * phase(iteration)))


def cyclical_temperature(value: float = 1.0, *, num_iterations: Any, exploration_ratio: float = 0.25) -> Schedule:
    """0 in the first part of each cycle of :func:`cyclical`, in which the chain searches for a mode, then ``value``.

    Zhang et al. (2020), algorithm 1. Draws at temperature 0 are not samples from the posterior: keep only the draws
    whose ``sample_stats.temperature`` is positive.

    Args:
        value: The temperature at the end of each cycle.
        num_iterations: Length of a cycle, an integer, the same as for the step size.
        exploration_ratio: Fraction of a cycle at temperature 0, in [0, 1).

    Returns:
        The schedule.

    Raises:
        TypeError: If the length is not an integer.
        ValueError: If a number is out of range.
    """
    owner = "schedules.cyclical_temperature"
    _checks.number(owner, "value", value, above=0.0)
    _checks.number(owner, "exploration_ratio", exploration_ratio, least=0.0, below=1.0)
    phase = _phase(owner, num_iterations)
    return lambda iteration: jnp.where(phase(iteration) < exploration_ratio, 0.0, float(value))


def after_warmup(schedule: Any, *, num_warmup: Any) -> Schedule:
    """Count the iterations of a schedule from the end of the warm-up, during which it has its first value.

    Args:
        schedule: The schedule.
        num_warmup: Number of warm-up iterations, the same as for :func:`geodax.sample`.

    Returns:
        ``max(iteration - num_warmup, 0) -> value``.

    Raises:
        TypeError: If the schedule is not a function, or the number not an integer.
        ValueError: If the number is negative.
    """
    _checks.function("schedules.after_warmup", "schedule", schedule, "a function of the iteration")
    length = _checks.whole("schedules.after_warmup", "num_warmup", num_warmup, least=0)

    def shifted(iteration: Any) -> Any:
        return schedule(jnp.maximum(jnp.asarray(iteration) - length, 0))

    return shifted


def _phase(owner: str, num_iterations: Any) -> Callable[[Any], Any]:
    length = _checks.whole(owner, "num_iterations", num_iterations)
    # use the middle of the iteration, so that the last step of a cycle is not zero
    return lambda iteration: (jnp.mod(jnp.asarray(iteration), length).astype(float) + 0.5) / length


def as_schedule(sampler: str, name: str, value: Any, *, least: float | None = None) -> Any:
    """Convert a number or a schedule to a schedule; None stays None.

    Raises TypeError for anything else, and ValueError for a number below ``least``, or that is not positive.
    """
    if value is None:
        return None
    if callable(value):
        try:
            found = jax.eval_shape(value, jax.ShapeDtypeStruct((), jnp.int32))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{sampler}: the schedule {name} is not a function of the iteration: {error}") from error
        if getattr(found, "shape", None) != () or not jnp.issubdtype(found.dtype, jnp.floating):
            raise TypeError(f"{sampler}: the schedule {name} must return a floating-point scalar, found {found}.")
        return lambda iteration: jnp.asarray(value(iteration), found.dtype)  # it may return a Python number
    number = _checks.number(sampler, name, value, **({"above": 0.0} if least is None else {"least": least}))
    return lambda iteration: jnp.asarray(number, float)
