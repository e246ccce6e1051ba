"""Checks and standardisation of grouped rows with two views."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from geodax import _checks
from geodax._wording import in_python
from geodax.models.missing import require_values

Columns = Sequence[Any]
_NUMBERED = re.compile(r"((view_[12]|column)_)?[0-9]+")  # columns without a name


class Views(NamedTuple):
    """Two views of the same rows.

    Attributes:
        first: View 1, rows x n_1, NaN where a cell is missing.
        second: View 2, rows x n_2.
        names: Names of the columns of both views.
    """

    first: Float[np.ndarray, "m n1"]
    second: Float[np.ndarray, "m n2"]
    names: tuple[tuple[str, ...], tuple[str, ...]]

    def both(self) -> Float[np.ndarray, "m n"]:
        """Return both views side by side."""
        return np.concatenate([self.first, self.second], axis=1)


class Rows(NamedTuple):
    """Standardised rows with some cells observed.

    Attributes:
        values: Both views side by side, zero where not observed.
        places: Group of each row, as an index into the groups of the fit.
        observed: Mask of the observed cells.
        given: Mask of the columns of the given views.
    """

    values: Float[np.ndarray, "m n"]
    places: Int[np.ndarray, " m"]
    observed: Bool[np.ndarray, "m n"]
    given: Bool[np.ndarray, " n"]

    @property
    def each(self) -> tuple[np.ndarray, ...]:
        """What functions of rows take: values, groups, and the mask of the observed cells."""
        return self.values, self.places, self.observed

    def with_missing(self) -> Float[np.ndarray, "m n"]:
        """Return the values, NaN where not observed."""
        return np.where(self.observed, self.values, np.nan)


class Units(NamedTuple):
    """Standardisation of the data, with the groups and columns of the fit.

    Attributes:
        center: What is subtracted from each column, both views side by side.
        spread: Divisor of each column after centring.
        groups: The labels, sorted.
        names: Names of the columns of both views.
    """

    center: Float[np.ndarray, " n"]
    spread: Float[np.ndarray, " n"]
    groups: np.ndarray
    names: tuple[tuple[str, ...], tuple[str, ...]]

    def rows(self, owner: str, parts: dict[int, np.ndarray], labels: np.ndarray) -> Rows:
        """Standardise one view or both, matrices by view number, 1 or 2; none for rows without given columns."""
        place = {label: i for i, label in enumerate(self.groups.tolist())}
        unknown = next((label for label in labels.tolist() if label not in place), None)
        if unknown is not None:
            raise ValueError(
                f"{owner}: group {unknown!r} is not in the fit; expected one of {', '.join(map(str, self.groups))}. "
                "Scales and means are specific to each group, so rows of new groups cannot be predicted."
            )
        n_1, n = len(self.names[0]), len(self.center)
        values, given = np.full((len(labels), n), np.nan), np.zeros(n, dtype=bool)
        for view, part in parts.items():
            columns = np.arange(n_1) if view == 1 else np.arange(n_1, n)
            if part.shape != (len(labels), len(columns)) or np.isinf(part).any():
                raise ValueError(
                    f"{owner}: expected view {view} as {len(labels)} rows of {len(columns)} numbers, finite or NaN, "
                    f"found shape {part.shape}."
                )
            values[:, columns] = (part - self.center[columns]) / self.spread[columns]
            given[columns] = True
        places = np.array([place[label] for label in labels.tolist()], dtype=int)
        return Rows(np.nan_to_num(values), places, ~np.isnan(values), given)


def split_views(owner: str, X: Any, columns: tuple[Columns, Columns] | None) -> Views:
    """Extract the views from a pair of matrices, or from the columns of one matrix or data frame.

    ``columns`` are the names or positions of the columns of each view of one matrix. Raises ValueError if X has another
    form, or the views overlap, differ in their rows or have infinite values.
    """
    if _is_pair(X):
        parts = [(_numbers(owner, x, f"view {v}"), names_of(x, f"view_{v}")) for v, x in enumerate(X, start=1)]
    elif columns is None:
        raise ValueError(
            f"{owner}: expected a pair [X1, X2] of matrices with the same rows, found {type(X).__name__}. One matrix "
            "with the columns of both needs views=(columns of view 1, columns of view 2)."
        )
    else:
        kinds = (list, tuple, np.ndarray)
        if _num_axes(X) is None or not (isinstance(columns, kinds) and all(isinstance(c, kinds) for c in columns)):
            raise TypeError(
                f"{owner}: X must be one matrix and views a pair of lists of its columns, found "
                f"{_checks.described(X)} and {_checks.described(columns)}."
            )
        names = names_of(X)
        matrix = X if hasattr(X, "columns") and hasattr(X, "to_numpy") else np.asarray(X)
        cells: Any = getattr(matrix, "iloc", matrix)  # the columns of a data frame have separate types
        if len(matrix.shape) != 2 or len(columns) != 2:
            raise ValueError(
                f"{owner}: views must be a pair of lists of columns and X one matrix, found {len(columns)} lists and "
                f"shape {matrix.shape}."
            )
        places = [[_place(owner, c, names) for c in part] for part in columns]
        both = sorted(set(places[0]) & set(places[1]))
        if both:
            raise ValueError(f"{owner}: column {names[both[0]]!r} cannot belong to both views.")
        parts = [
            (_numbers(owner, cells[:, part], f"view {v}"), tuple(names[i] for i in part))
            for v, part in enumerate(places, start=1)
        ]
    (first, names_1), (second, names_2) = parts
    if len(first) != len(second):
        raise ValueError(f"{owner}: both views must have the same rows, found {len(first)} and {len(second)}.")
    return Views(first, second, (names_1, names_2))


def require_columns(owner: str, names: tuple[str, ...], fitted: tuple[str, ...]) -> None:
    """Raise ValueError if the columns of a view have names, and not those of the fit in the same order."""
    if names != fitted and not any(map(_NUMBERED.fullmatch, (*names, *fitted))):
        raise ValueError(
            f"{owner}: expected the columns of the fit in their order, {', '.join(fitted[:12])}, found "
            f"{', '.join(names[:12])}."
        )


def is_matrix(X: Any) -> bool:
    """Return whether X is like an array: neither a pair of views, nor a data frame, nor ragged lists."""
    return not (_is_pair(X) or hasattr(X, "columns") or _num_axes(X) is None)


def group_labels(owner: str, X: Any, groups: Any, num_rows: int, known: Sequence[Any] | np.ndarray = ()) -> np.ndarray:
    """Return the group of each row; raises ValueError if there is not one label for each, or some are missing.

    ``groups`` are the labels, or the name of a column of the data frame X; None if there is only one known label.
    """
    if isinstance(groups, str) and hasattr(X, "columns") and groups in X.columns:
        groups = X[groups]
    if groups is None and len(known) == 1:
        return np.repeat(known, num_rows)
    if groups is None or isinstance(groups, str) or np.shape(groups) != (num_rows,):
        found = repr(groups) if groups is None or isinstance(groups, str) else f"shape {np.shape(groups)}"
        of_fit = ""
        if groups is None and len(known):
            pipeline = in_python(" A Pipeline passes its y as the groups of a fit.")
            of_fit = f" The fit had groups such as {_checks.described(known[0])}.{pipeline}"
        raise ValueError(f"{owner}: groups must hold one label for each of the {num_rows} rows, found {found}.{of_fit}")
    return _checks.labels(owner, "groups", groups)


def units_within(owner: str, views: Views, labels: np.ndarray, *, standardize: bool) -> Units:
    """Compute the means of all rows, and standard deviations within groups.

    With ``standardize`` each column is divided by its own, else all by one number. Raises ValueError if a group has
    fewer than three rows, or a column is constant within groups.
    """
    groups, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.min() < 3:
        raise ValueError(
            f"{owner}: every group needs at least three rows, but group {groups[counts.argmin()].item()!r} has "
            f"{counts.min()}."
        )
    both = views.both()
    names = views.names[0] + views.names[1]
    require_values(owner, both, names)
    members = [np.ma.masked_invalid(both[places == g]) for g in range(len(groups))]
    freedom = sum(np.maximum(x.count(axis=0) - 1, 0) for x in members)
    squares = sum(((x - x.mean(axis=0)) ** 2).sum(axis=0).filled(0.0) for x in members)
    within = np.sqrt(squares / np.maximum(freedom, 1))
    if not (within > 0).all():
        name = names[int(within.argmin())]
        raise ValueError(f"{owner}: column {name!r} is constant within every group.")
    spread = within if standardize else np.full_like(within, np.sqrt(np.mean(within**2)))
    return Units(np.nanmean(both, axis=0), spread, groups, views.names)


def _numbers(owner: str, x: Any, what: str) -> Float[np.ndarray, "m n"]:
    try:
        values = _checks.numbers(owner, what, x)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if np.isinf(values).any():
        row, column = (int(i) for i in np.argwhere(np.isinf(values))[0])
        raise ValueError(
            f"{owner}: {what} holds {values[row, column]} in row {row}, column {column}; expected finite numbers, or "
            "NaN for missing cells."
        )
    return values


def _num_axes(x: Any) -> int | None:
    try:
        return len(x.shape) if hasattr(x, "shape") else np.asarray(x).ndim
    except ValueError:
        return None


def _is_pair(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and len(X) == 2 and all(_num_axes(x) == 2 for x in X)


def names_of(x: Any, otherwise: str = "column") -> tuple[str, ...]:
    """Return the names of the columns of a data frame; those of a matrix are numbered."""
    if hasattr(x, "columns"):
        return tuple(map(str, x.columns))
    return tuple(f"{otherwise}_{i + 1}" for i in range(np.shape(x)[1] if np.ndim(x) == 2 else 0))


def _place(owner: str, column: Any, names: tuple[str, ...]) -> int:
    if isinstance(column, str):
        if column in names:
            return names.index(column)
        raise ValueError(f"{owner}: there is no column {column!r}; the columns are {', '.join(names[:12])}.")
    if isinstance(column, (int, np.integer)) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"{owner}: column {column!r} is not one of the {len(names)} columns.")
