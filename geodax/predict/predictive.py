r"""Predictions of an ensemble of draws, and where their uncertainty comes from.

**Classes.** With the probabilities :math:`p_d(y \mid x)` of the draws, their mean :math:`\bar p` is the prediction, and

.. math::
    \underbrace{H[\bar p]}_{\text{total}} =
    \underbrace{\tfrac1D \textstyle\sum_d H[p_d]}_{\text{aleatoric}} +
    \underbrace{H[\bar p] - \tfrac1D \textstyle\sum_d H[p_d]}_{\text{epistemic}},

entropies in nats; the last term is the mutual information of label and parameters (Depeweg et al. 2018).

**Numbers.** With means :math:`m_d` and noise standard deviations :math:`s_d` the prediction is the mixture of the
normal laws, of mean :math:`\bar m` and variance :math:`\overline{s^2}` (aleatoric) plus the variance of the
:math:`m_d` (epistemic).

Both are made in one pass over blocks of draws, so that a run on disk needs no more memory than one block.

Source:
    Depeweg, Hernández-Lobato, Doshi-Velez and Udluft (2018), Decomposition of uncertainty in Bayesian deep learning for
    efficient and risk-sensitive learning. ICML.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import special

from geodax import _checks as _arguments
from geodax import _tree
from geodax._types import Position, PyTree
from geodax.nn.likelihoods import GaussianLikelihood, apply_network
from geodax.predict.evaluation import Draws, evaluate


class ClassPredictions(NamedTuple):
    """Predicted classes of examples.

    Attributes:
        probabilities: Mean probabilities, example x class.
        total: Entropy of the mean probabilities, in nats.
        aleatoric: Mean entropy of the draws: what more draws of parameters cannot take away.
        epistemic: Their difference, the mutual information of label and parameters.
        num_draws: Draws of the ensemble.
    """

    probabilities: Float[np.ndarray, "examples classes"]
    total: Float[np.ndarray, " examples"]
    aleatoric: Float[np.ndarray, " examples"]
    epistemic: Float[np.ndarray, " examples"]
    num_draws: int

    @property
    def labels(self) -> np.ndarray:
        """The most probable classes."""
        return self.probabilities.argmax(axis=1)


class NumberPredictions(NamedTuple):
    """Predicted numbers of examples.

    Attributes:
        mean: Mean of the ensemble.
        aleatoric: Mean variance of the noise.
        epistemic: Variance of the draws' means.
        log_density: Log predictive density of each target, all its entries together; None without targets.
        num_draws: Draws of the ensemble.
    """

    mean: Float[np.ndarray, "examples ..."]
    aleatoric: Float[np.ndarray, "examples ..."]
    epistemic: Float[np.ndarray, "examples ..."]
    log_density: Float[np.ndarray, " examples"] | None
    num_draws: int

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance, the sum of the two parts."""
        return self.aleatoric + self.epistemic


def predict_classes(
    draws: Draws,
    like: Position,
    x: PyTree,
    *,
    apply: Callable[[Position, PyTree], Any] = apply_network,
    **options: Any,
) -> ClassPredictions:
    """Predict classes by the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``.
        like: A position with the form of the draws, for instance the network that the run started from.
        x: Examples: arrays whose first axis runs over them.
        apply: ``(position, x) -> logits (examples, classes)``; left out, the position is a network of one example.
        **options: ``first``, ``last``, ``every``, ``batch_size`` and ``block_bytes`` of
            :func:`~geodax.predict.evaluation.evaluate`.

    Returns:
        The predictions.

    Raises:
        TypeError: If x has something else than arrays in it, such as a list of numbers.
        ValueError: If the draws do not have the form of ``like``, or are not finite, or the outputs are no logits of
            one label for each example.
        StorageError: If the store cannot be read.
    """
    _require_arrays("predict_classes", x)
    return classes_from_logits(_logits(evaluate(draws, like, x, apply=apply, **options)))


def classes_from_logits(blocks: Any) -> ClassPredictions:
    """Predict classes from logits that are there already, for instance recorded by ``keep=...``.

    Args:
        blocks: An array whose last two axes are examples and classes and whose other axes are draws, or an iterable of
            such arrays.

    Returns:
        The predictions.

    Raises:
        ValueError: If there are none, a draw is not finite (a logit of minus infinity, for a class that is impossible,
            is fine), or there is one class only.
    """
    pieces = [blocks] if hasattr(blocks, "shape") else blocks
    if not isinstance(pieces, Iterable) or isinstance(pieces, str | bytes):
        raise TypeError(f"classes_from_logits: expected arrays of logits, found {_arguments.described(blocks)}.")
    total, entropies, count = np.zeros(()), np.zeros(()), 0
    for block in pieces:
        logits = _arguments.numbers("classes_from_logits", "blocks", block)
        if logits.ndim >= 2 and logits.shape[-1] == 1:
            raise ValueError(
                "classes_from_logits: expected a logit for each class, two at least, found one in blocks of shape "
                f"{logits.shape}, whose probability would be 1 whatever it is. For one logit z, that of label 1, give "
                "np.concatenate([np.zeros_like(z), z], -1); in predict_classes let apply= return such logits."
            )
        if logits.ndim < 2 or 0 in logits.shape[-2:] or (total.ndim and total.shape != logits.shape[-2:]):
            raise ValueError(
                "classes_from_logits: expected blocks (draws, examples, classes) with equally many examples and "
                f"classes, found shape {logits.shape}."
            )
        stacked = logits.reshape(-1, *logits.shape[-2:]).astype(np.float64)
        # the largest is not finite where one is NaN or infinite, and where no class is possible
        _check_finite(
            "classes_from_logits",
            np.isfinite(stacked.max(axis=-1)),
            count,
            "logits that are numbers (minus infinity for some classes, but not for all)",
        )
        # in double precision: the probability of a surprise must not vanish, or its logarithm is infinite
        log_p = special.log_softmax(stacked, axis=-1)
        p = np.exp(log_p)
        total = total + p.sum(axis=0)
        # a class that is impossible adds nothing
        entropies = entropies - np.multiply(p, log_p, where=p > 0, out=np.zeros_like(p)).sum(axis=(0, 2))
        count += len(p)
    if not count:
        raise ValueError("classes_from_logits: there are no draws.")
    mean = total / count
    entropy = special.entr(mean).sum(axis=1)
    aleatoric = entropies / count
    return ClassPredictions(mean, entropy, aleatoric, np.maximum(entropy - aleatoric, 0.0), count)


def predict_numbers(
    draws: Draws,
    like: Position,
    x: PyTree,
    *,
    targets: np.ndarray | None = None,
    noise: float | None = None,
    apply: Callable[[Position, PyTree], Any] = apply_network,
    **options: Any,
) -> NumberPredictions:
    """Predict numbers by the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``.
        like: A position with the form of the draws, for instance the network that the run started from.
        x: Examples: arrays whose first axis runs over them.
        targets: True values, for their predictive density.
        noise: Standard deviation of the noise; None where positions hold it (:class:`geodax.nn.WithNoise`), or where
            ``apply`` returns it.
        apply: ``(position, x) -> means``, or ``-> (means, noise standard deviations)`` of equal shapes; left out, the
            position is a network of one example.
        **options: ``first``, ``last``, ``every``, ``batch_size`` and ``block_bytes`` of
            :func:`~geodax.predict.evaluation.evaluate`.

    Returns:
        The predictions.

    Raises:
        TypeError: If x has something else than arrays in it, such as a list of numbers.
        ValueError: If the draws do not have the form of ``like``, or are not finite, or the noise is nowhere or not
            positive.
        StorageError: If the store cannot be read.
    """
    _require_arrays("predict_numbers", x)
    likelihood = GaussianLikelihood(noise)

    def means_and_noise(position: Position, x: PyTree) -> tuple[Any, Any]:
        values = apply(position, x)
        if isinstance(values, tuple):
            return values
        log_noise = _tree.widened(likelihood.log_noise(position, _tree.widened(values)))
        return values, jnp.broadcast_to(jnp.exp(log_noise), values.shape)

    return numbers_from_means(evaluate(draws, like, x, apply=means_and_noise, **options), targets=targets)


def numbers_from_means(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], *, targets: np.ndarray | None = None
) -> NumberPredictions:
    """Predict numbers from means and noise standard deviations that are there already.

    Args:
        blocks: Pairs of arrays (draws, examples, ...) of equal shapes.
        targets: True values (examples, ...), for their predictive density.

    Returns:
        The predictions.

    Raises:
        ValueError: If there are none, a draw is not finite, a standard deviation is negative, or zero where there are
            targets, or these have another shape.
    """
    count, mean, spread, aleatoric, log_density = 0, np.zeros(()), np.zeros(()), np.zeros(()), None
    if not isinstance(blocks, Iterable) or isinstance(blocks, str | bytes):
        raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_arguments.described(blocks)}.")
    for pair in blocks:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_arguments.described(pair)}.")
        means, noise = (_arguments.numbers("numbers_from_means", "blocks", part) for part in pair)
        if means.ndim < 2 or means.shape != noise.shape or not means.size or (count and mean.shape != means.shape[1:]):
            raise ValueError(
                "numbers_from_means: expected means and noise of one shape (draws, examples, ...), the same in all "
                f"blocks, found {means.shape} and {noise.shape}."
            )
        is_finite = (np.isfinite(means) & np.isfinite(noise)).reshape(*means.shape[:2], -1).all(axis=-1)
        _check_finite("numbers_from_means", np.asarray(is_finite), count, "finite means and noise")
        is_wrong = noise < 0 if targets is None else noise <= 0
        if is_wrong.any():
            draw, example = (int(place[0]) for place in np.nonzero(is_wrong)[:2])
            raise ValueError(
                "numbers_from_means: standard deviations of the noise must be positive, found "
                f"{noise[is_wrong][0]:g} in draw {count + draw} at example {example}; they are no variances and no "
                "logarithms. For a logarithm return jnp.exp of it."
            )
        # sums of squares are taken about the running mean (Chan, Golub and LeVeque 1983)
        number, block_mean = len(means), means.mean(axis=0)
        shift = block_mean - mean
        spread = spread + ((means - block_mean) ** 2).sum(axis=0) + shift**2 * (count * number / (count + number))
        mean = mean + shift * (number / (count + number))
        aleatoric = aleatoric + (noise**2).sum(axis=0)
        count += number
        if targets is not None:
            values = _arguments.numbers("numbers_from_means", "targets", targets)
            if values.shape != means.shape[1:]:
                raise ValueError(f"Predictions have shape {means.shape[1:]}, but the targets {values.shape}.")
            each = -0.5 * ((values - means) / noise) ** 2 - np.log(noise) - 0.5 * np.log(2 * np.pi)
            block_density = special.logsumexp(each.reshape(*means.shape[:2], -1).sum(axis=2), axis=0)
            log_density = block_density if log_density is None else np.logaddexp(log_density, block_density)
    if not count:
        raise ValueError("numbers_from_means: there are no draws.")
    if log_density is not None:
        log_density = log_density - np.log(count)
    return NumberPredictions(mean, aleatoric / count, spread / count, log_density, count)


def _logits(blocks: Iterable[Any]) -> Iterator[np.ndarray]:
    """Blocks of logits (draws, examples, classes); the number of axes alone would not tell draws from examples."""
    for block in blocks:
        shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(block)]
        if not isinstance(block, np.ndarray) or len(shapes[0]) != 2:
            raise ValueError(
                "predict_classes: expected one array of logits (examples, classes) from apply, found "
                f"{', '.join(map(str, shapes))}. Where a network has one output z, the logit of label 1, let apply= "
                "return jnp.stack([jnp.zeros_like(z), z], -1); where an example has several labels, make each of them "
                "a row: let apply= be for one of them at a time."
            )
        yield block


def _require_arrays(owner: str, x: PyTree) -> None:
    """Raise TypeError for numbers in lists, which are a pytree of single numbers."""
    if not all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(x)):
        raise TypeError(
            f"{owner}: x must be an array whose first axis runs over the examples, or a pytree of such arrays, found "
            f"{_arguments.described(x)}; give np.asarray(x)."
        )


def _check_finite(owner: str, is_finite: np.ndarray, first: int, expected: str) -> None:
    """Raise ValueError where a draw, counted from ``first``, is not finite at an example."""
    if is_finite.all():
        return
    draw, example = (int(place[0]) for place in np.nonzero(~is_finite))
    number = int((~is_finite.all(axis=1)).sum())
    raise ValueError(
        f"{owner}: expected {expected} in every draw, found others in {number} of {len(is_finite)} draws of a block, "
        f"first in draw {first + draw} at example {example}. Leave such draws out, and look into the run that gave "
        "them: a chain that left the finite numbers needs shorter steps."
    )
