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
        "alignment": ("align_angles", "align_rotation", "align_signs", "invariant_draws", "mean_orthonormal"),
        "arviz": ("to_arviz",),
        "convergence": ("e_bfmi", "ess", "mcse", "nested_rhat", "rhat"),
        "finding": ("Finding",),
        "findings": ("check",),
        "importance": ("ImportanceWeights", "importance_weights"),
        "movement": ("configurational_temperature",),
        "several_runs": ("join_chains",),
        "summary": ("Summary", "summarize"),
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
