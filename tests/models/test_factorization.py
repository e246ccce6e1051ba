"""Low-rank factorisation of ratings: density, recovery with coverage, names, unknown users, errors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import halfnorm, multivariate_normal, norm

from geodax.app.factorization.files import read_new_pairs
from geodax.app.families import FAMILIES, run_kind
from geodax.diagnostics import rhat
from geodax.models import LowRankFactorization
from geodax.models.factorization import density, least_squares
from geodax.models.factorization.predictive import as_pairs, places
from tests.marks import slow

M, N, R = 30, 20, 2


@pytest.fixture(scope="module")
def ratings():
    """A matrix of rank 2 with offsets, of which 60 % is seen, in ratings around 3.5; users have names."""
    generator = np.random.default_rng(0)
    left, right = (np.linalg.qr(generator.standard_normal((k, R)))[0] for k in (M, N))
    matrix = 25.0 * left @ np.diag([1.0, 0.6]) @ right.T
    matrix += 3.5 + 0.5 * generator.standard_normal((M, 1)) + 0.5 * generator.standard_normal((1, N))
    users, items = np.nonzero(np.ones((M, N)))
    order = generator.permutation(M * N)
    pairs = np.stack([np.array([f"u{k:02d}" for k in users]), items.astype(str)], axis=1)[order]
    truth = matrix.ravel()[order]
    observed = truth + 0.4 * generator.standard_normal(M * N)
    return pairs, truth, observed, 360


@pytest.fixture(scope="module", params=["svd", slow("bottleneck")])
def fitted(request, ratings):
    pairs, _, observed, seen = ratings
    model = LowRankFactorization(
        R,
        factorization=request.param,
        interaction_scale=0.8,
        num_warmup=1000,
        num_samples=50,
        thinning=40,
        random_state=0,
    )
    return model.fit(pairs[:seen], observed[:seen])


@pytest.mark.thorough
def test_recovers_a_low_rank_matrix(fitted, ratings):
    """On entries that were not seen: small errors, and intervals that hold the truth as often as they say."""
    pairs, truth, observed, seen = ratings
    draws = fitted.predict_draws(pairs[seen:])
    error, width = draws.mean(axis=0) - truth[seen:], draws.std(axis=0)
    assert np.sqrt(np.mean(error**2)) < 0.35
    assert 0.7 < np.sqrt(np.mean((error / width) ** 2)) < 1.4
    low, high = fitted.predict_quantiles(pairs[seen:])
    inside = np.mean((low <= observed[seen:]) & (observed[seen:] <= high))
    assert abs(inside - 0.9) < 4 * np.sqrt(0.09 / (M * N - seen))
    noise = fitted.spread_ * np.exp(fitted.posterior_["posterior"]["log_noise"].values)
    assert abs(noise.mean() - 0.4) < 4 * noise.std() + 0.01
    if fitted.factorization == "svd":
        group = fitted.posterior_["posterior"]
        gram = np.swapaxes(group["left"].values, -1, -2) @ group["left"].values
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(R), gram.shape), atol=2e-5)
        assert (np.diff(group["scales"].values, axis=-1) < 0).all()


@pytest.mark.parametrize("offsets", [True, False])
def test_least_squares_beside_the_model(ratings, offsets):
    """The last factor solves its ridge regressions; the error of cross-validation is that of new ratings."""
    pairs, truth, observed, seen = ratings
    model = LowRankFactorization(R, offsets=offsets)
    form, (users, items, single) = model.prepare(pairs[:seen], observed[:seen])
    standardised = single.astype(float)
    fit = least_squares.cross_validated(users, items, standardised, form)
    assert least_squares.PENALTIES[0] < fit.penalty < least_squares.PENALTIES[-1]
    assert np.any(fit.offsets[0]) == offsets
    for item in range(form.num_items):
        rows, user = fit.left[users[items == item]], users[items == item]
        rest = standardised[items == item] - fit.mean - fit.offsets[0][user] - fit.offsets[1][item]
        np.testing.assert_allclose(rows.T @ (rest - rows @ fit.right[item]), fit.penalty * fit.right[item], atol=1e-9)
    found = fit.predict(*places(as_pairs(pairs[seen:]), model.users_, model.items_))
    error = model.spread_ * found + model.center_ - truth[seen:]
    assert np.sqrt(np.mean(error**2)) < (0.6 if offsets else 0.9)
    new = np.sqrt(np.mean((model.spread_ * found + model.center_ - observed[seen:]) ** 2))
    assert model.spread_ * fit.error == pytest.approx(new, rel=0.25)
    unknown = fit.predict(np.array([-1, -1, 3]), np.array([-1, 2, -1]))
    np.testing.assert_allclose(unknown, fit.mean + np.array([0.0, fit.offsets[1][2], fit.offsets[0][3]]))


@pytest.mark.thorough
def test_predictions_belong_together(fitted, ratings):
    pairs, _, observed, seen = ratings
    parts = fitted.predict_parts(pairs[seen:], observed[seen:])
    draws = fitted.predict_draws(pairs[seen:])
    np.testing.assert_allclose(parts.mean, draws.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(parts.epistemic, draws.var(axis=0), rtol=1e-6, atol=1e-9)
    noise = fitted.spread_ * np.exp(fitted.posterior_["posterior"]["log_noise"].values.ravel().astype(float))
    np.testing.assert_allclose(parts.aleatoric, np.mean(noise**2), rtol=1e-6)
    each = norm.logpdf(observed[seen:], draws, noise[:, None])
    np.testing.assert_allclose(parts.log_density, np.log(np.mean(np.exp(each), axis=0)), rtol=1e-8)
    again = LowRankFactorization(**fitted.get_params()).with_posterior(pairs[:seen], observed[:seen], fitted.posterior_)
    np.testing.assert_array_equal(again.predict(pairs), fitted.predict(pairs))


def test_unknown_users_have_the_prior(fitted):
    """Their mean is that of the items, their spread that of offsets and interactions drawn from the prior."""
    known = np.array([["u00", "3"], ["u07", "3"]])
    new = np.array([["nobody", "3"], ["nobody", "nothing"], ["u00", "nothing"]])
    np.testing.assert_array_equal(fitted.is_known(new), [[False, True], [False, False], [True, False]])
    mean, deviation = fitted.predict(new, return_std=True)
    assert (deviation > fitted.predict(known, return_std=True)[1].max()).all()
    posterior = {k: v.values.reshape(-1, *v.shape[2:]) for k, v in fitted.posterior_["posterior"].data_vars.items()}
    generator = np.random.default_rng(3)
    item = fitted.items_.tolist().index("3")
    simulated = []
    for _ in range(20):
        for k in range(len(posterior["intercept"])):
            if fitted.factorization == "svd":
                row = np.linalg.qr(generator.standard_normal((M, R)))[0][0] * posterior["scales"][k]
                row = row * generator.choice([-1.0, 1.0], R)
            else:
                row = generator.standard_normal(R) * np.sqrt(0.8 / np.sqrt(R))
            value = posterior["intercept"][k] + posterior["item_offset"][k, item] + row @ posterior["right"][k, item]
            noise = 0.5**2 + np.exp(2 * posterior["log_noise"][k])
            simulated.append(value + np.sqrt(noise) * generator.standard_normal())
    simulated = fitted.center_ + fitted.spread_ * np.array(simulated)
    assert abs(simulated.mean() - mean[0]) < 5 * deviation[0] / np.sqrt(len(simulated))
    np.testing.assert_allclose(simulated.std(), deviation[0], rtol=0.05)


SMALL = {"num_warmup": 4, "num_samples": 3, "thinning": 1, "num_chains": 2, "step_size": 1e-3, "random_state": 0}


@pytest.fixture(scope="module")
def numbered():
    """Users that are numbers, items that are strings, in one frame; fitted."""
    generator = np.random.default_rng(4)
    frame = pd.DataFrame({"who": generator.integers(0, 9, 80), "what": [f"i{k}" for k in generator.integers(0, 7, 80)]})
    y = frame["who"] + generator.standard_normal(80)
    return LowRankFactorization(R, **SMALL).fit(frame, y), frame, y


@pytest.mark.thorough
def test_names_keep_their_kind_in_every_container(numbered):
    """In a frame, an array of objects and lists of rows or tuples, numbers beside strings are numbers."""
    model, frame, y = numbered
    expected = model.predict(frame)
    assert model.users_.dtype.kind == "i"
    assert model.items_.dtype.kind == "U"
    rows = frame.to_numpy().tolist()
    typed = frame.astype({"who": "Int64", "what": "string"})
    categories, doubles = frame.astype({"what": "category"}), frame.astype({"who": float})
    for pairs in (
        frame.to_numpy(),
        rows,
        [tuple(row) for row in rows],
        typed,
        categories,
        doubles,
        frame.astype(object),
    ):
        assert model.is_known(pairs).all()
        np.testing.assert_array_equal(model.predict(pairs), expected)
        again = LowRankFactorization(R, **SMALL).with_posterior(pairs, y, model.posterior_)
        np.testing.assert_array_equal(again.predict(rows), expected)
    np.testing.assert_array_equal(model.is_known([[99, "i1"], [2.5, "i1"], [3, "new"]]), [[0, 1], [0, 1], [1, 0]])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (np.array([[3, "i2"]]), "users of the fit are numbers such as 0, found strings such as '3'"),
        ([["3", "i2"]], "users of the fit are numbers"),
        ([[3, 2]], "items of the fit are strings such as 'i0', found numbers such as 2"),
        ([[3, b"i2"]], "items of the fit are strings such as 'i0', found of type bytes"),
        ([[3, "i2"], ["4", "i2"]], "users must have one type, found numbers such as 3 and strings such as '4'"),
    ],
)
def test_names_of_another_kind_are_refused(numbered, pairs, words):
    model, _, _ = numbered
    for ask in (model.predict, model.is_known, model.predict_quantiles):
        with pytest.raises(ValueError, match=words):
            ask(pairs)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("side", [0, 1])
def test_missing_names_are_refused(numbered, missing, side):
    model, frame, y = numbered
    cells = frame.astype(object).to_numpy()
    cells[2, side] = missing
    words = f"1 of 80 {('users', 'items')[side]} are missing, the first in row 2"
    for pairs in (cells, cells.tolist(), pd.DataFrame(cells)):
        for ask in (model.predict, model.is_known, lambda x: LowRankFactorization(R, **SMALL).fit(x, y)):
            with pytest.raises(ValueError, match=words):
                ask(pairs)


@pytest.mark.parametrize("pairs", [np.array([[1.0, np.nan]]), np.ma.masked_equal([[1, 2]], 2)], ids=["nan", "masked"])
def test_missing_numbers_are_refused(pairs):
    with pytest.raises(ValueError, match="1 of 1 items are missing"):
        LowRankFactorization(R, **SMALL).fit(pairs, [1.0])


def test_levels_are_probabilities(numbered):
    model, frame, _ = numbered
    with pytest.raises(ValueError, match="a level must be at least 0 and at most 1"):
        model.predict_quantiles(frame, [5, 95])
    with pytest.raises(TypeError, match="a sequence of probabilities"):
        model.predict_quantiles(frame, 0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("factorization", density.FACTORIZATIONS)
def test_options_that_are_set_after_the_fit_are_for_the_next_one(numbered, factorization):
    """The prior of unknown users is that of the fit."""
    _, frame, y = numbered
    model = LowRankFactorization(R, factorization=factorization, **SMALL).fit(frame, y)
    new = [[99, "i1"], [1, "new"], [99, "new"]]
    before = model.predict(new, return_std=True)
    model.set_params(interaction_scale=5.0, offset_scale=5.0, rank=1)
    np.testing.assert_array_equal(model.predict(new, return_std=True), before)


@pytest.mark.parametrize("code", ["{:03d}", "x{:03d}", "{}.5"])
def test_codes_of_a_file_are_names(tmp_path, code):
    """Text in the fit as in the prediction, with zeros in front as with decimals, whatever else the column holds."""
    path, kind = tmp_path / "table.csv", run_kind("factorization")
    path.write_text("user,item,rating\n" + "".join(f"{code.format(k % 8)},{k % 5},{k % 3}.5\n" for k in range(40)))
    data, _ = kind.read(path, FAMILIES[kind.name].options(rank=2), None)
    model = kind.estimator({"options": {"rank": 2}, "seed": 0})
    model.prepare(*kind.arrays(data))
    assert model.users_.dtype.kind == model.items_.dtype.kind == "U"
    path.write_text(f"user,item\n{code.format(3)},2\n{code.format(7)},4\n99.25,2.5\n")
    pairs, _, _ = read_new_pairs(path, data)
    np.testing.assert_array_equal(model.is_known(pairs), [[True, True], [True, True], [False, False]])


@pytest.mark.thorough
@pytest.mark.parametrize("factorization", density.FACTORIZATIONS)
def test_density_by_hand(factorization):
    """Differences of the log density are those of the laws of the natural numbers, by scipy."""
    generator = np.random.default_rng(1)
    users, items = generator.integers(0, 5, 40), generator.integers(0, 4, 40)
    users[:5], items[:4] = np.arange(5), np.arange(4)
    ratings = generator.standard_normal(40)
    form = density.make_form(
        users, items, rank=R, factorization=factorization, has_offsets=True, interaction_scale=0.7, offset_scale=0.3
    )
    values = []
    for _ in range(2):
        natural: dict[str, Any] = {
            name: generator.standard_normal(k) for name, k in (("user_offset", 5), ("item_offset", 4))
        }
        natural |= {"intercept": generator.standard_normal(), "log_noise": generator.standard_normal()}
        left, right = generator.standard_normal((5, R)), generator.standard_normal((4, R))
        if factorization == "svd":
            left, right = np.linalg.qr(left)[0], np.linalg.qr(right)[0]
            natural["log_gaps"] = generator.standard_normal(R)
        theta = natural | {"left": left, "right": right}
        if factorization == "svd":
            theta["scales"] = np.cumsum(np.exp(theta.pop("log_gaps"))[::-1])[::-1]
        position = jax.tree.map(jnp.asarray, density.coordinates(theta, form))
        found = density.log_prior(position, form) + jnp.sum(
            density.log_likelihood(position, (jnp.asarray(users), jnp.asarray(items), jnp.asarray(ratings)), form)
        )
        expected = norm.logpdf(natural["intercept"]) + norm.logpdf(natural["log_noise"], -0.5, 1.0)
        expected += (
            norm.logpdf(natural["user_offset"], 0, 0.3).sum() + norm.logpdf(natural["item_offset"], 0, 0.3).sum()
        )
        if factorization == "svd":
            gaps = np.exp(natural["log_gaps"])
            matrix = left @ np.diag([gaps.sum(), gaps[1]]) @ right.T
            scales = [gaps.sum(), gaps[1]]
            expected += halfnorm.logpdf(scales, 0, 0.7 * np.sqrt(5 * 4 / R)).sum() + natural["log_gaps"].sum()
        else:
            matrix = left @ right.T
            expected += norm.logpdf(np.concatenate([left, right]), 0, np.sqrt(0.7 / np.sqrt(R))).sum()
        mean = natural["intercept"] + natural["user_offset"][users] + natural["item_offset"][items]
        expected += norm.logpdf(ratings, mean + matrix[users, items], np.exp(natural["log_noise"])).sum()
        values.append((float(found), float(expected)))
    np.testing.assert_allclose(values[0][0] - values[1][0], values[0][1] - values[1][1], rtol=1e-9)


def test_prior_size_of_the_interactions():
    """Entries of prior draws of W have the root mean square that the option says."""
    form = density.make_form(
        np.arange(M), np.arange(M) % N, rank=R, factorization="svd", has_offsets=False, interaction_scale=0.6,
        offset_scale=1.0,
    )  # fmt: skip
    scales = form.singular_value_scale * np.random.default_rng(0).standard_normal((2000, R))
    squares = np.sum(scales**2, axis=1) / (M * N)
    assert abs(squares.mean() - 0.36) < 4 * squares.std() / np.sqrt(2000)


@pytest.mark.thorough
@pytest.mark.parametrize("factorization", density.FACTORIZATIONS)
@pytest.mark.parametrize("sampler", ["sghmc", "nuts"])
def test_without_interactions_the_posterior_is_that_of_the_offsets(factorization, sampler):
    """Catches step sizes for the likelihood alone, with which a tight prior of the matrix stops all else."""
    generator, scale = np.random.default_rng(5), 0.5
    pairs = np.argwhere(generator.random((6, 5)) < 0.8)
    levels = generator.standard_normal(6)[pairs[:, 0]] + 0.6 * generator.standard_normal(5)[pairs[:, 1]]
    y = 3.0 + levels + 0.5 * generator.standard_normal(len(pairs))
    options: dict[str, Any] = {"factorization": factorization, "interaction_scale": 1e-3, "offset_scale": scale}
    options |= {"sampler": sampler} | (
        {"num_warmup": 500, "thinning": 2} if sampler == "nuts" else {"num_warmup": 1000}
    )
    model = LowRankFactorization(1, **options, num_samples=500, random_state=0).fit(pairs, y)
    mean, deviation = model.predict(pairs, return_std=True)

    alike = pairs[:, None] == pairs
    prior = 1.0 + scale**2 * alike.sum(axis=2)
    means, variances, logs = [], [], np.linspace(-4, 2, 300)
    weights = norm.logpdf(logs, -0.5, 1.0)
    z = (y - y.mean()) / y.std()
    for k, log_noise in enumerate(logs):
        covariance = prior + np.exp(2 * log_noise) * np.eye(len(y))
        gain = np.linalg.solve(covariance, prior).T
        means.append(gain @ z)
        variances.append(np.diag(prior - gain @ prior) + np.exp(2 * log_noise))
        weights[k] += multivariate_normal.logpdf(z, np.zeros(len(z)), covariance)
    weights = np.exp(weights - weights.max()) / np.exp(weights - weights.max()).sum()
    exact = weights @ np.array(means)
    spread = np.sqrt(weights @ (np.array(variances) + np.array(means) ** 2) - exact**2)
    # four to five standard errors of the thousand effective draws that there are at least, for some 24 pairs
    np.testing.assert_allclose(deviation / (y.std() * spread), 1.0, atol=0.1)
    np.testing.assert_allclose((mean - y.mean()) / (y.std() * spread), exact / spread, atol=0.15)


@pytest.mark.parametrize("factorization", density.FACTORIZATIONS)
def test_coordinates_are_those_of_the_parameters(factorization):
    """There and back; and the mean of all cells is a coordinate, which no offset nor the matrix changes."""
    pairs = np.argwhere(np.ones((6, 5)))
    scales = {"interaction_scale": 0.5, "offset_scale": 0.5}
    form = density.make_form(*pairs.T, rank=R, factorization=factorization, has_offsets=True, **scales)
    start = least_squares.SpectralStart(*pairs.T, np.random.default_rng(0).standard_normal(30), form)
    position = start(jax.random.key(0))
    theta = {name: np.asarray(x) for name, x in density.parameters(position, form).items()}
    for name, x in density.coordinates(theta, form).items():
        np.testing.assert_allclose(x, position[name], rtol=1e-10, atol=1e-13, err_msg=name)
    matrix = (theta["left"] * theta.get("scales", np.ones(R))) @ theta["right"].T
    cells = theta["intercept"] + theta["user_offset"][:, None] + theta["item_offset"] + matrix
    np.testing.assert_allclose(cells.mean(), form.factors["intercept"] * position["intercept"], atol=1e-12)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.5), ("step_size", 0.1), ("sampler", "hmc")])
def test_nuts_refuses_what_it_would_ignore(ratings, name, value):
    pairs, _, observed, _ = ratings
    with pytest.raises(ValueError, match=name):
        LowRankFactorization(R, **{"sampler": "nuts", name: value}).fit(pairs, observed)


@pytest.mark.thorough
def test_nuts_finds_noise_and_predictions(ratings):
    """Catches ratings, starts or draws in single precision."""
    pairs, truth, _, seen = ratings
    exact = truth[:seen] + 0.2 * np.random.default_rng(0).standard_normal(seen)
    model = LowRankFactorization(R, sampler="nuts", num_warmup=300, num_samples=200, thinning=1, random_state=0)
    draws = model.fit(pairs[:seen], exact).posterior_["posterior"]
    for name in ("log_noise", "intercept"):
        assert float(np.max(rhat(draws[name].values))) < 1.1, name
    assert draws["left"].dtype == np.float64
    predicted = model.predict_draws(pairs[seen:])
    error, width = predicted.mean(axis=0) - truth[seen:], predicted.std(axis=0)
    assert np.sqrt(np.mean(error**2)) < 0.25
    assert 0.7 < np.sqrt(np.mean((error / width) ** 2)) < 1.4


@pytest.mark.slow
def test_components_that_the_ratings_do_not_need_vanish():
    """A planted matrix of rank 2: with rank 8 the predictions are about as good as with rank 2, as least squares' are not."""
    generator = np.random.default_rng(0)
    truth = generator.standard_normal((60, 2)) @ generator.standard_normal((2, 40))
    users, items = np.nonzero(generator.random((60, 40)) < 0.5)
    ratings = 3 + truth[users, items] + 0.5 * generator.standard_normal(len(users))
    pairs, is_test = np.stack([users, items], axis=1), generator.random(len(users)) < 0.15
    errors = {}
    for rank in (2, 8):
        model = LowRankFactorization(rank, num_warmup=1500, num_samples=40, num_chains=2, random_state=0)
        model.fit(pairs[~is_test], ratings[~is_test])
        errors[rank] = np.sqrt(np.mean((model.predict(pairs[is_test]) - ratings[is_test]) ** 2))
    assert errors[8] < 1.1 * errors[2] < 1.1 * 0.7
    scales = model.posterior_["posterior"]["scales"].mean(("chain", "draw")).values
    assert scales[2:].max() < 0.3 * scales[1]


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"rank": 21}, lambda x, y: (x, y), "from 1 to 20"),
        ({"factorization": "qr"}, lambda x, y: (x, y), "factorization must be one of"),
        ({"interaction_scale": 0.0}, lambda x, y: (x, y), "interaction_scale must be a positive number"),
        ({"num_samples": 0}, lambda x, y: (x, y), "num_samples"),
        ({}, lambda x, y: (x[:, :1], y), "a user and an item in each row"),
        ({}, lambda x, y: (sparse.eye_array(3, 4), y), r"found shape \(3, 4\). Of a matrix of ratings, np.argwhere"),
        ({}, lambda x, y: (x, y[:-1]), "one for each pair"),
        ({}, lambda x, y: (x, y * np.nan), "non-finite"),
        ({}, lambda x, y: (x, 0 * y + 3), "all ratings are equal"),
    ],
)
def test_errors_of_the_input(ratings, options, change, words):
    pairs, _, observed, _ = ratings
    with pytest.raises(ValueError, match=words):
        LowRankFactorization(**{"rank": R} | options).fit(*change(pairs, observed))


def test_columns_of_a_frame_are_those_of_the_fit(numbered):
    """Users and items that are both numbers could be taken for each other."""
    model, frame, y = numbered
    for ask in (model.predict, model.is_known, model.predict_quantiles):
        with pytest.raises(ValueError, match=r"'who' for users and 'what' for items, found 'what' and 'who'"):
            ask(frame[["what", "who"]])
    assert list(model.feature_names_in_) == ["who", "what"]
    again = LowRankFactorization(R, **SMALL).fit(frame, y)
    again.with_posterior(frame.to_numpy(), y, model.posterior_)
    assert not hasattr(again, "feature_names_in_")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


def test_ratings_may_be_a_column_of_a_frame(ratings):
    pairs, _, observed, _ = ratings
    expected = LowRankFactorization(R).prepare(pairs, observed)[1]
    found = LowRankFactorization(R).prepare(pairs, pd.DataFrame({"rating": observed}))[1]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
def test_times_are_names_whatever_their_units():
    days = pd.date_range("2020-01-01", periods=12, unit="s")
    pairs = pd.DataFrame({"day": days, "item": np.arange(12) % 4})
    model = LowRankFactorization(R, **SMALL).fit(pairs, np.arange(12.0))
    assert model.is_known(pairs.assign(day=days.as_unit("ns"))).all()
    assert not model.is_known(pairs.assign(day=days.as_unit("ns") + pd.Timedelta("1ns")))[:, 0].any()
