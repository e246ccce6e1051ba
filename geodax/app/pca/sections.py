"""The report of Bayesian principal components: results, their uncertainty, and diagnostics.

:func:`write_report` needs only arrays, so a page can be made again from a run folder without sampling. The sections are
in :mod:`geodax.app.pca.components` and :mod:`geodax.app.pca.rows`, the quantities in
:mod:`geodax.app.pca.quantities`, the figures in :mod:`geodax.app.pca.figures`.
"""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.pca import components, number, quantities, rows
from geodax.app.pca.components import num_supported, support_sentence
from geodax.app.pca.diagnosis import Diagnosis, diagnose
from geodax.app.pca.page import Page, labels, plural
from geodax.app.pca.trust import write_diagnostics
from geodax.app.report.html import Report, Severity
from geodax.app.report.numbers import interval_of, rounded

_MODEL = """row i:       x_i = mean + components (scale * z_i) + noise * e_i
scores:      z_i ~ Normal(0, I_p)          errors:  e_i ~ Normal(0, I_n)
components:  n x p with orthonormal columns, known up to the sign of each column
scale:       p standard deviations, the largest first
noise:       one standard deviation for all columns"""

_CITATIONS = (
    "Model: Tipping and Bishop (1999), Probabilistic principal component analysis. Journal of the Royal "
    "Statistical Society B 61(3).",
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

    Args:
        posterior: ``components`` (chain, draw, n, p), orthonormal columns of any sign; ``scale`` (chain,
            draw, p), descending; ``noise`` (chain, draw); ``mean`` (chain, draw, n).
        sample_stats: The sampler's statistics (chain, draw) by geodax's or ArviZ's names; may be empty.
        table: The rows as the model saw them, standardised if requested; NaN where missing.
        config: Facts about the run; every entry is optional. About the table: ``file``, ``sha256``,
            ``columns``, ``row_labels``, ``groups`` (one text per row), ``group_name``, ``notes`` (sentences on
            left-out columns and rows), ``standardize``, ``center`` and ``spread`` (original = center +
            spread * table). About the run: ``seed``, ``num_warmup``, ``num_samples``, ``num_chains``,
            ``seconds``, ``created``, ``versions`` (by package), ``command``, ``sampler``,
            ``target_acceptance_rate``, ``mean_prior_scale``, ``scale_prior_scale`` and
            ``noise_prior_scale`` (or ``priors``, sentences), ``max_num_integration_steps`` and
            ``residual_bound`` (for the diagnostics), ``num_components`` (if chosen automatically). About the page:
            ``title``, ``citation`` (sentences).
        path: The file to write.
    """
    draws = quantities.pool(posterior)
    table = np.asarray(table, dtype=np.float64)
    n, p = draws.components.shape[1:]
    if table.ndim != 2 or table.shape[1] != n:
        raise ValueError(
            f"write_report: expected a table with {n} columns, one for each row of the components, found shape "
            f"{table.shape}. Pass the fitted table."
        )
    columns = labels(config.get("columns"), n, "column")
    row_labels = labels(config.get("row_labels"), len(table), "row")
    of_file = f" of {Path(str(config['file'])).name}" if config.get("file") else ""
    title = str(config.get("title") or f"Bayesian principal components{of_file}")
    report = Report(title, subtitle=f"{len(table)} rows, {n} columns, {p} component{plural(p)}")
    found = number.evidence(table, draws.scale, draws.noise, always="num_components" in config)
    page = Page(report, draws, table, columns, row_labels, config, found)
    diagnosis = diagnose(posterior, sample_stats, config)

    report.section("Summary")
    _write_verdict(page, diagnosis)
    if len(draws.noise):
        _write_summary(page, diagnosis)
        components.write_number(page)
        components.write_scales(page)
        components.write_subspace(page)
        components.write_loadings(page)
        rows.write_scores(page)
        rows.write_missing(page)
        rows.write_fit(page)
    report.section("Diagnostics")
    write_diagnostics(report, diagnosis)
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
        if config.get("standardize", True)
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
    run = f"The posterior sample has {chains} chain{plural(chains)} of {samples} draws"
    run += f" after {config['num_warmup']} warm-up iterations each" if config.get("num_warmup") else ""
    seconds = config.get("seconds")
    run += "." if seconds is None else f", sampled in {_duration(float(seconds))}."
    if samples < (config.get("num_samples") or 0):
        run += f" The run is not finished: {config['num_samples']} draws per chain were requested."
    report.text(
        f"A Bayesian principal component model with {p} component{plural(p)} was fitted to {num_rows} rows "
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
        *number.sentences(page.evidence, p),
        f"{they_add} {interval_of(together, ' %')} of the total variance. The rest is noise with standard "
        f"deviation {interval_of(draws.noise)} in every column.",
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
    notes = [str(note) for note in config.get("notes") or []]
    if notes:
        report.subsection("Preparation of the table")
        report.items(notes[:20] + ([f"and {len(notes) - 20} more remarks"] if len(notes) > 20 else []))


def _write_provenance(page: Page) -> None:
    report, config = page.report, page.config
    p = page.num_components
    report.section("Model and settings")
    report.code(_MODEL)
    priors = _priors(config, page.table.shape[1])
    if priors:
        report.text("Priors, in the units of the prepared table:")
        report.items(priors)
    names = (
        ("sha256", "SHA-256 of its file"),
        ("standardize", "columns standardised"),
        ("sampler", "sampler"),
        ("target_acceptance_rate", "target acceptance rate"),
        ("num_chains", "chains"),
        ("num_warmup", "warm-up iterations per chain"),
        ("num_samples", "draws per chain"),
        ("seed", "seed"),
        ("created", "started"),
    )
    rows = [["table", Path(str(config["file"])).name]] if config.get("file") else []
    rows += [["rows", str(len(page.table))], ["columns", str(page.table.shape[1])], ["components", str(p)]]
    rows += [["missing cells", str(int(np.isnan(page.table).sum()))]]
    rows += [[words, _plain(config[key])] for key, words in names if config.get(key) is not None]
    if config.get("seconds") is not None:
        rows.append(["time", _duration(float(config["seconds"]))])
    rows += [[f"version of {k}", str(v)] for k, v in dict(config.get("versions") or {}).items()]
    report.table(rows, ["setting", "value"], "The settings of the run.")
    report.text("To repeat the run:")
    report.code(str(config.get("command") or _command(config, p)))
    report.text("Please cite:")
    given = config.get("citation")
    report.items([given] if isinstance(given, str) else [str(line) for line in given or _CITATIONS])


def _priors(config: Mapping[str, Any], n: int) -> list[str]:
    given = config.get("priors")
    if given:
        return [given] if isinstance(given, str) else [str(prior) for prior in given]
    names = ("scale_prior_scale", "noise_prior_scale", "mean_prior_scale")
    if any(config.get(name) is None for name in names):
        return []
    scale, noise, mean = (float(config[name]) for name in names)
    return [
        "`components`: uniform on the matrices with orthonormal columns",
        f"`scale`: half-normal with standard deviation {rounded(scale * math.sqrt(n))} "
        f"({rounded(scale)} times the square root of the number of columns), sorted",
        f"`noise`: half-normal with standard deviation {rounded(noise)}",
        f"`mean`: normal with mean 0 and standard deviation {rounded(mean)}, every column",
    ]


def _command(config: Mapping[str, Any], p: int) -> str:
    words = ["geodax", "fit", "pca", str(config.get("file") or "FILE"), "--n-components", str(p)]
    for key in ("num_samples", "num_warmup", "num_chains", "seed"):
        if config.get(key) is not None:
            words += [f"--{key.replace('_', '-')}", str(config[key])]
    return shlex.join([*words, "--out", "RUN"])


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
