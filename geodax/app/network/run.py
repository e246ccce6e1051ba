"""The network models of ``geodax fit``: eigenmodel and network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax import _checks
from geodax.app.family import AbstractRunKind, RunFacts, posterior_arrays
from geodax.app.network import report as network_report
from geodax.app.network.contacts import ContactWindows, hold_out_counts, read_contacts
from geodax.app.network.files import Adjacency, hold_out, read_adjacency, read_pairs
from geodax.app.network.modes import mode_findings, sign_findings
from geodax.app.network.scores import contact_scores
from geodax.app.report import scored
from geodax.app.report.parts import misfits
from geodax.app.run_folder.files import write_rows
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.data.errors import TableError, counted
from geodax.diagnostics.findings import Finding, check
from geodax.models.eigenmodel.estimator import Eigenmodel
from geodax.models.network.estimator import NetworkHMM

_MOST_STEPS = 2**10 - 1
_FEW_WINDOWS = 5  # for each state
_MORE_FLEXIBLE = "A higher --rank, --intercept, more states or --counts negative-binomial may reproduce them."


class EigenmodelRun(AbstractRunKind):
    """``geodax fit eigenmodel``."""

    name = "eigenmodel"
    headline = ("eigenvalues", "intercept")
    data_type = Adjacency
    estimator_type = Eigenmodel

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[Adjacency, dict[str, Any]]:
        named = [name for name in (options.first_node, options.second_node, options.value) if name]
        if bool(options.first_node) != bool(options.second_node) or (options.value and not options.first_node):
            raise TableError("--first-node, --second-node and --value name columns of one edge list. Name both nodes.")
        network = read_adjacency(file, counts=options.link == "log", columns=named, dialect=dialect)
        data = hold_out(network, options.test_fraction, seed)
        Eigenmodel(options.rank, link=options.link).prepare(data.fitted)
        return data, {"columns": list(data.names), "notes": list(data.notes)}

    def describe(self, data: Adjacency) -> str:
        return f"{len(data.names)} nodes"

    def arrays(self, data: Adjacency) -> tuple[np.ndarray, ...]:
        return (data.fitted,)

    def diagnose(self, config: Mapping[str, Any], data: Adjacency, model: Any) -> list[Finding]:
        draws, stats = network_report.eigenmodel_draws(model), posterior_arrays(model)[1]
        findings = check(draws, stats, max_num_integration_steps=_MOST_STEPS)
        findings += sign_findings(_modes(data, model), draws["eigenvalues"])
        return findings + misfits(network_report.eigenmodel_checks(data, model), "A higher --rank may reproduce them.")

    def report(self, config: Mapping[str, Any], data: Adjacency, model: Any, command: str, path: Path) -> None:
        run = RunFacts(self.diagnose(config, data, model), config, command)
        network_report.write_eigenmodel(model, data, run, path)

    def remarks(self, data: Adjacency, model: Any) -> tuple[str, ...]:
        return network_report.held_out_remarks(data, model)

    def predict_missing(self, data: Adjacency, model: Any, path: Path) -> tuple[str, ...]:
        """Write posterior mean probabilities (or rates) of pairs that were not in the fit, beside what was held out."""
        places = np.argwhere(np.triu(np.isnan(data.fitted), 1))
        if not len(places):
            raise TableError(
                "No pair of this network was missing or held out. Name the pairs to predict in a file of two columns: "
                "geodax predict RUN FILE."
            )
        observed = None if data.is_test is None else data.values[*places.T]
        self._write_pairs(path, model, np.array(data.names)[places], places, np.ones(len(places), bool), observed)
        return (f"{len(places):,} pairs were not in the fit.",)

    def predict(self, data: Adjacency, model: Any, file: Path, path: Path, dialect: Dialect = FOUND) -> tuple[str, ...]:
        """Write posterior mean probabilities (or rates) of pairs, with credible intervals."""
        pairs = read_pairs(file, data.names, dialect, data.columns)
        is_whole, is_loop = (pairs.places >= 0).all(axis=1), pairs.places[:, 0] == pairs.places[:, 1]
        num_loops = int((is_whole & is_loop).sum())
        notes = pairs.notes
        if num_loops:
            notes += (f"{num_loops} of {len(is_loop)} rows name the same node twice and have no prediction.",)
        self._write_pairs(path, model, pairs.names, pairs.places, is_whole & ~is_loop)
        return notes

    def _write_pairs(
        self,
        path: Path,
        model: Any,
        names: np.ndarray,
        places: np.ndarray,
        is_whole: np.ndarray,
        observed: np.ndarray | None = None,
    ) -> None:
        cells = np.full((len(places), 3), np.nan)
        if is_whole.any():
            draws = model.predict_draws(places[is_whole])
            cells[is_whole] = np.stack([draws.mean(axis=0), *np.quantile(draws, [0.05, 0.95], axis=0)], axis=1)
        word = "rate" if model.link == "log" else "probability"
        heading = ["node_1", "node_2", word, f"{word}_5%", f"{word}_95%"]
        if observed is not None:
            heading, cells = [*heading, "observed"], np.column_stack([cells, observed])
        write_rows(path, heading, ((*pair, *values) for pair, values in zip(names.tolist(), cells, strict=True)))


class NetworkRun(AbstractRunKind):
    """``geodax fit network``."""

    name = "network"
    headline = ("eigenvalues", "transition")
    data_type = ContactWindows
    estimator_type = NetworkHMM

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[ContactWindows, dict[str, Any]]:
        width = None if options.window is None else _checks.number("fit", "window", options.window, above=0.0)
        contacts = read_contacts(file, width=width, start=options.start, dialect=dialect)
        data = hold_out_counts(contacts, options.test_fraction, diagonal=options.diagonal, seed=seed)
        self.unfitted(options).prepare(data.fitted)
        note = f"{len(data.counts)} windows of {data.width:g} between {len(data.names)} classes."
        notes = [note, *data.notes]
        if len(data.counts) < _FEW_WINDOWS * options.n_states:
            notes.append(
                f"{counted(len(data.counts), 'window')} for {counted(options.n_states, 'state')} are few: a state may "
                "be no more than a single window. Choose a shorter --window, or fewer states (--n-states)."
            )
        return data, {"columns": list(data.names), "notes": notes}

    def describe(self, data: ContactWindows) -> str:
        return f"{len(data.counts)} windows, {len(data.names)} classes"

    def arrays(self, data: ContactWindows) -> tuple[np.ndarray, ...]:
        return (data.fitted,)

    def diagnose(self, config: Mapping[str, Any], data: ContactWindows, model: Any) -> list[Finding]:
        draws, stats = network_report.network_draws(model), posterior_arrays(model)[1]
        findings = check(draws, stats, max_num_integration_steps=_MOST_STEPS)
        findings += mode_findings(_modes(data, model), stats["lp"])
        return findings + misfits(network_report.network_checks(data, model), _MORE_FLEXIBLE)

    def results(self, data: ContactWindows, model: Any) -> tuple[str, ...]:
        found = contact_scores(data, model)
        return scored.lines("held-out counts", found) if found else ()

    def report(self, config: Mapping[str, Any], data: ContactWindows, model: Any, command: str, path: Path) -> None:
        run = RunFacts(self.diagnose(config, data, model), config, command)
        network_report.write_network(model, data, _modes(data, model), run, path)

    def predict_missing(self, data: ContactWindows, model: Any, path: Path) -> tuple[str, ...]:
        """Write expected numbers and probabilities of contacts for the counts that were held out."""
        if data.is_test is None:
            raise TableError(
                "No count of this fit was held out (--test-fraction). Name a file of contacts, for the state of each "
                "of its windows: geodax predict RUN FILE."
            )
        place = first, second = np.triu_indices(len(data.names), 0 if model.diagonal else 1)
        window, pair = np.nonzero(data.is_test[:, *place])
        none = model.log_predictive(np.where(data.is_test, 0.0, np.nan), data.fitted)
        expected = model.expected_counts(data.fitted)[:, *place][window, pair]
        cells = np.stack([expected, -np.expm1(none), data.counts[:, *place][window, pair]], axis=1)
        rows = (
            (data.starts[t], data.names[first[i]], data.names[second[i]], *values)
            for t, i, values in zip(window, pair, cells, strict=True)
        )
        write_rows(path, ["start", "class_1", "class_2", "expected", "probability", "observed"], rows)
        return (f"{len(cells)} counts were held out; `probability` is that of at least one contact.",)

    def predict(
        self, data: ContactWindows, model: Any, file: Path, path: Path, dialect: Dialect = FOUND
    ) -> tuple[str, ...]:
        """Write the most probable state of each window of new contacts, and the probabilities of all states."""
        new = read_contacts(file, width=data.width, dialect=dialect)
        unknown = sorted(set(new.names) - set(data.names))
        if unknown:
            raise TableError(
                f"{file}: class {unknown[0]!r} is not in the fit. Its classes are {', '.join(data.names)}."
            )
        place = [data.names.index(name) for name in new.names]
        counts = np.zeros((len(new.counts), len(data.names), len(data.names)))
        counts[np.ix_(range(len(counts)), place, place)] = new.counts
        probabilities = model.predict_proba(counts)
        heading = ["start", "state", *(f"probability_{k + 1}" for k in range(probabilities.shape[1]))]
        states = probabilities.argmax(axis=1) + 1
        write_rows(path, heading, zip(new.starts, states, *probabilities.T, strict=True))
        return new.notes


def _modes(data: Adjacency | ContactWindows, model: Any) -> list[Any]:
    """Return the modes of the fit; a model read from its draws finds them again, with the same seed."""
    if not hasattr(model, "modes_"):
        model.modes_ = model.find_modes(data.fitted)
    return model.modes_
