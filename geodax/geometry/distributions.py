r"""Distributions of unit vectors and orthonormal matrices: densities and exact sampling.

===================================  ==============================================  ============================
distribution                         density, up to a constant                       constant known
===================================  ==============================================  ============================
:class:`StiefelUniform`              1                                               yes
:class:`VonMisesFisher`              :math:`\exp(\kappa \mu^T x)`                    yes
:class:`MatrixLangevin`              :math:`\exp \mathrm{tr}(f^T x)`                 for one or two columns
:class:`MatrixBingham`               :math:`\exp \sum_j b_j x_j^T a x_j`             no
:class:`BinghamVonMisesFisher`       the product of the last two                     no
===================================  ==============================================  ============================

Densities are with respect to the uniform (Haar) *probability* measure. If the constant is known, ``log_prob`` is
normalised and ``is_normalized`` is True; otherwise ``log_prob`` leaves it out. The distributions are pytrees:
``sample`` and ``log_prob`` work under ``jit`` and ``vmap``, and ``log_prob`` is differentiable in ``x`` and in the
parameters.

``sample`` is exact: rejection with the envelopes of Hoff (2009, Journal of Computational and Graphical Statistics 18,
438), Wood (1994) and Kent, Ganeiber and Mardia (2018). With many columns no envelope is tight, and ``sample`` raises
ValueError; then use ``gibbs_sample``, which runs a Markov chain for each draw, or a sampler of :mod:`geodax.mcmc`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Inexact

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._random import standard_normal
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.directions import propose_bingham, propose_fisher_bingham
from geodax.geometry.frames import exponent, largest_exponent, propose_langevin, sweep_langevin, sweep_quadratic
from geodax.geometry.hypergeometric import log_0f1, log_0f1_columns, mean_resultant_length
from geodax.geometry.linalg import qr_positive
from geodax.geometry.rejection import MAX_PROPOSALS, AbstractRejection, Proposal, mapped_draws


@with_full_precision
class StiefelUniform(eqx.Module):
    """The uniform (Haar) distribution of orthonormal n x p matrices, real or complex.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``. A real square matrix has determinant 1 or -1 with equal probability.
        dtype: Floating-point or complex type of the draws; JAX's default float if left out.

    Raises:
        ValueError: Unless ``n >= p >= 1`` and the type is floating-point or complex.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(self, n: int, p: int, dtype: Any = None):
        n, p = (_checks.whole("StiefelUniform", name, size) for name, size in (("n", n), ("p", p)))
        if not n >= p:
            raise ValueError(f"StiefelUniform: expected n >= p >= 1, found n = {n}, p = {p}.")
        try:
            dtype = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"StiefelUniform: dtype is not a number type: {_checks.described(dtype)}.") from error
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise ValueError(f"StiefelUniform: expected a floating-point or complex dtype, found {dtype}.")
        self.n, self.p, self.dtype = n, p, dtype

    @property
    def is_normalized(self) -> bool:
        """True."""
        return True

    def log_prob(self, x: Inexact[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        x = _points("StiefelUniform", x, (self.n, self.p))
        return jnp.zeros(x.shape[:-2], jnp.finfo(x.dtype).dtype)

    def sample(self, key: PRNGKey, shape: int | tuple[int, ...] = ()) -> Inexact[Array, "*shape n p"]:
        """Sample independent orthonormal QR factors of Gaussian matrices (Mezzadri 2007)."""
        key = _checks.random_key("StiefelUniform.sample", key)
        shape = _checks.shape("StiefelUniform.sample", shape)
        return qr_positive(standard_normal(key, jax.ShapeDtypeStruct((*shape, self.n, self.p), self.dtype)))


@with_full_precision
class VonMisesFisher(eqx.Module):
    """Unit vectors with density proportional to ``exp(concentration * mean_direction^T x)``.

    Args:
        mean_direction: Unit vector with at least 2 entries.
        concentration: Non-negative number; 0 gives the uniform distribution.

    Raises:
        ValueError: For a mean direction that is not a unit vector, or a negative or infinite concentration.
    """

    mean_direction: Float[Array, "n"]
    concentration: Float[Array, ""]

    def __init__(self, mean_direction: Any, concentration: Any):
        name = "VonMisesFisher: mean_direction"
        mean_direction = _real_array(name, mean_direction, 1)
        if mean_direction.shape[0] < 2:
            raise ValueError(f"{name}: expected at least 2 entries, found {mean_direction.shape[0]}.")
        length = _value(jnp.linalg.norm(mean_direction))
        if length is not None and abs(length - 1) > 1e3 * jnp.finfo(mean_direction.dtype).eps:
            raise ValueError(f"{name}: expected a vector of length 1, found length {length:.6g}; divide by it.")
        concentration = _real_array("VonMisesFisher: concentration", concentration, 0, mean_direction.dtype)
        value = _value(concentration)
        if value is not None and value < 0:
            raise ValueError(
                f"VonMisesFisher: concentration: expected a non-negative number, found {value:.6g}; reverse "
                "mean_direction instead."
            )
        self.mean_direction, self.concentration = mean_direction, concentration

    @property
    def is_normalized(self) -> bool:
        """True."""
        return True

    def log_prob(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """Log density with respect to the uniform probability measure of the sphere."""
        x = _points("VonMisesFisher", x, self.mean_direction.shape)
        constant = log_0f1(self.mean_direction.shape[0], self.concentration**2)
        return self.concentration * (x @ self.mean_direction) - constant

    @property
    def mean_resultant_length(self) -> Scalar:
        r"""Norm of the mean, :math:`I_{n/2}(\kappa) / I_{n/2-1}(\kappa)`."""
        return mean_resultant_length(self.mean_direction.shape[0], self.concentration)

    @property
    def mean(self) -> Float[Array, "n"]:
        return self.mean_resultant_length * self.mean_direction

    def sample(self, key: PRNGKey, shape: int | tuple[int, ...] = ()) -> Float[Array, "*shape n"]:
        """Sample independently and exactly (Wood 1994); fast at every concentration."""
        f = (self.concentration * self.mean_direction)[:, None]
        key = _checks.random_key("VonMisesFisher.sample", key)
        shape = _checks.shape("VonMisesFisher.sample", shape)
        return mapped_draws(MatrixLangevin(f), key, shape, MAX_PROPOSALS)[..., 0]


@with_full_precision
class MatrixLangevin(AbstractRejection):
    r"""The matrix Langevin (von Mises-Fisher) distribution, :math:`\exp \mathrm{tr}(f^T x)`.

    The constant is :math:`{}_0F_1(n/2; f^T f / 4)`, computed for one column (Bessel functions) and for two (Muirhead's
    series); with more columns ``is_normalized`` is False and ``log_prob`` is ``tr(f^T x)``.

    ``sample`` proposes column after column (Hoff 2009, section 3.1). At any concentration, about one proposal in
    ``1.4^p 2^(p (p - 1) / 4)`` is accepted: sampling is cheap up to five columns. A sweep of ``gibbs_sample`` pairs
    the columns at random and draws each pair given all others.

    Args:
        f: Real n x p matrix, ``n >= p``, of any rank; its polar factor is the mode, its singular values are the
            concentrations.

    Raises:
        ValueError: For another shape, complex entries or non-finite entries.
    """

    f: Float[Array, "n p"]

    def __init__(self, f: Any):
        self.f = _tall("MatrixLangevin: f", f)

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.f.shape[0], self.f.shape[1]

    @property
    def is_normalized(self) -> bool:
        return self.f.shape[1] <= 2

    def log_normalizer(self) -> Scalar:
        """Compute the logarithm of the mean of ``exp(tr(f^T x))`` over the uniform distribution.

        Raises:
            NotImplementedError: For more than two columns.
        """
        n, p = self.event_shape
        if p == 1:
            return log_0f1(n, jnp.sum(self.f**2))
        if p == 2:
            return log_0f1_columns(self.f)
        raise NotImplementedError(
            f"MatrixLangevin: the normalising constant is implemented for one or two columns, found {p}; log_prob "
            "leaves it out."
        )

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        x = _points("MatrixLangevin", x, self.f.shape)
        linear = jnp.einsum("np,...np->...", self.f, x)
        if not self.is_normalized:
            return linear
        with jax.ensure_compile_time_eval():  # a fixed f: the constant is not part of a traced program
            constant = _log_normalizer(self)
        return linear - constant

    @property
    def is_cheap(self) -> bool:
        return self.event_shape[1] <= 3

    def proposal(self) -> Proposal:
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        return self.proposal()(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return sweep_langevin(key, x, self.f)


@with_full_precision
class BinghamVonMisesFisher(AbstractRejection):
    r"""The matrix Bingham-von Mises-Fisher distribution, :math:`\exp(\mathrm{tr}(f^T x) + \sum_j b_j x_j^T a x_j)`.

    ``log_prob`` leaves the constant out. ``sample`` is exact: for one column at any concentration, with the
    Bingham envelope of :func:`geodax.geometry.directions.propose_fisher_bingham`; for more it accepts proposals of
    :class:`MatrixLangevin` (Hoff 2009, section 3.2), which works if the spread of the eigenvalues of ``a`` times
    ``b`` is moderate. A sweep of ``gibbs_sample`` draws every column given the others (Hoff 2009, section 3.3, with
    exact draws instead of a Markov step), then rotates random pairs of columns in their planes. The rotations are
    needed for square matrices, in which each column is determined by the others up to sign.

    Args:
        f: Real n x p matrix, ``n >= p``.
        a: Real symmetric n x n matrix.
        b: Weights of the p columns; ones if left out.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, complex entries or non-finite entries.
    """

    f: Float[Array, "n p"]
    a: Float[Array, "n n"]
    b: Float[Array, "p"]

    def __init__(self, f: Any, a: Any, b: Any = None):
        self.f = _tall("BinghamVonMisesFisher: f", f)
        n, p = self.f.shape
        self.a, self.b = _quadratic("BinghamVonMisesFisher", a, jnp.ones(p) if b is None else b, self.f.dtype)
        if self.a.shape[0] != n or self.b.shape[0] != p:
            raise ValueError(
                f"BinghamVonMisesFisher: with f of shape {(n, p)}, expected a of shape {(n, n)} and b of shape {(p,)}, "
                f"found {self.a.shape} and {self.b.shape}."
            )

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.f.shape[0], self.f.shape[1]

    @property
    def is_normalized(self) -> bool:
        """False."""
        return False

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        x = _points("BinghamVonMisesFisher", x, self.f.shape)
        return jnp.einsum("np,...np->...", self.f, x) + exponent(self.a, self.b, x)

    @property
    def is_cheap(self) -> bool:
        return self.event_shape[1] == 1

    def proposal(self) -> Proposal:
        if self.event_shape == (1, 1):
            return propose_langevin(self.f, self.f[:, :0], 1)
        if self.f.shape[1] == 1:
            propose_vector = propose_fisher_bingham(self.f[:, 0], self.b[0] * self.a)

            def propose_column(key: PRNGKey) -> tuple[Array, Scalar]:
                x, log_probability = propose_vector(key)
                return x[:, None], log_probability

            return propose_column
        propose_linear = propose_langevin(self.f, self.f[:, :0], self.f.shape[0])
        bound = largest_exponent(self.a, self.b)

        def propose(key: PRNGKey) -> tuple[Array, Scalar]:
            x, log_probability = propose_linear(key)
            return x, log_probability + exponent(self.a, self.b, x) - bound

        return propose

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return sweep_quadratic(key, x, self.f, self.a, self.b)


@with_full_precision
class MatrixBingham(AbstractRejection):
    r"""The matrix Bingham distribution, :math:`\exp \sum_j b_j x_j^T a x_j`; for one column Bingham's on the sphere.

    ``log_prob`` leaves the constant out. ``sample`` is exact, with the angular central Gaussian envelope of Kent,
    Ganeiber and Mardia (2018) at the weight of smallest modulus: for one column it is fast at any concentration, for
    more it is best if all weights are equal. ``gibbs_sample`` as in :class:`BinghamVonMisesFisher`.

    Args:
        a: Real symmetric n x n matrix.
        b: Weights of the columns, one per column; a single 1 if left out.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, complex entries or non-finite entries.
    """

    a: Float[Array, "n n"]
    b: Float[Array, "p"]

    def __init__(self, a: Any, b: Any = None):
        self.a, self.b = _quadratic("MatrixBingham", a, jnp.ones(1) if b is None else b)

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.a.shape[0], self.b.shape[0]

    @property
    def is_normalized(self) -> bool:
        """False."""
        return False

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        x = _points("MatrixBingham", x, self.event_shape)
        return exponent(self.a, self.b, x)

    @property
    def is_cheap(self) -> bool:
        return self.event_shape[1] == 1

    def proposal(self) -> Proposal:
        b = self.b
        shared = jnp.where(jnp.all(b > 0), jnp.min(b), jnp.where(jnp.all(b < 0), jnp.max(b), 0.0))
        propose_shared = propose_bingham(shared * self.a, b.shape[0])
        bound = largest_exponent(self.a, b - shared)

        def propose(key: PRNGKey) -> tuple[Array, Scalar]:
            x, log_probability = propose_shared(key)
            return x, log_probability + exponent(self.a, b - shared, x) - bound

        return propose

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        return self.proposal()(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return sweep_quadratic(key, x, jnp.zeros_like(x), self.a, self.b)


_log_normalizer = jax.jit(MatrixLangevin.log_normalizer)


def _value(x: Array) -> Any:
    return None if isinstance(x, Tracer) else np.asarray(x)


def _real_array(name: str, value: Any, ndim: int, dtype: Any = None) -> Array:
    owner, argument = name.split(": ")
    x = _checks.array(owner, argument, value, kinds="floating-point or complex", half=False)
    if jnp.iscomplexobj(x):
        raise ValueError(f"{name}: expected real entries, found {x.dtype}; only StiefelUniform is complex.")
    if x.ndim != ndim:
        kind = ("a number", "a vector", "a matrix")[ndim]
        raise ValueError(f"{name}: expected {kind}, found shape {x.shape}; use jax.vmap for a stack of distributions.")
    if dtype is not None or not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(jax.dtypes.canonicalize_dtype(float) if dtype is None else dtype)
    concrete = _value(x)
    if concrete is not None and not np.all(np.isfinite(concrete)):
        raise ValueError(f"{name}: expected finite entries, found {int(np.sum(~np.isfinite(concrete)))} that are not.")
    return x


def _tall(name: str, value: Any) -> Array:
    f = _real_array(name, value, 2)
    if not f.shape[0] >= f.shape[1] >= 1:
        raise ValueError(f"{name}: expected an n x p matrix with n >= p >= 1, found shape {f.shape}.")
    return f


def _quadratic(name: str, a: Any, b: Any, dtype: Any = None) -> tuple[Array, Array]:
    a = _real_array(f"{name}: a", a, 2, dtype)
    b = _real_array(f"{name}: b", b, 1, a.dtype)
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"{name}: a: expected a square symmetric matrix, found shape {a.shape}.")
    if not a.shape[0] >= b.shape[0] >= 1:
        raise ValueError(f"{name}: b: expected between 1 and {a.shape[0]} weights, found {b.shape[0]}.")
    concrete = _value(a)
    if concrete is not None:
        defect = np.max(np.abs(concrete - concrete.T))
        if defect > 1e3 * jnp.finfo(a.dtype).eps * np.max(np.abs(concrete)):
            raise ValueError(f"{name}: a: expected a symmetric matrix, but a - a^T has an entry of size {defect:.3g}.")
    return 0.5 * (a + a.T), b


def _points(name: str, x: Any, shape: tuple[int, ...]) -> Array:
    x = _checks.array(f"{name}.log_prob", "x", x, kinds="floating-point or complex")
    if x.shape[-len(shape) :] != tuple(shape):
        raise ValueError(
            f"{name}: log_prob expects points of shape (..., {', '.join(map(str, shape))}), found {x.shape}."
        )
    return x
