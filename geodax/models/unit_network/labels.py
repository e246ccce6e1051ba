r"""Matching of hidden units: a common order of the units for all draws of a network.

Permuting the hidden units leaves the function unchanged, so the posterior has H! copies of each mode, and draws of "the
first unit" are meaningless until the units are matched. They are matched by their *contributions*
:math:`v_h \max\{0, w_h^T x + b_h\}` on rows of the data, which do not depend on the scale of the weights. Each draw's
units are assigned to the reference contributions with the least sum of squared differences (Stephens 2000, Dealing with
label switching in mixture models, JRSS B 62, with this loss); the reference is then replaced by the mean, and the steps
are repeated until nothing changes.

Matching cannot merge modes: if chains are in modes that differ by more than a permutation, the matched units still
differ.
"""

import numpy as np
from jaxtyping import Float, Int

from geodax.models.matching import matched
from geodax.models.unit_network.density import UnitNetworkParameters

_MOST_ROUNDS = 5
_MOST_ROWS = 60


def contributions(
    theta: UnitNetworkParameters, inputs: Float[np.ndarray, "rows D"]
) -> Float[np.ndarray, "draw H rows"]:
    """Compute the contribution of each unit to the output on each standardised row."""
    active = np.einsum("dhk,rk->dhr", np.asarray(theta.weights), inputs) + np.asarray(theta.bias)[..., None]
    return np.maximum(active, 0.0) * np.asarray(theta.output)[..., None]


def matching(
    theta: UnitNetworkParameters, inputs: Float[np.ndarray, "rows D"], first: int = 0
) -> Int[np.ndarray, "draw H"]:
    """Return an order of the units for each draw, to be taken along the unit axis, that matches units across draws.

    The initial reference is the draw ``first``, for instance that of highest density. Units are in descending order of
    the mean square of the varying part of their mean contribution.
    """
    rows = np.linspace(0, len(inputs) - 1, min(_MOST_ROWS, len(inputs))).astype(int)
    order, reference = matched(contributions(theta, inputs[rows]), first, _MOST_ROUNDS)
    return order[:, np.argsort(-reference.var(axis=-1), kind="stable")]
