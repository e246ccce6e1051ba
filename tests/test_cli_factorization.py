"""Factorisation of ratings on the command line: the whole life of a run."""

import csv
import re

import numpy as np
import pytest

from geodax.cli import main

_SMALL = ["--rank", "2", "--num-warmup", "200", "--num-samples", "8", "--thinning", "5", "--num-chains", "2"]
_SMALL += ["--test-fraction", "0.25", "--no-progress"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Ratings of 8 items by 12 users with names, one without a rating, columns in another order."""
    generator = np.random.default_rng(0)
    level = generator.standard_normal(12)[:, None] + generator.standard_normal(8)[None] + 3
    lines = ["when,rating,userId,film"]
    for u, i in np.argwhere(generator.random((12, 8)) < 0.9):
        lines.append(f"{generator.integers(1, 9)},{level[u, i] + 0.3 * generator.standard_normal():.3f},person {u},{i}")
    lines[3] = "4,NA,person 0,1"
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _predictions(run):
    with open(run / "predictions.csv", newline="", encoding="utf-8") as handle:
        return list(csv.reader(handle))


def test_life_of_a_factorization(table, tmp_path, capsys):
    """Fit, resume, report, predict known and unknown users with and without ratings."""
    run = tmp_path / "run"
    assert main(["fit", "factorization", str(table), "--item", "film", "--out", str(run), *_SMALL]) == 0
    printed = capsys.readouterr().out
    assert "Users are in column 'userId', items in 'film', ratings in 'rating'." in printed
    assert re.search(r"1 of \d+ rows lack a value", printed)
    assert re.search(r"noise +0\.", printed)
    assert "left" not in (run / "summary.csv").read_text()
    assert main(["resume", str(run), "--num-samples", "10", "--no-progress"]) == 0
    assert "2 chains of 10 draws" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for text in ("held-out ratings", "Singular values", "--rank 2", "root mean squared error", "U diag(s) V^T"):
        assert text in page
    assert main(["predict", str(run), str(table)]) == 0
    lines = _predictions(run)
    assert lines[0] == [*("userId", "film", "rating", "sd", "5%", "95%", "known", "observed"), "log_predictive_density"]
    assert lines[3][:2] == ["person 0", "1"]
    assert lines[3][7:] == ["", ""]
    mean, _, low, high, observed = np.array(
        [[*line[2:6], line[7]] for i, line in enumerate(lines[1:], 1) if i != 3], dtype=float
    ).T
    assert (low < mean).all()
    assert (mean < high).all()
    assert np.corrcoef(mean, observed)[0, 1] > 0.9
    new = tmp_path / "new.csv"
    new.write_text("film,userId\n3,person 1\n3,somebody\n99,somebody\n99,person 1\n")
    assert main(["predict", str(run), str(new)]) == 0
    assert (
        "1 values of 'userId' were not in the fit; their rows have the prior's prediction." in capsys.readouterr().out
    )
    lines = _predictions(run)
    assert [line[6] for line in lines] == ["known", "both", "item", "neither", "user"]
    deviations = [float(line[3]) for line in lines[1:]]
    assert deviations[0] < deviations[1] < deviations[2]
    new.write_text("film,person\n3,1\n4,2\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "'userId' is not there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "usr"], "has no column 'usr'"),
        (["--rating", "userId"], "must be three columns"),
        (["--item", "film", "--rating", "when", "--user", "rating", "--rank", "50"], "from 1 to 8"),
        (["--user", "film", "--item", "when", "--rating", "userId"], "ratings must be numbers"),
        (["--item", "film", "--rank", "2", "--factorization", "qr"], "must be one of"),
        (["--item", "film", "--test-fraction", "1"], "share from 0"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, message):
    assert main(["fit", "factorization", str(table), *words, "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("geodax: ")
    assert message in error
    assert not (tmp_path / "run").exists()
