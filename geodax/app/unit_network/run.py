"""The ReLU network with unit-vector weights as a model of ``geodax fit``."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax._normal import Normal
from geodax.app.family import AbstractRunKind, RunFacts, posterior_arrays
from geodax.app.report.parts import misfits
from geodax.app.run_folder.files import write_numbered
from geodax.app.tables.assembly import OnMissing, about_missing, missing_counts
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import apart
from geodax.app.tables.read import Table, if_all_there, match_columns, read_table
from geodax.app.unit_network.report import identified_draws, unit_network_checks, write_unit_network
from geodax.data.errors import TableError, counted, listed, nearest
from geodax.diagnostics.findings import Finding, check
from geodax.models.unit_network.estimator import UnitNetworkRegressor
from geodax.predict.mixtures import Mixture

_MOST_STEPS = 2**10 - 1


class UnitNetworkRun(AbstractRunKind):
    """``geodax fit unit-network``; the target is the last column of the table."""

    name = "unit-network"
    headline = ("noise", "r2")
    estimator_type = UnitNetworkRegressor

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[Table, dict[str, Any]]:
        if not options.target:
            raise TableError(f"{file}: expected the column to predict. Use --target NAME.")
        wanted = None if columns is None else (*(name for name in columns if name != options.target), options.target)
        table = read_table(file, columns=wanted, **dialect.options())
        if options.target not in table.names:
            raise TableError(
                f"{file} has no numeric column {options.target!r} that varies{nearest(options.target, table.names)}: "
                f"use --target with one of {listed(table.names)}."
            )
        inputs = [name for name in table.names if name != options.target]
        if not inputs:
            raise TableError(f"{file}: {options.target!r} is the only numeric column. Add columns to predict it from.")
        table, notes = _rows_with_target(match_columns(table, [*inputs, options.target]))
        kept = dataclasses.replace(table, notes=(*table.notes, *notes))
        self.unfitted(options).prepare(*self.arrays(kept))
        return kept, {"columns": list(kept.names), "notes": list(kept.notes)}

    def describe(self, data: Table) -> str:
        return f"{data.values.shape[0]} rows, {counted(data.values.shape[1] - 1, 'input')}"

    def arrays(self, data: Table) -> tuple[np.ndarray, ...]:
        return data.values[:, :-1], data.values[:, -1]

    def diagnose(self, config: Mapping[str, Any], data: Table, model: Any) -> list[Finding]:
        findings = check(identified_draws(model), posterior_arrays(model)[1], max_num_integration_steps=_MOST_STEPS)
        return findings + misfits(
            unit_network_checks(data, model),
            "More units (--n-hidden) may reproduce them; outliers and skewed noise are outside of this model.",
        )

    def remarks(self, data: Table, model: Any) -> tuple[str, ...]:
        spread = f"{model.target_spread_:.3g}"
        return (f"noise is in units of the standard deviation of {data.names[-1]!r}, {spread}.",)

    def report(self, config: Mapping[str, Any], data: Table, model: Any, command: str, path: Path) -> None:
        write_unit_network(model, data, RunFacts(self.diagnose(config, data, model), config, command), path)

    def predict(self, data: Table, model: Any, file: Path, path: Path, dialect: Dialect = FOUND) -> tuple[str, ...]:
        """Write means, standard deviations and intervals of new outputs, and densities where the target is known."""
        *inputs, target = data.names
        needed = if_all_there(inputs, [target])
        read = read_table(file, needed=needed, keep_constant=True, of_fit=inputs, **dialect.options())
        table = match_columns(read, inputs)
        has_target = target in table.set_aside and not table.is_by_position
        if has_target:
            table = match_columns(read, [*inputs, target])
        x = table.values[:, : len(inputs)]
        mean, deviation = model.predict(x, return_std=True)
        draws = model.predict_draws(x)
        function = np.quantile(draws, [0.05, 0.95], axis=0)
        noise = model.target_spread_ * np.asarray(model.draws().noise)[:, None]
        outputs = Mixture(Normal, (draws, np.broadcast_to(noise, draws.shape))).quantiles((0.05, 0.95))
        columns = [mean, deviation, *outputs, *function]
        if has_target:
            density, is_known = np.full(len(x), np.nan), ~np.isnan(table.values[:, -1])
            if is_known.any():
                density[is_known] = model.log_predictive(x[is_known], table.values[is_known, -1])
            columns.append(density)
        heading = ["sd", "5%", "95%", "mean_5%", "mean_95%", *["log_predictive_density"] * has_target]
        write_numbered(path, table.text, [*apart([target], ["row", *heading]), *heading], columns)
        notes = tuple(note for note in table.notes if not isinstance(note, OnMissing))
        return (*notes, about_missing(x, missing_counts(inputs, x))) if np.isnan(x).any() else notes


def _rows_with_target(table: Table) -> tuple[Table, tuple[str, ...]]:
    """Return the rows with a target, without the note on missing cells, and notes about those left out and missing."""
    *inputs, target = table.names
    chosen, total = np.flatnonzero(~np.isnan(table.values[:, -1])), len(table.values)
    if len(chosen) < 2:
        raise TableError(f"{table.path}: {len(chosen)} of {total} rows have a value of {target!r}. A fit needs two.")
    values = table.values[chosen]
    kept = dataclasses.replace(
        table,
        values=values,
        row_labels=tuple(table.row_labels[i] for i in chosen),
        text={name: tuple(cells[i] for i in chosen) for name, cells in table.text.items()},
        notes=tuple(note for note in table.notes if not isinstance(note, OnMissing)),
    )
    notes = [f"{total - len(chosen)} of {total} rows have no {target!r} and are left out."] * (len(chosen) < total)
    if np.isnan(values[:, :-1]).any():
        notes.append(about_missing(values[:, :-1], missing_counts(inputs, values)))
    return kept, tuple(notes)
