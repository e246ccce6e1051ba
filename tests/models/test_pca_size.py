"""What the report and the predictions of Bayesian PCA ask for where rows or columns are many."""

import tracemalloc

import numpy as np
import pytest

from geodax.app.pca import diagnose, quantities
from geodax.app.pca.quantities import PooledDraws
from geodax.diagnostics import subspaces
from geodax.diagnostics.alignment import align_signs, invariant_draws, mean_subspace, principal_angles
from geodax.models import BayesianPCA
from geodax.models.pca import estimator as pca


def _draws(num_draws: int, n: int, p: int, seed: int = 0) -> PooledDraws:
    """Around one set of components, each of its own width, all away from zero."""
    generator = np.random.default_rng(seed)
    center = np.linalg.qr(generator.standard_normal((n, p)))[0] + 0.2 / np.sqrt(n)
    components = np.linalg.qr(center + 0.3 / np.sqrt(n) * generator.standard_normal((num_draws, n, p)))[0]
    scale = np.sort(1 + generator.random((num_draws, p)))[:, ::-1]
    return PooledDraws(
        components, scale, 0.5 + 0.1 * generator.random(num_draws), generator.normal(0.3, 1, (num_draws, n))
    )


def _peak_bytes(function) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_complex", [False, True])
def test_eigenvectors_without_the_average_projector_are_its_eigenvectors(monkeypatch, is_complex):
    x = _draws(60, 40, 2).components
    if is_complex:
        x = np.linalg.qr(x + 0.3j * _draws(60, 40, 2, seed=1).components)[0]
    expected = subspaces.leading_eigenvectors(x, 4)
    monkeypatch.setattr(subspaces, "_FEW_ROWS", 10)
    monkeypatch.setattr(subspaces, "_FEW_COLUMNS", 0)
    monkeypatch.setattr(subspaces, "_MOST_BEGUN_WITH", 20)
    found = subspaces.leading_eigenvectors(x, 4)
    np.testing.assert_allclose(found.conj().T @ found, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=1e-11)
    # fewer matrices than vectors
    few = subspaces.leading_eigenvectors(x[:1], 4)
    np.testing.assert_allclose(few.conj().T @ few, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(few[:, :2] @ few[:, :2].conj().T, x[0] @ x[0].conj().T, atol=1e-12)


def test_blocks_of_matrices_change_nothing(monkeypatch):
    x = _draws(50, 30, 2).components.reshape(2, 25, 30, 2)
    expected = invariant_draws(x, up_to="signs"), align_signs(x)
    monkeypatch.setattr(subspaces, "_BLOCK", 200)
    found = invariant_draws(x, up_to="signs"), align_signs(x)
    assert found[0].keys() == expected[0].keys()
    for name, values in expected[0].items():
        np.testing.assert_allclose(found[0][name], values, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[1][0], expected[1][0])


@pytest.mark.thorough
def test_many_columns_need_no_matrix_of_columns_by_columns(monkeypatch):
    """5,000 columns: the diagnosis decomposes nothing larger than a few hundred, and judges at most 1,000 columns."""
    eigh = np.linalg.eigh

    def small(x, *args):
        assert x.shape[-1] <= 512
        return eigh(x, *args)

    monkeypatch.setattr(np.linalg, "eigh", small)
    draws = _draws(40, 5_000, 2)
    posterior = {name: values.reshape(2, 20, *values.shape[1:]) for name, values in draws._asdict().items()}
    found = diagnose(posterior, {"lp": np.random.default_rng(2).standard_normal((2, 20))})
    kinds = [row.name.split("[")[0] for row in found.summary.rows]
    assert kinds.count("mean") == kinds.count("components.leverage") == 1_000
    last = posterior["mean"][..., -1]
    assert found.summary["mean[4999]"].mean == pytest.approx(last.mean())
    angles = principal_angles(draws.components, mean_subspace(draws.components))
    assert angles.max() < 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["score_moments", "column_residuals"])
def test_memory_of_a_report_does_not_grow_with_draws_times_rows_times_columns(what):
    draws = _draws(100, 2_000, 2)
    rows = np.random.default_rng(1).standard_normal((200, 2_000))
    assert _peak_bytes(lambda: getattr(quantities, what)(draws, rows)) < 8 * 100 * 200 * 2_000 / 5


def test_residuals_of_columns_are_those_of_all_draws_at_once():
    """Against the formula, with arrays of draws by rows by columns."""
    draws = _draws(7, 6, 2)
    rows = np.random.default_rng(1).standard_normal((9, 6)) + 0.4
    A = draws.components * draws.scale[:, None, :]
    precision = np.eye(2) + np.swapaxes(A, 1, 2) @ A / draws.noise[:, None, None] ** 2
    covariance = np.linalg.inv(precision)
    centred = rows - draws.mean[:, None]
    left = centred - centred @ A @ covariance @ np.swapaxes(A, 1, 2) / draws.noise[:, None, None] ** 2
    uncertain = np.einsum("sop,spq,soq->so", A, covariance, A)
    expected = np.sqrt((left**2).mean(axis=1) + uncertain)
    np.testing.assert_allclose(quantities.column_residuals(draws, rows), expected, rtol=1e-10)


def test_quantiles_of_loadings_in_blocks(monkeypatch):
    draws = _draws(30, 11, 2)
    monkeypatch.setattr(quantities, "_MOST_ENTRIES", 200)
    expected = np.quantile(draws.components, (0.05, 0.5), axis=0)
    np.testing.assert_array_equal(quantities.loading_quantiles(draws, (0.05, 0.5)), expected)


@pytest.fixture(scope="module")
def fitted() -> BayesianPCA:
    generator = np.random.default_rng(4)
    table = generator.standard_normal((40, 2)) @ generator.standard_normal((2, 5)) + generator.normal(3, 1, (40, 5))
    return BayesianPCA(2, num_warmup=60, num_samples=60, num_chains=2, random_state=0).fit(table)


@pytest.mark.thorough
@pytest.mark.parametrize("has_missing", [False, True])
def test_predictions_for_rows_in_blocks_are_those_for_all(fitted, monkeypatch, has_missing):
    rows = np.random.default_rng(5).normal(3, 1.5, (23, 5))
    if has_missing:
        rows[3, 1] = rows[22, 0] = np.nan

    def all_of_them():
        names = ("transform", "score_samples", "score_quantiles", "fill")
        return [getattr(fitted, name)(rows) for name in names]

    expected = all_of_them()
    monkeypatch.setattr(pca, "_MOST_ENTRIES", 120 * 5 * 10)  # some ten rows
    for found, whole in zip(all_of_them(), expected, strict=True):
        np.testing.assert_allclose(found, whole, rtol=1e-12)
    # a row with a missing cell says nothing of the others
    np.testing.assert_allclose(fitted.transform(rows[5:9]), expected[0][5:9], rtol=1e-12)


@pytest.mark.thorough
def test_memory_of_predictions_does_not_grow_with_draws_times_rows(fitted, monkeypatch):
    monkeypatch.setattr(pca, "_MOST_ENTRIES", 120 * 5 * 100)
    assert _peak_bytes(lambda: fitted.score_quantiles(np.ones((8_000, 5)))) < 8 * 120 * 8_000
