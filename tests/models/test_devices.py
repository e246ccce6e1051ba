"""Estimators and run folders on several devices: the draws of one, and clear words where devices do not fit."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import geodax as gx
from geodax import models
from geodax.app import main
from geodax.run.draws import open_draws
from tests.marks import slow

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(24, 6))
LABELS = (ROWS[:, 0] > 0).astype(int)
PAIRS = np.stack([np.arange(24) % 6, np.arange(24) // 4], axis=1).astype(str)
ADJACENCY = np.triu(GENERATOR.integers(0, 2, size=(7, 7)), 1)
COUNTS = GENERATOR.poisson(3.0, size=(12, 4, 4))

EXACT = {
    "pca": (models.BayesianPCA(1), (ROWS,)),
    "eigenmodel": (models.Eigenmodel(1), (ADJACENCY + ADJACENCY.T,)),
    "network": (models.NetworkHMM(2, 1, num_starts=2), (COUNTS + COUNTS.transpose(0, 2, 1),)),
    "unit-network": (models.UnitNetworkRegressor(2), (ROWS, ROWS[:, 0])),
    "cca": (models.HierarchicalCCA(views=([0, 1, 2], [3, 4, 5])), (ROWS, np.arange(24) % 2)),
}
STOCHASTIC = {
    "classifier": (models.BayesianMLPClassifier((3,), batch_size=8), (ROWS, LABELS)),
    "regressor": (models.BayesianMLPRegressor((3,), batch_size=8), (ROWS, ROWS[:, 0])),
    "whvi": (models.BayesianMLPRegressor((3,), inference="whvi", batch_size=8), (ROWS, ROWS[:, 0])),
    "factorization": (models.LowRankFactorization(1, batch_size=8), (PAIRS, ROWS[:, 0])),
}
ALL = EXACT | STOCHASTIC
SMALL = {"num_warmup": 20, "num_samples": 4, "random_state": 0}


def fitted(name: str, **options) -> np.ndarray:
    """The log densities of a short run, (chain, draw): numbers that every array of a draw goes into."""
    model, data = ALL[name]
    stats = clone(model).set_params(**SMALL | options).fit(*data).posterior_["sample_stats"]
    return stats["lp" if "lp" in stats else "potential"].values


def test_every_estimator_is_tried():
    assert {type(model).__name__ for model, _ in ALL.values()} == set(models.__all__)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ALL)
def test_devices_that_do_not_fit_are_refused(name):
    """Catches an option that an estimator does not hand on, and one that is looked at after an hour of work."""
    with pytest.raises(ValueError, match=r"3 devices were asked for, but there are 2: .* Ask for fewer, or make more"):
        fitted(name, devices=3)
    with pytest.raises(ValueError, match=r"devices must be one of \['all'\], found 'most'"):
        fitted(name, devices="most")
    with pytest.raises(TypeError, match=r"devices must be a number of devices, 'all', some of .*, found True"):
        fitted(name, devices=True)


@pytest.mark.parametrize("name", [*EXACT, "classifier", "factorization"])
def test_chains_that_cannot_be_shared_out_are_refused(name):
    with pytest.raises(ValueError, match="3 chains cannot be shared out evenly among 2 devices; choose a multiple"):
        fitted(name, devices="all", num_chains=3)


@pytest.mark.parametrize("name", EXACT)
def test_rows_of_exact_samplers_are_not_shared_out(name):
    with pytest.raises(ValueError, match="there are no batches to share out"):
        fitted(name, devices=gx.device_mesh(chain=1, data=2))


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name if name == "classifier" else slow(name) for name in ALL])
def test_draws_are_those_of_one_device(name):
    """As many chains on a device are the same up to rounding: catches another's key, start or data.

    A program for one device may round differently from that for two; in a few steps from equal starts that is all.
    """
    options = {"num_warmup": 4} if name in EXACT else {}
    one = fitted(name, devices=1, num_chains=2, **options)
    if name == "whvi":  # the fits share out their batches, so that sums are of another order
        np.testing.assert_allclose(fitted(name, devices="all", num_chains=2), one, rtol=1e-3)
        return
    two = fitted(name, devices="all", num_chains=4, **options)[:2]
    np.testing.assert_allclose(two, one, rtol=1e-9 if name in EXACT else 1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["classifier", slow("factorization")])
def test_batches_are_shared_out_over_a_mesh(name):
    """A given step size, and few steps: single precision drifts apart."""
    options = {"step_size": 1e-3, "num_chains": 1, "num_warmup": 2, "thinning": 1}
    one = fitted(name, devices=1, **options)
    np.testing.assert_allclose(fitted(name, devices=gx.device_mesh(chain=1, data=2), **options), one, rtol=1e-4)


def test_meshes_can_be_copied():
    """scikit-learn copies the options of an estimator for each fold of a cross-validation."""
    mesh = gx.device_mesh(chain=2)
    assert clone(models.BayesianPCA(devices=mesh)).devices == mesh


@pytest.fixture
def command(tmp_path):
    """A fit of a small table, up to the number of chains."""
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(["a,b,c,d,e,f", *(",".join(map(str, row)) for row in ROWS)]))
    return ["fit", "pca", str(table), "--n-components", "1", "--num-warmup", "20", "--no-progress", "--num-chains"]


@pytest.mark.slow
def test_a_run_folder_goes_on_with_other_devices(tmp_path, capsys, command):
    one, two = tmp_path / "one", tmp_path / "two"

    def drawn(folder):
        return open_draws(folder / "posterior.zarr")["sample_stats"]["lp"].values

    assert main([*command, "2", "--num-samples", "8", "--devices", "1", "--out", str(one)]) == 0
    assert main([*command, "4", "--num-samples", "4", "--devices", "all", "--out", str(two)]) == 0
    np.testing.assert_allclose(drawn(two)[:2], drawn(one)[:, :4], rtol=1e-6)
    assert main(["resume", str(two), "--num-samples", "8", "--devices", "1", "--no-progress"]) == 0
    np.testing.assert_allclose(drawn(two)[:2], drawn(one), rtol=1e-6)
    capsys.readouterr()

    assert main(["resume", str(two), "--num-samples", "9", "--devices", "3", "--no-progress"]) == 1
    assert "3 devices were asked for, but there are 2" in capsys.readouterr().err


def test_devices_that_do_not_fit_leave_no_run(tmp_path, capsys, command):
    assert main([*command, "3", "--devices", "2", "--out", str(tmp_path / "none")]) == 1
    assert "3 chains cannot be shared out evenly among 2 devices" in capsys.readouterr().err
    assert not (tmp_path / "none" / "config.json").exists()
    with pytest.raises(SystemExit, match="2"):
        main([*command, "2", "--devices", "most", "--out", str(tmp_path / "none")])


@pytest.mark.parametrize("devices", [(), [1], "most", 0, -1, 3])
def test_what_means_no_devices_is_refused_by_samplers(key, devices):
    algorithm = gx.hmc(lambda x: -x @ x, step_size=0.1)
    kind = TypeError if devices == [1] else ValueError
    with pytest.raises(kind, match=r"^sample: .*devices"):
        gx.sample(key, algorithm, jnp.zeros(2), num_samples=2, devices=devices, progress=False)
