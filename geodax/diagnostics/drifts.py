"""Findings about chains whose density still changes: they are on their way, or it has no maximum."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from geodax._wording import argument, in_python
from geodax.diagnostics import remedies
from geodax.diagnostics.convergence import FEW_DRAWS
from geodax.diagnostics.finding import Finding
from geodax.diagnostics.summary import statistic

_LARGEST_DRIFT = 4.0  # in standard errors, as if halves were single draws


def drifting(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Yield a finding if the potential of a stochastic-gradient sampler differs between the halves of the draws."""
    parts = _parts(stats, "potential", 2)
    if not parts:
        return
    first, second = parts
    width = np.sqrt((first.var(axis=1) + second.var(axis=1)) / 2)
    change = (second.mean(axis=1) - first.mean(axis=1)) / np.where(width > 0, width, np.inf)
    # a chain that moves as slowly as a random walk changes by two widths in one direction or the other
    if abs(change.mean()) * np.sqrt(len(change)) > _LARGEST_DRIFT:
        falls = change.mean() < 0
        yield Finding(
            "warning",
            "Chains that have not converged",
            f"Between the halves of the draws the potential {'falls' if falls else 'rises'} by "
            f"{abs(change.mean()):.1f} times its own standard deviation in the mean of the chains, from "
            f"{first.mean():.6g} to {second.mean():.6g}: the chains "
            + ("still approach the data." if falls else "still spread from their initial positions."),
            remedies.of_drifts(),
        )


def rising(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Yield a finding if the log density rises throughout the draws of all chains."""
    quarters = _parts(stats, "logdensity", 4)
    if not quarters:
        return
    middles = np.median(quarters[0], axis=1), np.median(quarters[-1], axis=1)
    if (
        all((after.min(axis=1) >= before.max(axis=1)).all() for before, after in pairwise(quarters))
        and (middles[1] > middles[0]).all()
    ):
        yield Finding(
            "severe",
            "A log density that keeps rising",
            "In all chains the log density is higher in each quarter of the draws than ever before, from "
            f"{middles[0].mean():.6g} to {middles[1].mean():.6g}: it has no maximum, or the chains are still on their "
            "way to it.",
            in_python("Check the signs of its terms, and give every variable a proper prior. Otherwise warm", "Warm")
            + f" up longer ({argument('num_warmup')}).",
        )


def _parts(stats: Mapping[str, np.ndarray], name: str, count: int) -> list[np.ndarray]:
    """Successive parts of a statistic; none if there are few draws of it, or some are not finite."""
    values = statistic(stats, name)
    if values is None or values.shape[1] < FEW_DRAWS or not np.isfinite(values).all():
        return []
    return np.array_split(values.astype(np.float64), count, axis=1)
