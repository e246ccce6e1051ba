"""Draws that the posterior of a factorization identifies."""

import numpy as np

from geodax.app.factorization.files import RatingTable
from geodax.models.factorization.estimator import LowRankFactorization

_NUM_ANCHORS = 8


def identified_draws(model: LowRankFactorization, data: RatingTable) -> dict[str, np.ndarray]:
    """Return draws, chain x draw first, that the posterior identifies.

    These are ``noise`` and ``fit``, expected ratings of some pairs, in the units of the ratings, and the singular
    values ``scales`` in standardised units.
    """
    group = model.posterior_["posterior"].data_vars
    posterior = {name: group[name].values for name in ("intercept", "log_noise", "scales") if name in group}
    pairs = data.pairs[~data.is_test]
    users, items = (
        np.searchsorted(known, pairs[np.linspace(0, len(pairs) - 1, _NUM_ANCHORS).astype(int), side])
        for side, known in enumerate((model.users_, model.items_))
    )
    left, right = group["left"][:, :, users].values, group["right"][:, :, items].values
    if "scales" in posterior:
        left = left * posterior["scales"][:, :, None]
    fit = posterior["intercept"][..., None] + np.sum(left * right, axis=-1)
    if "user_offset" in group:
        fit = fit + group["user_offset"][:, :, users].values + group["item_offset"][:, :, items].values
    found = {"noise": model.spread_ * np.exp(posterior["log_noise"]), "fit": model.center_ + model.spread_ * fit}
    return found | ({"scales": posterior["scales"]} if "scales" in posterior else {})
