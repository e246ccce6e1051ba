"""Predictions with the draws of a run, from their positions.

Classes and numbers are those of :mod:`geodax.predict.classes` and :mod:`geodax.predict.numbers`, computed in one pass
over blocks of draws, so memory holds one block of a run on disk at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special

from geodax import _checks, _tree
from geodax._types import Position, PyTree
from geodax.nn.likelihoods import AbstractLikelihood, GaussianLikelihood, apply_network
from geodax.predict.classes import ClassPredictions, classes_from_logits, loo_temperature
from geodax.predict.evaluation import Draws, evaluate
from geodax.predict.mixtures import Mixture
from geodax.predict.numbers import NumberPredictions, numbers_from_distributions, numbers_from_means

__all__ = [
    "ClassPredictions",
    "NumberPredictions",
    "classes_from_logits",
    "log_score",
    "loo_temperature",
    "numbers_from_distributions",
    "numbers_from_means",
    "predict_classes",
    "predict_distribution",
    "predict_numbers",
]


def predict_classes(
    draws: Draws, like: Position, x: PyTree, *, apply: Callable[[Position, PyTree], Any] = apply_network, **options: Any
) -> ClassPredictions:
    """Predict classes with the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``; or positions whose
            arrays have the leading axes chain and draw.
        like: A position with the structure of the draws, such as the initial network; an Equinox one may be whole.
        x: Examples: arrays whose first axis indexes them.
        apply: ``(position, x) -> logits (examples, classes)``; by default the position is called on each example.
        **options: ``first``, ``last``, ``every``, ``batch_size`` and ``block_bytes`` of
            :func:`~geodax.predict.evaluation.evaluate`.

    Returns:
        The predictions.

    Raises:
        TypeError: If x contains anything but arrays, such as a list of numbers.
        ValueError: If the draws do not match the structure of ``like`` or are non-finite, or the outputs are not
            logits of one label per example.
        StorageError: If the store cannot be read.
    """
    _require_arrays("predict_classes", x)
    return classes_from_logits(_logits(evaluate(draws, like, x, apply=apply, **options)))


def predict_numbers(
    draws: Draws,
    like: Position,
    x: PyTree,
    *,
    targets: np.ndarray | None = None,
    noise: float | None = None,
    likelihood: AbstractLikelihood | None = None,
    apply: Callable[[Position, PyTree], Any] = apply_network,
    **options: Any,
) -> NumberPredictions:
    """Predict numbers with the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``; or positions whose
            arrays have the leading axes chain and draw.
        like: A position with the structure of the draws, such as the initial network; an Equinox one may be whole.
        x: Examples: arrays whose first axis indexes them.
        targets: True values, for their predictive density.
        noise: Standard deviation of the noise; None if positions contain it (:class:`geodax.nn.WithNoise`) or
            ``apply`` returns it.
        likelihood: Likelihood of the run, if it is not a :class:`~geodax.nn.GaussianLikelihood` with this ``noise`` and
            ``apply``, which must then be left out.
        apply: ``(position, x) -> means``, or ``-> (means, noise standard deviations)`` of equal shapes; by default the
            position is called on each example.
        **options: ``first``, ``last``, ``every``, ``batch_size`` and ``block_bytes`` of
            :func:`~geodax.predict.evaluation.evaluate`.

    Returns:
        The predictions.

    Raises:
        TypeError: If x contains anything but arrays, such as a list of numbers.
        ValueError: If the draws do not match the structure of ``like`` or are non-finite, or the noise is missing, not
            positive, or given beside a likelihood.
        StorageError: If the store cannot be read.
    """
    _require_arrays("predict_numbers", x)
    if likelihood is not None:
        if noise is not None or apply is not apply_network:
            raise ValueError("predict_numbers: give likelihood=, which contains them, or noise= and apply=.")
        values = evaluate(draws, like, x, apply=_parameters_of("predict_numbers", likelihood), **options)
        return numbers_from_distributions((likelihood.distribution(*block) for block in values), targets=targets)
    normal = GaussianLikelihood(noise)

    def means_and_noise(position: Position, x: PyTree) -> tuple[Any, Any]:
        values = apply(position, x)
        if isinstance(values, tuple):
            return values
        log_noise = _tree.widened(normal.log_noise(position, _tree.widened(values)))
        return values, jnp.broadcast_to(jnp.exp(log_noise), values.shape)

    return numbers_from_means(evaluate(draws, like, x, apply=means_and_noise, **options), targets=targets)


def predict_distribution(
    draws: Draws, like: Position, x: PyTree, *, likelihood: AbstractLikelihood, **options: Any
) -> Mixture:
    """Return the predictive distributions of an ensemble, with quantiles, draws and probabilities.

    Args:
        draws: As for :func:`predict_numbers`.
        like: As for :func:`predict_numbers`.
        x: As for :func:`predict_numbers`.
        likelihood: Likelihood of the run; memory holds its parameters at all draws and examples.
        **options: As for :func:`predict_numbers`.

    Returns:
        The distributions.

    Raises:
        TypeError: If x contains anything but arrays, or the likelihood is none of :mod:`geodax.nn` for numbers.
        ValueError: If the draws do not match the structure of ``like`` or are non-finite.
        StorageError: If the store cannot be read.
    """
    _require_arrays("predict_distribution", x)
    blocks = evaluate(draws, like, x, apply=_parameters_of("predict_distribution", likelihood), **options)
    return Mixture(likelihood.distribution, tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def log_score(
    draws: Draws, like: Position, batch: PyTree, *, likelihood: Callable[[Position, PyTree], Any], **options: Any
) -> Float[np.ndarray, " examples"]:
    """Compute the log of each example's likelihood, averaged over the draws, with any likelihood.

    Args:
        draws: As for :func:`predict_numbers`.
        like: As for :func:`predict_numbers`.
        batch: Examples, as the likelihood takes them: ``(x, y)`` for those of :mod:`geodax.nn`.
        likelihood: Log likelihood of the run, ``(position, batch) -> (B,)``.
        **options: As for :func:`predict_numbers`.

    Returns:
        One log predictive density, or probability, per example.

    Raises:
        TypeError: If the batch contains anything but arrays.
        ValueError: If the draws do not match the structure of ``like``, or they or their likelihoods are non-finite.
        StorageError: If the store cannot be read.
    """
    _require_arrays("log_score", batch)
    total, count = np.full((), -np.inf), 0
    for values in evaluate(draws, like, batch, apply=likelihood, **options):
        block: Any = special.logsumexp(np.asarray(values, np.float64), axis=0)
        total = np.logaddexp(total, block)
        count += len(values)
    return total - np.log(count)


def _parameters_of(owner: str, likelihood: Any) -> Callable[[Position, PyTree], tuple[Any, ...]]:
    if not isinstance(likelihood, AbstractLikelihood):
        raise TypeError(
            f"{owner}: likelihood must be one for numbers, such as nn.StudentTLikelihood(), found "
            f"{_checks.described(likelihood)}; for classes use predict_classes."
        )
    return lambda position, x: likelihood.parameters(position, _tree.widened(likelihood.apply(position, x)))


def _logits(blocks: Iterable[Any]) -> Iterator[np.ndarray]:
    """Yield blocks of logits (draws, examples, classes); the number of axes alone cannot tell draws from examples."""
    for block in blocks:
        shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(block)]
        if not isinstance(block, np.ndarray) or len(shapes[0]) != 2:
            raise ValueError(
                "predict_classes: expected one array of logits (examples, classes) from apply, found "
                f"{', '.join(map(str, shapes))}. Where a network has one output z, the logit of label 1, let apply= "
                "return jnp.stack([jnp.zeros_like(z), z], -1); where an example has several labels, call "
                "predict_classes once per label, with an apply= for that label."
            )
        yield block


def _require_arrays(owner: str, x: PyTree) -> None:
    if not all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(x)):
        raise TypeError(
            f"{owner}: x must be an array whose first axis indexes the examples, or a pytree of such arrays, found "
            f"{_checks.described(x)}; pass np.asarray(x)."
        )
