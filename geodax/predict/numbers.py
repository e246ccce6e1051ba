r"""Predicted numbers: means and parts of the variance of ensembles, from the distributions of their draws.

The prediction is the mixture of the draws' distributions, normal or those of another likelihood. With their means
:math:`m_d` and variances :math:`s_d^2` it has mean :math:`\bar m` and variance :math:`\overline{s^2}` (aleatoric) plus
the variance of the :math:`m_d` (epistemic).
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from geodax import _checks
from geodax._normal import Normal


class NumberPredictions(NamedTuple):
    """Predicted numbers of examples.

    Attributes:
        mean: Ensemble mean.
        aleatoric: Mean noise variance.
        epistemic: Variance of the draws' means.
        log_density: Log predictive density of each target, jointly over its entries; None without targets.
        num_draws: Number of draws in the ensemble.
    """

    mean: Float[np.ndarray, "examples ..."]
    aleatoric: Float[np.ndarray, "examples ..."]
    epistemic: Float[np.ndarray, "examples ..."]
    log_density: Float[np.ndarray, " examples"] | None
    num_draws: int

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance, aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic


def numbers_from_means(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], *, targets: np.ndarray | None = None
) -> NumberPredictions:
    """Predict numbers from precomputed means and noise standard deviations.

    Args:
        blocks: Pairs of arrays (draws, examples, ...) of equal shapes.
        targets: True values (examples, ...), for their predictive density.

    Returns:
        The predictions.

    Raises:
        ValueError: If there are no draws, a draw is non-finite, a standard deviation is negative (or zero with
            targets), or the targets have another shape.
    """
    if not _checks.is_series(blocks):
        raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_checks.described(blocks)}.")
    return numbers_from_distributions(_normal(blocks, targets is not None), targets=targets)


def _normal(blocks: Iterable[Any], has_targets: bool) -> Iterator[Normal]:
    count = 0
    for pair in blocks:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_checks.described(pair)}.")
        means, noise = (_checks.numbers("numbers_from_means", "blocks", part) for part in pair)
        if means.ndim < 2 or means.shape != noise.shape or not means.size:
            raise ValueError(
                "numbers_from_means: expected means and noise of one shape (draws, examples, ...), the same in all "
                f"blocks, found {means.shape} and {noise.shape}."
            )
        is_finite = (np.isfinite(means) & np.isfinite(noise)).reshape(*means.shape[:2], -1).all(axis=-1)
        require_finite("numbers_from_means", np.asarray(is_finite), count, "finite means and noise")
        is_wrong = noise <= 0 if has_targets else noise < 0
        if is_wrong.any():
            draw, example = (int(place[0]) for place in np.nonzero(is_wrong)[:2])
            raise ValueError(
                "numbers_from_means: standard deviations of the noise must be positive, found "
                f"{noise[is_wrong][0]:g} in draw {count + draw} at example {example}. Return standard deviations, not "
                "variances or logarithms; for a logarithm return jnp.exp of it."
            )
        count += len(means)
        yield Normal(means, noise)


def numbers_from_distributions(blocks: Iterable[Any], *, targets: np.ndarray | None = None) -> NumberPredictions:
    """Predict numbers from the distributions of the draws.

    Args:
        blocks: Arrays of distributions (draws, examples, ...) with the methods of SciPy's frozen ones, for instance
            ``scipy.stats.poisson(rates)``.
        targets: True values (examples, ...), for their predictive density, or probability if they are counts.

    Returns:
        The predictions.

    Raises:
        ValueError: If there are no draws, or the blocks or the targets have different shapes.
    """
    count, mean, spread, aleatoric, log_density = 0, np.zeros(()), np.zeros(()), np.zeros(()), None
    for distribution in blocks:
        means = np.asarray(distribution.mean())
        if means.ndim < 2 or (count and mean.shape != means.shape[1:]):
            raise ValueError(
                "numbers_from_distributions: expected distributions of one shape (draws, examples, ...), the same in "
                f"all blocks, found {means.shape}."
            )
        # sums of squares about the running mean (Chan, Golub and LeVeque 1983)
        number, block_mean = len(means), means.mean(axis=0)
        shift = block_mean - mean
        spread = spread + ((means - block_mean) ** 2).sum(axis=0) + shift**2 * (count * number / (count + number))
        mean = mean + shift * (number / (count + number))
        aleatoric = aleatoric + distribution.var().sum(axis=0)
        count += number
        if targets is not None:
            values = _checks.numbers("numbers_from_distributions", "targets", targets)
            if values.shape != means.shape[1:]:
                raise ValueError(
                    f"Predictions have shape {means.shape[1:]}, but the targets {values.shape}. For targets of more "
                    "numbers than are predicted, such as a time and whether it was observed, use predictive.log_score."
                )
            each = distribution.logpmf(values) if hasattr(distribution, "logpmf") else distribution.logpdf(values)
            block_density = special.logsumexp(each.reshape(*means.shape[:2], -1).sum(axis=2), axis=0)
            log_density = block_density if log_density is None else np.logaddexp(log_density, block_density)
    if not count:
        raise ValueError("numbers_from_means: there are no draws.")
    if log_density is not None:
        log_density = log_density - np.log(count)
    return NumberPredictions(mean, aleatoric / count, spread / count, log_density, count)


def log_normal(distribution: Normal) -> Any:
    """Distributions of numbers whose logarithms are normal."""
    from scipy import stats  # takes half a second to import

    return stats.lognorm(distribution.deviations, scale=np.exp(distribution.means))


def require_finite(owner: str, is_finite: np.ndarray, first: int, expected: str) -> None:
    """Raise ValueError where a draw, counted from ``first``, is non-finite at an example."""
    if is_finite.all():
        return
    draw, example = (int(place[0]) for place in np.nonzero(~is_finite))
    number = int((~is_finite.all(axis=1)).sum())
    raise ValueError(
        f"{owner}: expected {expected} in every draw, found others in {number} of {len(is_finite)} draws of a block, "
        f"first in draw {first + draw} at example {example}. Leave out such draws and check the run that produced "
        "them: a chain that diverged to non-finite values needs a smaller step size."
    )
