"""Draws in ArviZ, 0.23 and 1.x."""

import arviz as az
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import geodax as gx

DATA = np.random.default_rng(3).standard_normal(30)


@pytest.fixture
def sampled(key, tmp_path):
    def draws(store):
        logdensity = lambda x: -0.5 * jnp.sum((DATA - x["mean"]) ** 2)  # noqa: E731
        sampler = gx.hmc(logdensity, step_size=0.15, num_integration_steps=8)
        options = {
            "num_samples": 200,
            "num_chains": 2,
            "progress": False,
            "store": tmp_path / "draws" if store else None,
        }
        tree = gx.sample(key, sampler, {"mean": jnp.zeros(())}, **options)
        pointwise = -0.5 * (DATA - tree["posterior"]["mean"].values[..., None]) ** 2 - 0.5 * np.log(2 * np.pi)
        tree["log_likelihood"] = xr.DataTree(xr.Dataset({"y": (("chain", "draw", "case"), pointwise)}))
        return tree

    return draws


@pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")  # ArviZ 0.23 with pandas 3.1
@pytest.mark.parametrize("store", [False, True], ids=["memory", "store"])
def test_summary_loo_and_compare(sampled, store):
    draws = sampled(store)
    data = gx.diagnostics.to_arviz(draws)
    assert dict(data.attrs) == draws.attrs
    # rank plots of ArviZ 1.x fail on axes without labels
    np.testing.assert_array_equal(data["log_likelihood"]["case"].values, np.arange(30))
    assert "case" not in draws["log_likelihood"].coords
    assert float(az.summary(data, round_to="none").loc["mean", "mean"]) == pytest.approx(DATA.mean(), abs=0.1)
    loo = az.loo(data)
    elpd = loo.elpd_loo if hasattr(loo, "elpd_loo") else loo.elpd  # ArviZ 0.23, 1.x
    assert elpd == pytest.approx(np.sum(-0.5 * (DATA - DATA.mean()) ** 2 - 0.5 * np.log(2 * np.pi)) - 1, abs=1)
    worse = draws.assign({})
    worse["log_likelihood"] = draws["log_likelihood"] - 0.5
    table = az.compare({"better": data, "worse": gx.diagnostics.to_arviz(worse)})
    assert table.index.tolist() == ["better", "worse"]


def test_arrays_of_jax_become_those_of_numpy(sampled):
    """Copies of JAX arrays are read-only, and ArviZ 0.23 writes to them."""
    draws = sampled(store=False)
    expected = str(az.loo(gx.diagnostics.to_arviz(draws)))
    pointwise = draws["log_likelihood"]["y"]
    draws["log_likelihood"]["y"] = pointwise.copy(data=jnp.asarray(pointwise.values)).assign_attrs(unit="nats")
    data = gx.diagnostics.to_arviz(draws)
    assert data["log_likelihood"]["y"].attrs == {"unit": "nats"}
    assert str(az.loo(data)) == expected
