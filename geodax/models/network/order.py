"""Reported order of states and columns of the hidden Markov network model.

The density is invariant under permutations of the states, permutations of the columns of a W together with their
eigenvalues, and sign changes of columns. States are matched across draws: each draw takes the permutation that brings
its rates nearest to the mean of all draws (on the scale of log(1 + rate); Stephens 2000), starting from the first draw.
Total rates alone are not enough, because those of two states can overlap where their patterns do not. States are then
numbered by their mean total rates (over pairs i <= j), in ascending order. Within a state eigenvalues are descending,
and signs are aligned to the mean.
"""

import numpy as np
from jaxtyping import Float, Int

from geodax.diagnostics.alignment import align_signs
from geodax.models.eigenmodel.density import with_ordered_columns
from geodax.models.matching import matched
from geodax.models.network.density import NetworkParameters

_MOST_ROUNDS = 20


def state_order(theta: NetworkParameters, *, diagonal: bool = True) -> Int[np.ndarray, "*draws K"]:
    """Compute the indices of each draw's states in the reported order.

    ``diagonal`` includes rates within a class.
    """
    rates = _rates(theta, diagonal)
    draws = rates.reshape(-1, *rates.shape[-2:])
    order, _ = matched(np.log1p(draws), 0, _MOST_ROUNDS)
    totals = np.take_along_axis(draws, order[:, :, None], axis=1).sum(axis=-1).mean(axis=0)
    return order[:, np.argsort(totals)].reshape(rates.shape[:-1])


def identified(theta: NetworkParameters, *, diagonal: bool = True) -> NetworkParameters:
    """Return draws, with two leading axes or one, with states, columns and signs in the reported order.

    States are matched and numbered by mean total rate, in which ``diagonal`` includes rates within a class, in
    ascending order; eigenvalues are descending and signs aligned within each state.
    """
    order = state_order(theta, diagonal=diagonal)
    vectors, eigenvalues = np.asarray(theta.vectors), np.asarray(theta.eigenvalues)
    vectors = np.take_along_axis(vectors, order[..., None, None], axis=-3)
    eigenvalues = np.take_along_axis(eigenvalues, order[..., None], axis=-2)
    intercept = np.take_along_axis(np.asarray(theta.intercept), order, axis=-1)
    dispersion = np.take_along_axis(np.asarray(theta.dispersion), order, axis=-1)
    transition = np.take_along_axis(np.asarray(theta.transition), order[..., :, None], axis=-2)
    transition = np.take_along_axis(transition, order[..., None, :], axis=-1)
    vectors, eigenvalues = with_ordered_columns(vectors, eigenvalues)
    states = [align_signs(vectors[..., k, :, :])[0] for k in range(vectors.shape[-3])]
    return NetworkParameters(np.stack(states, axis=-3), eigenvalues, intercept, transition, dispersion)


def _rates(theta: NetworkParameters, diagonal: bool) -> Float[np.ndarray, "*draws K m"]:
    vectors, eigenvalues = np.asarray(theta.vectors), np.asarray(theta.eigenvalues)
    rows, columns = np.triu_indices(vectors.shape[-2], 0 if diagonal else 1)
    form = (vectors * eigenvalues[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    # larger rates are clipped for the comparison
    return np.exp(np.minimum(form[..., rows, columns] + np.asarray(theta.intercept)[..., None], 300.0))
