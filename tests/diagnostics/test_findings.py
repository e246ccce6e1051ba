"""Diagnostics against ArviZ on the same draws, against known answers, and the words made of them."""

import csv
import dataclasses
import inspect
import logging
import math
import re

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import geodax as gx
from geodax.diagnostics.findings import check, e_bfmi, ess, mcse, rhat, summarize

ESS_METHODS = ("bulk", "tail", "mean", "sd", "median", "mad", "folded", "identity")
HEADINGS = ["name", "mean", "sd", "5%", "50%", "95%", "mcse_mean", "ess_bulk", "ess_tail", "rhat"]
RTOL = 1e-8


def autoregressive(generator, coefficient, shape):
    """Stationary AR(1) chains of unit variance, shape (chain, draw, ...)."""
    noise = generator.standard_normal(shape)
    x = noise.copy()
    for t in range(1, shape[1]):
        x[:, t] = coefficient * x[:, t - 1] + np.sqrt(1 - coefficient**2) * noise[:, t]
    return x


def cases():
    """Draws by name, (chain, draw): what samplers give and what breaks estimators."""
    generator = np.random.default_rng(20)
    ar = {
        f"ar({coefficient}) {shape}": autoregressive(generator, coefficient, shape)
        for coefficient in (-0.95, -0.5, 0.0, 0.5, 0.99)
        for shape in ((4, 500), (1, 500), (3, 101), (2, 12), (5, 7))
    }
    normal = generator.standard_normal((4, 200))
    constant_chain = normal.copy()
    constant_chain[2] = 0.3
    with_nan = normal.copy()
    with_nan[1, 17] = np.nan
    with_infinity = normal.copy()
    with_infinity[0, 3] = -np.inf
    return ar | {
        "4 draws": normal[:, :4],
        "5 draws": normal[:, :5],
        "6 draws, one chain": normal[:1, :6],
        "too few draws": normal[:, :3],
        "shifted chains": normal + np.arange(4)[:, None],
        "scaled chains": normal * 3.0 ** np.arange(4)[:, None],
        "random walks": np.cumsum(normal, axis=1),
        "heavy tails": generator.standard_cauchy((4, 200)),
        "alternating": np.tile([1.0, -1.0], (4, 50)) + 1e-3 * normal[:, :100],
        "ties": np.round(normal, 1),
        "two values": np.sign(normal),
        "counts": generator.poisson(1.0, (4, 150)).astype(float),
        "constant": np.full((4, 100), 0.1),
        "constant, one chain": np.full((1, 100), 7.0),
        "one constant chain": constant_chain,
        "tiny": 1e-9 * normal,
        "far from zero": 1e6 + normal,
        "NaN": with_nan,
        "infinity": with_infinity,
    }


CASES = cases()
IN_A_USUAL_UNIT = {"tiny": 2.0**30}
"""What draws are multiplied by for ArviZ, which takes squares that differ by less than 1e-15 for equal."""


@pytest.fixture
def quiet_arviz():
    """ArviZ without its remarks on draws it can make nothing of."""
    logging.disable(logging.WARNING)
    with np.errstate(all="ignore"):
        yield arviz
    logging.disable(logging.NOTSET)


# Against ArviZ


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz", "ignore::RuntimeWarning:numpy")
@pytest.mark.parametrize("method", ESS_METHODS)
@pytest.mark.parametrize("case", CASES)
def test_ess_is_that_of_arviz(quiet_arviz, case, method):
    prob = {"prob": (0.05, 0.95)} if method == "tail" else {}
    expected = quiet_arviz.ess(IN_A_USUAL_UNIT.get(case, 1.0) * CASES[case], method=method, **prob)
    np.testing.assert_allclose(ess(CASES[case], method=method), expected, rtol=RTOL)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz", "ignore::RuntimeWarning:numpy")
@pytest.mark.parametrize("case", CASES)
def test_rhat_is_that_of_arviz(quiet_arviz, case):
    np.testing.assert_allclose(rhat(CASES[case]), quiet_arviz.rhat(CASES[case]), rtol=RTOL)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz", "ignore::RuntimeWarning:numpy")
@pytest.mark.parametrize(
    ("case", "method"),
    # The sd of constant draws is left out: rounding over rounding, 0 / 0 in exact arithmetic.
    [(case, method) for case in CASES for method in ("mean", "sd", "median") if (case, method) != ("constant", "sd")],
)
def test_mcse_is_that_of_arviz(quiet_arviz, case, method):
    unit = IN_A_USUAL_UNIT.get(case, 1.0)
    expected = quiet_arviz.mcse(unit * CASES[case], method=method) / unit
    np.testing.assert_allclose(mcse(CASES[case], method=method), expected, rtol=1e-6, atol=1e-15)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz", "ignore::RuntimeWarning:numpy")
@pytest.mark.parametrize("prob", [0.05, 0.31, 0.9])
@pytest.mark.parametrize("case", CASES)
def test_quantiles_are_those_of_arviz(quiet_arviz, case, prob):
    for ours, theirs in ((ess, quiet_arviz.ess), (mcse, quiet_arviz.mcse)):
        expected = theirs(CASES[case], method="quantile", prob=prob)
        found = ours(CASES[case], method="quantile", prob=prob)
        np.testing.assert_allclose(found, expected, rtol=RTOL, atol=1e-15)


@pytest.mark.parametrize("scale", [2.0**-200, 2.0**-40, 2.0**60])
def test_the_unit_of_the_draws_does_not_matter(scale):
    """Catches a tolerance that is not a share of the draws; ArviZ takes what differs by less than 1e-15 for constant."""
    draws = autoregressive(np.random.default_rng(11), 0.6, (4, 300))
    for method in ESS_METHODS:
        np.testing.assert_allclose(ess(scale * draws, method=method), ess(draws, method=method), rtol=1e-12)
    for method in ("mean", "sd", "median"):
        expected = mcse(draws, method=method)
        np.testing.assert_allclose(mcse(scale * draws, method=method) / scale, expected, rtol=1e-12)
    np.testing.assert_allclose(rhat(scale * draws), rhat(draws), rtol=1e-12)


def test_draws_that_are_equal_but_for_rounding_are_constant():
    """Wherever they are; and what differs by more is not, however far from zero."""
    normal = np.random.default_rng(12).standard_normal((4, 300))
    for at in (0.0, 0.1, -7e5, 3e-30, 1e200):
        assert ess(np.full((4, 300), at), method="mean") == 1200
        assert ess(np.where(normal > 0, at, np.nextafter(at, np.inf)) if at else 0 * normal, method="mean") == 1200
    slow = autoregressive(np.random.default_rng(13), 0.9, (4, 300))
    np.testing.assert_allclose(ess(1e6 + 1e-3 * slow, method="mean"), ess(slow, method="mean"), rtol=1e-3)
    assert np.isnan(ess(np.where(normal > 3, np.inf, normal), method="mean"))


def test_e_bfmi_is_that_of_arviz():
    energy = autoregressive(np.random.default_rng(0), 0.9, (3, 400))
    np.testing.assert_allclose(e_bfmi(energy), arviz.bfmi(energy), rtol=1e-12)


def test_every_trailing_index_is_worked_on_alone():
    draws = autoregressive(np.random.default_rng(1), 0.7, (3, 61, 2, 5))
    draws[0, 0, 1, 3] = np.nan
    for function in (ess, rhat, mcse, *(lambda x, m=m: ess(x, method=m) for m in ESS_METHODS)):
        found = function(draws)
        assert found.shape == (2, 5)
        expected = [[function(draws[:, :, i, j]) for j in range(5)] for i in range(2)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert np.isnan(found).sum() == 1


def test_many_variables_are_worked_on_in_blocks_that_fit_together():
    draws = np.random.default_rng(2).standard_normal((2, 1000, 1100))
    found = ess(draws)
    for index in (0, 523, 524, 525, 1099):
        np.testing.assert_allclose(found[index], ess(draws[:, :, index]), rtol=1e-12)


@pytest.mark.parametrize("function", [ess, rhat, mcse])
def test_single_precision_and_integers_are_upcast(function):
    draws = autoregressive(np.random.default_rng(3), 0.5, (4, 200)).astype(np.float32)
    np.testing.assert_array_equal(function(draws), function(draws.astype(np.float64)))
    counts = np.round(10 * draws).astype(np.int32)
    np.testing.assert_array_equal(function(counts), function(counts.astype(np.float64)))


# Known answers


@pytest.mark.parametrize("coefficient", [-0.6, 0.0, 0.5, 0.9])
def test_the_ess_of_an_autoregression_is_known(coefficient):
    draws = autoregressive(np.random.default_rng(4), coefficient, (4, 4000, 20))
    expected = draws[:, :, 0].size * (1 - coefficient) / (1 + coefficient)
    found = ess(draws, method="mean")
    # Of 20 estimates, each with an error of about 5 %.
    assert abs(found.mean() / expected - 1) < 0.08
    np.testing.assert_allclose(mcse(draws), np.sqrt(1 / expected), rtol=0.25)
    spread = draws.mean(axis=(0, 1)).std(ddof=1)
    assert 0.6 < spread / mcse(draws).mean() < 1.5


def test_rhat_sees_shifts_scales_and_trends():
    normal = np.random.default_rng(5).standard_normal((4, 1000))
    assert rhat(normal) < 1.01
    assert rhat(normal + np.array([[0.0], [0.0], [0.0], [1.0]])) > 1.05
    assert rhat(normal * np.array([[1.0], [1.0], [1.0], [3.0]])) > 1.05
    assert rhat(normal + np.linspace(0, 2, 1000)) > 1.05


def test_rhat_of_chains_that_stand_still_apart_is_infinite():
    for num_draws in range(4, 60):
        assert rhat(np.repeat([[0.1], [0.7], [0.3]], num_draws, axis=1)) == math.inf


def test_e_bfmi_of_independent_energies_is_two_and_of_slow_ones_small():
    generator = np.random.default_rng(6)
    assert np.abs(e_bfmi(generator.standard_normal((3, 5000))) - 2).max() < 0.15
    assert e_bfmi(autoregressive(generator, 0.95, (3, 5000))).max() < 0.15


# Arguments that make no sense: the functions themselves, without the type checker of the tests around them


@pytest.mark.parametrize(
    ("function", "arguments", "options", "message"),
    [
        (ess, (np.ones(10),), {}, r"\(chain, draw, \.\.\.\), found shape \(10,\).*draws\[None\]"),
        (rhat, (np.ones((2, 10), complex),), {}, r"real draws, found dtype complex128.*draws\.real"),
        (ess, (np.ones((2, 10)),), {"method": "median_"}, r"one of the methods bulk, tail.*'median_'"),
        (mcse, (np.ones((2, 10)),), {"method": "bulk"}, r"one of the methods mean, sd.*'bulk'"),
        (ess, (np.ones((2, 10)),), {"method": "quantile"}, r"prob between 0 and 1, found None"),
        (mcse, (np.ones((2, 10)),), {"method": "quantile", "prob": 1.2}, r"found 1\.2"),
        (ess, (np.ones((2, 10)),), {"prob": 0.5}, r"only used with method='quantile'"),
        (e_bfmi, (np.ones(10),), {}, r"\(chain, draw\).*energy\[None\]"),
        (summarize, ({},), {}, r"at least one variable"),
        (summarize, ({"a": np.ones(3)},), {}, r"found \(3,\) for 'a'"),
        (summarize, ({"a": np.ones((2, 4)), "b": np.ones((2, 5))},), {}, r"'a' \(2, 4\), 'b' \(2, 5\)"),
        (check, ({"a": np.ones((2, 9))}, {"energy": np.ones(9)}), {}, r"'energy'.*\(chain, draw\).*\(9,\)"),
    ],
)
def test_senseless_arguments_are_refused_with_a_way_out(function, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments, **options)


@pytest.mark.parametrize("function", [ess, rhat, mcse, e_bfmi, gx.diagnostics.align_signs])
def test_functions_of_one_variable_name_it_in_place_of_a_whole_tree(function):
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), np.ones((2, 9)))})})
    for several in (tree, tree["posterior"], tree["posterior"].to_dataset()):
        with pytest.raises(TypeError, match=r'expected one variable, found a Data.*d\["posterior"\]\["x"\]'):
            inspect.unwrap(function)(several)


# The table


@pytest.fixture
def draws():
    """Independent draws, about which there is nothing to say."""
    generator = np.random.default_rng(7)
    return {
        "scale": 1 + 0.1 * generator.standard_normal((4, 500, 2)),
        "angle": generator.standard_normal((4, 500)).astype(np.float32),
        "matrix": generator.standard_normal((4, 500, 2, 2)) + 1j,
    }


@pytest.fixture
def stats():
    """Statistics of a sampler in good order."""
    generator = np.random.default_rng(8)
    return {
        "acceptance_rate": generator.uniform(0.7, 1.0, (4, 500)),
        "is_divergent": np.zeros((4, 500), bool),
        "energy": generator.standard_normal((4, 500)),
        "num_integration_steps": generator.integers(1, 8, (4, 500)),
        "residual": np.full((4, 500), 1e-15),
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz")
def test_the_summary_is_that_of_arviz(draws):
    real = {"scale": draws["scale"], "angle": draws["angle"].astype(np.float64)}
    dataset = arviz.convert_to_dataset(real)
    expected = arviz.summary(dataset, round_to="none")
    tail = arviz.ess(dataset, method="tail", prob=(0.05, 0.95))
    rows = {row.name: row for row in summarize(real)}
    assert list(rows) == ["scale[0]", "scale[1]", "angle"]
    for name, row in rows.items():
        reference = expected.loc[name]
        for ours, theirs in (
            ("mean", "mean"),
            ("sd", "sd"),
            ("mcse_mean", "mcse_mean"),
            ("ess_bulk", "ess_bulk"),
            ("rhat", "r_hat"),
        ):
            np.testing.assert_allclose(getattr(row, ours), reference[theirs], rtol=1e-6)
    ess_tail = [rows[f"scale[{i}]"].ess_tail for i in range(2)] + [rows["angle"].ess_tail]
    np.testing.assert_allclose(ess_tail, [*tail["scale"], tail["angle"]], rtol=1e-6)
    np.testing.assert_allclose(rows["angle"][3:6], np.quantile(real["angle"], (0.05, 0.5, 0.95)), rtol=1e-12)


def test_complex_numbers_have_two_rows_and_a_constant_part_no_rhat(draws):
    summary = summarize(draws)
    assert [row.name for row in summary][3:] == [
        f"matrix[{i},{j}].{part}" for part in ("real", "imag") for i in range(2) for j in range(2)
    ]
    assert summary["matrix[1,0].imag"].mean == 1.0
    assert summary["matrix[1,0].imag"].sd == 0.0
    assert math.isnan(summary["matrix[1,0].imag"].rhat)
    with pytest.raises(KeyError, match=r"no row 'matrix'; it begins with scale\[0\]"):
        summary["matrix"]


def test_the_summary_is_read_back_from_csv_with_all_digits(draws, tmp_path):
    summary = summarize(draws)
    summary.to_csv(tmp_path / "summary.csv")
    with open(tmp_path / "summary.csv", newline="", encoding="utf-8") as file:
        headings, *lines = csv.reader(file)
    assert headings == HEADINGS
    assert [line[0] for line in lines] == [row.name for row in summary]
    numbers = np.array([list(map(float, line[1:])) for line in lines])
    np.testing.assert_array_equal(numbers, [row[1:] for row in summary])


def test_the_summary_prints_as_a_table(draws, stats):
    lines = str(summarize(draws, stats)).splitlines()
    assert lines[0].split() == HEADINGS
    assert lines[1].startswith("scale[0]")
    assert len({len(line) for line in lines[:12]}) == 1
    assert lines[12] == "4 chains of 500 draws"
    assert "divergences: 0" in lines
    many = str(summarize({"x": np.random.default_rng(0).standard_normal((2, 10, 100))}))
    assert "and 60 more rows" in many


def test_a_summary_of_two_draws_is_nan_where_nothing_can_be_said():
    row = summarize({"x": np.array([[1.0, 2.0]])})["x"]
    assert row.mean == 1.5
    assert math.isnan(row.ess_bulk)
    assert math.isnan(row.rhat)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_a_variable_without_entries_has_nothing_to_say(draws, shape, tmp_path):
    """As a coefficient of no group: the others are summarised and checked as without it."""
    draws = {"none": np.zeros((4, 500, *shape)), **draws}
    alone = {name: values for name, values in draws.items() if name != "none"}
    for options in ({}, {"num_superchains": 2}):
        assert repr(summarize(draws, **options)) == repr(summarize(alone, **options))
        assert check(draws, **options) == check(alone, **options) == []
    draws["scale"][0] = 1.0
    assert titles(check(draws))[0] == "A variable that never moved in some chains"
    empty = summarize({"none": np.zeros((4, 500, *shape))})
    assert len(empty) == 0
    assert str(empty).splitlines()[1:] == ["4 chains of 500 draws"]
    empty.to_csv(tmp_path / "summary.csv")
    assert check({"none": np.zeros((4, 500, *shape))}) == []


# The words


def titles(findings):
    return [finding.title for finding in findings]


def test_a_run_in_good_order_has_no_findings(draws, stats):
    assert check(draws, stats, max_num_integration_steps=1023) == []
    assert check(draws) == []


@pytest.mark.parametrize(
    ("name", "index", "value", "severity", "title", "detail"),
    [
        (
            "is_divergent",
            np.s_[0, :3],
            True,
            "warning",
            "Divergent trajectories",
            r"3 of 2000 .* \(0\.15 %\)",
        ),
        (
            "is_divergent",
            np.s_[0, :50],
            True,
            "severe",
            "Divergent trajectories",
            r"50 of 2000 .* \(2\.5 %\)",
        ),
        (
            "energy",
            np.s_[2],
            np.linspace(0, 9, 500),
            "warning",
            "Energy explored slowly",
            r"of chain 2 is as low as 0\.00",
        ),
        ("num_integration_steps", np.s_[:, :9], 1023, "note", "Trajectories cut", r"36 of 2000"),
        (
            "num_integration_steps",
            np.s_[:, :90],
            1023,
            "warning",
            "Trajectories cut",
            r"360 of 2000 .* \(18 %\)",
        ),
        ("is_divergent", np.s_[:], True, "severe", "Divergent trajectories", r"2000 of 2000 .* \(100 %\)"),
        ("residual", np.s_[2, 5], 1e-6, "severe", "Draws off the manifold", r"1 of 2000 .* by 1\.0e-06"),
        ("residual", np.s_[2, 5], np.nan, "severe", "Draws off the manifold", r"1 of 2000"),
        ("is_finite", np.s_[3, 9], False, "severe", "Non-finite steps", r"1 of 2000"),
        ("gradient_scale", np.s_[1, :60], 0.4, "warning", "Clipped gradients", r"69 of 2000 .* to 0\.4 of its length"),
    ],
)
def test_each_fault_of_the_sampler_is_named(draws, stats, name, index, value, severity, title, detail):
    stats["is_finite"], stats["gradient_scale"] = np.ones((4, 500), bool), np.ones((4, 500))
    stats["gradient_scale"][0, :9] = 0.5  # too few to matter
    stats[name][index] = value
    (finding,) = check(draws, stats, max_num_integration_steps=1023)
    assert finding.severity == severity
    assert re.search(detail, finding.detail)
    assert str(finding).startswith(f"{severity}: {title}")
    assert finding.advice.endswith(".")


@pytest.mark.thorough
def test_a_density_that_bounds_no_step_is_named(key):
    """An improper one, whose chains are never turned back."""
    tree = gx.sample(
        key,
        gx.hmc(lambda x: 0.0 * jnp.sum(x), num_integration_steps=2),
        jnp.zeros(2),
        num_samples=50,
        num_warmup=300,
        num_chains=2,
        progress=False,
    )
    arrays = [{name: v.values for name, v in tree[group].data_vars.items()} for group in ("posterior", "sample_stats")]
    assert "Unbounded step size" in titles(check(*arrays))


ROUNDED = "Beyond the precision of the numbers"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "size", "is_named"), [(jnp.float32, 1e8, True), (jnp.float32, 1e4, False), (jnp.float64, 1e8, False)]
)
def test_a_log_density_beyond_its_precision_is_named(key, dtype, size, is_named):
    """Catches variances that are a third too large without a word."""
    tree = gx.sample(
        key,
        gx.hmc(lambda x, constant: -0.5 * jnp.sum(x**2) - constant),
        lambda key: jax.random.normal(key, (2,), dtype),
        num_samples=1000,
        num_warmup=300,
        logdensity_args=(jnp.asarray(size, dtype),),
        progress=False,
    )
    findings = [found for found in check(tree["posterior"], tree["sample_stats"]) if found.title == ROUNDED]
    assert len(findings) == is_named
    for finding in findings:
        assert finding.severity == "severe"
        assert "about -1e+08, which float32 rounds to 12" in finding.detail
        assert "jax_enable_x64" in finding.advice


@pytest.mark.parametrize(("size", "severity"), [(2e6, None), (5e6, "warning"), (1e7, "severe")])
def test_how_a_rounded_log_density_is_judged(draws, stats, size, severity):
    stats["lp"] = np.full((4, 500), -size, np.float32)
    assert [finding.severity for finding in check(draws, stats)] == ([] if severity is None else [severity])
    del stats["acceptance_rate"]  # nothing is accepted by differences
    assert check(draws, stats) == []


def test_numbers_that_steps_no_longer_change_are_named(stats):
    """One value in each chain, some digits of the last apart; other modes are further apart, and steps still move."""

    def found(values):
        return [found for found in check({"a": values}, stats) if found.title == ROUNDED]

    moving = np.random.default_rng(0).normal(12.0, 3e-5, (4, 500)).astype(np.float32)
    ends = np.repeat(moving[:, :1], 500, axis=1)
    (finding,) = found(ends)
    assert finding.severity == "severe"
    assert "1 of 1 numbers, first `a` (float32), have one value in each chain" in finding.detail
    for values in (moving, ends.astype(np.float64), np.repeat(np.float32([[12], [13], [14], [15]]), 500, axis=1)):
        assert found(values) == []
    del stats["acceptance_rate"]
    assert found(ends) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("logdensity", "rises"),
    [
        (lambda x: 0.01 * x[0] ** 2 - 0.5 * x[1] ** 2, True),
        (lambda x: 1e-4 * x[0] ** 2 - 0.5 * x[1] ** 2, True),
        (lambda x: -0.5 * x[1] ** 2, False),
        (lambda x: -jnp.sum(jnp.log1p(x**2)), False),
        (lambda x: -0.25 * jnp.log1p(x[0] ** 2) - 0.5 * x[1] ** 2, False),
        (lambda x: -0.5 * (x[0] / 3) ** 2 - 0.5 * jnp.exp(-x[0]) * x[1] ** 2 - 0.5 * x[0], False),
    ],
    ids=["without maximum", "hardly curved", "flat", "Cauchy", "improper tails", "funnel"],
)
def test_a_log_density_without_maximum_is_named_in_place_of_a_funnel(key, logdensity, rises):
    tree = gx.sample(
        key,
        gx.nuts(logdensity),
        lambda key: jax.random.normal(key, (2,)),
        num_samples=400,
        num_warmup=200,
        progress=False,
    )
    found = titles(check(tree["posterior"], tree["sample_stats"]))
    assert ("A log density that keeps rising" in found) == rises
    assert not (rises and "A funnel" in found)


@pytest.mark.thorough
@pytest.mark.parametrize("coefficient", [0.9, 0.999, 0.9999])
def test_log_densities_that_move_slowly_do_not_keep_rising(coefficient):
    """Also of one chain; and a chain that repeats one point, or rises once, does not keep rising."""
    generator = np.random.default_rng(9)
    for lp in autoregressive(generator, coefficient, (300, 400)):
        for values in (lp, -(lp**2), 0 * lp, lp + 1e4 * (np.arange(400) > 200)):
            draws, stats = {"x": generator.standard_normal((1, 400))}, {"lp": values[None]}
            assert "A log density that keeps rising" not in titles(check(draws, stats))


def test_divergences_name_both_causes(key):
    tree = gx.sample(
        key,
        gx.nuts(lambda x: jnp.where(x[0] > 0.5, jnp.nan, -0.5 * jnp.sum(x**2))),
        jnp.zeros(2),
        num_samples=200,
        num_warmup=200,
        progress=False,
    )
    finding = check(tree["posterior"], tree["sample_stats"])[0]
    assert finding.title == "Divergent trajectories"
    assert "a log density that is not finite" in finding.detail
    assert "the logarithm of a positive one" in finding.advice


def test_statistics_are_found_by_the_names_of_arviz(draws):
    stats = {"diverging": np.ones((4, 500), bool), "n_steps": np.full((4, 500), 7)}
    found = titles(check(draws, stats, max_num_integration_steps=7))
    assert found == ["Divergent trajectories", "Trajectories cut at the maximal length"]


@pytest.mark.parametrize(
    ("dtype", "residual", "is_off"),
    [
        (np.float32, 1e-5, False),
        (np.float32, 1e-4, True),
        (np.float64, 1e-11, False),
        (np.float64, 1e-10, True),
    ],
)
def test_the_bound_on_the_residual_is_that_of_its_dtype(draws, dtype, residual, is_off):
    stats = {"residual": np.full((4, 500), residual, dtype)}
    assert bool(check(draws, stats)) == is_off
    assert check(draws, stats, residual_bound=2 * residual) == []
    assert titles(check(draws, stats, residual_bound=residual / 2)) == ["Draws off the manifold"]


@pytest.mark.parametrize(
    ("slope", "words"), [(-0.1, r"falls by 2\.\d times .*approach the data"), (0.1, r"rises by 2\.\d times .*spread")]
)
def test_chains_that_are_on_their_way_are_named(draws, slope, words):
    """A stochastic sampler that was not trained for long enough, whose draws are not those of the posterior."""
    noise = np.random.default_rng(3).standard_normal((4, 100))
    (finding,) = [
        found
        for found in check(draws, {"potential": 1000 + slope * np.arange(100) + noise})
        if found.title == "Chains that have not converged"
    ]
    assert re.search(words, finding.detail)
    assert "num_warmup" in finding.advice


@pytest.mark.thorough
def test_slow_chains_are_seldom_taken_for_chains_on_their_way(draws):
    """At an autocorrelation of 0.95, where a hundred draws are worth three."""
    generator = np.random.default_rng(4)
    alarms = [
        any(found.title == "Chains that have not converged" for found in check(draws, {"potential": values}))
        for values in autoregressive(generator, 0.95, (400, 100)).reshape(100, 4, 100)
    ]
    assert np.mean(alarms) <= 0.05


@pytest.mark.thorough
def test_a_whole_tree_is_its_posterior_and_its_statistics(key):
    """Of ``sample``, and as ArviZ's own type; statistics that are given replace those of the tree."""
    sampler = gx.nuts(lambda x: -0.5 * jnp.sum(x["a"] ** 2))
    options = {"num_samples": 200, "num_warmup": 50, "num_chains": 2, "progress": False}
    tree = gx.sample(key, sampler, {"a": jnp.zeros(3)}, **options)
    posterior, stats = tree["posterior"], tree["sample_stats"]
    tree["sample_stats"] = stats = stats.assign(diverging=stats["diverging"] | (stats["draw"] == 7))
    assert "Divergent trajectories" in titles(check(posterior, stats))
    for whole in (tree, gx.diagnostics.to_arviz(tree)):
        assert check(whole) == check(posterior, stats) != check(posterior)
        assert check(whole, {}) == check(posterior)
        assert summarize(whole) == summarize(posterior, stats)
        assert summarize(whole, {}) == summarize(posterior)
    variable = {"posterior": np.asarray(posterior["a"])}
    assert [row.name for row in summarize(variable)] == ["posterior[0]", "posterior[1]", "posterior[2]"]


def test_chains_that_disagree_are_named_the_worst_first(draws):
    draws["scale"][0, :, 1] += 0.05
    draws["angle"][3] += 5
    findings = check(draws)
    assert findings[0].title == "Chains that disagree"
    assert findings[0].severity == "severe"
    assert re.search(r"2 of 11 numbers: `angle` \(1\.\d{3}\), `scale\[1\]`", findings[0].detail)
    assert "orthonormal" not in findings[0].advice


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("num_chains", "num_draws", "num_numbers", "num_superchains"),
    [(4, 10, 13, None), (4, 100, 13, None), (2, 150, 13, None), (4, 200, 80, None), (8, 25, 13, 4), (100, 4, 30, 4)],
)
def test_independent_chains_are_seldom_said_to_disagree(num_chains, num_draws, num_numbers, num_superchains):
    """However few draws there are; and chains that are apart are found all the same."""
    generator, alarms = np.random.default_rng(15), []
    for _ in range(40):
        x = generator.standard_normal((num_chains, num_draws, num_numbers))
        alarms.append("Chains that disagree" in titles(check({"x": x}, num_superchains=num_superchains)))
    assert np.mean(alarms) <= 0.05
    x[: num_chains // 2] += 2.0
    (finding,) = (f for f in check({"x": x}, num_superchains=num_superchains) if f.title == "Chains that disagree")
    assert re.match(
        r"R-hat is above 1\.\d\d\d \(not 1\.01: so few effective draws differ by chance\) for", finding.detail
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("num_chains", "correlation"), [(4, 0.0), (4, 0.6), (64, 0.6)])
def test_chains_of_one_distribution_are_seldom_said_to_disagree(num_chains, correlation):
    """Catches a bound of R-hat for independent draws, and one from effective draws that count a difference as slowness."""
    generator, alarms, found = np.random.default_rng(16), [], []
    for _ in range(10):
        x = autoregressive(generator, correlation, (10 * num_chains, 1000 if num_chains == 4 else 200))
        x *= np.sqrt(1 - correlation**2)
        x = x.reshape(10, num_chains, -1).transpose(1, 2, 0)
        alarms.append("Chains that disagree" in titles(check({"x": x})))
        x[: num_chains // 4] += 0.5
        found.append("Chains that disagree" in titles(check({"x": x})))
    assert np.mean(alarms) <= 0.1
    assert np.mean(found) == 1


def test_slow_chains_of_one_distribution_are_not_said_to_differ():
    """Their R-hat is reported, as one of 1.05 always is, but with so few effective draws it says nothing of agreement."""
    generator, short = (
        np.random.default_rng(17),
        "reached the same distribution, or have too few effective draws to tell.",
    )
    details = []
    for _ in range(10):
        x = autoregressive(generator, 0.95, (40, 500)).reshape(10, 4, 500).transpose(1, 2, 0)
        details += [f.detail for f in check({"x": x}) if f.title == "Chains that disagree"]
    assert len(details) >= 5
    assert np.mean([detail.endswith(short) for detail in details]) >= 0.9
    x[0] += 5 * x.std()
    (finding,) = (f for f in check({"x": x}) if f.title == "Chains that disagree")
    assert finding.detail.endswith("reached the same distribution.")


def test_chains_with_independent_signs_are_seldom_said_to_disagree():
    """Catches a bound from effective draws of the mean alone: draws of NUTS are less independent in size than in sign."""
    generator, alarms = np.random.default_rng(15), []
    for _ in range(40):
        sizes = autoregressive(generator, 0.7, (40, 250)).reshape(10, 4, 250).transpose(1, 2, 0)
        x = sizes * generator.choice([-1.0, 1.0], sizes.shape)
        alarms.append("Chains that disagree" in titles(check({"x": x})))
    assert np.mean(alarms) <= 0.1
    x[0] *= 2.0
    assert "Chains that disagree" in titles(check({"x": x}))


def test_orthonormal_matrices_that_disagree_are_sent_to_their_invariants():
    draws = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 300, 5, 2)) + 4 * np.eye(5, 2))[0]
    draws = draws * np.sign(draws[:, :, :1, :])
    draws[0] *= -1
    (finding, *_) = check({"loadings": draws})
    assert finding.title == "Chains that disagree"
    assert "`loadings` holds matrices with orthonormal columns" in finding.advice
    assert "`gx.diagnostics.invariant_draws`" in finding.advice
    assert "sort both in each draw by the scale" in finding.advice
    (finding, *_) = check({"left": draws, "right": draws})
    assert "`left`, `right` hold matrices with orthonormal columns" in finding.advice
    plate = np.stack([draws, draws], axis=2)
    (finding, *_) = check({"loadings": plate, "scale": draws[..., 0, 0]})
    assert "`loadings` holds matrices with orthonormal columns" in finding.advice
    plate[:, :, 1] *= 2
    (finding, *_) = check({"loadings": plate})
    assert "orthonormal" not in finding.advice


def test_slow_chains_are_named_with_what_they_lack():
    draws = {"slow": autoregressive(np.random.default_rng(1), 0.97, (4, 500))}
    findings = {finding.title: finding for finding in check(draws)}
    for title, method in (
        ("Few effective draws in the bulk", "bulk"),
        ("Few effective draws in the tails", "tail"),
    ):
        value = ess(draws["slow"], method=method)
        assert "below 400, that is 100 per chain, for 1 of 1 numbers" in findings[title].detail
        assert f"`slow` ({math.floor(value)})" in findings[title].detail
        assert f"{math.ceil(400 / value)} times as many" in findings[title].advice


def test_numbers_beyond_a_limit_are_shown_beyond_it():
    """Rounded to fewer digits, they would be shown as the limit itself."""
    draws = {"x": np.random.default_rng(1).standard_normal((4, 500))}
    summary = summarize(draws)
    (row,) = summary.rows
    found = check(draws, summary=dataclasses.replace(summary, rows=(row._replace(rhat=1.013, ess_bulk=399.8),)))
    assert [re.search(r"`x` \((.*)\)", finding.detail)[1] for finding in found] == ["1.013", "399"]


def test_a_long_list_of_names_is_cut():
    draws = {"x": autoregressive(np.random.default_rng(2), 0.99, (2, 200, 9))}
    details = [finding.detail for finding in check(draws) if finding.title.startswith("Few effective")]
    assert all("and 4 more" in detail for detail in details)
    assert len(details) == 2


def test_a_chain_that_never_moved_is_named(draws):
    for values in draws.values():
        values[2] = values[2, :1]
    (finding, *_) = check(draws)
    assert finding.title == "A chain that never moved"
    assert finding.severity == "severe"
    assert finding.detail.startswith("Chain 2 repeated")
    assert finding.advice.startswith("Every proposal was rejected")
    (finding, *_) = check(draws, {"potential": np.zeros((4, 500))})
    assert finding.advice.startswith("Its steps were lost in rounding")


def test_a_variable_that_stands_still_in_one_chain_only_is_named(draws):
    draws["angle"][1] = 0.5
    assert "`angle` kept one value in chain 1" in check(draws)[0].detail


def test_a_label_that_is_certain_in_one_chain_is_no_fault(draws):
    draws["label"] = np.random.default_rng(0).integers(0, 3, (4, 500))
    draws["label"][2] = 1
    assert "A variable that never moved in some chains" not in titles(check(draws))


def test_angles_on_both_sides_of_the_cut_are_noted(draws):
    draws["heading"] = np.angle(np.exp(1j * np.random.default_rng(0).normal(3.1, 0.2, (4, 500, 1))))
    (finding,) = check(draws)
    assert (finding.severity, finding.title) == ("note", "Angles on both sides of the cut")
    assert "`heading`" in finding.detail
    draws["heading"] = gx.diagnostics.align_angles(draws["heading"])
    assert check(draws) == []
    draws["wide"] = np.random.default_rng(0).normal(0, 1.8, (4, 500))  # beyond pi
    assert check(draws) == []


def test_axes_that_disagree_are_told_from_their_signs(draws):
    axes = np.random.default_rng(0).normal((0.0, 0.0, 9.0), 1.0, (4, 500, 3)) * np.array([1, 1, -1, -1])[:, None, None]
    draws["axis"] = axes / np.linalg.norm(axes, axis=-1, keepdims=True)
    (finding, *_) = check(draws)
    assert "`axis` holds unit vectors" in finding.advice
    assert check(gx.diagnostics.invariant_draws(draws["axis"][..., None], name="axis")) == []


def test_a_variable_that_is_constant_everywhere_is_no_fault(draws):
    draws["fixed"] = np.ones((4, 500))
    assert check(draws) == []


def test_one_value_a_chain_is_a_fault_of_sampling_but_not_of_estimation(draws):
    """Catches chains apart that nobody hears of, point estimates that "disagree", and patterns that hide others."""
    draws["log_noise"] = np.repeat([[0.1], [0.2], [0.4], [0.3]], 500, axis=1)
    (disagreement,) = (finding for finding in check(draws) if finding.title == "Chains that disagree")
    assert "`log_noise` (inf)" in disagreement.detail
    summary, sampled = summarize(draws, points=["*noise"]), summarize(draws)
    assert check(draws, summary=summary) == []
    row = summary["log_noise"]
    assert row[:6] == sampled["log_noise"][:6]
    assert np.isnan(row[6:]).all()
    others = [[str(row) for row in rows if row.name != "log_noise"] for rows in (summary, sampled)]
    assert others[0] == others[1]
    for points, words in ((["noise"], "found none among"), (["angle"], "found draws of 'angle' that differ")):
        with pytest.raises(ValueError, match=words):
            summarize(draws, points=points)


def test_draws_that_are_not_finite_are_found(draws):
    draws["scale"][1, 40:43, 0] = np.nan
    draws["scale"][3, 0, 1] = np.inf
    (finding,) = (finding for finding in check(draws) if finding.title == "Non-finite draws")
    assert "`scale` has 4 values" in finding.detail
    assert "chain 1 at draw 40" in finding.detail


@pytest.mark.parametrize(
    ("num_draws", "title"),
    [
        (1, "Too few draws for any diagnostic"),
        (3, "Too few draws for any diagnostic"),
        (50, "Too few draws to diagnose"),
    ],
)
def test_too_few_draws_are_reported_as_such(num_draws, title):
    draws = {"x": np.random.default_rng(3).standard_normal((4, num_draws))}
    energy = {"energy": draws["x"]}
    assert title in titles(check(draws, energy))
    assert not any(name.startswith("Few effective") for name in titles(check(draws, energy)))


def test_one_chain_is_noted():
    draws = {"x": np.random.default_rng(4).standard_normal((1, 1000))}
    assert [(finding.severity, finding.title) for finding in check(draws)] == [("note", "One chain only")]


def test_a_summary_that_was_made_already_is_used(draws):
    summary = summarize(draws)
    high = dataclasses.replace(summary, rows=(summary.rows[0]._replace(rhat=1.5),))
    assert titles(check(draws, summary=summary)) == []
    assert titles(check(draws, summary=high)) == ["Chains that disagree"]


def test_divergences_between_the_draws_of_a_thinned_run_are_found(draws):
    """Catches a run that looks free of divergences because none of them is that of a draw."""
    stats = {"diverging": (("chain", "draw"), np.zeros((4, 500), bool))}
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"angle": (("chain", "draw"), draws["angle"])}),
            "sample_stats": xr.Dataset(stats),
        }
    )
    tree.attrs = {"thinning": 10, "num_divergences": 7}
    (finding,) = check(tree)
    assert finding.title == "Divergent trajectories"
    assert "7 iterations of the whole run" in finding.detail
    assert "divergences: 7" in str(summarize(tree))
    tree.attrs["num_divergences"] = 0
    assert check(tree) == []
