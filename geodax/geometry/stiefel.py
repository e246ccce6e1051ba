r"""The Stiefel manifold of orthonormal n x p matrices, real or complex, in two metrics and one published scheme.

A tangent vector is :math:`r = x A + x_\perp B` with :math:`A` skew. The two metrics weigh :math:`A` differently:

=============  ==============================  =======================================  ==========================
metric         kinetic energy                  momentum draw, z standard normal         velocity
=============  ==============================  =======================================  ==========================
canonical      |r|^2/2 - tr((x^T r)^2)/2       z - x M + x skew(M)/sqrt(2), M = x^T z   r + x x^T r
embedded       |r|^2/2                         z - x sym(M)                             r
=============  ==============================  =======================================  ==========================

Their uniform measures agree up to a constant, so one density serves both. For canonical momenta the variance of
an entry of A is 1/4, not 1/2: combining the draw of one row with the energy of the other samples a wrong
distribution with a good acceptance rate. In both metrics a kick adds the orthogonal projection of the gradient g.

In the canonical metric a real matrix has a symmetric matrix of scales :math:`s` instead of one number. With the
entrywise product and the diagonal :math:`D` of :math:`s`

.. math::
    \mathrm{scaled}(x A + x_\perp B,\; s) = x\, (s \circ A) + x_\perp B D,

so each pair of columns, and each column with the complement, turns in a unit of its own. One number for all directions
is too small for most of them where the columns are known with different precision, as those of spectral models are.

The *literal* scheme is orthogonal HMC as published (Yanush and Kropotov 2019, equation 12), with the missing parts
filled in the only way that works: momentum draw and energy of the embedded row, velocity and flow of the canonical row,
and the kick :math:`g - x g^T x`. It is reversible, preserves volume and conserves :math:`|r|^2/2 - \log\pi` to second
order, so it samples correctly. It is not symplectic for 1 < p < n: its energy error grows like the square root of the
number of steps, while that of the other schemes stays bounded. On real matrices it is the canonical scheme for p = 1,
and for p = n the canonical one with a step longer by :math:`\sqrt 2`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Inexact

from geodax import _checks, _tree
from geodax._precision import with_full_precision
from geodax._random import standard_normal
from geodax._types import Array, Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.flows import AbstractFlow, Cayley, Geodesic, Polar, Scales, scaled
from geodax.geometry.linalg import adjoint, eye_like, newton_schulz, polar_factor, qr_positive, skew, sym
from geodax.geometry.manifolds import AbstractManifold, FlowProperties, Noise, require_alike, require_array

_FLOWS = {"cayley": Cayley, "geodesic": Geodesic, "polar": Polar}
_METRICS = ("canonical", "embedded", "literal")


@with_full_precision
class Stiefel(AbstractManifold):
    """Matrices with orthonormal columns along the last two axes; leading axes are independent copies.

    ``n >= p``; ``p = 1`` gives unit vectors, ``p = n`` orthogonal (unitary) matrices. A real square leaf has two
    components, ``det = 1`` and ``det = -1``, which the samplers connect by :meth:`reflect`.

    Args:
        metric: ``"canonical"`` (default), ``"embedded"``, or ``"literal"`` for the scheme of Yanush and Kropotov
            (2019) as published, which is not symplectic; see :mod:`geodax.geometry.stiefel`.
        flow: ``"cayley"`` (default), ``"geodesic"``, ``"polar"`` for stochastic gradients in the embedded metric, which
            costs half as much as the Cayley flow (:class:`geodax.geometry.flows.Polar`), or an ``AbstractFlow``.

    Raises:
        ValueError: For an unknown metric or flow, or the polar flow in another metric.
    """

    metric: str = eqx.field(static=True)
    motion: AbstractFlow

    def __init__(self, metric: str = "canonical", flow: str | AbstractFlow = "cayley"):
        _checks.chosen("Stiefel", "metric", metric, _METRICS)
        if not isinstance(flow, AbstractFlow) and (not isinstance(flow, str) or flow not in _FLOWS):
            raise ValueError(f"Stiefel: flow must be one of {list(_FLOWS)} or an AbstractFlow, found {flow!r}.")
        self.metric = metric
        self.motion = _FLOWS[flow]() if isinstance(flow, str) else flow
        if isinstance(self.motion, Polar) and metric != "embedded":
            raise ValueError(
                f'Stiefel: the polar flow requires the embedded metric; use metric="embedded", found {metric!r}.'
            )

    def project(self, x: Inexact[Array, "*batch n p"], u: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
        self.validate(x, "Stiefel.project: x")
        require_alike(x, u, "Stiefel.project")
        return u - x @ sym(adjoint(x) @ u)

    def gradient(
        self, x: Inexact[Array, "*batch n p"], g: Inexact[Array, "*batch n p"]
    ) -> Inexact[Array, "*batch n p"]:
        """The projected gradient; in the literal scheme ``g - x g^T x``, the canonical metric's Riemannian gradient."""
        return g - x @ (adjoint(g) @ x) if self.metric == "literal" else self.project(x, g)

    def momentum(
        self, x: Inexact[Array, "*batch n p"], z: Inexact[Array, "*batch n p"]
    ) -> Inexact[Array, "*batch n p"]:
        m = adjoint(x) @ z
        if self.metric == "canonical":
            return z - x @ (m - math.sqrt(0.5) * skew(m))
        return z - x @ sym(m)

    def noise(
        self, x: Inexact[Array, "*batch n p"], z: Inexact[Array, "*batch n p"], variance: Scalar, deducted: Scalar
    ) -> Inexact[Array, "*batch n p"]:
        """The difference of the variances in the normal part, with the metric's factors in the part A."""
        m = adjoint(x) @ z
        normal_root = jnp.sqrt(variance - deducted).astype(x.dtype)
        if not _has_skew_part(x):
            return normal_root * (z - x @ m)
        drawn, kicked = self._skew_variances()
        skew_root = jnp.sqrt(drawn * variance - kicked * deducted).astype(x.dtype)
        return normal_root * z - x @ (normal_root * m - skew_root * skew(m))

    def kick(
        self, x: Position, r: Momentum, *, kept: Scalar | float = 1.0, g: PyTree = None, noise: Noise | None = None
    ):
        """In the embedded metric, project the sum once, including the polar flow's momentum."""
        if self.metric != "embedded" or (g is None and noise is None and self.motion.keeps_tangent):
            return super().kick(x, r, kept=kept, g=g, noise=noise)
        moved = kept * r
        if g is not None:
            moved = moved + g
        if noise is not None:
            moved = moved + jnp.sqrt(noise.variance - noise.deducted).astype(x.dtype) * noise.z
        return self.project(x, moved)

    def noise_capacity(self, x: Inexact[Array, "*batch n p"]) -> float:
        """1/2 in the canonical and 1/4 in the literal scheme, whose part A absorbs more of the noise; otherwise 1."""
        drawn, kicked = self._skew_variances()
        return min(1.0, drawn / kicked) if _has_skew_part(x) else 1.0

    def is_flat(self, x: Inexact[Array, "*batch n p"]) -> PyTree:
        return False

    def corrects_itself(self, x: Inexact[Array, "*batch n p"]) -> PyTree:
        """The polar flow measures and removes the error of its position, and its kick that of the momentum."""
        return isinstance(self.motion, Polar)

    def _skew_variances(self) -> tuple[float, float]:
        """Variance of A in a momentum draw, and in a kick by standard normal noise; that of its projection is one."""
        return {"canonical": (0.5, 1.0), "embedded": (1.0, 1.0), "literal": (1.0, 4.0)}[self.metric]

    def kinetic_energy(self, x: Inexact[Array, "*batch n p"], r: Inexact[Array, "*batch n p"]) -> Scalar:
        """Kinetic energy of the chosen metric; in the canonical one ``|r x^T - x r^T|^2 / 4``."""
        energy = 0.5 * _tree.dot(r, r)
        if self.metric != "canonical":
            return energy
        m = adjoint(x) @ r
        return energy - 0.5 * _tree.dot(adjoint(m), m)

    def velocity(
        self, x: Inexact[Array, "*batch n p"], r: Inexact[Array, "*batch n p"]
    ) -> Inexact[Array, "*batch n p"]:
        return r if self.metric == "embedded" else r + x @ (adjoint(x) @ r)

    def flow(self, x: Inexact[Array, "*batch n p"], r: Inexact[Array, "*batch n p"], t: Scalar | Scales):
        """Free motion by the chosen flow; the polar one leaves a normal part in the momentum, which a kick removes."""
        return self.motion(x, r, jnp.asarray(t).astype(x.dtype), metric=self.metric)

    def random_point(self, key: PRNGKey, like: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
        self.validate(like, "Stiefel.random_point: like")
        key = _checks.random_key("Stiefel.random_point", key)
        return qr_positive(standard_normal(key, like))

    def nearest(self, x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
        self.validate(x, "Stiefel.nearest: x")
        return polar_factor(x)

    def renormalize(self, x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch n p"]:
        """One Newton-Schulz step."""
        return newton_schulz(x)

    def residual(self, x: Inexact[Array, "*batch n p"]) -> Scalar:
        self.validate(x, "Stiefel.residual: x")
        if not x.size:
            raise ValueError(f"Stiefel.residual: expected an array with entries, found shape {x.shape}.")
        return jnp.max(
            jnp.abs(adjoint(x) @ x - jnp.broadcast_to(eye_like(x), (*x.shape[:-2], x.shape[-1], x.shape[-1])))
        )

    def dim(self, x: Inexact[Array, "*batch n p"]) -> int:
        self.validate(x, "Stiefel.dim: x")
        n, p = x.shape[-2:]
        copies = x.size // (n * p)
        return copies * (2 * n * p - p * p if jnp.iscomplexobj(x) else n * p - p * (p + 1) // 2)

    def validate(self, x: Position, name: str) -> None:
        require_array(x, name, "Stiefel()")
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            raise TypeError(f"{name}: Stiefel() expects a floating-point or complex array, found dtype {x.dtype}.")
        if x.dtype.itemsize < 4:
            raise TypeError(f"{name}: Stiefel() expects single or double precision, found {x.dtype}; convert it.")
        if x.ndim < 2 or x.shape[-1] < 1 or x.shape[-2] < x.shape[-1]:
            hint = " Did you mean its transpose?" if x.ndim == 2 and 0 < x.shape[-2] < x.shape[-1] else ""
            raise ValueError(
                f"{name}: Stiefel() expects n x p matrices with n >= p >= 1 along the last two axes, found "
                f"shape {x.shape}.{hint}"
            )

    def is_connected(self, x: Inexact[Array, "*batch n p"]) -> bool:
        """False for real square matrices, since continuous motion preserves the determinant."""
        return jnp.iscomplexobj(x) or x.shape[-2] != x.shape[-1]

    def reflect(self, key: PRNGKey, x: Inexact[Array, "*batch n n"]) -> Inexact[Array, "*batch n n"]:
        """Flip the sign of the determinant of one copy.

        Either a Householder reflection ``(I - 2 u u^T) x`` with a uniform ``u``, or a change of sign of one
        column, with equal probability: both are involutions that preserve the Haar measure.
        """
        n = x.shape[-1]
        copies = x.size // (n * n)
        key_kind, key_direction, key_column, key_copy = jax.random.split(key, 4)
        u = jax.random.normal(key_direction, (n, 1), x.dtype)
        u = u / jnp.linalg.norm(u)
        householder = x - 2.0 * (u @ (u.T @ x))
        column = jax.random.randint(key_column, (), 0, n)
        flipped = x * jnp.where(jnp.arange(n) == column, -1.0, 1.0).astype(x.dtype)[(None,) * (x.ndim - 1)]
        moved = jnp.where(jax.random.bernoulli(key_kind), householder, flipped)
        copy = jax.random.randint(key_copy, (), 0, copies)
        is_chosen = (jnp.arange(copies) == copy).reshape((*x.shape[:-2], 1, 1))
        return jnp.where(is_chosen, moved, x)

    def degrees_of_freedom(self, x: Inexact[Array, "*batch n p"]) -> PyTree:
        """A matrix in which a pair of columns stands twice, as a half; one number in other metrics."""
        if not self._has_matrix_of_scales(x):
            return super().degrees_of_freedom(x)
        n, p = x.shape[-2:]
        counts = jnp.where(jnp.eye(p, dtype=bool), float(n - p), 0.5).astype(x.dtype)
        return jnp.broadcast_to(counts, (*x.shape[:-2], p, p))

    def squares(self, x: Inexact[Array, "*batch n p"], u: Inexact[Array, "*batch n p"]) -> PyTree:
        if self.metric != "canonical":
            return super().squares(x, u)
        m = adjoint(x) @ u
        if not self._has_matrix_of_scales(x):
            return jnp.sum(_tree.squared(u)) - 0.5 * jnp.sum(_tree.squared(m))
        columns = jnp.sum((u - x @ m) ** 2, axis=-2, keepdims=True)
        return jnp.where(jnp.broadcast_to(jnp.eye(m.shape[-1], dtype=bool), m.shape), columns, 0.5 * sym(m**2))

    def scaled(self, x: Inexact[Array, "*batch n p"], u: Inexact[Array, "*batch n p"], scale: Scalar | Scales):
        return scaled(x, u, scale.astype(x.dtype))

    def max_time(self, x: Inexact[Array, "*batch n p"], scale: Scalar | Scales) -> float | Scalar:
        """A quarter of a circle for columns of momentum of length ``sqrt(n)``, ``sqrt(2n)`` for complex ones."""
        n, p = x.shape[-2:]
        if scale.ndim:
            counts = jnp.where(jnp.eye(p, dtype=bool), float(n - p), 1.0).astype(scale.dtype)
            squares = jnp.broadcast_to(counts, scale.shape) * scale**2
            scale = jnp.sqrt(jnp.max(jnp.sum(squares, axis=-2)) / max(n - 1, 1))
        return 0.5 * math.pi / math.sqrt((2 if jnp.iscomplexobj(x) else 1) * n) / scale

    def _has_matrix_of_scales(self, x: Array) -> bool:
        return self.metric == "canonical" and self.motion.takes_scales and not jnp.iscomplexobj(x)

    @property
    def properties(self) -> FlowProperties:
        """The properties of the chosen flow, except that the literal kick is not Hamiltonian."""
        flow = self.motion
        is_symplectic = flow.is_symplectic and self.metric != "literal"
        return FlowProperties(flow.is_reversible, flow.is_volume_preserving, is_symplectic, flow.order)


def _has_skew_part(x: Array) -> bool:
    """Whether a momentum at ``x`` has a part x A."""
    return x.shape[-1] > 1 or jnp.iscomplexobj(x)
