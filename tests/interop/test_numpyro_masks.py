"""Masked cells: those that are observed do not count, those that are latent must be determined by something else."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import xarray as xr
from numpyro import distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask

from geodax.diagnostics import to_arviz
from geodax.interop import numpyro as gxn
from geodax.interop.numpyro.masks import counted_cells

pytestmark = pytest.mark.relaxed

IS_SEEN = np.array([[True, False, True], [True, True, False]])
Y = np.where(IS_SEEN, [[0.5, 9.0, -0.3], [1.2, 0.1, 9.0]], np.nan)
OPTIONS = {"num_samples": 40, "num_warmup": 0, "num_chains": 2, "sampler_options": {"step_size": 0.5}}
OPTIONS |= {"progress": False, "with_log_likelihood": True}


def table(is_seen, y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("columns", 3), numpyro.plate("rows", 2), mask(mask=is_seen):
        numpyro.sample("b/y", dist.Normal(mean, 1), obs=y)
    with mask(mask=False):
        numpyro.sample("left out", dist.Normal(mean, 1), obs=1.0)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")
def test_masked_observations_have_no_log_likelihood():
    arviz = pytest.importorskip("arviz")
    tree = gxn.sample(table, model_args=(IS_SEEN, Y), **OPTIONS)
    found = tree["log_likelihood"]["b.y"]
    assert set(tree["log_likelihood"].data_vars) == {"b.y"}
    np.testing.assert_array_equal(found["b.y_dim_0"], [0, 2, 3, 4])
    posterior = tree["posterior"].to_dataset()
    expected = np.asarray(dist.Normal(posterior["mean"].values[..., None], 1.0).log_prob(Y[IS_SEEN]))
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    by_hand = xr.Dataset({"y": (("chain", "draw", "cell"), expected)})
    same = xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": by_hand})
    found, expected = (arviz.loo(to_arviz(draws)) for draws in (tree, same))
    assert found.n_data_points == 4
    elpd = "elpd_loo" if hasattr(found, "elpd_loo") else "elpd"  # ArviZ 0.23, 1.x
    assert found[elpd] == expected[elpd]


SEEN = jnp.array([True, False, True])


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (dist.Normal(0, 1).expand([3]), [True, True, True]),
        (dist.Normal(0, 1).mask(SEEN), [True, False, True]),
        (dist.Normal(0, 1).mask(SEEN).mask(SEEN[::-1] ^ (jnp.arange(3) == 0)), [False, False, True]),
        (dist.Normal(0, 1).mask(SEEN).expand([2, 3]), [[True, False, True]] * 2),
        (dist.Normal(0, 1).expand([3]).mask(False), [False] * 3),
        (dist.Normal(0, 1).mask(jnp.array([[True, False], [False, False]])).to_event(1), [True, False]),
        (dist.Normal(0, 1).expand([2]).to_event(1).expand([3]).mask(SEEN), [True, False, True]),
    ],
)
def test_cells_that_count(law, expected):
    np.testing.assert_array_equal(jnp.broadcast_to(counted_cells(law), law.batch_shape), expected)


# ------------------------------------------------------------------------------------------------ latent sites


def imputed(is_seen):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("columns", 3), numpyro.plate("rows", 2):
        numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.nan_to_num(Y), obs_mask=is_seen)


def unused():
    numpyro.sample("level", dist.ImproperUniform(dist.constraints.real, (), event_shape=(2,)))
    numpyro.sample("mean", dist.Normal(0, 1))


def half_masked():
    with numpyro.plate("rows", 3), mask(mask=SEEN):
        numpyro.sample("x", dist.HalfNormal(1))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "args", "message"),
    [
        (imputed, (IS_SEEN,), r"does not depend on 4 of the 6 numbers of the latent site 'y_unobserved'"),
        (unused, (), "2 of the 2 numbers of the latent site 'level'"),
        (half_masked, (), "1 of the 3 numbers of the latent site 'x'"),
    ],
)
def test_flat_directions_are_refused(model, args, message):
    with pytest.raises(ValueError, match=message):
        gxn.to_geodax(model, model_args=args)


def test_masked_priors_with_another_density_are_sampled():
    """The law that NumPyro masks may stand for the shape and the support alone."""

    def model():
        with mask(mask=False):
            x = numpyro.sample("x", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.factor("density", -0.5 * jnp.sum(x**4))

    translated = gxn.to_geodax(model)
    x = jnp.array([0.3, -1.0, 2.0])
    assert float(translated.log_density({"x": x})) == pytest.approx(-0.5 * float(jnp.sum(x**4)))


def test_cells_that_are_all_missing_are_sampled():
    translated = gxn.to_geodax(imputed, model_args=(np.zeros((2, 3), bool),))
    assert jax.tree.map(jnp.shape, translated.position) == {"mean": (), "y_unobserved": (2, 3)}


def imputation(x, y):
    """NumPyro's way to impute: latent values in the place of missing observations."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    missing = np.isnan(x)
    latent = numpyro.sample("latent", dist.Normal(mean, 1).expand([int(missing.sum())]).mask(False))
    complete = jnp.asarray(np.where(missing, 0, x)).at[np.nonzero(missing)].set(latent)
    numpyro.sample("x", dist.Normal(mean, 1), obs=complete)
    numpyro.sample("rows", dist.Normal(mean, 1).expand([2]).to_event(1), obs=complete)
    numpyro.sample("y", dist.Normal(complete, 1), obs=y)
    scan(lambda carry, z: (carry, numpyro.sample("z", dist.Normal(mean, 1), obs=z)), 0.0, y[:, 0])


@pytest.mark.thorough
def test_imputed_cells_are_no_data():
    x, y = np.array([[0.3, np.nan], [-0.2, 1.1], [np.nan, 0.4]]), jnp.ones((3, 2))
    tree = gxn.sample(imputation, model_args=(x, y), **OPTIONS)
    observed, found = tree["observed_data"], tree["log_likelihood"]
    for name, expected in {"x": x, "rows": x, "y": y, "z": y[:, 0]}.items():
        np.testing.assert_array_equal(observed[name], expected)
    np.testing.assert_array_equal(found["x_dim_0"], [0, 2, 3, 5])
    np.testing.assert_array_equal(found["rows_dim_0"], [1])
    assert (found["y"].shape, found["z"].shape) == ((2, 40, 3, 2), (2, 40, 3))
    mean = tree["posterior"]["mean"].values[..., None]
    expected = np.asarray(dist.Normal(mean, 1.0).log_prob(x[~np.isnan(x)]))
    np.testing.assert_allclose(found["x"].values, expected, rtol=1e-12)
