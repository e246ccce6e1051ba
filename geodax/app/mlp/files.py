"""Reads rows with inputs and a target from a user's file."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.mlp import inputs as encoding
from geodax.app.mlp.inputs import OTHER, Pairs, levels_of
from geodax.app.mlp.targets import class_counts, classes, numbers
from geodax.app.run_folder.files import kept_arrays, save_arrays
from geodax.app.tables.assembly import OnMissing, missing_counts, some_of
from geodax.app.tables.chosen_rows import about_copies, about_held_out, choose_held_out, groups_of, times_of, weights_of
from geodax.app.tables.codes import codes
from geodax.app.tables.columns import SEVERAL_UNITS
from geodax.app.tables.dialect import BLANK, FOUND, MISSING, Dialect
from geodax.app.tables.names import as_names, no_column
from geodax.app.tables.read import ASKED_FOR, Table, match_columns, read_table
from geodax.data.errors import TableError, counted, listed
from geodax.models.mlp.weights import whole_groups

_LEAST_ROWS = 4
_TEXTS = ("names", "notes")


@dataclasses.dataclass(frozen=True)
class LabelledTable:
    """Rows of a table whose target is known.

    Attributes:
        inputs: Rows x columns, NaN where a cell is missing: numbers, then a sine and a cosine for each entry of
            ``dates``, then one 0/1 column for each entry of ``categories``.
        targets: Numbers, or names of classes; of several targets rows x targets.
        names: Names of the columns of ``inputs``.
        categories: Columns of the file and their categories.
        dates: Columns of dates and the periods in which their place is an input.
        days: Columns of dates.
        is_as_written: Whether classes and categories are named by :func:`geodax.app.tables.names.as_names`; in runs of
            earlier versions numeric classes are named by their values.
        target: Name of the target; of several, their names with commas.
        is_test: Which rows are held out.
        weights: Weights of the rows; empty if all are 1.
        several: Names of the targets if there are several.
        groups: Group of each row, from 0, if groups are held out together; else empty.
        calibrates: Whether each fitted row calibrates conformal predictions, of a series in time; else empty.
        notes: Decisions made while reading the data.
    """

    inputs: np.ndarray
    targets: np.ndarray
    names: tuple[str, ...]
    target: str
    is_test: np.ndarray
    notes: tuple[str, ...]
    categories: tuple[tuple[str, str], ...] = ()
    dates: tuple[tuple[str, str], ...] = ()
    is_as_written: bool = True
    days: tuple[str, ...] = ()
    weights: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    several: tuple[str, ...] = ()
    groups: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    calibrates: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets."""
        return self.several or (self.target,)

    def for_target(self, number: int) -> "LabelledTable":
        """Return the table with one of several targets."""
        return dataclasses.replace(self, targets=self.targets[:, number], target=self.several[number], several=())

    @property
    def train_weights(self) -> np.ndarray | None:
        """Weights of the fitted rows, or None."""
        return self.weights[~self.is_test] if len(self.weights) else None

    @property
    def train_groups(self) -> np.ndarray | None:
        """Groups of the fitted rows, or None."""
        return self.groups[~self.is_test] if len(self.groups) else None

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the fitted rows."""
        return self.inputs[~self.is_test], self.targets[~self.is_test]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the held-out rows."""
        return self.inputs[self.is_test], self.targets[self.is_test]

    @property
    def numbers(self) -> list[str]:
        """The file's numeric columns."""
        return list(self.names[: len(self.names) - len(self.categories) - 2 * len(self.dates)])

    @property
    def sources(self) -> list[str]:
        """The file's column of each input."""
        return [*self.numbers, *(name for name, _ in self.dates for _ in "sc"), *(name for name, _ in self.categories)]

    def missing(self, inputs: np.ndarray) -> dict[str, int]:
        """Count the missing cells of rows by column of the file, without those that have none."""
        return missing_counts(self.sources, inputs)


def read_labelled(
    path: Path,
    target: str | Sequence[str],
    columns: tuple[str, ...] | None,
    *,
    categories: tuple[str, ...] = (),
    drop: tuple[str, ...] = (),
    weights: str = "",
    groups: str = "",
    time: str = "",
    are_classes: bool,
    test_fraction: float,
    calibration_fraction: float = 0.0,
    seed: int = 0,
    dialect: Dialect = FOUND,
) -> LabelledTable:
    """Read the rows of a file that have all targets: their inputs, targets and weights, and which are held out.

    Several targets are numbers. Without ``columns`` all other columns that vary are inputs, except text that looks like
    names; those in ``categories`` are, even if they look like numbers or names. Rows with equal ``groups`` are held out
    together, with ``time`` the latest, else the seed chooses them. Raises TableError if columns cannot be found or have
    the wrong contents.
    """
    wished = tuple(dict.fromkeys([target] if isinstance(target, str) else target))
    others = (*wished, *filter(None, (weights, groups)))  # no inputs
    of_rows = {"--weights": weights, "--groups": groups, "--time": "" if time in drop else time}
    _check_options(path, wished, categories, drop, of_rows, test_fraction)
    if time and groups:
        raise TableError(f"{path}: --time and --groups hold out different rows. Use one of them.")
    categories = tuple(dict.fromkeys(categories))
    wanted = None if columns is None else tuple(n for n in columns if n not in (*others, *categories, *drop))
    if wanted == () and not categories:
        what = "the target" if len(wished) == 1 else "targets"
        raise TableError(f"{path}: --columns includes only {what}. Add columns to predict it from.")

    def as_text(there: Sequence[str]) -> list[str]:
        named = (*(wished if are_classes else ()), *filter(None, [groups]))
        return [*categories, *(name for name in named if name in there)]

    def needed(there: Sequence[str]) -> list[str]:
        named = there if wanted is None else (*wanted, *others, *filter(None, [time]))
        return [name for name in named if name not in drop or name == time]

    advice = {"others": "use --categories NAME or --drop NAME", "leave_out": "use --drop", "may_be_text": True}
    table = read_table(path, columns=wanted, text=as_text, needed=needed, **advice, **dialect.options())
    for name in (*others, *drop, *filter(None, [time])):
        if name not in table.file_columns:
            option = {
                weights: "--weights",
                groups: "--groups",
                time: "--time",
                **dict.fromkeys(wished, "--target"),
            }.get(name, "--drop")
            raise no_column(path, name, table.file_columns, f"Use {option} with one of")
    total = len(table.values)
    if total < _LEAST_ROWS:
        raise TableError(f"{path} has {counted(total, 'row')}. A fit needs at least {_LEAST_ROWS}.")
    each = [classes(path, table, name, dialect) if are_classes else numbers(path, table, name) for name in wished]
    targets = each[0] if len(wished) == 1 else np.column_stack(each)
    is_known = np.all([values != "" if are_classes else ~np.isnan(values) for values in each], axis=0)
    num_unknown, weight = int(np.sum(~is_known)), np.zeros(0)
    if weights:
        weight = weights_of(path, table, weights)
        is_known &= weight > 0
        weight = weight[is_known]
    targets = targets[is_known]
    if len(targets) < _LEAST_ROWS:
        raise TableError(
            f"{path}: {len(targets)} of {total} rows have a value of the target {listed(wished)}. At least "
            f"{_LEAST_ROWS} are needed."
        )
    group = np.unique(groups_of(path, table, groups, dialect)[is_known], return_inverse=True)[1] if groups else None
    moments = times_of(path, table, time)[is_known] if time else None
    together = group if moments is None else moments
    is_test = choose_held_out(targets, together, are_classes, test_fraction, seed, are_times=bool(time))
    calibrates = np.zeros(0, bool)
    if moments is not None and calibration_fraction > 0:
        number = round(min(calibration_fraction, 1) * np.sum(~is_test))
        calibrates = whole_groups(moments[~is_test], max(number, 1))
    others = (*others, *drop)
    pairs, cells, left_out = _categories(path, table, wanted, others, categories, is_known, dialect)
    chosen = [name for name in table.names if name not in others]
    inputs = match_columns(table, chosen).values[is_known]
    empty = np.asarray(np.isnan(inputs[~is_test]).all(axis=0))
    left_out |= {name: "no value in the fitted rows" for name, is_empty in zip(chosen, empty, strict=True) if is_empty}
    chosen = [name for name in chosen if name not in left_out]
    inputs = inputs[:, ~empty]
    if not chosen and not pairs:
        found = "; ".join(f"{name!r}: {why}" for name, why in list(table.dropped.items())[:6] if name not in wished)
        raise TableError(
            f"{path}: expected a numeric column that varies besides the target {listed(wished)}, found "
            f"{found or 'none'}. Text columns can be inputs with --categories NAME."
        )
    days = {name: inputs[:, chosen.index(name)] for name in table.dates if name in chosen}
    parts = encoding.parts_of_dates(days)
    count = len(inputs)
    inputs = np.hstack([inputs, encoding.waves(days, parts, count), encoding.indicators(cells, pairs, count)])
    notes = _notes_on_columns(table, others, pairs, parts, left_out, wanted is None)
    notes += [_about_codes(name, *found) for name, found in codes(chosen, inputs[:, : len(chosen)]).items()]
    if are_classes:
        notes.append(class_counts(targets))
    if num_unknown:
        notes.append(f"{num_unknown:,} of {total:,} rows have no {' or no '.join(map(repr, wished))} and are left out.")
    if weights:
        if num_without := total - num_unknown - count:
            notes.append(f"{counted(num_without, 'row')} of weight 0 {'is' if num_without == 1 else 'are'} left out.")
        ends = f"{weight.min():g} to {weight.max():g}"
        notes.append(f"The fit and the scores weight rows by {weights!r} ({ends}).")
    names = (*chosen, *encoding.wave_names(parts), *(f"{name}={level}" for name, level in pairs))
    dated = tuple(name for name in table.days if name in days)
    notes += about_held_out(is_test, group, groups, time, dated)
    notes += about_copies(inputs, targets, is_test)
    return LabelledTable(
        *(inputs, targets, names, ", ".join(wished), is_test, tuple(notes), tuple(pairs), tuple(parts)),
        days=dated,
        weights=weight,
        several=wished if len(wished) > 1 else (),
        groups=np.zeros(0, int) if group is None else group,
        calibrates=calibrates,
    )


def save_labelled(path: Path, data: LabelledTable) -> None:
    """Keep the rows as plain arrays."""
    save_arrays(path, **dataclasses.asdict(data))


def load_labelled(path: Path) -> LabelledTable:
    """Read what :func:`save_labelled` kept; StorageError if it is damaged."""
    with kept_arrays(path) as file:
        later = [name for name in ("days", "several") if name in file]  # an earlier version has none
        texts: dict[str, Any] = {name: tuple(map(str, file[name].tolist())) for name in (*_TEXTS, *later)}
        arrays = {name: file[name] for name in ("inputs", "targets", "is_test")}
        pairs: dict[str, Any] = {
            name: tuple((str(a), str(b)) for a, b in (file[name].tolist() if name in file else []))
            for name in ("categories", "dates")  # an earlier version has none
        }
        return LabelledTable(
            **arrays,
            **texts,
            **pairs,
            target=str(file["target"]),
            is_as_written="is_as_written" in file and bool(file["is_as_written"]),
            weights=file["weights"] if "weights" in file else np.zeros(0),
            groups=file["groups"] if "calibrates" in file else np.zeros(0, int),  # earlier fits knew none
            calibrates=file["calibrates"] if "calibrates" in file else np.zeros(0, bool),
        )


def _check_options(
    path: Path,
    targets: Sequence[str],
    categories: Sequence[str],
    drop: Sequence[str],
    of_rows: Mapping[str, str],
    test_fraction: float,
) -> None:
    if not any(targets):
        raise TableError(f"{path}: expected the column to predict. Use --target NAME.")
    if not 0 <= test_fraction < 1:
        raise TableError(f"--test-fraction must be at least 0 and below 1, found {test_fraction}.")
    for option, names in (("--categories", categories), ("--drop", drop)):
        if both := [name for name in targets if name in names]:
            raise TableError(f"{path}: {option} includes the target {both[0]!r}, which cannot be an input.")
    for option, name in of_rows.items():
        if name and (name in (*targets, *categories, *drop) or list(of_rows.values()).count(name) > 1):
            raise TableError(
                f"{path}: {option} {name!r} is also the target, or in another of {', '.join(of_rows)}, --categories "
                "and --drop."
            )
    both = [name for name in drop if name in categories]
    if both:
        raise TableError(f"{path}: --categories and --drop both include {both[0]!r}. Remove it from one of them.")


def _categories(
    path: Path,
    table: Table,
    wanted: Sequence[str] | None,
    others: Sequence[str],
    asked: Sequence[str],
    is_known: np.ndarray,
    dialect: Dialect,
) -> tuple[list[tuple[str, str]], dict[str, np.ndarray], dict[str, str]]:
    """Choose the categorical inputs: their categories, their cells, and why text columns are left out."""
    pairs, cells, left_out = [], {}, {}
    for name in table.file_columns:
        is_text = name in table.text and name not in others and (wanted is None or name in wanted)
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
