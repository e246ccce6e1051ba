r"""Log likelihoods of the examples of a batch, for :class:`geodax.Posterior`.

With the outputs :math:`f` of a network at an example, and a parameter :math:`s` of the position
(:class:`~geodax.nn.WithNoise`) or a given one,

==============================================  =====================================================================
likelihood                                      distribution of the target
==============================================  =====================================================================
:class:`CategoricalLikelihood`                  class k with probability :math:`e^{f_k} / \sum_j e^{f_j}`
:class:`WithCutPoints`                          ordered classes: a network whose outputs are categorical logits
:class:`GaussianLikelihood`                     :math:`N(f, s^2)`; several targets: the same or each its own :math:`s`
:class:`~geodax.nn.HeteroscedasticLikelihood`   :math:`N(f_1, e^{2 f_2})`
:class:`~geodax.nn.StudentTLikelihood`          :math:`f + s\, t_\nu`
:class:`~geodax.nn.PoissonLikelihood`           Poisson with mean :math:`e^f`
:class:`~geodax.nn.NegativeBinomialLikelihood`  counts of mean :math:`m = e^f`, variance :math:`m + s^2 m^2`
:class:`~geodax.nn.CustomLikelihood`            a function of outputs and target
==============================================  =====================================================================

A batch is a pair ``(x, y)``. A position that is a network is called on each row of ``x`` under ``jax.vmap``; for other
positions ``apply(position, x)`` returns the outputs for all rows. For half-precision outputs the log likelihood is
computed in single precision: one minus the probability of a likely label, which is its gradient, would round to zero.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks, _parameters, _tree
from geodax._normal import Normal
from geodax._types import Array, Position, PRNGKey, PyTree
from geodax.nn.densities import python_number
from geodax.vi.application import apply_network

Apply = Callable[[Position, PyTree], Array]


def outputs_of(apply: Apply, position: Position, x: PyTree) -> Array:
    """Return ``apply(position, x)``, in at least single precision; errors of common causes say what to do."""
    try:
        return _tree.widened(apply(position, x))
    except Exception as error:
        is_wrapped = isinstance(position, WithNoise | WithCutPoints)
        if not _parameters.explain(error, position) and is_wrapped and apply is not apply_network:
            error.add_note(
                f"The position is a {type(position).__name__}, which apply= takes whole: the network, or what is left "
                "of it after equinox.partition, is position.network."
            )
        raise


class CategoricalLikelihood(eqx.Module):
    """Classes with integer labels; the network's outputs are logits.

    Args:
        apply: ``(position, x) -> logits (B, classes)``; None if positions are networks that take one example.
    """

    apply: Apply = eqx.field(static=True, default=apply_network)

    def __call__(self, position: Position, batch: tuple[PyTree, Array]) -> Float[Array, " B"]:
        """Compute the log probability of each label, NaN for one out of range; labels from 0 have the shape (B,).

        Raises TypeError if the labels are not integers, ValueError if the shapes do not match, or there is only one
        class.
        """
        x, labels = batch
        labels = jnp.asarray(labels)
        if not jnp.issubdtype(labels.dtype, jnp.integer):
            raise TypeError(f"CategoricalLikelihood: labels must be integers, found dtype {labels.dtype}.")
        logits = outputs_of(self.apply, position, x)
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                "CategoricalLikelihood: expected logits of shape (B, classes) and labels of shape (B,), found "
                f"{logits.shape} and {labels.shape}."
            )
        if logits.shape[1] == 1:
            raise ValueError(
                "CategoricalLikelihood: expected a logit for each of at least two classes, found one, whose "
                "probability would always be 1. For two classes use a network with two outputs, or let apply= return "
                "jnp.concatenate([jnp.zeros_like(z), z], -1) for one output z, the logit of label 1."
            )
        if labels.dtype.itemsize < 4:
            labels = labels.astype(jnp.int32)  # the number of classes may exceed eight bits
        # a negative label would index from the end
        safe = jnp.where(labels < 0, logits.shape[1], labels)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), safe[:, None], axis=1, mode="fill")[:, 0]

    def sample(self, key: PRNGKey, position: Position, batch: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
        """Return the batch with labels drawn from the network's distribution in place of its own."""
        x, _ = batch
        return x, jax.random.categorical(key, outputs_of(self.apply, position, x))


class AbstractLikelihood(eqx.Module):
    """Targets whose distribution has parameters computed from a network's outputs.

    Compiled code uses the log density, predictions the distribution on the host. The same functions of
    :mod:`geodax.predict.predictive` work with all subclasses.
    """

    @property
    @abc.abstractmethod
    def apply(self) -> Apply:
        """The function ``(position, x) -> outputs``."""

    @property
    def has_parameter(self) -> bool:
        """Whether positions must be a :class:`WithNoise`; by default not."""
        return False

    def num_outputs(self, num_targets: int) -> int:
        """Return the number of outputs that the network needs for so many targets of an example; by default as many."""
        return num_targets

    @abc.abstractmethod
    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        """Return the parameters of the targets' distributions, in the order of :meth:`distribution`.

        Args:
            position: The parameters of the model.
            outputs: The network's outputs, example first.
        """

    @abc.abstractmethod
    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        """Return the log density of each target, or of each example, example first."""

    @abc.abstractmethod
    def distribution(self, *parameters: np.ndarray) -> Any:
        """Return the distribution as an object with the methods of SciPy's frozen ones (``mean``, ``cdf``, ...)."""

    def __call__(self, position: Position, batch: tuple[PyTree, Any]) -> Float[Array, " B"]:
        """Compute the log density of each target, summed over its entries.

        Targets have the shape of the means; a list of numbers is converted to an array. Raises TypeError for a tuple or
        list of arrays, ValueError if the shapes differ, or a parameter is missing or given twice.
        """
        x, targets = batch
        parameters = self.parameters(position, outputs_of(self.apply, position, x))
        dtype = parameters[0].dtype
        if not hasattr(targets, "shape"):
            parts = jax.tree.leaves(targets, is_leaf=lambda part: part is not targets)
            if any(np.ndim(part) for part in parts):  # two targets (2, B) look like (B, 2) in a batch of two
                raise TypeError(
                    f"{type(self).__name__}: expected an array of targets, example first, found several parts. Give "
                    "several targets of an example as columns: numpy.column_stack([y_1, y_2])."
                )
            targets = jnp.asarray(targets, dtype)
        targets = _tree.widened(targets)
        each = self.log_density(parameters, targets.astype(dtype))
        return jnp.sum(each.reshape(each.shape[0], -1), axis=1)


class AbstractNormalLikelihood(AbstractLikelihood):
    """Normally distributed targets, with the parameters means and logarithms of standard deviations."""

    def log_density(self, parameters: tuple[Array, ...], targets: Array) -> Array:
        means, log_noise = parameters
        require_shape(type(self).__name__, means, targets)
        z = (targets - means) / jnp.exp(log_noise)
        return -0.5 * z * z - log_noise - 0.5 * math.log(2.0 * math.pi)

    def distribution(self, *parameters: np.ndarray) -> Normal:
        means, log_noise = parameters
        return Normal(means, np.exp(log_noise))


class AbstractNoisyLikelihood(AbstractLikelihood):
    """Real targets with noise of one size, known or learned: the outputs of the network are their locations."""

    noise: eqx.AbstractVar[float | None]

    def __check_init__(self):
        if self.noise is not None:
            _checks.number(type(self).__name__, "noise", self.noise, above=0.0)

    @property
    def has_parameter(self) -> bool:
        return self.noise is None

    def parameters(self, position: Position, outputs: Array) -> tuple[Array, ...]:
        """Return locations and logarithms of scales."""
        require_one_parameter(type(self).__name__, "noise", self.noise, position)
        return outputs, spread_over(self.log_noise(position, outputs), outputs)

    def log_noise(self, position: Position, like: Array) -> Array:
        """Return the logarithm of the scale of the noise, fixed or from the position, in the dtype of ``like``."""
        return log_parameter(type(self).__name__, "noise", self.noise, position, like)


class GaussianLikelihood(AbstractNoisyLikelihood, AbstractNormalLikelihood):
    """Real targets with normal noise, known or learned.

    Args:
        noise: Standard deviation of the noise; None if the position is a :class:`WithNoise`, which contains it. Exactly
            one of the two is required.
        apply: ``(position, x) -> means``; None if positions are networks that take one example.
    """

    noise: float | None = eqx.field(static=True, default=None, converter=python_number)
    apply: Apply = eqx.field(static=True, default=apply_network)

    def sample(self, key: PRNGKey, position: Position, batch: tuple[PyTree, Any]) -> tuple[PyTree, Array]:
        """Return the batch with targets drawn from the network's distribution in place of its own."""
        x, _ = batch
        means, log_noise = self.parameters(position, outputs_of(self.apply, position, x))
        return x, means + jnp.exp(_tree.widened(log_noise)) * jax.random.normal(key, means.shape, means.dtype)


class WithNoise(eqx.Module):
    """A network with the logarithm of a noise standard deviation; calling it calls the network.

    Args:
        network: The network.
        log_noise: Logarithm of the standard deviation, a scalar array or a number; with one entry for each of several
            targets, these have their own noise.
        dtype: Dtype of ``log_noise`` if it is a number.
    """

    network: PyTree
    log_noise: Array

    def __init__(self, network: PyTree, log_noise: Any = 0.0, *, dtype: Any = jnp.float32):
        self.network = network
        if not (isinstance(log_noise, jax.Array) and jnp.issubdtype(log_noise.dtype, jnp.floating)):
            log_noise = _checks.number("WithNoise", "log_noise", log_noise)
        self.log_noise = jnp.asarray(log_noise, getattr(log_noise, "dtype", dtype))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.network(*args, **kwargs)


class WithCutPoints(eqx.Module):
    r"""A network with one output, and cut points between ordered classes: the cumulative logit model.

    With cut points :math:`c_1 < \dots < c_{K-1}` and the network's output f, :math:`P(y \le k \mid x) = \sigma(c_k -
    f(x))`. The cut points sum to zero, since the network's last bias shifts f; their spacings :math:`c_{k+1} - c_k =
    e^{\text{log\_spacings}_k}` are parameters. For two classes this is logistic regression on f.

    Calling it returns the log probabilities of the classes, which are logits for :class:`CategoricalLikelihood` and
    :func:`~geodax.predict.predictive.predict_classes`.

    Args:
        network: The network, with a scalar output.
        num_classes: Number of classes.
        dtype: Dtype of the parameters ``log_spacings`` (num_classes - 2), which are initially 0; None for two classes.

    Source:
        McCullagh (1980), Regression models for ordinal data. JRSS B 42.
    """

    network: PyTree
    log_spacings: Float[Array, " spacings"] | None  # no array of size zero, which stores cannot hold

    def __init__(self, network: PyTree, num_classes: int, *, dtype: Any = jnp.float32):
        self.network = network
        number = _checks.whole("WithCutPoints", "num_classes", num_classes, least=2)
        self.log_spacings = jnp.zeros(number - 2, dtype) if number > 2 else None

    def __call__(self, *args: Any, **kwargs: Any) -> Float[Array, " classes"]:
        """Return the log probabilities of the classes for one example."""
        output = _tree.widened(self.network(*args, **kwargs))
        if output.shape != ():
            raise ValueError(
                f"WithCutPoints: expected a network with one scalar output (out_features='scalar'), found shape "
                f"{output.shape}."
            )
        if self.log_spacings is None:
            return jnp.stack([jax.nn.log_sigmoid(-output), jax.nn.log_sigmoid(output)])
        log_spacings = _tree.widened(self.log_spacings).astype(output.dtype)
        cuts = jnp.concatenate([jnp.zeros(1, output.dtype), jnp.cumsum(jnp.exp(log_spacings))])
        ends = cuts - jnp.mean(cuts) - output
        below, above = jax.nn.log_sigmoid(ends), jax.nn.log_sigmoid(-ends)
        # s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), which does not cancel in the tails
        between = below[1:] + above[:-1] + jnp.log(-jnp.expm1(-jnp.exp(log_spacings)))
        return jnp.concatenate([below[:1], between, above[-1:]])


def _noise_holders(position: Position) -> list[WithNoise]:
    """The position, or the network in it, if they have a noise parameter."""
    return [holder for holder in (position, getattr(position, "network", None)) if isinstance(holder, WithNoise)]


def require_one_parameter(owner: str, name: str, value: float | None, position: Position) -> None:
    """Raise ValueError if a parameter is both given and part of the position."""
    if value is not None and _noise_holders(position):
        raise ValueError(
            f"{owner}: the {name} is given, as {value:g}, and the position has a noise parameter "
            f"too (nn.WithNoise), which would not affect the likelihood. Leave out {name}=, or the nn.WithNoise."
        )


def log_parameter(owner: str, name: str, value: float | None, position: Position, like: Array) -> Array:
    """Return the logarithm of a given parameter, or the one of the position, in the dtype of ``like``."""
    if value is not None:
        return jnp.asarray(math.log(value), like.dtype)
    held = _noise_holders(position)
    if held:
        return held[0].log_noise
    raise ValueError(
        f"{owner}: the {name} is neither given nor a parameter; give {name}=..., or sample nn.WithNoise(network)."
    )


def spread_over(values: Array, like: Array) -> Array:
    """Return one number, or one for each entry of the last axis, for every entry of ``like``."""
    if values.shape not in ((), like.shape[1:]):
        raise ValueError(
            f"WithNoise: expected one log_noise, or one for each of the targets of shape {like.shape[1:]}, found an "
            f"array of shape {values.shape}."
        )
    return jnp.broadcast_to(values.astype(like.dtype), like.shape)


def require_shape(owner: str, means: Array, targets: Array) -> None:
    """Raise ValueError unless there is a mean for each target."""
    if means.shape != targets.shape:
        raise ValueError(
            f"{owner}: the network's outputs have shape {means.shape}, but the targets {targets.shape}. Give the "
            'outputs the shape of the targets: out_features="scalar" in equinox.nn, [..., 0] in an apply= or in Flax.'
        )
