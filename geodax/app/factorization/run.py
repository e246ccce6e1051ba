"""Low-rank factorization of ratings as a model of ``geodax fit``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.app.factorization.draws import identified_draws
from geodax.app.factorization.files import RatingTable, read_new_pairs, read_ratings
from geodax.app.factorization.scores import rating_scores
from geodax.app.family import AbstractRunKind, RunFacts, statistics
from geodax.app.report import scored
from geodax.app.run_folder.files import write_rows
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.data.errors import TableError, counted
from geodax.diagnostics.findings import Finding, check
from geodax.models.factorization.estimator import LowRankFactorization
from geodax.predict.numbers import NumberPredictions

_HEADING = ("sd", "5%", "95%")
_MOST_MISSING = 2_000_000
_AT_ONCE = 50_000
"""Pairs predicted at a time."""
_FEW = 5_000
_EXACT = "`--sampler nuts --num-warmup 500 --num-samples 500 --thinning 1`"


class FactorizationRun(AbstractRunKind):
    """``geodax fit factorization``."""

    name = "factorization"
    headline = ("noise", "scales")
    data_type = RatingTable
    estimator_type = LowRankFactorization

    def read(
        self, file: Path, options: Any, columns: tuple[str, ...] | None, dialect: Dialect = FOUND, seed: int = 0
    ) -> tuple[RatingTable, dict[str, Any]]:
        data = read_ratings(file, options, seed=seed, dialect=dialect)
        self.unfitted(options).prepare(*self.arrays(data))
        return data, {"columns": list(data.columns), "notes": list(data.notes)}

    def describe(self, data: RatingTable) -> str:
        return f"{len(data.ratings)} ratings, {int(data.is_test.sum())} of them held out"

    def arrays(self, data: RatingTable) -> tuple[np.ndarray, ...]:
        return data.pairs[~data.is_test], data.ratings[~data.is_test]

    def summarized(self, data: RatingTable, model: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Noise, singular values and expected ratings: columns of the factors are known up to their signs only."""
        return identified_draws(model, data), statistics(model)

    def diagnose(self, config: Mapping[str, Any], data: RatingTable, model: Any) -> list[Finding]:
        found = check(*self.summarized(data, model))
        if model.sampler == "nuts" or len(data.ratings) > _FEW:
            return found
        exact = f"Chains of {_EXACT} mix far better, and take longer; so few ratings allow it."
        return [f if f.severity == "note" else f._replace(advice=exact) for f in found]

    def results(self, data: RatingTable, model: Any) -> tuple[str, ...]:
        found = rating_scores(model, data)
        return scored.lines(f"{int(data.is_test.sum()):,} held-out ratings", found) if found else ()

    def report(self, config: Mapping[str, Any], data: RatingTable, model: Any, command: str, path: Path) -> None:
        from geodax.app.factorization.report import write_factorization  # loads Matplotlib

        write_factorization(model, data, RunFacts(self.diagnose(config, data, model), config, command), path)

    def predict_missing(self, data: RatingTable, model: Any, path: Path) -> tuple[str, ...]:
        """Write means, standard deviations and intervals of the ratings of all pairs that were not in the fit."""
        fitted, _ = self.arrays(data)
        is_missing = np.ones((len(model.users_), len(model.items_)), bool)
        is_missing[
            tuple(np.searchsorted(known, fitted[:, k]) for k, known in enumerate((model.users_, model.items_)))
        ] = 0
        places = np.argwhere(is_missing)
        if not 0 < len(places) <= _MOST_MISSING:
            raise TableError(
                f"{len(places):,} pairs of a user and an item have no rating in the fit, expected 1 to "
                f"{_MOST_MISSING:,}. Name the pairs to predict in a file: geodax predict RUN FILE."
            )

        def rows() -> Iterator[tuple[Any, ...]]:
            for part in np.array_split(places, -(-len(places) // _AT_ONCE)):
                pairs = np.stack([model.users_[part[:, 0]], model.items_[part[:, 1]]], axis=1)
                cells = np.transpose(_cells(model, pairs, model.predict_parts(pairs)))
                yield from ((*pair, *values) for pair, values in zip(pairs, cells, strict=True))

        write_rows(path, [*data.columns, *_HEADING], rows())
        return (f"{len(places)} pairs had no rating in the fit.",)

    def predict(
        self, data: RatingTable, model: Any, file: Path, path: Path, dialect: Dialect = FOUND
    ) -> tuple[str, ...]:
        """Write means, standard deviations and intervals of ratings, and densities where the ratings are known."""
        pairs, ratings, notes = read_new_pairs(file, data, dialect)
        is_whole = (pairs != "").all(axis=1)
        cells, is_known = np.full((5, len(pairs)), np.nan), np.zeros((len(pairs), 2), bool)
        if is_whole.any():
            targets = None if ratings is None else np.nan_to_num(ratings[is_whole])
            parts = model.predict_parts(pairs[is_whole], targets)
            cells[:4, is_whole] = _cells(model, pairs[is_whole], parts)
            if ratings is not None:
                cells[4, is_whole] = np.where(np.isfinite(ratings[is_whole]), parts.log_density, np.nan)
            is_known[is_whole] = model.is_known(pairs[is_whole])
        heading = [*data.columns, *_HEADING, "known"]
        if ratings is not None:
            heading += ["observed", "log_predictive_density"]
        words = np.array(["neither", "item", "user", "both"])[2 * is_known[:, 0] + is_known[:, 1]]
        words = np.where(is_whole, words, "")
        scores = [] if ratings is None else [ratings, cells[4]]
        write_rows(path, heading, zip(*pairs.T, *cells[:4], words, *scores, strict=True))
        for side, known in zip(data.columns[:2], is_known.T, strict=True):
            new = len(set(pairs[is_whole & ~known, list(data.columns).index(side)].tolist()))
            if new:
                said = "was not in the fit: its" if new == 1 else "were not in the fit: their"
                notes += (f"{counted(new, 'value')} of {side!r} {said} rows are predicted from the prior.",)
        return notes


def _cells(model: Any, pairs: np.ndarray, parts: NumberPredictions) -> list[np.ndarray]:
    """Means, standard deviations and 5 % and 95 % quantiles of new ratings."""
    return [parts.mean, np.sqrt(parts.variance), *model.predict_quantiles(pairs)]
