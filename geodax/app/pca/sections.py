"""The report of Bayesian principal components: results, their uncertainty, and diagnostics.

:func:`write_report` needs only arrays, so a page can be made again from a run folder without sampling. The sections are
in :mod:`geodax.app.pca.components` and :mod:`geodax.app.pca.rows`, the quantities in
:mod:`geodax.app.pca.quantities`, the figures in :mod:`geodax.app.pca.figures`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.pca import components, number, quantities, rows
from geodax.app.pca.components import num_supported, support_sentence
from geodax.app.pca.diagnosis import Diagnosis, diagnose
from geodax.app.pca.page import Page, plural
from geodax.app.pca.trust import write_diagnostics
from geodax.app.report.html import Report, Severity
from geodax.app.report.numbers import interval_of, rounded
from geodax.data.errors import counted

_MODEL = """row i:       x_i = mean + components (scale * z_i) + noise * e_i
scores:      z_i ~ Normal(0, I_p)          errors:  e_i ~ Normal(0, I_n)
components:  n x p with orthonormal columns, known up to the sign of each column
scale:       p standard deviations, the largest first
noise:       one standard deviation for """

_PCA = (
    "Model: Tipping and Bishop (1999), Probabilistic principal component analysis. Journal of the Royal "
    "Statistical Society B 61(3)."
)
_FACTOR_ANALYSIS = "Model: Rubin and Thayer (1982), EM algorithms for ML factor analysis. Psychometrika 47(1)."
_CITATIONS = (
    "Orthonormal components with one scale each: Pourzanjani, Jiang, Mitchell, Atzberger and Petzold (2021), "
    "Bayesian Inference over the Stiefel Manifold via the Givens Representation. Bayesian Analysis 16(2).",
    "Sampling of orthonormal matrices: Yanush and Kropotov (2019), Hamiltonian Monte-Carlo for Orthogonal "
    "Matrices. arXiv:1901.08045.",
    "Diagnostics: Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and "
    "localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2).",
    "Limit of detection: Baik, Ben Arous and Péché (2005), Phase transition of the largest eigenvalue for "
    "nonnull complex sample covariance matrices. Annals of Probability 33(5).",
)


def write_report(
    posterior: Mapping[str, np.ndarray],
    sample_stats: Mapping[str, np.ndarray],
    table: np.ndarray,
    config: Mapping[str, Any],
    path: str | Path,
) -> None:
    """Write the report of a fitted model as one HTML file.

    The posterior has the draws (chain, draw, ...) of the estimator, the table is standardised, and ``config`` is that
    of the run folder with its options, and with ``row_labels``, ``groups`` (one text per row, or None),
    ``group_name``, ``center``, ``spread``, ``seconds`` (None for a run that was killed) and ``command``.
    """
    draws = quantities.pool(posterior)
    n, p = draws.components.shape[1:]
    report = Report(
        f"Bayesian {'factor analysis' if draws.is_diagonal else 'principal components'} of {Path(config['file']).name}",
        subtitle=f"{len(table)} rows, {n} columns, {counted(p, 'component')}",
    )
    found = number.evidence(table, draws._asdict(), always="num_components" in config)
    page = Page(report, draws, table, config["columns"], config["row_labels"], config, found)
    diagnosis = diagnose(posterior, sample_stats)

    report.section("Summary")
    _write_verdict(page, diagnosis)
    _write_summary(page, diagnosis)
    components.write_number(page)
    components.write_scales(page)
    components.write_subspace(page)
    components.write_loadings(page)
    rows.write_scores(page)
    rows.write_missing(page)
    rows.write_fit(page)
    report.section("Diagnostics")
    write_diagnostics(report, diagnosis, page.columns)
    _write_provenance(page)
    report.write(path)


def _write_verdict(page: Page, diagnosis: Diagnosis) -> None:
    worst: Severity = diagnosis.worst
    lead = {
        "fine": "the diagnostics found no problem. The draws can be used.",
        "note": "the diagnostics found no problem, but have a remark.",
        "warning": "the diagnostics found problems. Interpret some numbers with care.",
        "severe": "the diagnostics failed. Do not use these results before the problems below are solved.",
    }[worst]
    titles = [finding.title for finding in diagnosis.findings]
    found = f"Found: {'; '.join(dict.fromkeys(titles))}. See Diagnostics." if titles else ""
    page.report.callout(worst, lead[0].upper() + lead[1:], diagnosis.figures, found)


def _write_summary(page: Page, diagnosis: Diagnosis) -> None:
    config, draws, report = page.config, page.draws, page.report
    num_rows, n = page.table.shape
    p = page.num_components
    treatment = (
        "each centred and divided by its standard deviation, so that all columns have the same weight"
        if config["standardize"]
        else "centred but not scaled, so that columns with a large variance have more weight"
    )
    missing = int(np.isnan(page.table).sum())
    cells = (
        f" {missing} of {page.table.size} cells ({100 * missing / page.table.size:.2g} %) are missing. The "
        "model uses the observed cells of every row, without imputation."
        if missing
        else " No cell is missing."
    )
    chains, samples = diagnosis.summary.num_chains, diagnosis.num_draws
    run = f"The posterior sample has {counted(chains, 'chain')} of {samples} draws"
    run += f" after {config['num_warmup']} warm-up iterations each"
    run += "." if config["seconds"] is None else f", sampled in {_duration(config['seconds'])}."
    if samples < config["num_samples"]:
        run += f" The run is not finished: {config['num_samples']} draws per chain were requested."
    model = "A Bayesian factor analysis" if draws.is_diagonal else "A Bayesian principal component model"
    report.text(
        f"{model} with {counted(p, 'component')} was fitted to {num_rows} rows "
        f"and {n} numeric columns, {treatment}.{cells} {run}"
    )
    limit = quantities.detection_limit(draws, page.effective_rows)
    support = num_supported(draws, limit)
    together = 100 * quantities.variance_shares(draws).sum(axis=1)
    component = quantities.component_angles(draws)
    they_add = "The component explains" if p == 1 else "Together the components explain"
    they_span = "it spans" if p == 1 else "they span"
    lines = [
        support_sentence(support, p),
        *number.sentences(page.evidence, p, is_diagonal=draws.is_diagonal),
        f"{they_add} {interval_of(together, ' %')} of the total variance. The rest is noise {_of_noise(page)}.",
    ]
    subspace = quantities.subspace_angles(draws)
    if subspace.shape[1]:
        lines.append(
            f"The subspace that {they_span} is known to within {interval_of(subspace[:, 0], '°')}, the "
            "largest angle between a draw and the mean subspace."
        )
    loose = [str(j + 1) for j in range(p) if np.quantile(component[:, j], 0.95) > 45]
    if loose:
        lines.append(
            f"The direction of component{plural(len(loose))} {_listed(loose)} is very uncertain: more than "
            "5 % of the draws are over 45° away from the mean direction, or have exchanged the component with a "
            "neighbour. Do not interpret its loadings."
        )
    report.items(lines)
    report.text("Numbers are posterior medians with 90 % intervals in brackets, unless stated otherwise.")
    notes = config["notes"]
    if notes:
        report.subsection("Preparation of the table")
        report.items(notes[:20] + ([f"and {len(notes) - 20} more remarks"] if len(notes) > 20 else []))


def _write_provenance(page: Page) -> None:
    report, config = page.report, page.config
    report.section("Model and settings")
    report.code(_MODEL + ("each column" if page.draws.is_diagonal else "all columns"))
    report.text("Priors, in the units of the prepared table:")
    report.items(_priors(config, page.table.shape[1]))
    names = (
        ("sha256", "SHA-256 of its file"),
        ("standardize", "columns standardised"),
        ("noise", "noise"),
        ("target_acceptance_rate", "target acceptance rate"),
        ("num_chains", "chains"),
        ("num_warmup", "warm-up iterations per chain"),
        ("num_samples", "draws per chain"),
        ("seed", "seed"),
        ("created", "started"),
    )
    rows = [
        ["table", Path(config["file"]).name],
        ["rows", str(len(page.table))],
        ["columns", str(page.table.shape[1])],
        ["components", str(page.num_components)],
        ["missing cells", str(int(np.isnan(page.table).sum()))],
        *([words, _plain(config[key])] for key, words in names),
    ]
    if config["seconds"] is not None:
        rows.append(["time", _duration(config["seconds"])])
    rows += [[f"version of {name}", version] for name, version in config["versions"].items()]
    report.table(rows, ["setting", "value"], "The settings of the run.")
    report.text("To repeat the run:")
    report.code(config["command"])
    report.text("Please cite:")
    report.items((_FACTOR_ANALYSIS if page.draws.is_diagonal else _PCA, *_CITATIONS))


def _priors(config: Mapping[str, Any], n: int) -> list[str]:
    scale, noise, mean = (config[f"{name}_prior_scale"] for name in ("scale", "noise", "mean"))
    own_noise = config["noise"] == "diagonal"
    return [
        "`components`: uniform on the matrices with orthonormal columns",
        f"`scale`: half-normal with standard deviation {rounded(scale * math.sqrt(n))} "
        f"({rounded(scale)} times the square root of the number of columns), sorted",
        f"`noise`: half-normal with standard deviation {rounded(noise)}{', every column' * own_noise}",
        f"`mean`: normal with mean 0 and standard deviation {rounded(mean)}, every column",
    ]


def _of_noise(page: Page) -> str:
    draws = page.draws
    if not draws.is_diagonal:
        return f"with standard deviation {interval_of(draws.noise)} in every column"
    middle = np.median(draws.noise, axis=0)
    least, most = int(middle.argmin()), int(middle.argmax())
    return (
        f"of the columns, with standard deviations between {interval_of(draws.noise[:, least])} "
        f"({page.columns[least]}) and {interval_of(draws.noise[:, most])} ({page.columns[most]})"
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2g} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _plain(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
