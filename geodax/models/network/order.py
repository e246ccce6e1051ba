"""The order in which states and columns of the hidden Markov network model are reported.

The density does not change when states are renamed, when columns of a W trade places together with their eigenvalues,
or when they change sign. States of the draws are matched to one another: each draw takes the names under which its
rates are nearest to the mean of all (on the scale of log(1 + rate); Stephens 2000), starting from the first draw. Total
rates alone would not do, since those of two states may overlap where their patterns do not. States are then numbered by
their mean total rates (over pairs i <= j), least first. Within a state eigenvalues descend, and signs agree with the
mean.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from geodax.diagnostics.alignment import align_signs
from geodax.models.eigenmodel.density import with_ordered_columns
from geodax.models.network.density import NetworkParameters

_MOST_ROUNDS = 20


def state_order(theta: NetworkParameters, *, diagonal: bool = True) -> Int[np.ndarray, "*draws K"]:
    """Where the states of each draw are that are reported as the first, the second, and so on.

    Args:
        theta: Parameters, or draws of them with any number of leading axes.
        diagonal: Whether rates within a class count.

    Returns:
        Positions of the states.
    """
    rates = _rates(theta, diagonal)
    draws = rates.reshape(-1, *rates.shape[-2:])
    features = np.log1p(draws)
    order = np.tile(np.arange(draws.shape[1]), (len(draws), 1))
    reference = features[0]
    for _ in range(_MOST_ROUNDS):
        # squared distances, up to what all states of a draw have in common
        distances = (features**2).sum(axis=-1)[:, None] - 2.0 * reference @ np.swapaxes(features, 1, 2)
        before, order = order, np.stack([linear_sum_assignment(distance)[1] for distance in distances])
        if (before == order).all():
            break
        reference = np.take_along_axis(features, order[:, :, None], axis=1).mean(axis=0)
    totals = np.take_along_axis(draws, order[:, :, None], axis=1).sum(axis=-1).mean(axis=0)
    return order[:, np.argsort(totals)].reshape(rates.shape[:-1])


def identified(theta: NetworkParameters, *, diagonal: bool = True) -> NetworkParameters:
    """Draws with states, columns and signs in the order in which they are reported.

    Args:
        theta: Draws, with two leading axes or one.
        diagonal: Whether rates within a class count towards the total rate of a state.

    Returns:
        The same draws, with states matched and numbered by mean total rate, least first; eigenvalues descending; signs
        aligned state by state.
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
    # beyond this no rate is compared with another
    return np.exp(np.minimum(form[..., rows, columns] + np.asarray(theta.intercept)[..., None], 300.0))
