r"""Ensemble predictions from draws, and the decomposition of their uncertainty.

**Classes.** With the probabilities :math:`p_d(y \mid x)` of the draws, the prediction is their mean :math:`\bar p`, and

.. math::
    \underbrace{H[\bar p]}_{\text{total}} =
    \underbrace{\tfrac1D \textstyle\sum_d H[p_d]}_{\text{aleatoric}} +
    \underbrace{H[\bar p] - \tfrac1D \textstyle\sum_d H[p_d]}_{\text{epistemic}},

with entropies in nats; the last term is the mutual information of label and parameters (Depeweg et al. 2018).

**Numbers.** With means :math:`m_d` and noise standard deviations :math:`s_d` the prediction is the mixture of the
normal distributions, with mean :math:`\bar m` and variance :math:`\overline{s^2}` (aleatoric) plus the variance of the
:math:`m_d` (epistemic).

Both are computed in one pass over blocks of draws, so memory holds one block of a run on disk at a time.

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

from geodax import _checks, _tree
from geodax._types import Position, PyTree
from geodax.nn.likelihoods import GaussianLikelihood, apply_network
from geodax.predict.evaluation import Draws, evaluate


class ClassPredictions(NamedTuple):
    """Predicted classes of examples.

    Attributes:
        probabilities: Mean probabilities, example x class.
        total: Entropy of the mean probabilities, in nats.
        aleatoric: Mean entropy of the draws, which more data about the parameters would not reduce.
        epistemic: Total minus aleatoric, the mutual information of label and parameters.
        num_draws: Number of draws in the ensemble.
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
        mean: Ensemble mean.
        aleatoric: Mean noise variance.
        epistemic: Variance of the draws' means.
        log_density: Log predictive density of each target, jointly over its entries; None without targets.
        num_draws: Number of draws in the ensemble.
    """

    mean: Float[np.ndarray, "examples ..."]
    aleatoric: Float[np.ndarray, "examples ..."]
    epistemic: Float[np.ndarray, "examples ..."]
    log_density: Float[np.ndarray, " examples"] | None
    num_draws: int

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance, aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic


def predict_classes(
    draws: Draws,
    like: Position,
    x: PyTree,
    *,
    apply: Callable[[Position, PyTree], Any] = apply_network,
    **options: Any,
) -> ClassPredictions:
    """Predict classes with the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``.
        like: A position with the structure of the draws, for instance the network that the run started from.
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


def classes_from_logits(blocks: Any) -> ClassPredictions:
    """Predict classes from precomputed logits, for instance recorded by ``keep=...``.

    Args:
        blocks: An array whose last two axes are examples and classes and whose other axes are draws, or an iterable of
            such arrays.

    Returns:
        The predictions.

    Raises:
            ValueError: If there are no draws, a draw is non-finite (minus infinity is allowed, for an impossible
                class), or there is only one class.
    """
    pieces = [blocks] if hasattr(blocks, "shape") else blocks
    if not isinstance(pieces, Iterable) or isinstance(pieces, str | bytes):
        raise TypeError(f"classes_from_logits: expected arrays of logits, found {_checks.described(blocks)}.")
    total, entropies, count = np.zeros(()), np.zeros(()), 0
    for block in pieces:
        logits = _checks.numbers("classes_from_logits", "blocks", block)
        if logits.ndim >= 2 and logits.shape[-1] == 1:
            raise ValueError(
                "classes_from_logits: expected a logit for each of at least two classes, found one in blocks of shape "
                f"{logits.shape}, whose probability would always be 1. For one logit z, that of label 1, pass "
                "np.concatenate([np.zeros_like(z), z], -1); in predict_classes let apply= return such logits."
            )
        if logits.ndim < 2 or 0 in logits.shape[-2:] or (total.ndim and total.shape != logits.shape[-2:]):
            raise ValueError(
                "classes_from_logits: expected blocks (draws, examples, classes) with equal numbers of examples and "
                f"classes, found shape {logits.shape}."
            )
        stacked = logits.reshape(-1, *logits.shape[-2:]).astype(np.float64)
        # the maximum is non-finite where a logit is NaN or infinite, or no class is possible
        _check_finite(
            "classes_from_logits",
            np.isfinite(stacked.max(axis=-1)),
            count,
            "logits that are numbers (minus infinity for some classes, but not for all)",
        )
        # float64 keeps small probabilities from underflowing, which would make their logarithm infinite
        log_p = special.log_softmax(stacked, axis=-1)
        p = np.exp(log_p)
        total = total + p.sum(axis=0)
        # an impossible class adds nothing to the entropy
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
    """Predict numbers with the ensemble of a run's draws.

    Args:
        draws: The folder of a store, or a DataTree, with positions in its group ``posterior``.
        like: A position with the structure of the draws, for instance the network that the run started from.
        x: Examples: arrays whose first axis indexes them.
        targets: True values, for their predictive density.
        noise: Standard deviation of the noise; None if positions contain it (:class:`geodax.nn.WithNoise`) or
            ``apply`` returns it.
        apply: ``(position, x) -> means``, or ``-> (means, noise standard deviations)`` of equal shapes; by default the
            position is called on each example.
        **options: ``first``, ``last``, ``every``, ``batch_size`` and ``block_bytes`` of
            :func:`~geodax.predict.evaluation.evaluate`.

    Returns:
        The predictions.

    Raises:
        TypeError: If x contains anything but arrays, such as a list of numbers.
        ValueError: If the draws do not match the structure of ``like`` or are non-finite, or the noise is missing or
            not positive.
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
    """Predict numbers from precomputed means and noise standard deviations.

    Args:
        blocks: Pairs of arrays (draws, examples, ...) of equal shapes.
        targets: True values (examples, ...), for their predictive density.

    Returns:
        The predictions.

    Raises:
        ValueError: If there are no draws, a draw is non-finite, a standard deviation is negative (or zero with
            targets), or the targets have another shape.
    """
    count, mean, spread, aleatoric, log_density = 0, np.zeros(()), np.zeros(()), np.zeros(()), None
    if not isinstance(blocks, Iterable) or isinstance(blocks, str | bytes):
        raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_checks.described(blocks)}.")
    for pair in blocks:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"numbers_from_means: expected pairs of arrays, found {_checks.described(pair)}.")
        means, noise = (_checks.numbers("numbers_from_means", "blocks", part) for part in pair)
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
                f"{noise[is_wrong][0]:g} in draw {count + draw} at example {example}. Return standard deviations, not "
                "variances or logarithms; for a logarithm return jnp.exp of it."
            )
        # sums of squares about the running mean (Chan, Golub and LeVeque 1983)
        number, block_mean = len(means), means.mean(axis=0)
        shift = block_mean - mean
        spread = spread + ((means - block_mean) ** 2).sum(axis=0) + shift**2 * (count * number / (count + number))
        mean = mean + shift * (number / (count + number))
        aleatoric = aleatoric + (noise**2).sum(axis=0)
        count += number
        if targets is not None:
            values = _checks.numbers("numbers_from_means", "targets", targets)
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
    """Raise TypeError for lists of numbers, which JAX treats as pytrees of scalars."""
    if not all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(x)):
        raise TypeError(
            f"{owner}: x must be an array whose first axis indexes the examples, or a pytree of such arrays, found "
            f"{_checks.described(x)}; pass np.asarray(x)."
        )


def _check_finite(owner: str, is_finite: np.ndarray, first: int, expected: str) -> None:
    """Raise ValueError where a draw, counted from ``first``, is non-finite at an example."""
    if is_finite.all():
        return
    draw, example = (int(place[0]) for place in np.nonzero(~is_finite))
    number = int((~is_finite.all(axis=1)).sum())
    raise ValueError(
        f"{owner}: expected {expected} in every draw, found others in {number} of {len(is_finite)} draws of a block, "
        f"first in draw {first + draw} at example {example}. Leave out such draws and check the run that produced "
        "them: a chain that diverged to non-finite values needs a smaller step size."
    )
