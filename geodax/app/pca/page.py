"""What the sections of a report of Bayesian principal components share: the page, and numbers as words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geodax.app.pca.quantities import PooledDraws
from geodax.app.report.html import Report
from geodax.app.report.numbers import with_interval


@dataclass(frozen=True)
class Page:
    """What the sections share.

    Attributes:
        report: The page that grows.
        draws: The finite draws, components aligned.
        table: The rows as the model saw them.
        columns: The columns' names.
        row_labels: The rows' names.
        config: As :func:`geodax.app.pca.write_report` takes it.
    """

    report: Report
    draws: PooledDraws
    table: np.ndarray
    columns: list[str]
    row_labels: list[str]
    config: Mapping[str, Any]

    @property
    def num_components(self) -> int:
        """The number of components."""
        return self.draws.scale.shape[1]

    @property
    def effective_rows(self) -> float:
        """The rows that would hold the observed cells."""
        return float((~np.isnan(self.table)).sum() / max(self.table.shape[1], 1))


def interval(values: np.ndarray, unit: str = "") -> str:
    """The median and the 90 % interval of some draws.

    Args:
        values: The draws.
        unit: Written after it.

    Returns:
        Text.
    """
    low, median, high = (float(q) for q in np.quantile(values, (0.05, 0.5, 0.95)))
    return with_interval(median, low, high, unit=unit)


def labels(given: Sequence[Any] | None, number: int, word: str) -> list[str]:
    """Names as text, or the word with numbers where none were given.

    Args:
        given: The names.
        number: How many there must be.
        word: What one is called.

    Returns:
        The names.
    """
    if given is None:
        return [f"{word} {i + 1}" for i in range(number)]
    if len(given) != number:
        raise ValueError(
            f"write_report expects {number} names of {word}s in config and found {len(given)}. "
            f"Pass one a {word} of the table."
        )
    return [str(name) for name in given]


def plural(number: int) -> str:
    """The ending of a counted word.

    Args:
        number: How many there are.

    Returns:
        Nothing for one, otherwise "s".
    """
    return "" if number == 1 else "s"
