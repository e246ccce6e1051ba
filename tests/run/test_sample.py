"""What ``sample`` hands over, and that it does not depend on how the run was cut up."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.custom_batching import custom_vmap

import geodax as gx
from geodax._types import Description
from geodax.run import driver
from geodax.run import sample as loop
from geodax.run.draws import open_draws
from geodax.run.progress import Progress
from tests.marks import slow

STATISTICS = {"acceptance_rate", "diverging", "energy", "lp", "n_steps", "residual", "step_size"}
POSITION = {"layer": {"weight": jnp.zeros((3, 2)), "bias": jnp.ones(2)}, "scale": jnp.zeros(())}
FRAME = gx.Product({"frame": gx.Stiefel()})


class SimpleState(NamedTuple):
    position: Any


def gaussian(position):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))


def fixed_hmc(**settings):
    return gx.hmc(gaussian, **{"step_size": 0.4, "num_integration_steps": 3} | settings)


def run(key, algorithm=None, position=None, **settings):
    algorithm = fixed_hmc() if algorithm is None else algorithm
    position = jnp.zeros(3) if position is None else position
    settings = {"num_samples": 24, "num_chains": 2, "progress": False} | settings
    return gx.sample(jax.random.clone(key), algorithm, position, **settings)


def assert_same(left: xr.DataTree, right: xr.DataTree):
    """Every variable of every group, bit for bit."""
    assert set(left.children) ^ set(right.children) <= {"adaptation"}  # draws of an error have none
    for group in set(left.children) & set(right.children):
        assert set(left[group].data_vars) == set(right[group].data_vars)
        for name, values in left[group].data_vars.items():
            found = right[group][name]
            assert values.dims == found.dims
            assert values.dtype == found.dtype
            np.testing.assert_array_equal(values.values, found.values, err_msg=f"{group}/{name}")


class TestLayout:
    @pytest.mark.thorough
    def test_nested_leaves_are_named_by_their_paths(self, key):
        """Catches lost leaves, swapped axes and dimension names that ArviZ does not know."""
        tree = run(key, position=POSITION)
        posterior = tree["posterior"]
        assert dict(posterior.sizes) == {
            "chain": 2,
            "draw": 24,
            "layer.weight_dim_0": 3,
            "layer.weight_dim_1": 2,
            "layer.bias_dim_0": 2,
        }
        assert posterior["layer.weight"].dims == ("chain", "draw", "layer.weight_dim_0", "layer.weight_dim_1")
        assert posterior["layer.bias"].dims == ("chain", "draw", "layer.bias_dim_0")
        assert posterior["scale"].dims == ("chain", "draw")
        np.testing.assert_array_equal(posterior["draw"], np.arange(24))
        np.testing.assert_array_equal(posterior["chain"], np.arange(2))

    def test_a_bare_array_is_called_position(self, key, dtype):
        tree = run(key, position=jnp.zeros(3, dtype))
        assert list(tree["posterior"].data_vars) == ["position"]
        assert tree["posterior"]["position"].dims == ("chain", "draw", "position_dim_0")
        assert tree["posterior"]["position"].dtype == dtype

    def test_statistics_have_the_names_of_arviz_and_belong_to_their_draws(self, key):
        """Catches statistics of another iteration than the draw beside them."""
        tree = run(key)
        statistics = tree["sample_stats"]
        assert set(statistics.data_vars) == STATISTICS
        assert all(statistics[name].dims == ("chain", "draw") for name in STATISTICS)
        assert statistics["diverging"].dtype == bool
        position = tree["posterior"]["position"].values
        np.testing.assert_allclose(statistics["lp"], -0.5 * np.sum(position**2, axis=-1), rtol=1e-12)
        np.testing.assert_array_equal(statistics["n_steps"], 3)
        np.testing.assert_array_equal(statistics["step_size"], 0.4)
        assert (statistics["energy"] >= -statistics["lp"]).all()

    def test_chains_differ(self, key):
        """Catches one key used for all chains."""
        position = run(key)["posterior"]["position"].values
        assert not np.any(position[0, -1] == position[1, -1])

    def test_facts_about_the_run_are_kept(self, key):
        attributes = run(key, thinning=2).attrs
        assert attributes["inference_library"] == "geodax"
        assert attributes["thinning"] == 2
        assert attributes["num_warmup"] == 0
        assert attributes["jax_version"] == jax.__version__

    def test_arviz_summarises_it(self, key):
        tree = run(key, position=POSITION)
        data = gx.diagnostics.to_arviz(tree)
        assert az.summary(data).shape[0] == 3 * 2 + 2 + 1
        assert az.summary(data, var_names=["scale"]).index.tolist() == ["scale"]
        assert dict(data.attrs) == tree.attrs
        bfmi = az.bfmi(data)
        assert np.isfinite(bfmi if isinstance(bfmi, np.ndarray) else bfmi["energy"]).all()

    def test_the_position_is_still_the_callers(self, key):
        """Catches donation of the caller's own arrays to the compiled loop."""
        position = jnp.zeros((2, 3))
        run(key, position=position, stacked=True)
        run(key, position=position, stacked=True)
        assert float(position.sum()) == 0.0


class TestWhatIsKept:
    def test_thinning_keeps_every_kth_draw(self, key):
        """Catches the first instead of the last of each group, and a slot that is off by one."""
        every = run(key, num_samples=24)
        third = run(key, num_samples=8, thinning=3)
        for group in ("posterior", "sample_stats"):
            for name, values in third[group].data_vars.items():
                expected = every[group][name].values[:, 2::3]
                np.testing.assert_array_equal(values.values, expected, err_msg=name)

    @pytest.mark.thorough
    def test_attributes_count_all_iterations(self, key, tmp_path):
        """Catches counts of the kept iterations alone, by which a thinned run looks cheap and free of divergences."""
        algorithm = gx.nuts(lambda x: jnp.where(x[0] < 1.5, gaussian(x), -jnp.inf), step_size=0.4)
        every = run(key, algorithm, num_samples=240)
        steps, is_divergent = (every["sample_stats"][name].values for name in ("n_steps", "diverging"))
        assert is_divergent[:, 40:].sum() > is_divergent[:, 44::5].sum() > 0
        first = {"num_warmup": 40, "thinning": 5, "checkpoint": tmp_path / "run"}
        run(key, algorithm, num_samples=20, **first)
        for settings in ({"num_samples": 40, **first}, {"num_samples": 40, "num_warmup": 40, "thinning": 5}):
            thinned = run(key, algorithm, **settings)
            assert thinned.attrs["num_warmup_integration_steps"] == steps[:, :40].sum()
            assert thinned.attrs["num_integration_steps"] == steps[:, 40:].sum()
            assert thinned.attrs["num_divergences"] == is_divergent[:, 40:].sum()
        assert open_draws(tmp_path / "run").attrs["num_divergences"] == is_divergent[:, 40:].sum()

    def test_samplers_without_them_have_no_such_counts(self, key):
        attributes = run(key, gx.sgrld(gaussian, step_size=0.1)).attrs
        assert not {"num_integration_steps", "num_divergences"} & set(attributes)

    def test_keep_records_what_it_returns(self, key):
        kept = run(key, keep=lambda x: {"square": x**2, "total": jnp.sum(x)})["posterior"]
        position = run(key)["posterior"]["position"].values
        assert set(kept.data_vars) == {"square", "total"}
        np.testing.assert_allclose(kept["square"].values, position**2, rtol=1e-14)
        np.testing.assert_allclose(kept["total"].values, position.sum(-1), rtol=1e-12, atol=1e-14)

    def test_keep_returns_arrays(self, key):
        """Catches what could not be recorded being found out after the run."""
        for nothing in ([], None, {}):
            with pytest.raises(ValueError, match="keep must return at least one array"):
                run(key, keep=lambda x, nothing=nothing: nothing)
        for strange in ("a word", object(), np.array(["a"])):
            with pytest.raises(TypeError, match="keep must return a pytree of arrays of numbers"):
                run(key, keep=lambda x, strange=strange: {"kept": strange})

    @pytest.mark.parametrize(
        "position",
        [
            {"draw": jnp.zeros(2)},
            {"chain": jnp.zeros(2)},
            {"x": jnp.zeros(2), "x_dim_0": jnp.zeros(3)},
        ],
    )
    def test_names_that_cannot_be_stored_are_refused_before_the_run(self, key, position):
        """Catches a run that fails after its last iteration, when the tree is made."""
        with pytest.raises(ValueError, match=r"cannot name a recorded variable.*keep="):
            run(key, position=position)

    def test_slashes_are_recorded_as_points(self, key, tmp_path):
        """Names of Haiku's modules have slashes, which separate the groups of a store."""
        tree = run(key, position={"a/~/b": {"w": jnp.zeros(2)}}, store=tmp_path / "draws")
        assert list(tree["posterior"].data_vars) == ["a.~.b.w"]

    def test_such_a_name_can_be_changed_by_keep(self, key):
        tree = run(key, position={"draw": jnp.zeros(2)}, keep=lambda p: {"shot": p["draw"]})
        assert list(tree["posterior"].data_vars) == ["shot"]


class TestStarts:
    def test_a_function_is_called_once_a_chain(self, key):
        """Catches one start shared by all chains; a tiny step keeps chains where they began."""
        still = fixed_hmc(step_size=1e-9, num_integration_steps=1)
        tree = run(key, still, lambda k: jax.random.normal(k, (3,)), num_chains=4)
        first = tree["posterior"]["position"].values[:, 0]
        assert len(np.unique(first.round(6), axis=0)) == 4

    def test_a_stack_gives_each_chain_its_own(self, key):
        still = fixed_hmc(step_size=1e-9, num_integration_steps=1)
        starts = jnp.arange(6.0).reshape(2, 3)
        tree = run(key, still, starts, stacked=True)
        np.testing.assert_allclose(tree["posterior"]["position"].values[:, 0], starts, atol=1e-6)

    def test_one_point_serves_all(self, key):
        still = fixed_hmc(step_size=1e-9, num_integration_steps=1)
        tree = run(key, still, jnp.array([1.0, 2.0, 3.0]))
        first = tree["posterior"]["position"].values[:, 0]
        np.testing.assert_allclose(first, [[1, 2, 3], [1, 2, 3]], atol=1e-6)

    def test_one_chain(self, key):
        tree = run(key, num_chains=1)
        assert dict(tree["posterior"].sizes) == {"chain": 1, "draw": 24, "position_dim_0": 3}
        assert tree["posterior"]["position"].values.std() > 0.1

    def test_rounded_starts_are_brought_to_the_manifold(self, key):
        algorithm = gx.hmc(jnp.sum, manifold=gx.Sphere(), step_size=0.3, num_integration_steps=2)
        tree = run(key, algorithm, jnp.array([1.0, 1e-4, 0.0]))
        assert float(tree["sample_stats"]["residual"].max()) < 1e-14

    def test_a_list_of_numbers_is_a_position_of_its_own(self, key):
        algorithm = gx.hmc(lambda p: -(p[0] ** 2) - p[1] ** 2, step_size=0.3)
        tree = run(key, algorithm, [jnp.zeros(()), jnp.ones(())])
        assert list(tree["posterior"].data_vars) == ["0", "1"]


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [slow(gx.nuts), gx.hmc])
def test_a_frame_in_single_beside_a_scale_in_double_precision(key, sampler):
    """Catches draws refused as off the manifold at the rounding of the finer dtype: 9 of 10 were, and chains froze."""
    frame = jnp.eye(3, 2, dtype=jnp.float32)
    start = {"frame": frame, "scale": jnp.zeros(()), "none": jnp.zeros((0, 2))}
    algorithm = sampler(
        lambda p: jnp.sum(p["frame"] * frame).astype(float) - 0.5 * p["scale"] ** 2 + jnp.sum(p["none"]),
        manifold=gx.Product({"frame": gx.Stiefel()}),
    )
    with jax.numpy_dtype_promotion("standard"):  # as it is outside the tests
        tree = gx.sample(key, algorithm, start, num_samples=100, num_warmup=100, num_chains=2, progress=False)
    assert tree["sample_stats"]["residual"].dtype == np.float32
    assert tree["sample_stats"]["diverging"].values.mean() < 0.02
    assert (np.diff(tree["posterior"]["scale"].values) != 0).mean() > 0.5


class TestCutting:
    @pytest.fixture(scope="class")
    @classmethod
    def settings(cls):
        return {"algorithm": gx.hmc(gaussian, num_integration_steps=4), "num_samples": 30, "num_warmup": 40}

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, settings):
        return run(jax.random.key(11), **settings)

    @pytest.mark.parametrize(("seconds", "buffer"), [(1e-9, 512), (1e9, 7), slow(0.002, 2)])
    def test_draws_do_not_depend_on_the_length_of_chunks(self, monkeypatch, settings, whole, seconds, buffer):
        """Catches keys that depend on the chunk, and draws lost or written twice at its ends."""
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", seconds)
        monkeypatch.setattr(loop, "_LONGEST_BUFFER", buffer)
        assert_same(run(jax.random.key(11), **settings), whole)

    @pytest.mark.thorough
    @pytest.mark.parametrize("buffer", [1, 5])
    def test_nor_does_thinning_across_chunks(self, monkeypatch, key, buffer):
        """Catches a thinned draw whose group of iterations is cut by the end of a chunk."""
        expected = run(key, num_samples=9, thinning=4)
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        monkeypatch.setattr(loop, "_LONGEST_BUFFER", buffer)
        assert_same(run(key, num_samples=9, thinning=4), expected)

    def test_the_store_on_disk_equals_memory(self, settings, whole, tmp_path):
        tree = run(jax.random.key(11), **settings, store=tmp_path / "draws.zarr")
        assert_same(tree, whole)
        assert_same(open_draws(tmp_path / "draws.zarr"), whole)

    def test_a_finished_run_is_extended(self, settings, whole, tmp_path):
        """Catches an extension that starts over, repeats draws or tunes again."""
        run(jax.random.key(11), **settings | {"num_samples": 1}, checkpoint=tmp_path)
        short = run(jax.random.key(11), **settings | {"num_samples": 13}, checkpoint=tmp_path)
        reports = []
        long = run(jax.random.key(11), **settings, checkpoint=tmp_path, progress=reports.append)
        assert dict(short["posterior"].sizes)["draw"] == 13
        assert_same(long, whole)
        assert reports[0].iteration > 40 + 13
        again = run(jax.random.key(11), **settings, checkpoint=tmp_path, progress=reports.append)
        assert_same(again, whole)


class TestDevices:
    @pytest.mark.thorough
    def test_a_device_with_as_many_chains_gives_the_same_bits(self, key):
        """Catches randomness that depends on the device or on the number of chains.

        Products of matrices, as in the estimate of correlations, may be summed in another order on several devices.
        """
        algorithm = gx.hmc(gaussian, num_integration_steps=4, mass_matrix="diagonal")
        settings = {"num_warmup": 40, "num_samples": 20}
        position = lambda k: jax.random.normal(k, (3,))  # noqa: E731
        two = run(key, algorithm, position, num_chains=2, devices=jax.devices()[:1], **settings)
        four = run(key, algorithm, position, num_chains=4, devices=jax.devices()[:2], **settings)
        assert_same(four.isel(chain=slice(0, 2)), two)

    def test_another_number_of_devices_differs_by_rounding_only(self, key):
        """Catches a chain that gets another's key or state when chains are spread.

        The number of chains on a device is a number in the compiled program, and programs round differently;
        over a few iterations that is all there is.
        """
        weights = jnp.linspace(0.1, 1.0, 35).reshape(7, 5)
        algorithm = gx.hmc(lambda x: -jnp.sum(jnp.cosh(weights @ x)), step_size=0.05, num_integration_steps=3)
        position = lambda k: jax.random.normal(k, (5,))  # noqa: E731
        one = run(key, algorithm, position, num_chains=4, devices=jax.devices()[:1])
        two = run(key, algorithm, position, num_chains=4, devices=jax.devices()[:2])
        np.testing.assert_allclose(one["posterior"]["position"], two["posterior"]["position"], rtol=1e-9)
        np.testing.assert_array_equal(one["sample_stats"]["diverging"], two["sample_stats"]["diverging"])

    @pytest.mark.thorough
    def test_chains_tuned_together_may_be_run_in_turn(self, key):
        """Catches an adaptation of single chains where there is one of all."""
        options, start = {"num_warmup": 30, "num_chains": 16, "devices": 1}, lambda k: jax.random.normal(k, (3,))
        first, second = (
            run(key, gx.hmc(gaussian, num_integration_steps=2), start, **options, chain_method=method)
            for method in ("vectorized", "sequential")
        )
        np.testing.assert_allclose(first["posterior"]["position"], second["posterior"]["position"], rtol=1e-6)

    def test_chains_in_turn_and_a_chain_alone_are_not_vectorized(self, key):
        """Catches an option that does nothing, whose draws would be the same."""

        @custom_vmap
        def moved(position):
            return position + 1.0

        @moved.def_vmap
        def _(axis_size, in_batched, position):
            raise AssertionError("side by side")

        functions = {"init": SimpleState, "step": lambda _, state: (SimpleState(moved(state.position)), {})}
        algorithm = SimpleNamespace(**functions)
        ragged = SimpleNamespace(**functions, description=Description(is_ragged=True))
        assert gx.nuts(gaussian).description.is_ragged
        for sampler, options in (
            (algorithm, {"num_chains": 1}),
            (algorithm, {"num_chains": 3, "chain_method": "sequential"}),
            (ragged, {"num_chains": 3}),
        ):
            tree = run(key, sampler, **options, num_samples=2, devices=1)
            np.testing.assert_array_equal(
                tree["posterior"]["position"].values[:, :, 0], [[1, 2]] * options["num_chains"]
            )
        for sampler, options in ((algorithm, {}), (ragged, {"chain_method": "vectorized"})):
            with pytest.raises(AssertionError, match="side by side"):
                run(key, sampler, **options, num_chains=3, num_samples=2, devices=1)

    def test_an_unknown_way_to_run_chains_is_refused(self, key):
        with pytest.raises(ValueError, match="chain_method must be one of"):
            run(key, chain_method="in turn")
        with pytest.raises(ValueError, match='of NumPyro, one chain on each device, is devices="all" here'):
            run(key, chain_method="parallel")

    @pytest.mark.thorough
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_a_chain_alone_is_the_first_of_several(self, key, batch_size):
        """It is computed without ``vmap``, as chains in turn are: catches a lost axis, and batches of another chain."""
        if batch_size is None:
            density = lambda x: 3.0 * jnp.sum(x["frame"][:2, :2])  # noqa: E731
            algorithm, batches = gx.hmc(density, manifold=FRAME, num_integration_steps=2), None
            start = {"frame": jnp.eye(4, 2)}
        else:
            posterior = gx.Posterior(
                log_prior=gaussian, log_likelihood=lambda w, x: -0.5 * (x @ w["w"]).sum(-1) ** 2, num_data=12
            )
            algorithm = gx.sgrld(posterior, metric=gx.metrics.Shampoo(statistics_every=1, update_every=2))
            batches = gx.data.batches(jax.random.normal(jax.random.key(3), (12, 3)), batch_size=batch_size)
            start = {"w": jnp.ones((3, 2))}
        settings = {"num_samples": 8, "num_warmup": 30, "batches": batches, "devices": 1}
        alone, several = (run(key, algorithm, start, **settings, num_chains=count) for count in (1, 3))
        in_turn = run(key, algorithm, start, **settings, num_chains=3, chain_method="sequential")
        for group in ("posterior", "sample_stats"):
            for name, values in several[group].data_vars.items():
                for found, expected in ((alone[group][name].values, values[:1]), (in_turn[group][name].values, values)):
                    assert found.shape == expected.shape
                    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9, err_msg=name)

    def test_a_single_device_that_is_not_the_first_is_used(self, key):
        """Catches ``devices=[...]`` of length one being ignored."""
        seen = []
        last = jax.devices()[-1]

        def note(_):
            seen.append({d for x in jax.live_arrays() if x.shape == (2, 7919) for d in x.devices()})

        run(key, position=jnp.zeros(7919), devices=[last], progress=note)
        assert seen
        assert all(last in devices for devices in seen)

    @pytest.mark.parametrize(
        ("num_chains", "count", "message"),
        [
            (3, 2, r"3 chains cannot be shared out evenly among 2 devices; choose a multiple"),
            (2, 0, r"devices is empty; name at least one"),
        ],
    )
    def test_devices_that_do_not_fit_are_refused(self, key, num_chains, count, message):
        with pytest.raises(ValueError, match=message):
            run(key, num_chains=num_chains, devices=jax.devices()[:count])

    def test_without_devices_as_many_are_taken_as_divide_the_chains(self, key):
        assert dict(run(key, num_chains=3)["posterior"].sizes)["chain"] == 3


class TestProgress:
    @pytest.mark.thorough
    def test_reports_are_sensible(self, monkeypatch, key):
        """Catches counts that go back, end early, or mix warm-up with sampling."""
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 0.001)
        reports: list[Progress] = []
        algorithm = gx.hmc(gaussian, num_integration_steps=4)
        tree = run(key, algorithm, num_warmup=50, num_samples=30, thinning=2, progress=reports.append)
        iterations = [report.iteration for report in reports]
        assert iterations == sorted(set(iterations))
        assert iterations[-1] == reports[-1].num_iterations == 50 + 60
        assert 50 in iterations
        for report in reports:
            assert report.num_warmup == 50
            assert 0 <= report.acceptance_rate <= 1
            assert report.iterations_per_second > 0
            assert report.seconds_left >= 0 or report.iteration < 5
            assert ("warm-up" if report.iteration <= 50 else "sampling") in str(report)
        assert reports[-1].seconds_left == 0
        assert reports[-1].num_divergences == 0
        thinned = float(tree["sample_stats"]["acceptance_rate"].mean())
        assert reports[-1].acceptance_rate == pytest.approx(thinned, abs=0.1)

    def test_divergences_are_counted_after_warmup(self, key):
        algorithm = fixed_hmc(step_size=1e3)
        reports = []
        tree = run(key, algorithm, progress=reports.append)
        assert reports[-1].num_divergences == int(tree["sample_stats"]["diverging"].sum()) == 2 * 24

    @pytest.mark.thorough
    def test_the_bar_names_the_phase(self, key, capsys):
        run(key, gx.hmc(gaussian, num_integration_steps=2), num_warmup=10, progress=True)
        printed = capsys.readouterr().out
        assert "sampling" in printed
        assert "34/34" in printed


@pytest.mark.relaxed
class TestBlackJAX:
    @pytest.mark.parametrize("name", ["hmc", "nuts"])
    def test_theirs_in_our_loop(self, key, name):
        """Catches assumptions about the state or the info that only our samplers meet."""
        blackjax = pytest.importorskip("blackjax")
        steps = {"num_integration_steps": 5} if name == "hmc" else {}
        algorithm = getattr(blackjax, name)(
            lambda x: -0.5 * jnp.sum((x / 2.0) ** 2), step_size=0.9, inverse_mass_matrix=jnp.ones(3), **steps
        )
        tree = run(key, algorithm, jnp.ones(3), num_samples=1000, num_chains=4)
        statistics = set(tree["sample_stats"].data_vars)
        assert {"acceptance_rate", "diverging", "energy", "lp", "n_steps"} <= statistics
        draws = tree["posterior"]["position"]
        assert dict(draws.sizes) == {"chain": 4, "draw": 1000, "position_dim_0": 3}
        # four standard errors over the twelve independent chains and coordinates
        squares = (draws.values[:, 50:] ** 2).mean(axis=1).ravel()
        assert abs(squares.mean() - 4.0) < 4 * squares.std(ddof=1) / np.sqrt(squares.size)
        if name == "hmc":
            assert (tree["sample_stats"]["n_steps"] == 5).all()

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("mclmc", {"L": 2.0, "step_size": 0.3}),
            ("ghmc", {"step_size": 0.9, "momentum_inverse_scale": jnp.ones(3), "alpha": 0.2, "delta": 0.1}),
            ("dynamic_hmc", {"step_size": 0.9, "inverse_mass_matrix": jnp.ones(3)}),
        ],
    )
    def test_theirs_that_draw_at_their_start(self, key, name, options):
        """Catches a start without a key."""
        blackjax = pytest.importorskip("blackjax")
        algorithm = getattr(blackjax, name)(lambda x: -0.5 * jnp.sum((x / 2.0) ** 2), **options)
        draws = run(key, algorithm, jnp.ones(3), num_samples=2000, num_chains=4)["posterior"]["position"].values
        squares = (draws[:, 50:] ** 2).mean(axis=1).ravel()
        assert abs(squares.mean() - 4.0) < 5 * squares.std(ddof=1) / np.sqrt(squares.size)

    @pytest.mark.parametrize(
        ("init", "step", "message"),
        [
            (lambda x: {"position": x}, lambda k, s: (s, {}), "must have an attribute position.* found a dict"),
            (SimpleState, lambda k, s: s, r"pair \(state, info\) .* found a SimpleState"),
            (SimpleState, lambda k, s: (s.position, {}), r"pair \(state, info\) .* found \("),
            (SimpleState, lambda k, s: (SimpleState(s.position[:2]), {}), r"position with shape \(2,\)"),
            (SimpleState, lambda k, s: (SimpleState(s.position > 0), {}), "position .* and dtype bool, before"),
        ],
    )
    def test_kernels_of_another_form_are_refused(self, key, init, step, message):
        with pytest.raises(TypeError, match=message):
            run(key, SimpleNamespace(init=init, step=step))

    def test_one_with_batches_says_so(self, key):
        """The draw is the mean of the batch of all data, of any order."""
        sampler = SimpleNamespace(init=SimpleState, step=lambda k, s, batch: (SimpleState(batch.mean(0)), {}))
        data = jnp.arange(12.0).reshape(4, 3)
        batches = gx.data.batches(data, batch_size=4)
        with pytest.raises(ValueError, match="an attribute num_batches = 1"):
            run(key, sampler, batches=batches)
        sampler.num_batches = 1
        draws = run(key, sampler, batches=batches)["posterior"]["position"].values
        np.testing.assert_allclose(draws, np.broadcast_to([4.5, 5.5, 6.5], (2, 24, 3)))

    def test_each_chain_draws_its_own_start(self, key):
        algorithm = SimpleNamespace(
            init=lambda position, rng_key: SimpleState(position + jax.random.normal(rng_key, position.shape)),
            step=lambda rng_key, state: (state, ()),
        )
        draws = run(key, algorithm, jnp.ones(3), num_samples=2, num_chains=4)["posterior"]["position"].values
        assert len(np.unique(draws)) == 12

    def test_theirs_that_need_a_batch_are_refused(self, key):
        blackjax = pytest.importorskip("blackjax")
        algorithm = blackjax.sgld(lambda x, batch: -x)
        with pytest.raises(TypeError, match=r"that of this sampler also needs minibatch, step_size.*gx.sgrld"):
            run(key, algorithm, jnp.ones(3), num_samples=10, num_chains=2)

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", ["hmc", slow("nuts")])
    def test_ours_in_their_loop(self, key, name):
        """Catches a pair of functions, or field names, that their loop cannot use."""
        blackjax = pytest.importorskip("blackjax")
        steps = {"num_integration_steps": 5} if name == "hmc" else {}
        algorithm = getattr(gx, name)(lambda x: -0.5 * jnp.sum((x / 2.0) ** 2), step_size=0.9, **steps)
        chains = []
        for chain in range(8):
            key_start, key_run = jax.random.split(jax.random.fold_in(key, chain))
            start = 2.0 * jax.random.normal(key_start, (3,))
            state, (positions, rates) = blackjax.util.run_inference_algorithm(
                key_run,
                algorithm,
                500,
                initial_position=start,
                transform=lambda state, info: (state.position, info.acceptance_rate),
            )
            chains.append(np.asarray(positions))
            np.testing.assert_array_equal(state.position, positions[-1])
            assert 0.5 < float(rates.mean()) <= 1.0
        squares = (np.stack(chains) ** 2).mean(axis=1).ravel()
        assert abs(squares.mean() - 4.0) < 4 * squares.std(ddof=1) / np.sqrt(squares.size)


@pytest.mark.parametrize("is_dict", [True, False])
def test_infos_of_own_samplers_are_counted_as_they_are_recorded(key, is_dict):
    """Catches divergences of a thinned run that are counted for infos with attributes only."""

    def step(rng_key, state):
        facts = {"acceptance_rate": 0.5, "is_divergent": True, "num_integration_steps": 3, "path": jnp.zeros(2)}
        info = facts if is_dict else NamedTuple("Info", [(name, Any) for name in facts])(**facts)
        return SimpleState(state.position + 1.0), info

    seen = []
    draws = run(key, SimpleNamespace(init=SimpleState, step=step), thinning=2, progress=seen.append)
    assert draws.attrs["num_divergences"] == draws.attrs["num_integration_steps"] / 3 == 2 * 48
    assert seen[-1].acceptance_rate == 0.5
    assert set(draws["sample_stats"]) == {"acceptance_rate", "diverging", "n_steps"}


def test_infos_with_the_name_of_a_dimension_are_refused_before_the_run(key):
    walk = SimpleNamespace(init=SimpleState, step=lambda rng_key, state: (state, {"draw": 1.0}))
    with pytest.raises(ValueError, match=r"'draw' cannot name a recorded variable.*field of the info"):
        run(key, walk)
