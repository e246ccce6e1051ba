"""Rows with inputs and a target, as a run keeps them."""

import dataclasses
from pathlib import Path

import numpy as np

from geodax.app.run_folder.files import load_data
from geodax.app.tables.assembly import missing_counts


@dataclasses.dataclass(frozen=True)
class LabelledTable:
    """Rows of a table whose target is known.

    Attributes:
        inputs: Rows x columns, NaN where a cell is missing: numbers, then a sine and a cosine for each entry of
            ``dates``, then one 0/1 column for each entry of ``categories``.
        targets: Numbers, or names of classes; of several targets rows x targets.
        names: Names of the columns of ``inputs``.
        categories: Columns of the file and their categories.
        dates: Columns of dates and the periods in which their place is an input.
        days: Columns of dates.
        is_as_written: Whether classes and categories are named by :func:`geodax.app.tables.names.as_names`; in runs of
            earlier versions numeric classes are named by their values.
        target: Name of the target; of several, their names with commas.
        is_test: Which rows are held out.
        weights: Weights of the rows; empty if all are 1.
        several: Names of the targets if there are several.
        groups: Group of each row, from 0, if groups are held out together; else empty.
        calibrates: Whether each fitted row calibrates conformal predictions, of a series in time; else empty.
        notes: Decisions made while reading the data.
    """

    inputs: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...]
    target: str
    is_test: np.ndarray
    notes: tuple[str, ...]
    categories: tuple[tuple[str, str], ...] = ()
    dates: tuple[tuple[str, str], ...] = ()
    is_as_written: bool = True
    days: tuple[str, ...] = ()
    weights: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    several: tuple[str, ...] = ()
    groups: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    calibrates: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets."""
        return self.several or (self.target,)

    def for_target(self, number: int) -> "LabelledTable":
        """Return the table with one of several targets."""
        return dataclasses.replace(self, targets=self.targets[:, number], target=self.several[number], several=())

    @property
    def train_weights(self) -> np.ndarray | None:
        """Weights of the fitted rows, or None."""
        return self.weights[~self.is_test] if len(self.weights) else None

    @property
    def train_groups(self) -> np.ndarray | None:
        """Groups of the fitted rows, or None."""
        return self.groups[~self.is_test] if len(self.groups) else None

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the fitted rows."""
        return self.inputs[~self.is_test], self.targets[~self.is_test]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the held-out rows."""
        return self.inputs[self.is_test], self.targets[self.is_test]

    @property
    def numbers(self) -> list[str]:
        """The file's numeric columns."""
        return list(self.names[: len(self.names) - len(self.categories) - 2 * len(self.dates)])

    @property
    def sources(self) -> list[str]:
        """The file's column of each input."""
        return [*self.numbers, *(name for name, _ in self.dates for _ in "sc"), *(name for name, _ in self.categories)]

    def missing(self, inputs: np.ndarray) -> dict[str, int]:
        """Count the missing cells of rows by column of the file, without those that have none."""
        return missing_counts(self.sources, inputs)


def load_labelled(path: Path) -> LabelledTable:
    """Read the rows of a run; StorageError if they are damaged."""
    data = load_data(path, LabelledTable, is_as_written=False, calibrates=None)
    if data.calibrates is not None:
        return data
    return dataclasses.replace(data, groups=np.zeros(0, int), calibrates=np.zeros(0, bool))  # earlier fits knew none
