"""Draws of several jobs together, and chains that are there twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import geodax as gx
from geodax.diagnostics import check, join_chains, summarize


def run_of(seed, num_samples=120, **options):
    """A normal distribution with a thinned run, in which divergences are counted between draws."""
    return gx.sample(
        jax.random.key(seed),
        gx.nuts(lambda x: -0.5 * jnp.sum(x["a"] ** 2)),
        lambda key: {"a": jax.random.normal(key, (2,))},
        num_warmup=100,
        num_samples=num_samples,
        num_chains=2,
        thinning=2,
        progress=False,
        **options,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = tmp_path_factory.mktemp("jobs") / "second"
    return run_of(0), run_of(1, store=store), store


@pytest.mark.thorough
def test_joined_runs_are_one_run(runs):
    """Catches chains in another order or with equal numbers, and counts of the first run only."""
    first, second, store = runs
    first, opened = first.copy(), gx.diagnostics.join_chains([store])
    first.attrs["num_divergences"] = 3
    joined = join_chains([first, store])
    np.testing.assert_array_equal(joined["posterior"]["a"][:2], first["posterior"]["a"])
    np.testing.assert_array_equal(joined["posterior"]["a"][2:], second["posterior"]["a"])
    assert list(joined["posterior"].chain.values) == list(joined["sample_stats"].chain.values) == [0, 1, 2, 3]
    assert joined["adaptation"]["step_size"].shape == (4,)
    for name in ("num_divergences", "num_integration_steps", "num_warmup_integration_steps"):
        assert joined.attrs[name] == first.attrs[name] + opened.attrs[name]
    assert summarize(joined).sampler["divergences"] == 3
    assert not [f for f in check(joined) if "repeat" in f.title]


def test_data_of_joined_runs_are_those_of_each(runs):
    """Groups without chains, which the runs of NumPyro models have."""

    def with_data(run, y):
        return run.assign(observed_data=xr.DataTree(xr.Dataset({"y": ("row", y)})))

    first, second = with_data(runs[0], [1.0, 2.0]), with_data(runs[1], [1.0, 2.0])
    xr.testing.assert_identical(join_chains([first, second])["observed_data"], first["observed_data"])
    with pytest.raises(ValueError, match="run 1 has other observed_data than run 0"):
        join_chains([first, with_data(runs[1], [1.0, 3.0])])


def test_one_run_twice(runs):
    """Jobs with one key: R-hat is perfect, and the effective draws are counted twice."""
    with pytest.raises(ValueError, match=r"Chains 0, 2 have the same draws.*random key"):
        join_chains([runs[0], run_of(0)])
    a = np.asarray(runs[0]["posterior"]["a"])
    found = check({"a": np.concatenate([a, a[1:]])})
    assert [f.detail[:12] for f in found if f.title == "Chains that repeat each other"] == ["Chains 1, 2 "]
    # draws that are equal by nature
    indicator = np.zeros((4, 120))
    indicator[:, 7] = 1.0
    assert not [f for f in check({"a": a[[0, 1]], "b": indicator[:2]}) if "repeat" in f.title]
    assert not [f for f in check({"b": indicator}) if "repeat" in f.title]


@pytest.mark.thorough
def test_runs_that_differ(runs):
    with pytest.raises(ValueError, match=r"run 1 differs from run 0 in posterior.a.*'draw': 60.*isel"):
        join_chains([runs[0], run_of(2, num_samples=60)])
    with pytest.raises(TypeError, match="expected a list"):
        join_chains(runs[0])
    with pytest.raises(TypeError, match="run 1 is no result"):
        join_chains([runs[0], runs[1]["posterior"]])
