"""Load a named set as inputs and targets, split and standardised, for training a network."""

from typing import Any, NamedTuple

import numpy as np

from geodax import _checks
from geodax.data.errors import DataError
from geodax.data.sources import Dataset, load


class Standardisation(NamedTuple):
    """Means and standard deviations of the training part, used to standardise the data.

    Attributes:
        input_mean: One number per feature or channel.
        input_scale: One number per feature or channel; 1 where a feature is constant.
        target_mean: Mean of the targets; 0 for classes.
        target_scale: Standard deviation of the targets; 1 for classes.
    """

    input_mean: np.ndarray
    input_scale: np.ndarray
    target_mean: float
    target_scale: float


class Supervised(NamedTuple):
    """Inputs and targets.

    Attributes:
        train: Inputs and targets for training.
        validation: Pairs held out from training; empty arrays if ``num_validation`` is 0.
        test: Pairs of the published test part.
        num_classes: Number of classes; 0 for regression.
        standardisation: The constants that convert back to the units of the data.
    """

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    num_classes: int
    standardisation: Standardisation


def supervised(
    dataset: str | Dataset,
    *,
    split: int = 0,
    standardize: bool = True,
    num_validation: int = 0,
    test_fraction: float = 0.1,
    dtype: Any = np.float32,
) -> Supervised:
    """Split a set for classification or regression, and standardise it by its training part.

    Pixels are scaled to 0..1 and then standardised per channel; images have the shape channels x height x width (grey
    ones height x width). Published test parts and splits are used as they are; other sets are split by the permutation
    of NumPy's ``default_rng(split)``, whose first rows are the test part.

    Args:
        dataset: A name accepted by :func:`geodax.data.load`, or a loaded data set.
        split: Number of the split.
        standardize: Whether to subtract means and divide by standard deviations; class labels are left unchanged.
        num_validation: Number of rows held out at the end of the training part; excluded from the standardisation.
        test_fraction: Fraction of rows in the test part of sets without published splits.
        dtype: Dtype of inputs and of real-valued targets; labels are int32.

    Returns:
        The parts.

    Raises:
        DataError: If the set has no inputs with targets or no such split, or too few training rows remain.
    """
    found = load(dataset) if isinstance(dataset, str) else dataset
    if not isinstance(found, Dataset):
        raise TypeError(
            f"data.supervised: expected the name of a data set or a Dataset, found {_checks.described(found)}."
        )
    if not found.splits or isinstance(split, int):
        split = _checks.whole("data.supervised", "split", split, least=0)
    test_fraction = _checks.number("data.supervised", "test_fraction", test_fraction, above=0.0, below=1.0)
    dtype = _checks.real_dtype("data.supervised", dtype)
    inputs, targets, test_inputs, test_targets = _parts(found, split, test_fraction)
    num_validation = _checks.whole("data.supervised", "num_validation", num_validation, least=0)
    if not num_validation < len(inputs):
        raise DataError(f"{found.name} has {len(inputs)} training rows; {num_validation} of them cannot be held out.")
    end = len(inputs) - num_validation
    is_classes = np.issubdtype(targets.dtype, np.integer)
    identity = Standardisation(np.zeros(()), np.ones(()), 0.0, 1.0)
    by = _standardisation(inputs[:end], targets[:end], is_classes) if standardize else identity

    def finished(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kind = np.result_type(x.dtype, np.float32)  # integers have non-integer means
        x = ((x.astype(kind) - by.input_mean.astype(kind)) / by.input_scale.astype(kind)).astype(dtype)
        return x, y.astype(np.int32) if is_classes else ((y - by.target_mean) / by.target_scale).astype(dtype)

    return Supervised(
        finished(inputs[:end], targets[:end]),
        finished(inputs[end:], targets[end:]),
        finished(test_inputs, test_targets),
        int(targets.max()) + 1 if is_classes else 0,
        by,
    )


def _parts(data: Dataset, split: int, test_fraction: float) -> tuple[np.ndarray, ...]:
    """Training inputs and targets, test inputs and targets."""
    names = data.arrays
    if "train_images" in names or "train_features" in names:
        kind = "images" if "train_images" in names else "features"
        if split != 0:
            raise DataError(f"{data.name} is published with one test part: split must be 0, found {split}.")
        pairs = [(_pixels(data[f"{part}_{kind}"]), data[f"{part}_labels"]) for part in ("train", "test")]
        return (*pairs[0], *pairs[1])
    target = next((name for name in ("targets", "labels") if name in names), None)
    if "features" not in names or target is None:
        raise DataError(f"{data.name} has no features with targets or labels; it has {', '.join(names)}.")
    if data.splits:
        train, test = data.split(split)
    else:
        order = np.random.default_rng(split).permutation(len(data["features"]))
        number = round(test_fraction * len(order))
        train, test = order[number:], order[:number]
    return data["features"][train], data[target][train], data["features"][test], data[target][test]


def _pixels(values: np.ndarray) -> np.ndarray:
    """Convert images of bytes to numbers from 0 to 1, channels first."""
    if values.dtype != np.uint8:
        return values
    return (values.transpose(0, 3, 1, 2) if values.ndim == 4 else values) / np.float32(255)


def _standardisation(x: np.ndarray, y: np.ndarray, is_classes: bool) -> Standardisation:
    axes = 0 if x.ndim == 2 else (0, 2, 3) if x.ndim == 4 else (0, 1, 2)
    keep = x.ndim != 2
    mean = x.mean(axis=axes, keepdims=keep, dtype=np.float64)
    scale = x.std(axis=axes, keepdims=keep, dtype=np.float64)
    if keep:
        mean, scale = mean[0], scale[0]
    is_still = scale <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    scale = np.where(is_still, 1.0, scale)
    if is_classes:
        return Standardisation(mean, scale, 0.0, 1.0)
    return Standardisation(mean, scale, float(y.mean()), float(y.std()) or 1.0)
