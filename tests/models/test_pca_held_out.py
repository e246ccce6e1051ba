"""The number of components by held-out cells: errors and moments against the joint normal, and planted ranks."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis

from geodax.app.families import PCAOptions
from geodax.app.pca import number, quantities
from geodax.app.pca.run import PCARun
from geodax.models import BayesianPCA
from geodax.models.pca import held_out
from geodax.models.pca.held_out import HeldOutCells, held_out_cells
from tests.marks import slow


def planted(num_rows, n, rank, noise, generator, *, missing=0.0):
    """A standardised table of a known rank."""
    axes = np.linalg.qr(generator.standard_normal((n, rank)))[0]
    scores = generator.standard_normal((num_rows, rank)) * np.linspace(3, 1.5, rank) * np.sqrt(n / 10)
    table = scores @ axes.T + noise * generator.standard_normal((num_rows, n))
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    return np.where(generator.random(table.shape) < missing, np.nan, table)


def compared(table):
    found = held_out_cells(table)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def fit():
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.standard_normal((6, 2)))[0]
    return held_out._Fit(generator.standard_normal(6), axes, np.array([4.0, 1.5]), 0.3)


def covariance_of(fit):
    return fit.axes * fit.variance @ fit.axes.T + fit.noise_variance * np.eye(len(fit.mean))


def regression(covariance, wanted, given):
    return np.linalg.solve(covariance[np.ix_(given, given)], covariance[np.ix_(given, wanted)]).T


@pytest.mark.parametrize(("missing", "noise"), [(0.0, 0.3), (0.4, 0.3), (0.0, np.linspace(0.1, 2.0, 6))])
def test_each_cell_is_predicted_from_the_others_of_its_row(fit, missing, noise):
    generator = np.random.default_rng(1)
    fit = fit._replace(noise_variance=noise)
    if np.ndim(noise):
        fit = fit._replace(axes=fit.axes * np.sqrt(fit.variance), variance=np.ones(2))
    rows = generator.standard_normal((7, 6))
    rows[generator.random(rows.shape) < missing] = np.nan
    covariance, expected = covariance_of(fit), []
    for row in rows:
        observed, total = np.flatnonzero(~np.isnan(row)), 0.0
        for j in observed:
            others = observed[observed != j]
            predicted = fit.mean[j] + regression(covariance, [j], others) @ (row - fit.mean)[others]
            total += (row[j] - predicted.item()) ** 2
        expected.append(total)
    np.testing.assert_allclose(held_out._squared_errors(fit, rows), expected, rtol=1e-9)


def test_a_step_of_em_has_the_moments_of_the_joint_normal(fit):
    generator = np.random.default_rng(2)
    rows = generator.standard_normal((40, 6))
    rows[generator.random(rows.shape) < 0.3] = np.nan
    covariance, filled, extra = covariance_of(fit), [], np.zeros((6, 6))
    for row in rows:
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        gain = regression(covariance, m, o)
        row = row.copy()
        row[m] = fit.mean[m] + gain @ (row - fit.mean)[o]
        extra[np.ix_(m, m)] += covariance[np.ix_(m, m)] - gain @ covariance[np.ix_(o, m)]
        filled.append(row)
    mean = np.mean(filled, axis=0)
    squares, axes = np.linalg.eigh((filled - mean).T @ (filled - mean) + extra)
    expected = held_out._fit_of(mean, axes[:, ::-1], squares[::-1], 2, 40, 6)
    found = held_out._em_step(fit, rows, ~np.isnan(rows), 2)
    np.testing.assert_allclose(covariance_of(found), covariance_of(expected), rtol=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)


@pytest.mark.parametrize(
    ("num_rows", "n", "rank", "noise", "missing"),
    [
        (200, 30, 5, 0.5, 0.0),
        (200, 30, 5, 1.0, 0.0),
        slow(500, 50, 8, 1.0, 0.0),
        slow(60, 200, 3, 1.0, 0.0),
        (150, 20, 3, 1.0, 0.1),
    ],
)
def test_planted_ranks_are_found(num_rows, n, rank, noise, missing):
    """In at least 9 of 10 tables."""
    generator = np.random.default_rng(0)
    tables = (planted(num_rows, n, rank, noise, generator, missing=missing) for _ in range(10))
    found = [compared(table).chosen for table in tables]
    assert found.count(rank) >= 9, found


def test_noise_has_no_component_and_small_tables_have_no_choice():
    generator = np.random.default_rng(0)
    found = [compared(generator.standard_normal((100, 10))).chosen for _ in range(10)]
    assert found.count(0) >= 9, found
    assert held_out_cells(generator.standard_normal((3, 5))) is None
    assert held_out_cells(generator.standard_normal((30, 1))) is None


@pytest.mark.thorough
def test_columns_computed_from_others_are_no_choice():
    """As many components as directions leave no noise to estimate, however well they predict."""
    parts = np.random.default_rng(0).dirichlet([3, 2, 1], size=80)
    assert compared(parts).most == 1
    assert compared(parts + 1e-4 * np.random.default_rng(1).standard_normal(parts.shape)).most == 2


@pytest.mark.thorough
def test_the_estimator_chooses_and_reports_the_number():
    table = planted(80, 10, 3, 0.5, np.random.default_rng(0))
    model = BayesianPCA("auto", num_warmup=60, num_samples=20, num_chains=1, random_state=0).fit(7 + 2 * table)
    assert model.held_out_ is not None
    assert model.n_components_ == model.held_out_.chosen == len(model.components_)
    np.testing.assert_allclose(model.held_out_.predicted, compared(table).predicted, rtol=1e-9)
    with pytest.raises(ValueError, match="n_components must be an integer or 'auto', found 'some'"):
        BayesianPCA().set_params(n_components="some").fit(table)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_that_differs_by_column_is_no_component(seed, tmp_path):
    """With a noise for each column the planted rank is found; with equal noise single columns are components too."""
    generator = np.random.default_rng(seed)
    noise = np.exp(0.8 * generator.standard_normal(10))
    table = generator.standard_normal((300, 2)) @ generator.standard_normal((2, 10))
    table += noise * generator.standard_normal((300, 10))
    standardised = (table - table.mean(axis=0)) / table.std(axis=0)
    found, equal = held_out_cells(standardised, is_diagonal=True), compared(standardised)
    assert found is not None
    assert (found.chosen, found.is_diagonal) == (2, True)
    assert found.predicted.max() > equal.predicted.max()
    *_, fit = held_out._factor_analyses(standardised, 2)
    likelihood = multivariate_normal(fit.mean, covariance_of(fit)).logpdf(standardised).mean()
    classical = FactorAnalysis(2, svd_method="lapack", tol=1e-6, max_iter=10_000).fit(standardised)
    assert classical.score(standardised) - likelihood < 0.02
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header=",".join("abcdefghij"), comments="")
    _, facts = PCARun().read(tmp_path / "t.csv", PCAOptions("auto", noise="diagonal"), None)
    assert facts["num_components"] == 2
    standardised[0, 0] = np.nan
    incomplete = held_out_cells(standardised, is_diagonal=True)
    assert incomplete is not None
    assert not incomplete.is_diagonal


def test_the_command_line_keeps_its_choice_for_resuming(tmp_path):
    table = planted(200, 30, 5, 1.0, np.random.default_rng(0))
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header=",".join(f"x{i}" for i in range(30)), comments="")
    options = PCAOptions("auto")
    _, facts = PCARun().read(tmp_path / "t.csv", options, None)
    assert facts["num_components"] == 5
    assert "5 components chosen, the smallest number up to 20" in facts["notes"][-1]
    config = {"options": {"n_components": "auto", "num_samples": 7}, "seed": 0, **facts}
    assert PCARun().estimator(config).n_components == 5
    assert PCARun().estimator({"options": {"n_components": 2}, "seed": 0}).n_components == 2


@pytest.mark.thorough
def test_a_fit_with_too_few_components_says_so():
    """Of planted rank 5, two components leave variance that the model does not predict."""
    table = planted(200, 30, 5, 1.0, np.random.default_rng(0))
    eigenvalues = quantities.table_eigenvalues(table)
    noise = np.full(60, np.sqrt(eigenvalues[2:].mean()))
    scale = np.sqrt(np.tile(eigenvalues[:2], (60, 1)) - noise[:, None] ** 2)
    draws = {"scale": scale, "noise": noise}
    said = number.sentences(number.evidence(table, draws), 2, is_diagonal=False)
    assert "The data have more variance along component 3 than the model with 2 predicts" in said[0]
    assert said[1].endswith("try `--n-components 5`.")
    holes = table.copy()
    holes[0, 0] = np.nan
    assert number.sentences(number.evidence(holes, draws), 2, is_diagonal=False) == said[1:]


def test_sentences_on_numbers_of_components():
    def curve(*values, chosen):
        return HeldOutCells(np.array(values), np.full(len(values), 0.01), chosen, False)

    def said(held_out, p, observed=None, replicated=None, is_diagonal=False):
        return number.sentences(number.Evidence(held_out, observed, replicated), p, is_diagonal=is_diagonal)

    good = curve(0.0, 0.4, 0.5, 0.51, chosen=2)
    assert said(good, 1) == [
        "2 components predict 50 % of the variance of held-out cells, 1 only 40 %: try `--n-components 2`."
    ]
    assert said(curve(0.0, 0.006, 0.0144, chosen=2), 1) == [
        "2 components predict 1.4 % of the variance of held-out cells, 1 only 0.6 %: try `--n-components 2`."
    ]
    assert said(good, 2)[0].endswith("cells, about as much as any number up to 3.")
    assert said(good, 3)[0].endswith("cells, 3 51 %: for predictions `--n-components 2` is enough.")
    assert said(good, 9)[0].endswith("of held-out cells: for predictions `--n-components 2` is enough.")
    assert said(curve(0.0, -0.1, chosen=0), 1) == [
        "No number of components predicts held-out cells better than the means of the columns."
    ]
    observed, replicated = np.array([5.0, 2.0, 1.0]), np.array([[5.0, 1.0, 1.0]] * 60)
    assert said(None, 1, observed, replicated)[0].endswith("1.00 to 1.00 in simulated tables: try `--n-components 2`.")
    assert said(None, 2, observed, replicated) == []
    differs, same = (said(curve(0.0, 0.4, 0.4, chosen=1), 1, observed, replicated, k) for k in (False, True))
    assert differs[0].endswith("noise that differs by column: try `--noise diagonal`.")
    assert same[0].endswith("1.00 to 1.00 in simulated tables.")
    assert same[1].startswith("With equal noise in all columns, 1 component predicts 40 %")


def test_simulated_eigenvalues_are_those_of_simulated_tables():
    """The mean and the components do not matter."""
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.standard_normal((6, 2)))[0]
    scale, noise, num_rows = np.array([3.0, 1.5]), 0.5, 20
    tables = [
        2
        + (generator.standard_normal((num_rows, 2)) * scale) @ axes.T
        + noise * generator.standard_normal((num_rows, 6))
        for _ in range(1000)
    ]
    direct = np.stack([np.linalg.svd(t - t.mean(axis=0), compute_uv=False) ** 2 / (num_rows - 1) for t in tables])
    draws = {"scale": np.tile(scale, (1000, 1)), "noise": np.full(1000, noise)}
    found = quantities.replicated_eigenvalues(draws, num_rows, 6)
    error = np.sqrt((direct.var(axis=0) + found.var(axis=0)) / 1000)
    assert np.all(np.abs(direct.mean(axis=0) - found.mean(axis=0)) < 4.5 * error)
    for table, expected in ((tables[0], direct[0]), (tables[0][:4], None)):
        singular = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
        expected = singular**2 / (len(table) - 1) if expected is None else expected
        np.testing.assert_allclose(quantities.table_eigenvalues(table), expected, atol=1e-12)
