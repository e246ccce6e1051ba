"""Shared parts of the sections of a PCA report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geodax.app.pca.number import Evidence
from geodax.app.pca.quantities import PooledDraws
from geodax.app.report.html import Report


@dataclass(frozen=True)
class Page:
    """State shared by the sections.

    Attributes:
        draws: The finite draws, with aligned components.
        config: The argument of :func:`geodax.app.pca.write_report`.
        evidence: What the data say about the number of components.
    """

    report: Report
    draws: PooledDraws
    table: np.ndarray
    columns: list[str]
    row_labels: list[str]
    config: Mapping[str, Any]
    evidence: Evidence

    @property
    def num_components(self) -> int:
        """Number of components."""
        return self.draws.scale.shape[1]

    @property
    def effective_rows(self) -> float:
        """Number of complete rows with the same number of observed cells."""
        return float((~np.isnan(self.table)).sum() / max(self.table.shape[1], 1))


def labels(given: Sequence[Any] | None, number: int, word: str) -> list[str]:
    """Return names as text, or numbered names if none are given; raises ValueError for another number of them."""
    if given is None:
        return [f"{word} {i + 1}" for i in range(number)]
    if len(given) != number:
        raise ValueError(
            f"write_report: expected {number} names of {word}s in config, found {len(given)}. "
            f"Pass one for each {word} of the table."
        )
    return [str(name) for name in given]


def plural(number: int) -> str:
    """Return the plural ending for a number: empty for one, otherwise "s"."""
    return "" if number == 1 else "s"
