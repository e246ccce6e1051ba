"""Sections that several reports share: summary, posterior predictive checks, diagnostics and provenance."""

from collections.abc import Mapping, Sequence

import numpy as np

from geodax.app.family import RunFacts
from geodax.app.report import plots
from geodax.app.report.html import Report
from geodax.app.report.numbers import agreement, digits_between, interval_of, rounded
from geodax.diagnostics.findings import Finding, summarize


def begin(report: Report, answer: str, run: RunFacts) -> None:
    """Write what was found (one to three sentences), the verdict of the diagnostics, and the notes on the data."""
    report.section("Summary")
    report.text(answer)
    verdict(report, run.findings)
    if run.config["notes"]:
        report.items(run.config["notes"])


def verdict(report: Report, findings: Sequence[Finding]) -> None:
    """Write a box that says whether the diagnostics found problems."""
    if findings:
        titles = "; ".join(dict.fromkeys(finding.title for finding in findings))
        are_notes = findings[0].severity == "note"
        heading = "The diagnostics found nothing serious." if are_notes else "The diagnostics found problems."
        report.callout(findings[0].severity, heading, f"Found: {titles}. See Diagnostics.")
    else:
        report.callout("fine", "The diagnostics found no problem. The draws can be used.")


Checks = Mapping[str, tuple[float, np.ndarray]]
"""Posterior predictive checks: the values of the data and of replicates drawn from the fitted model, by name."""

_FAR = 4.0  # standard deviations of the replicates


def misfits(checks: Checks, advice: str) -> list[Finding]:
    """Return a note, with advice, if quantities of the data are far from all replicates."""
    said = [
        f"{name}: {rounded(observed, 4)} in the data, {interval_of(drawn)} in replicates"
        for name, (observed, drawn) in checks.items()
        if abs(observed - drawn.mean()) > _FAR * drawn.std() and not drawn.min() <= observed <= drawn.max()
    ]
    detail = f"{'; '.join(said)} (medians and 90 % intervals of data drawn from the fitted model)."
    return [Finding("note", "Data that the fitted model does not reproduce", detail, advice)] if said else []


def write_checks(report: Report, checks: Checks) -> None:
    """Write the section on posterior predictive checks."""
    report.section("Posterior predictive checks")
    rows = []
    for name, (observed, drawn) in checks.items():
        below = float(np.mean(drawn < observed) + 0.5 * np.mean(drawn == observed))
        rows.append([name, rounded(observed, 4), interval_of(drawn), f"{100 * below:.0f} %"])
    report.table(
        rows,
        ["quantity", "data", "replicates, 90 %", "replicates below the data"],
        "Replicates drawn from the fitted model, compared with the data. Near 0 % or 100 % the model fits poorly.",
    )


def end(
    report: Report,
    draws: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    run: RunFacts,
    *,
    about: str = "",
    points: Sequence[str] = (),
) -> None:
    """Write the sections on diagnostics and provenance.

    ``about`` says what is diagnosed; ``points`` are names of draws that are estimates, one for each chain.
    """
    report.section("Diagnostics")
    if about:
        report.text(about)
    report.warnings(run.findings, fine="No problems found. The chains agree and have enough effective draws.")
    summary = summarize(draws, stats, points=points)
    rows = []
    for row in summary.rows:
        digits = digits_between(row.quantile_5, row.quantile_95, 4)
        mean, low, high = (rounded(value, digits) for value in (row.mean, row.quantile_5, row.quantile_95))
        rows.append([row.name, mean, row.sd, low, high, *agreement(row)])
    report.table(rows, ["quantity", "mean", "sd", "5 %", "95 %", "bulk ESS", "R-hat"], "The diagnosed quantities.")
    report.figure(plots.trace_plot(draws), "Traces: chains should overlap, without trends or flat stretches.")
    report.figure(
        plots.rank_plot(draws), "Ranks of each chain among all draws: lines should stay between the dotted lines."
    )
    report.section("Provenance")
    report.code(run.command)
    versions = ", ".join(f"{name} {number}" for name, number in run.config["versions"].items())
    data = f"Data: `{run.config['file']}`, SHA-256 `{run.config['sha256']}`"
    report.items([data, f"Started {run.config['created']}", versions])
