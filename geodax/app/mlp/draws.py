"""Draws that the posterior of a network identifies."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from geodax.app.mlp.labelled import LabelledTable
from geodax.models.unit_network.functions import anchors
from geodax.run.blocks import is_still

_MOST_ODDS = 30.0


def identified_draws(model: Any, data: LabelledTable) -> dict[str, np.ndarray]:
    """Return draws, chain x draw first, that the posterior identifies: the function on some rows, and the noise.

    These are ``log_odds`` of each row's most probable class, or ``fit`` and, if it is a parameter, ``noise``, for
    negative binomial counts ``dispersion``. Of several targets, ``fit of a`` for each target ``a``.
    """
    found = _all(model, data)
    if not data.several:
        return found
    each = list(enumerate(data.several))
    return {f"{key} of {name}": values[..., k] for key, values in found.items() for k, name in each}


def point_estimates(model: Any, draws: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Names of draws that are constant in every chain, as the noise of a variational or a Laplace approximation is."""
    return () if model.inference == "mcmc" else tuple(name for name, values in draws.items() if is_still(values).all())


def _all(model: Any, data: LabelledTable) -> dict[str, np.ndarray]:
    """The draws, with targets along the last axis if there are several."""
    rows = data.train[0]
    is_whole = ~np.isnan(rows).any(axis=1)
    rows = rows[is_whole] if is_whole.any() else rows
    rows = rows[anchors(rows)]
    num_chains, num_draws = (model.posterior_["posterior"].sizes[axis] for axis in ("chain", "draw"))
    drawn = model.predict_draws(rows)
    if hasattr(model, "classes_"):
        likeliest = drawn.mean(axis=0).argmax(axis=1)
        p = drawn[:, np.arange(len(rows)), likeliest]
        tiny = np.exp(-_MOST_ODDS)
        values = {"log_odds": np.log(np.maximum(p, tiny)) - np.log(np.maximum(1 - p, tiny))}
    else:
        values = {"fit": drawn}
    found = {k: v.reshape(num_draws, num_chains, *v.shape[1:]).swapaxes(0, 1) for k, v in values.items()}
    posterior = model.posterior_["posterior"].data_vars
    noises = [np.exp(values.values) for name, values in posterior.items() if str(name).endswith("log_noise")]
    if not noises:
        return found
    if getattr(model, "likelihood", "") == "negative-binomial":
        return {"dispersion": noises[0] ** 2, **found}
    return {"noise": model.target_spread_ * noises[0], **found}
