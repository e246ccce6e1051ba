"""Posteriors of posteriordb against its reference means, and the diagnostics on a funnel; ``posteriordb.json`` names its source."""

import json
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

import geodax as gx
from geodax.diagnostics.findings import check
from geodax.diagnostics.funnels import falling_acceptance

FACTS = json.loads((Path(__file__).parent / "posteriordb.json").read_text(encoding="utf-8"))
SCHOOLS = "eight_schools-eight_schools"


def zip_json(path: Path, facts) -> None:
    """As in posteriordb, with the member that macOS adds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"__MACOSX/._{path.stem}", "not JSON")
        archive.writestr(path.stem, json.dumps(facts))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The part of a checkout that these tests need."""
    checkout = tmp_path_factory.mktemp("posteriordb")
    root = checkout / "posterior_database"
    summary = root / "reference_posteriors" / "summary_statistics" / "mean_value" / "mean_value"
    for folder in (root / "posteriors", summary):
        folder.mkdir(parents=True)
    for name, data in FACTS["data"].items():
        zip_json(root / "data" / "data" / f"{name}.json.zip", data)
    for name in (*FACTS["mean_value"], f"{SCHOOLS}_centered"):
        reference = name.replace("_centered", "_noncentered")
        entry = {"name": name, "data_name": name.split("-")[0], "reference_posterior_name": reference}
        (root / "posteriors" / f"{name}.json").write_text(json.dumps(entry), encoding="utf-8")
        (summary / f"{reference}.json").write_text(json.dumps(FACTS["mean_value"][reference]), encoding="utf-8")
    return checkout


@pytest.fixture(scope="module")
def suite():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
        import _posteriordb

        yield _posteriordb


@pytest.fixture(scope="module")
def sampled(suite, checkout):
    """Draws by name and statistics of a sampler at its defaults, each computed once."""
    runs = {}

    def run(name: str, sampler: str):
        if (name, sampler) not in runs:
            model, reference = suite.read(checkout, name)
            tree = gx.sample(
                jax.random.key(0),
                getattr(gx, sampler)(model.unconstrained),
                lambda key: jax.random.uniform(key, (model.dim,), minval=-1.0, maxval=1.0),
                num_samples=1000,
                num_warmup=1000,
                progress=False,
            )
            draws = model.named(tree["posterior"]["position"].values)
            runs[name, sampler] = draws, tree["sample_stats"], reference
        return runs[name, sampler]

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["nuts", "hmc"])
@pytest.mark.parametrize("name", list(FACTS["mean_value"]))
def test_means_are_those_of_the_reference_draws(suite, sampled, name, sampler):
    """Of all quantities at once: one of a thousand right samplers would fail."""
    draws, _, reference = sampled(name, sampler)
    found = suite.errors(draws, reference)
    assert list(found) == [f"mean of {quantity}" for quantity in FACTS["mean_value"][name]["names"]]
    assert max(map(abs, found.values())) < norm.isf(0.0005 / len(found))
    # and one that is off by a fifth of a standard deviation in one quantity does not pass
    first = next(iter(reference.mean))
    off = suite.errors(draws | {first: draws[first] + 0.2 * draws[first].std()}, reference)
    assert abs(off[f"mean of {first}"]) > norm.isf(0.0005 / len(found))


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["nuts", "hmc"])
def test_a_funnel_is_named_and_its_noncentred_form_is_none(sampled, sampler):
    draws, stats, _ = sampled(f"{SCHOOLS}_centered", sampler)
    (finding,) = [finding for finding in check(draws, stats) if finding.title == "A funnel"]
    assert finding.severity == "severe"
    assert "where `tau` is in its lowest 5 %" in finding.detail
    assert "non-centred" in finding.advice
    draws, stats, _ = sampled(f"{SCHOOLS}_noncentered", sampler)
    assert not {"A funnel", "Energy explored slowly", "Chains that disagree"} & {f.title for f in check(draws, stats)}


def test_the_number_with_which_acceptance_falls_is_found():
    """From the position before a step, not after; at either end; of any shape; constants and complex numbers are passed over."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((4, 500, 2, 3))
    rates = np.full((4, 500), 0.9)
    rates[:, 1:] = np.where(x[:, :-1, 1, 2] > 1.0, 0.1, 0.9)
    draws = {"fixed": np.ones((4, 500)), "complex": x[..., 0, 0] + 1j, "x": x}
    found = falling_acceptance(draws, rates)
    assert found.name == "x[1,2]"
    assert found.end == "highest"
    assert found.at_end == pytest.approx(0.1)
    assert found.elsewhere > 0.8
    assert falling_acceptance({"x": -x}, rates).end == "lowest"
    assert falling_acceptance({"fixed": draws["fixed"]}, rates) is None
    assert falling_acceptance(draws, np.ones((4, 500))) is None
    after = np.where(x[:, :, 1, 2] > 1.0, 0.1, 0.9)
    assert falling_acceptance(draws, after).correlation < 0.1


def test_heavy_tails_are_no_funnel():
    """Energies are slow there too, but proposals are accepted."""
    generator = np.random.default_rng(1)
    slow = np.cumsum(generator.standard_normal((4, 500)), axis=1)
    stats = {"energy": slow, "acceptance_rate": generator.uniform(0.7, 1.0, (4, 500))}
    titles = [finding.title for finding in check({"x": slow}, stats)]
    assert "Energy explored slowly" in titles
    assert "A funnel" not in titles
    stats["acceptance_rate"][:, 1:][slow[:, :-1] < np.quantile(slow, 0.3)] = 0.1
    assert "A funnel" in [finding.title for finding in check({"x": slow}, stats)]


def test_reference_draws_are_used_where_they_are(suite, tmp_path):
    """Ten chains of a thousand, as in posteriordb; their standard deviations are compared too."""
    x = 3.0 + 2.0 * np.random.default_rng(2).standard_normal((10, 1000))
    zip_json(tmp_path / "draws" / "draws" / "a-b.json.zip", [{"beta[1]": chain.tolist()} for chain in x])
    reference = suite.read_reference(tmp_path, "a-b")
    assert reference.source == "draws"
    mean, error = reference.mean["beta[1]"]
    assert mean == pytest.approx(x.mean())
    assert error == pytest.approx(0.02, rel=0.2)
    y = 3.0 + 2.4 * np.random.default_rng(3).standard_normal((4, 1000))
    found = suite.errors({"beta[1]": y}, reference)
    assert abs(found["mean of beta[1]"]) < 4 < found["sd of beta[1]"]


def test_a_missing_file_is_named_with_the_way_to_get_it(suite, checkout):
    with pytest.raises(FileNotFoundError, match=r"arK-arK\.json is missing.*git clone https://github\.com/stan-dev"):
        suite.read(checkout, "arK-arK")


@pytest.fixture
def main(suite, monkeypatch):
    """The benchmark with arguments."""
    import posteriordb

    def run(*arguments) -> None:
        monkeypatch.setattr("sys.argv", ["posteriordb.py", *map(str, arguments)])
        posteriordb.main()

    return run


def test_the_benchmark_says_how_to_get_the_data(main, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main("--data", tmp_path)
    assert "has no folder posterior_database. --data must be a checkout" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.relaxed
def test_the_benchmark_keeps_its_rows(main, checkout, tmp_path, capsys):
    """Those of other samplers too; posteriors whose files are missing are named."""
    out = tmp_path / "figures.json"
    for sampler in ("nuts", "numpyro, dense"):
        main("--data", checkout, "--posteriors", "gp_regr", "arK", "--samplers", sampler, "--out", out)
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [(row["posterior"], row["sampler"]) for row in rows] == [
        ("gp_pois_regr-gp_regr", "nuts"),
        ("gp_pois_regr-gp_regr", "numpyro, dense"),
    ]
    for row in rows:
        assert abs(row["largest_error"]["in_standard_errors"]) < row["bound"]
        assert 1 < row["gradients_per_draw"] < 20
    assert "arK-arK: left out: " in capsys.readouterr().out
