"""Bayesian PCA as a model of ``geodax fit``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.family import AbstractRunKind, posterior_arrays
from geodax.app.pca import number
from geodax.app.pca.diagnosis import diagnose
from geodax.app.run_folder.files import RunFolderError, write_numbered
from geodax.app.tables.codes import codes
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.read import Table, if_all_there, match_columns, read_table
from geodax.data.errors import listed
from geodax.diagnostics.findings import Finding
from geodax.models.pca.density import require_own_noise
from geodax.models.pca.estimator import BayesianPCA
from geodax.models.pca.held_out import held_out_cells, number_of
from geodax.models.pca.observations import observations
from geodax.models.pca.options import PCAOptions
from geodax.models.pooling import pooled

_MOST_NAMED = 200  # columns with a name in the summary
_MANY_CELLS = 500_000  # that an iteration goes through; a fit of them takes about an hour


class PCARun(AbstractRunKind):
    """``geodax fit pca``."""

    name = "pca"
    headline = ("scale", "noise")
    estimator_type = BayesianPCA

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[Table, dict[str, Any]]:
        table = read_table(file, columns=columns, **dialect.options())
        notes = []
        if columns is None and 0 < len(days := table.days) < len(table.names):
            table = read_table(file, text=days, **dialect.options())
            notes = [f"Dates are left out: {listed(days)}. To take them as numbers, name all columns with --columns."]
        if columns is None:
            notes += [
                f"Column {name!r} holds integers that look like {looks}. To leave it out, name the other columns with "
                "--columns."
                for name, (_, looks) in codes(table.names, table.values).items()
            ]
        _check_enough(table, options)
        notes += _on_holes(table.values)
        facts: dict[str, Any] = {"columns": list(table.names), "notes": [*table.notes, *notes]}
        num_components, is_diagonal = options.n_components, options.noise == "diagonal"
        if num_components == "auto" or is_diagonal:
            standardised = self.unfitted(options).prepare(table.values)
            if num_components == "auto":
                held_out = held_out_cells(standardised, is_diagonal=is_diagonal)
                facts |= {"num_components": (num_components := number_of(held_out))}
                facts["notes"].append(number.choice_sentence(held_out))
            if is_diagonal:
                require_own_noise(standardised, num_components, table.names)
        return table, facts

    def describe(self, data: Table) -> str:
        return f"{data.values.shape[0]} rows x {data.values.shape[1]} columns"

    def arrays(self, data: Table) -> tuple[np.ndarray, ...]:
        return (data.values,)

    def estimator(self, config: Mapping[str, Any]) -> BayesianPCA:
        model = super().estimator(config)
        return model.set_params(n_components=config.get("num_components", model.n_components))

    def summarized(self, data: Table, model: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        posterior, stats = super().summarized(data, model)
        if model.noise == "diagonal" and len(data.names) <= _MOST_NAMED:
            others = {name: values for name, values in posterior.items() if name != "noise"}
            noise = posterior["noise"].values
            posterior = others | {f"noise of {name}": noise[..., k] for k, name in enumerate(data.names)}
        return posterior, stats

    def diagnose(self, config: Mapping[str, Any], data: Table, model: Any) -> list[Finding]:
        return diagnose(*posterior_arrays(model)).findings

    def report(self, config: Mapping[str, Any], data: Table, model: Any, command: str, path: Path) -> None:
        from geodax.app.pca.sections import write_report  # loads Matplotlib

        facts = _facts(config, data, model) | {"command": command}
        posterior, stats = posterior_arrays(model)
        write_report(posterior, stats, (data.values - model.center_) / model.spread_, facts, path)

    def remarks(self, data: Table, model: Any) -> tuple[str, ...]:
        is_diagonal = model.noise == "diagonal"
        names = ("scale", "noise", *["components"] * is_diagonal)
        draws = pooled(model.posterior_, names, number.NUM_TABLES)
        found = number.evidence((data.values - model.center_) / model.spread_, draws)
        return tuple(number.sentences(found, model.n_components_, is_diagonal=is_diagonal))

    def predict(self, data: Table, model: Any, file: Path, path: Path, dialect: Dialect = FOUND) -> tuple[str, ...]:
        """Write scores with intervals and predictive log densities of new rows; missing cells are imputed."""
        read = read_table(
            file,
            text=lambda there: [name for name in data.text if name in there],
            needed=if_all_there(data.names),
            keep_constant=True,
            of_fit=data.names,
            **dialect.options(),
        )
        table = match_columns(read, data.names)
        mean, log_density = model.transform(table.values), model.score_samples(table.values)
        low, high = model.score_quantiles(table.values)
        heading = [f"score_{j + 1}{end}" for j in range(mean.shape[-1]) for end in ("", "_5%", "_95%")]
        heading.append("log_predictive_density")
        columns = [*np.stack([mean, low, high], axis=-1).reshape(len(mean), -1).T, log_density]
        if np.isnan(table.values).any():
            heading += [f"{name}_filled" for name in data.names]
            columns += [*model.fill(table.values).T]
        write_numbered(path, table.text, heading, columns)
        return table.notes


def _facts(config: Mapping[str, Any], table: Table, model: BayesianPCA) -> dict[str, Any]:
    group_name, groups = next(
        ((name, values) for name, values in table.text.items() if 2 <= len(set(values)) <= 12), (None, None)
    )
    are_names = len(set(table.row_labels)) == len(table.row_labels)
    numbers = [str(i + 1) for i in range(len(table.values))]
    return {
        **model.get_params(),  # earlier versions had fewer options
        **config,
        "row_labels": list(table.row_labels) if are_names else numbers,
        "groups": None if groups is None else list(groups),
        "group_name": group_name,
        "center": model.center_,
        "spread": model.spread_,
        "seconds": model.posterior_.attrs.get("sampling_seconds"),
    }


def _on_holes(values: np.ndarray) -> list[str]:
    """A note on the time of the fit if rows have so many patterns of missing cells that they cannot be summed up."""
    incomplete = values[np.isnan(values).any(axis=1)]
    reduced = observations(incomplete)
    if reduced.rows.size < _MANY_CELLS:
        return []
    return [
        f"{len(incomplete):,} of {len(values):,} rows have missing cells, in {len(reduced.patterns):,} patterns: each "
        f"iteration goes through {len(reduced.rows):,} rows, which may take hours. A random part of the rows takes as "
        "much less."
    ]


def _check_enough(table: Table, options: PCAOptions) -> None:
    rows, columns = table.values.shape
    if rows < 2:
        raise RunFolderError(f"{table.path} has {rows} row of numbers. Bayesian PCA needs at least 2.")
    if columns < 2:
        raise RunFolderError(f"{table.path}: {table.names[0]!r} is the only numeric column. Bayesian PCA needs 2.")
    if options.n_components != "auto" and options.n_components > columns:
        raise RunFolderError(
            f"{options.n_components} components were requested, but {table.path} has {columns} numeric columns "
            f"({', '.join(table.names[:8])}{', ...' if columns > 8 else ''}). Choose --n-components {columns} or fewer."
        )
