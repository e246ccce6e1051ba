r"""Predicted classes: mean probabilities of ensembles, the parts of their entropy, and their temperature.

With the probabilities :math:`p_d(y \mid x)` of the draws, the prediction is their mean :math:`\bar p`, and

.. math::
    \underbrace{H[\bar p]}_{\text{total}} =
    \underbrace{\tfrac1D \textstyle\sum_d H[p_d]}_{\text{aleatoric}} +
    \underbrace{H[\bar p] - \tfrac1D \textstyle\sum_d H[p_d]}_{\text{epistemic}},

with entropies in nats; the last term is the mutual information of label and parameters (Depeweg et al. 2018).

**Temperature scaling.** The mean of many networks that agree on the class, but not on its probability, is often
under-confident. :func:`loo_temperature` finds, from the fitted examples alone, the temperature that sharpens it:

.. math::
    p_T(y \mid x) \propto \bar p(y \mid x)^{1/T}.

Source:
    Depeweg, Hernández-Lobato, Doshi-Velez and Udluft (2018), Decomposition of uncertainty in Bayesian deep learning for
    efficient and risk-sensitive learning. ICML.
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks. ICML.
    Gelfand, Dey and Chang (1992), Model determination using predictive distributions. Bayesian Statistics 4.
    Ionides (2008), Truncated importance sampling. Journal of Computational and Graphical Statistics 17.
    Platt (1999), Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from geodax import _checks
from geodax.predict.numbers import require_finite

_SHARPEST, _LEAST_LOG = 1e3, -700.0  # inverse of the least temperature; of probabilities of impossible classes


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

    def at_temperature(self, temperature: Any) -> "ClassPredictions":
        """Scale the mean probabilities by a temperature.

        Args:
            temperature: One, or one for each example. Below 1 it sharpens; 1 changes nothing.

        Returns:
            Probabilities proportional to the power 1 / temperature of these, their entropy, and its parts in the
            proportion of these.

        Raises:
            ValueError: If a temperature is not positive, or there is not one for each example.
        """
        t = _positive("ClassPredictions.at_temperature", "temperature", temperature, len(self.probabilities))[:, None]
        with np.errstate(divide="ignore"):
            p = np.where(t == 1.0, self.probabilities, special.softmax(np.log(self.probabilities) / t, axis=1))
        total = special.entr(p).sum(axis=1)
        change = np.divide(total, self.total, where=self.total > 0, out=np.ones_like(total))
        return ClassPredictions(p, total, change * self.aleatoric, change * self.epistemic, self.num_draws)


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
    total, entropies, count = np.zeros(()), np.zeros(()), 0
    for log_p in _log_probabilities("classes_from_logits", blocks):
        p = np.exp(log_p)
        total = total + p.sum(axis=0)
        # an impossible class adds nothing to the entropy
        entropies = entropies - np.multiply(p, log_p, where=p > 0, out=np.zeros_like(p)).sum(axis=(0, 2))
        count += len(p)
    mean = total / count
    entropy = special.entr(mean).sum(axis=1)
    aleatoric = entropies / count
    return ClassPredictions(mean, entropy, aleatoric, np.maximum(entropy - aleatoric, 0.0), count)


def _log_probabilities(owner: str, blocks: Any) -> Iterator[Float[np.ndarray, "draws examples classes"]]:
    pieces = [blocks] if hasattr(blocks, "shape") else blocks
    if not _checks.is_series(pieces):
        raise TypeError(f"{owner}: expected arrays of logits, found {_checks.described(blocks)}.")
    count, form = 0, None
    for block in pieces:
        logits = _checks.numbers(owner, "blocks", block)
        if logits.ndim >= 2 and logits.shape[-1] == 1:
            raise ValueError(
                f"{owner}: expected a logit for each of at least two classes, found one in blocks of shape "
                f"{logits.shape}, whose probability would always be 1. For one logit z, that of label 1, pass "
                "np.concatenate([np.zeros_like(z), z], -1); in predict_classes let apply= return such logits."
            )
        if logits.ndim < 2 or 0 in logits.shape[-2:] or (form is not None and form != logits.shape[-2:]):
            raise ValueError(
                f"{owner}: expected blocks (draws, examples, classes) with equal numbers of examples and classes, "
                f"found shape {logits.shape}."
            )
        form = logits.shape[-2:]
        if logits.size >= 8 and (logits >= 0).all() and np.allclose(logits.sum(axis=-1), 1.0, atol=1e-5):
            _checks.warn(
                f"{owner}: the outputs are not negative and have the sum 1 for each example, like probabilities, but "
                "logits are expected; leave the softmax out, or take the logarithm."
            )
        stacked = logits.reshape(-1, *form).astype(np.float64)
        # the maximum is non-finite where a logit is NaN or infinite, or no class is possible
        require_finite(
            owner,
            np.isfinite(stacked.max(axis=-1)),
            count,
            "logits that are numbers (minus infinity for some classes, but not for all)",
        )
        # float64 keeps small probabilities from underflowing, which would make their logarithm infinite
        yield special.log_softmax(stacked, axis=-1)
        count += len(stacked)
    if not count:
        raise ValueError(f"{owner}: there are no draws.")


def _positive(owner: str, name: str, value: Any, num_examples: int) -> Float[np.ndarray, " examples"]:
    """A number for each example, or for all."""
    values = _checks.numbers(owner, name, value).astype(np.float64)
    if values.shape not in ((), (num_examples,)) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"{owner}: expected {name} to be a positive number, or one for each of the {num_examples} examples, found "
            f"{_checks.described(value)}."
        )
    return np.broadcast_to(values, num_examples)


def loo_temperature(blocks: Any, labels: Any, *, power: Any = 1.0) -> float:
    """Find the temperature that gives leave-one-out predictions the best log score.

    The draws predict each fitted example as if it had been left out, by weights that are the inverse of its likelihood,
    truncated at the root of the number of draws times their mean. Leaving one out says little about over-confidence, so
    the temperature is at most 1. One example in n + 2 counts as one of another class: n right ones are no proof.

    Args:
        blocks: Logits of the examples at the draws of the posterior, as for :func:`classes_from_logits`.
        labels: The classes of the examples, from 0.
        power: Power of an example's likelihood in the posterior, one or one for each example: its weight in the fit,
            divided by the temperature of the sampler.

    Returns:
        The temperature for :meth:`ClassPredictions.at_temperature`, in (0, 1].

    Raises:
        ValueError: As :func:`classes_from_logits`, or if there is not one label for each example, or powers are not
            positive.
    """
    log_p = np.maximum(np.concatenate(list(_log_probabilities("loo_temperature", blocks))), _LEAST_LOG)
    num_draws, num_examples, num_classes = log_p.shape
    y = np.asarray(labels)
    if y.shape != (num_examples,) or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= num_classes:
        raise ValueError(
            f"loo_temperature: expected {num_examples} labels from 0 to {num_classes - 1}, one for each example, found "
            f"{_checks.described(labels)}."
        )
    powers = _positive("loo_temperature", "power", power, num_examples)
    own = np.arange(num_examples), y
    weights = special.softmax(-powers * log_p[:, *own], axis=0)
    weights = np.minimum(weights, num_draws**-0.5)
    left_out = np.einsum("de,dec->ec", weights / weights.sum(axis=0), np.exp(log_p))
    left_out = np.log(left_out)
    shares = np.full((num_examples, num_classes), 1 / (num_examples + 2) / (num_classes - 1))
    shares[own] = 1 - 1 / (num_examples + 2)

    def slope(inverse: float) -> float:  # of the loss in the inverse of the temperature, in which it is convex
        change = (special.softmax(inverse * left_out, axis=1) - shares) * left_out
        return float(np.sum(powers * change.sum(axis=1)))

    if slope(1.0) >= 0.0:
        return 1.0
    found: Any = optimize.brentq(slope, 1.0, _SHARPEST) if slope(_SHARPEST) > 0.0 else _SHARPEST
    return 1.0 / found
