"""Findings that compare draws with the modes found before sampling."""

from collections.abc import Sequence

import numpy as np

from geodax.diagnostics.findings import Finding
from geodax.models.eigenmodel.modes import EigenmodelMode
from geodax.models.network.modes import NetworkMode

_NEAR = 20.0  # of log density
_FEW_CHANGES = 100
_FLAT = 1e-2  # an eigenvalue relative to the largest, whose sign is open


def mode_findings(modes: Sequence[NetworkMode], lp: np.ndarray) -> list[Finding]:
    """Note other modes of :meth:`NetworkHMM.find_modes` near the highest; warn if log densities of draws exceed it."""
    findings = []
    excess = float(np.max(lp)) - modes[0].log_density
    if excess > 1.0:
        findings.append(
            Finding(
                "warning",
                "A higher mode found by sampling",
                f"A draw is {excess:.1f} units of log density above the mode where the chains started.",
                "Fit again with a larger num_starts.",
            )
        )
    gaps = [modes[0].log_density - mode.log_density for mode in modes[1:]]
    near = [gap for gap in gaps if gap < _NEAR]
    if near:
        findings.append(
            Finding(
                "note",
                "Other modes near the highest",
                f"{len(near)} of {len(gaps)} other modes found are less than {_NEAR:g} units of log density below the "
                f"highest, where all chains started; the next is {near[0]:.1f} below.",
                "They may hold posterior mass that the chains do not reach, which R-hat cannot detect. Compare runs "
                "with other seeds, and check whether draws of the states over time cover these modes.",
            )
        )
    return findings


def sign_findings(modes: Sequence[EigenmodelMode], eigenvalues: np.ndarray) -> list[Finding]:
    """Compare the signs of the draws' eigenvalues with those of the modes found before sampling.

    There is a note if draws have several numbers of positive eigenvalues between which the chains seldom change, or if
    a mode near the highest has a number that no draw has.
    """
    positive = (eigenvalues > 0).sum(axis=-1)
    found, counts = np.unique(positive, return_counts=True)
    drawn, changes = dict(zip(found.tolist(), counts.tolist(), strict=True)), int((np.diff(positive) != 0).sum())
    if len(drawn) > 1 and changes < _FEW_CHANGES:
        shares = ", ".join(f"{100 * count / positive.size:.2g} % have {number}" for number, count in drawn.items())
        return [
            Finding(
                "note",
                "Signs of eigenvalues that chains seldom change",
                f"Of the draws {shares} positive eigenvalues of {eigenvalues.shape[-1]}, and the chains changed that "
                f"number {changes} times in all. Each number has a mode of its own, whose share of the posterior is "
                "uncertain.",
                "Draw more, or use a smaller --rank if the eigenvalue that changes its sign is not needed.",
            )
        ]
    for mode in modes:
        sizes, number = np.abs(mode.theta.eigenvalues), int(np.sum(mode.theta.eigenvalues > 0))
        gap = modes[0].log_density - mode.log_density
        if number not in drawn and gap < _NEAR and sizes.min() > _FLAT * sizes.max():
            return [
                Finding(
                    "note",
                    "Signs of eigenvalues that no chain visits",
                    f"The posterior has a mode with {number} positive eigenvalues of {len(sizes)}, {gap:.1f} units of "
                    "log density below the highest, and no draw has that number.",
                    "It may hold posterior mass that the chains do not reach, which R-hat cannot detect. Compare runs "
                    "with other seeds.",
                )
            ]
    return []
