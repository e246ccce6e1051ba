"""Compiled programs that are taken again: the same results, and never those of another function."""

import os
import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.base import clone

import geodax as gx
from geodax import nn, vi
from geodax.models import BayesianMLPRegressor
from geodax.models.pooling import over_draws
from geodax.run import programs
from geodax.run.programs import compiled


@pytest.fixture(autouse=True)
def compilations(monkeypatch):
    """Nothing kept at the start; a list that grows by one for each compilation through `compiled`."""
    monkeypatch.setattr(programs, "_kept", type(programs._kept)())
    programs._options_for(jax.make_jaxpr(lambda: 0)(), "cpu")  # asks the compiler once in a process
    counted = []
    compile_ = jax.stages.Lowered.compile

    def counting(self, *args, **kwargs):
        counted.append(self)
        return compile_(self, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counting)
    return counted


def sampled(seed, scale):
    sampler = gx.hmc(lambda x: -0.5 * jnp.sum((x / scale) ** 2), num_integration_steps=3)
    chains = gx.sample(
        jax.random.key(seed), sampler, jnp.ones(3), num_samples=20, num_warmup=20, num_chains=2, progress=False
    )
    return np.asarray(chains["posterior"]["position"].values)


@pytest.mark.thorough
def test_a_run_of_the_same_shape_compiles_nothing_and_draws_what_it_would_have_drawn(compilations):
    """Nor those of another density: catches a key that leaves constants out."""
    alone = sampled(1, 2.0)
    first = len(compilations)
    assert first > 0
    programs._kept.clear()
    wide = sampled(1, 3.0)
    assert not np.array_equal(wide, alone)
    sampled(0, 2.0)
    number = len(compilations)
    assert first < number <= 3 * first
    again = sampled(1, 2.0)
    assert len(compilations) == number
    np.testing.assert_array_equal(again, alone)


@pytest.mark.thorough
def test_predictions_of_the_same_shapes_compile_once(compilations):
    """A loop over single rows is what scikit-learn's inspection and many a service do."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    model = BayesianMLPRegressor((4,), num_warmup=20, num_samples=3, thinning=1, num_chains=2, random_state=0)
    model.fit(x, x[:, 0])
    other = clone(model).set_params(random_state=1).fit(x, x[:, 0])
    expected = model.predict(x)
    assert not np.allclose(expected, other.predict(x))
    model.predict(x[:1])
    before = len(compilations)
    np.testing.assert_allclose(np.concatenate([model.predict(row[None]) for row in x]), expected, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(x), expected)
    assert len(compilations) == before


def test_functions_at_the_draws_of_an_estimator_compile_once(compilations):
    draws = (np.arange(3.0), np.ones((3, 2)))
    for rows in (np.ones(2), np.array([1.0, 2.0])):
        found = over_draws(lambda draw, rows: draw[0] + draw[1] @ rows, draws, rows)
        np.testing.assert_array_equal(found, np.arange(3.0) + rows.sum())
    assert len(compilations) == 1


def test_arguments_that_are_not_used():
    """JAX leaves them out of a program, whose text then fits functions of other arguments, or of other shapes."""

    def first(x, y):
        return x + 1.0

    def second(x, y):
        return y + 1.0

    first.__name__ = second.__name__ = "plus_one"
    x, y, z = jnp.zeros(2), jnp.ones(2), jnp.ones(3)
    np.testing.assert_array_equal(compiled(first, x, y)(x, y), x + 1.0)
    np.testing.assert_array_equal(compiled(second, x, y)(x, y), y + 1.0)
    np.testing.assert_array_equal(compiled(first, x, z)(x, z), x + 1.0)


HOISTED = """
import jax.numpy as jnp
import numpy as np
from geodax.run.programs import compiled

x = jnp.zeros(1000)
for scale in (1.0, 2.0):
    constant = scale * np.arange(1000.0, dtype=np.float32)
    np.testing.assert_array_equal(compiled(lambda x, constant=constant: x + constant, x)(x), constant)
"""


def test_constants_that_are_passed_as_arguments():
    """A setting of JAX, its default some day perhaps, under which the text does not hold them."""
    environment = os.environ | {"JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", HOISTED], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_keys_of_both_kinds_are_other_programs_of_the_same_text():
    """The text of a program does not always tell an array of integers from one of typed keys."""
    place = NamedSharding(Mesh(np.array(jax.devices()[:1]), "chains"), PartitionSpec("chains"))
    typed = jax.device_put(jax.random.split(jax.random.key(3)), place)
    plain = jax.device_put(jax.random.key_data(typed), place)
    draw = jax.vmap(jax.random.normal)
    for keys in (plain, typed, plain):
        np.testing.assert_array_equal(compiled(draw, keys)(keys), jax.jit(draw)(keys))


@pytest.mark.thorough
def test_chains_of_a_variational_fit_are_compiled_once(compilations):
    """Keys and data are arguments of a fit's programs; other ones make no other program."""
    x = np.linspace(-1, 1, 20)[:, None]

    def fitted(seed, y):
        key_network, key_fit = jax.random.split(jax.random.key(seed))
        network = nn.WithNoise(nn.WHVILinear(1, 1, key=key_network, dtype=jnp.float64), 0.0, dtype=jnp.float64)
        return vi.fit(
            key_fit,
            network,
            nn.GaussianLikelihood(),
            (x, y),
            num_steps=4,
            batch_size=5,
            validation=(x, y),
            progress=False,
        )

    fitted(0, x)
    first = len(compilations)
    other = fitted(1, -x)
    assert len(compilations) == first
    programs._kept.clear()
    np.testing.assert_array_equal(fitted(1, -x).history.elbo, other.history.elbo)


@pytest.mark.thorough
def test_an_estimator_that_is_fitted_again_compiles_nothing(compilations):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)

    def fit(seed, rows):
        gx.models.BayesianMLPClassifier((4,), num_warmup=5, num_samples=3, thinning=1, random_state=seed).fit(
            X[rows], y[rows]
        )

    fit(0, slice(0, 50))
    first = len(compilations)
    fit(1, slice(10, 60))
    assert len(compilations) == first


def test_functions_that_call_back_into_python_are_never_taken_for_each_other(compilations):
    """Their programs have the same text, whatever they call."""

    def calling(factor):
        def function(x):
            return jax.pure_callback(lambda x: factor * np.asarray(x), jax.ShapeDtypeStruct((3,), x.dtype), x)

        return compiled(function, jnp.ones(3))(jnp.ones(3))

    np.testing.assert_array_equal(calling(2.0), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(calling(3.0), [3.0, 3.0, 3.0])
    assert len(compilations) == 2


class Named(eqx.Module):
    values: Any
    name: str = eqx.field(static=True)


def test_the_result_has_the_form_of_this_function_and_not_of_the_one_before(compilations):
    def doubled(name):
        start = Named(jnp.ones(2), name)
        return compiled(lambda one: Named(2.0 * one.values, one.name + "!"), start)(start)

    assert doubled("a").name == "a!"
    assert doubled("b").name == "b!"
    assert len(compilations) == 1


class Pair(NamedTuple):
    first: Any
    second: Any


def test_only_what_is_said_is_donated():
    x = Pair(jnp.ones(3), jnp.zeros(3))
    y = Pair(jnp.ones(3), jnp.ones(3))
    add = compiled(lambda x, y: jax.tree.map(jnp.add, x, y), x, y, donate_argnums=(1,))
    np.testing.assert_array_equal(add(x, y).first, 2.0)
    assert all(leaf.is_deleted() for leaf in y)
    assert not any(leaf.is_deleted() for leaf in x)


def test_a_program_runs_where_its_arguments_are(compilations):
    here, there = (jax.device_put(jnp.ones(2), device) for device in jax.devices()[:2])
    for x in (here, there, here):
        assert compiled(lambda x: x + 1.0, x)(x).devices() == x.devices()
    assert len(compilations) == 2


def test_what_is_kept_is_bounded(compilations, monkeypatch):
    x = jnp.ones(2)
    for number in range(programs._NUM_KEPT + 3):
        compiled(lambda x, number=number: x + number, x)
    assert len(programs._kept) == programs._NUM_KEPT
    compiled(lambda x: x + programs._NUM_KEPT, x)  # one of the last
    assert len(compilations) == programs._NUM_KEPT + 3
    data = jnp.asarray(np.random.default_rng(0).normal(size=1000))

    def closed_over_data(x):
        return x + jax.jit(lambda x: jnp.sum(data * x[0]))(x)

    programs._kept.clear()
    compiled(closed_over_data, x)
    assert len(programs._kept) == 1
    monkeypatch.setattr(programs, "_MOST_CONSTANT_BYTES", 1000)
    programs._kept.clear()
    compiled(closed_over_data, x)
    assert not programs._kept


def test_programs_use_the_whole_vectors_of_a_processor(compilations, monkeypatch):
    """The option is handed to the compiler, unless the user speaks of it, on other platforms, or XLA refuses it."""
    options = []
    compile_ = jax.stages.Lowered.compile

    def seeing(self, compiler_options=None, **kwargs):
        options.append(compiler_options)
        return compile_(self, compiler_options=compiler_options, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", seeing)
    x = jnp.ones(3)
    wide, quick = {"xla_cpu_prefer_vector_width": "512"}, {"xla_cpu_use_fusion_emitters": False}
    quick = quick if programs._knows("xla_cpu_use_fusion_emitters", False) else {}
    monkeypatch.delenv("XLA_FLAGS")
    compiled(lambda x: x + 1.0, x)
    assert options[-1] == wide | quick
    assert programs.compiler_options() == programs.compiler_options("cpu") == wide
    assert programs.compiler_options("gpu") == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_prefer_vector_width=256")
    compiled(lambda x: x + 2.0, x)
    assert options[-1] == quick
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(programs, "_VECTORS", "xla_cpu_no_such_option")
    monkeypatch.setattr(programs, "_EMITTERS", "xla_cpu_none_either")
    np.testing.assert_array_equal(compiled(lambda x: x + 3.0, x)(x), 4.0)
    assert options[-1] == {}


def test_fusion_emitters_only_where_they_pay(monkeypatch):
    """Catches the option for programs with many functions, and an option that overrides the user's."""
    if not programs._knows("xla_cpu_use_fusion_emitters", False):
        pytest.skip("newer versions of XLA have no such option")
    monkeypatch.setenv("XLA_FLAGS", "")
    few, many = (jax.make_jaxpr(jnp.exp)(jnp.ones(number)) for number in (100, 100_000))
    assert programs._options_for(few, "cpu")["xla_cpu_use_fusion_emitters"] is False
    assert "xla_cpu_use_fusion_emitters" not in programs._options_for(many, "cpu")
    assert programs._options_for(many, "cpu", 100)["xla_cpu_use_fusion_emitters"] is False
    assert "xla_cpu_use_fusion_emitters" not in programs._options_for(many, "cpu", 1000)
    assert programs._options_for(few, "gpu") == {}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert "xla_cpu_use_fusion_emitters" not in programs._options_for(few, "cpu")


def test_only_programs_that_do_little_are_not_optimised(monkeypatch):
    """Catches long runs, large programs and those of many functions without optimisation, and the user's choice lost."""
    monkeypatch.setenv("XLA_FLAGS", "")
    effort = "xla_backend_optimization_level"
    small, large = (jax.make_jaxpr(jnp.cumsum)(jnp.ones(number)) for number in (100, 1_000_000))
    functions = jax.make_jaxpr(jnp.exp)(jnp.ones(100_000))
    assert programs._options_for(small, "cpu", 1000)[effort] == "0"
    for program, num_passes in ((small, None), (small, 10_000_000), (large, 10_000), (functions, 1)):
        assert effort not in programs._options_for(program, "cpu", num_passes)
    assert programs._options_for(small, "gpu", 1000) == {}
    monkeypatch.setenv("XLA_FLAGS", f"--{effort}=3")
    assert effort not in programs._options_for(small, "cpu", 1000)


@pytest.mark.thorough
def test_runs_say_how_much_they_do(monkeypatch):
    """Catches a long run taken for a short one, and a program for several calls compiled for one."""
    passes = []
    options_for = programs._options_for

    def seeing(program, platform, num_passes=None):
        passes.append(num_passes)
        return options_for(program, platform, num_passes)

    monkeypatch.setattr(programs, "_options_for", seeing)
    sampler = gx.hmc(lambda x, scale: -0.5 * jnp.sum((x / scale) ** 2), step_size=0.3, num_integration_steps=3)
    options = {"num_samples": 7, "num_warmup": 4, "thinning": 2, "num_chains": 2, "progress": False}
    gx.sample(jax.random.key(0), sampler, jnp.ones(3), logdensity_args=(2.0,), **options)
    assert passes[-1] is None
    gx.sample(jax.random.key(0), gx.hmc(lambda x: -jnp.sum(x**4)), jnp.ones(3), **options)
    assert passes[-1] == 18
    assert set(passes) == {1, None, 18}


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sum(jnp.tanh(x @ x) + jnp.linalg.cholesky(x @ x.T + jnp.eye(200))),
        lambda x: jax.lax.scan(lambda c, row: (jnp.sin(c) + row, jnp.log(row) * c), x[0], x),
        lambda x: jax.lax.fori_loop(0, 10, lambda i, y: jax.lax.cond(i > 3, jnp.exp, jnp.cos, y), x),
        lambda x: jax.vmap(jax.grad(lambda row: jnp.sum(jax.nn.softplus(row) ** 1.5)))(x),
        lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    ],
)
def test_the_cost_of_a_program_is_about_that_of_xla(function):
    """Within a factor of two; catches inner programs that are left out, and loops counted as often as they run."""
    traced = jax.jit(function).trace(jnp.ones((200, 200)))
    expected = traced.lower().cost_analysis()
    functions, num_bytes = programs._cost(traced.jaxpr)
    assert 0.5 <= num_bytes / expected["bytes accessed"] <= 2.0
    assert 0.5 <= functions / expected["transcendentals"] <= 2.0


@pytest.mark.relaxed  # the check of keys traces once more
def test_the_step_is_traced_once():
    """Catches a trace of the step for the shapes of the draws, another for the buffer and a third for the loop."""
    traces = []

    def logdensity(x):
        traces.append(x)
        return -0.5 * jnp.sum(x**2)

    gx.sample(
        jax.random.key(0),
        gx.hmc(logdensity, step_size=0.3, num_integration_steps=3),
        jnp.ones(3),
        num_samples=5,
        num_chains=2,
        devices=1,
        progress=False,
    )
    assert len(traces) == 3  # of the check of the density, the initial states, and the step


def test_a_forked_process_is_told_so():
    """Catches a child of `multiprocessing` that waits for ever."""
    compiled(lambda x: x + 1, jnp.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python warn of the fork
        pid = os.fork()
    if pid == 0:
        try:
            compiled(lambda x: x + 2, jnp.zeros(2))
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
