"""Classifier and regressor on the command line: the whole life of a run each."""

import dataclasses
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from geodax.app import main
from geodax.app.families import ClassifierOptions, run_kind
from geodax.models import BayesianMLPClassifier

_SMALL = ["--widths", "6", "--num-warmup", "300", "--num-samples", "8", "--thinning", "5", "--num-chains", "2"]
_SMALL += ["--no-progress"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two inputs, a text column, a constant one, classes with names, a number, and holes."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((90, 2)) * np.array([1.0, 50.0])
    level = 5 + 3 * x[:, 0] + 0.3 * generator.standard_normal(90)
    kinds = np.where(x[:, 1] > 0, "high, wet", "low")
    lines = ["site,dose,age,constant,kind,level"]
    lines += [
        f's{i % 3},{a:.4f},{b:.4f},1,"{k}",{c:.4f}'
        for i, (a, b, k, c) in enumerate(zip(*x.T, kinds, level, strict=True))
    ]
    lines[5] = "s1,,0.3,1,low,5.1"
    lines[9] = "s1,0.2,0.3,1,,NA"
    path = tmp_path_factory.mktemp("mlp") / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _predictions(run):
    import csv

    with open(run / "predictions.csv", newline="", encoding="utf-8") as handle:
        return list(csv.reader(handle))


def _errors(printed):
    """Root mean squared errors of the network, the linear model and the mean alone."""
    return map(float, re.search(r"^RMSE +(\S+) ± \S+ +(\S+) ± \S+ +(\S+) ±", printed, re.MULTILINE).groups())


def test_life_of_a_classifier(table, tmp_path, capsys):
    """Fit, resume with more draws, report, predict with and without the class."""
    run = tmp_path / "run"
    words = ["fit", "classifier", str(table), "--target", "kind", "--columns", "dose", "age", "--out", str(run)]
    assert main([*words, "--calibration-fraction", "0.3", *_SMALL]) == 0
    printed = capsys.readouterr().out
    assert "1 of 90 rows have no 'kind' and are left out." in printed
    assert "1 of 89 rows have missing inputs ('dose' 1). They are drawn from a joint normal" in printed
    assert re.search(r"18 held-out rows +network +logistic regression +base rates", printed)
    assert float(re.search(r"accuracy +(\d+\.?\d*) ±", printed)[1]) > 70
    assert printed.index("missing inputs") < printed.index("held-out rows  ") < printed.index("warning: ")
    assert "severe" not in printed
    summary = (run / "summary.csv").read_text()
    assert "weight" not in summary
    assert main(["resume", str(run), "--num-samples", "10", "--no-progress"]) == 0
    assert "2 chains of 10 draws" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    ordered = ("On 18 held-out rows the network predicts", "logistic regression", "The diagnostics found", "ROC curve")
    ordered += (
        "Confusion matrix",
        "Permutation importance",
        "Partial dependence",
        "normal, mean 0",
        "1 of 90 rows have",
    )
    places = [page.index(text) for text in (*ordered, "R-hat")]
    assert places == sorted(places)
    for text in ("Scores on 18 held-out rows", "Reliability", "epistemic", "high, wet", "--widths 6", "Conformal sets"):
        assert text in page
    assert main(["predict", str(run), str(table)]) == 0
    lines = _predictions(run)
    assert lines[0] == [
        *("row", "site", "kind", "p(high, wet)", "p(low)", "entropy", "aleatoric", "epistemic", "set_90%", "observed"),
        "log_probability",
    ]
    assert "" not in lines[5]
    assert lines[9][9:] == ["", ""]
    known = [line for i, line in enumerate(lines[1:], 1) if i != 9]
    assert np.mean([line[2] == line[9] for line in known]) > 0.8
    for line in known:
        p = dict(zip(("high, wet", "low"), map(float, line[3:5]), strict=True))
        assert abs(sum(p.values()) - 1) < 1e-5
        assert line[2] == max(p, key=p.__getitem__)
        np.testing.assert_allclose(float(line[10]), np.log(p[line[9]]), atol=1e-3)
    new = tmp_path / "new.csv"
    new.write_text("age,dose\n-80,0.3\n80,-0.3\n")
    assert main(["predict", str(run), str(new)]) == 0
    lines = _predictions(run)
    assert [line[1] for line in lines] == ["kind", "low", "high, wet"]
    new.write_text("age,amount\n0.1,-1\n0.2,2\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "'dose'" in capsys.readouterr().err


@pytest.mark.thorough
def test_life_of_a_regressor(table, tmp_path, capsys):
    """Fit, report, predict with and without the target."""
    run = tmp_path / "run"
    assert main(["fit", "regressor", str(table), "--target", "level", "--out", str(run), "--seed", "2", *_SMALL]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"noise +0\.", printed)
    assert "Left out: 'constant' (constant, always 1)." in printed
    assert "Categories: 'site' (3), 'kind' (2)." in printed
    error, _, plain = _errors(printed)
    assert error < 0.7 * plain
    config = json.loads((run / "config.json").read_text())
    indicators = [*(f"site=s{k}" for k in range(3)), "kind=high, wet", "kind=low"]
    assert config["columns"] == ["dose", "age", *indicators, "level"]
    kind = run_kind("regressor")
    rows = kind.load(run / "data.npz").train[0]
    for written, spread in (
        (config, 0.5),
        ({k: config[k] for k in ("options", "seed")}, np.nanstd(rows[:, 2:], axis=0)),
    ):
        model = kind.fitted(written, kind.load(run / "data.npz"), None)  # a run of an earlier version has its own
        np.testing.assert_allclose(model.spread_, [*np.nanstd(rows[:, :2], axis=0), *np.broadcast_to(spread, 5)])
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    ordered = (
        "with R² = ",
        "linear model (ridge)",
        "The inputs that matter, the most important first: <code>dose</code>",
    )
    ordered += (
        "The diagnostics found",
        "Predicted mean",
        "Predictive intervals",
        "Calibration",
        "Permutation importance",
    )
    ordered += ("Partial dependence", "y = f(x) + noise", "1 of 90 rows have", "R-hat", "--target level")
    places = [page.index(text) for text in ordered]
    assert places == sorted(places)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", page)
    assert main(["predict", str(run), str(table)]) == 0
    lines = _predictions(run)
    assert lines[0][3:] == ["level", "sd", "5%", "95%", "mean_5%", "mean_95%", "observed", "log_predictive_density"]
    known = [line for i, line in enumerate(lines[1:], 1) if i not in (5, 9)]
    mean, sd, low, high, inner_low, inner_high, observed, _ = np.array([line[3:] for line in known], dtype=float).T
    assert (low < mean).all()
    assert (mean < high).all()
    assert (low < inner_low).all()
    assert (inner_high < high).all()
    assert (sd > 0).all()
    assert np.corrcoef(mean, observed)[0, 1] > 0.9
    assert "" not in lines[5]
    whole = {line[-2]: line for line in lines[1:]}
    capsys.readouterr()
    assert main(["predict", str(run)]) == 0  # the held-out rows
    assert "18 rows held out." in capsys.readouterr().out
    heading, *held_out = _predictions(run)
    assert heading == ["row", *lines[0][3:]]
    assert np.sqrt(np.mean([(float(line[1]) - float(line[-2])) ** 2 for line in held_out])) == pytest.approx(
        error, 0.01
    )
    assert [line[1:-2] for line in held_out] == [whole[line[-2]][3:-2] for line in held_out]
    is_test = kind.load(run / "data.npz").is_test
    assert [int(line[0]) for line in held_out] == (np.flatnonzero(is_test) + 1).tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("inference", ["mcmc", "laplace"])
def test_several_targets(inference, tmp_path, capsys):
    """Fit, show, report and predict: each target with its own units, scores and columns, and none of them as an input."""
    generator = np.random.default_rng(7)
    x = generator.standard_normal(90)
    both = np.c_[x + 0.2 * generator.standard_normal(90), 500 - 100 * x + 30 * generator.standard_normal(90)]
    lines = [f"{a:.4f},{b:.4f},{c:.2f}" for a, (b, c) in zip(x, both, strict=True)]
    lines[3], lines[5] = "0.1,,400", "0.1,0.2,"
    path, run = tmp_path / "table.csv", tmp_path / "run"
    path.write_text("\n".join(["dose,small,large", *lines]) + "\n")
    words = ["fit", "regressor", str(path), "--target", "small", "large", "--out", str(run), *_SMALL]
    assert main([*words, "--calibration-fraction", "0.3", "--inference", inference]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 of 90 rows have no 'small' or no 'large' and are left out." in printed
    for name, spread in (("small", 1.0), ("large", 100.0)):
        scores = re.search(rf"{name}, 18 held-out rows network .*? RMSE (\S+) ± \S+ \S+ ± \S+ (\S+) ±", printed)
        error, alone = float(scores[1]), float(scores[2])
        assert error < 0.7 * alone
        assert 0.5 * spread < alone < 2 * spread
    assert printed.count("The scores are rough") == 1
    found = re.search(r"noise of large (\S+) \S+ to \S+ (\S+) (\S+)", printed)
    assert 5 < float(found[1]) < 100
    assert ((found[2], found[3]) == ("–", "–")) == (inference == "laplace")  # has one noise a network
    assert "fit of small[0]" in (run / "summary.csv").read_text()
    assert json.loads((run / "config.json").read_text())["columns"] == ["dose", "small", "large"]
    assert main(["show", str(run)]) == 0
    assert "large, 18 held-out rows" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("small, large in table.csv", "detail: small", "matter: large", "--target small large", "of its own"):
        assert text in page
    assert main(["predict", str(run), str(path)]) == 0
    heading, *rows = _predictions(run)
    each = ["sd", "5%", "95%", "mean_5%", "mean_95%", "conformal_90%_lower", "conformal_90%_upper", "observed"]
    each += ["log_predictive_density"]
    names = [word for name in ("small", "large") for word in (name, *(f"{name}_{word}" for word in each))]
    assert heading == ["row", *names]
    found = dict(zip(heading, zip(*rows, strict=True), strict=True))
    assert (found["small_observed"][3], found["large_observed"][3]) == ("", "400")
    assert np.corrcoef(np.array(found["large"], float), x)[0, 1] < -0.9
    assert np.corrcoef(np.array(found["small"], float), x)[0, 1] > 0.9
    new = tmp_path / "new.csv"
    new.write_text("dose,large\n0,500\n1,\n")
    assert main(["predict", str(run), str(new)]) == 0
    assert [word for word in _predictions(run)[0] if "observed" in word] == ["large_observed"]


@pytest.mark.thorough
def test_categories_are_inputs(tmp_path, capsys):
    """Text and codes as columns of 0 and 1: kept in the run, known again in other files, explained where they are new."""
    generator = np.random.default_rng(3)
    city, code = generator.choice(["Köln", "York, NY", " Oslo"], 120), generator.choice(["01", "2", "x"], 120)
    effect = np.select([city == "Köln", city == "York, NY"], [4.0, -3.0], 0.0) + np.where(code == "01", 2.0, 0.0)
    y = effect + 0.1 * generator.standard_normal(120)
    rows = [f'"{a}",{b},{c:.3f}' for a, b, c in zip(city, code, y, strict=True)]
    table, run = tmp_path / "table.csv", tmp_path / "run"
    words = ["fit", "regressor", str(table), "--target", "y", "--out", str(run), *_SMALL]
    table.write_text("city,y\nOslo,1\nRome,2\nBari,3\nLima,4\n")
    assert main(words) == 1
    assert "--categories NAME" in capsys.readouterr().err
    table.write_text("\n".join(["city,code,y", *rows, '"",2,0.1']) + "\n", encoding="utf-8")
    assert main([*words, "--categories", "code"]) == 0
    printed = capsys.readouterr().out
    assert "1 of 121 rows have missing inputs ('city' 1)." in printed
    error, linear, plain = _errors(printed)
    assert error < 0.3 * plain
    assert linear < 0.2 * plain
    names = ["city=Köln", "city=Oslo", "city=York, NY", "code=01", "code=2", "code=x"]
    assert json.loads((run / "config.json").read_text())["columns"] == [*names, "y"]
    new = tmp_path / "new.csv"
    new.write_text('code,city\n01,Köln\n,\n2,Oslo\n2,Rome\n2,\nx,"York, NY"\n', encoding="utf-8")
    assert main(["predict", str(run), str(new)]) == 0
    printed = capsys.readouterr().out
    assert "Left out: 1 row without a value, on line 3." in printed
    assert "1 of 5 rows have new values of 'city', such as 'Rome'; they count as missing." in printed
    assert "2 of 5 rows have missing inputs ('city' 2)" in printed
    means, deviations = np.array([line[3:5] for line in _predictions(run)[1:]], float).T
    np.testing.assert_allclose(means[[0, 1, 4]], [6.0, 0.0, -3.0], atol=1.0)
    assert means[2] == means[3]
    assert deviations[2] > 2 * deviations[1]
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "--categories code" in page
    assert "missing inputs" in page
    assert "the most important first: <code>city</code>, <code>code</code>." in page
    assert "--widths 6" in page
    new.write_text("code\n01\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "no column 'city'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["whvi", "laplace"])
def test_life_of_a_variational_fit(table, tmp_path, capsys, inference):
    """Fit by Walsh-Hadamard layers, or the Laplace approximation; draw more, report."""
    run = tmp_path / "run"
    words = ["fit", "regressor", str(table), "--target", "level", "--inference", inference, "--out", str(run), *_SMALL]
    assert main(words) == 0
    assert main(["resume", str(run), "--num-samples", "10", "--no-progress"]) == 0
    printed = capsys.readouterr().out
    assert "2 chains of 10 draws" in printed
    assert f"--thinning 5 has no effect with --inference {inference}." in printed
    assert "2 networks were trained independently, and 10 weights" in printed
    assert main(["report", str(run)]) == 0
    assert f"--inference {inference}" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classifier"], "--target NAME"),
        (["classifier", "--target", "kinds"], "did you mean 'kind'"),
        (["classifier", "--target", "level"], "geodax fit regressor"),
        (["regressor", "--target", "kind"], "geodax fit classifier"),
        (["regressor", "--target", "level", "doses"], "no column 'doses' (did you mean 'dose'?)"),
        (["regressor", "--target", "level", "dose", "--drop", "dose"], "--drop includes the target 'dose'"),
        (["regressor", "--target", "level", "dose", "--weights", "dose"], "--weights 'dose' is also the target"),
        (["regressor", "--target", "level", "--columns", "level"], "Add columns to predict it from"),
        (["regressor", "--target", "level", "--drop", "sites"], "did you mean 'site'"),
        (["classifier", "--target", "kind", "--drop", "kind"], "--drop includes the target 'kind'"),
        (["classifier", "--target", "kind", "--drop", "site", "--categories", "site"], "both include 'site'"),
        (["classifier", "--target", "constant"], "1 different value"),
        (["classifier", "--target", "kind", "--widths", "a,b"], "comma-separated integers"),
        (["classifier", "--target", "kind", "--sampler", "sgrld", "--orthogonal"], "sghmc"),
        (["regressor", "--target", "level", "--test-fraction", "1"], "at least 0 and below 1"),
        (["regressor", "--target", "level", "--categories", "sites"], "did you mean 'site'"),
        (["regressor", "--target", "level", "--categories", "dose"], "2 to 100"),
        (["regressor", "--target", "level", "--categories", "constant"], "1 different value"),
        (["classifier", "--target", "kind", "--categories", "kind"], "includes the target"),
        (
            ["regressor", "--target", "level", "--likelihood", "heteroscedastic", "--noise", "3"],
            "--noise cannot be given",
        ),
        (["regressor", "--target", "level", "--likelihood", "log-normal"], "expects positive numbers"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, message):
    """What cannot be fitted leaves no folder behind."""
    assert main(["fit", words[0], str(table), *words[1:], "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("geodax: ")
    assert message in error
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_a_class_of_which_all_rows_are_held_out_is_named(tmp_path, capsys):
    """Scores are of the other rows, and said so; the rows that calibrate do not count as fitted."""
    kind, options = run_kind("classifier"), ClassifierOptions(target="kind", calibration_fraction=0.25)
    table, run = tmp_path / "table.csv", tmp_path / "run"
    x = np.random.default_rng(5).standard_normal(50)
    # of the rows in the order of their classes, every fifth from the third on is held out
    names = [*(f"d{k % 2}" for k in range(47)), "a", "a", "caught"]

    def is_set_aside(number):
        own = [*names[:number], "set aside", *names[number + 1 :]]
        table.write_text("x,kind\n" + "".join(f"{a:.4f},{b}\n" for a, b in zip(x, own, strict=True)))
        data, _ = kind.read(table, options, None)
        estimator = kind.estimator({"options": dataclasses.asdict(options), "seed": 0})
        estimator.prepare(*data.train)
        return set(own) - set(estimator.classes_) == {"caught", "set aside"}

    assert any(map(is_set_aside, range(47)))
    words = ["fit", "classifier", str(table), "--target", "kind", "--calibration-fraction", "0.25", *_SMALL]
    assert main([*words, "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "No fitted row has one of the classes 'caught', 'set aside', because all such rows" in printed
    assert "10 of the other 40 rows calibrate conformal predictions, 30 are fitted." in printed
    assert re.search(r"^9 held-out rows +network", printed, re.MULTILINE)
    assert "1 more held-out rows are of a class that no fitted row has." in printed
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("1 of 10 held-out rows has a class that no fitted", "30 rows fitted, 10 for calibration, 1 input"):
        assert text in page


def test_held_out_rows_have_the_classes_of_all(tmp_path):
    """A fifth of each class is held out, but for rounding: by chance, scores would be of other base rates."""
    table = tmp_path / "table.csv"
    names = np.random.default_rng(0).permutation([*"a" * 60, *"b" * 31, *"c" * 9])
    table.write_text("x,kind\n" + "".join(f"{k},{name}\n" for k, name in enumerate(names)))
    data, _ = run_kind("classifier").read(table, ClassifierOptions(target="kind"), None)
    again, _ = run_kind("classifier").read(table, ClassifierOptions(target="kind"), None, seed=0)
    others, _ = run_kind("classifier").read(table, ClassifierOptions(target="kind"), None, seed=1)
    np.testing.assert_array_equal(again.is_test, data.is_test)
    assert (others.is_test != data.is_test).any()
    for each in (data, others):
        assert {name: int((each.test[1] == name).sum()) for name in "abc"} == {"a": 12, "b": 6, "c": 2}


@pytest.mark.slow
def test_counts_and_ordered_classes(tmp_path, capsys):
    """Fit, report and predict: counts as counts, and classes in the given order with balanced weights."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, 120)
    visits = generator.poisson(np.exp(1 + x) * generator.gamma(3, 1 / 3, 120))
    grades = np.array(["low", "mid", "top"])[np.digitize(x + 0.3 * generator.logistic(size=120), [-0.5, 0.8])]
    path = tmp_path / "table.csv"
    path.write_text(
        "x,visits,grade\n" + "".join(f"{a:.4f},{b},{c}\n" for a, b, c in zip(x, visits, grades, strict=True))
    )
    run = tmp_path / "counts"
    words = ["fit", "regressor", str(path), "--target", "visits", "--drop", "grade", "--out", str(run)]
    assert main([*words, "--likelihood", "negative-binomial", "--calibration-fraction", "0.2", *_SMALL]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"24 held-out rows +network +linear model \(Poisson\) +mean alone", printed)
    assert "mean log probability" in printed
    assert "dispersion" in (run / "summary.csv").read_text()
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("negative binomial counts", "spread at random", "mean + α mean²", "--likelihood negative-binomial"):
        assert text in page
    assert main(["predict", str(run), str(path)]) == 0
    heading, *lines = _predictions(run)
    for name in ("5%", "95%", "conformal_90%_lower", "conformal_90%_upper"):
        values = np.array([float(line[heading.index(name)]) for line in lines])
        np.testing.assert_array_equal(values, np.round(values))
    assert "log_predictive_probability" in heading
    run = tmp_path / "grades"
    words = ["fit", "classifier", str(path), "--target", "grade", "--drop", "visits", "--likelihood", "ordinal"]
    assert main([*words, "--out", str(run), *_SMALL]) == 1
    assert "--class-order" in capsys.readouterr().err
    words += ["--class-order", "low", "mid", "top", "--class-weight", "balanced", "--out", str(run)]
    assert main([*words, *_SMALL]) == 0
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in (
        "3 ordered classes",
        "The order is low, mid, top",
        "--class-order low mid top --class-weight balanced",
    ):
        assert text in page


@pytest.mark.thorough
def test_prices_have_log_normal_noise(tmp_path, capsys):
    """Catches a missing hint, a linear model of the price itself, and a report that does not name the logarithm."""
    generator = np.random.default_rng(0)
    area = generator.uniform(20, 200, 150)
    price = np.exp(8 + 0.03 * area + 0.6 * generator.standard_normal(150))
    path, run = tmp_path / "table.csv", tmp_path / "run"
    path.write_text("area,price\n" + "".join(f"{a:.2f},{b:.2f}\n" for a, b in zip(area, price, strict=True)))
    words = ["fit", "regressor", str(path), "--target", "price", *_SMALL]
    assert main([*words, "--out", str(tmp_path / "normal")]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"'price' is very skewed: median [\d,]{3,5}00, largest value [\d,]+000\. Try", printed)
    assert "Try --likelihood log-normal" in printed
    assert main([*words, "--likelihood", "log-normal", "--calibration-fraction", "0.2", "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "skewed" not in printed
    assert "linear model (ridge, of logarithms)" in printed
    line = re.search(r"^mean log density +(.*)$", printed.replace("−", "-"), re.MULTILINE).group(1)
    (network, error), (linear, _), (alone, _) = (map(float, pair) for pair in re.findall(r"(\S+) ± (\S+)", line))
    exact = stats.lognorm(0.6, scale=np.exp(8 + 0.03 * area)).logpdf(price).mean()
    assert max(abs(linear - exact), abs(network - exact)) < 4 * error
    assert alone < linear - 0.2
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("log-normal noise", "the mean of log <code>price</code>", "log y = f(x) + noise"):
        assert text in page
    assert main(["predict", str(run), str(path)]) == 0
    heading, *lines = _predictions(run)
    ends = [[float(line[heading.index(f"conformal_90%_{end}")]) for line in lines] for end in ("lower", "upper")]
    assert min(ends[0]) > 0
    assert np.mean((ends[0] <= price) & (price <= ends[1])) > 0.75


@pytest.mark.thorough
def test_a_column_that_gives_the_class_away_is_pointed_out(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("x,code,kind\n" + "".join(f"{(7 * i) % 11},{i % 2},{'ab'[i % 2]}\n" for i in range(60)))
    assert main(["fit", "classifier", str(path), "--target", "kind", *_SMALL, "--out", str(tmp_path / "run")]) == 0
    assert "'code' separates the classes of all fitted rows." in (said := capsys.readouterr().out)
    assert "'x'" not in said


@pytest.mark.thorough
def test_targets_computed_from_inputs_and_counts_are_pointed_out(tmp_path, capsys):
    """Catches hints at numbers that are neither."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((80, 3))
    columns = {
        "a": x[:, 0],
        "b": x[:, 1],
        "c": x[:, 2],
        "total": np.round(x[:, 0] + 2 * x[:, 2], 4),
        "visits": generator.negative_binomial(1, 0.2, 80),
        "plain": x.sum(axis=1) + 0.01 * generator.standard_normal(80),
    }
    path = tmp_path / "table.csv"
    rows = zip(*columns.values(), strict=True)
    path.write_text(",".join(columns) + "\n" + "".join(",".join(f"{v:.4f}" for v in row) + "\n" for row in rows))
    said = {}
    for target in ("total", "visits", "plain"):
        words = ["fit", "regressor", str(path), "--target", target, "--columns", "a", "b", "c", target, *_SMALL]
        assert main([*words, "--out", str(tmp_path / target)]) == 0
        said[target] = capsys.readouterr().out
    assert "'total' is a sum of multiples of 'a', 'c'." in said["total"]
    assert "'visits' is very skewed" in said["visits"]
    assert "--likelihood negative-binomial" in said["visits"]
    assert "skewed" not in said["plain"] + said["total"]
    assert "multiples" not in said["plain"] + said["visits"]


@pytest.mark.thorough
def test_rows_have_weights(tmp_path, capsys, monkeypatch):
    """Twice as many rows of hardly any weight have the other class: without weights predictions are reversed."""
    x = np.random.default_rng(0).standard_normal(80)
    labels = np.where((x > 0) ^ (np.arange(80) % 2 == 1), "yes", "no")
    weights = np.array([3, 0.01, 0, 0.01])[np.arange(80) % 4]
    path, run = tmp_path / "table.csv", tmp_path / "run"
    rows = [f"{a:.4f},{label},{w}" for a, label, w in zip(x, labels, weights, strict=True)]
    path.write_text("\n".join(["x,answer,number", *rows]) + "\n")
    words = ["fit", "classifier", str(path), "--target", "answer", "--weights", "number", "--out", str(run)]
    assert main([*words, "--widths", "none", "--test-fraction", "0.1", *_SMALL[2:]]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "20 rows of weight 0 are left out. The fit and the scores weight rows by 'number' (0.01 to 3)." in printed
    # the held-out rows of large weight, and hardly one of the others
    assert "weighted held-out rows" in printed
    assert float(re.search(r"accuracy (\S+)", printed)[1]) > 99
    given, with_posterior = [], BayesianMLPClassifier.with_posterior

    def noted(self, X, y, posterior, sample_weight=None, *others):
        given.append(sample_weight)
        return with_posterior(self, X, y, posterior, sample_weight, *others)

    monkeypatch.setattr(BayesianMLPClassifier, "with_posterior", noted)
    assert main(["report", str(run)]) == 0
    new = tmp_path / "new.csv"
    new.write_text("x\n-2\n2\n")
    assert main(["predict", str(run), str(new)]) == 0
    assert [(len(w), w.min(), w.max()) for w in given] == [(54, 0.01, 3)] * 2
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "weighted means, as the fit is weighted" in page
    heading, low, high = _predictions(run)
    assert heading[:3] == ["row", "answer", "p(no)"]
    assert (low[1], high[1]) == ("no", "yes")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("wieghts", "no column 'wieghts'"),
        ("level", "--weights 'level' is also the target"),
        ("site", "--weights 'site' is text"),
        ("age", r"--weights 'age' has -\d\S* in row \d+ \(\d+ such rows\). Weights must be numbers of at least 0"),
    ],
)
def test_weights_are_checked(table, tmp_path, capsys, weights, message):
    run = tmp_path / "run"
    words = ["fit", "regressor", str(table), "--target", "level", "--weights", weights, "--out", str(run)]
    assert main(words) == 1
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
    assert not run.exists()


def test_a_missing_weight_is_named(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("x,y,n\n" + "".join(f"{i % 5},{i},{'' if i == 3 else 1 + i % 2}\n" for i in range(9)))
    assert main(["fit", "regressor", str(path), "--target", "y", "--weights", "n", "--out", str(tmp_path / "run")]) == 1
    assert "--weights 'n' has no weight in row 4 (1 such row)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.thorough
def test_many_classes_are_a_note_and_no_warning_of_a_library(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,kind\n" + "".join(f"{k * 13 % 31},k{k % 50}\n" for k in range(90)))
    command = [sys.executable, "-m", "geodax", "fit", "classifier", str(table), "--target", "kind", *_SMALL]
    process = subprocess.run([*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, check=False)
    assert process.returncode == 0
    assert "50 in all" in process.stdout
    assert "Warning" not in process.stderr
