"""What the data say about the number of components: predictions of held-out cells, and eigenvalues."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from geodax.app.pca import quantities
from geodax.app.report.numbers import rounded
from geodax.data.errors import counted
from geodax.models.pca.held_out import HeldOutCells, held_out_cells, is_quick

NUM_TABLES = 60
"""Number of simulated tables."""

_MOST_CELLS = 300_000


class Evidence(NamedTuple):
    """What the data say about the number of components.

    Attributes:
        held_out: Predictions of held-out cells; None if the table is too small, or takes too long.
        observed: Eigenvalues of the covariance of the table, those of classical PCA; None if cells are missing.
        replicated: Those of tables simulated from the fitted model; None if cells are missing or the table is large.
    """

    held_out: HeldOutCells | None
    observed: Float[np.ndarray, " k"] | None
    replicated: Float[np.ndarray, "table k"] | None


def evidence(table: Float[np.ndarray, "row n"], draws: Mapping[str, np.ndarray], *, always: bool = False) -> Evidence:
    """Collect the evidence on the number of components from rows with NaN where a cell is missing.

    Pass at least 60 draws of ``scale``, ``noise`` and, where columns have their own noise, ``components``, if there are
    as many. With ``always``, held-out cells are predicted even if it takes long.
    """
    rows, n = table.shape
    is_whole = not np.isnan(table).any() and rows > 1
    is_usable = ~np.isnan(table).all(axis=0).any() and rows > 1
    is_asked = is_usable and (always or is_quick(table))
    held_out = held_out_cells(table, is_diagonal=draws["noise"].ndim == 2) if is_asked else None
    observed = quantities.table_eigenvalues(table) if is_whole and min(rows, n) <= quantities.MOST_SIDE else None
    replicated = None
    if observed is not None and table.size <= _MOST_CELLS:
        chosen = np.unique(np.linspace(0, len(draws["noise"]) - 1, NUM_TABLES).round().astype(int))
        replicated = quantities.replicated_eigenvalues({k: v[chosen] for k, v in draws.items()}, rows, n)
    return Evidence(held_out, observed, replicated)


def choice_sentence(held_out: HeldOutCells | None) -> str:
    """Return a note on a number that was chosen automatically."""
    if held_out is None:
        return "1 component chosen: the table is too small to compare numbers of components."
    if not held_out.chosen:
        return "1 component chosen, although none predicts held-out cells better than the means of the columns."
    return (
        f"{counted(held_out.chosen, 'component')} chosen, the smallest number up to {held_out.most} that predicts "
        f"held-out cells about as well as the best ({held_out.best})."
    )


def sentences(found: Evidence, p: int, *, is_diagonal: bool) -> list[str]:
    """Say in up to two sentences whether a fit with p components has too few or too many."""
    held_out, advised = found.held_out, None if found.held_out is None else found.held_out.chosen
    said = []
    if found.observed is not None and found.replicated is not None and p < found.observed.shape[0]:
        value, (low, high) = float(found.observed[p]), np.quantile(found.replicated[:, p], (0.05, 0.95))
        if value > high:
            text = (
                f"The data have more variance along component {p + 1} than the model with {p} predicts: an eigenvalue "
                f"of {rounded(value)}, and {rounded(float(low))} to {rounded(float(high))} in simulated tables"
            )
            if advised is None:
                text += f": try `--n-components {p + 1}`"
            elif advised <= p and not is_diagonal:
                text += ". As it does not help to predict held-out cells, it is probably noise that differs by column: "
                text += "try `--noise diagonal`"
            said.append(f"{text}.")
    if held_out is None or advised is None:
        return said
    decimals = int(advised > p and _percent(held_out, advised) == _percent(held_out, p))  # few percent of both
    share = f"{_percent(held_out, advised, decimals)} of the variance of held-out cells"
    where = "With equal noise in all columns, " if is_diagonal and not held_out.is_diagonal else ""
    predicts = f"{where}{counted(advised, 'component')} predict{'s' * (advised == 1)} {share}"
    if advised > p:
        said.append(f"{predicts}, {p} only {_percent(held_out, p, decimals)}: try `--n-components {advised}`.")
    elif advised == p:
        said.append(f"{predicts}, about as much as any number up to {held_out.most}.")
    elif advised == 0:
        said.append("No number of components predicts held-out cells better than the means of the columns.")
    else:
        own = f", {p} {_percent(held_out, p)}" if p <= held_out.most else ""
        said.append(f"{predicts}{own}: for predictions `--n-components {advised}` is enough.")
    return said


def held_out_rows(held_out: HeldOutCells, p: int) -> list[list[str]]:
    """Return the rows of a table of the predictions, for a fit with p components."""
    marks = {held_out.best: ["best"]}
    marks.setdefault(held_out.chosen, []).append("about as good")
    marks.setdefault(p, []).append("this fit")
    behind = 100 * (held_out.predicted[held_out.best] - held_out.predicted)
    return [
        [
            f"{k} ({', '.join(marks[k])})" if k in marks else str(k),
            f"{100 * value:.1f}".replace("-", "−"),
            f"{behind[k]:.1f} ± {100 * error:.1f}",
        ]
        for k, (value, error) in enumerate(zip(held_out.predicted, held_out.standard_error, strict=True))
    ]


def _percent(held_out: HeldOutCells, number: int, decimals: int = 0) -> str:
    return f"{100 * held_out.predicted[number]:.{decimals}f} %".replace("-", "−")
