r"""Power transforms of skewed columns, which bring them closer to a normal distribution.

With the sign s of z the transform of Yeo and Johnson is

.. math:: T_\lambda(z) = s\, \frac{(1 + |z|)^{e} - 1}{e}, \qquad e = \lambda \text{ for } z \ge 0, \quad 2 - \lambda
    \text{ for } z < 0,

the identity for :math:`\lambda = 1`, and a logarithm in the limit :math:`e = 0`. It depends on the origin and the unit
of z. Two are tried: the median and the interquartile range; and, for columns without negative values, 0 and a twentieth
of the median, or the smallest distance between two values if that is larger. Around 0 powers below 1 act like those of
Box and Cox. The power is the one of highest likelihood under a normal distribution, with a normal prior around 1. It is
1 unless another is better by 0.15 nats a row, and where one value has more than half of the rows.

Source:
    Yeo and Johnson (2000), A new family of power transformations to improve normality or symmetry. Biometrika 87.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from geodax.models.unit_network.functions import half_distances, moments

_ANY, _BELOW_ONE = np.linspace(0.0, 2.0, 17), np.linspace(0.0, 1.0, 9)  # beyond, values far outside explode
_SHARE = 0.05  # of the median
_LEAST_GAIN = 0.15  # of log likelihood, in nats a row
_MOST_ROWS, _LEAST_ROWS, _MOST_CELLS = 2000, 200, 4_000_000


class Powers(NamedTuple):
    """A power transform of each column: ``origin`` is subtracted from it, then it is divided by ``unit``."""

    origin: Float[np.ndarray, " columns"]
    unit: Float[np.ndarray, " columns"]
    power: Float[np.ndarray, " columns"]

    def __call__(self, values: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """Transform rows; NaN stays NaN."""
        bent, values = np.flatnonzero(self.power != 1.0), values.copy()
        z = (values[:, bent] - self.origin[bent]) / self.unit[bent]
        values[:, bent] = _transformed(z, self.power[bent])
        return values


def no_powers(num_columns: int) -> Powers:
    """The transform that leaves all columns as they are."""
    return Powers(np.zeros(num_columns), np.ones(num_columns), np.ones(num_columns))


def find_powers(values: Float[np.ndarray, "rows columns"], weights: Float[np.ndarray, " rows"] | None = None) -> Powers:
    """Find the transform of each column, NaN where a cell is missing, from at most 2,000 evenly spaced rows."""
    most = min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_CELLS // values.shape[1]))
    rows = np.linspace(0, len(values) - 1, min(most, len(values))).astype(int)
    own_weights = None if weights is None else weights[rows]
    x = values[rows]
    x = np.where(np.isnan(x).all(axis=0), 0.0, x)  # constant, as nothing is known of the column
    varies = (np.nanmin(x, axis=0) < np.nanmax(x, axis=0)) & (half_distances(x) == 0)
    all_columns = no_powers(values.shape[1])
    if not varies.any():
        return all_columns
    x = x[:, varies]
    w = np.where(np.isnan(x), 0.0, 1.0 if own_weights is None else own_weights[:, None])
    is_positive = np.nanmin(x, axis=0) >= 0
    low, middle, high = _quantiles(x, w, (0.25, 0.5, 0.75))
    (typical,) = _quantiles(np.where(is_positive, np.where(x > 0, x, np.nan), 1.0), w, (0.5,))
    gaps = np.diff(np.sort(x, axis=0), axis=0)
    resolution = np.nanmin(np.where(gaps > 0, gaps, np.nan), axis=0)
    unit = np.where(high > low, high - low, moments(x, own_weights)[1])
    step = np.where(is_positive, np.maximum(_SHARE * typical, resolution), unit)
    total = w.sum(axis=0)
    has_tail = (w * (x == middle)).sum(axis=0) <= 0.5 * total  # the skewness is not that of one value
    found, best = no_powers(x.shape[1]), np.maximum(0.5 * np.log(np.maximum(total, 1.0)), _LEAST_GAIN * total)
    for origin, scale, powers, is_apt in (
        (middle, unit, _ANY, has_tail),
        (np.where(is_positive, 0.0, middle), step, _BELOW_ONE, has_tail & is_positive),
    ):
        z = np.nan_to_num((x - origin) / scale)
        plain = _log_likelihood(z, w, 1.0)
        for power in powers[powers != 1.0]:
            gain = _log_likelihood(z, w, power) - plain - 0.5 * (power - 1.0) ** 2
            is_better = is_apt & (gain > best)
            best = np.where(is_better, gain, best)
            found = Powers(*(np.where(is_better, *pair) for pair in zip((origin, scale, power), found, strict=True)))
    for whole, part in zip(all_columns, found, strict=True):
        whole[varies] = part
    return all_columns


def _log_likelihood(z: np.ndarray, w: np.ndarray, power: float) -> np.ndarray:
    y, total = _transformed(z, power), w.sum(axis=0)
    mean = (w * y).sum(axis=0) / total
    variance = (w * (y - mean) ** 2).sum(axis=0) / total
    return -0.5 * total * np.log(variance) + (power - 1.0) * (w * np.sign(z) * np.log1p(np.abs(z))).sum(axis=0)


def _transformed(z: np.ndarray, power: float | np.ndarray) -> np.ndarray:
    exponent, logarithm = np.where(z < 0, 2.0 - power, power), np.log1p(np.abs(z))
    is_zero = exponent == 0
    powered = np.expm1(exponent * logarithm) / np.where(is_zero, 1.0, exponent)
    return np.sign(z) * np.where(is_zero, logarithm, powered)


def _quantiles(x: np.ndarray, w: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    return np.nanquantile(x, levels, axis=0, weights=w, method="inverted_cdf")
