"""The diagnostics in the report of Bayesian PCA."""

from collections.abc import Sequence

import numpy as np

from geodax.app.pca.diagnosis import Diagnosis, extreme
from geodax.app.report import plots
from geodax.app.report.html import Report
from geodax.app.report.numbers import rounded, three_decimals, whole
from geodax.diagnostics.convergence import e_bfmi
from geodax.diagnostics.summary import Summary, SummaryRow, statistic

_WORDS = {
    "scale": "scales of the components",
    "noise": "standard deviation of the noise",
    "mean": "means of the columns",
    "lp": "log density",
    "components": "components",
    "components.angle": "principal angles to the mean subspace",
    "components.distance": "distance to the mean subspace",
    "components.quadratic_form": "projector along fixed directions",
    "components.leverage": "diagonal of the projector, one per column",
    "components.column_cosine": "components' cosines with their means",
    "components.column_quadratic_form": "components along fixed directions, squared",
    "loading": "sign-aligned loadings of at most 30 columns",
}


def write_diagnostics(report: Report, diagnosis: Diagnosis, columns: Sequence[str]) -> None:
    """Write the findings, the tables and the figures, with the names of the table's columns."""
    report.warnings(diagnosis.findings, fine="No problems found. The chains agree and have enough effective draws.")
    report.text(
        "R-hat compares the chains and should be below 1.01. The effective sample size is the equivalent number of "
        "independent draws; it should be at least 100 per chain, in the bulk and in the tails. The signs of "
        "components differ between chains, so the diagnostics use quantities that do not depend on them."
    )
    kinds = _by_kind(diagnosis.summary)
    report.table(
        [[f"{_WORDS.get(name, name)} (`{name}`)", *_worst_of(rows)] for name, rows in kinds.items()],
        ["quantity", "numbers", "largest R\u2011hat", "smallest bulk ESS", "smallest tail ESS"],
        "The worst value of each kind of quantity.",
    )
    chosen = [row for name in ("scale", "lp", "noise") for row in kinds.get(name, [])]
    report.table(
        [
            [
                _in_words(row.name, columns),
                *(rounded(v) for v in (row.mean, row.sd, row.quantile_5, row.quantile_50, row.quantile_95)),
                three_decimals(row.rhat),
                whole(row.ess_bulk),
                whole(row.ess_tail),
            ]
            for row in chosen
        ],
        ["quantity", "mean", "sd", "5 %", "50 %", "95 %", "R-hat", "bulk ESS", "tail ESS"],
        "Scales, log density and noise.",
    )
    _write_sampler(report, diagnosis)
    panels = _panels(diagnosis)
    divergent = statistic(diagnosis.sample_stats, "is_divergent")
    if (
        divergent is not None and divergent.shape != panels["log density"].shape
    ):  # of all iterations, between those drawn
        divergent = None
    report.figure(
        plots.trace_plot(panels, is_divergent=divergent),
        "Traces. Chains should overlap, without trends or flat stretches. Ticks at the bottom mark divergences. Long "
        "chains are shown at evenly spaced draws.",
    )
    report.figure(
        plots.rank_plot(panels),
        "Ranks of each chain among all draws, as the difference between their distribution function and the uniform "
        "one. Lines should stay around zero, between the dotted lines (95 % for all chains together, for the "
        "effective number of draws).",
    )
    energy = statistic(diagnosis.sample_stats, "energy")
    if energy is not None:
        report.figure(
            plots.energy_plot(energy),
            "Energies and their changes. Changes much narrower than the energies mean slow exploration of the tails.",
        )


def _write_sampler(report: Report, diagnosis: Diagnosis) -> None:
    stats = diagnosis.sample_stats
    columns: list[tuple[str, list[str]]] = []
    for name, words, reduce in (
        ("acceptance_rate", "mean acceptance", np.mean),
        ("is_divergent", "divergences", np.sum),
        ("num_integration_steps", "mean steps", np.mean),
        ("step_size", "step size", np.mean),
        ("residual", "largest residual", np.max),
    ):
        values = statistic(stats, name)
        if values is not None:
            columns.append((words, [rounded(float(reduce(chain)), 2 if name == "residual" else 3) for chain in values]))
    energy = statistic(stats, "energy")
    if energy is not None and energy.shape[1] > 1:
        columns.append(("E-BFMI", [rounded(float(value), 2) for value in e_bfmi(energy)]))
    if columns:
        num_chains = len(columns[0][1])
        report.table(
            [[str(i + 1), *(values[i] for _, values in columns)] for i in range(num_chains)],
            ["chain", *(words for words, _ in columns)],
            "The sampler's statistics for each chain. The residual is the distance of the components from "
            "orthonormality, which should be rounding error. E-BFMI should be at least 0.3.",
            most_rows=32,
        )


def _panels(diagnosis: Diagnosis) -> dict[str, np.ndarray]:
    draws = diagnosis.draws
    panels = {f"scale of component {j + 1}": draws["scale"][..., j] for j in range(min(3, draws["scale"].shape[-1]))}
    if "noise" in draws and draws["noise"].ndim == 2:
        panels["noise"] = draws["noise"]
    panels["log density"] = draws["lp"]
    if "components.angle" in draws:
        panels["largest angle to the mean subspace (degrees)"] = np.degrees(draws["components.angle"][..., -1])
    if "components.column_cosine" in draws:
        for j in range(min(2, draws["components.column_cosine"].shape[-1])):
            panels[f"cosine of component {j + 1} with its mean"] = draws["components.column_cosine"][..., j]
    return panels


def _by_kind(summary: Summary) -> dict[str, list[SummaryRow]]:
    kinds: dict[str, list[SummaryRow]] = {}
    for row in summary.rows:
        kinds.setdefault(row.name.split("[")[0], []).append(row)
    return kinds


def _worst_of(rows: list[SummaryRow]) -> list[str]:
    least = [whole(extreme(rows, name)) for name in ("ess_bulk", "ess_tail")]
    return [str(len(rows)), three_decimals(extreme(rows, "rhat")), *least]


def _in_words(name: str, columns: Sequence[str]) -> str:
    kind, _, index = name.rstrip("]").partition("[")
    if not index:
        return _WORDS.get(name, name)
    return f"scale of component {int(index) + 1}" if kind == "scale" else f"{kind} of {columns[int(index)]}"
