"""The ReLU network on the command line: a whole life of a run."""

import json
import re

import numpy as np
import pytest

from geodax.app import main

_SMALL = ["--n-hidden", "2", "--num-warmup", "40", "--num-samples", "30", "--num-chains", "2", "--no-progress"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two inputs, a text column, a constant one, an empty one, and two rows with holes."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((40, 2))
    y = 5 + np.maximum(0, x[:, 0]) + 0.1 * generator.standard_normal(40)
    lines = ["site,dose,age,constant,empty,response"]
    lines += [f"s{i % 3},{a:.4f},{b:.4f},1,,{c:.4f}" for i, (a, b, c) in enumerate(np.c_[x, y])]
    lines[5] = "s1,,0.3,1,,5.1"
    lines[9] = "s1,0.2,0.3,1,,NA"
    path = tmp_path_factory.mktemp("unit") / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.thorough
def test_life_of_a_unit_network(table, tmp_path, capsys):
    """Fit, report, predict with and without the target."""
    run = tmp_path / "run"
    assert (
        main(["fit", "unit-network", str(table), "--target", "response", "--out", str(run), "--seed", "1", *_SMALL])
        == 0
    )
    printed = capsys.readouterr().out
    assert re.search(r"r2 +0\.", printed)
    assert "weights[" not in printed
    assert "noise is in units of the standard deviation of 'response', 0." in printed
    left_out = "Columns left out: 'site' (text, such as 's0' on line 2), 'constant' (constant, always 1), 'empty' (all"
    assert printed.count("eft out") == 2  # the other is of the row without a target
    assert left_out in printed
    config = json.loads((run / "config.json").read_text())
    assert config["columns"] == ["dose", "age", "response"]
    assert "1 of 40 rows have no 'response' and are left out." in config["notes"]
    assert any(note.startswith("1 of 39 rows have missing inputs ('dose' 1).") for note in config["notes"])
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for words in (
        "the 38 rows without missing inputs; the fit is to all 39",
        "table.csv",
        "--target response",
        "can explain (R²) is",
        "fraction of variance explained",
        "unit 2",
        "skewness",
        "dose",
    ):
        assert words in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", page)
    assert main(["predict", str(run), str(table)]) == 0
    lines = [line.split(",") for line in (run / "predictions.csv").read_text().splitlines()]
    assert lines[0][:4] == ["row", "site", "response", "sd"]
    assert lines[0][-1] == "log_predictive_density"
    assert lines[9][-1] == ""
    values = np.array([line[2:] for i, line in enumerate(lines[1:], 1) if i != 9], dtype=float)
    mean, deviation, low, high, inner_low, inner_high, _ = values.T
    assert (low < inner_low).all()
    assert (inner_low < mean).all()
    assert (mean < inner_high).all()
    assert (inner_high < high).all()
    assert (deviation > 0).all()
    new = tmp_path / "new.csv"
    new.write_text("age,dose\n0.1,-1\n0.2,2\n")
    assert main(["predict", str(run), str(new)]) == 0
    lines = [line.split(",") for line in (run / "predictions.csv").read_text().splitlines()]
    assert lines[0] == ["row", "response", "sd", "5%", "95%", "mean_5%", "mean_95%"]
    assert float(lines[1][1]) < float(lines[2][1])
    for text in ("age,dose\n0.2,2\n0.1,-1\n", "age,dose\n0.2,2\n0.2,2\n"):  # rows say nothing of each other
        new.write_text(text)
        assert main(["predict", str(run), str(new)]) == 0
        again = [line.split(",") for line in (run / "predictions.csv").read_text().splitlines()]
        np.testing.assert_allclose(np.array(again[1][1:], float), np.array(lines[2][1:], float), rtol=1e-9)
    capsys.readouterr()
    new.write_text("age,dose\n0.2,2\n0.2,2\n")
    assert main(["predict", str(run), str(new)]) == 0
    assert "left out" not in capsys.readouterr().out
    new.write_text("age,amount\n0.1,-1\n0.2,2\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "'dose'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--target NAME"),
        (["--target", "respones"], "did you mean 'response'"),
        (["--target", "constant"], "no numeric column 'constant' that varies"),
        (["--target", "response", "--columns", "response"], "Add columns to predict it from"),
        (["--target", "response", "--columns", "dose", "--bias", "separate"], "only a sign"),
        (["--target", "response", "--weights", "round"], "must be one of"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, message):
    """What cannot be fitted leaves no folder behind."""
    assert main(["fit", "unit-network", str(table), *words, "--out", str(tmp_path / "run"), *_SMALL]) == 1
    error = capsys.readouterr().err
    assert error.startswith("geodax: ")
    assert message in error
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("outlier", [0.0, 30.0])
def test_an_outlier_is_what_the_fitted_model_does_not_reproduce(outlier, tmp_path, capsys):
    generator = np.random.default_rng(3)
    x = generator.standard_normal(200)
    y = x + generator.standard_normal(200)
    y[7] += outlier
    path = tmp_path / "table.csv"
    np.savetxt(path, np.c_[x, y], delimiter=",", header="x,y", comments="")
    assert (
        main(["fit", "unit-network", str(path), "--target", "y", "--out", str(tmp_path / "run"), "--json", *_SMALL])
        == 0
    )
    titles = [finding["title"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert ("Data that the fitted model does not reproduce" in titles) == bool(outlier)
