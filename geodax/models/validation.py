"""Validation of data by scikit-learn, with errors that name the columns of a data frame."""

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from geodax import _checks

_NUMBERS = ("int", "uint", "float", "double", "decimal", "bool")  # names of data types begin so


def validated(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Return X, or X and y, in double precision as ``validate_data`` does; missing and masked cells of X are allowed.

    All rows are contiguous, so that tables of all libraries have the same sums. Raises ValueError for dates and times
    in X or in y as numbers, as NumPy would convert them to counts, and missing ones to the smallest count; for a data
    frame with columns of text; and for masked entries of y.
    """
    if np.ma.is_masked(X):  # scikit-learn takes the values under the mask
        X = X.astype(np.float64).filled(np.nan)
    if any(map(np.ma.is_masked, y)):
        raise ValueError(f"{type(estimator).__name__}: y has masked entries. Leave their rows out of X and y.")
    columns = _no_numbers("X", X)
    dates = [*columns.items(), *(_no_numbers("y", *y).items() if options.get("y_numeric") else ())]
    if any(_checks.is_time(dtype) for _, dtype in dates):
        raise _of_columns(estimator, *dict(dates))
    try:
        return validate_data(estimator, X, *y, dtype=np.float64, order="C", ensure_all_finite="allow-nan", **options)
    except (TypeError, ValueError) as error:
        if hasattr(X, "columns") and columns and ("could not convert" in str(error) or "float()" in str(error)):
            raise _of_columns(estimator, *columns) from error
        raise


def _no_numbers(name: str, values: Any) -> dict[str, Any]:
    """Data types by column, or of a whole array, that are not of numbers."""
    return {
        f"{name if column is None else repr(column)} ({dtype})": dtype
        for column, dtype in _checks.data_types(values).items()
        if not (dtype is None or getattr(dtype, "kind", "") in [*"biuf"] or str(dtype).lower().startswith(_NUMBERS))
    }


def _of_columns(estimator: Any, *found: str) -> ValueError:
    some = f"{', '.join(found[:5])}{', ...' if len(found) > 5 else ''}"
    return ValueError(
        f"{type(estimator).__name__}: expected numbers, found {some}. Turn text into columns of zeros and ones "
        "(pandas.get_dummies, sklearn.preprocessing.OneHotEncoder), and dates into days or years since a date; "
        "`geodax fit classifier` and `geodax fit regressor` do both."
    )
