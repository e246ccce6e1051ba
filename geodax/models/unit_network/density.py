r"""A network of one hidden ReLU layer whose units have unit weight vectors: log density and mean function.

Pourzanjani et al. (2021), Bayesian Analysis 16, 639, section 6.1. For rows :math:`x \in \mathbb{R}^D`, standardised,

.. math::
    y = a + \sum_{h=1}^{H} v_h \max\{0,\ w_h^T x + b_h\} + \varepsilon, \qquad \varepsilon \sim N(0, \sigma^2).

For any :math:`\alpha > 0` the triples :math:`(w_h, b_h, v_h)` and :math:`(\alpha w_h, \alpha b_h, v_h / \alpha)` give
the same function, so with free weights the posterior has a ridge for each unit. Two unit-vector parametrisations remove
it:

* ``bias="joint"``: :math:`(w_h, b_h / \beta)` is a unit vector of :math:`\mathbb{R}^{D+1}`, with :math:`\beta =
  s\sqrt{D}`. The sphere contains every direction once, so no function is excluded. Under the uniform distribution the
  distance of the hinge (the plane where the unit becomes active) from the centre of the data has Student's t
  distribution with D degrees of freedom and scale s.
* ``bias="separate"``: :math:`w_h` is a unit vector of :math:`\mathbb{R}^D` and :math:`b_h \sim N(0, s^2)`, as in the
  paper. With one input a unit vector is only a sign and cannot be sampled: D must be at least 2.

With ``weights="free"`` all entries of :math:`(w_h, b_h / \beta)`, or of :math:`w_h`, are :math:`N(0, \tau^2)`. The
other priors are :math:`v_h \sim N(0, \omega^2 / H)`, :math:`a \sim N(0, \sigma_a^2)`, and a half-normal distribution
with scale :math:`\sigma_0` for :math:`\sigma`. The density is invariant under permutations of the units; see
:mod:`geodax.models.unit_network.labels`.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax._types import Array, LogDensity, Position, PRNGKey, Scalar
from geodax.geometry.manifolds import AbstractManifold, Euclidean
from geodax.geometry.product import Product
from geodax.geometry.sphere import Sphere

Weights = Literal["unit", "free"]
Bias = Literal["joint", "separate"]
WEIGHTS: tuple[Weights, ...] = ("unit", "free")
BIASES: tuple[Bias, ...] = ("joint", "separate")


class UnitNetworkPrior(NamedTuple):
    """Prior of the model, on standardised data.

    Attributes:
        bias_scale: s, the scale of the hinges' distances from the centre (joint), or of the biases (separate).
        output_scale: omega, the standard deviation of an output weight times ``sqrt(H)``.
        intercept_scale: Standard deviation of the intercept.
        noise_scale: Scale of the half-normal prior of the noise.
        weight_scale: tau, the standard deviation of free weights.
    """

    bias_scale: float = 1.0
    output_scale: float = 2.0
    intercept_scale: float = 1.0
    noise_scale: float = 1.0
    weight_scale: float = 1.0


class UnitNetworkForm(NamedTuple):
    """The parametrisation: ``"unit"`` or ``"free"`` weights, a ``"joint"`` or ``"separate"`` bias."""

    weights: Weights = "unit"
    bias: Bias = "joint"


class UnitNetworkParameters(NamedTuple):
    """Parameters of the function in either parametrisation, or draws of them with leading axes.

    Attributes:
        weights: Weights of each hidden unit, H x D.
        bias: Bias of each unit.
        output: Output weight of each unit.
    """

    weights: Float[Array | np.ndarray, "*draws H D"]
    bias: Float[Array | np.ndarray, "*draws H"]
    output: Float[Array | np.ndarray, "*draws H"]
    intercept: Float[Array | np.ndarray, "*draws"]
    noise: Float[Array | np.ndarray, "*draws"]


def geometry(form: UnitNetworkForm) -> AbstractManifold:
    """Return the manifold of positions: one sphere per unit, or Euclidean space."""
    return Product({"units": Sphere()}) if form.weights == "unit" else Euclidean()


def bias_factor(form: UnitNetworkForm, prior: UnitNetworkPrior, num_inputs: int) -> float:
    """Return beta, which converts the last coordinate of a joint unit to its bias."""
    return prior.bias_scale * num_inputs**0.5 if form.bias == "joint" else prior.bias_scale


def parameters(position: Position, form: UnitNetworkForm, prior: UnitNetworkPrior) -> UnitNetworkParameters:
    """Compute the parameters of the function at a position.

    A position has ``units`` (H x (D + 1) if joint, else H x D), ``bias`` (H, unless joint), ``output`` (H),
    ``intercept`` and ``log_noise``.
    """
    units = position["units"]
    if form.bias == "joint":
        weights, bias = units[:, :-1], units[:, -1] * bias_factor(form, prior, units.shape[1] - 1)
    else:
        weights, bias = units, position["bias"]
    noise = jnp.exp(position["log_noise"])
    return UnitNetworkParameters(weights, bias, position["output"], position["intercept"], noise)


def mean_function(theta: UnitNetworkParameters, inputs: Float[Array, "rows D"]) -> Float[Array, " rows"]:
    """Compute the noise-free output of the network, for parameters without leading axes."""
    hidden = jax.nn.relu(inputs @ jnp.asarray(theta.weights).T + jnp.asarray(theta.bias)[None, :])
    return hidden @ jnp.asarray(theta.output) + jnp.asarray(theta.intercept)


def log_density(
    inputs: Float[np.ndarray, "rows *draws D"],
    targets: Float[Array | np.ndarray, " rows"],
    form: UnitNetworkForm,
    prior: UnitNetworkPrior,
) -> LogDensity:
    """Return the log posterior density of standardised data, with respect to the uniform measure on the spheres.

    The likelihood is averaged over a second axis of the inputs, draws of missing ones.
    """
    num_rows = len(targets)

    def logdensity_fn(position: Position) -> Scalar:
        dtype = position["units"].dtype
        theta = parameters(position, form, prior)
        x, y = jnp.asarray(inputs, dtype), jnp.asarray(targets, dtype)
        if x.ndim == 2:
            residual = y - mean_function(theta, x)
            fit = -0.5 * jnp.sum(residual**2) / theta.noise**2
        else:
            residual = y[:, None] - mean_function(theta, x.reshape(-1, x.shape[2])).reshape(x.shape[:2])
            fit = jnp.sum(jax.nn.logsumexp(-0.5 * (residual / theta.noise) ** 2, axis=1) - math.log(x.shape[1]))
        log_likelihood = -num_rows * position["log_noise"] + fit
        return log_likelihood + _log_prior(position, theta, form, prior)

    return logdensity_fn


def draw_targets(key: PRNGKey, theta: UnitNetworkParameters, inputs: Float[Array, "rows D"]) -> Float[Array, " rows"]:
    """Draw outputs, including noise."""
    mean = mean_function(theta, inputs)
    return mean + jnp.asarray(theta.noise) * jax.random.normal(key, mean.shape, mean.dtype)


def _log_prior(
    position: Position, theta: UnitNetworkParameters, form: UnitNetworkForm, prior: UnitNetworkPrior
) -> Scalar:
    num_hidden = len(theta.output)
    # the last term is the log volume element of the log transform
    total = (
        -0.5 * num_hidden * jnp.sum((theta.output / prior.output_scale) ** 2)
        - 0.5 * (theta.intercept / prior.intercept_scale) ** 2
        - 0.5 * (theta.noise / prior.noise_scale) ** 2
        + position["log_noise"]
    )
    if form.weights == "free":
        total -= 0.5 * jnp.sum((position["units"] / prior.weight_scale) ** 2)
    if form.bias == "separate":
        total -= 0.5 * jnp.sum((position["bias"] / prior.bias_scale) ** 2)
    return total
