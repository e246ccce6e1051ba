"""Scores of held-out counts of contacts: of the network model, and of two forecasts without states beside it."""

import numpy as np
from scipy import stats

from geodax.app.network.contacts import ContactWindows
from geodax.app.report.scored import Scores
from geodax.models.network.estimator import NetworkHMM
from geodax.predict import held_out

MODEL, PAIR, PRODUCT = "network model", "pair frequency", "pair-window product"
_LEAST_DISPERSION = 1e-6

ABOUT = (
    f"The contacts of the other pairs in the same window are known to the network model and to `{PRODUCT}`. "
    f"`{PAIR}` uses the other windows of the pair: the fraction with contacts, and their mean number. `{PRODUCT}` has "
    "the rate of the pair times the activity of the window. Both are shrunken by one average window. Their counts "
    "are negative binomial with one dispersion, estimated by moments. AUC and log score (contact) are of contacts or "
    "none, log score (count) is the mean log probability of the number, RMSE its root mean squared error. ± is one "
    "standard error, if counts of one window err independently."
)
"""Explanation of the scores."""


def contact_scores(data: ContactWindows, model: NetworkHMM) -> Scores:
    """Score the predictions of the held-out counts, if any, by the model and by simpler forecasts."""
    if data.is_test is None:
        return {}
    rows, columns = np.triu_indices(len(data.names), 0 if model.diagonal else 1)
    fitted, is_test = data.fitted[:, rows, columns], data.is_test[:, rows, columns]
    y = data.counts[:, rows, columns][is_test]
    asked = np.where(data.is_test, data.counts, np.nan)
    none = model.log_predictive(np.where(data.is_test, 0.0, np.nan), data.fitted)
    expected = model.expected_counts(data.fitted)[:, rows, columns][is_test]
    forecasts = {MODEL: (none, model.log_predictive(asked, data.fitted), expected)}

    met, of_pair = (_of_pairs(np.where(np.isnan(fitted), np.nan, x)) for x in (fitted > 0, fitted))
    forecasts[PAIR] = (
        np.log1p(-np.broadcast_to(met, fitted.shape)[is_test]),
        *_forecast(np.broadcast_to(of_pair, fitted.shape), fitted, is_test, y)[1:],
    )
    average = of_pair.mean()
    sums = np.where(np.isnan(fitted), 0.0, of_pair).sum(axis=1)
    activity = (np.nansum(fitted, axis=1) + average) / (sums + average)
    forecasts[PRODUCT] = _forecast(of_pair * activity[:, None], fitted, is_test, y)

    def of_contact(none: np.ndarray, logs: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):  # a tiny probability is lost in that of none, which rounds to 1
            some = np.maximum(np.log(-np.expm1(none)), logs)
        return np.where(y > 0, some, none)

    scores = {
        "log score (contact)": {name: held_out.mean(of_contact(*logs)) for name, (*logs, _) in forecasts.items()},
        "log score (count)": {name: held_out.mean(logs) for name, (_, logs, _) in forecasts.items()},
        "RMSE": {name: held_out.root_mean_squared_error(means, y) for name, (*_, means) in forecasts.items()},
    }
    if 0 < (y > 0).sum() < len(y):
        scores = {"AUC": {name: held_out.roc_area(-none, y > 0) for name, (none, *_) in forecasts.items()}} | scores
    return scores


def _of_pairs(values: np.ndarray) -> np.ndarray:
    """The mean of each pair over windows and one window of average pairs."""
    return (np.nansum(values, axis=0) + np.nanmean(values)) / ((~np.isnan(values)).sum(axis=0) + 1)


def _forecast(
    means: np.ndarray, fitted: np.ndarray, is_test: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log probabilities of no contacts and of the counts y, and means of negative binomial forecasts."""
    is_fitted = ~np.isnan(fitted)
    known, mean = fitted[is_fitted], means[is_fitted]
    # the variance is mean + dispersion * mean^2
    dispersion = max(((known - mean) ** 2 - mean).sum() / (mean**2).sum(), _LEAST_DISPERSION)
    at = means[is_test]
    parameters = (1 / dispersion, 1 / (1 + dispersion * at))
    return stats.nbinom.logpmf(0, *parameters), stats.nbinom.logpmf(y, *parameters), at
