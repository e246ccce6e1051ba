"""Images with labels, and what the tables say about ensembles that classify them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.nn import CategoricalLikelihood, input_curvature

_CHUNK = 1000


class Images(NamedTuple):
    """Training and test images (image, channel, row, column) in single precision, and labels."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def load(name: str, *, num_train: int | None = None, num_test: int | None = None) -> Images:
    """A set of images.

    MNIST's pixels are divided by 255; CIFAR-10's channels have mean 0 and standard deviation 1 over the training images
    that are used.

    Args:
        name: ``"mnist"``, ``"mnist-50000"`` (trained on the first 50,000 images and tested on all others), ``"cifar10"``,
            or ``"simulated-mnist"`` and ``"simulated-cifar10"``, blurred noise around a template a class, which need no
            file.
        num_train: Training images used, from the first; None uses all.
        num_test: Test images used.

    Returns:
        The images.
    """
    if name.startswith("simulated"):
        found = _simulated((1, 28, 28) if name.endswith("mnist") else (3, 32, 32))
    else:
        data = gx.data.load(name.removesuffix("-50000"))
        train, test = (np.asarray(data[f"{part}_images"], np.float32) / 255 for part in ("train", "test"))
        labels = data["train_labels"].astype(np.int32), data["test_labels"].astype(np.int32)
        if train.ndim == 3:
            train, test = train[:, None], test[:, None]
        else:
            mean, sd = train[:num_train].mean(axis=(0, 1, 2)), train[:num_train].std(axis=(0, 1, 2))
            train, test = (((x - mean) / sd).transpose(0, 3, 1, 2) for x in (train, test))
        if name.endswith("-50000"):
            test, test_labels = np.concatenate([train[50_000:], test]), np.concatenate([labels[0][50_000:], labels[1]])
            train, labels = train[:50_000], (labels[0][:50_000], test_labels)
        found = Images(train, labels[0], test, labels[1])
    return Images(
        np.ascontiguousarray(found.train[:num_train]),
        found.train_labels[:num_train],
        np.ascontiguousarray(found.test[:num_test]),
        found.test_labels[:num_test],
    )


def _simulated(shape: tuple[int, int, int]) -> Images:
    rng = np.random.default_rng(0)
    templates = rng.standard_normal((10, *shape))
    labels = rng.integers(0, 10, 300).astype(np.int32)
    images = (0.5 * templates[labels] + rng.standard_normal((300, *shape))).astype(np.float32)
    return Images(images[:200], labels[:200], images[200:], labels[200:])


def posterior_of(images: Images, priors: Callable, log_likelihood: Callable | None = None) -> gx.Posterior:
    """Classes with integer labels under priors by rule; the likelihood is that of a network, or another."""
    likelihood = log_likelihood or CategoricalLikelihood()
    return gx.Posterior(log_prior=priors, log_likelihood=likelihood, num_data=len(images.train))


def batches_of(images: Images, batch_size: int) -> gx.data.Batches:
    """Passes through the training images, each in an order of its own."""
    return gx.data.batches((images.train, images.train_labels), batch_size=batch_size, order="epochs")


def probabilities(images: np.ndarray) -> Callable[[Any], jax.Array]:
    """From a network to its probabilities for some images (image, class), a thousand at a time."""
    x = jnp.asarray(images)
    size = next(k for k in range(min(_CHUNK, len(x)), 0, -1) if len(x) % k == 0)
    blocks = x.reshape(-1, size, *x.shape[1:])

    def evaluate(network: Any) -> jax.Array:
        logits = jax.lax.map(jax.vmap(network), blocks)
        return jax.nn.softmax(logits.reshape(len(x), -1))

    return evaluate


def curvature(
    images: Images, num_images: int, epsilons: Sequence[float], num_iterations: int = 20
) -> Callable[[Any], jax.Array]:
    """From a network to the mean over test images of its curvature in the input, one for each epsilon."""
    batch = jnp.asarray(images.test[:num_images]), jnp.asarray(images.test_labels[:num_images])

    def evaluate(network: Any) -> jax.Array:
        found = input_curvature(network, batch, key=jax.random.key(0), num_iterations=num_iterations)
        return jnp.stack([jnp.mean(found.hessian_norm / (found.gradient_norm + e)) for e in epsilons])

    return evaluate


def scores(mean_probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | None]:
    """Log probability, accuracy, calibration and confidence of predictions; None for numbers that are not finite."""
    p = np.asarray(mean_probabilities, np.float64)
    if not np.isfinite(p).all():
        return dict.fromkeys(("log_p", "accuracy", "ece", "brier", "confidence"))
    p = p / p.sum(axis=1, keepdims=True)
    return {
        "log_p": gx.scores.log_probability(p, labels),
        "accuracy": gx.scores.accuracy(p, labels),
        "ece": gx.scores.ece(p, labels),
        "brier": gx.scores.brier(p, labels),
        "confidence": gx.scores.mean_confidence(p),
    }
