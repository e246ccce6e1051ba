"""Diagnostics of Bayesian PCA with quantities that do not depend on the signs of the components."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from geodax.data.errors import counted
from geodax.diagnostics.alignment import invariant_draws
from geodax.diagnostics.convergence import MINIMUM_DRAWS
from geodax.diagnostics.findings import Finding, check
from geodax.diagnostics.summary import Summary, summarize

_MOST_ALIGNED = 30
_OFTEN = 0.05  # share of draws
_MOST_COLUMNS = 1000
_MOST_STEPS = 2**10 - 1


@dataclass(frozen=True)
class Diagnosis:
    """Diagnostics of a run."""

    draws: Mapping[str, np.ndarray]
    sample_stats: Mapping[str, np.ndarray]
    summary: Summary
    findings: list[Finding]

    @property
    def num_draws(self) -> int:
        """Draws of each chain, those included that are not judged here."""
        return max((values.shape[1] for values in self.sample_stats.values()), default=self.summary.num_draws)

    @property
    def worst(self) -> Literal["fine", "note", "warning", "severe"]:
        """Severity of the worst finding; "fine" if there is none."""
        return self.findings[0].severity if self.findings else "fine"

    @property
    def figures(self) -> str:
        """The numbers behind the verdict, as a sentence."""
        parts = []
        largest = extreme(self.summary.rows, "rhat")
        least = extreme(self.summary.rows, "ess_bulk"), extreme(self.summary.rows, "ess_tail")
        if np.isfinite(largest):
            parts.append(f"largest R-hat {largest:.3f}")
        if np.isfinite(least[0]):
            parts.append(f"smallest effective sample size {least[0]:.0f} in the bulk, {least[1]:.0f} in the tails")
        if "divergences" in self.summary.sampler:
            parts.append(counted(round(self.summary.sampler["divergences"]), "divergence"))
        size = f"{counted(self.summary.num_chains, 'chain')} of {self.num_draws} draws"
        if self.num_draws > self.summary.num_draws:
            size += f", of which {self.summary.num_draws} at even distances are judged here, and all in summary.csv"
        return f"{'; '.join([size, *parts])}."


def diagnose(posterior: Mapping[str, np.ndarray], sample_stats: Mapping[str, np.ndarray]) -> Diagnosis:
    """Diagnose draws (chain, draw, ...) of ``components`` with aligned signs, ``scale``, ``noise`` and ``mean``."""
    draws = {"scale": posterior["scale"], "lp": sample_stats["lp"]}
    noise = posterior["noise"]
    draws |= {"noise": noise} if noise.ndim == 2 else _of_columns("noise", noise)
    draws |= _of_columns("mean", posterior["mean"])
    components = posterior["components"]
    if components.shape[1] >= MINIMUM_DRAWS:
        draws |= invariant_draws(components, name="components", up_to="signs")
        if "components.leverage" in draws:
            draws |= _of_columns("components.leverage", draws.pop("components.leverage"))
        squares = np.einsum("cdnp,cdnp->np", components, components)
        largest = np.argsort(-squares.max(axis=1))[:_MOST_ALIGNED]
        for i, j in itertools.product(sorted(largest.tolist()), range(components.shape[-1])):
            draws[f"loading[{i},{j}]"] = components[:, :, i, j]
    else:
        draws["components"] = components
    summary = summarize(draws, sample_stats)
    findings = check(draws, sample_stats, max_num_integration_steps=_MOST_STEPS, summary=summary)
    if findings:
        findings = [*findings, *_exchanges(draws.get("components.column_cosine"))]
    return Diagnosis(draws, sample_stats, summary, findings)


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


def extreme(rows: Any, column: str) -> float:
    """The worst number of a column of a summary; NaN if there is none."""
    values = [value for row in rows if not math.isnan(value := getattr(row, column))]
    return (max if column == "rhat" else min)(values, default=math.nan)
