"""Reads rows with inputs and a target from a user's file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geodax.app.families import LabelledOptions
from geodax.app.mlp import inputs as encoding
from geodax.app.mlp.inputs import OTHER, Pairs, levels_of
from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.targets import class_counts, classes, numbers
from geodax.app.tables.assembly import OnMissing, some_of
from geodax.app.tables.chosen_rows import about_copies, about_held_out, choose_held_out, groups_of, times_of, weights_of
from geodax.app.tables.codes import codes
from geodax.app.tables.columns import SEVERAL_UNITS
from geodax.app.tables.dialect import BLANK, FOUND, MISSING, Dialect
from geodax.app.tables.names import as_names, no_column
from geodax.app.tables.read import ASKED_FOR, Table, match_columns, read_table
from geodax.data.errors import TableError, counted, listed
from geodax.models.mlp.weights import whole_groups

_LEAST_ROWS = 4


class _Roles(NamedTuple):
    """What the columns are for, by the options; empty names are unused.

    Attributes:
        inputs: Columns to read as inputs; None for all others that vary.
        are_classes: Whether the targets are names.
    """

    targets: tuple[str, ...]
    inputs: tuple[str, ...] | None
    categories: tuple[str, ...]
    drop: tuple[str, ...]
    weights: str
    groups: str
    time: str
    are_classes: bool

    @property
    def others(self) -> tuple[str, ...]:
        """Columns that are no inputs, but for a time."""
        return (*self.targets, *filter(None, (self.weights, self.groups)), *self.drop)

    def option_of(self, name: str) -> str:
        """Return the option that names a column."""
        named = {self.weights: "--weights", self.groups: "--groups", self.time: "--time"}
        return (named | dict.fromkeys(self.targets, "--target")).get(name, "--drop")

    def as_text(self, there: Sequence[str]) -> list[str]:
        """Choose the columns to read as text."""
        named = (*(self.targets if self.are_classes else ()), *filter(None, [self.groups]))
        return [*self.categories, *(name for name in named if name in there)]

    def needed(self, there: Sequence[str]) -> list[str]:
        """Choose the columns whose cells must be right."""
        named = there if self.inputs is None else (*self.inputs, *self.others, *filter(None, [self.time]))
        return [name for name in named if name not in self.drop or name == self.time]


class _Rows(NamedTuple):
    """What belongs to the rows whose target is known, without the inputs.

    Attributes:
        is_known: Which rows of the table these are: those with all targets and a positive weight.
        notes: How many rows are left out.
    """

    is_known: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    groups: np.ndarray | None
    times: np.ndarray | None
    notes: tuple[str, ...]


class _Inputs(NamedTuple):
    """The inputs of the rows, as in a `LabelledTable`."""

    inputs: np.ndarray
    names: tuple[str, ...]
    categories: tuple[tuple[str, str], ...]
    dates: tuple[tuple[str, str], ...]
    days: tuple[str, ...]
    notes: tuple[str, ...]


def read_labelled(
    path: Path,
    options: LabelledOptions,
    columns: tuple[str, ...] | None,
    *,
    are_classes: bool,
    seed: int = 0,
    dialect: Dialect = FOUND,
) -> LabelledTable:
    """Read the rows of a file that have all targets: their inputs, targets and weights, and which are held out.

    Several targets are numbers. Without ``columns`` all other columns that vary are inputs, except text that looks like
    names; those of ``--categories`` are, even if they look like numbers or names. Rows with equal ``--groups`` are held
    out together, with ``--time`` the latest, else the seed chooses them. Raises TableError if columns cannot be found
    or have the wrong contents.
    """
    targets = tuple(dict.fromkeys([options.target] if isinstance(options.target, str) else options.target))
    categories, drop = tuple(dict.fromkeys(options.categories)), tuple(options.drop)
    weights, groups, time = options.weights, options.groups, options.time
    no_inputs = {*targets, *filter(None, (weights, groups)), *categories, *drop}
    named = None if columns is None else tuple(name for name in columns if name not in no_inputs)
    roles = _Roles(targets, named, categories, drop, weights, groups, time, are_classes)
    _check_options(path, roles, options.test_fraction)
    table = _read(path, roles, dialect)
    rows = _rows(path, table, roles, dialect)
    together = rows.groups if rows.times is None else rows.times
    is_test = choose_held_out(rows.targets, together, are_classes, options.test_fraction, seed, are_times=bool(time))
    inputs = _inputs(path, table, roles, rows.is_known, ~is_test, dialect)
    calibrates = np.zeros(0, bool)
    if rows.times is not None and options.calibration_fraction > 0:
        number = round(min(options.calibration_fraction, 1) * np.sum(~is_test))
        calibrates = whole_groups(rows.times[~is_test], max(number, 1))
    notes = (
        *inputs.notes,
        *rows.notes,
        *about_held_out(is_test, rows.groups, groups, time, inputs.days),
        *about_copies(inputs.inputs, rows.targets, is_test),
    )
    kept: dict[str, Any] = inputs._asdict() | {"notes": notes}
    return LabelledTable(
        **kept,
        targets=rows.targets,
        target=", ".join(targets),
        is_test=is_test,
        weights=rows.weights,
        several=targets if len(targets) > 1 else (),
        groups=np.zeros(0, int) if rows.groups is None else rows.groups,
        calibrates=calibrates,
    )


def _check_options(path: Path, roles: _Roles, test_fraction: float) -> None:
    targets, categories, drop = roles.targets, roles.categories, roles.drop
    if not any(targets):
        raise TableError(f"{path}: expected the column to predict. Use --target NAME.")
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be at least 0 and below 1, found {test_fraction}.")
    for option, names in (("--categories", categories), ("--drop", drop)):
        if both := [name for name in targets if name in names]:
            raise TableError(f"{path}: {option} includes the target {both[0]!r}, which cannot be an input.")
    # a column of times may be dropped from the inputs
    of_rows = {"--weights": roles.weights, "--groups": roles.groups, "--time": "" if roles.time in drop else roles.time}
    for option, name in of_rows.items():
        if name and (name in (*targets, *categories, *drop) or list(of_rows.values()).count(name) > 1):
            raise TableError(
                f"{path}: {option} {name!r} is also the target, or in another of {', '.join(of_rows)}, --categories "
                "and --drop."
            )
    both = [name for name in drop if name in categories]
    if both:
        raise TableError(f"{path}: --categories and --drop both include {both[0]!r}. Remove it from one of them.")
    if roles.time and roles.groups:
        raise TableError(f"{path}: --time and --groups hold out different rows. Use one of them.")
    if roles.inputs == () and not categories:
        what = "the target" if len(targets) == 1 else "targets"
        raise TableError(f"{path}: --columns includes only {what}. Add columns to predict it from.")


def _read(path: Path, roles: _Roles, dialect: Dialect) -> Table:
    table = read_table(
        path,
        columns=roles.inputs,
        text=roles.as_text,
        needed=roles.needed,
        others="use --categories NAME or --drop NAME",
        leave_out="use --drop",
        may_be_text=True,
        **dialect.options(),
    )
    for name in (*roles.others, *filter(None, [roles.time])):
        if name not in table.file_columns:
            raise no_column(path, name, table.file_columns, f"Use {roles.option_of(name)} with one of")
    if len(table.values) < _LEAST_ROWS:
        raise TableError(f"{path} has {counted(len(table.values), 'row')}. A fit needs at least {_LEAST_ROWS}.")
    return table


def _rows(path: Path, table: Table, roles: _Roles, dialect: Dialect) -> _Rows:
    """Choose the rows with a target and a weight, and read their targets, weights, groups and times."""
    names, total, notes = roles.targets, len(table.values), []
    each = [classes(path, table, n, dialect) if roles.are_classes else numbers(path, table, n) for n in names]
    is_known = np.all([values != "" if roles.are_classes else ~np.isnan(values) for values in each], axis=0)
    if num_unknown := int(np.sum(~is_known)):
        notes.append(f"{num_unknown:,} of {total:,} rows have no {' or no '.join(map(repr, names))} and are left out.")
    weights = np.zeros(0)
    if roles.weights:
        weights = weights_of(path, table, roles.weights)
        if num_without := int(np.sum(is_known & (weights == 0))):
            notes.append(f"{counted(num_without, 'row')} of weight 0 {'is' if num_without == 1 else 'are'} left out.")
        is_known &= weights > 0
        weights = weights[is_known]
    targets = (each[0] if len(names) == 1 else np.column_stack(each))[is_known]
    if len(targets) < _LEAST_ROWS:
        raise TableError(
            f"{path}: {len(targets)} of {total} rows have a value of the target {listed(names)}. At least "
            f"{_LEAST_ROWS} are needed."
        )
    groups = times = None
    if roles.groups:
        groups = np.unique(groups_of(path, table, roles.groups, dialect)[is_known], return_inverse=True)[1]
    if roles.time:
        times = times_of(path, table, roles.time)[is_known]
    if roles.are_classes:
        notes.insert(0, class_counts(targets))
    if roles.weights:
        ends = f"{weights.min():g} to {weights.max():g}"
        notes.append(f"The fit and the scores weight rows by {roles.weights!r} ({ends}).")
    return _Rows(is_known, targets, weights, groups, times, tuple(notes))


def _inputs(
    path: Path, table: Table, roles: _Roles, is_known: np.ndarray, is_fitted: np.ndarray, dialect: Dialect
) -> _Inputs:
    """Read the inputs of the known rows: numbers, places of dates in their periods, and categories."""
    pairs, cells, left_out = _categories(path, table, roles, is_known, dialect)
    chosen = [name for name in table.names if name not in roles.others]
    values = match_columns(table, chosen).values[is_known]
    empty = np.asarray(np.isnan(values[is_fitted]).all(axis=0))
    left_out |= {name: "no value in the fitted rows" for name, is_empty in zip(chosen, empty, strict=True) if is_empty}
    chosen = [name for name in chosen if name not in left_out]
    values = values[:, ~empty]
    if not chosen and not pairs:
        found = "; ".join(
            f"{name!r}: {why}" for name, why in list(table.dropped.items())[:6] if name not in roles.targets
        )
        raise TableError(
            f"{path}: expected a numeric column that varies besides the target {listed(roles.targets)}, found "
            f"{found or 'none'}. Text columns can be inputs with --categories NAME."
        )
    days = {name: values[:, chosen.index(name)] for name in table.dates if name in chosen}
    parts = encoding.parts_of_dates(days)
    notes = _notes_on_columns(table, roles.others, pairs, parts, left_out, roles.inputs is None)
    notes += [_about_codes(name, *found) for name, found in codes(chosen, values).items()]
    return _Inputs(
        np.hstack([values, encoding.waves(days, parts, len(values)), encoding.indicators(cells, pairs, len(values))]),
        (*chosen, *encoding.wave_names(parts), *(f"{name}={level}" for name, level in pairs)),
        tuple(pairs),
        tuple(parts),
        tuple(name for name in table.days if name in days),
        tuple(notes),
    )


def _categories(
    path: Path, table: Table, roles: _Roles, is_known: np.ndarray, dialect: Dialect
) -> tuple[list[tuple[str, str]], dict[str, np.ndarray], dict[str, str]]:
    """Choose the categorical inputs: their categories, their cells, and why text columns are left out."""
    wanted, asked = roles.inputs, roles.categories
    pairs, cells, left_out = [], {}, {}
    for name in table.file_columns:
        is_text = name in table.text and name not in roles.others and (wanted is None or name in wanted)
        if name not in asked and not is_text:
            continue
        labels = as_names(table.text[name], dialect)[is_known]
        is_date = name not in asked and table.dropped[name].startswith("dates")
        levels = encoding.asked_levels(path, name, labels) if name in asked else encoding.found_levels(labels)
        if levels and not is_date:
            pairs += [(name, level) for level in levels]
            cells[name] = labels
            continue
        why = "text whose values hardly repeat, like names" if np.ptp(np.unique(labels, return_inverse=True)[1]) else ""
        has_reason = is_date or SEVERAL_UNITS in table.dropped[name]
        left_out[name] = table.dropped[name] if has_reason else why or f"constant, always {str(labels[0])!r}"
        if wanted is not None:
            raise TableError(
                f"{path}: column {name!r} is {left_out[name]}. Text columns can be inputs with --categories NAME."
            )
    return pairs, cells, left_out


def _notes_on_columns(
    table: Table, others: Sequence[str], pairs: Pairs, parts: Pairs, left_out: dict[str, str], is_default: bool
) -> list[str]:
    """Write notes on how the inputs were read and which columns are left out by default; others are no inputs."""
    unsaid = ("Columns left out", *(f"Column {name!r} counts the rows" for name in others))
    notes = [note for note in table.notes if not note.startswith(unsaid) and not isinstance(note, OnMissing)]
    names = dict.fromkeys(name for name, _ in pairs)
    why = {name: reason for name, reason in table.dropped.items() if reason not in ASKED_FOR and name not in names}
    why = {name: reason for name, reason in (why | left_out).items() if name not in others} if is_default else left_out
    if why:
        notes.append(f"Left out: {some_of([f'{name!r} ({reason})' for name, reason in why.items()])}.")
    for sign in sorted({level for _, level in pairs} & {*MISSING}.difference(BLANK)):
        whose = some_of([repr(name) for name, level in pairs if level == sign])
        notes.append(f"{sign!r} is a category of {whose}. If it means a missing cell, use --missing={sign}.")
    if names:
        notes.append(f"Categories: {some_of([_described(name, levels_of(pairs, name)) for name in names])}.")
    if parts:
        found = some_of([f"{name!r} ({part})" for name, part in parts])
        notes.append(f"The place of a date in a period is an input: {found}.")
    return notes


def _about_codes(name: str, kind: str, description: str) -> str:
    advice = {
        "groups": f"; with --groups {name} whole groups are held out, with --drop {name} it is left out",
        "codes": f"; with --categories {name} they are categories, with --drop {name} they are left out",
    }
    return f"Column {name!r} holds integers that look like {description}{advice.get(kind, '')}."


def _described(name: str, levels: Sequence[str]) -> str:
    is_pooled = " with rare ones as (other)" if OTHER in levels else ""
    return f"{name!r} ({len(levels)}{is_pooled})"
