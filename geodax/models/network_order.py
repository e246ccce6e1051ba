"""The order in which states and columns of the hidden Markov network model are reported.

The density does not change when states are renamed, when columns of a W trade places together with their eigenvalues,
or when they change sign. Draws are reported with states in the order of their total rates (over pairs i <= j), least
first, eigenvalues descending within a state, and signs that agree with the mean.
"""

import numpy as np
from jaxtyping import Int

from geodax.models.eigenmodel_density import with_ordered_columns
from geodax.models.network_density import NetworkParameters
from geodax.run.alignment import align_signs


def state_order(theta: NetworkParameters, *, diagonal: bool = True) -> Int[np.ndarray, "*draws K"]:
    """States by total rate, least first.

    Args:
        theta: Parameters, or draws of them.
        diagonal: Whether rates within a class count towards the total rate of a state.

    Returns:
        Positions of the states.
    """
    vectors, eigenvalues = np.asarray(theta.vectors), np.asarray(theta.eigenvalues)
    rows, columns = np.triu_indices(vectors.shape[-2], 0 if diagonal else 1)
    form = np.einsum("...kip,...kp,...kjp->...kij", vectors, eigenvalues, vectors)
    eta = form + np.asarray(theta.intercept)[..., None, None]
    return np.argsort(np.logaddexp.reduce(eta[..., rows, columns], axis=-1), axis=-1)


def identified(theta: NetworkParameters, *, diagonal: bool = True) -> NetworkParameters:
    """Draws with states, columns and signs in the order in which they are reported.

    Args:
        theta: Draws, with two leading axes or one.
        diagonal: Whether rates within a class count towards the total rate of a state.

    Returns:
        The same draws, with states by total rate, least first; eigenvalues descending; signs aligned state by state.
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
