"""Findings as they are printed: an advice that several of them have is printed once."""

from collections.abc import Iterable, Iterator

from geodax.diagnostics.findings import Finding


def with_each_advice_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings in the order of printing, with a reference in place of advice that an earlier one gives."""
    titles: dict[str, str] = {}
    for finding in findings:
        if finding.advice in titles:
            yield finding._replace(advice=f'As for "{titles[finding.advice]}".')
        else:
            titles[finding.advice] = finding.title
            yield finding
