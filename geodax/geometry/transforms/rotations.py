r"""Products of Givens rotations: :math:`(R_{12} \cdots R_{1n})(R_{23} \cdots R_{2n}) \cdots (R_{p,p+1} \cdots R_{pn})`.

:math:`R_{ij}` is the counterclockwise rotation by :math:`\theta_{ij}` in the plane of coordinates :math:`i` and
:math:`j`. This module applies the product to the first :math:`p` columns of the identity and inverts this map.

Applied from the right end, rotation :math:`(i, j)` only has to wait for :math:`(i, j + 1)` and :math:`(i + 1, j)`. So
the rows :math:`j = n, n - 1, \dots` move through a pipeline of :math:`p` stages: stage :math:`i` holds row :math:`i` of
the matrix and rotates it with the row that passes. One tick is a few operations on ``p x p`` arrays. A row
:math:`j \le p` is finally stored in its own stage, by a rotation by a right angle with zeros.

For many rows the pipeline is split into groups that run in parallel, each on the identity instead of the rows that the
previous groups would have produced. The effect of a group is then one ``p x p`` matrix, and the groups are joined by a
short chain of products. The numbers of groups and ticks are about the square root of ``n`` each.

The derivative with respect to an angle is an inner product of the two rows and their cotangents after the rotation.
The backward pass recovers rows and cotangents by inverting rotations, which are orthogonal, so the ticks store nothing:
memory is ``O(n p)``.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax._types import Array, Float

_FEWEST_ROWS = 128  # with fewer, one pipeline is faster than several that must be joined


class Layout(NamedTuple):
    """Schedule of the rotations.

    Attributes:
        num_groups: Number of pipelines that run in parallel.
        num_rows: Number of rows that pass through each of them.
        gather: For (tick, stage, group) the index of the angle in the vector of angles, followed by one index for
            "no rotation" and one for "store the row".
        scatter: For each angle its index in the flattened (tick, stage, group).
    """

    num_groups: int
    num_rows: int
    gather: np.ndarray
    scatter: np.ndarray


def num_angles(n: int, p: int) -> int:
    """Number of rotations, the dimension of the manifold."""
    return n * p - p * (p + 1) // 2


@functools.cache
def pairs(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates ``i`` and ``j``, from 0, of the rotations in the order of the angles."""
    i, j = np.triu_indices(p, 1, n)
    return i, j


@functools.cache
def layout(n: int, p: int) -> Layout:
    """Distribute the rotations over ticks, stages and groups."""
    num_rows = n if n < _FEWEST_ROWS else max(2 * p, math.isqrt(n))
    num_groups = -(-n // num_rows)
    size = num_angles(n, p)
    tick, stage, group = np.ogrid[: num_rows + p - 1, :p, :num_groups]
    passed = tick - (p - 1 - stage)
    row = n - 1 - (group * num_rows + passed)
    is_there = (passed >= 0) & (passed < num_rows)
    place = stage * (2 * n - stage - 1) // 2 + row - stage - 1
    gather = np.where(is_there & (row > stage), place, np.where(is_there & (row == stage), size + 1, size))
    scatter = np.zeros(size + 2, np.int32)
    scatter[gather.ravel()] = np.arange(gather.size)
    return Layout(num_groups, num_rows, gather.astype(np.int32), scatter[:size])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def rotate(cosines: Float[Array, " k"], sines: Float[Array, " k"], n: int, p: int) -> Float[Array, "n p"]:
    r"""Multiply the rotations, differentiable in reverse mode any number of times.

    The cosines and sines are those of the angles :math:`\theta_{12}, \dots, \theta_{1n}, \theta_{23}, \dots,
    \theta_{pn}`. Their squares must add up to 1: derivatives are taken along the circle.
    """
    return _run(cosines, sines, n, p)[0]


def rotate_in_any_mode(cosines: Float[Array, " k"], sines: Float[Array, " k"], n: int, p: int) -> Float[Array, "n p"]:
    """The same matrix, also differentiable in forward mode; reverse mode then stores all intermediate rows."""
    return _run(cosines, sines, n, p)[0]


class _Record(NamedTuple):
    """Residuals of the forward pass: coefficients (tick, stage, group), rows, and the joins of the groups."""

    cosines: Array
    sines: Array
    rows: Array
    starts: Array  # the stages' rows before each group, and after the last
    effects: Array
    own_rows: Array


def _run(cosines: Array, sines: Array, n: int, p: int) -> tuple[Array, _Record]:
    plan, dtype = layout(n, p), cosines.dtype
    identity_and_take = np.array([1, 0]), np.array([0, 1])
    cosines, sines = (
        jnp.concatenate([x, jnp.asarray(extra, dtype)])[plan.gather]
        for x, extra in zip((cosines, sines), identity_and_take, strict=True)
    )
    fresh = jnp.zeros((1, p, plan.num_groups), dtype)

    def tick(carry, coefficients):
        held, passing = carry
        c, s = (x[:, None, :] for x in coefficients)
        held, passing = c * held - s * passing, s * held + c * passing
        return (held, jnp.concatenate([passing[1:], fresh])), passing[0]

    identity = jnp.eye(p, dtype=dtype)
    start = jnp.broadcast_to(identity[:, :, None], (p, p, plan.num_groups))
    (effects, _), passed = jax.lax.scan(tick, (start, jnp.zeros_like(start)), (cosines, sines))
    own_rows = jnp.moveaxis(passed[p - 1 :], -1, 0)
    effects = jnp.moveaxis(effects, -1, 0)
    if plan.num_groups == 1:
        starts, rows = jnp.stack([identity, effects[0]]), own_rows
    else:
        last, starts = jax.lax.scan(lambda held, effect: (effect @ held, held), identity, effects)
        rows = own_rows @ starts
        starts = jnp.concatenate([starts, last[None]])
    record = _Record(cosines, sines, rows, starts, effects, own_rows)
    return rows.reshape(-1, p)[:n][::-1], record


def _forward(cosines: Array, sines: Array, n: int, p: int):
    matrix, record = _run(cosines, sines, n, p)
    return matrix, (record, cosines, sines)


def _backward(n: int, p: int, residuals, cotangent: Array):
    record, cosines, sines = residuals
    plan, dtype = layout(n, p), cotangent.dtype
    surplus = jnp.zeros((plan.num_groups * plan.num_rows - n, p), dtype)
    bars = jnp.concatenate([cotangent[::-1], surplus]).reshape(record.rows.shape)
    nothing = jnp.zeros((p, p), dtype)
    if plan.num_groups == 1:
        held_bars = nothing[None]
    else:
        sources = jnp.swapaxes(record.own_rows, 1, 2) @ bars

        def join(bar, effect_and_source):
            effect, source = effect_and_source
            return effect.T @ bar + source, bar

        _, held_bars = jax.lax.scan(join, nothing, (record.effects, sources), reverse=True)
    held = jnp.moveaxis(jnp.stack([record.starts[1:], held_bars]), 1, -1)
    passed = jnp.moveaxis(jnp.stack([record.rows, bars]), (0, 2), (1, 0))
    passed = jnp.moveaxis(passed, 2, -1)
    passed = jnp.concatenate([jnp.zeros((p - 1, *passed.shape[1:]), dtype), passed])

    def untick(carry, x):
        held, passing = carry
        c, s, row = x
        passing = jnp.concatenate([row[:, None], passing[:, :-1]], axis=1)
        slope = jnp.sum(passing[1] * held[0] - held[1] * passing[0], axis=1)
        c, s = c[None, :, None, :], s[None, :, None, :]
        return (c * held + s * passing, c * passing - s * held), slope

    _, slopes = jax.lax.scan(untick, (held, jnp.zeros_like(held)), (record.cosines, record.sines, passed), reverse=True)
    by_angle = slopes.ravel()[plan.scatter]
    return -sines * by_angle, cosines * by_angle


rotate.defvjp(_forward, _backward)


def reduce(q: Float[Array, "n p"], center: Float[Array, " m"], is_half: bool) -> Float[Array, " k"]:
    r"""Compute the angles of an orthonormal matrix, the inverse of :func:`rotate`.

    Column by column: with :math:`r_j^2 = v_i^2 + \dots + v_j^2` of the reduced column, :math:`\theta_{ij} =
    \mathrm{atan2}(v_j, r_{j-1})`, and inverting the whole block of rotations takes one cumulative sum. The last angle
    pairs of a square matrix are valid for either determinant.

    The angles :math:`\theta_{i,i+1}` are between -pi and pi with middles ``center``, the others between -pi/2 and pi/2.
    If their range is half a turn, columns are reversed where this brings the angle into the range, so the angles are
    those of a mirror image of ``q``.
    """
    n, p = q.shape
    row = jnp.arange(n)
    num_columns = center.shape[0]

    def column(rest, i_and_center):
        i, middle = i_and_center
        v = jnp.where(row >= i, rest[:, i], 0)
        longitude = jnp.arctan2(v[jnp.minimum(i + 1, n - 1)], v[i])
        if is_half:
            is_turned = jnp.cos(longitude - middle) < 0
            v = jnp.where(is_turned, -v, v)
            longitude = jnp.where(is_turned, longitude - jnp.copysign(math.pi, longitude), longitude)
        lengths = jnp.sqrt(jnp.cumsum(v * v))
        lengths = jnp.where(row == i, v[i], lengths)
        before = jnp.concatenate([jnp.zeros((1,), q.dtype), lengths[:-1]])
        angles = jnp.where(row == i + 1, longitude, jnp.arctan2(v, before))
        is_empty = before == 0
        sums = jnp.cumsum(v[:, None] * rest, axis=0)
        sums = jnp.concatenate([jnp.zeros((1, p), q.dtype), sums[:-1]])
        held = sums / jnp.where(is_empty, 1, before)[:, None]
        held = jnp.where(is_empty[:, None], rest[i][None, :], held)
        turned = jnp.cos(angles)[:, None] * rest - jnp.sin(angles)[:, None] * held
        return jnp.where((row > i)[:, None], turned, 0), angles

    _, angles = jax.lax.scan(column, q, (jnp.arange(num_columns), center))
    i, j = pairs(n, p)
    return angles[i, j]
