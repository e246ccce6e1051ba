r"""Sampling of several orthonormal columns: envelopes, and the conditional distributions of Gibbs sampling."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.distributions.directions import (
    draw_fisher_bingham,
    excess_of_envelope,
    off,
    propose_von_mises_fisher,
)
from geodax.geometry.distributions.rejection import MAX_PROPOSALS, Proposal, first_accepted
from geodax.geometry.linalg import newton_schulz


def propose_langevin(f: Float[Array, "n q"], basis: Float[Array, "n k"], freedom: int) -> Proposal:
    """Build proposals for the density ``exp(tr(f^T x))`` of orthonormal matrices orthogonal to ``basis``.

    In coordinates in which the columns of ``f`` are orthogonal, each column of ``x`` is proposed from the envelope of
    its von Mises-Fisher distribution given the previous columns (Hoff 2009, section 3.1, with Wood's envelopes instead
    of the distributions themselves, which avoids nested loops and Bessel functions). The constants of the envelopes
    depend on the previous columns, and are largest for the unprojected columns of ``f``.

    The columns of ``basis`` are orthonormal or zero, ``freedom`` is ``n`` minus the number of non-zero ones.
    """
    f = off(basis, f)
    axes = _principal_axes(f)
    f = f @ axes
    lengths = jnp.linalg.norm(f, axis=0)

    def propose(key: PRNGKey) -> tuple[Array, Scalar]:
        found, log_probability = basis, jnp.zeros((), f.dtype)
        normal = jax.random.normal(key, (*f.shape, 2), f.dtype)
        for j in range(f.shape[1]):
            x, log_ratio, concentration = propose_von_mises_fisher(normal[:, j], f[:, j], found, freedom - j)
            log_probability = log_probability + log_ratio
            if j > 0:
                # norms minus concentrations, most of whose digits cancel if both are large
                lost = found[:, basis.shape[1] :].T @ f[:, j]
                total = jnp.maximum(lengths[j] + concentration, jnp.finfo(f.dtype).tiny)
                excess = excess_of_envelope(concentration, freedom - j) - excess_of_envelope(lengths[j], freedom - j)
                log_probability = log_probability + excess - (lost @ lost) / total
            found = jnp.concatenate([found, x[:, None]], axis=1)
        return found[:, basis.shape[1] :] @ axes.T, log_probability

    return propose


def _principal_axes(f: Float[Array, "n q"]) -> Float[Array, "q q"]:
    """A rotation after which the columns of ``f`` are orthogonal, the longest first."""
    if f.shape[1] != 2:
        return jnp.linalg.svd(f, full_matrices=False)[2].T
    gram = f.T @ f
    angle = 0.5 * jnp.arctan2(2.0 * gram[0, 1], gram[0, 0] - gram[1, 1])
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])


def sweep_langevin(key: PRNGKey, x: Float[Array, "n p"], f: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """Gibbs sweep for ``exp(tr(f^T x))``: random pairs of columns given all others."""
    n, p = x.shape
    if p == 1:
        return first_accepted(key, propose_langevin(f, f[:, :0], n), MAX_PROPOSALS)
    key_pairs, key = jax.random.split(key)
    order = jax.random.permutation(key_pairs, p)

    def update(i, x):
        pair = jax.lax.dynamic_slice(order, (2 * i,), (2,))
        others = x.at[:, pair].set(0.0)
        proposal = propose_langevin(f[:, pair], others, n - p + 2)
        return x.at[:, pair].set(first_accepted(jax.random.fold_in(key, i), proposal, MAX_PROPOSALS))

    return newton_schulz(jax.lax.fori_loop(0, p // 2, update, x))


def sweep_quadratic(
    key: PRNGKey, x: Float[Array, "n p"], f: Float[Array, "n p"], a: Float[Array, "n n"], b: Float[Array, "p"]
) -> Float[Array, "n p"]:
    """Gibbs sweep for ``exp(tr(f^T x) + exponent(a, b, x))``: columns given the others, then rotations of planes."""
    p = x.shape[1]
    key_pairs, key_columns, key_rotations = jax.random.split(key, 3)

    def update_column(j, x):
        others = jnp.roll(x, -j, axis=1)[:, 1:]
        complement = jnp.linalg.qr(others, mode="complete")[0][:, p - 1 :] if p > 1 else jnp.eye(len(x), dtype=x.dtype)
        quadratic = b[j] * (complement.T @ a @ complement)
        key_column = jax.random.fold_in(key_columns, j)
        z = draw_fisher_bingham(key_column, complement.T @ f[:, j], quadratic, MAX_PROPOSALS)
        return x.at[:, j].set(complement @ z)

    x = jax.lax.fori_loop(0, p, update_column, x)
    if p == 1:
        return x
    order = jax.random.permutation(key_pairs, p)
    turn = jnp.array([[0.0, -1.0], [1.0, 0.0]], x.dtype)

    def rotate(i, x):
        pair = jax.lax.dynamic_slice(order, (2 * i,), (2,))
        plane = x[:, pair]
        gram, overlap = plane.T @ a @ plane, plane.T @ f[:, pair]
        linear = overlap[:, 0] + turn.T @ overlap[:, 1]
        quadratic = b[pair[0]] * gram + b[pair[1]] * (turn.T @ gram @ turn)
        z = draw_fisher_bingham(jax.random.fold_in(key_rotations, i), linear, quadratic, MAX_PROPOSALS)
        return x.at[:, pair].set(plane @ jnp.stack([z, turn @ z], axis=1))

    return newton_schulz(jax.lax.fori_loop(0, p // 2, rotate, x))


def exponent(a: Float[Array, "n n"], b: Float[Array, "p"], x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
    """Compute ``sum_j b_j x_j^T a x_j``."""
    return jnp.einsum("...np,...np,p->...", x, jnp.einsum("nm,...mp->...np", a, x), b)


def largest_exponent(a: Float[Array, "n n"], b: Float[Array, "p"]) -> Scalar:
    """The largest value of :func:`exponent`, by von Neumann's trace inequality."""
    weights = jnp.concatenate([b, jnp.zeros(a.shape[0] - b.shape[0], b.dtype)])
    return jnp.linalg.eigvalsh(a) @ jnp.sort(weights)
