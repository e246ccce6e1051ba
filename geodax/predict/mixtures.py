r"""Mixtures of the distributions that the draws of an ensemble predict, one for each target.

The distribution function of a mixture is the mean :math:`F = \frac1D \sum_d F_d`. Quantiles of numbers are found by
Newton's method within a bracket, those of counts, the smallest integers k with :math:`F(k) \ge` level, by bisection.

Source:
    Czado, Gneiting and Held (2009), Predictive model assessment for count data. Biometrics 65. (The randomised
    probability integral transform.)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from geodax import _checks

_MOST_ITERATIONS = 60
_LAST_STEP = 1e-7  # in units of the narrowest component
_MOST_CELLS = 1 << 22


def as_levels(owner: str, levels: Any) -> tuple[float, ...]:
    """Return quantile levels as a tuple of numbers.

    Raises TypeError for anything but a sequence of numbers, and ValueError for levels outside of 0 to 1.
    """
    try:
        each = None if isinstance(levels, str | bytes) else tuple(levels)
    except TypeError:
        each = None
    if each is None:
        raise TypeError(
            f"{owner}: levels must be a sequence of probabilities such as (0.05, 0.95), found "
            f"{_checks.described(levels)}."
        )
    return tuple(_checks.number(owner, "a level", level, least=0.0, most=1.0) for level in each)


class Mixture(NamedTuple):
    """The predictive distribution of an ensemble: an equal mixture over its draws, for each target of each example.

    Attributes:
        distribution: Function of the parameters of all draws, which returns their distributions as an object with the
            methods of SciPy's frozen ones; for instance ``scipy.stats.poisson`` or the ``distribution`` of a likelihood
            of :mod:`geodax.nn`.
        parameters: Arrays draw x example x ....
    """

    distribution: Callable[..., Any]
    parameters: tuple[np.ndarray, ...]

    @property
    def components(self) -> Any:
        """The distributions of all draws, draw x example x ...."""
        return self.distribution(*self.parameters)

    @property
    def is_discrete(self) -> bool:
        """Whether the targets are counts."""
        return hasattr(self._at(slice(0, 1)), "logpmf")

    def mean(self) -> Float[np.ndarray, "examples ..."]:
        """Return the means."""
        return self.components.mean().mean(axis=0)

    def std(self) -> Float[np.ndarray, "examples ..."]:
        """Return the standard deviations."""
        return np.sqrt(self.components.var().mean(axis=0) + self.components.mean().var(axis=0))

    def cdf(self, values: Any) -> Float[np.ndarray, "examples ..."]:
        """Return the probabilities of at most the given values: one for each target, or one for all."""
        found = np.asarray(self.components.cdf(values))
        expected = np.shape(self.components.mean())
        if found.shape != expected or np.ndim(values) >= len(expected):
            raise ValueError(
                f"Mixture: expected one value for each target, of shape {expected[1:]}, found {np.shape(values)}."
            )
        return found.mean(axis=0)

    def ranks(self, values: Any, random_state: int = 0) -> Float[np.ndarray, "examples ..."]:
        """Return the probability integral transform of observed values, uniform if predictions are calibrated.

        Args:
            values: One value for each target.
            random_state: Seed: for counts the transform is drawn between the probabilities of less than the value and
                of at most the value.

        Returns:
            Numbers between 0 and 1.
        """
        found = self.cdf(values)
        if not self.is_discrete:
            return found
        below = self.cdf(np.asarray(values) - 1.0)
        return below + (found - below) * np.random.default_rng(random_state).uniform(size=found.shape)

    def sample(self, random_state: int = 0) -> Float[np.ndarray, "draw examples ..."]:
        """Draw one value of each target from the distribution of each draw of the ensemble.

        Args:
            random_state: Seed of the values.

        Returns:
            The values.
        """
        return draw_from(self.components, np.random.default_rng(random_state))

    def quantiles(self, levels: Any) -> Float[np.ndarray, "levels examples ..."]:
        """Compute quantiles of each target.

        Args:
            levels: Probabilities between 0 and 1.

        Returns:
            One quantile per level and target; integers for counts. Those at 0 and 1 are the ends of the support.

        Raises:
            TypeError: If ``levels`` is not a sequence of numbers.
            ValueError: If a level is not between 0 and 1.
        """
        numbers = as_levels("Mixture.quantiles", levels)
        size = max(1, _MOST_CELLS // max(1, self.parameters[0][:, :1].size))
        number, shape = self.parameters[0].shape[1], np.shape(self._at(slice(0, 1)).mean())[2:]
        blocks = [slice(i, i + size) for i in range(0, number, size)]
        find = _count_quantile if self.is_discrete else _quantile
        found = [np.concatenate([find(level, self._at, b) for b in blocks]) for level in numbers]
        return np.array(found).reshape(len(numbers), number, *shape)

    def _at(self, rows: Any) -> Any:
        return self.distribution(*(parameter[:, rows] for parameter in self.parameters))


def draw_from(distribution: Any, generator: np.random.Generator) -> np.ndarray:
    """Draw one value from each of an array of distributions."""
    return np.asarray(distribution.rvs(size=np.shape(distribution.mean()), random_state=generator), np.float64)


def _count_quantile(level: float, at: Callable[[Any], Any], block: slice) -> np.ndarray:
    distribution = at(block)
    if level in (0.0, 1.0):
        return _end(distribution, level)
    low, high = _bracket(distribution, level)
    below, found = np.floor(low) - 1.0, np.ceil(high)
    while (open := found - below > 1.0).any():
        middle = np.floor(0.5 * (below + found))
        is_enough = distribution.cdf(middle).mean(axis=0) >= level
        found, below = np.where(open & is_enough, middle, found), np.where(open & ~is_enough, middle, below)
    return found


def _end(distribution: Any, level: float) -> np.ndarray:
    end = distribution.support()[int(level)]
    return np.broadcast_to(end, np.shape(distribution.mean()))[0].astype(np.float64)


def _bracket(distribution: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a quantile of the mixture: those of its components, or Cantelli's where components have none."""
    if hasattr(distribution, "ppf"):
        each = distribution.ppf(level)
        return each.min(axis=0), each.max(axis=0)
    means, variances = distribution.mean(), distribution.var()
    mean, deviation = means.mean(axis=0), np.sqrt(variances.mean(axis=0) + means.var(axis=0))
    if not np.isfinite(mean + deviation).all():
        raise ValueError("Mixture.quantiles: distributions without finite moments need a method ppf, their quantiles.")
    odds = np.sqrt((1.0 - level) / level)
    return mean - deviation * odds, mean + deviation / odds


def _quantile(level: float, at: Callable[[Any], Any], block: slice) -> np.ndarray:
    distribution = at(block)
    if level in (0.0, 1.0):
        return _end(distribution, level)
    means, deviations = distribution.mean(), np.sqrt(distribution.var())
    low, high = _bracket(distribution, level)
    width = high - low
    unit = np.minimum(width, np.where(np.isfinite(deviations), deviations, np.inf).min(axis=0))
    # the quantile of the normal distribution with the moments of the mixture
    with np.errstate(invalid="ignore"):  # of distributions without moments
        found = means.mean(axis=0) + ndtri(level) * np.sqrt((deviations**2).mean(axis=0) + means.var(axis=0))
    found = np.clip(np.where(np.isfinite(found), found, 0.5 * (low + high)), low, high)
    some, is_open = tuple(range(1, width.ndim)), width > 0
    rows, step = np.flatnonzero(is_open.any(axis=some)), 2.0 * width
    start = block.start or 0
    distribution = distribution if len(rows) == len(width) else at(start + rows)
    for _ in range(_MOST_ITERATIONS if len(rows) else 0):
        here, below, above = found[rows], low[rows], high[rows]
        excess, density = distribution.cdf(here).mean(axis=0) - level, distribution.pdf(here).mean(axis=0)
        below, above = np.where(excess < 0, here, below), np.where(excess < 0, above, here)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            new = here - excess / density
        # bisect where Newton's steps leave the bracket or hardly narrow it
        is_newton = (new >= below) & (new <= above) & (np.abs(new - here) < 0.5 * step[rows])
        new = np.where(is_newton, new, 0.5 * (below + above))
        # what is found stays, while other targets of its row are open: at the root itself there is no step of Newton's
        new = np.where(is_open[rows], new, here)
        found[rows], low[rows], high[rows], step[rows] = new, below, above, np.abs(new - here)
        # the error after a step of Newton's is about its square
        is_open[rows] &= step[rows] > np.where(is_newton, _LAST_STEP * unit[rows], _LAST_STEP**2 * width[rows])
        is_left = is_open[rows].any(axis=some)
        if not is_left.any():
            break
        if is_left.mean() < 0.5:
            rows = rows[is_left]
            distribution = at(start + rows)
    return found
