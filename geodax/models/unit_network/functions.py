"""Mean functions and explained variance of draws of a ReLU network, and standardisation helpers."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from geodax import _checks
from geodax._normal import Normal
from geodax.models.pooling import log_mean, over_draws, over_rows
from geodax.models.unit_network.density import UnitNetworkParameters, mean_function

_NUM_ANCHORS = 8
_MOST_ROWS = 500
_SQUARES_OVERFLOW = 1e150  # squares of larger numbers overflow, those of inverses underflow


def functions(theta: UnitNetworkParameters, inputs: Float[np.ndarray, "rows D"]) -> Float[np.ndarray, "draw rows"]:
    """Compute each draw's mean function on standardised rows; theta has one leading axis."""
    return over_rows(mean_function, theta, inputs)


def explained_share(theta: UnitNetworkParameters, inputs: Float[np.ndarray, "rows D"]) -> Float[np.ndarray, " draw"]:
    """Compute each draw's variance of the function over that of function plus noise (Gelman et al. 2019)."""
    rows = np.linspace(0, len(inputs) - 1, min(_MOST_ROWS, len(inputs))).astype(int)

    def share(each: UnitNetworkParameters, x: Any) -> Any:
        variance = jnp.var(mean_function(each, x))
        return variance / (variance + jnp.asarray(each.noise) ** 2)

    return over_draws(share, theta, inputs[rows])


def log_predictive(
    y: Any, means: Float[np.ndarray, "draw rows"], noise: Float[np.ndarray, " draw"]
) -> Float[np.ndarray, " rows"]:
    """Compute the log density of each output, averaged over normal distributions with the draws' means and noise."""
    targets = _checks.numbers("UnitNetworkRegressor", "y", y)
    if targets.shape != means.shape[1:] or not np.isfinite(targets).all():
        raise ValueError(
            f"UnitNetworkRegressor: log_predictive expects {means.shape[1]} finite outputs, found shape "
            f"{targets.shape} with {np.sum(~np.isfinite(targets))} non-finite values."
        )
    return log_mean(Normal(means, noise[:, None]).logpdf(targets))


def anchors(inputs: Float[np.ndarray, "rows D"]) -> Int[np.ndarray, " anchor"]:
    """Indices of some evenly spread rows at which the function is recorded."""
    return np.unique(np.linspace(0, len(inputs) - 1, min(_NUM_ANCHORS, len(inputs))).astype(int))


def units(largest: Any) -> Any:
    """Scale that keeps squares of numbers of the given size within double precision; 1 where none is needed."""
    is_extreme = (largest > _SQUARES_OVERFLOW) | ((largest > 0) & (largest < 1 / _SQUARES_OVERFLOW))
    return np.where(is_extreme, largest, 1.0)


def moments(
    values: Float[np.ndarray, "rows *columns"], weights: Float[np.ndarray, " rows"] | None = None
) -> tuple[Any, Any]:
    """Mean and standard deviation of the values that are not NaN; the deviation is 1 for constant columns."""
    unit = units(np.nanmax(np.abs(values), axis=0))
    values = values / unit
    if weights is None:
        center, deviation = unit * np.nanmean(values, axis=0), unit * np.nanstd(values, axis=0)
    else:
        each = np.where(np.isnan(values), 0.0, weights.reshape(-1, *[1] * (values.ndim - 1)))
        total, known = each.sum(axis=0), np.nan_to_num(values)
        mean = (each * known).sum(axis=0) / total
        center, deviation = unit * mean, unit * np.sqrt((each * (known - mean) ** 2).sum(axis=0) / total)
    is_still = deviation <= 1e-12 * np.maximum(np.abs(center), 1e-300)
    return center, np.where(is_still, 1.0, deviation)


def half_distances(values: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " columns"]:
    """Half the distance of the values of each column that has two beside NaN, and 0 for other columns.

    It is the deviation of two equally frequent values. If one is rare, the deviation is small; divided by it, the rare
    value would be far from the others, with a large effect under a prior of the weights (Gelman 2008, "Scaling
    regression inputs by dividing by two standard deviations").
    """
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    has_two = ((values == low) | (values == high) | np.isnan(values)).all(axis=0)
    return np.where(has_two, high / 2 - low / 2, 0.0)
