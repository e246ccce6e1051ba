"""Tables of held-out scores of several models: the one that was fitted, and simpler ones beside it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from geodax.app.report.numbers import rounded, with_error
from geodax.predict.held_out import Score, proportion

if TYPE_CHECKING:
    from geodax.app.report.html import Report  # loads Matplotlib

Scores: TypeAlias = Mapping[str, Mapping[str, Score]]
"""A score for each name of a score and of a model; the first model is the fitted one."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals in reports."""

_PERCENT = ("accuracy", "90 % coverage")
_JUDGES = ("RMSE", "root mean squared error", "log loss")  # the lower the better


def models(scores: Scores) -> tuple[str, ...]:
    """Return the names of the models."""
    return tuple(next(iter(scores.values())))


def rows(scores: Scores) -> list[list[str]]:
    """Return the rows of a table: the name of a score, then the score of each model with its standard error."""
    return [[name, *(score_text(name, score) for score in row.values())] for name, row in scores.items()]


def write(report: "Report", scores: Scores, caption: str) -> None:
    """Write the table into a report."""
    report.table(rows(scores), ["score", *models(scores)], caption)


def lines(words: str, scores: Scores) -> tuple[str, ...]:
    """Return the table as aligned lines of text, with the number and kind of the rows in the corner.

    A last line names simpler models that predict clearly better, if there are any.
    """
    cells = [[words, *models(scores)], *rows(scores)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    table = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)
    return (*table, *filter(None, [shortfall(scores)]))


def shortfall(scores: Scores) -> str:
    """Say which simpler models predict better by more than two standard errors; empty if none does."""
    name = next(name for name in _JUDGES if name in scores)
    own, *others = scores[name].items()
    gaps = {other: own[1].minus(score) for other, score in others}
    better = {other: gap for other, gap in gaps.items() if np.isfinite(gap.error) and gap.value > 2 * gap.error}
    if not better:
        return ""
    sizes = (f"{other} ({name} {with_error(gap.value, gap.error)} lower)" for other, gap in better.items())
    return f"Simpler models predict these better: {', '.join(sizes)}."


def score_text(name: str, score: Score) -> str:
    """Write a score with its standard error; fractions of rows as percentages."""
    if name.startswith(_PERCENT):
        return with_error(100 * score.value, 100 * score.error) + " %"
    return with_error(score.value, score.error)


def coverage(
    intervals: Mapping[float, Iterable[np.ndarray]], y: np.ndarray, weights: np.ndarray | None = None
) -> list[list[str]]:
    """Return the rows of a table: each level, the fraction of values y in its intervals, and their mean width."""
    cells = []
    for level, (low, high) in intervals.items():
        inside = proportion((low <= y) & (y <= high), weights)
        share = with_error(100 * inside.value, 100 * inside.error)
        cells.append([f"{100 * level:.0f} %", f"{share} %", rounded(float(np.mean(high - low)), 3)])
    return cells


def compared(name: str, row: Mapping[str, Score], other: str) -> str:
    """Say how much lower or higher a score of the fitted model is than that of another one, and how clearly.

    The sentence is empty if the difference is not finite.
    """
    gap = row[other].minus(next(iter(row.values())))
    if not (np.isfinite(gap.value) and np.isfinite(gap.error)):
        return ""
    size = with_error(abs(gap.value), gap.error)
    if size.startswith("0 "):
        return f"Its {name} is equal to that of the {other}, up to a standard error of {size.rpartition(' ')[2]}."
    relation = "lower" if gap.value > 0 else "higher"
    clear = "" if abs(gap.value) > 2 * gap.error else ", which is within two standard errors"
    return f"Its {name} is {size} {relation} than that of the {other}{clear}."
