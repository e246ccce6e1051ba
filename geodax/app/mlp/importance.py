r"""Which inputs matter to a network, and how predictions change with them.

**Permutation importance** of an input is the loss of the ensemble's prediction when the input's values are permuted
between rows, minus the loss without the permutation: squared error as a fraction of the targets' variance (the decrease
of R²), or log loss in nats. The columns of a categorical input are permuted together.

**Partial dependence** on an input is the mean prediction over some rows in which the input is set to one value; each
draw of the posterior gives a curve.

Sources:
    Fisher, Rudin and Dominici (2019), All models are wrong, but many are useful: learning a variable's importance by
    studying an entire class of prediction models simultaneously. JMLR 20.
    Friedman (2001), Greedy function approximation: a gradient boosting machine. Annals of Statistics 29.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from geodax.app.mlp.labelled import LabelledTable
from geodax.app.mlp.results import Judged
from geodax.models.missing import NUM_DRAWS
from geodax.predict import held_out
from geodax.predict.held_out import Score

_MOST_ROWS, _MOST_DRAWS, _MOST_REPEATS = 300, 60, 5
_LEAST_ROWS, _LEAST_REPEATS = 60, 2
_MOST_EVALUATIONS = 2_000_000  # of one network at one row, some seconds
_BACKGROUND_ROWS, _LEAST_BACKGROUND, _GRID = 100, 20, 15
_MOST_VALUES = 20_000_000  # kept predictions
_MOST_LEVELS = 16  # of a category, the most frequent ones
_FEW_LEVELS = 8  # a numeric input with so few values is evaluated at all of them
_LEAST_PROBABILITY = 1e-12


class Importance(NamedTuple):
    """Permutation importances.

    Attributes:
        scores: Increase of the loss by input, the largest first; standard errors over rows and permutations.
    """

    scores: Mapping[str, Score]
    num_rows: int
    num_draws: int
    num_repeats: int


class Dependence(NamedTuple):
    """Partial dependence on one input.

    Attributes:
        values: Values of the input, or its categories.
        is_date: Whether the values are days since 1970-01-01.
    """

    name: str
    values: Sequence[Any]
    curves: Float[np.ndarray, "draw values ..."]
    is_date: bool = False


def inputs_of(data: LabelledTable) -> dict[str, list[int]]:
    """Return the columns of each input; a categorical input has one for each category, a date its periods too."""
    found: dict[str, list[int]] = {}
    for i, name in enumerate(data.sources):
        found.setdefault(name, []).append(i)
    return found


def with_some_draws(model: Any, most: int = _MOST_DRAWS) -> Any:
    """Return a copy of a fitted estimator with at most about ``most`` evenly spaced draws."""
    group = model.posterior_["posterior"]
    every = max(1, math.ceil(group.sizes["chain"] * group.sizes["draw"] / most))
    few = copy.copy(model)
    few.posterior_ = model.posterior_.isel(draw=slice(None, None, every))
    return few


def permutation_importance(model: Any, data: LabelledTable, rows: Judged, seed: int = 0) -> Importance:
    """Compute the permutation importance of every input on some of the judged rows."""
    groups, few = inputs_of(data), with_some_draws(model)
    num_draws = math.prod(few.posterior_["posterior"].sizes[axis] for axis in ("chain", "draw"))
    allowed = _MOST_EVALUATIONS / (num_draws * len(groups) * _cost(rows.inputs))
    repeats = int(np.clip(allowed / _MOST_ROWS, _LEAST_REPEATS, _MOST_REPEATS))
    number = min(len(rows.targets), int(np.clip(allowed / repeats, _LEAST_ROWS, _MOST_ROWS)))
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(len(rows.targets))[:number])
    x, y = rows.inputs[chosen], rows.targets[chosen]
    stacked = [x]
    for columns in groups.values():
        for _ in range(repeats):
            changed = x.copy()
            changed[:, columns] = x[generator.permutation(number)][:, columns]
            stacked.append(changed)
    losses = _losses(few, np.concatenate(stacked), np.tile(y, len(stacked))).reshape(len(stacked), number)
    unit = 1.0 if hasattr(model, "classes_") else float(y.var()) or 1.0
    increases = (losses[1:].reshape(len(groups), repeats, number).mean(axis=1) - losses[0]) / unit
    together = np.arange(number) if rows.groups is None else rows.groups[chosen]
    scores = {name: held_out.mean(each).by_group(together) for name, each in zip(groups, increases, strict=True)}
    ordered = sorted(scores.items(), key=lambda item: -item[1].value)
    return Importance(dict(ordered), number, num_draws, repeats)


def _cost(inputs: np.ndarray) -> float:
    """Evaluations of a network for each row: several for rows with missing cells."""
    return float(1 + (NUM_DRAWS - 1) * np.isnan(inputs).any(axis=1).mean())


def _losses(model: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if not hasattr(model, "classes_"):
        return (model.predict(x) - y) ** 2
    p = model.predict_proba(x)[np.arange(len(y)), y]
    return -np.log(np.maximum(p, _LEAST_PROBABILITY))


def partial_dependence(model: Any, data: LabelledTable, names: Sequence[str]) -> list[Dependence]:
    """Compute the partial dependence on each of some inputs, for each of some draws."""
    groups, few, x = inputs_of(data), with_some_draws(model), data.train[0]
    grids = {name: _grid(data, x, groups[name]) for name in names}
    num_draws = math.prod(few.posterior_["posterior"].sizes[axis] for axis in ("chain", "draw"))
    num_values = sum(len(values) for values, _ in grids.values())
    allowed = _MOST_VALUES // (num_draws * num_values * len(getattr(model, "classes_", [0])))
    number = min(len(x), int(np.clip(min(allowed, _BACKGROUND_ROWS / _cost(x)), _LEAST_BACKGROUND, _BACKGROUND_ROWS)))
    background = x[np.random.default_rng(0).permutation(len(x))[:number]]
    stacked = []
    for name, (_, settings) in grids.items():
        for setting in settings:
            changed = background.copy()
            changed[:, groups[name]] = setting
            stacked.append(changed)
    drawn = few.predict_draws(np.concatenate(stacked))
    curves = drawn.reshape(len(drawn), len(stacked), number, *drawn.shape[2:]).mean(axis=2)
    ends = np.cumsum([len(values) for values, _ in grids.values()])
    parts = np.split(curves, ends[:-1], axis=1)
    return [
        Dependence(name, values, part, name in data.days)
        for (name, (values, _)), part in zip(grids.items(), parts, strict=True)
    ]


def _grid(data: LabelledTable, x: np.ndarray, columns: list[int]) -> tuple[Sequence[Any], np.ndarray]:
    """The values of an input at which the prediction is computed, and the settings of its columns."""
    num_plain = len(data.names) - len(data.categories)
    if columns[0] >= num_plain:
        frequent = np.sort(np.argsort(-np.nanmean(x[:, columns], axis=0), kind="stable")[:_MOST_LEVELS])
        return [data.categories[columns[i] - num_plain][1] for i in frequent], np.eye(len(columns))[frequent]
    own = x[~np.isnan(x[:, columns[0]])][:, columns]
    own = own[np.unique(own[:, 0], return_index=True)[1]]  # each value with the periods of that date
    if len(own) > _FEW_LEVELS:
        values = x[~np.isnan(x[:, columns[0]]), columns[0]]
        near = np.searchsorted(own[:, 0], np.quantile(values, np.linspace(0.02, 0.98, _GRID)))
        own = own[np.unique(near if len(np.unique(near)) > 2 else np.linspace(0, len(own) - 1, _GRID).astype(int))]
    return own[:, 0].tolist(), own
