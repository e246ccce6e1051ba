"""Predictions at draws: which draw belongs to which site, and what is drawn anew."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import xarray as xr
from numpyro import distributions as dist
from numpyro.handlers import reparam, scope, uncondition
from numpyro.infer import Predictive
from numpyro.infer.reparam import LocScaleReparam

from geodax.interop import numpyro as gxn
from geodax.run.draws import to_datatree

pytestmark = pytest.mark.relaxed

X = np.random.default_rng(0).normal(size=(30, 3))
NOISE = 0.1
SHAPE = (2, 50)  # chains, draws


def linear(x):
    w = numpyro.sample("W", dist.Normal(0, 1).expand([3]).to_event(1))
    return numpyro.deterministic("mean", x @ w)


def regression(x, y=None, num_groups=2):
    """Half of the rows belong to each group; the names have slashes, points and both."""
    mean = scope(linear, prefix="a")(x)
    with numpyro.plate("groups", num_groups):
        level = numpyro.sample("level.of", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("b/y", dist.Normal(mean + level[jnp.arange(len(x)) % num_groups], NOISE), obs=y)


def draws_of(**more):
    """Draws with known values, other ones at each draw."""
    rng = np.random.default_rng(1)
    posterior = {"a.W": rng.normal(size=(*SHAPE, 3)), "level.of": 5 + rng.normal(size=(*SHAPE, 2))}
    posterior |= {"a.mean": np.full((*SHAPE, 30), np.pi)}  # computed again: the rows are others
    tree = to_datatree({"posterior": {name: x for name, x in (posterior | more).items() if x is not None}})
    return tree.assign(observed_data=xr.DataTree(xr.Dataset({"b.y": ("b.y_dim_0", np.zeros(30))})))


def concentrated(y=None, rows=4):
    """Exact draws of this prior are refused."""
    w = numpyro.sample("w", gxn.MatrixBingham(jnp.diag(100.0 * jnp.arange(6.0)), jnp.array([3.0, 2.0, 1.0])))
    with numpyro.plate("rows", rows):
        numpyro.sample("y", dist.Normal(w[:, 0], NOISE).to_event(1), obs=y)


def test_a_prior_that_cannot_be_drawn_from_does_not_matter():
    """Catches draws of the prior that only tell which sites there are."""
    w = np.broadcast_to(np.eye(6)[:, 3:], (*SHAPE, 6, 3))
    found = gxn.predictive(concentrated, to_datatree({"posterior": {"w": w}}), return_sites=["y"])
    y = found["posterior_predictive"]["y"].values
    np.testing.assert_allclose(y.mean((0, 1, 2)), np.eye(6)[3], atol=0.05)


@pytest.mark.thorough
def test_predictions_from_such_a_prior_raise():
    """Catches NaN in a prior predictive distribution, whose draws are traced."""
    with pytest.raises(RuntimeError, match="MatrixBingham: some draws had no accepted proposal"):
        jax.block_until_ready(Predictive(concentrated, num_samples=3)(jax.random.key(0)))


def expected_mean(draws, x):
    posterior = draws["posterior"]
    levels = posterior["level.of"].values[..., np.arange(len(x)) % 2]
    return np.einsum("ij,cdj->cdi", x, posterior["a.W"].values) + levels


def test_each_draw_predicts_with_its_own_values():
    draws, x = draws_of(), X[:9]
    tree = gxn.predictive(regression, draws, rng_key=3, model_args=(x,))
    assert set(tree.children) == {"posterior_predictive"}
    group = tree["posterior_predictive"]
    assert dict(group.sizes) == {"chain": 2, "draw": 50, "a.mean_dim_0": 9, "rows": 9}
    errors = (group["b.y"].values - expected_mean(draws, x)) / NOISE
    assert abs(errors.mean()) < 5 / errors.size**0.5
    assert errors.std() == pytest.approx(1, abs=0.1)
    assert len(np.unique(errors)) == errors.size
    np.testing.assert_allclose(group["a.mean"].values, np.einsum("ij,cdj->cdi", x, draws["posterior"]["a.W"].values))


def by_group(y=None):
    with numpyro.plate("groups", 2):
        level = numpyro.sample("level", dist.Normal(0, 1))
        numpyro.deterministic("twice", 2 * level)
    with numpyro.plate("rows", 3):
        numpyro.sample("y", dist.Normal(level[jnp.array([0, 1, 0])], NOISE), obs=y)


def test_axes_of_latent_sites_keep_their_labels():
    """Catches predictions without names of groups, and with names of the old rows for new ones."""
    level = np.random.default_rng(1).normal(size=(*SHAPE, 2))
    posterior = xr.Dataset({"level": (("chain", "draw", "groups"), level)}, coords={"groups": ["a", "b"]})
    posterior = posterior.assign_coords(chain=range(SHAPE[0]), draw=range(SHAPE[1]))
    observed = xr.Dataset({"y": ("rows", np.zeros(3))}, coords={"rows": ["Ann", "Bob", "Cid"]})
    draws = xr.DataTree.from_dict({"posterior": posterior, "observed_data": observed})
    group = gxn.predictive(by_group, draws)["posterior_predictive"]
    np.testing.assert_array_equal(group["twice"].sel(groups="b"), 2 * level[..., 1])
    assert "rows" not in group.coords
    named = gxn.predictive(by_group, draws, coords={"groups": ["x", "y"], "rows": ["Dee", "Eve", "Fay"]})
    assert [list(named["posterior_predictive"][axis].values) for axis in ("groups", "rows")] == [
        ["x", "y"],
        ["Dee", "Eve", "Fay"],
    ]


@pytest.mark.thorough
def test_batches_bound_the_memory_and_leave_the_result():
    kwargs = {"rng_key": jax.random.key(2), "model_kwargs": {"x": X}, "return_sites": ["b/y"]}
    whole = gxn.predictive(regression, draws_of(), **kwargs, batch_size=1000)["posterior_predictive"].to_dataset()
    assert set(whole.data_vars) == {"b.y"}
    for batch_size in (1, np.int64(7)):
        parts = gxn.predictive(regression, draws_of(), **kwargs, batch_size=batch_size)["posterior_predictive"]
        np.testing.assert_allclose(parts["b.y"].values, whole["b.y"].values, rtol=1e-12)


@pytest.mark.thorough
def test_some_of_the_draws_keep_their_numbers():
    chosen = draws_of().isel(draw=slice(10, 20), chain=[1])
    group = gxn.predictive(regression, chosen, model_args=(X,))["posterior_predictive"]
    np.testing.assert_array_equal(group["draw"], np.arange(10, 20))
    np.testing.assert_array_equal(group["chain"], [1])
    errors = (group["b.y"].values - expected_mean(chosen, X)) / NOISE
    assert errors.std() == pytest.approx(1, abs=0.2)


def test_a_model_with_data_is_freed_of_them_by_uncondition():
    tree = draws_of().drop_nodes("observed_data")
    y = np.zeros(30)
    group = gxn.predictive(uncondition(regression), tree, model_args=(X, y))["posterior_predictive"]
    assert float(abs(group["b.y"].values - expected_mean(tree, X)).max()) < 10 * NOISE


def test_discrete_and_reparametrised_sites():
    def model(y=None):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        shift = numpyro.sample("shift", dist.Normal(0.0, 3.0))
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))  # summed over by sample
        numpyro.sample("y", dist.Poisson(rate + 100 * kind + 0 * shift), obs=y)

    centered = reparam(model, config={"shift": LocScaleReparam(0)})
    posterior = {"rate": np.full(SHAPE, 3.0), "shift_decentered": np.zeros(SHAPE), "shift": np.zeros(SHAPE)}
    tree = to_datatree({"posterior": posterior})
    group = gxn.predictive(centered, tree)["posterior_predictive"]
    assert set(group.data_vars) == {"kind", "y", "shift"}
    kind, counts = group["kind"].values, group["y"].values
    assert 20 < kind.sum() < 80
    assert counts[kind == 0].max() < 20 < counts[kind == 1].min()
    with pytest.raises(ValueError, match=r"no values of the sites \['shift_decentered'\]"):
        gxn.predictive(
            centered, tree.map_over_datasets(lambda data: data.drop_vars("shift_decentered", errors="ignore"))
        )
    with pytest.raises(ValueError, match=r"variables \['shift_decentered'\], but the model has no such"):
        gxn.predictive(model, tree)


@pytest.mark.thorough
def test_sampled_scoped_models_predict(tmp_path):
    def model(y=None):
        mean = scope(lambda: numpyro.sample("m", dist.Normal(0.0, 100.0)), prefix="a")()
        with numpyro.plate("rows", 20):
            numpyro.sample("y", dist.Normal(mean, 0.1), obs=y)

    options = {"num_samples": 20, "num_warmup": 0, "num_chains": 2, "sampler_options": {"step_size": 0.01}}
    options |= {"init_strategy": numpyro.infer.init_to_value(values={"a/m": 50.0}), "progress": False}
    draws = gxn.sample(model, model_args=(jnp.full(20, 50.0),), store=tmp_path / "store", **options)
    assert set(draws["posterior"].data_vars) == {"a.m"}
    group = gxn.predictive(model, draws)["posterior_predictive"]
    assert float(abs(group["y"] - 50).max()) < 1
    with pytest.raises(ValueError, match=r"return_sites=\['y'\]"):
        gxn.predictive(model, draws.drop_nodes("observed_data"))
    stored = gxn.predictive(model, tmp_path / "store")["posterior_predictive"]
    np.testing.assert_array_equal(stored["y"], group["y"])
    with xr.open_datatree(tmp_path / "store", engine="zarr", consolidated=False) as opened:
        again = gxn.predictive(model, opened)["posterior_predictive"]
    np.testing.assert_array_equal(again["y"], group["y"])


def test_inference_data_of_arviz_with_slashes():
    arviz = pytest.importorskip("arviz")
    if "InferenceData" not in vars(arviz):
        pytest.skip("ArviZ 1.x has no InferenceData, and names of variables in its DataTree have no slashes")
    draws = draws_of()
    posterior = draws["posterior"].to_dataset().rename({"a.W": "a/W"})
    data = arviz.InferenceData(posterior=posterior, observed_data=draws["observed_data"].to_dataset())
    group = gxn.predictive(regression, data, model_args=(X,))["posterior_predictive"]
    assert float(abs(group["b.y"].values - expected_mean(draws, X)).max()) < 10 * NOISE


# ----------------------------------------------------------------------------------------------------- errors


def with_new_site(x):
    numpyro.sample("extra", dist.Normal(0, 1))
    regression(x)


def subsampled(x):
    with numpyro.plate("all", 10, subsample_size=3):
        regression(x)


def with_random_parameter(x):
    numpyro.param("layer", lambda key: jax.random.normal(key, (2,)))
    regression(x)


@pytest.mark.parametrize(
    ("model", "draws", "options", "message"),
    [
        (regression, {"W": np.zeros(SHAPE)}, {}, r"variables \['W'\], but the model has no such sites"),
        (regression, {"a.W": None}, {}, r"no values of the sites \['a/W'\]"),
        (with_new_site, {}, {}, r"no values of the sites \['extra'\]"),
        (regression, {}, {"model_args": (X, np.zeros(30))}, r"\['b/y'\] have observed values"),
        (regression, {}, {"model_args": (X, np.zeros(30)), "return_sites": ["b.y"]}, r"\['b/y'\] have observed"),
        (regression, {}, {"model_args": (X, None, 3)}, r"'level.of' have shape \(2,\), but the model has \(3,\)"),
        (regression, {}, {"return_sites": ["z"]}, r"return_sites has \['z'\]"),
        (regression, {"a.W": np.full((*SHAPE, 3), np.nan)}, {}, "of the site 'a/W' are not finite"),
        (subsampled, {}, {}, "plate 'all' subsamples 3 of 10"),
        (with_random_parameter, {}, {}, "parameter 'layer' has random initial values"),
    ],
)
def test_draws_that_do_not_fit_are_refused(model, draws, options, message):
    with pytest.raises(ValueError, match=message):
        gxn.predictive(model, draws_of(**draws), **({"model_args": (X,)} | options))


def test_new_sites_are_drawn_when_asked_for():
    group = gxn.predictive(with_new_site, draws_of(), model_args=(X,), return_sites=["extra"])["posterior_predictive"]
    assert set(group.data_vars) == {"extra"}
    assert len(np.unique(group["extra"])) == 100


def test_wrong_kinds_are_refused():
    with pytest.raises(TypeError, match="DataTree with a group 'posterior'"):
        gxn.predictive(regression, {"a.W": np.zeros(3)}, model_args=(X,))
    with pytest.raises(TypeError, match="return_sites must be a list"):
        gxn.predictive(regression, draws_of(), model_args=(X,), return_sites="b/y")
    with pytest.raises(ValueError, match="expected draws with the dimensions chain and draw"):
        gxn.predictive(regression, draws_of().isel(draw=0), model_args=(X,))


@pytest.mark.parametrize("names", [("a/b", "a.b"), ("a.b", "a/b"), ("chain",)])
def test_names_that_a_tree_cannot_tell_apart_are_refused(names):
    def model():
        for name in names:
            numpyro.sample(name, dist.Normal(0, 1))

    with pytest.raises(ValueError, match=r"'a\.b'|'chain'"):
        gxn.sample(model, num_samples=2, num_warmup=0, sampler_options={"step_size": 0.1}, progress=False)
