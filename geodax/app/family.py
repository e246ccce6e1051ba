"""The interface between run folders and models: it makes fit, resume, report and predict the same for all models."""

import abc
import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from geodax.app.families import FAMILIES
from geodax.app.run_folder.files import fitted_table, load_data, load_table, save_data, save_table
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.read import Table
from geodax.data.errors import TableError
from geodax.diagnostics.findings import Finding
from geodax.diagnostics.summary import Summary, as_arrays, summarize
from geodax.models.pooling import thinned


@dataclasses.dataclass(frozen=True)
class RunResult:
    """Result of a finished run.

    Attributes:
        folder: The run folder.
        model: Name of the model.
        summary: Posterior summaries.
        findings: Findings of the diagnostics, the most severe first.
        notes: Decisions made while reading the data.
        seconds: Sampling time; NaN for a run that was killed.
        compile_seconds: Compilation time.
        headline: Prefixes of the names of the most important rows of the summary.
        results: Lines that answer the user's question, such as scores of held-out rows; they are printed first.
        remarks: Sentences about the rows of the summary and about held-out predictions.
        extension: The command that adds the draws a report needs; empty if there are enough.
    """

    folder: Path
    model: str
    summary: Summary
    findings: list[Finding]
    notes: tuple[str, ...]
    seconds: float
    compile_seconds: float
    headline: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    extension: str = ""
    results: tuple[str, ...] = ()


class RunFacts(NamedTuple):
    """What reports of all models say of a run.

    Attributes:
        findings: Findings of the diagnostics, the most severe first.
        config: The contents of ``config.json``.
        command: The command that repeats the run.
    """

    findings: Sequence[Finding]
    config: Mapping[str, Any]
    command: str


class AbstractRunKind(abc.ABC):
    """One model of ``geodax fit``.

    Attributes:
        name: Its name on the command line and in ``config.json``.
        headline: Prefixes of the names of the most important rows of the summary.
        data_type: Type of the data, a dataclass.
        estimator_type: Type of the estimator, a dataclass.
    """

    name: ClassVar[str]
    headline: ClassVar[tuple[str, ...]]
    data_type: ClassVar[type] = Table
    estimator_type: ClassVar[type]

    @abc.abstractmethod
    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[Any, dict[str, Any]]:
        """Read and check a user's file; return the data, and their ``columns`` and ``notes`` for ``config.json``.

        The seed chooses the rows that are held out, if any are.
        """

    def save(self, path: Path, data: Any) -> None:
        """Write the data as plain arrays."""
        (save_table if self.data_type is Table else save_data)(path, data)

    def load(self, path: Path) -> Any:
        """Read data written by :meth:`save`; raises StorageError if they are damaged."""
        return load_table(path) if self.data_type is Table else load_data(path, self.data_type)

    @abc.abstractmethod
    def describe(self, data: Any) -> str:
        """Describe the size of the data, for the log."""

    @abc.abstractmethod
    def arrays(self, data: Any) -> tuple[np.ndarray | None, ...]:
        """Return the arguments of the estimator's ``fit``."""

    def estimator(self, config: Mapping[str, Any]) -> Any:
        """Make the estimator with the options of a run."""
        return self.estimator_type(**self.estimator_options(config["options"]), random_state=config["seed"])

    def estimator_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options without those of reading, which the estimator does not have."""
        known = {field.name for field in dataclasses.fields(self.estimator_type)}
        reading = {field.name for field in dataclasses.fields(FAMILIES[self.name].options)} - known
        return {name: value for name, value in options.items() if name not in reading}

    def unfitted(self, options: Any, **facts: Any) -> Any:
        """Make the estimator that checks new data."""
        return self.estimator({"options": dataclasses.asdict(options), "seed": 0, **facts})

    def fitted(self, config: Mapping[str, Any], data: Any, posterior: Any) -> Any:
        """Make the estimator of a run with its draws."""
        return self.estimator(config).with_posterior(*self.arrays(data), posterior=posterior)

    @abc.abstractmethod
    def diagnose(self, config: Mapping[str, Any], data: Any, model: Any) -> list[Finding]:
        """Run the diagnostics on quantities that the posterior identifies."""

    @abc.abstractmethod
    def report(self, config: Mapping[str, Any], data: Any, model: Any, command: str, path: Path) -> None:
        """Write the HTML report."""

    @abc.abstractmethod
    def predict(self, data: Any, model: Any, file: Path, path: Path, dialect: Dialect = FOUND) -> tuple[str, ...]:
        """Write predictions for a user's file; return notes about it."""

    def predict_missing(self, data: Any, model: Any, path: Path) -> tuple[str, ...]:
        """Write predictions for everything that was missing in the fit; return notes about it."""
        raise TableError(f"A run of {self.name} needs a table to predict for: geodax predict RUN FILE.")

    def summarized(self, data: Any, model: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Draws for ``summary.csv``, and the sampler's statistics; all there are, unless a kind knows better."""
        return model.posterior_["posterior"], model.posterior_["sample_stats"]

    def points(self, data: Any, model: Any) -> tuple[str, ...]:
        """Names of summarised variables that were estimated, one value for each chain, and not drawn."""
        return ()

    def summary(self, data: Any, model: Any) -> Summary:
        """Summarise the draws."""
        return summarize(*self.summarized(data, model), points=self.points(data, model))

    def results(self, data: Any, model: Any) -> tuple[str, ...]:
        """Return lines that answer the user's question, for the beginning of the output."""
        return ()

    def remarks(self, data: Any, model: Any) -> tuple[str, ...]:
        """Return sentences about the first rows of the summary and about held-out predictions."""
        return ()

    def command(self, config: Mapping[str, Any], run: Path) -> str:
        """Return the command that repeats the run."""
        plain = {**dataclasses.asdict(FAMILIES[self.name].options()), **dataclasses.asdict(FOUND), "columns": None}
        asked = {**config["options"], **config.get("dialect", {}), "columns": config.get("asked_columns")}
        changed = [
            _said(name, value)
            if not isinstance(value, bool) or name == "header"
            else f"--{'' if value else 'no-'}{name.replace('_', '-')}"
            for name, value in asked.items()
            if value != (list(plain[name]) if isinstance(plain[name], tuple) else plain[name])
        ]
        return " ".join(
            [
                f"geodax fit {self.name}",
                shlex.quote(str(fitted_table(config))),
                *changed,
                f"--seed {config['seed']}",
                _said("out", run),
            ]
        )


def _said(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    words = [shlex.quote(word) for word in (value if isinstance(value, list) else [str(value)])]
    if words and words[0].startswith(("-", "'-")):  # it would be parsed as another option
        return " ".join([f"{option}={words[0]}", *words[1:]])
    return " ".join([option, *words])


def posterior_arrays(model: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Posterior draws, thinned where they are many, and sampler statistics of a fitted estimator, by name.

    ``lp`` is that of the draws; the other statistics are of all iterations.
    """
    group = thinned(model.posterior_)["posterior"]
    stats = statistics(model)
    if "lp" in stats:
        stats["lp"] = stats["lp"][:, group["draw"].values]
    return as_arrays(group), stats


def statistics(model: Any) -> dict[str, np.ndarray]:
    """The sampler statistics of a fitted estimator, by name."""
    return as_arrays(model.posterior_["sample_stats"])
