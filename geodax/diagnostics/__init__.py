"""Diagnostics of draws: effective sample sizes, R-hat, summaries, aligned matrices, subspaces, findings."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from

if TYPE_CHECKING:
    from geodax.diagnostics.alignment import (
        align_angles,
        align_rotation,
        align_signs,
        invariant_draws,
        mean_orthonormal,
    )
    from geodax.diagnostics.arviz import to_arviz
    from geodax.diagnostics.convergence import e_bfmi, ess, mcse, nested_rhat, rhat
    from geodax.diagnostics.finding import Finding
    from geodax.diagnostics.findings import check
    from geodax.diagnostics.importance import ImportanceWeights, importance_weights
    from geodax.diagnostics.movement import configurational_temperature
    from geodax.diagnostics.several_runs import join_chains
    from geodax.diagnostics.summary import Summary, summarize

__getattr__ = names_from(
    __name__,
    {
        "Finding": "finding",
        "ImportanceWeights": "importance",
        "Summary": "summary",
        "align_angles": "alignment",
        "align_rotation": "alignment",
        "align_signs": "alignment",
        "check": "findings",
        "configurational_temperature": "movement",
        "e_bfmi": "convergence",
        "ess": "convergence",
        "importance_weights": "importance",
        "invariant_draws": "alignment",
        "join_chains": "several_runs",
        "mcse": "convergence",
        "mean_orthonormal": "alignment",
        "nested_rhat": "convergence",
        "rhat": "convergence",
        "summarize": "summary",
        "to_arviz": "arviz",
    },
)

__all__ = [
    "Finding",
    "ImportanceWeights",
    "Summary",
    "align_angles",
    "align_rotation",
    "align_signs",
    "check",
    "configurational_temperature",
    "e_bfmi",
    "ess",
    "importance_weights",
    "invariant_draws",
    "join_chains",
    "mcse",
    "mean_orthonormal",
    "nested_rhat",
    "rhat",
    "summarize",
    "to_arviz",
]
