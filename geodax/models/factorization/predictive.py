"""Expected ratings of pairs at the draws of a factorisation, including pairs with unknown users or items."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int

from geodax import _checks
from geodax.models.pooling import MOST_PREDICTIVE_DRAWS, pooled

_SIDES = ("users", "items")
_NUMBERS, _STRINGS = "numbers", "strings"


def as_pairs(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the names of users and items in a table, an array or a list of rows, each column with its own type."""
    is_frame = hasattr(X, "columns") and hasattr(X, "to_numpy")
    try:
        table = X if is_frame else _as_array(X)
    except ValueError as error:
        raise ValueError(f"LowRankFactorization: expected a user and an item in each row: {error}.") from error
    if len(table.shape) != 2 or table.shape[1] != 2 or len(table) == 0:
        raise ValueError(
            f"LowRankFactorization: expected a user and an item in each row, an array of shape (rows, 2), found shape "
            f"{X.shape if hasattr(X, 'toarray') else table.shape}. Of a matrix of ratings, np.argwhere(is_known) are "
            "the pairs and matrix[is_known] the ratings."
        )
    cells: Any = getattr(table, "iloc", table)  # the columns of a data frame have separate types
    users, items = (_as_names(side, np.asarray(cells[:, j])) for j, side in enumerate(_SIDES))
    return users, items


def names_of_columns(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame; None for other data, and for columns with numbers."""
    names: tuple[Any, ...] = tuple(getattr(X, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def places(
    pairs: tuple[np.ndarray, np.ndarray], users: np.ndarray, items: np.ndarray
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]]:
    """Return the indices of users and items among those of the fit; -1 for unknown ones."""
    found = []
    for side, names, known in zip(_SIDES, pairs, (users, items), strict=True):
        if _kind(names) != _kind(known):
            raise ValueError(
                f"LowRankFactorization: the {side} of the fit are {_kind(known)} such as {known[:1].tolist()[0]!r}, "
                f"found {_kind(names)} such as {names[:1].tolist()[0]!r}; use the same type as in the fit."
            )
        if names.dtype.kind in "mM":  # times compare equal across units
            unit = np.result_type(names, known)
            names, known = names.astype(unit), known.astype(unit)
        place = {name: i for i, name in enumerate(known.tolist())}
        found.append(np.array([place.get(name, -1) for name in names.tolist()], dtype=int))
    return found[0], found[1]


def _as_array(X: Any) -> np.ndarray:
    """Convert rows to an array in which numbers next to strings stay numbers."""
    if np.ma.is_masked(X):
        array = X.data.astype(object)
        array[np.ma.getmaskarray(X)] = None
        return array
    return np.asarray(X) if hasattr(X, "dtype") else np.asarray(X, object)


def _as_names(side: str, column: np.ndarray) -> np.ndarray:
    """Check that a column has names of one type, none missing."""
    _checks.labels("LowRankFactorization", side, column)
    if column.dtype.kind != "O":
        return column
    examples = {_kind_of(type(name)): name for name in column.tolist()}
    if len(examples) > 1:
        (one, first), (other, second) = list(examples.items())[:2]
        raise ValueError(
            f"LowRankFactorization: the {side} must have one type, found {one} such as {first!r} and {other} such as "
            f"{second!r}; convert all to strings, or all to numbers."
        )
    return np.array(column.tolist()) if set(examples) <= {_NUMBERS, _STRINGS} else column


def _kind(names: np.ndarray) -> str:
    return _kind_of(type(names[0]))


def _kind_of(kind: type) -> str:
    if issubclass(kind, bool | int | float | np.bool_ | np.number):
        return _NUMBERS
    return _STRINGS if issubclass(kind, str) else f"of type {kind.__name__}"


def draws_at(
    posterior: Any,
    users: Int[np.ndarray, " rows"],
    items: Int[np.ndarray, " rows"],
    offset_scale: float,
    factor_variance: float,
) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Yield at each draw the means of rows without their unknown parts, these parts' variance, and that of the noise.

    An unknown user or item, at -1, has its prior moments: a row of a uniform orthonormal m x r matrix has mean zero and
    second moment I / m; a row of a bottleneck's factor has mean zero and its prior variance.
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
