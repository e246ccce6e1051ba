r"""Likelihoods of numbers other than normal ones with constant noise, weights of examples, and custom likelihoods.

Sources:
    Nix and Weigend (1994), Estimating the mean and variance of the target probability distribution. ICNN.
    Lange, Little and Taylor (1989), Robust statistical modeling using the t distribution. JASA 84.
    Cameron and Trivedi (2013), Regression analysis of count data, second edition. (NB2, the negative binomial whose
    variance is a quadratic function of the mean.)
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, Position, PyTree, Scalar
from geodax.nn.densities import python_number
from geodax.nn.likelihoods import (
    AbstractLikelihood,
    AbstractNoisyLikelihood,
    AbstractNormalLikelihood,
    Apply,
    apply_network,
    log_parameter,
    require_one_parameter,
    require_shape,
    spread_over,
)

_LARGE_SIZE = 100.0  # from here on differences of log gamma functions in single precision lose digits


class HeteroscedasticLikelihood(AbstractNormalLikelihood):
    """Real targets with normal noise whose size depends on the inputs.

    Args:
        apply: ``(position, x) -> outputs``: for one target (B, 2), the mean and the logarithm of the standard
            deviation; for T targets (B, 2 T), the T means first. None if positions are networks of one example.
    """

    apply: Apply = eqx.field(static=True, default=apply_network)

    def num_outputs(self, num_targets: int) -> int:
        return 2 * num_targets

    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        """Return means and logarithms of standard deviations."""
        if outputs.ndim != 2 or outputs.shape[1] % 2:
            raise ValueError(
                "HeteroscedasticLikelihood: expected two outputs for each target, the means first and then the "
                f"logarithms of the standard deviations, found outputs of shape {outputs.shape}."
            )
        if outputs.shape[1] == 2:
            return outputs[:, 0], outputs[:, 1]
        means, log_noise = jnp.split(outputs, 2, axis=1)
        return means, log_noise


class StudentTLikelihood(AbstractNoisyLikelihood):
    """Real targets with outliers: the noise has Student's t distribution.

    Args:
        noise: Scale of the noise; None if the position is a :class:`~geodax.nn.WithNoise`, which contains it.
        degrees_of_freedom: Degrees of freedom; the variance is finite above 2.
        apply: ``(position, x) -> means``; None if positions are networks that take one example.
    """

    noise: float | None = eqx.field(static=True, default=None, converter=python_number)
    degrees_of_freedom: float = eqx.field(static=True, default=4.0, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        _checks.number("StudentTLikelihood", "degrees_of_freedom", self.degrees_of_freedom, above=0.0)

    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        locations, log_scale = parameters
        require_shape("StudentTLikelihood", locations, targets)
        df = self.degrees_of_freedom
        constant = math.lgamma(0.5 * (df + 1)) - math.lgamma(0.5 * df) - 0.5 * math.log(math.pi * df)
        z = (targets - locations) / jnp.exp(log_scale)
        return constant - log_scale - 0.5 * (df + 1) * jnp.log1p(z * z / df)

    def distribution(self, *parameters: np.ndarray) -> Any:
        locations, log_scale = parameters
        from scipy import stats  # takes half a second to import

        return stats.t(self.degrees_of_freedom, locations, np.exp(log_scale))


class PoissonLikelihood(AbstractLikelihood):
    """Counts with a Poisson distribution.

    Args:
        base_rate: The mean where an output is 0, for each target if there are several; the mean is
            ``base_rate * exp(output)``. Give the mean of the targets: networks start near 0, far from the
            logarithm of large counts.
        apply: ``(position, x) -> outputs``, one for each target; for an exposure, add its logarithm. None if positions
            are networks that take one example.
    """

    base_rate: float | tuple[float, ...] = eqx.field(static=True, default=1.0, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        _require_rate("PoissonLikelihood", self.base_rate)

    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        """Return logarithms of means."""
        return (outputs + _log_rate(self.base_rate, outputs),)

    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        """Return the log probability of each count; NaN for anything but a count."""
        (log_mean,) = parameters
        require_shape("PoissonLikelihood", log_mean, targets)
        return _of_counts(targets * log_mean - jnp.exp(log_mean) - gammaln(targets + 1.0), targets)

    def distribution(self, *parameters: np.ndarray) -> Any:
        from scipy import stats  # as above

        return stats.poisson(np.exp(parameters[0]))


class NegativeBinomialLikelihood(AbstractLikelihood):
    r"""Counts that vary more than Poisson ones: mean m, variance :math:`m + \alpha m^2`.

    Their rate is m times a gamma variable of mean 1 and standard deviation :math:`\sqrt\alpha`.

    Args:
        dispersion: :math:`\alpha`; None if the position is a :class:`~geodax.nn.WithNoise`, whose ``log_noise`` is then
            the logarithm of :math:`\sqrt\alpha`.
        base_rate: As for :class:`PoissonLikelihood`.
        apply: As for :class:`PoissonLikelihood`.
    """

    dispersion: float | None = eqx.field(static=True, default=None, converter=python_number)
    base_rate: float | tuple[float, ...] = eqx.field(static=True, default=1.0, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        _require_rate("NegativeBinomialLikelihood", self.base_rate)
        if self.dispersion is not None:
            _checks.number("NegativeBinomialLikelihood", "dispersion", self.dispersion, above=0.0)

    @property
    def has_parameter(self) -> bool:
        return self.dispersion is None

    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        """Return logarithms of means and of dispersions."""
        require_one_parameter("NegativeBinomialLikelihood", "dispersion", self.dispersion, position)
        found = log_parameter("NegativeBinomialLikelihood", "dispersion", self.dispersion, position, outputs)
        log_dispersion = 2.0 * found if self.has_parameter else found
        return outputs + _log_rate(self.base_rate, outputs), spread_over(log_dispersion, outputs)

    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        """Return the log probability of each count; NaN for anything but a count."""
        log_mean, log_dispersion = parameters
        require_shape("NegativeBinomialLikelihood", log_mean, targets)
        log_one_plus = jax.nn.softplus(log_mean + log_dispersion)  # log(1 + alpha m)
        value = _log_rising(log_dispersion, targets) - gammaln(targets + 1.0)
        size = jnp.exp(-log_dispersion)
        return _of_counts(value + targets * (log_mean - log_one_plus) - size * log_one_plus, targets)

    def distribution(self, *parameters: np.ndarray) -> Any:
        log_mean, log_dispersion = parameters
        from scipy import stats  # as above

        return stats.nbinom(np.exp(-log_dispersion), 1.0 / (1.0 + np.exp(log_mean + log_dispersion)))


class CustomLikelihood(AbstractLikelihood):
    """Any likelihood: a function of the network's outputs and the target of one example.

    Args:
        log_density_fn: ``(outputs, target) -> scalar``, the log density of one example's target.
        distribution_fn: For predictions, ``outputs -> distributions``, where outputs is an array draw x example x
            output (draw x example for scalar outputs): an object with the methods of SciPy's frozen distributions, such
            as ``lambda outputs: scipy.stats.gamma(2.0, scale=np.exp(outputs))``. One of your own needs ``mean``,
            ``var``, ``cdf`` and ``pdf`` (for counts ``logpmf``); ``logpdf`` for densities of targets, ``rvs`` for
            samples, ``support`` for quantiles at 0 and 1. None if only log scores are needed.
        outputs_per_example: Number of outputs that the network needs; None for one scalar output. Used by estimators.
        apply: ``(position, x) -> outputs``; None if positions are networks that take one example.
    """

    log_density_fn: Callable[[Array, Array], Scalar] = eqx.field(static=True)
    distribution_fn: Callable[[np.ndarray], Any] | None = eqx.field(static=True, default=None)
    outputs_per_example: int | None = eqx.field(static=True, default=None)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def __check_init__(self):
        kind = "a function (outputs, target) -> log density"
        _checks.function("CustomLikelihood", "log_density_fn", self.log_density_fn, kind)

    def num_outputs(self, num_targets: int) -> int:
        return num_targets if self.outputs_per_example is None else self.outputs_per_example

    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        return (outputs,)

    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        number = len(parameters[0])
        if targets.shape[:1] != (number,):
            raise ValueError(
                f"CustomLikelihood: expected a target for each of {number} examples, found an array of shape "
                f"{targets.shape}. Where a target has several parts, such as a time and whether it was observed, give "
                "them as columns: np.column_stack([time, is_observed])."
            )
        each = jnp.asarray(jax.vmap(self.log_density_fn)(parameters[0], targets))
        if each.ndim != 1:
            raise ValueError(
                "CustomLikelihood: log_density_fn must return one number for the outputs and the target of one "
                f"example, found an array of shape {each.shape[1:]}; sum over the targets of the example."
            )
        return each

    def distribution(self, *parameters: np.ndarray) -> Any:
        if self.distribution_fn is None:
            raise ValueError(
                "CustomLikelihood: predictions other than log scores need distribution_fn=..., a function of the "
                "outputs that returns a distribution such as scipy.stats.gamma(2.0, scale=np.exp(outputs))."
            )
        return self.distribution_fn(*parameters)


class Weighted(eqx.Module):
    """A likelihood whose examples have weights, which multiply their log likelihoods.

    A batch is ``(x, y, weights)``. An example of weight 2 counts as two equal ones. :class:`geodax.Posterior` scales by
    N / B, where N is the number of rows and not the sum of their weights: batches take every row equally often, and the
    weights are in the log likelihoods already.

    Args:
        likelihood: The likelihood of a batch ``(x, y)``.
    """

    likelihood: Callable[[Position, tuple[PyTree, Any]], Array]

    def __call__(self, position: Position, batch: Any) -> Float[Array, " B"]:
        """Compute the weighted log likelihood of each example of a batch of inputs, targets and weights.

        Raises ValueError if the batch does not have three parts, or there is not one weight for each example.
        """
        if not isinstance(batch, tuple | list) or len(batch) != 3:
            raise ValueError("Weighted: expected batches (x, y, weights); add the weights to the data of the batches.")
        *examples, weights = batch
        each = self.likelihood(position, tuple(examples))
        if jnp.shape(weights) != each.shape:
            raise ValueError(
                f"Weighted: expected one weight for each of {each.shape[0]} examples, found an array of shape "
                f"{jnp.shape(weights)}."
            )
        return jnp.asarray(weights, each.dtype) * each


def _require_rate(owner: str, rate: float | tuple[float, ...]) -> None:
    for each in rate if isinstance(rate, tuple) else (rate,):
        _checks.number(owner, "base_rate", each, above=0.0)


def _log_rate(rate: float | tuple[float, ...], outputs: Array) -> Array:
    return spread_over(jnp.asarray(np.log(rate), outputs.dtype), outputs)


def _of_counts(values: Array, targets: Array) -> Array:
    is_count = (targets >= 0) & (targets == jnp.floor(targets))
    return jnp.where(is_count, values, jnp.nan)


def _log_rising(log_dispersion: Array, counts: Array) -> Array:
    r"""Return :math:`\log\Gamma(r + y) - \log\Gamma(r) - y \log r`; where r is large, by Stirling's series."""
    size = jnp.exp(-log_dispersion)
    is_large = size > _LARGE_SIZE
    r = jnp.where(is_large, size, _LARGE_SIZE)
    series = (r + counts - 0.5) * jnp.log1p(counts / r) - counts - counts / (12.0 * r * (r + counts))
    small = jnp.where(is_large, 1.0, size)
    return jnp.where(is_large, series, gammaln(small + counts) - gammaln(small) + counts * log_dispersion)
