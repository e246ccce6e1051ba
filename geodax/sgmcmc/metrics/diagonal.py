r"""Diagonal metrics: one number per entry, or one per leaf.

RMSProp (Li, Chen, Carlson and Carin 2016): :math:`V \leftarrow \lambda V + (1 - \lambda) \hat g^2`,
:math:`G = \mathrm{diag}(\sqrt V + \epsilon)`. If V started at zero, it would be small compared with the squared
gradients for :math:`1 / (1 - \lambda)` gradients, and steps by its inverse would move the chain far from its initial
position. So V is corrected for this bias (Kingma and Ba 2015): it is the average divided by :math:`1 - \lambda^t`, in
which the t-th gradient has the weight :math:`(1 - \lambda) / (1 - \lambda^t)`. Before the first gradient the inverse of
G is zero and the chain does not move. See :mod:`geodax.sgmcmc.metrics.sizes` for leaves whose gradients vanish. If V
follows the position without delay, its divergence is
:math:`\Gamma_i = -\hat g_i \hat H_{ii} / (\sqrt{V_i} (\sqrt{V_i} + \epsilon)^2)`. If the window of the average is not
short compared with the relaxation time, V follows less. For a single entry that relaxes linearly, the square j steps
earlier has the regression :math:`(1 - h \hat H_{ii} / G_i)^{2j}` of the last square on the position, and their average
the fraction :math:`1 / (1 + 2 w |\hat H_{ii}| / G_i)` with the window :math:`w = h \lambda / (1 - \lambda)`, or h more
with ``lag`` (``gamma="averaged"``; see :mod:`geodax.sgmcmc.metrics.monge`).

Wenzel (Wenzel et al. 2020, in the form of Fortuin et al. 2021): for each leaf l,
:math:`\sigma_l = \sqrt{\epsilon + \mathrm{mean}(V_l)}` with V starting at one,
:math:`G = \sigma_l / \min_k \sigma_k` on the whole leaf.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.sgmcmc.metrics.base import AbstractMetric, Curvature, before_first, moving_average, share_of_mean
from geodax.sgmcmc.metrics.sizes import Sizes, of_leaves
from geodax.sgmcmc.periodic import when
from geodax.sgmcmc.precision import scalar_dtype

_GAMMAS = ("none", "full", "averaged")


class RMSPropState(NamedTuple):
    """Averages of the squared gradients by entry and by leaf, and the number of gradients seen."""

    squares: PyTree
    sizes: Sizes
    count: Array


class RMSProp(AbstractMetric):
    """Square roots of a moving average of squared gradients, for each entry.

    The inverse is zero before the first gradient, so the chain does not move.

    Args:
        decay: Decay of the average.
        epsilon: Added to the roots; in units of the gradient of the mean potential.
        gamma: ``"none"`` leaves the divergence out, as in the paper; with a short window the sampler then has the
            stationary density ``G(x) exp(-U(x))``. ``"averaged"`` adds the fraction of it that corresponds to how far
            the average follows the position, from one Hessian product per step. ``"full"`` adds all of it, which is too
            much if the position moves within the average's window.
        lag: Whether a step uses only the average of the gradients before it. The first averages contain few gradients,
            and a later gradient can be large compared with them: with a given ``step_size``, also pass
            ``metric_warmup=10``.
    """

    decay: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    gamma: str = eqx.field(static=True)
    lag: bool = eqx.field(static=True)

    def __init__(self, *, decay: float = 0.99, epsilon: float = 1e-5, gamma: str = "none", lag: bool = False):
        self.decay = _checks.number("RMSProp", "decay", decay, least=0.0, below=1.0)
        self.epsilon = _checks.number("RMSProp", "epsilon", epsilon, least=0.0)
        self.gamma, self.lag = _checks.chosen("RMSProp", "gamma", gamma, _GAMMAS), bool(lag)

    @property
    def has_exact_drift(self) -> bool:
        return self.gamma != "none"

    @property
    def needs_curvature(self) -> bool:
        return self.gamma != "none"

    @property
    def is_lagged(self) -> bool:
        return self.lag

    def init(self, position: Position) -> RMSPropState:
        return RMSPropState(
            _tree.zeros_like(_tree.widened(position)),
            Sizes.none(position, scalar_dtype(position)),
            jnp.zeros((), jnp.int32),
        )

    def update(self, state: RMSPropState, position: Position, grad: PyTree) -> RMSPropState:
        sizes, shares = state.sizes.counted(self.decay)

        def leaf(v: Array, g: Array, share: Scalar) -> Array:
            g = g.astype(v.dtype)
            return v + share * (g * g - v)

        squares = jax.tree.map(leaf, state.squares, grad, of_leaves(shares, state.squares))
        # a pass over all entries, so not at every gradient once the averages change slowly
        window = math.ceil(1.0 / (1.0 - self.decay))
        is_due = (state.count % max(1, window // 6) == 0) | jnp.any(sizes.counts <= window)
        return RMSPropState(squares, when(is_due, Sizes.measured, sizes, squares), state.count + 1)

    def apply_inverse(self, state: RMSPropState, u: PyTree) -> PyTree:
        diagonals = self._diagonals(state)
        return jax.tree.map(lambda d, x: (x.astype(d.dtype) / d).astype(x.dtype), diagonals, u)

    def apply_inverse_sqrt(self, state: RMSPropState, z: PyTree) -> PyTree:
        diagonals = self._diagonals(state)
        return jax.tree.map(lambda d, x: (x.astype(d.dtype) * jax.lax.rsqrt(d)).astype(x.dtype), diagonals, z)

    def drift(self, state: RMSPropState, position: Position, curvature: Curvature | None = None) -> PyTree:
        if self.gamma == "none":
            return _tree.zeros_like(position)
        assert curvature is not None
        signs, products = curvature.probe()
        # a lagged average may be far smaller than it is after this gradient
        shares = of_leaves(share_of_mean(self.decay, state.sizes.counts + 1), state.squares)
        window = jnp.asarray(curvature.step_size * (self.decay / (1.0 - self.decay) + self.lag))

        def leaf(v: Array, least: Scalar, new: Scalar, diagonal: Array, gradient: Array, sign: Array, product: Array):
            g = gradient.astype(v.dtype)
            root = jnp.maximum(jnp.sqrt(v), jnp.sqrt(new) * jnp.abs(g))
            # at its lower bound the metric does not follow the gradient
            follows = (root > 0) & (jnp.sqrt(v) >= least)
            share = jnp.where(follows, g / jnp.where(follows, root, jnp.ones_like(root)), jnp.zeros_like(g))
            curvature_here = (sign * product).astype(v.dtype)
            if self.gamma == "averaged":
                share = share / (1.0 + 2.0 * window.astype(g.dtype) * jnp.abs(curvature_here) / diagonal)
            return (-share * curvature_here / diagonal**2).astype(gradient.dtype)

        given = self._least(state), shares, self._diagonals(state), curvature.gradient, signs, products
        return jax.tree.map(leaf, state.squares, *given)

    def _least(self, state: RMSPropState) -> PyTree:
        return of_leaves(state.sizes.least(self.decay), state.squares)

    def _diagonals(self, state: RMSPropState) -> PyTree:
        added = before_first(state.count, self.epsilon)

        def leaf(v: Array, least: Scalar) -> Array:
            root = jnp.maximum(jnp.sqrt(v), least) + added.astype(v.dtype)
            return root if self.epsilon else jnp.where(root > 0, root, jnp.ones_like(root))

        return jax.tree.map(leaf, state.squares, self._least(state))


class WenzelState(NamedTuple):
    """Averages of the squared gradients of each leaf, the current scales, and the number of gradients seen."""

    means: tuple[Array, ...]
    scales: tuple[Array, ...]
    count: Array


class Wenzel(AbstractMetric):
    """One scale per leaf; the smallest is 1.

    Args:
        decay: Decay of the average.
        epsilon: Added to the averages; in units of the squared gradient of the mean potential.
        update_every: Number of gradients between updates of the scales; an epoch in the original.
    """

    decay: float = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    update_every: int = eqx.field(static=True)

    def __init__(self, *, decay: float = 0.99, epsilon: float = 1e-7, update_every: int = 1):
        self.decay = _checks.number("Wenzel", "decay", decay, least=0.0, below=1.0)
        self.epsilon = _checks.number("Wenzel", "epsilon", epsilon, above=0.0)
        self.update_every = _checks.whole("Wenzel", "update_every", update_every)

    def init(self, position: Position) -> WenzelState:
        ones = tuple(jnp.ones((), leaf.dtype) for leaf in jax.tree.leaves(_tree.widened(position)))
        return WenzelState(ones, ones, jnp.zeros((), jnp.int32))

    def update(self, state: WenzelState, position: Position, grad: PyTree) -> WenzelState:
        sizes = [g.size for g in jax.tree.leaves(grad)]
        squares = tuple(jnp.vdot(g, g) / max(g.size, 1) for g in jax.tree.leaves(_tree.widened(grad)))
        state = state._replace(means=moving_average(self.decay, state.means, squares), count=state.count + 1)
        return when(state.count % self.update_every == 0, lambda state: self._rescaled(state, sizes), state)

    def conclude(self, state: WenzelState, position: Position) -> WenzelState:
        return self._rescaled(state, [leaf.size for leaf in jax.tree.leaves(position)])

    def apply_inverse(self, state: WenzelState, u: PyTree) -> PyTree:
        return self._scaled(lambda scale, x: x / scale.astype(x.dtype), state, u)

    def apply_inverse_sqrt(self, state: WenzelState, z: PyTree) -> PyTree:
        return self._scaled(lambda scale, x: x / jnp.sqrt(scale).astype(x.dtype), state, z)

    def drift(self, state: WenzelState, position: Position, curvature: Curvature | None = None) -> PyTree:
        return _tree.zeros_like(position)

    def _rescaled(self, state: WenzelState, sizes: list[int]) -> WenzelState:
        roots = [jnp.sqrt(self.epsilon + mean) for mean in state.means]
        # an empty leaf has no gradient, so it must not count as a small one
        sized = [root for root, size in zip(roots, sizes, strict=True) if size]
        if not sized:
            return state
        dtype = jnp.result_type(*sized)
        least = jnp.min(jnp.stack([root.astype(dtype) for root in sized]))
        return state._replace(scales=tuple(root / least.astype(root.dtype) for root in roots))

    @staticmethod
    def _scaled(function: Any, state: WenzelState, tree: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(tree)
        return structure.unflatten([function(s, x) for s, x in zip(state.scales, leaves, strict=True)])
