r"""The number of components that predicts held-out cells best.

The rows are divided at random into folds. For each fold and each number of components k, the other rows give a point
estimate of the model, and each observed cell of the fold is predicted from the other cells of its row:

.. math::
    x_j - \hat x_j = \frac{r_j - a_j^T M^{-1} A_o^T r_o}{1 - a_j^T M^{-1} a_j}, \qquad
    r = x - \mu,\quad A = W \Lambda,\quad M = \sigma^2 I + A_o^T A_o,

the residual of the cell given the whole row, divided by one minus its leverage. Complete rows have the estimates of all
k from one eigendecomposition (Tipping and Bishop 1999). Rows with missing cells need the EM algorithm, which starts
from the estimate of k - 1 and is limited to some rows and columns. Where each column has its own noise (factor
analysis) and no cell is missing, loadings and noise are found in turn, also from those of k - 1.

The score is the squared error, not the predictive log density: dividing the columns by their standard deviations gives
them different noise, and the density then rewards components that only describe the noise of single columns.
Bro et al. (2008), Cross-validation of component models: a critical look at current methods, compare such schemes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from geodax.models.principal_axes import num_exact_of, principal_axes

MOST_COMPONENTS = 20
"""Largest number of components that is tried."""

_FOLDS, _FOLDS_ITERATIVE = 10, 5
_MOST_CELLS = 1_000_000
_FEWEST_ROWS, _MOST_ROWS = 500, 20_000
_MOST_ROWS_MISSING, _MOST_COLUMNS_ITERATIVE = 500, 100
_EM_STEPS, _STEPS = 4, 10
_PATIENCE = 3  # numbers of components without an improvement, after which EM stops
_NEARLY = 0.95
_LEAST_VARIANCE = 1e-8
_LEAST_NOISE = 0.005  # of the variance of a column, as factor analysis may leave none


class HeldOutCells(NamedTuple):
    """Predictions of held-out cells with 0, 1, 2, ... components.

    Attributes:
        predicted: Fraction of the squared error of the columns' means that the predictions avoid.
        standard_error: Standard error of the difference to the best of them, over the rows.
        chosen: The smallest number of components that avoids 95 % as much as the best, or whose difference to the best
            is within one standard error.
        is_part: Whether some rows or columns of a large table were left out.
        is_diagonal: Whether the models have a noise for each column.
    """

    predicted: Float[np.ndarray, " numbers"]
    standard_error: Float[np.ndarray, " numbers"]
    chosen: int
    is_part: bool
    is_diagonal: bool = False

    @property
    def best(self) -> int:
        """The number of components with the best predictions."""
        return int(np.argmax(self.predicted))

    @property
    def most(self) -> int:
        """The largest number of components that was tried."""
        return len(self.predicted) - 1


def is_quick(data: Float[np.ndarray, "rows n"]) -> bool:
    """Whether :func:`held_out_cells` takes about a second or less."""
    return data.size <= 20_000 or not np.isnan(data).any()


def held_out_cells(data: Float[np.ndarray, "rows n"], *, is_diagonal: bool = False) -> HeldOutCells | None:
    """Predict each cell from the other cells of its row, with models of 0, 1, 2, ... components for the other rows.

    The data are standardised, NaN where a cell is missing. With ``is_diagonal`` each column has its own noise, unless
    cells are missing. The folds are the same in every call. Returns None if there are too few rows or columns for one
    component.
    """
    generator = np.random.default_rng(0)
    part = _part(data, generator, is_diagonal)
    has_missing = bool(np.isnan(part).any())
    is_diagonal = is_diagonal and not has_missing
    is_iterative = has_missing or is_diagonal
    rows = len(part)
    num_folds = min(_FOLDS_ITERATIVE if is_iterative else _FOLDS, rows)
    fold = generator.permutation(np.arange(rows) % num_folds)
    most = min(num_exact_of(part) - 1, rows - -(-rows // num_folds) - 2, MOST_COMPONENTS)
    if most < 1:
        return None
    folds = [(part[fold == i], _fits(part[fold != i], most, has_missing, is_diagonal)) for i in range(num_folds)]
    num_cells = int((~np.isnan(part)).sum())
    errors: list[np.ndarray] = []
    for k in range(most + 1):
        errors.append(np.concatenate([_squared_errors(next(fits), test) for test, fits in folds]))
        best = int(np.argmin([error.sum() for error in errors]))
        if is_iterative and k - best >= _PATIENCE:
            break
    total = np.array([error.sum() for error in errors])
    spread = np.array([np.std(error - errors[best], ddof=1) * np.sqrt(rows) for error in errors])
    is_enough = total - total[best] <= np.maximum(spread, (1 - _NEARLY) * (total[0] - total[best]))
    base = max(total[0], _LEAST_VARIANCE * num_cells)
    chosen = int(np.argmax(is_enough))
    return HeldOutCells(1 - total / base, spread / base, chosen, part.size < data.size, is_diagonal)


class _Fit(NamedTuple):
    """A point estimate: mean, orthonormal axes (n x k), variances along them without the noise (k), noise variance.

    With a noise for each column the axes are the loadings, and variances along them 1.
    """

    mean: Float[np.ndarray, " n"]
    axes: Float[np.ndarray, "n k"]
    variance: Float[np.ndarray, " k"]
    noise_variance: float | Float[np.ndarray, " n"]


def _part(
    data: Float[np.ndarray, "rows n"], generator: np.random.Generator, is_diagonal: bool
) -> Float[np.ndarray, "rows n"]:
    """Rows and columns in random order, as many as the time allows."""
    rows, n = data.shape
    has_missing = bool(np.isnan(data).any())
    most_rows = _MOST_ROWS_MISSING if has_missing else min(max(_MOST_CELLS // n, _FEWEST_ROWS), _MOST_ROWS)
    most_columns = _MOST_COLUMNS_ITERATIVE if has_missing or is_diagonal else n
    chosen = np.sort(generator.permutation(rows)[:most_rows]), np.sort(generator.permutation(n)[:most_columns])
    part = data[np.ix_(*chosen)]
    return part[~np.isnan(part).all(axis=1)]


def _fits(
    train: Float[np.ndarray, "rows n"], most: int, has_missing: bool, is_diagonal: bool = False
) -> Iterator[_Fit]:
    if has_missing:
        return _fits_by_em(train, most)
    if is_diagonal:
        return _factor_analyses(train, most)
    mean = train.mean(axis=0)
    axes, squares = principal_axes(train - mean)
    return (_fit_of(mean, axes, squares, k, *train.shape) for k in range(most + 1))


def _fit_of(mean: np.ndarray, axes: np.ndarray, squares: np.ndarray, k: int, rows: int, n: int) -> _Fit:
    """The estimate of maximum likelihood from the eigenvalues of a scatter matrix, with unbiased variances."""
    noise_variance = max(float(squares[k:].sum()) / ((rows - 1 - k) * (n - k)), _LEAST_VARIANCE)
    return _Fit(mean, axes[:, :k], np.maximum(squares[:k] / (rows - 1) - noise_variance, 0.0), noise_variance)


def _factor_analyses(train: Float[np.ndarray, "rows n"], most: int) -> Iterator[_Fit]:
    """Fit from the covariance, so that the cost of a step does not depend on the rows, as scikit-learn's does."""
    mean = train.mean(axis=0)
    covariance = (train - mean).T @ (train - mean) / (len(train) - 1)
    noise = variance = np.maximum(np.diagonal(covariance), _LEAST_VARIANCE)
    for k in range(most + 1):
        loadings = np.zeros((len(mean), 0))
        for _ in range(_STEPS if k else 0):  # each maximises the likelihood given the noise
            root = np.sqrt(noise)[:, None]
            values, axes = np.linalg.eigh(covariance / (root * root.T))
            loadings = root * axes[:, -k:] * np.sqrt(np.maximum(values[-k:] - 1, 0.0))
            noise = np.maximum(variance - (loadings**2).sum(axis=1), _LEAST_NOISE * variance)
        yield _Fit(mean, loadings, np.ones(k), noise)


def _fits_by_em(train: Float[np.ndarray, "rows n"], most: int) -> Iterator[_Fit]:
    is_observed = ~np.isnan(train)
    counts = np.maximum(is_observed.sum(axis=0), 1)
    mean = np.where(is_observed, train, 0.0).sum(axis=0) / counts
    noise_variance = float(np.where(is_observed, (train - mean) ** 2, 0.0).sum() / is_observed.sum())
    fit = _Fit(mean, np.zeros((len(mean), 0)), np.zeros(0), max(noise_variance, _LEAST_VARIANCE))
    for k in range(most + 1):
        for _ in range(_EM_STEPS if k else 1):
            fit = _em_step(fit, train, is_observed, k)
        yield fit


def _em_step(fit: _Fit, train: Float[np.ndarray, "rows n"], is_observed: Bool[np.ndarray, "rows n"], k: int) -> _Fit:
    """Fill the missing cells with their moments given the others, and fit k components to the moments."""
    residual = np.where(is_observed, train - fit.mean, 0.0)
    loadings, inverse = _latent_precision(fit, is_observed)
    scores = ((residual @ loadings)[:, None, :] @ inverse)[:, 0]
    filled = np.where(is_observed, residual, scores @ loadings.T)
    shift = filled.mean(axis=0)
    scatter = (filled - shift).T @ (filled - shift)
    holes = np.flatnonzero(~is_observed.all(axis=1))
    root = np.linalg.cholesky(inverse[holes]) * np.sqrt(fit.noise_variance)
    missing = (~is_observed[holes, :, None] * (loadings @ root)).transpose(1, 0, 2).reshape(len(shift), -1)
    scatter += missing @ missing.T
    scatter[np.diag_indices_from(scatter)] += fit.noise_variance * (~is_observed).sum(axis=0)
    squares, axes = np.linalg.eigh(scatter)
    return _fit_of(fit.mean + shift, axes[:, ::-1], np.maximum(squares[::-1], 0.0), k, *train.shape)


def _latent_precision(
    fit: _Fit, is_observed: Bool[np.ndarray, "rows n"]
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "rows k k"]]:
    """The scaled loadings A, and the inverse of M for each row."""
    loadings = fit.axes * np.sqrt(fit.variance)
    n, k = loadings.shape
    products = (loadings[:, :, None] * loadings[:, None, :]).reshape(n, k * k)
    gram = (is_observed.astype(float) @ products).reshape(len(is_observed), k, k)
    return loadings, np.linalg.inv(gram + fit.noise_variance * np.eye(k))


def _squared_errors(fit: _Fit, rows: Float[np.ndarray, "rows n"]) -> Float[np.ndarray, " rows"]:
    """Sums over each row of the squared errors of its cells, each predicted from the others."""
    is_observed = ~np.isnan(rows)
    residual = np.where(is_observed, rows - fit.mean, 0.0)
    if isinstance(fit.noise_variance, np.ndarray):
        weighted = fit.axes / fit.noise_variance[:, None]
        inner = np.linalg.inv(np.eye(fit.axes.shape[1]) + fit.axes.T @ weighted)
        smooth = fit.axes @ inner @ weighted.T
        return (((residual - residual @ smooth.T) / (1 - np.diagonal(smooth))) ** 2).sum(axis=1)
    if is_observed.all():
        shrinkage = fit.variance / (fit.variance + fit.noise_variance)
        smooth = (residual @ fit.axes * shrinkage) @ fit.axes.T
        leverage = (fit.axes**2 @ shrinkage)[None]
    else:
        loadings, inverse = _latent_precision(fit, is_observed)
        smooth = (residual @ loadings)[:, None, :] @ inverse @ loadings.T
        smooth, leverage = smooth[:, 0], ((loadings @ inverse) * loadings).sum(axis=-1)
    error = (residual - smooth) / np.maximum(1 - leverage, _LEAST_VARIANCE)
    return np.where(is_observed, error**2, 0.0).sum(axis=1)


def number_of(held_out: HeldOutCells | None) -> int:
    """The chosen number of components, at least one; one if there is no comparison."""
    return 1 if held_out is None else max(1, held_out.chosen)
