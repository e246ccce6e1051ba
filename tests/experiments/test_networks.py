"""The experiments with funnel and networks: exact distances, chains that are killed, every experiment at a tiny size."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import geodax as gx
from experiments.common import chains, classifiers
from experiments.common import experiment as common
from experiments.orthogonal_hmc import table_4, table_4_readings, table_5, table_6, table_7_figure_3
from experiments.sgrld import funnel, networks, published, table_3, tables_1_2

LONG = {module.EXPERIMENT.name: module.EXPERIMENT for module in (tables_1_2, table_3, table_4, table_5, table_6)}
LONG[table_4_readings.EXPERIMENT.name] = table_4_readings.EXPERIMENT
_KINDS = ("uniform", "normal", "zero")
LONG[table_7_figure_3.EXPERIMENT.name] = table_7_figure_3.EXPERIMENT


def test_distances_are_those_of_scipy():
    """A distance of one side only, or quantiles that are shifted by half a draw."""
    draws = np.random.default_rng(1).standard_normal(4000) * 3 + 0.7
    found = funnel.distances(draws, 9.0)
    assert found["ks"] == pytest.approx(stats.kstest(draws, stats.norm(0, 3).cdf).statistic, abs=1e-12)
    # shifted by 0.7 everywhere, but for what 4,000 draws leave to chance
    assert found["w1"] == pytest.approx(0.7, abs=0.25)
    exact = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, scale=3)
    assert funnel.distances(exact + 0.7, 9.0)["w1"] == pytest.approx(0.7, abs=1e-10)


def test_the_fallback_shortens_the_step_to_the_limit():
    """A fallback that leaves the noise at the metric's size, or never acts."""
    metric = funnel.WithFallback(gx.metrics.Identity(), limit=10.0)
    theta = jnp.zeros(2)
    far = metric.update(metric.init(theta), theta, jnp.asarray([30.0, 40.0]))
    np.testing.assert_allclose(metric.apply_inverse(far, jnp.asarray([30.0, 40.0])), [6.0, 8.0], rtol=1e-12)
    noise = metric.apply_inverse_sqrt(far, jnp.ones(2))
    np.testing.assert_allclose(
        metric.apply_inverse_sqrt(far, noise), metric.apply_inverse(far, jnp.ones(2)), rtol=1e-12
    )
    near = metric.update(far, theta, jnp.asarray([3.0, 4.0]))
    np.testing.assert_array_equal(metric.apply_inverse(near, jnp.ones(2)), [1.0, 1.0])


def test_the_printed_tables_have_every_setting():
    """A row of the paper that is missing, or a metric under another's name."""
    for setting in published.LEARNING_RATES:
        names = set(published.LEARNING_RATES[setting])
        for printed in (published.LOG_P, published.ACCURACY, published.ECE, published.CURVATURE, published.SECONDS):
            assert set(printed[setting]) == names
        assert ("Monge" in names) == (setting in published.ALPHA2)


def test_figure_4_and_the_tables_in_print_agree():
    """A learning rate that is not the one in print, points that are not those of the table."""
    setting = ("horseshoe", 400)
    row = [printed[setting]["Monge"] for printed in (published.LOG_P, published.ACCURACY, published.CURVATURE)]
    rate = published.LEARNING_RATES[setting]["Monge"]
    assert published.SWEEP[published.ALPHA2[setting]] == (rate, *row)
    for alpha2, faster in tables_1_2.FASTER.items():
        assert published.SWEEP[alpha2][0] == faster != rate


def test_chains_at_another_learning_rate_stay_out_of_the_tables():
    labels = {"hidden": 400, "prior": "horseshoe", "metric": "Monge", "alpha2": 1.25, "epochs": 400}
    pieces = [(labels | {"seed": 0}, {"log_p": -1.0}), (labels | {"seed": 0, "rate": 0.5}, {"log_p": -3.0})]
    record = common.Record("", {"hidden": [400]}, [{"labels": own, "figures": figures} for own, figures in pieces])
    assert [row["log_p"] for row in tables_1_2.rows_of(record, 400, "horseshoe", "Monge")] == [-1.0]
    assert [row["log_p"] for row in tables_1_2.rows_of(record, 400, "horseshoe", "Monge", rate=0.5)] == [-3.0]


def test_equal_times_are_those_of_the_timed_runs():
    """An ensemble from after the time was up, the time of a run on another machine, a diverged run that is lost."""
    curve = {
        "log_p": -1.0,
        "curve_epochs": [1.0, 2.0, 4.0],
        "curve_log_p": [-3.0, -2.0, -1.0],
        "curve_accuracy": [0.1, 0.2, 0.3],
    }
    gone = {f"curve_{name}": [None, None, None] for name in ("log_p", "accuracy")}
    labels = {"hidden": 400, "prior": "gaussian", "epochs": 4, "seed": 0, "alpha2": None}
    timed = labels | {"epochs": tables_1_2.TIMED_EPOCHS}
    pieces = [
        (labels | {"metric": "Identity"}, curve | {"cpu_seconds": 7.0}),
        (labels | {"metric": "RMSprop", "start": "biases drawn"}, curve | {"cpu_seconds": 1.0}),
        (labels | {"metric": "Wenzel"}, curve | gone | {"cpu_seconds": 1.0}),
        (labels | {"metric": "Shampoo"}, curve | {"cpu_seconds": 1.0}),
        (timed | {"metric": "Identity", "start": "biases drawn"}, {"cpu_seconds": 9.0, "log_p": None}),
        (timed | {"metric": "Identity"}, {"cpu_seconds": 1.0, "log_p": None}),
        (timed | {"metric": "RMSprop"}, {"cpu_seconds": 2.0, "log_p": None}),
        (timed | {"metric": "Wenzel"}, {"cpu_seconds": 1.5, "log_p": None}),
    ]
    record = common.Record(
        "", {"hidden": [400, 800]}, [{"labels": labels, "figures": figures} for labels, figures in pieces]
    )

    def column(text):
        return {line.split("|")[1].strip(): line.split("|")[2].strip() for line in text.splitlines()}

    scores = column(tables_1_2.equal_time_table("log_p", {})(record))
    assert scores["400, Identity"] == "-1.0000 (1), 4 epochs"
    assert scores["400, RMSprop"] == "-2.0000 (1), biases drawn, 4 epochs"
    assert scores["400, Wenzel"] == "–, 4 epochs, 1 of 1 runs diverged"
    assert scores["400, Shampoo"] == scores["800, Identity"] == "not run"
    seconds = column(tables_1_2.seconds_table(record))
    assert seconds["400, RMSprop"] == "2.00 (2.00)"
    assert seconds["400, Shampoo"] == "not run"
    assert column(tables_1_2.scores_table("log_p", {})(record))["800, Identity"] == "not run"


@pytest.mark.thorough
def test_networks_start_where_they_are_asked_to():
    """Biases of another size, a normalisation that is drawn, weights that depend on what the biases are."""
    dense = functools.partial(gx.nn.MLP, 300, 7, widths=(200,))
    layers = {
        kind: networks.drawn(jax.random.key(3), lambda key: dense(key=key), biases=kind).layers for kind in _KINDS
    }
    for kind in _KINDS:
        for layer, reference in zip(layers[kind], layers["uniform"], strict=True):
            np.testing.assert_array_equal(layer.weight, reference.weight)
    first = {kind: np.asarray(layers[kind][0].bias) for kind in _KINDS}
    assert not first["zero"].any()
    assert 0.9 * 200**-0.5 < np.abs(first["uniform"]).max() <= 200**-0.5
    assert np.abs(first["uniform"].mean()) < 4 * 200**-1 / 3**0.5
    assert 0.8 < first["normal"].std() < 1.2
    assert np.std(layers["zero"][0].weight) == pytest.approx((2 / 300) ** 0.5, rel=0.02)
    residual = networks.drawn(jax.random.key(3), lambda key: gx.nn.ResNet20(width=2, key=key))
    np.testing.assert_array_equal(residual.first.norm.weight, 1.0)
    np.testing.assert_array_equal(residual.first.norm.bias, 0.0)
    assert 0 < np.abs(residual.last.bias).max() <= residual.last.bias.size**-0.5


def _plan(num_steps=24, failing_at=None):
    x = np.linspace(-1, 1, 12).astype(np.float32)

    def log_likelihood(position, batch):
        value = -0.5 * (batch - position["m"]) ** 2
        return value if failing_at is None else jnp.where(position["m"] > failing_at, jnp.nan, value)

    posterior = gx.Posterior(
        log_prior=lambda position: -0.5 * position["m"] ** 2, log_likelihood=log_likelihood, num_data=12
    )
    return chains.Plan(
        gx.sgrld(posterior, metric=gx.metrics.RMSProp(), step_size=1e-3),
        gx.data.batches(x, batch_size=4, order="epochs"),
        num_steps=num_steps,
        chunk=2,
        observe=lambda position: position["m"],
        first_draw=4,
        every=4,
        look=lambda positions, sums, count: {"m": np.asarray(positions["m"]).tolist(), "count": count},
        look_every=6,
    )


@pytest.mark.thorough
def test_killed_chains_go_on_bit_for_bit(tmp_path, monkeypatch):
    """Another random number after the interruption, a draw counted twice, a curve that begins again."""
    start = {"m": jnp.asarray([0.5, -0.5], jnp.float32)}
    whole = chains.run_chains(_plan(), start, (3, 8), None)
    assert whole.num_draws == 5
    assert [point["iteration"] for point in whole.curve] == [6, 12, 18, 24]
    monkeypatch.setattr(chains, "CHECKPOINT_SECONDS", -1.0)  # after every chunk
    lines = []

    def kill(line):
        lines.append(line)
        if len(lines) in (4, 9):
            raise KeyboardInterrupt

    path = tmp_path / "chains.npz"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            chains.run_chains(_plan(), start, (3, 8), path, report=kill)
    resumed = chains.run_chains(_plan(), start, (3, 8), path, report=kill)
    np.testing.assert_array_equal(resumed.sums, whole.sums)
    np.testing.assert_array_equal(resumed.positions["m"], whole.positions["m"])
    assert (resumed.curve, resumed.num_draws) == (whole.curve, whole.num_draws)
    assert len(resumed.seconds_a_chunk) == len(lines) == 12
    assert list(tmp_path.iterdir()) == [path]


def test_a_chain_that_breaks_down_says_so():
    """An average of numbers that are not finite in a table."""
    start = {"m": jnp.asarray([5.0], jnp.float32)}
    found = chains.run_chains(_plan(failing_at=1.0), start, (0,), None)
    assert found.failed_at == [2]
    assert classifiers.scores(np.full((3, 2), np.nan), np.asarray([0, 1, 0]))["log_p"] is None


def test_two_processes_share_the_pieces(tmp_path):
    """A piece that is measured twice, or a record that loses what another process has written."""
    experiment = dataclasses.replace(_counted(), measure_seeds=None)
    inner = {}

    def measure(config, labels):
        if not inner:  # while this one is at its first piece, another runs all that is left
            inner["record"] = common.run(experiment, Seeds(), results=tmp_path, report=lambda _: None)
        inner.setdefault("measured", []).append(labels["seed"])
        return {"value": labels["seed"]}

    object.__setattr__(experiment, "measure", measure)
    inner_first = common.run(experiment, Seeds(), results=tmp_path, report=lambda _: None)
    assert sorted(inner["measured"]) == [0, 1, 2, 3]
    assert sorted(inner_first.values("value")) == [0, 1, 2, 3]


def test_seeds_run_together_and_only_what_is_asked_for(tmp_path):
    """Groups that mix settings, entries that share one seed's figures."""
    experiment, seen = _counted(), []

    def measure_seeds(config, labels, seeds, folder):
        seen.append((labels["method"], seeds))
        assert folder.is_relative_to(tmp_path)
        return [{"value": seed} for seed in seeds]

    object.__setattr__(experiment, "measure_seeds", measure_seeds)
    record = common.run(
        experiment, Seeds(), results=tmp_path, only={"seed": [0, 1, 2]}, together=2, report=lambda _: None
    )
    assert seen == [("a", (0, 1)), ("a", (2,))]
    assert [row["value"] for row in record.rows(method="a")] == [0, 1, 2]


@dataclasses.dataclass(frozen=True)
class Seeds:
    seeds: tuple[int, ...] = (0, 1, 2, 3)


def _counted():
    return common.Experiment(
        name="paper/long",
        config=Seeds(),
        smoke=Seeds(),
        pieces=lambda config: [{"method": "a", "seed": seed} for seed in config.seeds],
        measure=lambda config, labels: {"value": labels["seed"]},
    )


@pytest.mark.slow
@pytest.mark.relaxed
def test_mnist_in_one_metric(geodax_data, tmp_path):
    """Pixels, labels, learning rate and ensemble on a few real images: the network must learn them."""
    images = classifiers.load("mnist", num_train=400, num_test=100)
    assert images.train.shape == (400, 1, 28, 28)
    assert images.train.max() == 1.0
    (found,) = networks.run_sgrld(
        images,
        lambda key: gx.nn.MLP(784, 10, widths=(16, 16), key=key),
        gx.nn.Priors(),
        networks.metric_of("Identity", 0.0, 20),
        learning_rate=0.05,
        seeds=(0,),
        epochs=30,
        batch_size=20,
        num_burn=100,
        thinning=20,
        folder=tmp_path,
    )
    assert found["num_draws"] == (600 - 100) // 20
    assert found["failed_at"] is None
    assert found["accuracy"] > 0.5
    assert 0 < found["softened_curvature"] < found["curvature"]
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.relaxed
@pytest.mark.parametrize("name", LONG)
def test_experiments_run_in_single_precision(name, tmp_path):
    """As the command line runs them."""
    experiment = LONG[name]
    with jax.enable_x64(experiment.double):
        record = common.run(experiment, experiment.smoke, results=tmp_path, report=lambda _: None)
    for render in experiment.tables.values():
        assert "not run" not in render(record) or name.endswith("tables_1_2")
