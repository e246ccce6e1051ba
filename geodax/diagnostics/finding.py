"""A finding of the diagnostics."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One finding.

    Attributes:
        severity: "severe": the draws must not be used. "warning": some numbers are unreliable.
            "note": for information.
        title: A short title.
        detail: What was found, where, and what was expected.
        advice: What to do.
    """

    severity: Literal["severe", "warning", "note"]
    title: str
    detail: str
    advice: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.title}. {self.detail} {self.advice}"
