"""Diagnostics of Bayesian PCA with quantities that do not depend on the signs of the components."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geodax.app.report import plots
from geodax.app.report.html import Report, Severity
from geodax.app.report.numbers import rounded
from geodax.diagnostics.alignment import invariant_draws
from geodax.diagnostics.convergence import MINIMUM_DRAWS, e_bfmi
from geodax.diagnostics.findings import Finding, check
from geodax.diagnostics.summary import Summary, SummaryRow, statistic, summarize

_MOST_ALIGNED = 30
_OFTEN = 0.05  # share of draws
_MOST_COLUMNS = 1000

_WORDS = {
    "scale": "scales of the components",
    "noise": "standard deviation of the noise",
    "mean": "means of the columns",
    "lp": "log density",
    "components": "components",
    "components.angle": "principal angles to the mean subspace",
    "components.distance": "distance to the mean subspace",
    "components.quadratic_form": "projector along fixed directions",
    "components.leverage": "diagonal of the projector, one per column",
    "components.column_cosine": "components' cosines with their means",
    "components.column_quadratic_form": "components along fixed directions, squared",
    "loading": "sign-aligned loadings of at most 30 columns",
}


@dataclass(frozen=True)
class Diagnosis:
    """Diagnostics of a run.

    Attributes:
        draws: The diagnosed quantities, arrays (chain, draw, ...) by name.
        sample_stats: The sampler's statistics (chain, draw) by name.
        summary: Summary of the quantities.
        findings: Problems, the most severe first.
    """

    draws: Mapping[str, np.ndarray]
    sample_stats: Mapping[str, np.ndarray]
    summary: Summary
    findings: list[Finding]

    @property
    def num_draws(self) -> int:
        """Draws of each chain, those included that are not judged here."""
        return max((values.shape[1] for values in self.sample_stats.values()), default=self.summary.num_draws)

    @property
    def worst(self) -> Severity:
        """Severity of the worst finding; "fine" if there is none."""
        return self.findings[0].severity if self.findings else "fine"

    @property
    def figures(self) -> str:
        """The numbers behind the verdict, as a sentence."""
        parts = []
        largest = _extreme(self.summary.rows, "rhat")
        least = _extreme(self.summary.rows, "ess_bulk"), _extreme(self.summary.rows, "ess_tail")
        if np.isfinite(largest):
            parts.append(f"largest R-hat {largest:.3f}")
        if np.isfinite(least[0]):
            parts.append(f"smallest effective sample size {least[0]:.0f} in the bulk, {least[1]:.0f} in the tails")
        if "divergences" in self.summary.sampler:
            number = round(self.summary.sampler["divergences"])
            parts.append(f"{number} divergence{'' if number == 1 else 's'}")
        size = f"{self.summary.num_chains} chain{'' if self.summary.num_chains == 1 else 's'} of "
        size += f"{self.num_draws} draws"
        if self.num_draws > self.summary.num_draws:
            size += f", of which {self.summary.num_draws} at even distances are judged here, and all in summary.csv"
        return f"{'; '.join([size, *parts])}."


def diagnose(
    posterior: Mapping[str, np.ndarray], sample_stats: Mapping[str, np.ndarray], config: Mapping[str, Any]
) -> Diagnosis:
    """Diagnose a run.

    Args:
        posterior: ``components`` with aligned signs, ``scale``, ``noise`` and ``mean``, each (chain, draw, ...).
        sample_stats: The sampler's statistics.
        config: ``max_num_integration_steps`` and ``residual_bound`` are used if present.

    Returns:
        The findings and the numbers behind them.
    """
    draws = {name: np.asarray(posterior[name]) for name in ("scale", "noise")}
    draws |= _of_columns("mean", np.asarray(posterior["mean"]))
    shape = draws["noise"].shape
    stats = {name: np.asarray(values) for name, values in sample_stats.items()}
    stats = {name: values for name, values in stats.items() if values.ndim == 2 and len(values) == shape[0]}
    for name in ("lp", "logdensity"):
        if name in stats and "lp" not in draws and stats[name].shape == shape:
            draws["lp"] = stats[name]
    components = np.asarray(posterior["components"])
    is_usable = bool(np.isfinite(components).all()) and shape[1] >= MINIMUM_DRAWS
    if is_usable:
        gram = np.swapaxes(components, -1, -2) @ components
        is_usable = bool(np.abs(gram - np.eye(components.shape[-1])).max() < 1e-3)
    if is_usable:
        draws |= invariant_draws(components, name="components", up_to="signs")
        if "components.leverage" in draws:
            draws |= _of_columns("components.leverage", draws.pop("components.leverage"))
        squares = np.einsum("cdnp,cdnp->np", components, components)
        largest = np.argsort(-squares.max(axis=1))[:_MOST_ALIGNED]
        for i, j in itertools.product(sorted(largest.tolist()), range(components.shape[-1])):
            draws[f"loading[{i},{j}]"] = components[:, :, i, j]
    else:
        draws["components"] = components
    summary = summarize(draws, stats)
    findings = check(
        draws,
        stats,
        max_num_integration_steps=config.get("max_num_integration_steps"),
        residual_bound=config.get("residual_bound"),
        summary=summary,
    )
    if findings:
        findings = [*findings, *_exchanges(draws.get("components.column_cosine"))]
    return Diagnosis(draws, stats, summary, findings)


def _exchanges(cosine: np.ndarray | None) -> Iterator[Finding]:
    """Name components that exchange places, which lowers effective draws and raises R-hat."""
    if cosine is None:
        return
    share = (cosine < np.sqrt(0.5)).mean(axis=(0, 1))
    affected = np.flatnonzero(share > _OFTEN)
    if len(affected) > 1:
        names = ", ".join(str(j + 1) for j in affected[:-1]) + f" and {affected[-1] + 1}"
        yield Finding(
            "note",
            "Components that exchange places",
            f"Components {names} are over 45 degrees away from their mean directions in up to "
            f"{100 * share.max():.0f} % of the draws. Their scales are similar, so the data determine the space that "
            "they span but hardly their directions in it, and chains exchange them slowly.",
            "Interpret the space of these components rather than each one. Its uncertainty is the angle to the mean "
            "subspace.",
        )


def _of_columns(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """A quantity of each column; of evenly spaced columns, one by one, where there are very many."""
    n = values.shape[-1]
    if n <= _MOST_COLUMNS:
        return {name: values}
    chosen = np.linspace(0, n - 1, _MOST_COLUMNS).round().astype(int)
    return {f"{name}[{i}]": values[..., i] for i in chosen}


def write_diagnostics(report: Report, diagnosis: Diagnosis) -> None:
    """Write the findings, the tables and the figures.

    Args:
        report: The page.
        diagnosis: The findings.
    """
    report.warnings(diagnosis.findings, fine="No problems found. The chains agree and have enough effective draws.")
    report.text(
        "R-hat compares the chains and should be below 1.01. The effective sample size is the equivalent number of "
        "independent draws; it should be at least 100 per chain, in the bulk and in the tails. The signs of "
        "components differ between chains, so the diagnostics use quantities that do not depend on them."
    )
    report.table(
        [
            [f"{_WORDS.get(name, name)} (`{name}`)", *_worst_of(rows)]
            for name, rows in _by_kind(diagnosis.summary).items()
        ],
        ["quantity", "numbers", "largest R\u2011hat", "smallest bulk ESS", "smallest tail ESS"],
        "The worst value of each kind of quantity.",
    )
    kinds = _by_kind(diagnosis.summary)
    chosen = [row for name in ("scale", "noise", "lp") for row in kinds.get(name, [])[:10]]
    report.table(
        [
            [
                _with_ordinal(row.name),
                *(rounded(v) for v in (row.mean, row.sd, row.quantile_5, row.quantile_50, row.quantile_95)),
                *_convergence(row),
            ]
            for row in chosen
        ],
        ["quantity", "mean", "sd", "5 %", "50 %", "95 %", "R-hat", "bulk ESS", "tail ESS"],
        "Scales, noise and log density.",
    )
    _write_sampler(report, diagnosis)
    panels = _panels(diagnosis)
    divergent = statistic(diagnosis.sample_stats, "is_divergent")
    if divergent is not None and divergent.shape != panels["noise"].shape:  # of all iterations, between those drawn
        divergent = None
    report.figure(
        plots.trace_plot(panels, is_divergent=divergent),
        "Traces. Chains should overlap, without trends or flat stretches. Ticks at the bottom mark divergences. Long "
        "chains are shown at evenly spaced draws.",
    )
    report.figure(
        plots.rank_plot(panels),
        "Ranks of each chain among all draws, as the difference between their distribution function and the uniform "
        "one. Lines should stay around zero, between the dotted lines (95 % for all chains together, for the "
        "effective number of draws).",
    )
    energy = statistic(diagnosis.sample_stats, "energy")
    if energy is not None:
        report.figure(
            plots.energy_plot(energy),
            "Energies and their changes. Changes much narrower than the energies mean slow exploration of the tails.",
        )


def _write_sampler(report: Report, diagnosis: Diagnosis) -> None:
    stats = diagnosis.sample_stats
    columns: list[tuple[str, list[str]]] = []
    for name, words, reduce in (
        ("acceptance_rate", "mean acceptance", np.mean),
        ("is_divergent", "divergences", np.sum),
        ("num_integration_steps", "mean steps", np.mean),
        ("step_size", "step size", np.mean),
        ("residual", "largest residual", np.max),
    ):
        values = statistic(stats, name)
        if values is not None:
            columns.append((words, [rounded(float(reduce(chain)), 2 if name == "residual" else 3) for chain in values]))
    energy = statistic(stats, "energy")
    if energy is not None and energy.shape[1] > 1:
        columns.append(("E-BFMI", [rounded(float(value), 2) for value in e_bfmi(energy)]))
    if columns:
        num_chains = len(columns[0][1])
        report.table(
            [[str(i + 1), *(values[i] for _, values in columns)] for i in range(num_chains)],
            ["chain", *(words for words, _ in columns)],
            "The sampler's statistics for each chain. The residual is the distance of the components from "
            "orthonormality, which should be rounding error. E-BFMI should be at least 0.3.",
            most_rows=32,
        )


def _panels(diagnosis: Diagnosis) -> dict[str, np.ndarray]:
    draws = diagnosis.draws
    panels = {f"scale of component {j + 1}": draws["scale"][..., j] for j in range(min(3, draws["scale"].shape[-1]))}
    panels["noise"] = draws["noise"]
    if "lp" in draws:
        panels["log density"] = draws["lp"]
    if "components.angle" in draws:
        panels["largest angle to the mean subspace (degrees)"] = np.degrees(draws["components.angle"][..., -1])
    if "components.column_cosine" in draws:
        for j in range(min(2, draws["components.column_cosine"].shape[-1])):
            panels[f"cosine of component {j + 1} with its mean"] = draws["components.column_cosine"][..., j]
    return panels


def _by_kind(summary: Summary) -> dict[str, list[SummaryRow]]:
    kinds: dict[str, list[SummaryRow]] = {}
    for row in summary.rows:
        kinds.setdefault(row.name.split("[")[0], []).append(row)
    return kinds


def _worst_of(rows: list[SummaryRow]) -> list[str]:
    return [
        str(len(rows)),
        _three_digits(_extreme(rows, "rhat")),
        _whole(_extreme(rows, "ess_bulk")),
        _whole(_extreme(rows, "ess_tail")),
    ]


def _convergence(row: SummaryRow) -> list[str]:
    return [_three_digits(row.rhat), _whole(row.ess_bulk), _whole(row.ess_tail)]


def _extreme(rows: Any, column: str) -> float:
    values = np.array([getattr(row, column) for row in rows])
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan")
    return float(values.max() if column == "rhat" else values.min())


def _three_digits(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else rounded(value)


def _whole(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "–"


def _with_ordinal(name: str) -> str:
    if name.startswith("scale["):
        return f"scale of component {int(name[6:-1]) + 1}"
    return _WORDS.get(name, name)
