"""The sections of a PCA report on the components: their number, the subspace, the loadings."""

import numpy as np

from geodax.app.pca import figures, number, quantities
from geodax.app.pca.figures import number_figure
from geodax.app.pca.page import Page, plural
from geodax.app.pca.quantities import PooledDraws
from geodax.app.report.numbers import interval_of, with_interval
from geodax.data.errors import counted

_CLEAR = 0.95
_RATIO = 1.1
_MOST_FEATURES = 40


def write_number(page: Page) -> None:
    """Write the section on the number of components."""
    report, p, found = page.report, page.num_components, page.evidence
    report.section("Number of components")
    figure = number_figure(found, p)
    parts = []
    if found.held_out is not None:
        parts.append(
            "Held-out cells: each is predicted from the other cells of its row by a model fitted to other rows (its "
            "point estimate), and the squared error is compared with that of the column's mean. Bars: one standard "
            f"error of the difference to the best number.{' A part of the table is used.' * found.held_out.is_part}"
        )
    if found.observed is not None:
        simulated = ", beside those of tables simulated from the fitted model" if found.replicated is not None else ""
        parts.append(
            f"Eigenvalues of the data, the variances that classical PCA explains{simulated}. Where the data are above "
            "the bars, the model misses variance."
        )
    if figure is None:
        report.text(
            "Numbers of components are not compared: the table is too small, or has many missing cells. "
            "`--n-components auto` compares them on a part of a large table."
        )
        return
    report.figure(figure, " ".join(parts))
    if found.held_out is not None:
        report.table(
            number.held_out_rows(found.held_out, p),
            ["components", "predicted, %", "behind the best, %"],
            "The predicted variance of held-out cells, and its distance to the best with one standard error. About as "
            "good is the smallest number that predicts 95 % as much as the best, or is behind by less than one "
            "standard error.",
        )
    noise = (
        "Predictions may improve up to a large number, as components also describe noise that differs between columns. "
    )
    report.text(
        noise * (found.held_out is None or not found.held_out.is_diagonal)
        + "Fewer components may be a good summary: look for the place where the curves bend."
    )


def write_scales(page: Page) -> None:
    """Write the section on the scales and the explained variance."""
    draws, report, p = page.draws, page.report, page.num_components
    share = quantities.variance_shares(draws)
    limit = quantities.detection_limit(draws, page.effective_rows)
    above = (draws.scale > limit).mean(axis=0)
    larger = (draws.scale[:, :-1] > _RATIO * draws.scale[:, 1:]).mean(axis=0)
    report.section("Explained variance")
    report.text(
        "The scale of a component is the standard deviation of the rows along it, without noise. The limit of "
        "detection, noise × (columns / rows)^(1/4), is the scale below which this number of rows does not determine "
        "the direction of a component at all. It is an approximation for large tables."
        + " The noise of a component is (Σ loading² / noise²)^(−1/2) over the columns."
        * draws.is_diagonal
    )
    levels = quantities.noise_levels(draws)
    report.figure(
        figures.scale_figure(draws.scale, share, levels, limit),
        "The scales, with the noise and the limit of detection, and the fraction of the model's total variance "
        "that each component explains. Point: median; thick line: 50 % interval; thin line: 90 % interval.",
    )
    shown = min(p, 30)
    ratio = draws.scale / np.maximum(levels, 1e-300)
    rows = [
        [
            str(j + 1),
            interval_of(draws.scale[:, j]),
            interval_of(ratio[:, j]),
            interval_of(100 * share[:, j]),
            _probability(above[j]),
            _probability(larger[j]) if j + 1 < p else "–",
        ]
        for j in range(shown)
    ]
    header = ["component", "scale", "scale / noise", "fraction of variance, %", "P(above limit)", "P(> 1.1 × next)"]
    caption = "The scales, with the probabilities that each is above the limit of detection and that it is at "
    report.table(rows, header, caption + "least 10 % larger than the next one.", most_rows=30)
    report.items(_component_sentence(draws, above, larger, j) for j in range(min(p, 8)))
    if page.evidence.observed is not None and not draws.is_diagonal:
        _write_classical(page, page.evidence.observed, share)


def _write_classical(page: Page, observed: np.ndarray, share: np.ndarray) -> None:
    draws, p = page.draws, page.num_components
    n = draws.mean.shape[1]
    noise = draws.noise**2 / ((draws.scale**2).sum(axis=1) + n * draws.noise**2)
    classical = 100 * observed / max(float(observed.sum()), 1e-300)
    shown = min(p, 30, len(observed))
    rows = [
        [str(j + 1), f"{classical[j]:.1f}", interval_of(100 * (share[:, j] + noise)), interval_of(100 * share[:, j])]
        for j in range(shown)
    ]
    rows.append(
        [
            f"1 to {shown}",
            f"{classical[:shown].sum():.1f}",
            interval_of(100 * (share[:, :shown].sum(axis=1) + shown * noise)),
            interval_of(100 * share[:, :shown].sum(axis=1)),
        ]
    )
    page.report.subsection("Compared with classical PCA")
    page.report.table(
        rows if p > 1 else rows[:1],
        ["component", "classical PCA, %", "this model, noise included, %", "this model, %"],
        "Fractions of the total variance; classical PCA as in scikit-learn's `explained_variance_ratio_`.",
    )
    page.report.text(
        "Classical PCA counts all variance along a component, noise included. This model separates the noise, which "
        f"has {interval_of(100 * noise, ' %')} of the total variance along every direction; the component explains the "
        f"rest. {_agreement(classical[:shown], 100 * (share[:, :shown] + noise[:, None]))}"
    )


def _agreement(classical: np.ndarray, own: np.ndarray) -> str:
    low, high = np.quantile(own, (0.05, 0.95), axis=0)
    outside = [str(j + 1) for j in np.flatnonzero((classical < low) | (classical > high))]
    if not outside:
        return "With the noise included, the two agree: classical PCA is within the 90 % intervals."
    return (
        f"With the noise included, component{plural(len(outside))} {', '.join(outside)} of classical PCA "
        f"{'is' if len(outside) == 1 else 'are'} still outside the 90 % interval{plural(len(outside))}: the largest "
        "eigenvalues of a sample are too large on average, which this model accounts for, and the variance of "
        "components that it lacks counts as noise."
    )


def write_subspace(page: Page) -> None:
    """Write the section on the uncertainty of the subspace."""
    draws, report, p = page.draws, page.report, page.num_components
    n = draws.mean.shape[1]
    report.section("Uncertainty of the subspace")
    subspace, component = quantities.subspace_angles(draws), quantities.component_angles(draws)
    at_random = quantities.random_subspace_angle(n, p) if p < n else 0.0
    if p == n:
        report.text("There are as many components as columns, so they always span the whole space.")
    else:
        report.text(
            "The principal angles between the subspace of a draw and the mean subspace do not depend on "
            "signs or on the order of the components. The mean subspace is spanned by the leading "
            f"eigenvectors of the average projector. A random subspace of {counted(p, 'dimension')} "
            f"would be {at_random:.0f}° away (median of the largest angle)."
        )
    report.figure(
        figures.angle_figure(subspace, component, at_random),
        "The largest principal angle of every draw, and the angle of each component to its own mean direction. That is "
        "large if two neighbours with similar scales exchange places, even if their plane is well determined.",
    )
    rows = [[f"principal angle {k + 1}", interval_of(subspace[:, k])] for k in range(min(subspace.shape[1], 15))]
    rows += [[f"component {j + 1}", interval_of(component[:, j])] for j in range(min(p, 15))]
    report.table(
        rows,
        ["angle", "degrees"],
        "Angles of the draws to the mean: principal angles, the largest first, and the angle of each component.",
    )


def write_loadings(page: Page) -> None:
    """Write the section on the loadings."""
    draws, report, p = page.draws, page.report, page.num_components
    n = draws.mean.shape[1]
    report.section("Loadings")
    report.text(
        "The loadings are the entries of the components, which have unit length. Their signs are not identified: "
        "the components of all draws were aligned in sign, with the largest mean loading positive."
    )
    low, median, high = quantities.loading_quantiles(draws, (0.05, 0.5, 0.95))
    chosen = _largest(median, _MOST_FEATURES)
    names = [page.columns[i] for i in chosen]
    left_out = f" Of {n} columns, the {len(chosen)} with the largest loadings are shown." if len(chosen) < n else ""
    shown = min(p, 40)
    is_clear = (low > 0) | (high < 0)
    report.figure(
        figures.loading_map(median[chosen, :shown], is_clear[chosen, :shown], names),
        "Posterior median loadings. Blue is positive, orange is negative, stronger colours are larger. Numbers are "
        f"bold if the 90 % interval excludes zero.{left_out}",
    )
    report.figure(
        figures.loading_intervals(draws.components, median, page.columns),
        f"The largest loadings of {'each component' if p <= 4 else 'the first four components'}: median, "
        "50 % and 90 % intervals.",
    )
    few = min(p, 4)
    chosen = _largest(median[:, :few], 30)
    rows = [
        [page.columns[i], *(with_interval(median[i, j], low[i, j], high[i, j], decimals=2) for j in range(few))]
        for i in chosen
    ]
    first = "" if few == p else f" of the first {few} components"
    largest = "" if len(chosen) == n else f", of {n} columns the {len(chosen)} with the largest"
    report.table(
        rows, ["column", *(f"component {j + 1}" for j in range(few))], f"Loadings{first} with 90 % intervals{largest}."
    )


def num_supported(draws: PooledDraws, limit: np.ndarray) -> int:
    """Return the number of leading components whose scales are clearly above the draws of the limit of detection."""
    is_clear = (draws.scale > limit).mean(axis=0) >= _CLEAR
    return int(np.cumprod(is_clear).sum())


def support_sentence(support: int, p: int) -> str:
    """Return cautious sentences on the number of components clearly above the limit of detection, of p."""
    if support == 0:
        return "The data do not clearly support any component: no scale is clearly above the limit of detection."
    if support == p:
        which = {1: "The component is", 2: "Both components are"}.get(p, f"All {p} components are")
        return f"{which} clearly above the limit of detection."
    rest = f"component {p}" if p - support == 1 else f"components {support + 1} to {p}"
    return f"The data clearly support {support} of the {p} components; {rest} cannot be distinguished from noise."


def _component_sentence(draws: PooledDraws, above: np.ndarray, larger: np.ndarray, j: int) -> str:
    p = draws.scale.shape[1]
    if above[j] >= _CLEAR:
        words = f"clearly above the limit of detection ({_probability(above[j])})"
    elif above[j] >= 0.5:
        words = f"probably above the limit of detection, but not certainly ({_probability(above[j])})"
    else:
        words = f"not distinguished from noise (above the limit of detection with probability {_probability(above[j])})"
    sentence = f"Component {j + 1} is {words}."
    if j + 1 < p:
        ratio = interval_of(draws.scale[:, j] / np.maximum(draws.scale[:, j + 1], 1e-300))
        if larger[j] >= _CLEAR:
            sentence += f" Its scale is clearly larger than the next one's, {ratio} times."
        else:
            sentence += (
                f" Its scale is not clearly larger than the next one's ({ratio} times; P(ratio > "
                f"{_RATIO}) = {_probability(larger[j])}). Interpret the plane of components {j + 1} and {j + 2}, "
                "not each component."
            )
    return sentence


def _largest(median: np.ndarray, most: int) -> np.ndarray:
    """Indices of the rows with the largest entries, in increasing order."""
    return np.sort(np.argsort(-np.abs(median).max(axis=1), kind="stable")[:most])


def _probability(value: float) -> str:
    if value > 0.995:
        return "> 99 %"
    return "< 1 %" if value < 0.005 else f"{100 * value:.0f} %"
