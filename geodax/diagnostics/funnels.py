"""Numbers with which the acceptance rate falls, as it does with the scale of a funnel.

In a funnel the width of the other parameters shrinks with a scale, so that a step size that suits its mouth is too
large in its neck: proposals from there are rejected. (Betancourt and Girolami 2015, Hamiltonian Monte Carlo for
hierarchical models.)
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Real

from geodax.diagnostics.chain_statistics import rank_normalise
from geodax.diagnostics.convergence import over_pieces
from geodax.diagnostics.summary import row_names
from geodax.run.blocks import number_blocks

_END = 0.05


class FallingAcceptance(NamedTuple):
    """The number with which the acceptance rate falls most.

    Attributes:
        correlation: Rank correlation of the acceptance rate with the number before the step, in absolute value.
        end: "lowest" or "highest": the end at which proposals are rejected.
        at_end: Mean acceptance rate from the 5 % of draws at that end.
    """

    name: str
    correlation: float
    end: str
    at_end: float
    elsewhere: float


def falling_acceptance(
    draws: Mapping[str, Any], acceptance_rate: Real[np.ndarray, "chain draw"]
) -> FallingAcceptance | None:
    """Find the number with which the acceptance rate falls most; None if no real, finite one varies.

    ``acceptance_rate`` has those of the steps that led to the draws.
    """
    rates = acceptance_rate[:, 1:].astype(np.float64)
    scores = rank_normalise(rates[None])
    if not np.isfinite(rates).all() or not scores.std():
        return None

    def correlations(piece: np.ndarray) -> np.ndarray:
        ranks = rank_normalise(np.moveaxis(piece[:, :-1], -1, 0).astype(np.float64))
        with np.errstate(invalid="ignore"):
            found = (ranks * scores).mean(axis=(1, 2)) / (ranks.std(axis=(1, 2)) * scores.std())
        return np.where(np.isfinite(piece).all(axis=(0, 1)), np.nan_to_num(found), 0.0)

    best: tuple[float, str, np.ndarray] = (0.0, "", np.zeros(0))
    for name, values in draws.items():
        if 0 in values.shape or values.dtype.kind not in "fiu":
            continue
        for chosen, block in number_blocks(values):
            found = np.concatenate(over_pieces(correlations, block))
            largest = int(np.argmax(abs(found)))
            if abs(found[largest]) > abs(best[0]):
                label = row_names(name, values.shape[2:])[chosen][largest]
                best = (float(found[largest]), label, np.array(block[:, :-1, largest]))
    correlation, name, before = best
    if not name:
        return None
    sign = np.sign(correlation)
    is_end = sign * before <= np.quantile(sign * before, _END)
    at_end, elsewhere = rates[is_end].mean(), rates[~is_end].mean()
    return FallingAcceptance(name, abs(correlation), "lowest" if sign > 0 else "highest", at_end, elsewhere)
