"""The report of Bayesian principal components: odd posteriors make a page too, and its numbers are right."""

import html.parser
import re

import numpy as np
import pytest
from sklearn.decomposition import PCA

from geodax.app.pca import quantities, write_report
from geodax.diagnostics.alignment import align_signs
from tests.marks import slow

SECTIONS = [
    "Summary",
    "Number of components",
    "Explained variance",
    "Uncertainty of the subspace",
    "Loadings",
    "Scores",
    "Does the model fit?",
    "Diagnostics",
    "Model and settings",
]


def posterior_of(n=6, p=2, num_chains=4, num_draws=150, *, num_rows=40, seed=0, spread=0.05):
    """Draws around a truth, with random signs, and a table that the truth made."""
    generator = np.random.default_rng(seed)
    batch = (num_chains, num_draws)
    truth = np.linalg.qr(generator.standard_normal((n, p)))[0]
    left, _, right = np.linalg.svd(truth + spread * generator.standard_normal((*batch, n, p)), full_matrices=False)
    scale = np.linspace(3.0, 1.5, p)
    posterior = {
        "components": left @ right * generator.choice([-1.0, 1.0], (*batch, 1, p)),
        "scale": np.sort(scale * np.exp(0.05 * generator.standard_normal((*batch, p))), axis=-1)[..., ::-1],
        "noise": 0.5 * np.exp(0.05 * generator.standard_normal(batch)),
        "mean": 0.1 * generator.standard_normal((*batch, n)),
    }
    scores = generator.standard_normal((num_rows, p)) * scale
    table = scores @ truth.T + 0.5 * generator.standard_normal((num_rows, n))
    stats = {
        "diverging": np.zeros(batch, bool),
        "acceptance_rate": generator.uniform(0.7, 0.9, batch),
        "energy": generator.standard_normal(batch),
        "n_steps": np.full(batch, 15),
        "residual": np.full(batch, 1e-15),
        "lp": generator.standard_normal(batch),
    }
    return posterior, stats, table


def with_own_noise(posterior):
    """The same draws with noise that differs by column."""
    n = posterior["mean"].shape[-1]
    return posterior | {"noise": posterior["noise"][..., None] * np.linspace(0.2, 1.4, n)}


def page_of(tmp_path, posterior, stats, table, **config):
    path = tmp_path / "report.html"
    num_chains, num_draws = posterior["noise"].shape[:2]
    num_rows, n = table.shape
    of_run = {
        "file": "some/folder/wine.csv",
        "sha256": "0" * 64,
        "created": "2026-01-01T00:00:00+00:00",
        "versions": {"geodax": "0.1.0"},
        "notes": [],
        "columns": [f"column {i + 1}" for i in range(n)],
        "row_labels": [f"row {i + 1}" for i in range(num_rows)],
        "groups": None,
        "group_name": None,
        "center": np.zeros(n),
        "spread": np.ones(n),
        "command": "geodax fit pca wine.csv",
        "seconds": None,
        "seed": 7,
        "standardize": True,
        "noise": "isotropic",
        "num_warmup": 500,
        "num_samples": num_draws,
        "num_chains": num_chains,
        "target_acceptance_rate": 0.8,
        "mean_prior_scale": 1.0,
        "scale_prior_scale": 1.0,
        "noise_prior_scale": 1.0,
    }
    write_report(posterior, stats, table, of_run | config, path)
    page = path.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    return page


def text_of(page):
    """What a reader sees, in one line."""
    parser, parts = html.parser.HTMLParser(), []
    parser.handle_data = parts.append
    parser.feed(page)
    return " ".join(" ".join(parts).split())


@pytest.mark.thorough
def test_a_usual_run_has_every_section_and_says_that_it_is_fine(tmp_path):
    page = page_of(
        tmp_path,
        *posterior_of(),
        columns=list("abcdef"),
        groups=["red", "white"] * 20,
        group_name="wine",
        seconds=75.0,
        notes=["The column `x` was left out."],
        command="geodax fit pca wine.csv --seed 7",
    )
    for section in SECTIONS:
        assert f"<h2>{section}</h2>" in page
    assert "<h2>Missing cells</h2>" not in page
    text = text_of(page)
    assert "The diagnostics found no problem" in text
    assert "Both components are clearly above the limit of detection" in text
    assert "after 500 warm-up iterations each, sampled in 1 min 15 s." in text
    assert "The column x was left out." in text
    assert "coloured by wine" in text
    assert "Bayesian principal components of wine.csv" in text
    assert "half-normal with standard deviation 2.45" in text
    captions = re.findall(r"<figcaption.*?</figcaption>", page, re.DOTALL)
    assert captions
    assert not re.search(
        r"\b(left|right)\b", " ".join(captions), re.IGNORECASE
    )  # panels are below each other on phones
    assert "geodax fit pca wine.csv --seed 7" in text


@pytest.mark.thorough
def test_noise_of_each_column_makes_a_page_of_factor_analysis(tmp_path):
    """Its numbers are those of the draws, and nothing says that columns have the same noise."""
    posterior, stats, table = posterior_of(n=12)
    posterior = with_own_noise(posterior)
    page = page_of(tmp_path, posterior, stats, table, noise="diagonal")
    text = text_of(page)
    for section in SECTIONS:
        assert (f"<h2>{section}</h2>" in page) == (section != "Does the model fit?")
    assert "Bayesian factor analysis of wine.csv" in text
    assert "noise: one standard deviation for each column" in text
    assert "Compared with classical PCA" not in text
    least, most = (np.median(posterior["noise"][..., k]) for k in (0, 11))
    assert re.search(rf"standard deviations between {least:.2g}\d* \[[^]]*\] \(column 1\) and {most:.2g}\d* \[", text)
    assert re.findall(r"noise of column (\d+) \d", text) == [str(k) for k in range(1, 13)]  # and none is left out
    draws = quantities.pool(posterior)
    covariance = np.stack([joint_of(draws, s)[1][2:, 2:] for s in range(len(draws.noise))])
    share = 1 - draws.noise**2 / np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(quantities.explained_shares(draws), share, rtol=1e-10)
    np.testing.assert_allclose(
        quantities.variance_shares(draws).sum(axis=1),
        1 - (draws.noise**2).sum(axis=1) / np.trace(covariance, axis1=1, axis2=2),
    )
    rows = text.split("column noise explained by the components, %")[1]
    assert re.match(rf" column 12 {most:.2g}\d* \[[^]]*\] {100 * np.median(share[:, 11]):.0f}", rows)


def test_detection_and_simulated_tables_with_noise_of_each_column():
    """A component is as easy to detect as that of the table in units of the noise; equal noise is the usual case."""
    posterior, _, _ = posterior_of()
    equal = quantities.pool(posterior)
    same = quantities.pool(posterior | {"noise": np.repeat(posterior["noise"][..., None], 6, axis=-1)})
    limit = quantities.detection_limit(equal, 40.0)
    np.testing.assert_allclose(quantities.detection_limit(same, 40.0), np.repeat(limit, 2, axis=1), rtol=1e-12)
    draws = quantities.pool(with_own_noise(posterior))
    whitened = np.linalg.norm(draws.components * draws.scale[:, None, :] / draws.noise[:, :, None], axis=1)
    np.testing.assert_allclose(draws.scale / quantities.noise_levels(draws), whitened, rtol=1e-10)
    few = {name: values[:4] for name, values in draws._asdict().items()}
    found = quantities.replicated_eigenvalues(few, 200_000, 6)
    for s, values in enumerate(found):
        expected = np.linalg.eigvalsh(joint_of(draws, s)[1][2:, 2:])[::-1]
        np.testing.assert_allclose(values, expected, rtol=0.03)


@pytest.mark.thorough
def test_names_from_the_file_stay_text(tmp_path):
    evil = "<script>alert(1)</script>$x_1$"
    posterior, stats, table = posterior_of()
    table[3, 2] = np.nan
    page = page_of(
        tmp_path,
        posterior,
        stats,
        table,
        columns=[f"{evil}{i}" for i in range(6)],
        row_labels=[f"{evil}{i}" for i in range(40)],
        groups=[f"{evil}{i % 3}" for i in range(40)],
        group_name=evil,
        notes=[evil],
        versions={evil: evil},
        command=evil,
        file=evil,
    )
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "Compared with classical PCA" not in text_of(page), "a cell is missing"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ({"n": 2, "p": 1}, 5),
        slow({"n": 2, "p": 2}, 5),
        slow({"n": 6, "p": 1}, 40),
        ({"n": 5, "p": 3}, 2),
        slow({"n": 6, "p": 2, "num_chains": 1}, 40),
        ({"n": 6, "p": 2, "num_chains": 1, "num_draws": 1}, 40),
        slow({"n": 6, "p": 2, "num_draws": 3}, 40),
        slow({"n": 6, "p": 2, "num_draws": 12}, 40),
        slow({"n": 40, "p": 20, "num_draws": 20}, 10),
    ],
    ids=str,
)
def test_odd_shapes_make_a_page(tmp_path, shape, rows):
    posterior, stats, table = posterior_of(**shape, num_rows=rows)
    page = page_of(tmp_path, posterior, stats, table)
    for section in SECTIONS:
        assert f"<h2>{section}</h2>" in page


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "p"), [slow(2, 1), (6, 2)])
def test_rows_and_columns_without_any_cell_make_a_page(tmp_path, n, p):
    posterior, stats, table = posterior_of(n, p)
    table[0, :] = np.nan
    table[:, 0] = np.nan
    assert "<h2>Missing cells</h2>" in page_of(tmp_path, posterior, stats, table)


@pytest.mark.slow
def test_large_reports_stay_small(tmp_path):
    posterior, stats, table = posterior_of(50, 5, num_draws=1000, num_rows=200)
    assert len(page_of(tmp_path, posterior, stats, table, groups=[f"g{i % 4}" for i in range(200)])) < 3e6


@pytest.mark.slow
def test_many_columns_rows_and_missing_cells_stay_small(tmp_path):
    posterior, stats, table = posterior_of(300, 6, num_draws=400, num_rows=3000)
    table[np.random.default_rng(0).uniform(size=table.shape) < 0.02] = np.nan
    columns = [f"a rather long name of a column, number {i}" for i in range(300)]
    page = page_of(tmp_path, posterior, stats, table, columns=columns, groups=[str(i) for i in range(3000)])
    assert len(page) < 3e6
    assert "the 40 with the largest loadings are shown" in page
    assert "The first 30 of" in page
    assert "400 evenly spaced rows of 3000 are shown" in page


@pytest.mark.thorough
def test_warnings_reach_the_first_line_and_the_diagnostics(tmp_path):
    posterior, stats, table = posterior_of()
    posterior["scale"] += np.arange(4)[:, None, None]
    stats["diverging"][:, :10] = True
    text = text_of(page_of(tmp_path, posterior, stats, table, num_samples=1000))
    assert "The run is not finished: 1000 draws per chain were requested." in text
    assert "The diagnostics failed. Do not use these results" in text
    assert "Divergent trajectories" in text
    assert "Chains that disagree" in text
    assert "What to do: Raise the target acceptance rate" in text
    assert "invariant_draws" not in text, "the loadings were aligned before"


@pytest.mark.thorough
def test_one_chain_is_fine_with_a_remark(tmp_path):
    text = text_of(page_of(tmp_path, *posterior_of(num_chains=1, num_draws=1000)))
    assert "The diagnostics found no problem, but have a remark." in text
    assert "One chain only" in text


@pytest.mark.thorough
def test_components_in_the_noise_are_not_praised(tmp_path):
    posterior, stats, table = posterior_of(6, 3, spread=0.02)
    posterior["scale"][..., 2] = 0.01 * np.abs(np.random.default_rng(0).standard_normal((4, 150))) + 1e-3
    text = text_of(page_of(tmp_path, posterior, stats, table))
    assert "The data clearly support 2 of the 3 components; component 3 cannot be distinguished from noise" in text
    assert "Component 3 is not distinguished from noise" in text


@pytest.mark.thorough
def test_classical_fractions_are_those_of_scikit_learn(tmp_path):
    posterior, stats, table = posterior_of()
    ratio = 100 * PCA().fit(table).explained_variance_ratio_
    text = text_of(page_of(tmp_path, posterior, stats, table))
    rows = text.split("this model, noise included, % this model, %")[1]
    assert rows.startswith(f" 1 {ratio[0]:.1f} ")
    assert f" 2 {ratio[1]:.1f} " in rows
    assert f" 1 to 2 {ratio[:2].sum():.1f} " in rows
    assert "Biplot: the scores" in text
    assert "Compared with classical PCA" in text


@pytest.mark.thorough
def test_exchanged_components_are_reported(tmp_path):
    posterior, stats, table = posterior_of(6, 2)
    generator = np.random.default_rng(0)
    is_exchanged = generator.uniform(size=(4, 150, 1, 1)) < 0.4
    posterior["components"] = np.where(is_exchanged, posterior["components"][..., ::-1], posterior["components"])
    posterior["scale"] = np.sort(2 + 0.05 * generator.standard_normal((4, 150, 2)), axis=-1)[..., ::-1]
    text = text_of(page_of(tmp_path, posterior, stats, table))
    assert "Interpret the plane of components 1 and 2, not each component." in text
    assert "Do not interpret" in text


# The numbers


def joint_of(draws, s):
    """Mean and covariance of (scale z, x) for one draw."""
    A = draws.components[s] * draws.scale[s]
    n, p = A.shape
    covariance = np.zeros((p + n, p + n))
    covariance[:p, :p] = np.diag(draws.scale[s] ** 2)
    covariance[p:, :p] = A @ np.diag(draws.scale[s])
    covariance[:p, p:] = covariance[p:, :p].T
    covariance[p:, p:] = A @ A.T + draws.noise[s] ** 2 * np.eye(n)
    return np.concatenate([np.zeros(p), draws.mean[s]]), covariance


def condition(mean, covariance, wanted, given, values):
    gain = np.linalg.solve(covariance[np.ix_(given, given)], covariance[np.ix_(given, wanted)]).T
    return (
        mean[wanted] + gain @ (values - mean[given]),
        covariance[np.ix_(wanted, wanted)] - gain @ covariance[np.ix_(given, wanted)],
    )


@pytest.mark.parametrize("missing", [[], [0], [1, 3, 4], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_scores_have_the_moments_of_the_joint_normal(missing, is_diagonal):
    posterior, _, table = posterior_of(num_draws=10)
    draws = quantities.pool(with_own_noise(posterior) if is_diagonal else posterior)
    row = table[:1].copy()
    row[0, missing] = np.nan
    observed = np.flatnonzero(~np.isnan(row[0]))
    parts = [condition(*joint_of(draws, s), [0, 1], 2 + observed, row[0, observed]) for s in range(len(draws.noise))]
    means = np.stack([mean for mean, _ in parts])
    expected = np.mean([c for _, c in parts], axis=0) + np.cov(means.T, bias=True)
    mean, covariance = quantities.score_moments(draws, row)
    np.testing.assert_allclose(mean[0], means.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(covariance[0], expected, atol=1e-10)


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_imputed_cells_have_the_moments_of_the_joint_normal(is_diagonal):
    posterior, _, table = posterior_of(num_draws=1)
    posterior = with_own_noise(posterior) if is_diagonal else posterior
    posterior = {name: np.repeat(values[:1], 40_000, axis=1) for name, values in posterior.items()}
    draws = quantities.pool(posterior)
    table[0, [1, 4]] = np.nan
    observed = np.array([0, 2, 3, 5])
    mean, covariance = condition(*joint_of(draws, 0), [2 + 1, 2 + 4], 2 + observed, table[0, observed])
    values = quantities.imputed_draws(draws, table, np.argwhere(np.isnan(table)))
    error = np.sqrt(np.diag(covariance) / len(values))
    assert np.all(np.abs(values.mean(axis=0) - mean) < 4 * error)
    np.testing.assert_allclose(np.cov(values.T), covariance, atol=0.03 * np.max(covariance))


def test_rows_with_the_same_missing_cells_are_treated_as_alone():
    posterior, _, table = posterior_of(num_draws=5)
    table[::3, 1] = np.nan
    table[::4, 5] = np.nan
    draws = quantities.pool(posterior)
    together = quantities.score_moments(draws, table)
    for i in (0, 1, 3, 4, 12):
        for whole, alone in zip(together, quantities.score_moments(draws, table[i : i + 1]), strict=True):
            np.testing.assert_allclose(whole[i], alone[0], atol=1e-12)


def test_residuals_of_the_right_model_are_the_noise():
    posterior, _, table = posterior_of(num_rows=20_000, spread=1e-3, num_draws=2)
    posterior["mean"][:] = 0
    posterior["noise"][:] = 0.5
    posterior["scale"][:] = [3.0, 1.5]
    table[::5, 2] = np.nan
    residual = quantities.column_residuals(quantities.pool(posterior), table)
    np.testing.assert_allclose(residual, 0.5, atol=0.01)


def test_signs_of_the_draws_change_nothing():
    posterior, _, _ = posterior_of()
    flipped = posterior | {"components": align_signs(posterior["components"])[0]}
    one, other = quantities.pool(posterior), quantities.pool(flipped)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_shares_and_noise_add_up():
    draws = quantities.pool(posterior_of()[0])
    total = (draws.scale**2).sum(axis=1) + 6 * draws.noise**2
    np.testing.assert_allclose(quantities.variance_shares(draws).sum(axis=1) + 6 * draws.noise**2 / total, 1.0)


def test_a_random_subspace_is_as_far_away_as_theory_says():
    """In the plane the angle of a random line is even on [0, 90]; half of a space is further away."""
    assert abs(quantities.random_subspace_angle(2, 1, num_draws=20_000) - 45) < 1.5
    assert quantities.random_subspace_angle(20, 10) > 80
