"""Scores of held-out ratings: of the factorization, of least squares with the same rank, and of the mean alone."""

import numpy as np
from scipy import stats

from geodax.app.factorization.files import RatingTable
from geodax.app.report.scored import Scores
from geodax.models.factorization.estimator import LowRankFactorization
from geodax.models.factorization.least_squares import PENALTIES, cross_validated
from geodax.models.factorization.predictive import as_pairs, places
from geodax.predict import held_out

MODEL, LEAST_SQUARES, MEAN = "factorization", "least squares", "mean alone"

ABOUT = (
    f"`{LEAST_SQUARES}` has the rank and the offsets of the model and is fitted to the same ratings by alternating "
    f"ridge regressions. Its penalty is the best of {len(PENALTIES)} in ten-fold cross-validation on them (one "
    "fold of 10,000 ratings or more), whose error is the standard deviation of its predictions. RMSE is the root mean "
    "squared error, MAE the mean absolute error, ± one standard error."
)
"""Explanation of the scores."""


def rating_scores(model: LowRankFactorization, data: RatingTable) -> Scores:
    """Score the predictions of the held-out ratings, if any, by the model and by simpler ones."""
    pairs, y = data.pairs[data.is_test], data.ratings[data.is_test]
    if not len(y):
        return {}
    parts = model.predict_parts(pairs, y)
    observed = data.ratings[~data.is_test]
    form, (users, items, standardised) = model.prepare(data.pairs[~data.is_test], observed)
    fit = cross_validated(users, items, standardised.astype(np.float64), form)
    plain = model.center_ + model.spread_ * fit.predict(*places(as_pairs(pairs), model.users_, model.items_))
    means = {MODEL: parts.mean, LEAST_SQUARES: plain, MEAN: np.full(len(y), observed.mean())}
    spreads = {LEAST_SQUARES: model.spread_ * fit.error, MEAN: observed.std()}
    densities = {name: stats.norm.logpdf(y, means[name], spread) for name, spread in spreads.items()}
    return {
        "RMSE": {name: held_out.root_mean_squared_error(mean, y) for name, mean in means.items()},
        "MAE": {name: held_out.mean_absolute_error(mean, y) for name, mean in means.items()},
        "mean log density": {
            name: held_out.mean(values) for name, values in ({MODEL: parts.log_density} | densities).items()
        },
    }
