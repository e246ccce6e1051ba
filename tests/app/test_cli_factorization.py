"""Factorisation of ratings on the command line: the whole life of a run."""

import csv
import re
from types import SimpleNamespace

import numpy as np
import pytest

from geodax.app import main
from geodax.app.factorization.files import RatingTable, read_new_pairs, read_ratings
from geodax.app.factorization.run import FactorizationRun
from geodax.app.families import RatingsOptions, run_kind
from geodax.app.run_folder.files import load_data, save_data
from geodax.app.tables.dialect import Dialect
from geodax.data import TableError
from geodax.predict.numbers import NumberPredictions

_SMALL = ["--rank", "2", "--num-warmup", "200", "--num-samples", "8", "--thinning", "5", "--num-chains", "2"]
_SMALL += ["--test-fraction", "0.25", "--no-progress"]
_SETTLED = [*_SMALL, "--num-warmup", "1000", "--num-samples", "90", "--thinning", "20"]


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


@pytest.mark.thorough
def test_slow_chains_of_few_ratings_are_sent_to_nuts(table, tmp_path, capsys):
    """Catches advice that does not help, and a run by nuts that cannot be resumed."""
    run, words = tmp_path / "run", ["fit", "factorization", str(table), "--item", "film"]
    assert main([*words, "--out", str(tmp_path / "slow"), *_SMALL, "--seed", "1"]) == 0
    advised = re.search("`(--sampler nuts .*?)`", capsys.readouterr().out)
    assert advised
    assert main([*words, "--out", str(run), *_SMALL, *advised[1].split(), "--num-samples", "20"]) == 0
    assert "--sampler nuts" not in capsys.readouterr().out
    assert main(["resume", str(run), "--num-samples", "30", "--no-progress"]) == 0
    assert "2 chains of 30 draws" in capsys.readouterr().out


@pytest.mark.thorough
def test_life_of_a_factorization(table, tmp_path, capsys):
    """Fit, resume, report, predict known and unknown users with and without ratings."""
    run = tmp_path / "run"
    assert main(["fit", "factorization", str(table), "--item", "film", "--out", str(run), *_SETTLED]) == 0
    printed = capsys.readouterr().out
    assert "Users are in column 'userId', items in 'film', ratings in 'rating'." in printed
    assert re.search(r"1 of \d+ rows have missing values", printed)
    assert re.search(r"noise +0\.", printed)
    heading, *rows = (re.split("  +", line) for line in printed.split("\n") if "±" in line or "least squares" in line)
    scores = {name: cells for name, *cells in rows}
    assert heading[1:] == ["factorization", "least squares", "mean alone"]
    assert list(scores) == ["RMSE", "MAE", "mean log density"]
    plain, alone = (float(cell.split(" ± ")[0]) for cell in scores["RMSE"][1:])
    assert plain < 0.8 * alone
    assert "left" not in (run / "summary.csv").read_text()
    assert main(["resume", str(run), "--num-samples", "100", "--no-progress"]) == 0
    assert "2 chains of 100 draws" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    words = ("held-out ratings", "Singular values", "--rank 2", "RMSE is the root mean squared error", "U diag(s) V^T")
    for text in (
        *words,
        "are predicted with a root mean squared error of",
        "than that of the least squares",
        scores["RMSE"][1].split()[0],
    ):
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
    assert "1 value of 'userId' was not in the fit: its rows are predicted from the prior." in capsys.readouterr().out
    lines = _predictions(run)
    assert [line[6] for line in lines] == ["known", "both", "item", "neither", "user"]
    deviations = [float(line[3]) for line in lines[1:]]
    assert deviations[0] < deviations[1] < deviations[2]
    new.write_text("film,person\n3,1\n4,2\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "'userId' is missing" in capsys.readouterr().err
    assert main(["predict", str(run)]) == 0
    data = FactorizationRun().load(run / "data.npz")
    fitted = {tuple(pair) for pair in data.pairs[~data.is_test].tolist()}
    users, items = ({pair[side] for pair in fitted} for side in (0, 1))
    lines = _predictions(run)
    assert lines[0][2:] == ["rating", "sd", "5%", "95%"]
    missing = [tuple(line[:2]) for line in lines[1:]]
    assert len(set(missing)) == len(missing)
    assert set(missing) == {(user, item) for user in users for item in items} - fitted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--user", "usr"], "has no column 'usr'"),
        (["--rating", "userId"], "must be three columns"),
        (["--item", "film", "--rating", "when", "--user", "rating", "--rank", "50"], "from 1 to 8"),
        (["--user", "film", "--item", "when", "--rating", "userId"], "ratings must be numbers"),
        (["--item", "film", "--rank", "2", "--factorization", "qr"], "must be one of"),
        (["--item", "film", "--test-fraction", "1"], "at least 0 and below 1"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, message):
    assert main(["fit", "factorization", str(table), *words, "--out", str(tmp_path / "run")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("geodax: ")
    assert message in error
    assert not (tmp_path / "run").exists()


def _read(path, **options):
    return read_ratings(path, RatingsOptions(**{"test_fraction": 0.0} | options))


@pytest.mark.parametrize(
    "users",
    [
        ["9007199254740992", "9007199254740993", "9007199254740994", "9007199254740995"],
        ["007", "7", "1e3", "1000"],
        ["080442957X", "0061120081", "0141439513", "0743273567"],
    ],
)
def test_users_are_named_as_they_are_written(tmp_path, users):
    """Long numbers, zeros in front and a letter among digits keep users apart, in the fit as in the prediction."""
    path, new = tmp_path / "ratings.csv", tmp_path / "new.csv"
    lines = [f"{user},{item},{1 + (k + item) % 5}" for k, user in enumerate(users) for item in range(3)]
    path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
    data = _read(path)
    assert set(data.pairs[:, 0].tolist()) == set(users)
    new.write_text("\n".join(["user,item", *(f"{user},{k % 3}" for k, user in enumerate(users))]) + "\n")
    assert read_new_pairs(new, data)[0][:, 0].tolist() == users


@pytest.mark.parametrize(
    ("least", "largest", "advice"),
    [
        (1, 500, "suits the logarithms better"),
        (0, 500, "suits the logarithms of 1 + the counts"),
        (1, 5, ""),
        (0, 1, ""),
    ],
)
def test_numbers_of_plays_are_told_from_stars_and_likes(tmp_path, least, largest, advice):
    plays = np.ceil(np.exp(1.5 * np.random.default_rng(0).standard_normal(200))) - (1 - least)
    plays = (plays > 9) * 1.0 if largest == 1 else np.minimum(plays, largest)
    path = tmp_path / "plays.csv"
    lines = [f"{k % 20},{k // 20},{number:g}" for k, number in enumerate(plays)]
    path.write_text("\n".join(["user,item,plays", *lines]) + "\n")
    notes = [note for note in _read(path).notes if "'plays' is very skewed" in note]
    assert len(notes) == bool(advice)
    assert all(f"median {1 + least}" in note and advice in note for note in notes)


@pytest.mark.parametrize("write", [str, lambda day: f"2024-01-{day:02}"])
def test_the_latest_ratings_are_held_out(tmp_path, write):
    """Catches a pair that is rated again and stays together, columns by position that include the time, and its end."""
    path = tmp_path / "ratings.csv"
    days = np.random.default_rng(0).permutation(20) // 2 + 1
    lines = [f"{write(day)},u{k % 4},i{k % 3},{k % 5}" for k, day in enumerate(days)]
    path.write_text("\n".join(["when,who,what,mark", f"{write(1)},u1,i1,", *lines]) + "\n")
    data = _read(path, time="when", test_fraction=0.3)
    assert data.columns == ("who", "what", "mark")
    np.testing.assert_array_equal(data.is_test, days > 7)
    assert "6 of 20 ratings, the latest by 'when', are held out and predicted in the report." in data.notes
    with pytest.raises(TableError, match=r"no column 'whn'.*--time"):
        _read(path, time="whn")
    with pytest.raises(TableError, match="Times must be dates or numbers"):
        _read(path, time="who", user="when", item="what", rating="mark")


def test_whole_numbers_with_a_point_are_the_numbers(tmp_path):
    """As pandas writes a column in which a number is missing."""
    path, new = tmp_path / "ratings.csv", tmp_path / "new.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k % 3}.0,{k % 2},{k % 5}\n" for k in range(9)) + ",1,3\n")
    data = _read(path)
    assert set(data.pairs[:, 0].tolist()) == {"0", "1", "2"}
    assert any("1 of 10 rows have missing values" in note for note in data.notes)
    new.write_text("user,item\n2,1\n0.0,1\n")
    assert read_new_pairs(new, data)[0].tolist() == [["2", "1"], ["0", "1"]]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("movieId,userId,timestamp,rating", ("userId", "movieId", "rating")),
        ("stars,product_id,Customer ID,text", ("Customer ID", "product_id", "stars")),
        ("a,b,c,d", ("a", "b", "c")),
    ],
)
def test_columns_are_found_by_their_usual_names_or_all_by_their_places(tmp_path, header, columns):
    path = tmp_path / "ratings.csv"
    path.write_text(header + "\n" + "".join(f"{k % 4},{k % 3},{k % 5},{k}\n" for k in range(12)))
    assert _read(path).columns == columns


@pytest.mark.parametrize("header", [",A,B,C,D,E,F", "name,A,B,C,D,E,F"])
def test_a_table_with_a_column_for_each_item_is_no_list_of_ratings(tmp_path, header):
    """The first two items were read as items and ratings."""
    path = tmp_path / "wide.csv"
    path.write_text(header + "\n" + "".join(f"u{k},{k % 3},{k % 4},{k % 5},1,{k % 2},3\n" for k in range(12)))
    with pytest.raises(TableError, match="one row for each user and item"):
        _read(path)


def test_ratings_that_are_all_the_same_are_not_fitted(tmp_path):
    path = tmp_path / "likes.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k % 4},{k % 3},1\n" for k in range(12)))
    with pytest.raises(TableError, match="every rating in 'rating' is 1"):
        _read(path)


def test_an_index_is_no_user(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(",who,what,how\n" + "".join(f"{k},{k % 4},{k % 3},{k % 5}\n" for k in range(12)))
    assert _read(path).columns == ("who", "what", "how")
    assert _read(path, user="column 1", item="who", rating="how").columns == ("column 1", "who", "how")


def test_the_last_of_three_columns_is_what_the_others_are_not(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("thing,rating,user\n" + "".join(f"{k % 4},{k % 3},{k % 5}\n" for k in range(12)))
    assert _read(path).columns == ("user", "thing", "rating")


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        ("when,user,thing,rating", {}, "Use --item NAME"),
        ("when,user,thing,mark", {}, "Use --item NAME, --rating NAME"),
        ("when,who,thing,mark", {"user": "who"}, "Use --item NAME, --rating NAME"),
    ],
)
def test_no_column_is_guessed_beside_others_that_are_known(tmp_path, header, options, message):
    path = tmp_path / "ratings.csv"
    path.write_text(header + "\n" + "".join(f"{k},{k % 3},{k % 5},{k % 4}\n" for k in range(12)))
    with pytest.raises(TableError, match=message):
        _read(path, **options)


def test_a_test_fraction_that_leaves_too_little_is_named(tmp_path, capsys):
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"{k % 12},{k // 12},{k % 5}\n" for k in range(96)))
    words = ["fit", "factorization", str(path), "--test-fraction", "0.99", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    assert "leaves 1 of 96 rows to fit" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("times", [1, 3])
def test_pairs_are_held_out_as_a_whole(tmp_path, times):
    """A second rating of a pair that was fitted is no test of the fit."""
    rows = [f"u{i % 20},i{i // 20},{i % 5 + 1}" for i in range(200)]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(["user,item,rating", *rows * times]) + "\n")
    data = _read(path, test_fraction=0.2)
    held_out, fitted = ({tuple(pair) for pair in data.pairs[which]} for which in (data.is_test, ~data.is_test))
    assert not held_out & fitted
    assert data.is_test.sum() == (40 if times == 1 else 120)
    assert len({pair[0] for pair in held_out}) > 10  # of all users, by chance


def test_pairs_of_text_alone_are_predicted_and_missing_ones_left_empty(tmp_path):
    path, new, out = tmp_path / "ratings.csv", tmp_path / "new.csv", tmp_path / "out.csv"
    path.write_text("user,item,rating\n" + "".join(f"u{k % 3},i{k % 4},{k % 5}\n" for k in range(12)))
    data = _read(path)
    model = SimpleNamespace(
        predict_parts=lambda x, y=None: NumberPredictions(*np.ones((4, len(x))), 1),
        predict_quantiles=lambda x: np.ones((2, len(x))),
        is_known=lambda x: np.isin(x[:, :1], ["u0", "u1"]) & np.ones((1, 2), bool),
    )
    new.write_text("user,item\nu0,i1\n,i2\nu1,NA\nu7,i1\n")
    notes = run_kind("factorization").predict(data, model, new, out)
    assert out.read_text().splitlines()[1:] == [
        "u0,i1,1,1.4142135623730951,1,1,both",
        ",i2,,,,,",
        "u1,,,,,,",
        "u7,i1,1,1.4142135623730951,1,1,neither",
    ]
    assert notes[0] == "2 of 4 rows lack a user or an item and have no prediction."
    assert "1 value of 'user' was not in the fit" in notes[1]


def test_how_ratings_were_read_is_said(tmp_path):
    """In the fit and in a prediction: a thousand is much for a rating."""
    path = tmp_path / "ratings.csv"
    rows = "".join(f'{k % 4},{k % 3},"{1 + k % 5},344"\n' for k in range(12))
    path.write_text(f"user,item,rating\n{rows}")
    data = _read(path)
    words = "Commas in numbers were read as thousands separators, such as in '1,344' (line 2, column 'rating')."
    assert words in data.notes
    assert read_new_pairs(path, data)[2] == (words,)


@pytest.mark.parametrize(
    ("header", "options", "new", "words"),
    [
        ("item,user,rating", {}, "i1,u2", "'column 2' as 'user', 'column 1' as 'item'"),
        ("item,user,rating", {}, "i1,u2,3", "'column 2' as 'user', 'column 1' as 'item', 'column 3' as 'rating'"),
        (None, {"user": "column 2", "item": "column 1", "rating": "column 3"}, "i1,u2,3", None),
    ],
)
def test_columns_without_names_have_the_order_of_the_fit(tmp_path, header, options, new, words):
    """They were read as user and item, whatever the order of the fit, without a word."""
    path = tmp_path / "ratings.csv"
    rows = "".join(f"i{k % 4},u{k % 3},{k % 5}\n" for k in range(12))
    path.write_text(rows if header is None else f"{header}\n{rows}")
    data = _read(path, **options)
    path.write_text(f"{new}\ni3,u0{new[5:]}\n")
    dialect = Dialect(header=False)
    pairs, ratings, notes = read_new_pairs(path, data, dialect)
    assert pairs.tolist() == [["u2", "i1"], ["u0", "i3"]]
    assert (ratings is None) == (len(new) == 5)
    about = () if words is None else (f"Columns without names were read in the order of the fit: {words}.",)
    assert tuple(note for note in notes if "Columns without" in note) == about
    save_data(tmp_path / "data.npz", data)
    assert read_new_pairs(path, load_data(tmp_path / "data.npz", RatingTable), dialect)[0].tolist() == pairs.tolist()


def test_columns_without_names_beside_one_that_is_left_out(tmp_path):
    """A fit to the second to fourth column, and new pairs in two: that was an error without an explanation."""
    path = tmp_path / "ratings.csv"
    path.write_text("".join(f"{k},{k % 3},{k % 4},{k % 5}\n" for k in range(12)))
    data = _read(path, user="column 2", item="column 3", rating="column 4")
    path.write_text("2,1\n0,3\n")
    pairs, ratings, notes = read_new_pairs(path, data)
    assert (pairs.tolist(), ratings) == ([["2", "1"], ["0", "3"]], None)
    assert notes == (
        "Columns without names were read in the order of the fit: 'column 1' as 'column 2', 'column 2' as 'column 3'.",
    )
