"""The benchmarks run, their yardsticks tell right from wrong, and the tables of the documentation are what the figures say."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def target_module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from _stiefel import target

    return target


def run(script: str, *arguments: str) -> str:
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"}
    process = subprocess.run(
        [sys.executable, str(ROOT / script), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    return process.stdout


def exact_draws(target, num_chains: int, num_draws: int, key, twist: float = 0.0) -> np.ndarray:
    """Independent draws of the target, its linear part multiplied by 1 + twist."""
    f, b, weights = map(jnp.asarray, target)
    distribution = gx.distributions.BinghamVonMisesFisher((1 + twist) * f, b, weights)
    return np.asarray(distribution.sample(key, (num_chains, num_draws)))


@pytest.mark.thorough
def test_yardsticks_pass_exact_draws(target_module, key):
    target = target_module.make_target(3, 2)
    found = target_module.errors(target, exact_draws(target, 4, 5000, key), target_module.read_moments(3, 2))
    assert found.verdict == "right"
    assert None not in found


@pytest.mark.thorough
def test_yardsticks_catch_a_neighbouring_density(target_module, key):
    """Each of the three by itself; the linear part is 20 % too large."""
    target = target_module.make_target(3, 2)
    found = target_module.errors(target, exact_draws(target, 4, 5000, key, 0.2), target_module.read_moments(3, 2))
    assert found.verdict == "wrong"
    assert min(abs(z) for z in (found.entries, found.logdensity, found.identity)) > found.bound


def test_few_draws_decide_nothing(target_module, key):
    """A chain that hardly moves has standard errors that mean nothing: it is not called right."""
    target = target_module.make_target(3, 2)
    x = np.repeat(np.asarray(gx.distributions.StiefelUniform(3, 2).sample(key, (2, 20))), 10, axis=1)
    assert target_module.errors(target, x, target_module.read_moments(3, 2)).verdict == "undecided"


@pytest.mark.thorough
def test_density_is_the_distributions(target_module, key):
    """In NumPy and in JAX, with the gradient."""
    target = target_module.make_target(5, 2)
    x = gx.distributions.StiefelUniform(5, 2).sample(key, 3)
    distribution = gx.distributions.BinghamVonMisesFisher(*map(jnp.asarray, target))
    for values in (target.values(np.asarray(x)), jax.vmap(target.logdensity)(x)):
        np.testing.assert_allclose(values, distribution.log_prob(x), rtol=1e-12)
    np.testing.assert_allclose(
        target.gradients(np.asarray(x)), jax.vmap(jax.grad(distribution.log_prob))(x), rtol=1e-10
    )


@pytest.mark.parametrize("size", [(3, 2), (10, 3), (50, 5), (200, 10)])
def test_moments_are_on_file(target_module, size):
    moments = target_module.read_moments(*size)
    assert moments.x.shape == moments.x_error.shape == size
    # the mean of a matrix with orthonormal columns is a contraction
    assert np.linalg.norm(moments.x, 2) < 1
    assert np.all(moments.x_error > 0)
    stored = json.loads(target_module.MOMENTS.read_text())["sizes"]["{},{}".format(*size)]
    assert all(z < stored["bound"] for z in stored["largest_differences_in_standard_errors"].values())


@pytest.mark.slow
def test_stiefel(tmp_path):
    """Ours and those of the peers that are installed, at a tiny size; a line of the table for each."""
    out = tmp_path / "figures.json"
    options = ["--sizes", "3,2", "--draws", "40", "--warmup", "40", "--repeats", "2", "--seconds", "1"]
    # compiling Stan's program takes minutes
    samplers = ["geodax nuts, Cayley, target", "BlackJAX", "NumPyro", "mici", "geoopt"]
    printed = run("benchmarks/stiefel.py", *options, "--samplers", *samplers, "--out", str(out))
    facts = json.loads(out.read_text())
    assert len(facts["rows"]) + len(facts["left_out"]) == len(samplers)
    assert {"geodax nuts, Cayley, target 0.65", "BlackJAX nuts, polar", "NumPyro nuts, polar"} <= {
        row["sampler"] for row in facts["rows"]
    }
    for row in facts["rows"]:
        assert row["sampler"] in printed
        assert row["residual"] < 1e-8
        assert row["min_ess_per_second"] > row["min_ess_per_second_with_warmup"] > 0
        assert len(row["repeats"]) == 2
    for name, reason in facts["left_out"].items():
        assert f"{name}: left out: {reason}" in printed


@pytest.mark.slow
def test_many_chains(tmp_path):
    out = tmp_path / "figures.json"
    run(
        "benchmarks/many_chains.py",
        "--sizes",
        "3,2",
        "--chains",
        "1",
        "2",
        "--repeats",
        "1",
        "--parts",
        "gradients",
        "--out",
        str(out),
    )
    rows = json.loads(out.read_text())["rows"]
    assert [(row["sampler"], row["chains"]) for row in rows] == [("hmc", 1), ("hmc", 2), ("nuts", 1), ("nuts", 2)]
    assert all(row["gradients_per_second"] > 0 for row in rows)


@pytest.mark.slow
def test_stochastic_gradients(tmp_path):
    """One sampler of ours and one of each peer that is installed; the others are named."""
    out = tmp_path / "figures.json"
    names = ["SGD, optax", "SGD, torch", "SGLD, BlackJAX", "SGLD, posteriors", "sgrld Identity", "RSGLD, geoopt"]
    options = ["--steps", "2", "--rounds", "2", "--only", *names, "SOAP, pytorch", "--out", str(out)]
    printed = run("benchmarks/stochastic_gradients.py", *options)
    facts = json.loads(out.read_text())
    assert {"SGD", "SGD, optax", "SGLD, BlackJAX", "sgrld Identity"} <= facts["rows"].keys()
    assert len(facts["rows"]) + len(facts["left_out"]) == len(names) + 3
    assert facts["rows"]["SGD"]["ratio_to_sgd"] == 1
    assert all(row["milliseconds"] > 0 for row in facts["rows"].values())
    for name, reason in facts["left_out"].items():
        assert f"{name}: left out, {reason}" in printed


@pytest.mark.slow
def test_stochastic_gradients_of_several_chains(tmp_path):
    """As on a GPU: our samplers side by side; peers that run one chain are named."""
    out = tmp_path / "figures.json"
    names = ["sgrld Identity", "Shampoo, 128, every 100, newton", "two orthogonal layers, polar", "SGLD, posteriors"]
    run(
        "benchmarks/stochastic_gradients.py",
        "--chains",
        "3",
        "--steps",
        "2",
        "--rounds",
        "2",
        "--only",
        *names,
        "--out",
        str(out),
    )
    facts = json.loads(out.read_text())
    assert len(facts["rows"]) == 5
    assert facts["chains"] == 3
    for row in facts["rows"].values():
        assert row["steps_a_second"] == pytest.approx(3e3 / row["milliseconds"])
    assert facts["left_out"].keys() == {"SGLD, posteriors"}


@pytest.mark.thorough
@pytest.mark.relaxed
def test_ppca_forms_are_one_density(monkeypatch):
    """The rows of data against the function of statistics."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from _ppca.model import FORMS, model, simulate, starts
    from numpyro.infer.util import log_density

    problem = simulate(4, 2, 7)
    values = starts(problem, 2)
    written, statistics = ([float(log_density(model(problem, f), (), {}, v)[0]) for v in values] for f in FORMS)
    assert abs(written[0] - written[1]) > 0.1
    np.testing.assert_allclose(written, statistics, rtol=1e-12)


@pytest.mark.thorough
def test_tangent_preconditioning_keeps_what_it_measures(monkeypatch, key):
    """The chosen image has the density's share; what is measured, and the densities, do not see the signs."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tangent_preconditioning as script

    x, center = gx.distributions.StiefelUniform(6, 3).sample(key, (2,))
    images = x[None] * jnp.asarray(list(itertools.product((1.0, -1.0), repeat=3)))[:, None, :]
    shares = jnp.exp(jax.vmap(lambda image: script.signs(image, center))(images))
    np.testing.assert_allclose(shares.sum(), 1.0, rtol=1e-12)
    assert shares.std() > 0.01
    for name in ("Bingham, (8, 3), ill-conditioned", "PCA, wine, (13, 3)", "eigenmodel, simulated, (40, 2)"):
        target = script.TARGETS[name]()
        position = target.start(jax.random.key(1))
        flipped = np.asarray(position["frame"]) * np.resize([1.0, -1.0], position["frame"].shape[1])
        mirrored = position | {"frame": jnp.asarray(flipped)}
        for function in (target.logdensity, lambda x: script.quantities(x, is_even=True)):
            np.testing.assert_allclose(function(mirrored), function(position), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.relaxed
def test_numpyro_ppca(tmp_path):
    """Rows of ours and of NumPyro's are kept as they come; a second run leaves the others as they are."""
    out = tmp_path / "figures.json"
    options = ["--quick", "--sizes", "3,2,15", "--forms", "statistics", "--out", str(out)]
    for samplers in (["geodax hmc, manifold"], ["geodax nuts, Givens centered", "NumPyro nuts, polar"]):
        run("benchmarks/numpyro_ppca.py", *options, "--samplers", *samplers)
    facts = json.loads(out.read_text())
    assert [row["sampler"] for row in facts["rows"]] == [
        "geodax hmc, manifold",
        "geodax nuts, Givens centered",
        "NumPyro nuts, polar",
        "NumPyro nuts, polar, chains side by side",
    ]
    assert facts["references"]["3,2,15"]["max_rhat"] < 1.05
    assert all(row["min_ess_per_second"] > 0 for row in facts["rows"])


@pytest.mark.slow
@pytest.mark.relaxed
def test_microcanonical(tmp_path):
    """Rows of ours and of BlackJAX's; the adjusted sampler has no bias, and energy errors are on record."""
    out = tmp_path / "figures.json"
    run(
        "benchmarks/microcanonical.py",
        "--targets",
        "eight",
        "--samplers",
        "adjusted_mclmc",
        "mclmc",
        "BlackJAX mclmc",
        "--out",
        str(out),
    )
    rows = {row["sampler"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["adjusted_mclmc", "mclmc", "BlackJAX mclmc"]
    assert abs(rows["adjusted_mclmc"]["logdensity_error"]) < 0.05
    assert all(0 < row["gradients_per_draw"] < 100 for row in rows.values())
    assert rows["mclmc"]["energy_variance"] > 0


def test_tables_of_the_documentation_are_the_figures():
    run("docs/tables.py", "--check")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["pca", "classifier", "regressor", "factorization"])
def test_growth_is_measured(model, tmp_path):
    """Every step of the smallest case ends without an error."""
    out = tmp_path / "growth.json"
    run("benchmarks/growth.py", "--models", model, "--most-rows", "1000", "--most-columns", "10", "--out", str(out))
    (row,) = json.loads(out.read_text())["rows"]
    assert all(row[step]["seconds"] > 0 for step in ("fit", "report", "predict"))


@pytest.mark.slow
def test_quality_goes_on(tmp_path):
    """Each method is fitted once; a second run keeps what is on file."""
    out = tmp_path / "figures.json"
    options = ["--tables", "diabetes", "breast-cancer", "--out", str(out)]
    run("benchmarks/tables_quality.py", *options, "--models", "linear", "--splits", "1")
    first = json.loads(out.read_text())["rows"]
    run("benchmarks/tables_quality.py", *options, "--models", "linear", "random forest", "--splits", "2")
    rows = json.loads(out.read_text())["rows"]
    assert rows[:2] == first  # seconds, too
    cells = [(row["table"], row["split"], row["model"]) for row in rows]
    assert len(set(cells)) == len(cells) == 8
    assert all(0.6 < np.mean(row["is_covered"]) <= 1 for row in rows if row["table"] == "diabetes")


def test_quality_holds_out_disjoint_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from tables_quality import split_of

    seen = []
    for number in range(5):
        fitted, held_out = split_of("diabetes", number)
        assert not set(fitted[0].index) & set(held_out[0].index)
        assert (len(fitted[1]), len(held_out[1])) == (354, 88)
        np.testing.assert_allclose([fitted[1].mean(), fitted[1].std()], [0, 1], atol=1e-12)
        seen.extend(held_out[0].index)
    assert len(set(seen)) == len(seen)


def test_quality_marks_differences_of_pairs(monkeypatch):
    """A difference is marked when it is clear in pairs, in the direction of the score; rows of other splits don't count."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from table_quality import TABLES

    errors = np.random.default_rng(0).exponential(size=200)
    noise = np.random.default_rng(1).normal(size=200)

    def row(model, values, split=0):
        return {"table": "t", "split": split, "model": model, "fitted": 9, "columns": 2, "squared_errors": values}

    rows = [
        row("geodax", list(errors)),
        row("a little better", list(0.97 * errors)),
        row("worse", list(1.03 * errors + 0.01)),
        row("the same", list(np.abs(errors + 0.3 * noise))),
        row("the same", [0.0] * 200, split=1),
    ]
    header, _, line = TABLES["quality-rmse"][1]({"rows": rows})
    cells = dict(zip(header.split("|")[2:-1], line.split("|")[2:-1], strict=True))
    assert " ± " in cells[" geodax "]
    assert cells[" a little better "].startswith(" **")
    assert cells[" worse "].endswith(" ↓ ")
    assert "*" not in cells[" the same "]
    assert "↓" not in cells[" the same "]


@pytest.mark.slow
def test_gaussian_posteriors(tmp_path):
    out = tmp_path / "figures.json"
    options = ["--lengths", "2", "--starts", "1", "--most-steps", "30", "--out", str(out)]
    run("benchmarks/gaussian_posteriors.py", *options)
    facts = json.loads(out.read_text(encoding="utf-8"))
    assert {row["method"].split(",")[0] for row in facts["variational"]} == {"`ivon`", "`noisy_kfac`"}
    for row in facts["laplace"]:  # with the smallest variance nearly the network itself
        apart = {v: abs(s["log_probability"] - row["point"]["log_probability"]) for v, s in row["variances"].items()}
        assert apart["0.003"] < min(apart["1.0"], 0.3)
