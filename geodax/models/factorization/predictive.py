"""Expected ratings of pairs at the draws of a factorisation, pairs with unknown users or items among them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from geodax.models.pooling import MOST_PREDICTIVE_DRAWS, pooled


def as_pairs(X: Any) -> np.ndarray:
    """Pairs of user and item as an array of two columns, or a ValueError that says why they are none."""
    try:
        pairs = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"LowRankFactorization: expected a user and an item in each row: {error}.") from error
    if pairs.ndim != 2 or pairs.shape[1] != 2 or len(pairs) == 0:
        raise ValueError(
            f"LowRankFactorization: expected a user and an item in each row, an array of shape (rows, 2), found shape "
            f"{pairs.shape}."
        )
    return pairs


def places(
    pairs: np.ndarray, users: np.ndarray, items: np.ndarray
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Numbers of users and items; -1 for one that is unknown."""
    found = []
    for names, known in zip(pairs.T, (users, items), strict=True):
        place = {name: i for i, name in enumerate(known.tolist())}
        found.append(np.array([place.get(name, -1) for name in names.tolist()], dtype=int))
    return found[0], found[1]


def draws_at(
    posterior: Any,
    users: Int[np.ndarray, " rows"],
    items: Int[np.ndarray, " rows"],
    offset_scale: float,
    factor_variance: float,
) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Evaluate pairs at each draw.

    A row of a uniform orthonormal m x r matrix has mean zero and second moment I / m, one of a bottleneck's factors
    its prior variance: that is the part of an unknown user or item.

    Args:
        posterior: The DataTree of the draws.
        users: Numbers of users, -1 for an unknown one.
        items: Numbers of items, likewise.
        offset_scale: Prior standard deviation of offsets.
        factor_variance: Prior variance of the entries of a bottleneck's factors.

    Yields:
        Means of the rows without what is unknown, the prior variance of that, and the variance of the noise, in
        standardised units.
    """
    user, item, new_user, new_item = np.maximum(users, 0), np.maximum(items, 0), users < 0, items < 0
    draws = pooled(posterior, list(posterior["posterior"].data_vars), MOST_PREDICTIVE_DRAWS)
    is_svd = "scales" in draws
    rank = draws["left"].shape[2]
    variances = [1.0 / draws[side].shape[1] if is_svd else factor_variance for side in ("left", "right")]
    for k in range(len(draws["intercept"])):
        draw = {name: np.asarray(values[k], np.float64) for name, values in draws.items()}
        scales = draw["scales"] if is_svd else np.ones(rank)
        rows = draw["left"][user] * scales * ~new_user[:, None]
        columns = draw["right"][item] * ~new_item[:, None]
        mean = draw["intercept"] + np.sum(rows * columns, axis=1)
        square_rows = np.where(new_user[:, None], variances[0] * scales**2, rows**2)
        square_columns = np.where(new_item[:, None], variances[1], columns**2)
        extra = np.where(new_user | new_item, np.sum(square_rows * square_columns, axis=1), 0.0)
        if "user_offset" in draw:
            mean = mean + draw["user_offset"][user] * ~new_user + draw["item_offset"][item] * ~new_item
            extra = extra + offset_scale**2 * (new_user.astype(float) + new_item)
        yield mean, extra, float(np.exp(2 * draw["log_noise"]))
