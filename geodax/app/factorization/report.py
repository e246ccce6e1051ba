"""The HTML report of a low-rank factorization of ratings."""

from pathlib import Path

import numpy as np

from geodax.app.factorization.draws import identified_draws
from geodax.app.factorization.files import RatingTable
from geodax.app.factorization.scores import ABOUT, LEAST_SQUARES, rating_scores
from geodax.app.family import RunFacts, statistics
from geodax.app.report import scored
from geodax.app.report.drawing import draw_intervals, finish, labelled, panel
from geodax.app.report.html import Report
from geodax.app.report.numbers import interval_of
from geodax.app.report.parts import begin, end
from geodax.models.factorization.estimator import LowRankFactorization

_MOST_SCALES = 20


def write_factorization(model: LowRankFactorization, data: RatingTable, run: RunFacts, path: Path) -> None:
    """Write the report on the ratings, including those held out."""
    number = int(np.sum(~data.is_test))
    report = Report(
        f"{data.columns[2]} in {Path(run.config['file']).name}",
        subtitle=f"Factorisation of rank {model.rank}: {number} ratings, {len(model.items_)} x {data.columns[1]}, "
        f"{len(model.users_)} x {data.columns[0]}",
    )
    begin(report, _answer(model, data), run)
    product = "U diag(s) V^T, orthonormal U and V" if model.factorization == "svd" else "A B^T, ordinary factors"
    offsets = " + offset of the user + offset of the item" if model.offsets else ""
    report.code(f"rating = mean{offsets} + W + noise\nW      = {product}, rank {model.rank}")
    drawn = identified_draws(model, data)
    _held_out(report, model, data)
    report.section("The matrix")
    rows = [["standard deviation of the noise", interval_of(drawn["noise"])]]
    if "scales" in drawn:
        size = model.spread_ / np.sqrt(len(model.users_) * len(model.items_))
        strength = size * np.sqrt(np.sum(drawn["scales"] ** 2, axis=-1))
        rows.append(["root mean square of the entries of W", interval_of(strength)])
    report.table(rows, ["quantity", "median and 90 % interval"], "In the units of the ratings.")
    if "scales" in drawn:
        shown = min(model.rank, _MOST_SCALES)
        figure, ax = panel(0.8 + 0.22 * shown)
        values = size * drawn["scales"].reshape(-1, model.rank)
        draw_intervals(ax, [f"{k + 1}" for k in range(shown)], list(values.T[:shown]))
        labelled(ax, x="root mean square contribution to a rating")
        report.figure(finish(figure), "Singular values: median, 50 % and 90 % interval.")
    end(report, drawn, statistics(model), run)
    report.write(path)


def _answer(model: LowRankFactorization, data: RatingTable) -> str:
    found = rating_scores(model, data)
    if not found:
        noise = interval_of(identified_draws(model, data)["noise"])
        return f"The fitted ratings deviate from the predictions by a standard deviation of {noise} (90 % interval)."
    score = scored.score_text("RMSE", next(iter(found["RMSE"].values())))
    return (
        f"Held-out ratings are predicted with a root mean squared error of {score} (± is one standard error). "
        f"{scored.compared('RMSE', found['RMSE'], LEAST_SQUARES)}"
    ).strip()


def _held_out(report: Report, model: LowRankFactorization, data: RatingTable) -> None:
    report.section("Held-out ratings")
    pairs, y = data.pairs[data.is_test], data.ratings[data.is_test]
    if len(y) == 0:
        report.text("No ratings were held out. Use `--test-fraction` to hold some out.")
        return
    found = rating_scores(model, data)
    is_known = model.is_known(pairs).all(axis=1)
    scored.write(report, found, f"Scores on {len(y):,} held-out ratings.")
    report.text(ABOUT)
    if not is_known.all():
        report.text(
            f"{int(np.sum(~is_known))} of them are of users or items without a fitted rating. Their predictions come "
            "from the prior."
        )
    intervals = {p: model.predict_quantiles(pairs, [(1 - p) / 2, (1 + p) / 2]) for p in scored.LEVELS}
    report.table(
        scored.coverage(intervals, y),
        ["interval", "held-out ratings inside", "mean width"],
        "Intervals of new ratings.",
    )
