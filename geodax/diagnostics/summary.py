"""A summary table of the draws: location, accuracy, and agreement of the chains for each number."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Real

from geodax import _checks
from geodax._files import named
from geodax.diagnostics.chain_statistics import LARGEST_BOUND, LARGEST_RHAT
from geodax.diagnostics.convergence import convergence, e_bfmi, ess_of_agreement, nested_rhat, over_pieces
from geodax.run.blocks import is_still, number_blocks
from geodax.run.records import ARVIZ_NAMES

_PRINTED_ROWS = 40


class SummaryRow(NamedTuple):
    """One number of the position.

    Attributes:
        name: The variable, with its index for an array: ``scale[0]``, followed by ``.real`` or ``.imag``
            for a complex one.
        mean: The posterior mean.
        sd: The posterior standard deviation.
        quantile_5: The 5 % quantile.
        quantile_50: The median.
        quantile_95: The 95 % quantile.
        mcse_mean: The Monte Carlo standard error of the mean.
        ess_bulk: The effective sample size in the centre of the distribution.
        ess_tail: The smaller of the effective sample sizes of the 5 % and the 95 % quantile.
        rhat: Rank-normalised split R-hat, or nested R-hat with superchains; near 1 if the chains
            agree.
    """

    name: str
    mean: float
    sd: float
    quantile_5: float
    quantile_50: float
    quantile_95: float
    mcse_mean: float
    ess_bulk: float
    ess_tail: float
    rhat: float


_NOT_DRAWN = dict.fromkeys(("mcse_mean", "ess_bulk", "ess_tail", "rhat"), math.nan)
_HEADINGS = ("name", "mean", "sd", "5%", "50%", "95%", "mcse_mean", "ess_bulk", "ess_tail", "rhat")


@dataclass(frozen=True)
class Summary:
    """The table returned by :func:`summarize`. Iterate over its rows, print it, or write it as CSV.

    Attributes:
        rows: One row per number, in the order of the variables.
        num_chains: The number of chains.
        num_draws: The number of draws of each chain.
        sampler: Figures of the sampler by name; empty without sampler statistics.
    """

    rows: tuple[SummaryRow, ...]
    num_chains: int
    num_draws: int
    sampler: Mapping[str, float]

    def __iter__(self) -> Iterator[SummaryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> SummaryRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(
            f"The summary has no row {name!r}; it begins with {', '.join(row.name for row in self.rows[:5])}."
        )

    def to_csv(self, path: str | Path) -> None:
        """Write the rows with a header line; numbers keep all their digits, an unknown one is ``nan``.

        Args:
            path: The file to write.
        """
        with named(Path(path)), open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_HEADINGS)
            writer.writerows(self.rows)

    def __str__(self) -> str:
        cells = [list(_HEADINGS), *(_printed(row) for row in self.rows[:_PRINTED_ROWS])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                [line[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            )
            for line in cells
        ]
        left_out = len(self.rows) - _PRINTED_ROWS
        if left_out > 0:
            lines.append(f"... and {left_out} more rows; to_csv writes all of them")
        lines.append(f"{self.num_chains} chains of {self.num_draws} draws")
        lines.extend(f"{name}: {value:.4g}" for name, value in self.sampler.items())
        return "\n".join(lines)


def summarize(
    draws: Mapping[str, Any],
    sample_stats: Mapping[str, Any] | None = None,
    *,
    num_superchains: int | None = None,
    points: Sequence[str] = (),
) -> Summary:
    """Summarise every number of the position.

    Args:
        draws: Arrays of shape (chain, draw, ...) by name, all with the same chains and draws, the DataTree of
            :func:`geodax.sample`, whose group ``posterior`` is used, or one of its groups. The real and the imaginary
            part of a complex variable have one row each.
        sample_stats: The sampler's statistics of shape (chain, draw) by name; None: the group of this name, if
            ``draws`` is a whole DataTree. The summary reports the mean acceptance rate, the divergences, the mean
            number of integration steps, the smallest E-BFMI and the largest residual, if present.
        num_superchains: Number of groups of chains that started at the same point, as in
            :func:`geodax.sample`: the column ``rhat`` is then nested R-hat, which allows short chains.
        points: Names, or shell patterns of names, of variables that were not drawn but estimated, one value for each
            chain, such as the noise of a variational posterior. Their values for the chains differ as estimates do, so
            they have neither Monte Carlo error nor effective sample size nor R-hat. Give the summary to :func:`check`.

    Returns:
        The table. Undefined values (R-hat of one chain, any statistic of a NaN) are NaN. An empty variable
        has no row.

    Raises:
        ValueError: If ``points`` has a name that no variable has, or a variable that varies within a chain.
    """
    counted = divergences_between(draws)
    draws, sample_stats = draws_and_stats(draws, sample_stats)
    num_chains, num_draws = chains_and_draws(draws)
    if num_superchains is not None:
        num_superchains = _checks.superchains(num_chains, num_superchains, "summarize")
    estimated = _estimated(draws, points)
    rows: list[SummaryRow] = []
    for name, values in draws.items():
        found = _rows(name, values, num_superchains)
        rows += [row._replace(**_NOT_DRAWN) for row in found] if name in estimated else found
    return Summary(tuple(rows), num_chains, num_draws, _sampler_figures(sample_stats, counted))


def rhats_with_sizes(draws: Mapping[str, Any], rows: Sequence[SummaryRow]) -> tuple[np.ndarray, np.ndarray]:
    """Return R-hat of each row of a summary and the number of effective draws that it should be judged by.

    The number is :func:`ess_of_agreement` where it can matter, at R-hats between its two limits, else the bulk's.
    """
    doubtful = {row.name for row in rows if LARGEST_RHAT < row.rhat <= LARGEST_BOUND}
    found: dict[str, float] = {}
    for name, values in draws.items():
        names = row_names(name, values.shape[2:]) if 0 not in values.shape else []
        parts = _parts(values)
        if doubtful.isdisjoint(row + part for row in names for part in parts):
            continue
        for chosen, block in number_blocks(values):
            for part, of in parts.items():
                rows_of_block = [row + part for row in names[chosen]]
                places = [i for i, row in enumerate(rows_of_block) if row in doubtful]
                if places:
                    sizes = ess_of_agreement(of(block)[..., places])
                    found |= {rows_of_block[i]: float(size) for i, size in zip(places, sizes, strict=True)}
    sizes = [found.get(row.name, row.ess_bulk) for row in rows]
    return np.array([row.rhat for row in rows]), np.array(sizes)


def draws_and_stats(
    draws: Mapping[str, Any], sample_stats: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return draws and the sampler's statistics by name; the draws on disk are not read.

    Both are mappings or groups of a DataTree; ``draws`` may be a whole one, whose statistics are taken if none are
    given.
    """
    posterior: Any = draws.get("posterior") if isinstance(draws, Mapping) else None
    if hasattr(posterior, "data_vars"):
        draws, sample_stats = posterior, draws.get("sample_stats") if sample_stats is None else sample_stats
    return as_variables(draws), as_arrays(sample_stats or {})


def divergences_between(draws: Any) -> int | None:
    """Number of divergences of a thinned run, most of them between its draws; None for other draws."""
    attributes = getattr(draws, "attrs", {})
    return attributes.get("num_divergences") if attributes.get("thinning", 1) > 1 else None


def as_arrays(group: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Convert a mapping or a group of a DataTree (without its coordinates) to NumPy arrays by name."""
    return {name: np.asarray(values) for name, values in as_variables(group).items()}


def as_variables(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables by name from a mapping or a group of a DataTree; those on disk are not read.

    Both NumPy arrays and xarray variables, which stay as they are, have a shape and a data type, and can be sliced.
    """
    variables = getattr(group, "data_vars", group)
    if not isinstance(variables, Mapping):
        raise TypeError(
            f"Expected draws by name, a mapping or a group of a DataTree, found {_checks.described(group)}. Pass "
            '{"x": x} for a single variable.'
        )
    return {
        str(name): values
        if isinstance(values, xr.DataArray) and values.dtype.kind in "biufc"
        else _checks.plain("diagnostics", str(name), getattr(values, "values", values))
        for name, values in variables.items()
    }


def chains_and_draws(draws: Mapping[str, Any]) -> tuple[int, int]:
    """Return the positive numbers of chains and of draws that all variables have in common."""
    if not draws:
        raise ValueError(
            "Expected the draws of at least one variable, found none. Pass {'name': draws}, or a group of a DataTree "
            "that has draws."
        )
    for name, values in draws.items():
        if np.ndim(values) < 2 or np.shape(values)[0] < 1 or np.shape(values)[1] < 1:
            raise ValueError(
                f"Expected draws of shape (chain, draw, ...), found {np.shape(values)} for {name!r}. "
                "Give a single chain a leading axis with draws[None]."
            )
    shapes = {name: np.shape(values)[:2] for name, values in draws.items()}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name!r} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"Expected the same (chain, draw) for all variables, found {found}. "
            "Summarise variables that were thinned or stored differently in separate calls."
        )
    return next(iter(shapes.values()))


def row_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Name every number of a variable in C order: ``name``, or ``name[i,j]`` for an array."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]


def statistic(sample_stats: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """Return a sampler statistic (chain, draw) by geodax's or ArviZ's name; None if it was not stored or is empty."""
    for known_as in (name, ARVIZ_NAMES.get(name, name)):
        if known_as in sample_stats:
            values = np.asarray(sample_stats[known_as])
            if values.ndim != 2 or values.size == 0:
                raise ValueError(
                    f"Expected the sampler statistic {known_as!r} to have the shape (chain, draw), found "
                    f"{values.shape}. Pass it as the sampler stored it, or leave it out."
                )
            return values
    return None


def _estimated(draws: Mapping[str, Any], points: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for point in points:
        names = {name for name in draws if name == point or fnmatchcase(name, point)}
        moving = [name for name in names if 0 not in draws[name].shape and not is_still(draws[name]).all()]
        if moving or not names:
            what = f"draws of {moving[0]!r} that differ" if moving else f"none among {', '.join(sorted(draws)[:5])}"
            raise ValueError(
                f"summarize: points={point!r} expects variables with one value in all draws of a chain, found {what}."
            )
        found |= names
    return found


def _rows(name: str, values: Any, num_superchains: int | None) -> list[SummaryRow]:
    if 0 in values.shape:
        return []
    names = row_names(name, values.shape[2:])
    parts = _parts(values)
    rows: dict[str, list[SummaryRow]] = {part: [] for part in parts}
    for chosen, block in number_blocks(values):
        for part, of in parts.items():
            columns = _columns(of(block), num_superchains)
            rows[part] += [
                SummaryRow(row_name + part, *map(float, numbers))
                for row_name, *numbers in zip(names[chosen], *columns, strict=True)
            ]
    return [row for of_part in rows.values() for row in of_part]


def _parts(values: Any) -> dict[str, Callable[[Any], np.ndarray]]:
    return {".real": np.real, ".imag": np.imag} if values.dtype.kind == "c" else {"": np.asarray}


def _columns(values: Real[np.ndarray, "chain draw number"], num_superchains: int | None) -> list[np.ndarray]:
    """Compute the columns of the table for a block of numbers."""
    location = np.concatenate(over_pieces(_location, values), axis=1)
    found = convergence(values)
    if num_superchains is not None:
        found = found._replace(rhat=nested_rhat(values, num_superchains=num_superchains))
    return [*location, *found]


def _location(values: Real[np.ndarray, "chain draw number"]) -> Float[np.ndarray, "column number"]:
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        quantiles = np.quantile(values, (0.05, 0.5, 0.95), axis=(0, 1))
        return np.stack([values.mean(axis=(0, 1)), _standard_deviation(values), *quantiles])


def _standard_deviation(values: Float[np.ndarray, "chain draw number"]) -> Float[np.ndarray, " number"]:
    if values.shape[0] * values.shape[1] < 2:
        return np.full(values.shape[2], np.nan)
    return values.std(axis=(0, 1), ddof=1)


def _sampler_figures(stats: Mapping[str, np.ndarray], num_divergences: int | None) -> dict[str, float]:
    acceptance_rate = statistic(stats, "acceptance_rate")
    is_divergent = statistic(stats, "is_divergent")
    num_integration_steps = statistic(stats, "num_integration_steps")
    energy = statistic(stats, "energy")
    residual = statistic(stats, "residual")
    figures: dict[str, float] = {}
    if acceptance_rate is not None:
        figures["mean acceptance rate"] = float(acceptance_rate.mean())
    if is_divergent is not None:
        figures["divergences"] = float(is_divergent.sum() if num_divergences is None else num_divergences)
    if num_integration_steps is not None:
        figures["mean number of integration steps"] = float(num_integration_steps.mean())
    if energy is not None and energy.shape[1] > 1:
        figures["smallest E-BFMI"] = float(e_bfmi(energy).min())
    if residual is not None:
        figures["largest residual"] = float(residual.max())
    return figures


def _printed(row: SummaryRow) -> list[str]:
    name, *numbers, ess_bulk, ess_tail, rhat_value = row
    return [name, *(f"{number:.4g}" for number in numbers), f"{ess_bulk:.0f}", f"{ess_tail:.0f}", f"{rhat_value:.3f}"]
