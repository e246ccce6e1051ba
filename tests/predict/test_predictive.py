"""Predictions: parts of uncertainty, blocks of draws on disk against all in memory, densities of mixtures, sets."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import special, stats

import geodax as gx
from geodax.predict.conformal import prediction_intervals, prediction_sets
from geodax.predict.evaluation import evaluate
from geodax.predict.predictive import classes_from_logits, numbers_from_means, predict_classes, predict_numbers
from geodax.run.draws import ZarrDraws, to_datatree
from geodax.run.errors import StorageError

CHAINS, DRAWS = 2, 7


@pytest.fixture(scope="module")
def network():
    return gx.nn.MLP(3, 4, widths=(5,), dtype=jnp.float64, key=jax.random.key(0))


@pytest.fixture(scope="module")
def arrays(network):
    """Draws of the network by name."""
    rng = np.random.default_rng(0)
    named = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(network)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        named[name] = rng.normal(size=(CHAINS, DRAWS, *leaf.shape))
    return named


@pytest.fixture(scope="module")
def store(arrays, tmp_path_factory):
    """The same draws in a store with room for one more."""
    path = tmp_path_factory.mktemp("run") / "draws.zarr"
    shapes = {"posterior": {k: (v.shape[2:], v.dtype) for k, v in arrays.items()}, "sample_stats": {}}
    ZarrDraws(path, shapes, CHAINS, DRAWS + 1).write(0, {"posterior": arrays, "sample_stats": {}})
    return path


def logits_by_hand(arrays, x):
    """(chain, draw, example, class), by NumPy."""
    w0, b0, w1, b1 = (arrays[f"layers.{i}.{kind}"] for i in (0, 1) for kind in ("weight", "bias"))
    hidden = np.maximum(np.einsum("cdhi,ni->cdnh", w0, x) + b0[:, :, None], 0)
    return np.einsum("cdoh,cdnh->cdno", w1, hidden) + b1[:, :, None]


def test_predictions_in_memory_and_from_disk_are_those_by_hand(network, arrays, store):
    x = np.random.default_rng(1).normal(size=(5, 3))
    logits = logits_by_hand(arrays, x).reshape(-1, 5, 4)
    p = special.softmax(logits, axis=-1)
    tree = to_datatree({"posterior": arrays, "sample_stats": {}})
    for draws, options in (
        (tree, {}),
        (store, {"batch_size": 2}),
        (str(store), {"last": DRAWS, "block_bytes": 1}),
    ):
        found = predict_classes(draws, network, x, **options)
        assert found.num_draws == CHAINS * DRAWS
        np.testing.assert_allclose(found.probabilities, p.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.aleatoric, stats.entropy(p, axis=-1).mean(axis=0), rtol=1e-11)
        np.testing.assert_allclose(found.total, stats.entropy(p.mean(axis=0), axis=-1), rtol=1e-11)
    some = predict_classes(store, network, x, first=1, last=6, every=2, block_bytes=1)
    chosen = special.softmax(logits_by_hand(arrays, x)[:, 1:6:2], axis=-1)
    np.testing.assert_allclose(some.probabilities, chosen.mean(axis=(0, 1)), rtol=1e-12)


def test_memory_holds_one_block(network, store):
    x = np.zeros((5, 3))
    blocks = list(evaluate(store, network, x, last=DRAWS, block_bytes=1))
    assert [block.shape for block in blocks] == [(CHAINS, 5, 4)] * DRAWS
    (whole,) = evaluate(store, network, x, last=DRAWS)
    assert whole.shape == (CHAINS * DRAWS, 5, 4)


def test_draws_may_be_transposed(network, arrays):
    """Catches draws of which chains are read as draws, and square arrays that are read as their transposes."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    tree = to_datatree({"posterior": arrays, "sample_stats": {}})
    (expected,) = evaluate(tree, network, x)
    turned = tree["posterior"].to_dataset().transpose("draw", "chain", ...)
    (found,) = evaluate(xr.DataTree.from_dict({"posterior": turned}), network, x)
    np.testing.assert_array_equal(found, expected)
    square = to_datatree({"posterior": {"w": np.random.default_rng(2).normal(size=(2, 7, 3, 3))}})
    turned = xr.DataTree.from_dict({"posterior": square["posterior"].to_dataset().transpose()})
    one, other = (
        next(evaluate(d, {"w": jnp.zeros((3, 3), jnp.float64)}, x, apply=lambda p, x: x @ p["w"]))
        for d in (square, turned)
    )
    np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize(("dimension", "left"), [("chain", "draw"), ("draw", "chain")])
def test_draws_without_a_dimension_are_refused(network, arrays, dimension, left):
    """Catches an error that lays it to the shapes of the network."""
    tree = to_datatree({"posterior": arrays, "sample_stats": {}})
    message = rf"has no {dimension}; it has \['{left}', .*isel\({dimension}=\[0\]\)"
    with pytest.raises(ValueError, match=message):
        next(evaluate(tree.isel({dimension: 0}), network, np.zeros((5, 3))))
    assert next(evaluate(tree.isel({dimension: [0]}), network, np.zeros((5, 3)))).shape[1:] == (5, 4)


def test_arrays_with_the_same_name_are_refused():
    like = {"a.b": jnp.zeros(2), "a": {"b": jnp.zeros(2)}}
    tree = to_datatree({"posterior": {"a.b": np.zeros((2, 7, 2))}})
    with pytest.raises(ValueError, match=r"several arrays of the position have the name 'a\.b'"):
        next(evaluate(tree, like, np.zeros((5, 1)), apply=lambda p, x: x * p["a.b"][0]))


def test_logits_of_classes_that_cannot_be(network, arrays):
    """Minus infinity is such a class, but not where no class is left, nor among numbers; NaN is nothing."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    tree = to_datatree({"posterior": arrays, "sample_stats": {}})

    def masked(values):
        return lambda network, x: jax.vmap(network)(x).at[0, : len(values)].set(jnp.asarray(values))

    (found,) = evaluate(tree, network, x, apply=masked([-np.inf] * 3))
    expected = logits_by_hand(arrays, x).swapaxes(0, 1).reshape(-1, 5, 4)
    expected[:, 0, :3] = -np.inf
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    refused = [masked([-np.inf] * 4), masked([np.nan]), masked([np.inf])]
    refused += [lambda n, x: masked([-np.inf])(n, x)[:, 0], lambda n, x: (masked([-np.inf])(n, x), x)]
    for apply in refused:
        with pytest.raises(
            ValueError, match=r"not finite\. The draws are finite: check what apply computes from them"
        ) as error:
            next(evaluate(tree, network, x, apply=apply))
        assert "last=" not in str(error.value)


def test_entropy_is_the_sum_of_its_parts():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(6, 8, 3)) * 3
    found = classes_from_logits(logits)
    p = special.softmax(logits, axis=-1)
    # mutual information as the mean divergence of the draws from their mean
    divergence = special.rel_entr(p, p.mean(axis=0)[None]).sum(axis=-1).mean(axis=0)
    np.testing.assert_allclose(found.epistemic, divergence, rtol=1e-10)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, rtol=1e-12)
    same = classes_from_logits(np.broadcast_to(logits[:1], logits.shape))
    np.testing.assert_allclose(same.epistemic, 0, atol=1e-12)
    pieces = classes_from_logits(iter([logits[:1], logits[1:4].reshape(1, 3, 8, 3), logits[4:]]))
    np.testing.assert_allclose(pieces.probabilities, found.probabilities, rtol=1e-13)
    np.testing.assert_array_equal(found.labels, found.probabilities.argmax(axis=1))


def test_numbers_are_mixtures_of_normal_laws():
    rng = np.random.default_rng(3)
    means, noise = 100 + rng.normal(size=(9, 5, 2)), np.exp(rng.normal(size=(9, 5, 2)))
    targets = 100 + rng.normal(size=(5, 2))
    found = numbers_from_means(
        [(means[:4], noise[:4]), (means[4:5], noise[4:5]), (means[5:], noise[5:])], targets=targets
    )
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.epistemic, means.var(axis=0), rtol=1e-11)
    np.testing.assert_allclose(found.variance, means.var(axis=0) + (noise**2).mean(axis=0), rtol=1e-11)
    density = np.exp(stats.norm(means, noise).logpdf(targets).sum(axis=-1)).mean(axis=0)
    np.testing.assert_allclose(found.log_density, np.log(density), rtol=1e-11)
    assert numbers_from_means([(means, noise)]).log_density is None
    with pytest.raises(ValueError, match="the targets"):
        numbers_from_means([(means, noise)], targets=targets[:, 0])


@pytest.mark.parametrize("bad", [0.0, -0.5])
def test_noise_is_positive(bad):
    """Catches a variance without a sign and the logarithm of a negative number in the log density."""
    means = np.zeros((3, 4))
    noise = np.ones((3, 4))
    noise[1, 2] = bad
    words = rf"standard deviations of the noise must be positive, found {bad:g} in draw 4 at example 2"
    blocks = [(means, np.ones((3, 4))), (means, noise)]
    with pytest.raises(ValueError, match=words):
        numbers_from_means(blocks, targets=np.zeros(4))
    if bad:
        with pytest.raises(ValueError, match=words):
            numbers_from_means(blocks)
    else:  # a function without noise has moments, and no density
        np.testing.assert_allclose(numbers_from_means(blocks).aleatoric, [1.0, 1.0, 5 / 6, 1.0])


def test_noise_is_given_or_drawn_or_a_function():
    x = np.linspace(-1, 1, 4)
    slopes, log_noise = np.array([[1.0, 2.0, 4.0]]), np.array([[-1.0, 0.0, 0.5]])
    tree = to_datatree({"posterior": {"network": slopes, "log_noise": log_noise}, "sample_stats": {}})
    like = gx.nn.WithNoise(jnp.zeros((), jnp.float64), dtype=jnp.float64)

    def line(position, x):
        return position.network * x

    drawn = predict_numbers(tree, like, x, apply=line)
    np.testing.assert_allclose(drawn.mean, x * 7 / 3, rtol=1e-12)
    np.testing.assert_allclose(drawn.aleatoric, np.full(4, np.exp(2 * log_noise).mean()), rtol=1e-12)
    known = predict_numbers(tree, like, x, apply=line, noise=0.5, targets=x)
    np.testing.assert_allclose(known.aleatoric, 0.25, rtol=1e-12)
    expected = np.log(stats.norm(slopes.T * x, 0.5).pdf(x).mean(axis=0))
    np.testing.assert_allclose(known.log_density, expected, rtol=1e-12)
    own = predict_numbers(tree, like, x, apply=lambda position, x: (position.network * x, jnp.abs(x)))
    np.testing.assert_allclose(own.aleatoric, x**2, rtol=1e-12)


def test_what_does_not_fit_is_named(network, store, arrays, tmp_path):
    x = np.zeros((5, 3))
    broken = {**arrays, "layers.0.bias": np.full_like(arrays["layers.0.bias"], np.nan)}
    with pytest.raises(ValueError, match=r"The draws themselves are not finite either; .* first=\.\.\. and last="):
        predict_classes(to_datatree({"posterior": broken, "sample_stats": {}}), network, x)
    wide = gx.nn.MLP(3, 4, widths=(6,), dtype=jnp.float64, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"layers\.0\.weight of shape \(6, 3\)"):
        predict_classes(store, wide, x)
    with pytest.raises(ValueError, match="no draws are left"):
        predict_classes(store, network, x, first=20)
    with pytest.raises(ValueError, match="equally many rows"):
        predict_classes(store, network, {"a": x, "b": x[:2]})
    words = r"x must be an array whose first axis indexes the examples.*found a list; pass np\.asarray\(x\)"
    for owner, predict in (("predict_classes", predict_classes), ("predict_numbers", predict_numbers)):
        with pytest.raises(TypeError, match=f"{owner}: {words}"):
            predict(store, network, x.tolist())
    with pytest.raises(StorageError, match="no draws at"):
        predict_classes(tmp_path / "nowhere", network, x)
    with pytest.raises(ValueError, match="there are no draws"):
        classes_from_logits([])


def test_a_surprise_keeps_its_probability():
    """A class that all draws in single precision hold for all but impossible: its probability is no zero there either."""
    logits = np.array([[[0.0, 200.0]], [[0.0, 300.0]]], np.float32)
    found = classes_from_logits(logits)
    np.testing.assert_allclose(np.log(found.probabilities[0, 0]), -200 - np.log(2), rtol=1e-6)


def test_a_class_that_is_impossible_adds_no_entropy():
    logits = np.random.default_rng(8).normal(size=(5, 3, 4))
    found = classes_from_logits(np.where(np.arange(4) == 3, -np.inf, logits))
    without = classes_from_logits(logits[..., :3])
    np.testing.assert_allclose(found.probabilities[:, :3], without.probabilities, rtol=1e-12)
    assert (found.probabilities[:, 3] == 0).all()
    for part in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(getattr(found, part), getattr(without, part), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_draws_that_are_no_numbers_are_named(bad):
    blocks = np.zeros((2, 5, 3, 4))
    blocks[1, 2, 1] = bad
    with pytest.raises(ValueError, match="1 of 5 draws of a block, first in draw 7 at example 1"):
        classes_from_logits(iter(blocks))
    means, noise = 1.0 + blocks, np.ones_like(blocks)
    for pair in ((means, noise), (noise, means)):
        with pytest.raises(ValueError, match=r"finite means and noise in every draw.*first in draw 7 at example 1"):
            numbers_from_means(zip(*pair, strict=True))


def test_one_logit_is_refused():
    z = np.random.default_rng(9).normal(size=(5, 3, 1))
    with pytest.raises(ValueError, match=r"at least two classes, found one.*np\.zeros_like\(z\), z"):
        classes_from_logits(z)
    network = gx.nn.MLP(3, 1, widths=(), dtype=jnp.float64, key=jax.random.key(0))
    drawn = {f"layers.0.{name}": np.ones((1, 2, *shape)) for name, shape in (("weight", (1, 3)), ("bias", (1,)))}
    with pytest.raises(ValueError, match=r"in predict_classes let apply= return"):
        predict_classes(to_datatree({"posterior": drawn, "sample_stats": {}}), network, np.zeros((5, 3)))
    two = classes_from_logits(np.concatenate([np.zeros_like(z), z], -1))
    np.testing.assert_allclose(two.probabilities[:, 1], special.expit(z[..., 0]).mean(axis=0), rtol=1e-12)


def test_probabilities_in_place_of_logits_are_named(network, store):
    """With a softmax that should not be there; logits of that form for a few numbers may be meant."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    p = special.softmax(np.random.default_rng(2).normal(size=(3, 5, 4)), axis=-1)
    with pytest.warns(UserWarning, match="classes_from_logits: the outputs are .* like probabilities, but logits"):
        classes_from_logits(p)
    with pytest.warns(UserWarning, match="like probabilities"):
        predict_classes(store, network, x, apply=lambda n, x: jax.nn.softmax(jax.vmap(n)(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes_from_logits(np.log(p))
        classes_from_logits(np.abs(np.random.default_rng(3).normal(size=(3, 5, 4))))
        classes_from_logits(np.eye(2))


def test_the_folder_of_a_run_has_the_draws(network, store):
    x = np.random.default_rng(1).normal(size=(5, 3))
    for part, same in zip(predict_classes(store.parent, network, x), predict_classes(store, network, x), strict=True):
        np.testing.assert_array_equal(part, same)


def test_outputs_of_other_shapes_are_refused():
    """One number an example is no logit a class: with draws on the axis before it, it looked like one."""
    network = gx.nn.MLP(3, "scalar", widths=(), dtype=jnp.float64, key=jax.random.key(0))
    drawn = {"layers.0.weight": np.ones((2, 5, 1, 3)), "layers.0.bias": np.ones((2, 5, 1))}
    draws, x = to_datatree({"posterior": drawn, "sample_stats": {}}), np.ones((7, 3))
    with pytest.raises(ValueError, match=r"logits \(examples, classes\) from apply, found \(7,\)"):
        predict_classes(draws, network, x)
    sequence = {"apply": lambda network, x: jnp.broadcast_to(jax.vmap(network)(x)[:, None, None], (len(x), 4, 2))}
    with pytest.raises(ValueError, match=r"from apply, found \(7, 4, 2\)"):
        predict_classes(draws, network, x, **sequence)
    turned = {"apply": lambda network, x: jnp.stack([jax.vmap(network)(x)] * 2), "batch_size": 3}
    for predict in (predict_classes, lambda *args, **options: predict_numbers(*args, noise=1.0, **options)):
        with pytest.raises(ValueError, match=r"the 3 examples of its argument, found one of shape \(2, 3\)"):
            predict(draws, network, x, **turned)


def labelled(rng, size):
    """Probabilities, and labels that have them."""
    p = rng.dirichlet(np.ones(3), size=size)
    return p, (rng.random((size, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [20, 103, 201])
def test_sets_of_single_rows_cover_as_often_as_theory_says(n):
    """Asked for one row at a time, whatever the number of calibration rows before it."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(400):
        p, y = labelled(rng, n + 5)
        sets = [prediction_sets(p[:n], y[:n], p[i : i + 1], coverage=0.9).members[0] for i in range(n, n + 5)]
        found.append(np.mean([members[label] for members, label in zip(sets, y[n:], strict=True)]))
        together = prediction_sets(p[:n], y[:n], p[n:], coverage=0.9)
        np.testing.assert_array_equal(together.members, sets)
    expected = np.ceil(0.9 * (n + 1) - 1e-9) / (n + 1)
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / 20


@pytest.mark.parametrize("score", ["aps", "lac"])
def test_the_seed_draws_other_shares_and_rounding_does_not(score):
    """Probabilities that were computed in other company differ in their last bits; one row is that of the threshold."""
    rng = np.random.default_rng(6)
    p, y = labelled(rng, 400)
    new = np.concatenate([p, [[1.0, 0.0, 0.0], [1 - 1e-12, 1e-12, 0.0]]])
    sets = prediction_sets(p[:200], y[:200], new, score=score).members
    for _ in range(8):
        rounded = new * (1 + 1e-15 * rng.integers(-2, 3, size=new.shape))
        rounded[-2, 1] = -0.0
        np.testing.assert_array_equal(prediction_sets(p[:200], y[:200], rounded, score=score).members, sets)
    other = prediction_sets(p[:200], y[:200], new, score=score, random_state=1).members
    share = (sets != other).any(axis=1).mean()
    assert 0 < share < 0.6 if score == "aps" else share == 0


@pytest.mark.parametrize("score", ["aps", "lac"])
def test_labels_outside_the_classes_are_in_no_set(score):
    """They count as the worst of all: three of 19 leave the ranks 17 to 19 without a finite score."""
    rng = np.random.default_rng(7)
    p, y = labelled(rng, 30)
    labels = np.where(np.arange(19) < 3, -1, y[:19])
    within = prediction_sets(p[:19], labels, p[19:], coverage=0.8, score=score)
    alone = prediction_sets(p[3:19], labels[3:], p[19:], coverage=15.5 / 17, score=score)  # the 16th of 16
    assert within.threshold == alone.threshold
    np.testing.assert_array_equal(within.members, alone.members)
    beyond = prediction_sets(p[:19], labels, p[19:], coverage=0.85, score=score)
    assert beyond.threshold == np.inf
    assert beyond.members.all()
    with pytest.raises(ValueError, match="integer labels from 0 to 2"):
        prediction_sets(p[:19], labels - 1, p[19:], score=score)


@pytest.mark.parametrize("new", [np.full((2, 2), np.nan), [[5.0, -4.0]], [[2.0, 3.0]], [[np.inf, 0.0]]])
def test_sets_are_of_probabilities(new):
    with pytest.raises(ValueError, match="sum to 1"):
        prediction_sets([[0.5, 0.5], [0.2, 0.8]], [0, 1], new)


def test_intervals_are_of_finite_numbers():
    for arguments in (([1.0, 2.0], [1.0, 2.0], [np.nan]), ([1.0, np.inf], [1.0, 2.0], [1.0])):
        with pytest.raises(ValueError, match="finite"):
            prediction_intervals(*arguments, coverage=0.5)


def test_intervals_are_of_one_number_an_example():
    """Catches outputs that depend on each other, which counted as so many examples: 8 of them ten times over as 80."""
    known, new = np.zeros((8, 1)), np.zeros((3, 1))
    targets = np.arange(8.0)[:, None]
    assert prediction_intervals(known, targets, new, coverage=0.9).threshold == np.inf
    tenfold = (np.repeat(a, 10, axis=1) for a in (known, targets, new))
    with pytest.raises(ValueError, match=r"one number for each example, found means of shapes \(8, 10\) and \(3, 10\)"):
        prediction_intervals(*tenfold, coverage=0.9)
    assert prediction_intervals(known[:, 0], targets[:, 0], 0.0, coverage=0.5).upper == 4.0


def test_an_array_without_axes_is_no_series_of_blocks(unchecked):
    """It claims to be iterable."""
    with pytest.raises(TypeError, match="expected pairs of arrays"):
        numbers_from_means(np.array(0.1))
