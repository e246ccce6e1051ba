r"""Langevin dynamics in any metric as an optax transformation, for existing training loops.

For gradients of the mean potential :math:`\hat g = \nabla U / n` and a learning rate :math:`\ell = h n` the update is

.. math::
    -\ell\, G^{-1} \hat g + \sqrt{2 \tau \ell / n}\; G^{-1/2} \xi,

which is one step of :func:`geodax.sgrld` with step size :math:`h = \ell / n`. The divergence of the metric is left out,
since an optax transformation has no access to the Hessian.
"""

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer

from geodax import _checks, _tree
from geodax._random import standard_normal
from geodax._types import Array, PRNGKey, PyTree
from geodax.sgmcmc.metrics import AbstractMetric
from geodax.sgmcmc.metrics.base import require_real
from geodax.sgmcmc.precision import scalar_dtype, scaled
from geodax.sgmcmc.schedules import as_schedule
from geodax.vi.positions import require_free


class LangevinState(NamedTuple):
    """State of the transformation: that of the metric, the PRNG key of the run, and the number of updates."""

    metric: PyTree
    key: PRNGKey
    count: Array


def langevin(
    metric: AbstractMetric,
    learning_rate: Any,
    *,
    num_data: int | Array,
    key: PRNGKey,
    temperature: float | Array = 1.0,
    metric_warmup: int | Array = 0,
) -> optax.GradientTransformationExtraArgs:
    """Langevin dynamics in a metric, as an optimiser.

    Nothing stops at non-finite values, as :func:`geodax.sample` does: a learning rate that is too large ends in NaN.
    Non-finite parameters stay non-finite, so check ``jnp.isfinite(optax.tree.norm(params))`` every few hundred
    updates, and start again with a smaller rate. ``optax.apply_if_finite`` is no substitute: it skips non-finite
    gradients, but the update of a finite gradient can overflow.

    Args:
        metric: One of :mod:`geodax.metrics` that needs no Hessian: ``Monge(gamma="none")``, not ``Monge()``.
        learning_rate: Learning rate on the mean potential, or a schedule of the number of the update. This and the
            numbers below may be traced arrays, as under ``optax.inject_hyperparams``; those are not checked.
        num_data: Number of examples over which the potential sums; the gradients passed to ``update`` are those of the
            potential divided by it.
        key: PRNG key of the run. Transformations with the same key have the same noise for the same parameters, and so
            have all states of one transformation: several chains need several keys, see below. The parts of
            ``optax.multi_transform`` and ``optax.masked`` have independent noise, also with one key.
        temperature: 0 preconditions without noise.
        metric_warmup: Number of initial updates that are zero, while the metric learns; about 100 for
            :class:`~geodax.metrics.Shampoo`.

    Returns:
        The transformation; ``update`` needs the parameters.

    Example:
        Several chains, each with its own key, which is kept in the state::

            def start(key, params):
                return langevin(metric, 0.1, num_data=n, key=key).init(params)


            states = jax.vmap(start)(jax.random.split(key, num_chains), params)
            update = langevin(metric, 0.1, num_data=n, key=key).update
            updates, states = jax.vmap(update)(gradients, states, params)

    Raises:
        TypeError: If ``metric`` is not a metric, or ``key`` is not a PRNG key.
        ValueError: If an argument is out of range, or the metric needs a Hessian.
    """
    if not isinstance(metric, AbstractMetric):
        raise TypeError(f"langevin: metric must be one of gx.metrics, found a {type(metric).__name__}.")
    if metric.needs_curvature:
        raise ValueError(
            f"langevin: {type(metric).__name__} adds its divergence, which needs Hessian products that optax does not "
            'provide. Use gamma="none", whose bias the page on stochastic gradients describes, or gx.sgrld.'
        )
    is_traced = _is_traced_number(learning_rate)
    rates = (lambda count: learning_rate) if is_traced else as_schedule("langevin", "learning_rate", learning_rate)
    key = _checks.random_key("langevin", key)
    is_given = not _is_traced_number(metric_warmup)
    num_waiting = _checks.whole("langevin", "metric_warmup", metric_warmup, least=0) if is_given else metric_warmup
    tau = _number("temperature", temperature, least=0.0)
    count_data = _number("num_data", num_data, above=0.0)

    def init(params: PyTree) -> LangevinState:
        require_real("langevin", params)
        require_free("langevin", params)
        _warn_if_half(params)
        return LangevinState(metric.init(params), _of_part(key, params), jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: Any, params: PyTree | None = None, **extra: Any) -> tuple[PyTree, LangevinState]:
        del extra
        if params is None:
            raise ValueError("langevin: update needs the parameters: optimiser.update(gradients, state, params).")
        learnt = metric.update(state.metric, params, updates)
        used = state.metric if metric.is_lagged else learnt
        dtype = scalar_dtype(params)
        rate = rates(state.count).astype(dtype)
        move = scaled(-rate, metric.apply_inverse_sqrt(used, updates))
        heat = count = None
        if isinstance(tau, Tracer) or tau > 0:
            heat, count = (x.astype(dtype) if isinstance(x, Tracer) else x for x in (tau, count_data))
            spread = jnp.sqrt(2.0 * heat * rate / count)
            noise = standard_normal(jax.random.fold_in(state.key, state.count), params)
            move = _tree.add(move, scaled(spread, noise))
        moved = metric.apply_inverse_sqrt(used, move)
        if heat is not None:
            moved = _tree.add(moved, scaled(heat * rate / count, metric.drift(used, params)))
        if isinstance(num_waiting, Tracer) or num_waiting > 0:
            is_moving = state.count >= jnp.asarray(num_waiting).astype(jnp.int32)
            moved = jax.tree.map(lambda m: jnp.where(is_moving, m, jnp.zeros_like(m)), moved)
        return moved, LangevinState(learnt, state.key, state.count + 1)

    return optax.GradientTransformationExtraArgs(init, update)


def _of_part(key: PRNGKey, params: PyTree) -> PRNGKey:
    """Return the key of the parameters that ``optax.masked`` leaves, which depends on their paths; else the key."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    if not any(isinstance(node, optax.MaskedNode) for node in nodes):
        return key
    paths = "\n".join(name for name, _ in _tree.named_leaves(params))
    return jax.random.fold_in(key, zlib.crc32(paths.encode()))


def _warn_if_half(params: PyTree) -> None:
    for name, leaf in _tree.named_leaves(params):
        if _tree.is_half(leaf):
            _checks.warn(
                f"langevin: {name} is {leaf.dtype}, which loses updates below its rounding unit, so that small ones "
                "never move it. Keep the parameters in float32, and let the loss convert them: "
                f"jax.tree.map(lambda x: x.astype(jnp.{leaf.dtype}), params)."
            )
            return


def _number(name: str, value: Any, **bounds: float) -> Any:
    return value if _is_traced_number(value) else _checks.number("langevin", name, value, **bounds)


def _is_traced_number(value: Any) -> bool:
    return isinstance(value, Tracer) and value.shape == () and jnp.isrealobj(value)
