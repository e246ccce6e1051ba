"""The hidden Markov network model: density, invariances, estimator, contacts."""

import itertools
from copy import deepcopy

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import nbinom, norm, poisson
from sklearn.exceptions import NotFittedError

from geodax.app.network import contacts
from geodax.app.network.report import network_draws
from geodax.diagnostics.findings import rhat
from geodax.models import NetworkHMM
from geodax.models.network import density
from geodax.models.network.counts import COUNT_LIKELIHOODS, observations
from geodax.models.network.density import NetworkParameters, NetworkPrior
from geodax.models.network.order import identified
from tests.models.simulations import network_counts

K, C, RANK, T = 2, 5, 1, 40
_natural, _log_rates = jax.jit(density.parameters), jax.jit(density.log_rates)


@pytest.fixture(scope="module")
def truth() -> NetworkParameters:
    generator = np.random.default_rng(0)
    vectors = np.stack([np.linalg.qr(generator.standard_normal((C, RANK)))[0] for _ in range(K)])
    vectors[1] = np.abs(vectors[1])
    return NetworkParameters(
        vectors, np.array([[-4.0], [6.0]]), np.zeros(K), np.array([[0.9, 0.1], [0.25, 0.75]]), np.zeros(K)
    )


@pytest.fixture(scope="module")
def simulated(truth) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        return network_counts(np.random.default_rng(1), truth, T)


@pytest.fixture(scope="module")
def fitted(simulated) -> NetworkHMM:
    options = {"num_warmup": 300, "num_samples": 300, "num_chains": 4, "random_state": 0}
    return NetworkHMM(K, RANK, **options).fit(simulated[1])


@pytest.mark.thorough
def test_options_that_are_set_after_the_fit_are_for_the_next_one(fitted, simulated):
    later, counts = deepcopy(fitted).set_params(counts="negative-binomial", diagonal=False), simulated[1]
    np.testing.assert_array_equal(later.predict_proba(counts), fitted.predict_proba(counts))
    np.testing.assert_array_equal(later.log_predictive(counts, counts), fitted.log_predictive(counts, counts))
    np.testing.assert_array_equal(later.sample_counts(counts), fitted.sample_counts(counts))


def _position(seed, *, states=3, rank=2, intercept=True, likelihood="poisson"):
    generator = np.random.default_rng(seed)
    position = {
        "vectors": tuple(np.linalg.qr(generator.standard_normal((C, rank)))[0] for _ in range(states)),
        "eigenvalues": 2 * generator.standard_normal((states, rank)),
        "log_ratios": generator.standard_normal((states, states - 1)),
    }
    if intercept:
        position["intercept"] = generator.standard_normal(states)
    if likelihood == "negative-binomial":
        position["log_dispersion"] = generator.standard_normal(states)
    return jax.tree.map(jnp.asarray, position)


@pytest.mark.parametrize(
    ("diagonal", "likelihood"),
    [(True, COUNT_LIKELIHOODS[0]), (False, COUNT_LIKELIHOODS[0]), (True, COUNT_LIKELIHOODS[1])],
)
def test_likelihood_by_enumeration(diagonal, likelihood):
    """The product of the probabilities over pairs i <= j, summed over all sequences; missing counts left out."""
    theta = _natural(_position(1, likelihood=likelihood))
    counts = np.random.default_rng(2).poisson(1.5, (4, C, C)).astype(float)
    counts = np.triu(counts) + np.swapaxes(np.triu(counts, 1), 1, 2)
    counts[1, 2, 3] = counts[1, 3, 2] = np.nan
    rates = np.exp(np.asarray(_log_rates(theta)))
    rows, columns = np.triu_indices(C, 0 if diagonal else 1)
    means, values = rates[None, :, rows, columns], counts[:, None, rows, columns]
    if likelihood == "poisson":
        each = poisson.logpmf(values, means)
    else:
        shape = 1 / np.asarray(theta.dispersion)[None, :, None]
        each = nbinom.logpmf(values, shape, shape / (shape + means))
    emission = np.nansum(each, axis=-1)
    transition = np.log(np.asarray(theta.transition))
    joint = []
    for sequence in itertools.product(range(3), repeat=4):
        value = -np.log(3) + sum(emission[t, s] for t, s in enumerate(sequence))
        joint.append(value + sum(transition[a, b] for a, b in itertools.pairwise(sequence)))
    data = observations(counts, diagonal=diagonal, likelihood=likelihood)
    found = jax.jit(lambda theta: density.sequence_log_likelihood(theta, data))(theta)
    np.testing.assert_allclose(found, np.logaddexp.reduce(joint), rtol=1e-10)


def test_rates_are_exponentials_entry_by_entry():
    """The matrix exponential would have other entries, negative ones among them."""
    theta = _natural(_position(3))
    for k in range(3):
        w = np.asarray(theta.vectors[k])
        expected = float(theta.intercept[k]) + w @ np.diag(np.asarray(theta.eigenvalues[k])) @ w.T
        np.testing.assert_allclose(_log_rates(theta)[k], expected, rtol=1e-12)


def test_volume_element_of_the_transition_matrix():
    """The density over log ratios is Dirichlet's times the determinant of the map, found by differentiation."""
    data = observations(np.zeros((1, C, C)))
    found = density.log_density(data, NetworkPrior(transition_concentration=2.5))

    def differences(function):
        one, two = (_position(seed, intercept=False) for seed in (4, 5))
        function = jax.jit(function)
        return function(one | {"log_ratios": two["log_ratios"]}) - function(one)

    def expected(position):
        def free(ratios):
            return density.parameters(position | {"log_ratios": ratios[None]}).transition[0, :-1]

        value = 1.5 * jnp.sum(jnp.log(density.parameters(position).transition))
        for row in position["log_ratios"]:
            value = value + jnp.linalg.slogdet(jax.jacobian(free)(row))[1]
        return value

    # a single window does not tell anything of transitions
    np.testing.assert_allclose(differences(found), differences(expected), rtol=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("likelihood", COUNT_LIKELIHOODS)
def test_invariances(likelihood):
    """Names of states and classes, signs and order of columns do not matter."""
    position = _position(6, likelihood=likelihood)
    counts = np.random.default_rng(7).poisson(2.0, (6, C, C)).astype(float)
    counts = np.triu(counts) + np.swapaxes(np.triu(counts, 1), 1, 2)
    prior = NetworkPrior(2.0, 3.0, 1.5, 0.7)
    function = jax.jit(density.log_density(observations(counts, likelihood=likelihood), prior))
    value = function(position)
    signs = position | {"vectors": tuple(v @ jnp.diag(jnp.asarray([1.0, -1.0])) for v in position["vectors"])}
    swapped = position | {
        "vectors": tuple(v[:, ::-1] for v in position["vectors"]),
        "eigenvalues": position["eigenvalues"][:, ::-1],
    }
    order = np.array([2, 0, 1])
    transition = np.log(np.asarray(_natural(position).transition))[np.ix_(order, order)]
    renamed = {name: position[name][order] for name in position if name not in ("vectors", "log_ratios")}
    renamed["vectors"] = tuple(position["vectors"][k] for k in order)
    renamed["log_ratios"] = jnp.asarray(transition[:, :-1] - transition[:, -1:])
    classes = np.random.default_rng(8).permutation(C)
    shuffled = jax.jit(
        density.log_density(observations(counts[:, classes][:, :, classes], likelihood=likelihood), prior)
    )
    others = [function(p) for p in (signs, swapped, renamed)]
    others.append(shuffled(position | {"vectors": tuple(v[classes] for v in position["vectors"])}))
    np.testing.assert_allclose(others, value, rtol=1e-10)


def test_identified_draws_are_the_same_model_in_order():
    """Each reported draw has the likelihood of the draw it came from, whatever its states were called."""
    counts = np.random.default_rng(9).poisson(2.0, (6, C, C)).astype(float)
    counts = np.triu(counts) + np.swapaxes(np.triu(counts, 1), 1, 2)
    data = observations(counts)
    draws = [_natural(_position(seed)) for seed in range(8)]
    stacked = NetworkParameters(
        *(np.stack([np.asarray(leaf) for leaf in leaves]) for leaves in zip(*draws, strict=True))
    )
    likelihood = jax.jit(lambda theta: density.sequence_log_likelihood(theta, data))
    ordered = identified(stacked)
    again = identified(ordered)
    for name, one, two in zip(NetworkParameters._fields, ordered, again, strict=True):
        np.testing.assert_allclose(one, two, err_msg=name)
    assert np.all(np.diff(ordered.eigenvalues, axis=-1) <= 0)
    totals = 0.0
    for i, theta in enumerate(draws):
        new = NetworkParameters(*(jnp.asarray(leaf[i]) for leaf in ordered))
        totals = totals + jnp.sum(jnp.exp(_log_rates(new))[:, *np.triu_indices(C)], axis=-1)
        one, two = map(likelihood, (theta, new))
        np.testing.assert_allclose(one, two, rtol=1e-10)
    assert bool(jnp.all(jnp.diff(totals) >= 0))


def test_states_with_equal_totals_are_told_apart():
    """Draws whose states were renamed, and whose total rates overlap, come back as they were."""
    generator = np.random.default_rng(14)
    num = 200
    vectors = np.linalg.qr(generator.standard_normal((3, C, 1)))[0] + 0.02 * generator.standard_normal((num, 3, C, 1))
    vectors = vectors / np.linalg.norm(vectors, axis=-2, keepdims=True)
    eigenvalues = np.array([[4.0], [4.0], [4.0]]) + 0.2 * generator.standard_normal((num, 3, 1))
    form = np.einsum("dkip,dkp,dkjp->dkij", vectors, eigenvalues, vectors)
    totals = np.log(np.exp(form)[..., *np.triu_indices(C)].sum(axis=-1))
    # the same mean total for all, with a spread of its own
    intercept = 3.0 - totals + 0.1 * generator.standard_normal((num, 3)) + np.array([0.0, 0.05, 0.1])
    truth = NetworkParameters(vectors, eigenvalues, intercept, generator.dirichlet(np.ones(3), (num, 3)), intercept**2)
    names = generator.permuted(np.tile(np.arange(3), (num, 1)), axis=1)
    mixed = NetworkParameters(*(np.take_along_axis(a, names.reshape(num, 3, *[1] * (a.ndim - 2)), 1) for a in truth))
    mixed = mixed._replace(transition=np.take_along_axis(mixed.transition, names[:, None, :], 2))
    found = identified(mixed)
    for name in ("eigenvalues", "intercept", "transition", "dispersion"):
        np.testing.assert_array_equal(getattr(found, name), getattr(truth, name), err_msg=name)


def test_density_keeps_single_precision(simulated):
    position = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), _position(10, intercept=False))
    function = density.log_density(observations(simulated[1]), NetworkPrior())
    value, gradient = jax.jit(jax.value_and_grad(function))(position)
    assert value.dtype == jnp.float32
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.thorough
def test_states_and_rates_are_recovered(fitted, simulated, truth):
    """Chains agree; states are those that were drawn; intervals hold the true log rates and transitions."""
    states, counts = simulated
    group = fitted.posterior_["posterior"]
    assert rhat(group["transition"].values).max() < 1.05
    assert rhat(group["eigenvalues"].values).max() < 1.05
    assert int(fitted.posterior_["sample_stats"]["diverging"].sum()) == 0
    true = identified(jax.tree.map(lambda leaf: np.asarray(leaf)[None], truth))
    rates = np.exp(np.einsum("kip,kp,kjp->kij", true.vectors[0], true.eigenvalues[0], true.vectors[0]))
    order = np.argsort(np.exp(np.asarray(_log_rates(truth)))[:, *np.triu_indices(C)].sum(axis=1))
    assert np.mean(fitted.predict(counts) == np.argsort(order)[states]) > 0.95
    low, high = np.quantile(fitted.rates(None), [0.025, 0.975], axis=0)
    assert np.mean((low < rates) & (rates < high)) > 0.7
    low, high = np.quantile(group["transition"].values, [0.005, 0.995], axis=(0, 1))
    assert np.all((low < true.transition[0]) & (true.transition[0] < high))


@pytest.mark.thorough
def test_probabilities_sequences_and_replicates(fitted, simulated):
    """Drawn sequences have the smoothed probabilities; replicates are symmetric and of the data's size."""
    counts = simulated[1]
    probabilities = fitted.predict_proba(counts)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(probabilities, fitted.state_probabilities_)
    sequences = fitted.sample_states(counts)
    error = np.sqrt(np.maximum(probabilities[:, 1] * probabilities[:, 0], 1 / len(sequences)) / len(sequences))
    assert np.abs((sequences.mean(axis=0) - probabilities[:, 1]) / error).max() < 4.5
    replicates = fitted.sample_counts(counts)
    np.testing.assert_array_equal(replicates, np.swapaxes(replicates, 2, 3))
    expected = fitted.expected_counts(counts)
    error = np.sqrt(np.maximum(replicates.var(axis=0), expected) / len(replicates))
    assert np.abs((replicates.mean(axis=0) - expected) / error).max() < 5
    totals = replicates.sum(axis=(1, 2, 3))
    assert abs(counts.sum() - totals.mean()) < 4 * totals.std()
    assert fitted.score(counts) < 0


@pytest.mark.thorough
@pytest.mark.parametrize("likelihood", COUNT_LIKELIHOODS)
def test_predictive_probabilities_of_single_counts(fitted, simulated, likelihood):
    """For every draw they are the ratio of the probabilities of all counts with and without the one."""
    tree = fitted.posterior_.copy()
    group = tree["posterior"].to_dataset().isel(draw=slice(0, 300, 60))
    tree["posterior"] = group.assign(
        dispersion=group["dispersion"] + (0.3 if likelihood == COUNT_LIKELIHOODS[1] else 0.0)
    )
    given, asked = simulated[1].copy(), np.full_like(simulated[1], np.nan)
    places = [(0, 1, 1), (0, 1, 4), (7, 0, 0), (T - 1, 2, 3)]
    for t, i, j in places:
        asked[t, i, j] = asked[t, j, i] = given[t, i, j]
        given[t, i, j] = given[t, j, i] = np.nan
    model = NetworkHMM(K, RANK, counts=likelihood).with_posterior(given, tree)

    def log_probabilities(counts):
        data = observations(counts, likelihood=likelihood)
        with jax.enable_x64(True):
            each = jax.jit(jax.vmap(lambda theta: density.sequence_log_likelihood(theta, data)))
            return np.asarray(each(model.draws()))

    expected, without = [], log_probabilities(given)
    for t, i, j in places:
        whole = given.copy()
        whole[t, i, j] = whole[t, j, i] = simulated[1][t, i, j]
        expected.append(np.exp(log_probabilities(whole) - without).mean())
    found = model.log_predictive(asked, given)
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="same windows, found 40 and 39"):
        model.log_predictive(asked, given[1:])


@pytest.mark.thorough
def test_negative_binomial_replicates_have_its_moments():
    """Mean mu and variance mu + a mu^2 of every pair, over independent windows; symmetric."""
    theta = _natural(_position(12, states=1, likelihood="negative-binomial"))
    num = 20_000
    rates = np.exp(np.asarray(_log_rates(theta)))
    drawn = density.draw_counts(np.random.default_rng(13), rates, np.zeros(num, int), np.asarray(theta.dispersion))
    np.testing.assert_array_equal(drawn, np.swapaxes(drawn, 1, 2))
    mean = rates[0]
    shape = 1 / float(theta.dispersion[0])
    likelihood = nbinom(shape, shape / (shape + mean))
    _, variance, _, excess = likelihood.stats(moments="mvsk")
    assert np.abs((drawn.mean(axis=0) - mean) / np.sqrt(variance / num)).max() < 4.5
    error = variance * np.sqrt((excess + 2) / num)
    assert np.abs((drawn.var(axis=0) - variance) / error).max() < 4.5


@pytest.mark.thorough
def test_draws_of_another_law(fitted, simulated):
    """A model that takes the same draws with a dispersion predicts wider totals, and reports the dispersion."""
    counts = simulated[1]
    tree = fitted.posterior_.copy()
    group = tree["posterior"].to_dataset()
    tree["posterior"] = group.assign(dispersion=group["dispersion"] + 0.3)
    wider = NetworkHMM(K, RANK, counts="negative-binomial").with_posterior(counts, tree)
    assert "dispersion" not in network_draws(fitted)
    np.testing.assert_allclose(network_draws(wider)["dispersion"], 0.3)
    rows, columns = np.triu_indices(C)
    spreads = [m.sample_counts(counts)[..., rows, columns].var(axis=0).sum() for m in (fitted, wider)]
    mean = fitted.rates_[fitted.predict(counts)][:, rows, columns]
    added = 0.3 * (mean**2).sum()
    assert 0.8 * added < spreads[1] - spreads[0] < 1.3 * added


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"n_states": 0}, lambda x: x, "n_states"),
        ({"rank": C}, lambda x: x, "classes less one"),
        ({"num_starts": 0}, lambda x: x, "num_starts"),
        ({"counts": "normal"}, lambda x: x, "negative-binomial"),
        ({}, lambda x: x[0], "shape"),
        ({}, lambda x: np.triu(x), "symmetric"),
        ({}, lambda x: x - 1, "0, 1, 2"),
        ({}, lambda x: x / 2, "0, 1, 2"),
    ],
)
def test_errors_of_the_input(simulated, options, change, words):
    with pytest.raises(ValueError, match=words):
        NetworkHMM(**options).fit(change(simulated[1]))


def test_errors_of_predictions(fitted, simulated):
    with pytest.raises(NotFittedError):
        NetworkHMM().predict(simulated[1])
    with pytest.raises(ValueError, match="fitted to 5 classes"):
        fitted.predict(simulated[1][:, :3, :3])


def test_contacts_are_counted_once():
    """A contact within a class is one on the diagonal; the last window counts only if it is full."""
    times = [0, 3, 5, 9, 10, 19, 20, 21]
    windows = contacts.count_windows(times, list("abababab"), list("bbaaaabb"), width=10.0)
    assert windows.names == ("a", "b")
    np.testing.assert_array_equal(windows.counts, [[[1, 2], [2, 1]], [[1, 1], [1, 0]]])
    np.testing.assert_array_equal(windows.starts, [0, 10])
    assert "2 contacts" in windows.notes[0]
    with pytest.raises(ValueError, match="less than one full window"):
        contacts.count_windows(times, list("abababab"), list("bbaaaabb"), width=100.0)
    with pytest.raises(ValueError, match="positive"):
        contacts.count_windows(times, list("abababab"), list("bbaaaabb"), width=0.0)


def test_windows_fit_the_times():
    """120 minutes have 120 windows of a minute, from any start; without a width there are 100 to 250 of a round one."""
    minutes, sides = np.arange(120.0), (["a"] * 120, ["b"] * 120)
    windows = contacts.count_windows(minutes, *sides, width=1.0)
    assert windows.counts[:, 0, 1].tolist() == [1.0] * 120
    assert not windows.notes
    assert len(contacts.count_windows(minutes, *sides, width=60.0).counts) == 2
    later = contacts.count_windows(minutes + 7, *sides, width=60.0, start=10.0)
    assert later.starts.tolist() == [10.0]
    assert later.notes == (
        "3 contacts before the start 10 left out.",
        "57 contacts after the last full window left out.",
    )
    assert contacts.count_windows(minutes + 7, *sides, width=60.0, start=0.0).counts[0, 0, 1] == 53
    with pytest.raises(ValueError, match="all contacts are before the start 500"):
        contacts.count_windows(minutes, *sides, width=1.0, start=500.0)
    for scale in (1.0, 20.0, 37.5, 1e6):
        found = contacts.count_windows(minutes * scale, *sides)
        assert 100 <= len(found.counts) <= 250 or found.width == scale
        assert "Use --window" in found.notes[0]
    irregular = np.sort(np.random.default_rng(0).random(120))  # the end of the last contact is unknown
    assert len(contacts.count_windows(irregular, *sides, width=(irregular[-1] - irregular[0]) / 3.5).counts) == 3


def test_contact_files(tmp_path):
    """People with classes, or sides alone; numbers as names keep no decimal point."""
    path = tmp_path / "contacts.csv"
    rows = [f"{20 * t},{1000 + t % 3},{2000 + t % 2},{'AB'[t % 2]},{'AC'[t % 2]}" for t in range(12)]
    path.write_text("\n".join(["time,i,j,class_i,class_j", *rows]) + "\n")
    windows = contacts.read_contacts(path, width=100.0)
    assert windows.names == ("A", "B", "C")
    assert windows.counts.shape == (2, 3, 3)
    assert windows.counts[0, 0, 0] == 3
    assert windows.counts[0, 1, 2] == 2
    path.write_text("\n".join(["time,i,j", *(",".join(row.split(",")[:3]) for row in rows)]) + "\n")
    assert contacts.read_contacts(path, width=100.0).names == ("1000", "1001", "1002", "2000", "2001")
    path.write_text("time,i\n1,2\n3,4\n")
    with pytest.raises(ValueError, match="expected the columns time, i, j"):
        contacts.read_contacts(path, width=100.0)


def test_times_of_contacts_in_other_columns(tmp_path):
    """As edges with a time are often written; without a name, numbers of nodes are not taken for times."""
    path = tmp_path / "contacts.csv"
    rows = [(20 * t, 7 - t % 3, 3 + t % 2, "AB"[t % 2], "AC"[t % 2]) for t in range(12)]
    for columns in ((0, 1, 2), (0, 1, 2, 3, 4)):
        table = pd.DataFrame(rows)[list(columns)]
        table.columns = ["Timestamp", "source", "target", "class_i", "class_j"][: len(columns)]
        table.to_csv(path, index=False)
        expected = contacts.read_contacts(path, width=100.0)
        later = table[[*table.columns[1:], "Timestamp"]]
        later.to_csv(path, index=False)
        found = contacts.read_contacts(path, width=100.0)
        assert found.names == expected.names
        np.testing.assert_array_equal(found.counts, expected.counts)
        later.to_csv(path, index=False, header=False)
        with pytest.raises(ValueError, match=r"should hold the times, but 'column [35]' is in ascending order"):
            contacts.read_contacts(path, width=100.0)


def test_contacts_without_a_time_or_a_class_are_left_out(tmp_path):
    """With a note, and no class of their own; times that are no numbers are refused."""
    path = tmp_path / "contacts.csv"
    path.write_text("time,i,j\n0,A,B\n1,A,\n2,NA,B\n,A,B\n3,B,B\n9,A,A\n")
    windows = contacts.read_contacts(path, width=4.0)
    assert windows.names == ("A", "B")
    assert windows.counts.sum() == 3
    assert "3 of 6 rows lack a time or a class and are left out." in windows.notes
    path.write_text("time,i,j\n,A,B\n1,,B\n")
    with pytest.raises(ValueError, match="no row has a time and both classes"):
        contacts.read_contacts(path, width=4.0)
    path.write_text("time,i,j\nnoon,A,B\nlater,A,B\n")
    with pytest.raises(ValueError, match=r"times must be numbers.*noon"):
        contacts.read_contacts(path, width=4.0)


def test_dates_of_contacts_are_days(tmp_path):
    path = tmp_path / "contacts.csv"
    path.write_text("time,i,j\n2020-01-01T00:00,A,B\n2020-01-01T06:00,A,B\n2020-01-02 12:00,A,A\n2020-01-03,B,B\n")
    windows = contacts.read_contacts(path, width=1.0)
    assert windows.starts.tolist() == [18262, 18263]
    assert windows.counts[:, 0].tolist() == [[0, 2], [1, 0]]
    assert any(note.startswith("Read as numbers: 'time' (dates as days since 1970-01-01)") for note in windows.notes)
    with pytest.raises(ValueError, match=r"a window of 600 days has 8.64e\+05 minutes. .*less than one full window"):
        contacts.read_contacts(path, width=600.0)


def test_classes_are_named_as_they_are_written_and_in_order(tmp_path):
    path = tmp_path / "contacts.csv"
    rows = ["0,9007199254740993,9007199254740992", "1,007,7", "5,10,9.0", "9,10,7"]
    path.write_text("\n".join(["time,i,j", *rows]) + "\n")
    windows = contacts.read_contacts(path, width=8.0)
    assert windows.names == ("7", "9", "10", "9007199254740992", "9007199254740993", "007")
    assert windows.counts[0, 1, 2] == windows.counts[0, 3, 4] == windows.counts[0, 0, 5] == 1


@pytest.mark.parametrize("begin", [0.0, 1.6e9])
def test_each_window_of_a_tenth_has_its_contacts(begin):
    """Quotients that rounding moves below a whole number: 0.3 / 0.1 is less than 3."""
    times = begin + np.arange(101) / 10
    windows = contacts.count_windows(times, ["a"] * 101, ["a"] * 101, width=0.1)
    np.testing.assert_array_equal(windows.counts, np.ones((101, 1, 1)))


@pytest.mark.thorough
def test_primary_school(geodax_data):
    """177 windows of eleven minutes, as in the paper, over ten classes and the teachers."""
    windows = contacts.primary_school()
    assert windows.counts.shape == (177, 11, 11)
    assert windows.names[0] == "1A"
    assert windows.names[-1] == "Teachers"
    assert np.triu(windows.counts).sum() + int(windows.notes[0].split()[0]) == 125_773
    assert contacts.primary_school(teachers=False).counts.shape == (177, 10, 10)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", COUNT_LIKELIHOODS)
def test_ranks_of_prior_draws_are_uniform(likelihood):
    """Simulation-based calibration of eigenvalues, transitions and dispersions in the order of the states."""
    generator = np.random.default_rng(11)
    scores = []
    for repetition in range(16):
        vectors = []
        for _ in range(2):
            q, r = np.linalg.qr(generator.standard_normal((4, 1)))
            vectors.append(q * np.sign(r))
        dispersion = np.exp(0.5 * generator.standard_normal(2)) if likelihood == "negative-binomial" else np.zeros(2)
        eigenvalues, transition = 4.0 * generator.standard_normal((2, 1)), generator.dirichlet(np.ones(2), 2)
        truth = NetworkParameters(np.stack(vectors), eigenvalues, np.zeros(2), transition, dispersion)
        with jax.enable_x64(True):
            _, counts = network_counts(np.random.default_rng(repetition), truth, 12, likelihood=likelihood)
        options = {"counts": likelihood, "eigenvalue_scale": 1.0, "dispersion_scale": 0.5, "random_state": repetition}
        model = NetworkHMM(2, 1, num_warmup=300, num_samples=500, num_chains=2, **options).fit(counts)
        true = identified(jax.tree.map(lambda leaf: np.asarray(leaf)[None], truth))
        draws = model.draws(None)
        ranks = [np.mean(draws.eigenvalues[:, k, 0] < true.eigenvalues[0, k, 0]) for k in range(2)]
        ranks += [np.mean(draws.transition[:, k, k] < true.transition[0, k, k]) for k in range(2)]
        if likelihood == "negative-binomial":
            ranks += [np.mean(draws.dispersion[:, k] < true.dispersion[0, k]) for k in range(2)]
        scores.append(norm.ppf(np.clip(ranks, 1e-3, 1 - 1e-3)))
    scores = np.asarray(scores)
    assert np.abs(scores.mean(axis=0) * np.sqrt(len(scores))).max() < 4
    assert np.abs(((scores**2).mean(axis=0) - 1) * np.sqrt(len(scores) / 2)).max() < 4
