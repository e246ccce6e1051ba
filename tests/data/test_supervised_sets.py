"""Named sets as standardised inputs and targets."""

import numpy as np
import pytest

from geodax.data import DataError, Dataset, load, supervised


def made(**arrays):
    splits = arrays.pop("splits", {})
    return Dataset(name="made", arrays=arrays, splits=splits)


def test_regression_is_standardised_by_its_training_part_and_can_be_taken_back():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(3, 2, size=(20, 3)), rng.normal(-5, 4, size=20)
    features[:, 1] = 7.0
    rows = np.arange(12), np.arange(12, 20)
    data = supervised(made(features=features, targets=targets, splits={0: rows}), num_validation=2, dtype=np.float64)
    x, y = data.train
    assert (x.shape, data.validation[0].shape, data.test[0].shape) == ((10, 3), (2, 3), (8, 3))
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(axis=0), [1, 0, 1], atol=1e-12)
    np.testing.assert_allclose((y.mean(), y.std()), (0, 1), atol=1e-12)
    by = data.standardisation
    np.testing.assert_allclose(data.test[0] * by.input_scale + by.input_mean, features[12:])
    np.testing.assert_allclose(data.validation[1] * by.target_scale + by.target_mean, targets[10:12])
    assert data.num_classes == 0


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8, bool, np.float16, np.float64])
def test_whole_numbers_are_standardised_as_numbers(kind):
    """Means between whole numbers, and deviations below 1."""
    rng = np.random.default_rng(4)
    features = np.stack([rng.integers(0, 2, 200), rng.integers(0, 50, 200)], axis=1)
    features = features % 2 > 0 if kind is bool else features.astype(kind)
    x, _ = supervised(made(features=features, targets=rng.normal(size=200))).train
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=0), 1, rtol=1e-6)


def test_images_are_channels_first_and_standardised_by_channel():
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, size=(6, 4, 5, 3), dtype=np.uint8)
    labels = np.arange(6, dtype=np.int32) % 3
    data = supervised(
        made(train_images=images[:4], train_labels=labels[:4], test_images=images[4:], test_labels=labels[4:])
    )
    x, y = data.train
    assert x.shape == (4, 3, 4, 5)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std(axis=(0, 2, 3)), 1, rtol=1e-6)
    by = data.standardisation
    back = (data.test[0] * by.input_scale + by.input_mean) * 255
    np.testing.assert_allclose(back, images[4:].transpose(0, 3, 1, 2), atol=1e-3)
    assert y.dtype == np.int32
    assert data.num_classes == 3


def test_sets_without_published_splits_are_split_by_number():
    data = made(features=np.arange(20.0)[:, None], labels=np.arange(20) % 2)
    one, again, other = (supervised(data, split=k, standardize=False, test_fraction=0.25) for k in (1, 1, 2))
    assert len(one.test[0]) == 5
    np.testing.assert_array_equal(one.test[0], again.test[0])
    assert not np.array_equal(one.test[0], other.test[0])
    together = np.concatenate([one.train[0], one.test[0]]).ravel()
    np.testing.assert_array_equal(np.sort(together), np.arange(20))


def test_what_cannot_be_split_says_why():
    with pytest.raises(DataError, match="no features with targets"):
        supervised(made(adjacency=np.eye(3)))
    with pytest.raises(DataError, match="cannot be held out"):
        supervised(made(features=np.ones((4, 1)), labels=np.arange(4)), num_validation=4)
    image, label = np.zeros((1, 2, 2), np.uint8), np.zeros(1, np.int32)
    published = made(train_images=image, train_labels=label, test_images=image, test_labels=label)
    with pytest.raises(DataError, match="one test part"):
        supervised(published, split=1)


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("mnist", (60_000, 28, 28), 10_000, 10),
        ("cifar10", (50_000, 3, 32, 32), 9_980, 10),
        ("uci/yacht", (277, 6), 31, 0),
        ("letter", (18_000, 16), 2_000, 26),
        ("magic", (17_118, 10), 1_902, 2),
        ("eeg-eye-state", (13_482, 14), 1_498, 2),
        ("oil-flow", (1000, 12), 1000, 3),
    ],
)
@pytest.mark.slow
def test_real_sets(name, train, test, classes, geodax_data):
    data = supervised(name)
    assert data.train[0].shape == train
    assert len(data.test[0]) == len(data.test[1]) == test
    assert data.num_classes == classes
    if name == "cifar10":  # the published means of the channels
        mean = data.standardisation.input_mean.ravel()
        np.testing.assert_allclose(mean, [0.49139968, 0.48215841, 0.44653091], atol=2e-8)
    if name == "uci/yacht":
        raw = load(name)
        rows = raw.split(0)[1]
        back = data.test[1] * data.standardisation.target_scale + data.standardisation.target_mean
        np.testing.assert_allclose(back, raw["targets"][rows], rtol=1e-4, atol=1e-4)
