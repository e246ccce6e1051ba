r"""Missing inputs: draws from a joint normal distribution of the columns, given the observed cells of the row.

With the missing cells :math:`m` of a row, its observed cells :math:`o`, and :math:`\Lambda = \Sigma^{-1}`,

.. math::
    x_m \mid x_o \sim N\big(\mu_m - \Lambda_{mm}^{-1} \Lambda_{mo} (x_o - \mu_o),\ \Lambda_{mm}^{-1}\big).

EM finds the mean and the covariance of the mode under a prior worth one row per column, with the identity as the
covariance of standardised columns; it keeps collinear columns apart. Draws are clipped to the range of the column's
observed values, so that a network is not evaluated far from its data. Several draws of a row are stratified: each
missing cell has one in each interval of equal probability.

Source:
    Little and Rubin (2019), Statistical Analysis with Missing Data, section 11.2.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

NUM_DRAWS = 32
"""Number of draws of the missing cells of a row in predictions."""
_MOST_IN_FIT, _LEAST_IN_FIT, _FEW_IN_FIT = 16, 8, 2
_FEW_ROWS = 0.05  # fraction of rows with missing cells below which few draws suffice
_MOST_ROWS, _MOST_CELLS = 1 << 13, 1 << 28  # of all draws, before their number decreases
_MOST_FITTED = 5000  # rows for mean and covariance
_MOST_COLUMNS = 500  # with more, cells are drawn from the distributions of their columns alone
_MOST_STEPS = 100
_CHANGE = 1e-3
_LEAST_SHARE, _LEAST_MISSING = 0.05, 10  # of a column with an indicator


class JointNormal(NamedTuple):
    """The distribution of standardised inputs.

    Attributes:
        lowest: The least observed value of each column.
        highest: The largest.
    """

    mean: Float[np.ndarray, " columns"]
    precision: Float[np.ndarray, "columns columns"]
    lowest: Float[np.ndarray, " columns"]
    highest: Float[np.ndarray, " columns"]


def joint_normal(data: Float[np.ndarray, "rows columns"]) -> JointNormal:
    """Estimate the joint distribution of standardised columns, NaN where a cell is missing; each column has a value."""
    num_columns = data.shape[1]
    mean, covariance = np.zeros(num_columns), np.eye(num_columns)
    lowest, highest = np.nanmin(data, axis=0), np.nanmax(data, axis=0)
    if num_columns > _MOST_COLUMNS:
        return JointNormal(mean, covariance, lowest, highest)
    rows = data[np.linspace(0, len(data) - 1, min(len(data), _MOST_FITTED)).astype(int)]
    filled, groups = np.where(np.isnan(rows), 0.0, rows), list(_patterns(np.isnan(rows)))
    for _ in range(_MOST_STEPS):
        joint, unexplained = JointNormal(mean, np.linalg.inv(covariance), lowest, highest), np.zeros_like(covariance)
        for missing, members in groups:
            center, conditional = _given_observed(joint, filled[members], missing)
            filled[np.ix_(members, missing)] = center
            unexplained[np.ix_(missing, missing)] += len(members) * conditional
        mean, earlier = filled.mean(axis=0), covariance
        scatter = (filled - mean).T @ (filled - mean) + unexplained
        covariance = (scatter + num_columns * np.eye(num_columns)) / (len(rows) + num_columns)
        if not groups or np.abs(covariance - earlier).max() < _CHANGE:
            break
    return JointNormal(mean, np.linalg.inv(covariance), lowest, highest)


def draw_missing(
    joint: JointNormal,
    data: Float[np.ndarray, "rows columns"],
    num_draws: int,
    generator: np.random.Generator | None = None,
) -> Float[np.ndarray, "rows draws columns"]:
    """Draw the missing cells of each standardised row given its observed ones.

    The generator makes the draws of the rows independent; None takes the same normal numbers for all rows, so that the
    draws of a row do not depend on the others.
    """
    filled = np.repeat(data[:, None], num_draws, axis=1)
    for missing, members in _patterns(np.isnan(data)):
        center, covariance = _given_observed(joint, data[members], missing)
        shape = (1 if generator is None else len(members), num_draws, len(missing))
        normal = _stratified_normal(np.random.default_rng(0) if generator is None else generator, shape)
        drawn = center[:, None] + normal @ np.linalg.cholesky(covariance).T
        filled[np.ix_(members, np.arange(num_draws), missing)] = np.clip(
            drawn, joint.lowest[missing], joint.highest[missing]
        )
    return filled


def fill_missing(data: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
    """Replace missing cells by their expected values given the observed cells of the row."""
    joint, filled = joint_normal(data), data.copy()
    for missing, members in _patterns(np.isnan(data)):
        filled[np.ix_(members, missing)] = _given_observed(joint, data[members], missing)[0]
    return filled


def with_draws(
    whole: Float[np.ndarray, "rows columns"], drawn: Float[np.ndarray, "incomplete draws columns"], holes: np.ndarray
) -> Float[np.ndarray, "all columns"]:
    """Stack rows for one evaluation: all rows, incomplete ones at their first draw, then the other draws of these.

    ``holes`` are the indices of the incomplete rows.
    """
    rows = whole.copy()
    rows[holes] = drawn[:, 0]
    return np.concatenate([rows, drawn[:, 1:].reshape(-1, whole.shape[1])])


def at_own_draw(values: np.ndarray, holes: np.ndarray, num_rows: int, which: Int[np.ndarray, " draw"]) -> np.ndarray:
    """Choose values on the rows of :func:`with_draws`: each draw of the posterior has its own draw of missing cells.

    The first axes of the values are posterior draw x row; ``which`` has the draw of missing cells for each posterior
    draw.
    """
    found, others = values[:, :num_rows].copy(), values[:, num_rows:]
    others = others.reshape(len(values), len(holes), NUM_DRAWS - 1, *values.shape[2:])
    is_other = which > 0
    found[np.ix_(is_other, holes)] = others[is_other, :, which[is_other] - 1]
    return found


def require_values(owner: str, inputs: np.ndarray, names: Any = None) -> None:
    """Raise ValueError for a column without any value."""
    empty = np.flatnonzero(np.isnan(inputs).all(axis=0))
    if len(empty):
        name = empty[0] if names is None else names[empty[0]]
        raise ValueError(f"{owner}: column {name} of X has no value in the fitted rows; leave it out.")


def num_draws_for(missing: Bool[np.ndarray, "rows columns"]) -> int:
    """Return the number of draws of each row for a fit, whose cost is proportional to it."""
    share = missing.any(axis=1).mean()
    if share == 0:
        return 1
    is_costly = share < _FEW_ROWS or _LEAST_IN_FIT * missing.size > _MOST_CELLS
    return int(np.clip(_MOST_ROWS // len(missing), _FEW_IN_FIT if is_costly else _LEAST_IN_FIT, _MOST_IN_FIT))


def indicator_columns(missing: Bool[np.ndarray, "rows columns"]) -> Int[np.ndarray, " indicators"]:
    """Return the columns whose missingness is an input too: 5 % of the rows and 10 rows, each pattern once."""
    counts = missing.sum(axis=0)
    often = np.flatnonzero((counts >= max(_LEAST_SHARE * len(missing), _LEAST_MISSING)) & (counts < len(missing)))
    first = np.unique(missing[:, often], axis=1, return_index=True)[1] if len(often) else often
    return often[np.sort(first)]


def _patterns(missing: Bool[np.ndarray, "rows columns"]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the missing columns and the rows of each pattern with missing cells."""
    rows = np.flatnonzero(missing.any(axis=1))
    if not len(rows):
        return
    patterns, which = np.unique(missing[rows], axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    for pattern, members in zip(
        patterns, np.split(rows[order], np.cumsum(np.bincount(which.ravel()))[:-1]), strict=True
    ):
        yield np.flatnonzero(pattern), members


def _stratified_normal(generator: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Normal numbers, rows x draws x columns; those of one row and column are in intervals of equal probability."""
    interval = generator.permuted(np.broadcast_to(np.arange(shape[1])[:, None], shape), axis=1)
    return ndtri((interval + generator.uniform(1e-6, 1 - 1e-6, shape)) / shape[1])


def _given_observed(
    joint: JointNormal, rows: Float[np.ndarray, "rows columns"], missing: Int[np.ndarray, " missing"]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the missing cells of each row, whatever these hold, and their covariance."""
    covariance = np.linalg.inv(joint.precision[np.ix_(missing, missing)])
    observed = rows - joint.mean
    observed[:, missing] = 0.0
    return joint.mean[missing] - observed @ joint.precision[:, missing] @ covariance, covariance
