"""The estimators as scikit-learn's users meet them.

Its own checks run in a process without the type checks of the tests: one of them hands arguments of any type to the
constructor and expects it to keep them.
"""

import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

from geodax import models
from geodax.models.run_arguments import all_or_nothing
from tests.models.prior import Prior

CHECK = """
from sklearn.utils.estimator_checks import check_estimator
from geodax.models import *

expected = {expected}
results = check_estimator({estimator}, on_skip=None, on_fail=None, expected_failed_checks=expected)
failed = {{r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped", "xfail")}}
assert not failed, failed
assert {{r["check_name"] for r in results if r["status"] == "xfail"}} == set(expected)
assert sum(r["status"] == "passed" for r in results) >= {least}
"""
_MLP = "((8,), num_warmup=400, num_samples=5, thinning=5, num_chains=1, random_state=0)"
_CCA = "(1, views=([0, 1], [2, 3]), pooling='complete', num_warmup=20, num_samples=10, num_chains=1)"
_COLUMNS = "Its data have two or three columns, but each of the two views needs two."
_GROUPS = (
    "It passes classes to fit, where they are the groups, but not to transform, which needs the groups of its rows."
)
OF_MLP = {
    "check_sample_weight_equivalence_on_dense_data": (
        "The log density is equal, but the sampler's step size and its held-out rows depend on the number of rows."
    )
}
OF_CCA = {
    "check_fit_score_takes_y": _COLUMNS,
    "check_estimators_overwrite_params": _COLUMNS,
    "check_dont_overwrite_parameters": _COLUMNS,
    "check_estimators_fit_returns_self": _COLUMNS,
    "check_readonly_memmap_input": _COLUMNS,
    "check_n_features_in_after_fitting": "It passes all columns to predict, which takes those of one view.",
    "check_estimators_dtypes": _GROUPS,
    "check_dtype_object": _GROUPS,
    "check_pipeline_consistency": _COLUMNS,
    "check_estimators_pickle": _COLUMNS,
    "check_f_contiguous_array_estimator": _COLUMNS,
    "check_transformer_data_not_an_array": _COLUMNS,
    "check_transformer_general": _COLUMNS,
    "check_transformer_preserve_dtypes": _COLUMNS,
    "check_methods_sample_order_invariance": _COLUMNS,
    "check_methods_subset_invariance": _COLUMNS,
    "check_dict_unchanged": _COLUMNS,
    "check_fit_idempotent": _COLUMNS,
    "check_fit_check_is_fitted": _COLUMNS,
    "check_n_features_in": _COLUMNS,
    "check_fit2d_predict1d": _COLUMNS,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "expected", "least"),
    [
        ("BayesianPCA(1, num_warmup=30, num_samples=30, num_chains=1, random_state=0)", {}, 41),
        (f"BayesianMLPClassifier{_MLP}", OF_MLP, 41),
        (f"BayesianMLPRegressor{_MLP}", OF_MLP, 41),
        ("UnitNetworkRegressor(2, num_warmup=60, num_samples=20, num_chains=1, random_state=0)", {}, 41),
        (f"HierarchicalCCA{_CCA}", OF_CCA, 22),
    ],
    ids=lambda value: value.split("(")[0] if isinstance(value, str) else "",
)
def test_checks_pass(estimator, expected, least):
    program = CHECK.format(estimator=estimator, expected=expected, least=least)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


WIDE = """
import numpy as np
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import validate_data
from geodax.models import HierarchicalCCA
from geodax.models.cca.inputs import split_views


class WideCCA(HierarchicalCCA):
    predict = property()

    def fit(self, X, y=None):
        return super().fit(X)

    def fit_transform(self, X, y=None):
        return self.fit(X).transform(X)

    def score(self, X, y=None):
        return super().score(X)

    def _views(self, X, *, reset):
        X = validate_data(self, X, reset=reset, dtype=float, ensure_all_finite="allow-nan", ensure_min_samples=3 if reset else 1)
        first = X[:, :2] if X.shape[1] > 1 else np.hstack([X, np.sin(3 * X)])
        return split_views("WideCCA", [first, np.cos(2 * first)], None)


check_estimator(WideCCA(1, pooling="complete", num_warmup=20, num_samples=10, num_chains=1, random_state=0), on_skip=None)
"""


@pytest.mark.slow
def test_cca_passes_all_checks_with_more_columns():
    """Functions of the columns are the second view, all rows are one group, and there is no prediction of one view."""
    process = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("name", models.__all__)
def test_a_fit_that_is_stopped_leaves_the_estimator_as_it_was(name, monkeypatch):
    """Catches predictions with the draws of the last fit and the standardisation of one that failed."""

    def stopped(self, *_):
        self.center_, self.posterior_ = 2.0, "new"
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(models, name), "prepare", stopped)
    model = getattr(models, name)()
    for state in ({}, {"center_": 1.0, "posterior_": "old"}):
        vars(model).update(state)
        before = dict(vars(model))
        with pytest.raises(KeyboardInterrupt):
            model.fit(None, None)
        assert vars(model) == before


@pytest.mark.parametrize("asked", [None, "2"])
def test_a_fit_has_one_thread_of_blas_unless_another_number_is_asked_for(asked, monkeypatch):
    """Catches fits that wait for threads which other processes hold up, and a setting of the user's that is changed."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)

    @all_or_nothing
    def fit(self):
        return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        assert fit(models.BayesianPCA()) == {1 if asked is None else 2}
        assert {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"} == {2}


def test_predictions_after_a_fit_that_failed(monkeypatch, tmp_path):
    """They are those of the last fit; and a fit that goes on from a folder has the seed with which it began."""
    x = np.random.default_rng(0).standard_normal((20, 2))
    model = models.BayesianMLPRegressor((), inference=Prior(), random_state=0).fit(x, x[:, 0])
    before = model.predict(x)
    with pytest.raises(ValueError, match="y is 1 in all rows"):
        model.fit(100 * x, np.ones(20))
    np.testing.assert_array_equal(model.predict(x), before)

    model = models.BayesianMLPRegressor((), inference=Prior(), checkpoint=str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Prior, "run", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.fit(x, x[:, 0])
    with pytest.raises(NotFittedError):
        model.predict(x)
    seed = model.seed_
    assert model.fit(x, x[:, 0]).seed_ == seed


X = np.random.default_rng(0).standard_normal((80, 4))
RUN = {"num_chains": 1, "num_warmup": 20, "num_samples": 10, "random_state": 0}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "methods"),
    [
        (models.BayesianPCA(2, **RUN), ("transform", "score_samples", "score_quantiles", "fill")),
        (models.BayesianMLPRegressor((), inference=Prior(), random_state=0), ("predict", "predict_draws")),
        (models.BayesianMLPClassifier((), inference=Prior(), random_state=0), ("predict_proba",)),
        (models.UnitNetworkRegressor(2, **RUN), ("predict",)),
        (models.HierarchicalCCA(1, views=([0, 1], [2, 3]), pooling="complete", **RUN), ("transform",)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "",
)
def test_other_numbers_of_rows_compile_nothing(model, methods, compilations):
    """Predictions of 5, 30 and 64 rows have one program, those of 1,025 another; rows have the same values in all."""
    targets = {models.BayesianMLPClassifier: X[:, 0] > 0, models.HierarchicalCCA: None}
    model.fit(X, targets.get(type(model), X[:, 0]))
    many = np.tile(X, (13, 1))[:1025]
    for method in methods:
        predict = getattr(model, method)
        expected = predict(X[:64])
        assert compilations or method != methods[0]
        compilations.clear()
        rows = list(expected.shape).index(64)
        for number in (5, 30):
            np.testing.assert_allclose(predict(X[:number]), expected.take(range(number), rows), rtol=1e-9, atol=1e-12)
        assert not compilations
        found = predict(many)
        assert found.shape[rows] == 1025
        for start in (0, 80, 960):
            np.testing.assert_allclose(found.take(range(start, start + 64), rows), expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.take(1024, rows), predict(many[1024:]).take(0, rows), rtol=1e-9, atol=1e-12)


class Doubled(Prior):
    """The same draws of networks whose outputs are doubled."""

    def form(self, problem):
        form = super().form(problem)
        return form._replace(apply=lambda position, x: 2 * form.apply(position, x))


def test_a_program_is_that_of_its_inference():
    model = models.BayesianMLPRegressor((3,), random_state=0, inference=Prior()).fit(X, X[:, 0])
    first = model.predict_draws(X)
    second = model.set_params(inference=Doubled()).fit(X, X[:, 0]).predict_draws(X)
    np.testing.assert_allclose(second - model.target_center_, 2 * (first - model.target_center_), rtol=1e-12)


DATES = pd.date_range("2020-01-01", periods=20, name="day")
FITS = {
    "BayesianPCA": lambda X: models.BayesianPCA().fit(X),
    "BayesianMLPRegressor": lambda X: models.BayesianMLPRegressor().fit(X, range(20)),
    "BayesianMLPClassifier": lambda X: models.BayesianMLPClassifier().fit(X, ["a", "b"] * 10),
    "UnitNetworkRegressor": lambda X: models.UnitNetworkRegressor().fit(X, range(20)),
    "HierarchicalCCA": lambda X: models.HierarchicalCCA().fit((X, np.ones((20, 2))), groups=["a", "b"] * 10),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("days", [DATES, DATES - DATES[0], DATES.tz_localize("UTC"), DATES.insert(1, pd.NaT)[:20]])
def test_dates_are_no_numbers(name, days):
    """Catches counts since 1970 in their place, and the smallest count for a missing date."""
    for other in (days, np.arange(20.0)):
        with pytest.raises(
            ValueError, match=f"{name}: .*(numbers, found 'day'|dates and times are none|Timestamp|Time)"
        ):
            FITS[name](pd.DataFrame({"day": days, "other": other}))


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
@pytest.mark.parametrize("name", [name for name in FITS if name != "HierarchicalCCA"])
def test_dates_of_other_libraries_are_no_numbers(name, library):
    """Catches microseconds since 1970 in place of dates in tables whose data types are not those of NumPy."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table if library == "pyarrow" else pytest.importorskip("polars").DataFrame
    for times in (pa.array(DATES.date), pa.array(DATES), pa.array(DATES - DATES[0]), pa.array(DATES.time)):
        with pytest.raises(ValueError, match=rf"{name}: expected numbers, found 'day' \("):
            FITS[name](table({"day": times, "other": np.arange(20.0)}))
    with pytest.raises(ValueError, match=rf"{name}: expected numbers, found 'town' \("):
        FITS[name](table({"town": ["x", "y"] * 10, "other": np.arange(20.0)}))


def test_masked_cells_are_missing():
    """Catches the value under the mask in their place."""
    data = np.random.default_rng(0).normal(size=(20, 3))
    is_masked = data > 1.5
    masked = np.ma.masked_array(np.where(is_masked, -999.0, data), mask=is_masked)
    for model in (models.BayesianPCA(), models.UnitNetworkRegressor()):
        args = () if isinstance(model, models.BayesianPCA) else (data[:, 0],)
        model.prepare(masked, *args)
        found = model.center_
        model.prepare(np.where(is_masked, np.nan, data), *args)
        np.testing.assert_array_equal(found, model.center_)
    with pytest.raises(ValueError, match="UnitNetworkRegressor: y has masked entries"):
        models.UnitNetworkRegressor().fit(data, np.ma.masked_less(data[:, 1], 0.0))


@pytest.mark.parametrize("name", ["BayesianPCA", "UnitNetworkRegressor", "BayesianMLPRegressor"])
def test_tables_in_any_order_of_memory_are_the_same(name):
    """Catches sums in another order, with which chains of a table of polars part from those of the same array."""
    data = np.random.default_rng(0).normal(size=(300, 6)) ** 3
    found = []
    for each in (data, np.asfortranarray(data), pd.DataFrame(np.asfortranarray(data))):
        model = getattr(models, name)()
        prepared = model.prepare(each, *(() if name == "BayesianPCA" else (data[:, 0],)))
        found.append(jax.tree.leaves((prepared, model.center_, model.spread_)))
    for other in found[1:]:
        jax.tree.map(np.testing.assert_array_equal, found[0], other)


def test_views_of_a_table_with_text_may_have_missing_cells():
    """Catches pandas' NA, which is no number, where text of another column makes all cells objects."""
    data = np.random.default_rng(0).normal(size=(20, 4))
    data[3, 1] = np.nan
    frame = pd.DataFrame(data, columns=[*"abcd"]).convert_dtypes().assign(town=["x", "y"] * 10)
    model, by_name = models.HierarchicalCCA(views=([0, 1], [2, 3])), models.HierarchicalCCA(views=(["a", "b"], [*"cd"]))
    expected, found = model.prepare(data, frame["town"])[0], by_name.prepare(frame, "town")[0]
    jax.tree.map(np.testing.assert_array_equal, expected, found)
    with pytest.raises(ValueError, match="view 2 must be an array of real numbers: dates and times are none"):
        by_name.fit(frame.assign(d=DATES), "town")


@pytest.mark.parametrize("as_list", [list, lambda y: np.array(y, dtype=object), pd.Series])
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_classes_are_named(as_list, missing):
    """Catches the error of scikit-learn about continuous values."""
    with pytest.raises(ValueError, match=r"Input y contains .* in 5 of 20 rows, the first of them row 3"):
        models.BayesianMLPClassifier().fit(np.zeros((20, 1)), as_list(["a", "b", "c", missing] * 5))


@pytest.mark.parametrize("name", ["BayesianMLPRegressor", "UnitNetworkRegressor"])
def test_scored_targets_are_numbers(name):
    """Catches values under a mask and counts of days, and a column of a table that the fit and the score take."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    is_mlp = name == "BayesianMLPRegressor"
    options = {"widths": (), "inference": Prior()} if is_mlp else {"n_hidden": 1, **RUN}
    model = getattr(models, name)(**options).fit(x, x[:, 0])
    if is_mlp:
        found = model.log_predictive(x, pd.DataFrame({"y": x[:, 0]}))
        np.testing.assert_array_equal(found, model.log_predictive(x, x[:, 0]))
    with pytest.raises(ValueError, match=f"{name}: y has masked entries"):
        model.log_predictive(x, np.ma.masked_less(x[:, 0], 0.0))
    with pytest.raises(TypeError, match="dates and times are none"):
        model.log_predictive(x, pd.Series(DATES))


def test_scored_labels_are_of_the_type_of_the_classes():
    x = np.random.default_rng(0).normal(size=(20, 2))
    model = models.BayesianMLPClassifier((), inference=Prior()).fit(x, pd.Series(["a", "b"] * 10))
    with pytest.raises(TypeError, match="expected labels such as 'a', found 1"):
        model.log_predictive(x, np.ones(20, int))
    with pytest.raises(ValueError, match="10 of 20 labels are missing, the first in row 1"):
        model.log_predictive(x, ["a", None] * 10)


def test_missing_groups_are_named():
    groups = np.array(["a", "b", "c", None] * 5, dtype=object)
    X = np.random.default_rng(0).normal(size=(20, 4))
    for fit in (
        lambda: models.BayesianMLPRegressor().fit(X, X[:, 0], groups=groups),
        lambda: models.HierarchicalCCA(views=([0, 1], [2, 3])).fit(X, groups),
    ):
        with pytest.raises(ValueError, match="5 of 20 groups are missing, the first in row 3"):
            fit()


def test_dates_are_no_targets_but_classes():
    X = np.random.default_rng(0).normal(size=(20, 2))
    for model in (models.BayesianMLPRegressor(), models.UnitNetworkRegressor()):
        with pytest.raises(ValueError, match=r"expected numbers, found y \(datetime64"):
            model.fit(X, DATES)
    with pytest.raises(TypeError, match="LowRankFactorization: y must be an array of real numbers: dates"):
        models.LowRankFactorization(2).fit(np.arange(40).reshape(20, 2), pd.Series(DATES))
    days = models.BayesianMLPClassifier().prepare(X, pd.Series(DATES[[0, 1]].repeat(10)))
    assert set(np.asarray(days[1]).tolist()) <= {0, 1}


@pytest.mark.parametrize("name", [name for name in FITS if name != "HierarchicalCCA"])
def test_columns_of_text_are_named(name):
    """Catches the error of scikit-learn, without the column; numbers as text and categories of numbers are numbers."""
    frame = pd.DataFrame({"size": np.arange(20.0), "town": ["x", "y"] * 10})
    with pytest.raises(ValueError, match=rf"{name}: expected numbers, found 'town' \(.*pandas.get_dummies"):
        FITS[name](frame)
