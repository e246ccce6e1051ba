"""Hierarchical canonical correlation analysis as a model of ``geodax fit``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax._normal import Normal
from geodax.app.cca import report as cca_report
from geodax.app.cca.files import GroupedTable, read_grouped, read_new_rows
from geodax.app.family import AbstractRunKind, RunFacts, posterior_arrays
from geodax.app.report.parts import misfits
from geodax.app.run_folder.files import write_rows
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.data.errors import counted
from geodax.diagnostics.findings import Finding, check
from geodax.models.cca import density as cca_density
from geodax.models.cca.estimator import HierarchicalCCA
from geodax.models.pooling import over_rows
from geodax.predict.mixtures import Mixture

_MOST_STEPS = 2**10 - 1


class CCARun(AbstractRunKind):
    """``geodax fit cca``."""

    name = "cca"
    headline = ("correlation", "spread", "noise")
    data_type = GroupedTable
    estimator_type = HierarchicalCCA

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[GroupedTable, dict[str, Any]]:
        data = read_grouped(
            file, group=options.group, first=options.first_view, second=options.second_view, dialect=dialect
        )
        sizes = [len(data.first), len(data.second)]
        facts = {"columns": [*data.first, *data.second], "views": sizes, "notes": list(data.notes)}
        if len(set(data.groups.tolist())) == 1:
            facts["pooling"] = "separate"  # there is nothing to pool
        self.unfitted(options, **facts).prepare(*self.arrays(data))
        return data, facts

    def describe(self, data: GroupedTable) -> str:
        return f"{len(data.values)} rows, {counted(len(set(data.groups.tolist())), 'group')}"

    def arrays(self, data: GroupedTable) -> tuple[np.ndarray, ...]:
        return data.values, data.groups

    def estimator(self, config: Mapping[str, Any]) -> HierarchicalCCA:
        options = self.estimator_options(config["options"])
        options["pooling"] = config.get("pooling", options["pooling"])
        n_1, n_2 = config["views"]
        views = (list(range(n_1)), list(range(n_1, n_1 + n_2)))
        return HierarchicalCCA(**options, views=views, random_state=config["seed"])

    def summarized(self, data: GroupedTable, model: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Canonical correlations of each group, and all draws, by the names of the groups."""
        return cca_report.named_draws(model), posterior_arrays(model)[1]

    def diagnose(self, config: Mapping[str, Any], data: GroupedTable, model: Any) -> list[Finding]:
        draws, stats = cca_report.identified_draws(model), posterior_arrays(model)[1]
        findings = check(draws, stats, max_num_integration_steps=_MOST_STEPS)
        return findings + misfits(
            cca_report.cca_checks(data, model),
            "More shared or specific components (--n-shared, --n-view-1, --n-view-2) may reproduce them.",
        )

    def report(self, config: Mapping[str, Any], data: GroupedTable, model: Any, command: str, path: Path) -> None:
        cca_report.write_cca(model, data, RunFacts(self.diagnose(config, data, model), config, command), path)

    def predict(
        self, data: GroupedTable, model: Any, file: Path, path: Path, dialect: Dialect = FOUND
    ) -> tuple[str, ...]:
        """Write scores and densities of rows with both views; for rows with one view, the other with 90 % intervals."""
        new = read_new_rows(file, data, dialect)
        groups, notes = new.groups[new.is_known], new.notes
        parts = {view: part[new.is_known] for view, part in new.parts.items()}
        if len(parts) == 2:
            kinds = (("shared", model.n_shared), ("first_view", model.n_view_1), ("second_view", model.n_view_2))
            heading = [f"{kind}_{k + 1}" for kind, number in kinds for k in range(number)] + ["log_predictive_density"]
            both = np.concatenate([parts[1], parts[2]], axis=1)
        else:
            (given, part), wanted = next(iter(parts.items())), data.second if 1 in parts else data.first
            heading = [f"{name}{end}" for name in wanted for end in ("", "_5%", "_95%")]
            notes = (*notes, f"View {3 - given} is predicted from view {given}.")
        cells = np.full((len(new.is_known), len(heading)), np.nan)
        if len(groups):
            cells[new.is_known] = (
                np.column_stack([model.transform(both, groups), model.score_samples(both, groups)])
                if len(parts) == 2
                else _of_the_other_view(model, part, groups, given)
            )
        numbered = enumerate(zip(new.groups.tolist(), cells, strict=True), start=1)
        write_rows(
            path, ["row", data.group or "group", *heading], ((i, label, *values) for i, (label, values) in numbered)
        )
        return notes


def _of_the_other_view(model: HierarchicalCCA, part: np.ndarray, groups: np.ndarray, given: int) -> np.ndarray:
    """Means and 5 % and 95 % quantiles of each column of the missing view, exact for the draws used."""
    rows = model.units_.rows("HierarchicalCCA", {given: part}, groups)
    means, deviations = (
        model.spread_ * over_rows(function, model.draws(), *rows.each)
        for function in (cca_density.conditional_mean, cca_density.conditional_deviation)
    )
    moments = ((model.center_ + means)[..., ~rows.given], deviations[..., ~rows.given])
    flat = tuple(values.reshape(len(means), -1) for values in moments)
    quantiles = Mixture(Normal, flat).quantiles((0.05, 0.95))
    cells = np.stack([moments[0].mean(axis=0).ravel(), *quantiles], axis=-1)
    return cells.reshape(len(part), -1)
