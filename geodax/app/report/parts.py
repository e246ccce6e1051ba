"""What the HTML reports of several models share: the first section, posterior predictive checks, and the last ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geodax.app.report import plots
from geodax.app.report.html import Report
from geodax.app.report.numbers import digits_between, rounded, with_interval
from geodax.diagnostics.findings import Finding, summarize


def begin(report: Report, findings: Sequence[Finding], config: Mapping[str, Any]) -> None:
    """Say whether the draws can be used, and what was decided about the data.

    Args:
        report: The report, still empty.
        findings: Of the diagnostics.
        config: Of the run folder.
    """
    report.section("Summary")
    if findings:
        titles = "; ".join(dict.fromkeys(finding.title for finding in findings))
        report.callout(findings[0].severity, "The diagnostics found something.", f"Found: {titles}. See Diagnostics.")
    else:
        report.callout("fine", "The diagnostics are fine, the draws can be used.")
    if config["notes"]:
        report.items(config["notes"])


def write_checks(report: Report, checks: Mapping[str, tuple[float, np.ndarray]]) -> None:
    """A table of posterior predictive checks.

    Args:
        report: The report.
        checks: The data's value and those of the replicates, by name.
    """
    rows = []
    for name, (observed, drawn) in checks.items():
        low, median, high = (float(q) for q in np.quantile(drawn, (0.05, 0.5, 0.95)))
        below = float(np.mean(drawn < observed) + 0.5 * np.mean(drawn == observed))
        rows.append([name, rounded(observed, 4), with_interval(median, low, high), f"{100 * below:.0f} %"])
    report.table(
        rows,
        ["quantity", "data", "replicates, 90 %", "replicates below the data"],
        "Data drawn from the fitted model beside the data. Shares near 0 % or 100 % are what the model cannot do.",
    )


def end(
    report: Report,
    draws: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    findings: Sequence[Finding],
    config: Mapping[str, Any],
    command: str,
) -> None:
    """Diagnostics and provenance.

    Args:
        report: The report.
        draws: What was judged, by name.
        stats: Of the sampler.
        findings: Of the diagnostics.
        config: Of the run folder.
        command: That makes the run again.
    """
    report.section("Diagnostics")
    report.warnings(findings, fine="No problem was found: the chains agree and have enough effective draws.")
    summary = summarize(draws, stats)
    rows = []
    for row in summary.rows:
        digits = digits_between(row.quantile_5, row.quantile_95, 4)
        mean, low, high = (rounded(value, digits) for value in (row.mean, row.quantile_5, row.quantile_95))
        rows.append([row.name, mean, row.sd, low, high, f"{row.ess_bulk:.0f}", f"{row.rhat:.3f}"])
    report.table(rows, ["quantity", "mean", "sd", "5 %", "95 %", "bulk ESS", "R-hat"], "What was judged, one by one.")
    report.figure(plots.trace_plot(draws), "Traces: chains should overlap, without trends or long stays.")
    report.figure(plots.rank_plot(draws), "Ranks of each chain among all draws: lines should stay within the dots.")
    report.section("Provenance")
    report.code(command)
    versions = ", ".join(f"{name} {number}" for name, number in config["versions"].items())
    report.items([f"Data: `{config['file']}`, SHA-256 `{config['sha256']}`", f"Begun {config['created']}", versions])
