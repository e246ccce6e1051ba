"""The scikit-learn estimator of Bayesian PCA."""

from copy import deepcopy

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import geodax as gx
from geodax.diagnostics.alignment import principal_angles
from geodax.diagnostics.findings import rhat
from geodax.models import BayesianPCA


@pytest.fixture(scope="module")
def wine() -> np.ndarray:
    return gx.data.load("wine").arrays["features"]


@pytest.fixture(scope="module")
def fitted(wine) -> BayesianPCA:
    return BayesianPCA(3, num_warmup=300, num_samples=300, random_state=0).fit(wine)


@pytest.mark.thorough
def test_agrees_with_classical_pca_where_the_data_decide(wine, fitted):
    """With 178 rows the posterior mean subspace is close to the classical one, and the shares of variance too."""
    standardised = (wine - wine.mean(axis=0)) / wine.std(axis=0)
    classical = PCA(3).fit(standardised)
    angles = principal_angles(fitted.components_.T, classical.components_.T)
    assert np.degrees(angles.max()) < 5
    np.testing.assert_allclose(fitted.explained_variance_, classical.explained_variance_, rtol=0.1)
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(3), atol=1e-12)


def test_posterior_is_a_datatree_that_has_converged(fitted):
    """Chains agree on the scales, the noise and the aligned loadings; nothing diverges or leaves the manifold."""
    group = fitted.posterior_["posterior"]
    for name in ("scale", "noise", "components", "mean"):
        assert rhat(group[name].values).max() < 1.05, name
    stats = fitted.posterior_["sample_stats"]
    assert int(stats["diverging"].sum()) == 0
    assert float(stats["residual"].max()) < 1e-12
    assert np.all(np.diff(group["scale"].values, axis=-1) < 0)


def test_transform_inverse_transform_and_pipeline(wine, fitted):
    """Scores reproduce the rows as well as classical PCA does; the estimator works in a pipeline."""
    scores = fitted.transform(wine)
    assert scores.shape == (178, 3)
    error = np.mean(((fitted.inverse_transform(scores) - wine) / wine.std(axis=0)) ** 2)
    standardised = (wine - wine.mean(axis=0)) / wine.std(axis=0)
    classical = PCA(3).fit(standardised)
    best = np.mean((classical.inverse_transform(classical.transform(standardised)) - standardised) ** 2)
    assert best < error < 1.2 * best
    pipeline = make_pipeline(FunctionTransformer(), fitted)
    np.testing.assert_allclose(pipeline.transform(wine), scores)
    draws = fitted.sample_scores(wine[:5])
    errors = (draws.mean(axis=0) - scores[:5]) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.all(np.abs(errors) < 4.5)


def test_scores_have_names(wine, fitted):
    """So that a pipeline may give data frames, as with scikit-learn's own PCA."""
    assert fitted.get_feature_names_out().tolist() == ["bayesianpca0", "bayesianpca1", "bayesianpca2"]
    pipeline = make_pipeline("passthrough", fitted).set_output(transform="pandas")
    frame = pipeline.transform(wine[:4])
    pipeline.set_output(transform="default")
    assert frame.columns.tolist() == ["bayesianpca0", "bayesianpca1", "bayesianpca2"]
    np.testing.assert_array_equal(frame, fitted.transform(wine[:4]))
    np.testing.assert_array_equal(fitted.inverse_transform(frame), fitted.inverse_transform(frame.to_numpy()))


@pytest.mark.thorough
def test_quantiles_of_scores_and_filled_cells_are_those_of_the_draws(wine, fitted):
    """And a row's do not depend on the rows beside it."""
    rows = wine[:20].copy()
    rows[:, 3:] = np.nan
    draws = np.concatenate([fitted.sample_scores(rows, random_state=i) for i in range(20)])
    low, middle = fitted.score_quantiles(rows, (0.1, 0.5))
    for quantile, level in ((low, 0.1), (middle, 0.5)):
        np.testing.assert_allclose(np.mean(draws < quantile, axis=0), level, atol=0.04)
    filled = fitted.fill(rows)
    completed = np.concatenate([fitted.impute(rows, random_state=i) for i in range(5)])[..., 3:]
    errors = (completed.mean(axis=0) - filled[:, 3:]) / (completed.std(axis=0) / np.sqrt(len(completed)))
    assert np.all(np.abs(errors) < 5)
    np.testing.assert_array_equal(filled[:, :3], wine[:20, :3])
    np.testing.assert_allclose(fitted.score_quantiles(rows[7:8], (0.1, 0.5))[:, 0], [low[7], middle[7]], rtol=1e-9)
    np.testing.assert_allclose(fitted.fill(rows[7:8])[0], filled[7], rtol=1e-12)


def test_scores_prefer_rows_like_the_training_rows(wine, fitted):
    """Predictive densities are normalised in the data's units: shifting a row far away lowers them, scaling the units moves them."""
    density = fitted.score_samples(wine)
    assert fitted.score(wine) == pytest.approx(density.mean())
    assert np.all(fitted.score_samples(wine + 10 * wine.std(axis=0)) < density)
    rescaled = clone(fitted).with_posterior(1000 * wine, fitted.posterior_)
    np.testing.assert_allclose(rescaled.score_samples(1000 * wine), density - 13 * np.log(1000), rtol=1e-9)


@pytest.mark.slow
def test_missing_cells_are_imputed_with_honest_intervals(wine):
    """Of planted holes, the 90 % intervals of the imputations contain about 90 %."""
    generator = np.random.default_rng(0)
    holes = generator.random(wine.shape) < 0.1
    damaged = np.where(holes, np.nan, wine)
    model = BayesianPCA(3, num_warmup=300, num_samples=300, random_state=1).fit(damaged)
    completed = model.impute(damaged)
    np.testing.assert_allclose(completed[:, ~holes], np.broadcast_to(wine[~holes], completed[:, ~holes].shape))
    low, high = np.quantile(completed, [0.05, 0.95], axis=0)
    covered = ((low < wine) & (wine < high))[holes]
    assert abs(covered.mean() - 0.9) < 4 * np.sqrt(0.09 / holes.sum())
    better = np.mean((np.median(completed, axis=0) - wine)[holes] ** 2 / wine.var(axis=0)[np.nonzero(holes)[1]])
    naive = np.mean((np.nanmean(damaged, axis=0) - wine)[holes.any(axis=1)] ** 2 / wine.var(axis=0))
    assert better < 0.8 * naive


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"n_components": 5}, slice(0, 9), "at most 4, the number of columns .*found 5"),
        ({"n_components": 0}, slice(0, 9), "n_components must be at least 1"),
        ({"n_components": 1}, slice(0, 1), "minimum of 2 is required"),
    ],
)
def test_unusable_input_is_explained(wine, options, rows, message):
    """Each refusal says what was expected."""
    with pytest.raises(ValueError, match=message):
        BayesianPCA(**options).fit(wine[rows, :4])


def test_empty_column_infinite_cell_and_unfitted(wine):
    """A column without any value, an infinite cell, and predicting before fitting."""
    empty = wine[:9, :4].copy()
    empty[:, 2] = np.nan
    with pytest.raises(ValueError, match="column 2 of X has no value"):
        BayesianPCA(1).fit(empty)
    infinite = wine[:9, :4].copy()
    infinite[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        BayesianPCA(1).fit(infinite)
    with pytest.raises(ValueError, match=r"noise must be one of \['isotropic', 'diagonal'\], found 'full'"):
        BayesianPCA(1).set_params(noise="full").fit(wine)
    with pytest.raises(NotFittedError):
        BayesianPCA(1).transform(wine)


@pytest.mark.thorough
def test_checkpoint_folder_gives_the_same_estimator(wine, tmp_path):
    """Draws in a folder are those in memory with the same seed, and an estimator made from them; other seeds give others."""
    options = {"num_warmup": 20, "num_samples": 20, "num_chains": 2, "random_state": 0}
    in_memory = BayesianPCA(2, **options).fit(wine)
    on_disk = BayesianPCA(2, checkpoint=tmp_path, **options).fit(wine)
    np.testing.assert_array_equal(in_memory.components_, on_disk.components_)
    other = clone(in_memory).set_params(random_state=1).fit(wine)
    assert not np.array_equal(other.components_, in_memory.components_)
    again = BayesianPCA(2, **options).with_posterior(wine, on_disk.posterior_)
    np.testing.assert_array_equal(again.transform(wine), in_memory.transform(wine))


@pytest.mark.thorough
@pytest.mark.parametrize(("p", "words"), [(2, "Leave out 2, or use fewer components than 2"), (3, "fewer components")])
def test_columns_computed_from_others(p, words):
    """With no noise left, its posterior is not proper, and chains would run to the smallest that they can count with."""
    table = np.random.default_rng(0).standard_normal((30, 2))
    table = np.column_stack([table, table.sum(axis=1), 3.0 - table[:, 0]])
    with pytest.raises(ValueError, match=f"{p} components describe the 4 columns exactly.*2 of them.*{words}"):
        BayesianPCA(p).fit(table)
    with pytest.raises(ValueError, match="columns exactly"):
        BayesianPCA(p).fit(np.where(np.arange(120).reshape(30, 4) % 17 == 5, np.nan, table))
    nearly = table + 1e-5 * np.random.default_rng(1).standard_normal(table.shape)
    assert BayesianPCA(p, num_warmup=5, num_samples=4, num_chains=1).fit(nearly).noise_variance_ > 0
    assert BayesianPCA(1, num_warmup=5, num_samples=4, num_chains=1).fit(table).noise_variance_ > 0


@pytest.mark.thorough
def test_diagonal_noise_is_factor_analysis():
    """Noise and density of new rows are those of maximum likelihood where many rows decide."""
    generator = np.random.default_rng(0)
    loadings = generator.standard_normal((6, 2)) * [1.0, 0.6]
    noise = np.array([0.2, 1.0, 0.4, 1.5, 0.7, 0.1])
    unit = np.array([1.0, 1e3, 1e-3, 1.0, 1.0, 7.0])
    rows = generator.standard_normal((3000, 2)) @ loadings.T + noise * generator.standard_normal((3000, 6)) + 5.0
    rows, new = np.split(rows * unit, 2)
    options = {"num_warmup": 300, "num_samples": 200, "num_chains": 2, "random_state": 0}
    model = BayesianPCA(2, noise="diagonal", **options).fit(rows)
    classical = FactorAnalysis(2, tol=1e-5, max_iter=10_000, svd_method="lapack").fit(
        (rows - model.center_) / model.spread_
    )
    np.testing.assert_allclose(model.noise_variance_, classical.noise_variance_, rtol=0.1, atol=0.005)
    expected = classical.score_samples((new - model.center_) / model.spread_) - np.log(model.spread_).sum()
    assert model.score(new) == pytest.approx(expected.mean(), abs=0.02)
    assert model.score(new) > BayesianPCA(2, **options).fit(rows).score(new) + 0.1
    group, stats = model.posterior_["posterior"], model.posterior_["sample_stats"]
    assert group["noise"].shape == (2, 200, 6)
    assert int(stats["diverging"].sum()) == 0
    assert max(rhat(group[name].values).max() for name in ("scale", "noise", "components", "mean")) < 1.05
    covariance = classical.components_.T @ classical.components_
    axes = np.linalg.eigh(covariance)[1][:, :-3:-1]
    assert np.degrees(principal_angles(model.components_.T, axes).max()) < 3
    along = np.einsum(
        "pn,nm,pm->p", model.components_, covariance + np.diag(classical.noise_variance_), model.components_
    )
    np.testing.assert_allclose(model.explained_variance_, along, rtol=0.05)
    share = np.sort(np.linalg.eigvalsh(covariance))[:-3:-1] / np.trace(classical.get_covariance())
    np.testing.assert_allclose(model.explained_variance_ratio_, share, rtol=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("p", "column", "words"),
    [
        (1, 2.0 * np.arange(30.0), "column 'd' is computed from 'a', so that it can have no noise of its own"),
        (
            2,
            None,
            "column 'c' is computed from 'a', 'b'|column 'a' is computed from 'b', 'c'|'b' is computed from 'a', 'c'",
        ),
        (
            1,
            np.full(30, 0.1),
            "column 'd' is constant, .*noise='diagonal' expects. Leave it out, or use noise='isotropic'",
        ),
    ],
)
def test_columns_without_noise_of_their_own(p, column, words):
    """Catches posteriors that are not proper: components describe these columns exactly, but not the table."""
    table = np.random.default_rng(0).standard_normal((30, 5))
    table[:, 0] = np.arange(30.0)
    table[:, 3] = column if column is not None else table[:, 3]
    table[:, 2] = table[:, 0] - table[:, 1] if column is None else table[:, 2]
    frame = pandas.DataFrame(table, columns=list("abcde"))
    with pytest.raises(ValueError, match=words):
        BayesianPCA(p, noise="diagonal").fit(frame)
    options = {"num_warmup": 5, "num_samples": 4, "num_chains": 1}
    assert BayesianPCA(p, **options).fit(frame).noise_variance_ > 0
    if column is None:
        assert BayesianPCA(1, noise="diagonal", **options).fit(frame).noise_variance_.shape == (5,)


def test_log_likelihoods_of_single_draws(wine, fitted):
    rows = wine[:20].copy()
    rows[3, 2] = np.nan
    tree = fitted.with_log_likelihood(rows)
    one = deepcopy(fitted)
    one.posterior_ = fitted.posterior_.isel(chain=[1], draw=[7])
    np.testing.assert_allclose(tree["log_likelihood"]["x"][1, 7], one.score_samples(rows))


@pytest.mark.thorough
def test_components_of_nearly_equal_variance_rarely_diverge(wine, seed):
    """Catches a target acceptance rate that suits distinct components only: 0.7 gives about a hundred of 4,000."""
    model = BayesianPCA(12, random_state=seed).fit(wine)
    assert model.posterior_["sample_stats"]["diverging"].sum() < 30
