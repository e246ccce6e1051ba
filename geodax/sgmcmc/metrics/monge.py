r"""The Monge metric: the identity plus a rank-one term along the average gradient.

After Yu, Hartmann, Williams and Klami (2023). With the moving average
:math:`m \leftarrow \lambda m + (1 - \lambda)\hat g`, :math:`a = \alpha^2` and
:math:`s^2 = 1 + a |m|^2`,

.. math::
    G = I + a\, m m^T, \qquad
    G^{-1} = I - \frac{a}{s^2}\, m m^T, \qquad
    G^{-1/2} = I - \frac{a}{s (1 + s)}\, m m^T,

The last form is accurate where m vanishes. If m follows the gradient at the position without delay, with
:math:`\hat H` the Hessian of the mean potential,

.. math::
    \Gamma = -\frac{a}{s^2} \left( \hat H m + \mathrm{tr}(\hat H)\, m \right) + \frac{2 a^2}{s^4} (m^T \hat H m)\, m.

One product with a vector v of random signs estimates all terms without bias: :math:`v^T \hat H v` the trace,
:math:`(v^T m) \hat H v` the product with m.

An average over a window of :math:`w = h / (1 - \lambda)` follows the position only in directions that relax more slowly
than w. Integration by parts shows that :math:`\hat H` must be replaced by the regression :math:`B` of m on the
position. If the chain relaxes as a linear system, the gradient j steps earlier has the regression
:math:`\hat H (I - h G^{-1} \hat H)^j`, and with ``lag`` their average

.. math::
    B = (1 - \lambda) \sum_{j \ge 1} \lambda^{j - 1} \hat H (I - h G^{-1} \hat H)^j
      \approx \frac{\hat H}{1 + w \kappa}, \qquad
    \kappa = \frac{\mathrm{tr}(\hat H G^{-1} \hat H)}{|\mathrm{tr}\, \hat H|},

with one curvature for all directions, estimated from the same probe. This is ``gamma="averaged"``. On a normal target
of 400 dimensions with :math:`h \kappa = 0.1` and :math:`\lambda = 0.9` the :math:`\Gamma` above (``"full"``) removes
two thirds of the variance from directions a hundred times as slow.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.sgmcmc.metrics.base import AbstractMetric, Curvature, moving_average, share_of_mean
from geodax.sgmcmc.metrics.sizes import LEAST
from geodax.sgmcmc.precision import scalar_dtype, scaled

_GAMMAS = ("none", "a2", "full", "averaged")


class MongeState(NamedTuple):
    """The average gradient; for a normalised metric also the slow average of its squared length and the count."""

    mean: PyTree
    squared_length: Scalar
    count: Array


class Monge(AbstractMetric):
    """The identity plus a rank-one term.

    Its largest eigenvalue is ``1 + alpha2 * |m|^2``. If ``alpha2 * |m|^2`` is far above 1, the metric changes more in
    one step than the divergence accounts for, and :func:`geodax.sgrld` samples too wide a distribution. So its average
    is held at 1 by default. :func:`geodax.sghmc` accepts the metric only frozen (:class:`geodax.metrics.Frozen`).

    Args:
        alpha2: Fixed weight of the rank-one term, in units of the inverse squared gradient of the mean potential,
            instead of the normalisation; the paper uses fixed weights such as 1. A plain log density counts as one
            example, so its gradient is not averaged and 1 is usually too large.
        decay: Decay of the average gradient.
        gamma: ``"averaged"`` (default) adds the fraction of the divergence that corresponds to how far the average
            follows the position. ``"full"`` adds all of it, which is correct if the position moves little within the
            average's window, and too much in stiff directions, the more of them there are. ``"none"`` leaves it out,
            as the paper's sampler does, and ``"a2"`` adds ``1 - decay`` times it, as the paper's appendix derives: for
            both, the stationary density approaches ``G(x) exp(-U(x))`` as the step size decreases.
        lag: Whether a step uses only the average of the gradients before it (default). Otherwise the metric contains
            the noise of the gradient that it multiplies, which biases the sampler.
        normalize: Target of the average of ``alpha2 * |m|^2``; 1 if ``alpha2`` is not given. The metric then does not
            depend on the scale of the potential and needs no tuning. The average runs over so many gradients
            (``normalize_decay``) that ``alpha2`` is constant as far as the divergence is concerned.
        normalize_decay: Decay of the average behind ``normalize``. A short average follows the position, which is a
            bias: on a standard normal with steps of 0.01 the variance is 0.89, 0.95 and 0.98 for decays of 0.999,
            0.9997 and 0.9999.
        exact: Whether to compute the divergence from one Hessian product per parameter instead of one probe; for small
            problems.
    """

    is_steady = False  # it follows the gradient within some ten steps

    alpha2: float | None = eqx.field(static=True)
    decay: float = eqx.field(static=True)
    gamma: str = eqx.field(static=True)
    lag: bool = eqx.field(static=True)
    normalize: float | None = eqx.field(static=True)
    normalize_decay: float = eqx.field(static=True)
    exact: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        alpha2: float | None = None,
        decay: float = 0.9,
        gamma: str = "averaged",
        lag: bool = True,
        normalize: float | None = None,
        normalize_decay: float = 0.9999,
        exact: bool = False,
    ):
        if alpha2 is not None and normalize is not None:
            raise ValueError(
                f"Monge: normalize finds the weight that alpha2 fixes; give one of the two, found alpha2={alpha2!r} "
                f"and normalize={normalize!r}."
            )
        if alpha2 is None and normalize is None:
            normalize = 1.0
        self.alpha2 = None if alpha2 is None else _checks.number("Monge", "alpha2", alpha2, least=0.0)
        self.decay = _checks.number("Monge", "decay", decay, least=0.0, below=1.0)
        self.gamma, self.lag, self.exact = _checks.chosen("Monge", "gamma", gamma, _GAMMAS), bool(lag), bool(exact)
        self.normalize = None if normalize is None else _checks.number("Monge", "normalize", normalize, above=0.0)
        self.normalize_decay = _checks.number("Monge", "normalize_decay", normalize_decay, least=0.0, below=1.0)

    @property
    def has_exact_drift(self) -> bool:
        return self.gamma in ("averaged", "full")

    @property
    def needs_curvature(self) -> bool:
        return self.gamma != "none"

    @property
    def is_lagged(self) -> bool:
        return self.lag

    def init(self, position: Position) -> MongeState:
        dtype = scalar_dtype(position)
        return MongeState(_tree.zeros_like(position), jnp.zeros((), dtype), jnp.zeros((), jnp.int32))

    def update(self, state: MongeState, position: Position, grad: PyTree) -> MongeState:
        mean = moving_average(self.decay, state.mean, grad)
        if self.normalize is None:
            return state._replace(mean=mean)
        new = _dot(mean, mean)
        count = jnp.where(self._is_known(state), state.count, 0) + 1
        share = share_of_mean(self.normalize_decay, count).astype(new.dtype)
        return MongeState(mean, state.squared_length + share * (new - state.squared_length), count)

    def apply_inverse(self, state: MongeState, u: PyTree) -> PyTree:
        a = self._weight(state)
        return _along(state.mean, u, -a / (1.0 + a * _dot(state.mean, state.mean)) * _dot(state.mean, u))

    def apply_inverse_sqrt(self, state: MongeState, z: PyTree) -> PyTree:
        a = self._weight(state)
        s = jnp.sqrt(1.0 + a * _dot(state.mean, state.mean))
        return _along(state.mean, z, -a / (s * (1.0 + s)) * _dot(state.mean, z))

    def drift(self, state: MongeState, position: Position, curvature: Curvature | None = None) -> PyTree:
        if self.gamma == "none":
            return _tree.zeros_like(position)
        assert curvature is not None
        m, a = state.mean, self._weight(state)
        s2 = 1.0 + a * _dot(m, m)
        if self.exact:
            product, of_product = curvature.product(m), 1.0
            trace, squared = _exact_traces(curvature, m, a / s2)
            curved = _dot(m, product)
        else:
            # the product with m is of_product * product
            signs, product = curvature.probe()
            of_product, along = _dot(signs, m), _dot(m, product)
            trace, squared = _dot(signs, product), _dot(product, product) - a / s2 * along**2
            curved = of_product * along
        share = self._share(curvature.step_size, trace, squared)
        of_mean = share * (2.0 * (a / s2) ** 2 * curved - a / s2 * trace)
        of_product = -share * a / s2 * of_product
        return _tree.add(scaled(of_mean, m), scaled(of_product, product))

    def _share(self, step_size: Scalar | float, trace: Scalar, squared: Scalar) -> Scalar:
        """Fraction of the divergence that is added, from the traces of ``H`` and ``H G^{-1} H``."""
        if self.gamma != "averaged":
            return jnp.asarray(1.0 if self.gamma == "full" else 1.0 - self.decay, trace.dtype)
        window = step_size * (self.decay / (1.0 - self.decay) + self.lag)
        size = jnp.abs(trace)
        whole = size + (window * squared).astype(size.dtype)
        is_flat = whole == 0
        return jnp.where(is_flat, 1.0, size / jnp.where(is_flat, 1.0, whole))

    def _weight(self, state: MongeState) -> Scalar:
        if self.normalize is None:
            return jnp.asarray(self.alpha2, state.squared_length.dtype)
        is_known = self._is_known(state)
        return jnp.where(is_known, self.normalize / jnp.where(is_known, state.squared_length, 1.0), 0.0)

    @staticmethod
    def _is_known(state: MongeState) -> Array:
        """Whether a gradient of relevant size has been seen; until then the count restarts at each gradient."""
        return state.squared_length > LEAST**2 * sum(leaf.size for leaf in jax.tree.leaves(state.mean))


def _exact_traces(curvature: Curvature, m: PyTree, weight: Scalar) -> tuple[Scalar, Scalar]:
    """Compute the traces of ``H`` and ``H (I - weight m m^T) H``."""
    vector, unravel = ravel_pytree(m)

    def column(e: Array) -> tuple[Scalar, Scalar]:
        product = ravel_pytree(curvature.product(unravel(e)))[0]
        return _dot(e, product), _dot(product, product) - weight * _dot(vector, product) ** 2

    traces, squares = jax.vmap(column)(jnp.eye(vector.size, dtype=vector.dtype))
    return jnp.sum(traces), jnp.sum(squares)


def _along(m: PyTree, x: PyTree, weight: Scalar) -> PyTree:
    return _tree.add(x, scaled(weight, m))


def _dot(a: PyTree, b: PyTree) -> Scalar:
    """Inner product over all leaves; ``vdot`` is several times faster than a sum of products on a CPU."""
    dtype = scalar_dtype(a)
    pairs = zip(jax.tree.leaves(_tree.widened(a)), jax.tree.leaves(_tree.widened(b)), strict=True)
    return sum((jnp.vdot(x, y).astype(dtype) for x, y in pairs), start=jnp.zeros((), dtype))
