"""Shared parts of the sections of a PCA report."""

from collections.abc import Mapping
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


def plural(number: int) -> str:
    """Return the plural ending for a number: empty for one, otherwise "s"."""
    return "" if number == 1 else "s"
