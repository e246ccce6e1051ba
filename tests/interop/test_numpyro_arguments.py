"""Arguments of ``sample``: data without compilation, initial values, and names of axes."""

import gc
import weakref

import arviz
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import xarray as xr
from numpyro import distributions as dist
from numpyro.infer.reparam import CircularReparam

from geodax.diagnostics import to_arviz
from geodax.interop import numpyro as gxn
from geodax.interop.numpyro.translation import translate
from geodax.run.draws import open_draws
from tests.interop.test_numpyro_sites import F
from tests.marks import slow
from tests.suites.chains import assert_agree

pytestmark = pytest.mark.relaxed

# how the model is translated does not depend on the sampler, and the program of hmc is smaller than that of nuts
HMC = {"sampler": "hmc", "sampler_options": {"num_integration_steps": 4}}
OPTIONS = {"num_samples": 60, "num_warmup": 60, "num_chains": 2, "progress": False} | HMC
RNG = np.random.default_rng(0)


def regression(x, y=None, groups=None, scale=1.0):
    """Supports, transforms, shapes and deterministic sites that depend on the data."""
    numpyro.sample("w", gxn.MatrixLangevin(F))
    top = numpyro.sample("top", dist.Uniform(0.0, x.max()))
    with numpyro.plate("groups", 1 if groups is None else len(np.unique(groups))):
        level = numpyro.sample("level", dist.Normal(0.0, scale))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(x)):
        mean = numpyro.deterministic("mean", x @ slope + level[0 if groups is None else groups])
        numpyro.sample("y", dist.Normal(mean, 0.5 + top), obs=y)


def data(num=8, num_groups=2):
    return RNG.uniform(1.0, 5.0, (num, 2)), RNG.normal(size=num), np.arange(num) % num_groups


@pytest.mark.thorough
def test_other_data_and_seeds_compile_nothing(compilations):
    options = OPTIONS | {"with_log_likelihood": True}
    gxn.sample(regression, model_args=data(), rng_key=0, **options)
    assert compilations
    for seed in (1, 2):
        compilations.clear()
        x, y, groups = data()
        y = 5.0 * y  # so that the upper half of the range of `top` is drawn
        tree = gxn.sample(regression, model_args=(x, y, groups), rng_key=seed, **options)
        assert not compilations
        posterior = tree["posterior"]
        slope, level = posterior["slope"].values, posterior["level"].values
        mean = np.einsum("ij,cdj->cdi", x, slope) + level[..., groups]
        np.testing.assert_allclose(posterior["mean"].values, mean, rtol=1e-12)
        top = posterior["top"].values
        assert 0.5 * x.max() < top.max() < x.max()
        expected = dist.Normal(mean, 0.5 + top[..., None]).log_prob(y)
        np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected, rtol=1e-10)


@pytest.mark.thorough
def test_models_that_differ_in_what_they_record_share_no_program():
    """Their densities are the same."""

    def model(name, power):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.deterministic(name, x**power)

    for name, power in (("square", 2), ("other", 2), ("other", 3)):
        posterior = gxn.sample(model, model_args=(name, power), **OPTIONS)["posterior"]
        np.testing.assert_allclose(posterior[name].values, posterior["x"].values ** power, rtol=1e-12)


@pytest.mark.thorough
def test_what_data_and_models_change_is_not_reused(compilations):
    """The number of groups is part of the program; a number is not, but counts."""
    draws = {}
    for name, (args, kwargs) in {
        "first": (data(), {}),
        "groups": (data(num_groups=4), {}),
        "static": (data(), {"scale": 1e-3}),
    }.items():
        compilations.clear()
        draws[name] = gxn.sample(regression, model_args=args, model_kwargs=kwargs, **OPTIONS)["posterior"]
        assert bool(compilations) or name != "groups"
    assert draws["groups"].sizes["groups"] == 4
    assert float(abs(draws["static"]["level"]).max()) < 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [float, slow(np.asarray)], ids=["number", "array"])
def test_data_that_a_model_holds_may_change(kind):
    """Catches a program that is reused for a model that reads other data than before."""
    held = {}

    def model():
        numpyro.sample("x", dist.Normal(held["mean"], 1.0))

    for mean in (0.0, 50.0):
        held["mean"] = kind(mean)
        posterior = gxn.sample(model, **OPTIONS)["posterior"]
        assert abs(float(posterior["x"].mean()) - mean) < 1.0


@pytest.mark.thorough
def test_a_model_is_not_kept():
    class Model:
        def __call__(self, y):
            numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal(0.0, 1.0)), 1.0), obs=y)

    model = Model()
    alive = weakref.ref(model)
    gxn.sample(model, model_args=(np.ones(3),), **OPTIONS)
    del model
    gc.collect()
    assert alive() is None


@pytest.mark.slow
def test_simulation_based_calibration():
    def model(y=None):
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 5):
            numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    shares = []
    for seed in range(60):
        x = RNG.normal()
        draws = gxn.sample(model, model_args=(x + RNG.normal(size=5),), rng_key=seed, **OPTIONS)
        shares.append(float((draws["posterior"]["x"].values < x).mean()))
    assert_agree(np.array(shares)[:, None] - 0.5, np.zeros(1))
    assert 0.2 < np.std(shares) < 0.38


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [1.0, 0.5], ids=["array", "computed"])
def test_the_constant_of_fixed_parameters_is_computed_once(factor):
    """The series of the constant is a loop, which the sampled program of a fixed ``f`` has not."""

    def model(f):
        numpyro.sample("w", gxn.MatrixLangevin(f if factor == 1.0 else factor * f))

    found = translate(model, (jnp.asarray(F),), None, 0, numpyro.infer.init_to_uniform, None)
    target, position = found.target, found.model.position
    text = str(jax.make_jaxpr(target.call)(target.data, position))
    assert "while" not in text
    assert "scan" not in text
    expected = gxn.MatrixLangevin(factor * jnp.asarray(F)).log_prob(position["w"])
    np.testing.assert_allclose(target.call(target.data, position), expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ initial values


def sites(y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    numpyro.sample("upper", dist.Uniform(0.0, scale))  # a support that depends on another site
    numpyro.sample("w", gxn.StiefelUniform(3, 2))
    numpyro.sample("angle", dist.VonMises(0.0, 1.0))
    numpyro.sample("y", dist.Normal(0.0, scale), obs=y)


STILL = OPTIONS | {"num_warmup": 0, "num_samples": 1}
STILL |= {"sampler_options": {"step_size": 1e-9, "num_integration_steps": 1}}
FRAMES = np.stack([np.eye(3)[:, :2], np.eye(3)[:, 1:]])


@pytest.mark.thorough
def test_initial_values_are_constrained():
    values = {"scale": 3.0, "upper": [1.0, 2.0], "w": FRAMES, "angle": [-3.0, 1.0]}
    posterior = gxn.sample(sites, model_args=(0.1,), init_values=values, **STILL)["posterior"]
    for name, value in values.items():
        found = posterior[name].values[:, 0]
        np.testing.assert_allclose(found, np.broadcast_to(value, found.shape), atol=1e-4)
    part = gxn.sample(sites, model_args=(0.1,), init_values={"w": FRAMES[0]}, **STILL)["posterior"]
    np.testing.assert_allclose(part["w"].values[:, 0], FRAMES[[0, 0]], atol=1e-4)
    assert len(np.unique(part["scale"])) == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"u": 1.0}, r"\['u'\], but the continuous latent sites are \['angle', 'scale', 'upper', 'w'\]"),
        ({"scale": np.ones(3)}, r"'scale'\] of shape \(\), or \(2,\) with one value per chain, found \(3,\)"),
        ({"scale": [1.0, -1.0]}, r"'scale'\] of chain 1 is outside of the support"),
        ({"scale": 0.0}, r"'scale'\] of chain 0 is outside of the support of the site or at its edge"),
        ({"scale": 1.0, "upper": [0.5, 1.5]}, r"'upper'\] of chain 1 is outside"),
        ({"w": 2 * FRAMES[0]}, r"expected stiefel\(3, 2\), found"),
        ({"angle": 4.0}, r"'angle'\] of chain 0 is outside"),
        ({"scale": np.nan}, r"'scale'\] of chain 0 is outside"),
    ],
)
def test_initial_values_that_do_not_fit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        gxn.sample(sites, model_args=(0.1,), init_values=values, **STILL)


@pytest.mark.thorough
def test_initial_values_of_another_kind_are_refused():
    with pytest.raises(TypeError, match="a dict from names of latent sites"):
        gxn.sample(sites, model_args=(0.1,), init_values=[1.0], **STILL)


# ------------------------------------------------------------------------------------------------- names of axes


def table(num=4, y=None):
    with numpyro.plate("column", 3, dim=-1):
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
        numpyro.sample("w", gxn.StiefelUniform(3, 2), infer={"event_dims": ["variable"]})
        numpyro.deterministic("twice", 2 * loc)
        numpyro.deterministic("total", loc.sum())
        with numpyro.plate("row", num, dim=-2):
            numpyro.sample("y", dist.Normal(loc[:, None] * jnp.ones(2), 1.0).to_event(1), obs=y)
    with numpyro.plate("draw", 2):  # the name of a dimension
        numpyro.sample("free", dist.Normal(0.0, 1.0))


@pytest.mark.thorough
def test_axes_have_the_names_of_plates():
    options = STILL | {"model_args": (4, np.zeros((4, 3, 2))), "with_log_likelihood": True}
    tree = gxn.sample(
        table, dims={"y": ["r", "c", "e"]}, coords={"column": ["a", "b", "c"], "variable": list("xyz")}, **options
    )
    dims = {name: array.dims[2:] for name, array in tree["posterior"].data_vars.items()}
    assert dims == {
        "loc": ("column",),
        "w": ("column", "variable", "w_dim_2"),
        "twice": ("column",),
        "total": (),
        "free": ("free_dim_0",),
    }
    assert tree["observed_data"]["y"].dims == ("r", "c", "e")
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "r", "c")
    np.testing.assert_array_equal(tree["posterior"]["loc"].sel(column="b"), tree["posterior"]["loc"].values[..., 1])
    prediction = gxn.predictive(table, tree, model_args=(6,), coords={"row": range(6)})["posterior_predictive"]
    assert prediction["y"].dims == ("chain", "draw", "row", "column", "y_dim_2")
    np.testing.assert_array_equal(prediction["row"], np.arange(6))
    assert prediction["twice"].dims == ("chain", "draw", "column")


@pytest.mark.thorough
def test_names_of_axes_complete_those_of_plates():
    options = STILL | {"model_args": (4, np.zeros((4, 3, 2))), "with_log_likelihood": True}
    tree = gxn.sample(table, dims={"w": ["component"], "y": ["side"]}, **options)
    assert tree["posterior"]["w"].dims[2:] == ("column", "variable", "component")
    assert tree["observed_data"]["y"].dims == ("row", "column", "side")
    assert tree["log_likelihood"]["y"].dims == ("chain", "draw", "row", "column")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["store", "checkpoint"])
def test_a_store_has_the_groups_and_axes_of_the_result(tmp_path, kind):
    options = STILL | {"model_args": (4, np.zeros((4, 3, 2))), "with_log_likelihood": True}
    labels = {"column": ["a", "b", "c"], "variable": np.array(["2024-01-01", "2025-01-01", "NaT"], "datetime64[ns]")}
    tree = gxn.sample(table, dims={"y": ["r", "c", "e"]}, coords=labels, **options, **{kind: tmp_path / "d"})
    folder = tmp_path / "d" if kind == "store" else tmp_path / "d" / "draws.zarr"
    opened = open_draws(folder)
    assert set(opened.children) == set(tree.children) >= {"observed_data", "log_likelihood"}
    for group in tree.children:
        xr.testing.assert_identical(opened[group].to_dataset(), tree[group].to_dataset())
    assert opened.attrs == tree.attrs
    data = to_arviz(opened)
    assert set(data["posterior"]["w"].dims) == {"chain", "draw", "column", "variable", "w_dim_2"}
    assert arviz.summary(data, var_names=["loc"]).index.tolist() == ["loc[a]", "loc[b]", "loc[c]"]
    with xr.open_datatree(folder, engine="zarr", consolidated=False) as by_zarr:
        assert by_zarr["posterior"]["loc"].dims == ("chain", "draw", "column")


@pytest.mark.thorough
def test_an_interrupted_run_has_names_and_warm_up_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("geodax.run.driver._SECONDS_PER_CHUNK", 1e-9)
    options = {"num_samples": 6, "num_warmup": 20, "num_chains": 2, "coords": {"column": list("abc")}} | HMC

    def stop(progress):
        if progress.iteration > 22:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        gxn.sample(table, **options, checkpoint=tmp_path, progress=stop)
    assert open_draws(tmp_path / "draws.zarr")["posterior"]["loc"].dims == ("chain", "draw", "loc_dim_0")
    tree = gxn.sample(table, **options, checkpoint=tmp_path, progress=False)
    opened = open_draws(tmp_path / "draws.zarr")
    for group in ("posterior", "adaptation"):
        xr.testing.assert_identical(opened[group].to_dataset(), tree[group].to_dataset())
    again = gxn.sample(table, **options | {"num_warmup": 0}, warm_start=opened, progress=False)
    np.testing.assert_array_equal(again["adaptation"]["step_size"], opened["adaptation"]["step_size"])


@pytest.mark.thorough
def test_labels_that_a_store_cannot_hold_are_refused_before_the_run(tmp_path):
    options = STILL | {"coords": {"column": [1.5, "b", None]}}
    gxn.sample(table, **options)
    with pytest.raises(TypeError, match=r"labels of the axis 'column' are of type object.*Convert them to strings"):
        gxn.sample(table, **options, store=tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.thorough
def test_warm_up_of_sites_with_a_slash(tmp_path):
    """Catches a run that ends in an error, since a DataTree takes no variable named scale.a/b."""
    options = {"num_samples": 5, "num_chains": 2, "progress": False} | HMC

    def model():
        numpyro.sample("a/b", dist.Normal(0.0, 1.0))

    tree = gxn.sample(model, num_warmup=20, store=tmp_path / "d", **options)
    assert "scale.a.b" in tree["adaptation"]
    later = gxn.sample(model, num_warmup=0, warm_start=open_draws(tmp_path / "d"), **options)
    np.testing.assert_array_equal(later["adaptation"]["scale.a.b"], tree["adaptation"]["scale.a.b"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"z": ["a"]}}, r"dims names \['z'\]"),
        ({"dims": {"w": ["a", "b"]}}, r"dims\['w'\] to be a list of names for 3 axes"),
        ({"dims": {"loc": ["y"]}}, r"none that of a variable, found \['y'\]"),
        ({"coords": {"column": ["a"]}}, "1 labels of 'column', expected 3"),
        ({"coords": {"rows": ["a"]}}, r"labels of 'rows', expected one of the axes \['chain', 'column'"),
    ],
)
def test_names_of_axes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gxn.sample(table, model_args=(4, np.zeros((4, 3, 2))), **STILL, **options)


@pytest.mark.parametrize("found", [np.ones(3), [np.ones(3)]], ids=["array", "list"])
def test_arguments_that_are_no_tuple(found, unchecked):
    """Catches an array that is unpacked into its rows."""

    def model(*rows):
        numpyro.sample("y", dist.Normal(numpyro.sample("b", dist.Normal(0.0, 1.0)), 1.0), obs=jnp.stack(rows))

    words = r": model_args must be a tuple of arguments such as \(x, y\), found "
    with pytest.raises(TypeError, match="^sample" + words):
        gxn.sample(model, model_args=found, **OPTIONS)
    with pytest.raises(TypeError, match="^to_geodax" + words):
        gxn.to_geodax(model, model_args=found)
    draws = xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw"), np.zeros((1, 2)))})})
    with pytest.raises(TypeError, match="^predictive" + words):
        gxn.predictive(model, draws, model_args=found)


def test_samplers_that_would_leave_a_manifold_are_refused():
    """Catches draws of another distribution, by a sampler of BlackJAX that moves an angle in the plane."""

    def model():
        numpyro.sample("angle", dist.VonMises(0.0, 2.0))
        numpyro.sample("x", dist.Normal(0.0, 1.0))

    def mala(log_density, *, manifold):
        return blackjax.mala(log_density, 0.1)

    options = {"sampler": mala, "num_samples": 3, "num_chains": 1, "progress": False}
    with pytest.raises(ValueError, match=r"the sites \['angle'\] are on manifolds"):
        gxn.sample(model, **options)
    by_cosines = numpyro.handlers.reparam(model, config={"angle": CircularReparam()})
    assert gxn.sample(by_cosines, **options)["posterior"].sizes["draw"] == 3


@pytest.mark.thorough
@pytest.mark.parametrize(("sampler", "max_bias"), [("adjusted_mclmc", 0.1), ("mclmc", 0.2)])
def test_microcanonical_samplers(sampler, max_bias):
    """A conjugate model: both means and both variances of the posterior."""
    y = np.array([[1.2, -0.4, 0.3], [5.0, 4.1, 4.5]])

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(1.0, np.array([0.5, 3.0])).to_event(1))
        numpyro.sample("y", dist.Normal(mean[:, None], np.array([[1.0], [2.0]])).to_event(2), obs=y)

    settings = {"num_samples": 500, "num_warmup": 300, "num_chains": 32, "progress": False}
    tree = gxn.sample(model, model_args=(y,), sampler=sampler, rng_key=3, **settings)
    assert ("acceptance_rate" in tree["sample_stats"]) == (sampler == "adjusted_mclmc")
    precision = 1.0 / np.array([0.25, 9.0]) + 3.0 / np.array([1.0, 4.0])
    exact = (1.0 / np.array([0.25, 9.0]) + y.sum(axis=1) / np.array([1.0, 4.0])) / precision
    deviation = (tree["posterior"]["mean"].values - exact) * precision**0.5
    means = np.concatenate([deviation.mean(axis=1), (deviation**2).mean(axis=1)], axis=1)
    truth, spread = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 1.0, 2.0**0.5, 2.0**0.5])
    if sampler == "adjusted_mclmc":
        assert_agree(means, truth, spread=spread, max_bias=max_bias)
    else:  # its steps are not accepted or rejected
        assert (abs(means.mean(axis=0) - truth) < max_bias * spread).all()
