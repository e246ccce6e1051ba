"""A finding of the diagnostics."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool


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


def share(is_affected: Bool[np.ndarray, "chain draw"]) -> str:
    """Number and percentage of the iterations that are affected."""
    count = int(np.sum(is_affected))
    return f"{count} of {np.size(is_affected)} iterations ({100 * np.mean(is_affected):.3g} %)"
