"""The sections of a report on the rows: scores, missing cells, and what the model leaves unexplained."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from geodax.app.pca import figures, quantities
from geodax.app.pca.page import Page
from geodax.app.report.numbers import interval_of, with_interval

_MOST_SCORE_DRAWS = 300
_MOST_ROWS = 400
_MOST_GROUPS = 8
_MOST_NOISES = 40
_Z90 = 1.6449

_CONDITIONAL = """z | x_o ~ Normal(m, G),   G = (I + A' A / noise^2)^-1,   m = G A' (x_o - mean_o) / noise^2
A = components_o diag(scale);   o: the observed columns of the row"""
_CONDITIONAL_DIAGONAL = """z | x_o ~ Normal(m, G),   G = (I + A' S^-1 A)^-1,   m = G A' S^-1 (x_o - mean_o)
A = components_o diag(scale);   S = diag(noise_o^2);   o: the observed columns of the row"""


def write_scores(page: Page) -> None:
    """Write the section on the scores of the rows."""
    report, p = page.report, page.num_components
    num_rows = len(page.table)
    report.section("Scores")
    chosen = _spaced(num_rows, _MOST_ROWS)
    draws = page.draws.thinned(_MOST_SCORE_DRAWS)
    mean, covariance = quantities.score_moments(draws, page.table[chosen])
    report.text(
        "A row's scores, scale × z, are its coordinates along the components. Given a draw of the "
        "parameters they are normal:"
    )
    report.code(_CONDITIONAL_DIAGONAL if page.draws.is_diagonal else _CONDITIONAL)
    report.text(
        "The ellipses show the mean and the covariance over the draws: the conditional covariance plus the covariance "
        "of the conditional means. They include the uncertainty of the row's scores and of the components. Rows with "
        "missing cells have wider ellipses."
    )
    group, names = _groups(page.config["groups"], num_rows)
    coloured = f", coloured by `{page.config['group_name']}`" if names else ""
    what = "90 % intervals, in the order of the scores" if p == 1 else "90 % credible ellipses"
    if p > 1 and len(chosen) > figures.MOST_ELLIPSES:
        what += f" of {figures.MOST_ELLIPSES} rows, evenly spaced along the first"
    thinned = f" {len(chosen)} evenly spaced rows of {num_rows} are shown." if len(chosen) < num_rows else ""
    report.figure(
        figures.score_figure(mean, covariance, group[chosen], names),
        f"Posterior mean scores with {what}{coloured}.{thinned}",
    )

    if p > 1:
        report.figure(
            figures.biplot(mean[:, :2], draws.components[:, :, :2], group[chosen], page.columns),
            "Biplot: the scores, and the loadings as arrows, all lengthened by one factor, with 90 % ellipses. Columns "
            "with arrows in the same direction rise together; rows far along an arrow are high in that column."
            + (
                f" The {figures.MOST_ARROWS} longest arrows are shown."
                if len(page.columns) > figures.MOST_ARROWS
                else ""
            ),
        )

    def end(i: int, j: int) -> list[str]:
        value, half = float(mean[i, j]), _Z90 * float(np.sqrt(covariance[i, j, j]))
        label = page.row_labels[chosen[i]] + (f" ({names[group[chosen[i]]]})" if names else "")
        return [label, with_interval(value, value - half, value + half)]

    rows = []
    for j in range(min(p, 3)):
        order = np.argsort(mean[:, j], kind="stable")
        for low, high in zip(order[:3].tolist(), order[::-1][:3].tolist(), strict=True):
            rows.append([f"component {j + 1}", *end(low, j), *end(high, j)])
    report.table(
        rows,
        ["component", "lowest", "score", "highest", "score"],
        "The rows with the lowest and highest scores on the first components, with means and 90 % intervals.",
    )


def write_missing(page: Page) -> None:
    """Write the section on missing cells, if there are any."""
    cells = np.argwhere(np.isnan(page.table))
    if not len(cells):
        return
    report = page.report
    center, spread = page.config["center"], page.config["spread"]
    observed = np.ma.masked_invalid(page.table).std(axis=0).filled(0.0)
    report.section("Missing cells")
    shown = cells[:30]
    draws = page.draws.thinned(2000)
    values = quantities.imputed_draws(draws, page.table, shown)
    values = center[shown[:, 1]] + spread[shown[:, 1]] * values
    report.text(
        "Predictions of the missing cells, given the observed cells of the same row, noise included. The model "
        "assumes that a cell is not missing because of its value."
    )
    rows = [
        [page.row_labels[i], page.columns[j], interval_of(values[:, k]), _width(values[:, k], spread[j] * observed[j])]
        for k, (i, j) in enumerate(shown)
    ]
    which = f"The first 30 of {len(cells)} missing cells" if len(cells) > 30 else "The missing cells"
    report.table(
        rows,
        ["row", "column", "median [90 % interval]", "relative width"],
        f"{which}, in the units of the table. Relative width is the interval's width over that of the column "
        "itself (3.3 standard deviations). It is well below 1 if the other columns predict the cell well.",
    )


def write_fit(page: Page) -> None:
    """Write the section on the fit of the model."""
    draws, report, table = page.draws, page.report, page.table
    num_rows, n = table.shape
    if draws.is_diagonal:
        _write_noise(page)
        return
    report.section("Does the model fit?")
    few = draws.thinned(100)
    sample = table[_spaced(num_rows, 5 * _MOST_ROWS if not np.isnan(table).any() else _MOST_ROWS)]
    residual = quantities.column_residuals(few, sample)
    middle = np.median(residual, axis=0)
    middle = np.where(np.isfinite(middle), middle, np.median(draws.noise))
    order = np.argsort(-middle, kind="stable")
    chosen = order if n <= 24 else np.concatenate([order[:12], order[-12:]])
    report.text(
        "The model has the same noise for all columns. Columns with a much larger residual are explained worse than "
        "the model says, columns with a much smaller residual better."
    )
    report.figure(
        figures.residual_figure(residual[:, chosen], draws.noise, [page.columns[i] for i in chosen]),
        f"Residual of each column, compared with the noise"
        f"{'' if n <= 24 else f' (the 12 largest and the 12 smallest of {n} columns)'}.",
    )
    noise = float(np.median(draws.noise))
    low, high = float(middle.min()) / noise, float(middle.max()) / noise
    if high > 1.5 * max(low, 1e-12):
        report.callout(
            "note",
            "The columns do not have the same noise.",
            f"Their residuals are between {low:.2f} and {high:.2f} times the noise "
            f"({page.columns[order[-1]]} and {page.columns[order[0]]}). Intervals are then too wide for "
            "some columns and too narrow for others. More components, or factor analysis, `--noise diagonal`, may "
            "describe the table better.",
        )
    else:
        report.text(f"The residuals are between {low:.2f} and {high:.2f} times the noise, consistent with equal noise.")


def _write_noise(page: Page) -> None:
    draws, report = page.draws, page.report
    report.section("Noise of the columns")
    report.text(
        "Each column has its own noise, the part that it does not share with the others. The components explain the "
        "rest of its variance. A column with hardly any noise determines a component almost alone."
    )
    share = 100 * quantities.explained_shares(draws)
    order = np.argsort(-np.median(draws.noise, axis=0), kind="stable")
    chosen = order if len(order) <= _MOST_NOISES else np.concatenate([order[:20], order[-20:]])
    which = "" if len(chosen) == len(order) else f" (the 20 largest and the 20 smallest of {len(order)} columns)"
    names = [page.columns[i] for i in chosen]
    report.figure(
        figures.noise_figure(draws.noise[:, chosen], names),
        f"Noise of each column{which}. Point: median; thick line: 50 % interval; thin line: 90 % interval.",
    )
    report.table(
        [[page.columns[i], interval_of(draws.noise[:, i]), interval_of(share[:, i])] for i in chosen],
        ["column", "noise", "explained by the components, %"],
        f"Noise of each column, and the fraction of its variance that the components explain{which}.",
    )


def _groups(given: Sequence[str] | None, num_rows: int) -> tuple[Int[np.ndarray, " row"], list[str]]:
    """Return the group of each row and the group names; the rarest groups become "other"."""
    if given is None:
        return np.zeros(num_rows, int), []
    names, counts = np.unique(given, return_counts=True)
    if len(names) > _MOST_GROUPS:
        names = np.sort(names[np.argsort(-counts, kind="stable")[: _MOST_GROUPS - 1]])
        index = {name: i for i, name in enumerate(names)}
        return np.array([index.get(x, len(names)) for x in given]), [*map(str, names), "other"]
    return np.searchsorted(names, given), names.tolist()


def _spaced(number: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int))


def _width(values: np.ndarray, deviation: float) -> str:
    """Width of the 90 % interval relative to that of a normal variable with this standard deviation."""
    low, high = np.quantile(values, (0.05, 0.95))
    return f"{(high - low) / (2 * _Z90 * deviation):.2f}" if deviation > 0 else "–"
