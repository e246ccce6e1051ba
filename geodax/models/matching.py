"""Matching of exchangeable parts of draws, such as hidden units or states (Stephens 2000, JRSS B 62, 795)."""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment


def matched(
    values: Float[np.ndarray, "draw H k"], first: int, most_rounds: int
) -> tuple[Int[np.ndarray, "draw H"], Float[np.ndarray, "H k"]]:
    """Return the order in which the parts of each draw are nearest to a reference, and this reference.

    It is the draw ``first`` and then, until nothing changes, the mean of the matched draws.
    """
    reference = values[first]
    order = np.tile(np.arange(values.shape[1]), (len(values), 1))
    squares = np.sum(values**2, axis=-1)
    for _ in range(most_rounds):
        cost = squares[:, None] - 2.0 * reference @ np.swapaxes(values, 1, 2)  # squared distances, but for a constant
        found = np.stack([linear_sum_assignment(each)[1] for each in cost])
        if np.array_equal(found, order):
            break
        order = found
        reference = np.take_along_axis(values, order[..., None], axis=1).mean(axis=0)
    return order, reference
