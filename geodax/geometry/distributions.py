r"""Distributions of unit vectors and orthonormal matrices: densities and exact draws.

===================================  ==============================================  ============================
distribution                         density, up to a constant                       constant known
===================================  ==============================================  ============================
:class:`StiefelUniform`              1                                               yes
:class:`VonMisesFisher`              :math:`\exp(\kappa \mu^T x)`                    yes
:class:`MatrixLangevin`              :math:`\exp \mathrm{tr}(f^T x)`                 for one or two columns
:class:`MatrixBingham`               :math:`\exp \sum_j b_j x_j^T a x_j`             no
:class:`BinghamVonMisesFisher`       the product of the last two                     no
===================================  ==============================================  ============================

Densities are with respect to the uniform (Haar) *probability* measure. Where the constant is known ``log_prob`` is
normalised and ``is_normalized`` is True; otherwise ``log_prob`` leaves it out. The distributions are pytrees:
``sample`` and ``log_prob`` work under ``jit`` and ``vmap``, ``log_prob`` can be differentiated in ``x`` and in the
parameters.

``sample`` is exact: rejection with the envelopes of Hoff (2009, Journal of Computational and Graphical Statistics 18,
438), Wood (1994) and Kent, Ganeiber and Mardia (2018). With many columns no envelope is tight; ``sample`` then refuses,
and ``gibbs_sample`` runs a Markov chain of a given number of sweeps for each draw, or one of the samplers of
:mod:`geodax.mcmc` takes ``log_prob``.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Inexact

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.directions import (
    Proposal,
    draw_fisher_bingham,
    draw_von_mises_fisher,
    first_accepted,
    off,
    propose_bingham,
    propose_fisher_bingham,
)
from geodax.geometry.hypergeometric import log_0f1, log_0f1_pair, mean_resultant_length
from geodax.geometry.linalg import newton_schulz, qr_positive
from geodax.geometry.manifolds import standard_normal

_MAX_PROPOSALS = 100_000
_NUM_PILOTS = 256
_LEAST_EXPECTED = 50.0  # acceptances within max_proposals; a draw then fails with probability exp(-50)


class StiefelUniform(eqx.Module):
    """The uniform (Haar) distribution of orthonormal n x p matrices, real or complex.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``. A real square matrix has determinant 1 or -1, each half of the time.
        dtype: Floating-point or complex type of the draws; JAX's default float when left out.

    Raises:
        ValueError: Unless ``n >= p >= 1`` and the type is floating-point or complex.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(self, n: int, p: int, dtype: Any = None):
        if not n >= p >= 1:
            raise ValueError(f"StiefelUniform: expected n >= p >= 1, found n = {n}, p = {p}.")
        dtype = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise ValueError(f"StiefelUniform: expected a floating-point or complex dtype, found {dtype}.")
        self.n, self.p, self.dtype = n, p, dtype

    @property
    def is_normalized(self) -> bool:
        """True."""
        return True

    def log_prob(self, x: Inexact[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Zero: the reference measure is this distribution."""
        _require_shape("StiefelUniform", x, (self.n, self.p))
        return jnp.zeros(x.shape[:-2], jnp.finfo(x.dtype).dtype)

    def sample(self, key: PRNGKey, shape: int | tuple[int, ...] = ()) -> Inexact[Array, "*shape n p"]:
        """Independent draws, the orthonormal QR factors of Gaussian matrices (Mezzadri 2007)."""
        shape = (shape,) if isinstance(shape, int) else shape
        return qr_positive(standard_normal(key, jax.ShapeDtypeStruct((*shape, self.n, self.p), self.dtype)))


class VonMisesFisher(eqx.Module):
    """Unit vectors with density proportional to ``exp(concentration * mean_direction^T x)``.

    Args:
        mean_direction: Unit vector with at least 2 entries.
        concentration: Number that is not negative; 0 gives the uniform distribution.

    Raises:
        ValueError: For a mean direction that is no unit vector, a negative or infinite concentration.
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
                f"VonMisesFisher: concentration: expected a number that is not negative, found {value:.6g}; turn "
                "mean_direction round instead."
            )
        self.mean_direction, self.concentration = mean_direction, concentration

    @property
    def is_normalized(self) -> bool:
        """True."""
        return True

    def log_prob(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """Logarithm of the density with respect to the uniform probability measure of the sphere."""
        _require_shape("VonMisesFisher", x, self.mean_direction.shape)
        constant = log_0f1(self.mean_direction.shape[0], self.concentration**2)
        return self.concentration * (x @ self.mean_direction) - constant

    @property
    def mean_resultant_length(self) -> Scalar:
        r"""Length of the mean, :math:`I_{n/2}(\kappa) / I_{n/2-1}(\kappa)`."""
        return mean_resultant_length(self.mean_direction.shape[0], self.concentration)

    @property
    def mean(self) -> Float[Array, "n"]:
        """Mean of ``x``."""
        return self.mean_resultant_length * self.mean_direction

    def sample(self, key: PRNGKey, shape: int | tuple[int, ...] = ()) -> Float[Array, "*shape n"]:
        """Independent exact draws (Wood 1994), fast at every concentration."""
        f = (self.concentration * self.mean_direction)[:, None]
        return _mapped(_Columns(f), key, (shape,) if isinstance(shape, int) else shape, _MAX_PROPOSALS)[..., 0]


class AbstractRejection(eqx.Module):
    """A distribution of orthonormal n x p matrices from which one draws by rejection."""

    @property
    @abc.abstractmethod
    def event_shape(self) -> tuple[int, int]:
        """Rows and columns of a draw."""

    @abc.abstractmethod
    def proposal(self) -> Proposal:
        """``key -> (matrix, logarithm of its probability of acceptance)``."""

    @abc.abstractmethod
    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """One sweep of a Gibbs sampler, which leaves the distribution unchanged."""

    @abc.abstractmethod
    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        """A random matrix from which the Gibbs sampler starts."""

    def log_acceptance_rate(self, key: PRNGKey) -> Scalar:
        """Logarithm of the probability that a proposal of :meth:`sample` is accepted, estimated from 256 of them."""
        return _log_acceptance_rate(self, key)

    def sample(
        self, key: PRNGKey, shape: int | tuple[int, ...] = (), *, max_proposals: int = _MAX_PROPOSALS
    ) -> Float[Array, "*shape n p"]:
        """Independent exact draws by rejection.

        Args:
            key: A random key.
            shape: Shape of the stack of draws.
            max_proposals: Proposals after which a draw is given up.

        Returns:
            The draws. Under ``jit`` or ``vmap`` no error can be raised, and a draw that was given up consists of
            not-a-numbers.

        Raises:
            ValueError: When so few proposals would be accepted that draws would be given up.
        """
        key_pilot, key_draws = jax.random.split(key)
        is_concrete = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((key, self)))
        if is_concrete:
            log_rate = float(self.log_acceptance_rate(key_pilot))
            if not log_rate + math.log(max_proposals) > math.log(_LEAST_EXPECTED):
                raise ValueError(_refusal(self, log_rate, max_proposals))
        draws = _mapped(self, key_draws, (shape,) if isinstance(shape, int) else shape, max_proposals)
        if is_concrete and not bool(jnp.all(jnp.isfinite(draws))):
            raise ValueError(f"{type(self).__name__}: some draws found no acceptance; raise max_proposals.")
        return draws

    def gibbs_sample(
        self, key: PRNGKey, shape: int | tuple[int, ...] = (), *, num_sweeps: int = 100
    ) -> Float[Array, "*shape n p"]:
        """Independent draws, each the end of a Markov chain of its own: approximate, at any concentration.

        Every step of a sweep draws exactly from a conditional distribution, so there is nothing to tune, but a chain
        may need many sweeps to cross between modes. Compare two values of ``num_sweeps``.

        Args:
            key: A random key.
            shape: Shape of the stack of draws.
            num_sweeps: Sweeps over all columns in each chain.

        Returns:
            The draws.

        Raises:
            ValueError: Unless ``num_sweeps`` is at least 1.
        """
        if num_sweeps < 1:
            raise ValueError(f"{type(self).__name__}: num_sweeps: expected at least 1, found {num_sweeps}.")
        return _mapped(self, key, (shape,) if isinstance(shape, int) else shape, num_sweeps, is_gibbs=True)


class MatrixLangevin(AbstractRejection):
    r"""The matrix Langevin (von Mises-Fisher) distribution, :math:`\exp \mathrm{tr}(f^T x)`.

    The constant is :math:`{}_0F_1(n/2; f^T f / 4)`, computed for one column (Bessel functions) and for two (Muirhead's
    series); with more ``is_normalized`` is False and ``log_prob`` is ``tr(f^T x)``.

    ``sample`` draws column after column from von Mises-Fisher distributions (Hoff 2009, section 3.1). The probability
    of acceptance stays above about ``2^(-p (p - 1) / 4)`` at high concentration: draws are cheap up to five or six
    columns. A sweep of ``gibbs_sample`` pairs the columns at random and draws each pair given all others.

    Args:
        f: Real n x p matrix, ``n >= p``, of any rank; its polar factor is the mode, its singular values are the
            concentrations.

    Raises:
        ValueError: For another shape, complex entries or entries that are not finite.
    """

    f: Float[Array, "n p"]

    def __init__(self, f: Any):
        self.f = _tall("MatrixLangevin: f", f)

    @property
    def event_shape(self) -> tuple[int, int]:
        """Rows and columns of a draw."""
        return self.f.shape[0], self.f.shape[1]

    @property
    def is_normalized(self) -> bool:
        """Whether :meth:`log_prob` contains the constant: for one or two columns."""
        return self.f.shape[1] <= 2

    def log_normalizer(self) -> Scalar:
        """Logarithm of the mean of ``exp(tr(f^T x))`` over the uniform distribution.

        Raises:
            NotImplementedError: For more than two columns.
        """
        n, p = self.event_shape
        if p == 1:
            return log_0f1(n, jnp.sum(self.f**2))
        if p == 2:
            first, second = self.f[:, 0], self.f[:, 1]
            square = first @ first
            rest = second - first * ((first @ second) / jnp.maximum(square, jnp.finfo(self.f.dtype).tiny ** 0.5))
            return log_0f1_pair(n, jnp.sum(self.f**2), square * (rest @ rest))
        raise NotImplementedError(
            f"MatrixLangevin: the normalising constant is implemented for one or two columns, found {p}; log_prob "
            "leaves it out."
        )

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Logarithm of the density, without its constant for more than two columns."""
        _require_shape("MatrixLangevin", x, self.f.shape)
        exponent = jnp.einsum("np,...np->...", self.f, x)
        return exponent - self.log_normalizer() if self.is_normalized else exponent

    def proposal(self) -> Proposal:
        """Columns drawn one after the other."""
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        """A proposal of the rejection."""
        return self.proposal()(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Each pair of columns given all others, exactly; the pairs are formed at random."""
        n, p = x.shape
        if p == 1:
            return first_accepted(key, self.proposal(), _MAX_PROPOSALS)
        key_pairs, key = jax.random.split(key)
        order = jax.random.permutation(key_pairs, p)

        def update(i, x):
            pair = jax.lax.dynamic_slice(order, (2 * i,), (2,))
            others = x.at[:, pair].set(0.0)
            proposal = propose_langevin(self.f[:, pair], others, n - p + 2)
            return x.at[:, pair].set(first_accepted(jax.random.fold_in(key, i), proposal, _MAX_PROPOSALS))

        return newton_schulz(jax.lax.fori_loop(0, p // 2, update, x))


class BinghamVonMisesFisher(AbstractRejection):
    r"""The matrix Bingham-von Mises-Fisher distribution, :math:`\exp(\mathrm{tr}(f^T x) + \sum_j b_j x_j^T a x_j)`.

    ``log_prob`` leaves the constant out. ``sample`` is exact: for one column at any concentration, with the
    Bingham envelope of :func:`geodax.geometry.directions.propose_fisher_bingham`; for more it accepts proposals of
    :class:`MatrixLangevin` (Hoff 2009, section 3.2), which works when the spread of the eigenvalues of ``a`` times
    ``b`` is moderate. A sweep of ``gibbs_sample`` draws every column given the others (Hoff 2009, section 3.3, with
    exact draws instead of a Markov step), then rotates random pairs of columns in their planes. The second part is
    needed for square matrices, whose columns are fixed by the others up to sign.

    Args:
        f: Real n x p matrix, ``n >= p``.
        a: Real symmetric n x n matrix.
        b: Weights of the p columns; ones when left out.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, complex entries or entries that are not finite.
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
        """Rows and columns of a draw."""
        return self.f.shape[0], self.f.shape[1]

    @property
    def is_normalized(self) -> bool:
        """False."""
        return False

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Logarithm of the density without its constant."""
        _require_shape("BinghamVonMisesFisher", x, self.f.shape)
        return jnp.einsum("np,...np->...", self.f, x) + _exponent(self.a, self.b, x)

    def proposal(self) -> Proposal:
        """Matrix Langevin columns, and for one column the envelope for vectors."""
        if self.event_shape == (1, 1):
            return propose_langevin(self.f, self.f[:, :0], 1)
        if self.f.shape[1] == 1:
            propose_vector = propose_fisher_bingham(self.f[:, 0], self.b[0] * self.a)

            def propose_column(key: PRNGKey) -> tuple[Array, Scalar]:
                x, log_probability = propose_vector(key)
                return x[:, None], log_probability

            return propose_column
        propose_linear = propose_langevin(self.f, self.f[:, :0], self.f.shape[0])
        bound = _largest_exponent(self.a, self.b)

        def propose(key: PRNGKey) -> tuple[Array, Scalar]:
            x, log_probability = propose_linear(key)
            return x, log_probability + _exponent(self.a, self.b, x) - bound

        return propose

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        """A draw from the matrix Langevin proposals."""
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Every column given the others, then rotations of random pairs."""
        return _sweep_quadratic(key, x, self.f, self.a, self.b)


class MatrixBingham(AbstractRejection):
    r"""The matrix Bingham distribution, :math:`\exp \sum_j b_j x_j^T a x_j`; for one column Bingham's on the sphere.

    ``log_prob`` leaves the constant out. ``sample`` is exact, with the angular central Gaussian envelope of Kent,
    Ganeiber and Mardia (2018) at the weight of least modulus: for one column it is fast at any concentration, for more
    it is best when all weights are equal. ``gibbs_sample`` as in :class:`BinghamVonMisesFisher`.

    Args:
        a: Real symmetric n x n matrix.
        b: Weights of the columns, as many as there are columns; a single 1 when left out.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, complex entries or entries that are not finite.
    """

    a: Float[Array, "n n"]
    b: Float[Array, "p"]

    def __init__(self, a: Any, b: Any = None):
        self.a, self.b = _quadratic("MatrixBingham", a, jnp.ones(1) if b is None else b)

    @property
    def event_shape(self) -> tuple[int, int]:
        """Rows and columns of a draw."""
        return self.a.shape[0], self.b.shape[0]

    @property
    def is_normalized(self) -> bool:
        """False."""
        return False

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Logarithm of the density without its constant."""
        _require_shape("MatrixBingham", x, self.event_shape)
        return _exponent(self.a, self.b, x)

    def proposal(self) -> Proposal:
        """Matrix angular central Gaussian, for what all columns share of the weights."""
        b = self.b
        shared = jnp.where(jnp.all(b > 0), jnp.min(b), jnp.where(jnp.all(b < 0), jnp.max(b), 0.0))
        propose_shared = propose_bingham(shared * self.a, b.shape[0])
        bound = _largest_exponent(self.a, b - shared)

        def propose(key: PRNGKey) -> tuple[Array, Scalar]:
            x, log_probability = propose_shared(key)
            return x, log_probability + _exponent(self.a, b - shared, x) - bound

        return propose

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        """A proposal of the rejection."""
        return self.proposal()(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Every column given the others, then rotations of random pairs."""
        return _sweep_quadratic(key, x, jnp.zeros_like(x), self.a, self.b)


class _Columns(eqx.Module):
    """A matrix Langevin distribution without the checks, for draws of unit vectors."""

    f: Float[Array, "n p"]

    def proposal(self) -> Proposal:
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])


def propose_langevin(f: Float[Array, "n q"], basis: Float[Array, "n k"], freedom: int) -> Proposal:
    """Proposals for the density ``exp(tr(f^T x))`` of orthonormal matrices orthogonal to ``basis``.

    In the coordinates in which the columns of ``f`` are orthogonal, each column of ``x`` is drawn from the
    von Mises-Fisher distribution given the columns before it. The constants of these distributions depend on the
    columns drawn; their ratios to their largest values are the probability of acceptance (Hoff 2009, section 3.1).

    Args:
        f: The parameter.
        basis: Columns that are orthonormal or zero.
        freedom: ``n`` minus the number of columns of ``basis`` that are not zero.

    Returns:
        The proposal.
    """
    f = jax.vmap(lambda column: off(basis, column), in_axes=1, out_axes=1)(f)
    axes = jnp.linalg.svd(f, full_matrices=False)[2].T
    f = f @ axes

    def propose(key: PRNGKey) -> tuple[Array, Scalar]:
        found, log_probability = basis, jnp.zeros((), f.dtype)
        for j, key_column in enumerate(jax.random.split(key, f.shape[1])):
            column = f[:, j]
            if j > 0:
                rest = off(found, column)
                left = freedom - j
                log_probability = log_probability + log_0f1(left, rest @ rest) - log_0f1(left, column @ column)
            x = draw_von_mises_fisher(key_column, column, found, freedom - j)
            found = jnp.concatenate([found, x[:, None]], axis=1)
        return found[:, basis.shape[1] :] @ axes.T, log_probability

    return propose


def _sweep_quadratic(
    key: PRNGKey, x: Float[Array, "n p"], f: Float[Array, "n p"], a: Float[Array, "n n"], b: Float[Array, "p"]
) -> Float[Array, "n p"]:
    p = x.shape[1]
    key_pairs, key_columns, key_rotations = jax.random.split(key, 3)

    def update_column(j, x):
        others = jnp.roll(x, -j, axis=1)[:, 1:]
        complement = jnp.linalg.qr(others, mode="complete")[0][:, p - 1 :] if p > 1 else jnp.eye(len(x), dtype=x.dtype)
        quadratic = b[j] * (complement.T @ a @ complement)
        key_column = jax.random.fold_in(key_columns, j)
        z = draw_fisher_bingham(key_column, complement.T @ f[:, j], quadratic, _MAX_PROPOSALS)
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
        z = draw_fisher_bingham(jax.random.fold_in(key_rotations, i), linear, quadratic, _MAX_PROPOSALS)
        return x.at[:, pair].set(plane @ jnp.stack([z, turn @ z], axis=1))

    return newton_schulz(jax.lax.fori_loop(0, p // 2, rotate, x))


def _exponent(a: Float[Array, "n n"], b: Float[Array, "p"], x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
    """``sum_j b_j x_j^T a x_j``."""
    return jnp.einsum("...np,...np,p->...", x, jnp.einsum("nm,...mp->...np", a, x), b)


def _largest_exponent(a: Float[Array, "n n"], b: Float[Array, "p"]) -> Scalar:
    """Largest value of :func:`_exponent`, by von Neumann's trace inequality."""
    weights = jnp.concatenate([b, jnp.zeros(a.shape[0] - b.shape[0], b.dtype)])
    return jnp.linalg.eigvalsh(a) @ jnp.sort(weights)


@eqx.filter_jit
def _mapped(distribution, key: PRNGKey, shape: tuple[int, ...], limit: int, is_gibbs: bool = False) -> Array:
    def draw(key: PRNGKey) -> Array:
        if not is_gibbs:
            return first_accepted(key, distribution.proposal(), limit)
        key_start, key = jax.random.split(key)
        return jax.lax.fori_loop(
            0,
            limit,
            lambda i, x: distribution.sweep(jax.random.fold_in(key, i), x),
            distribution.start(key_start),
        )

    draws = jax.vmap(draw)(jax.random.split(key, math.prod(shape)))
    return draws.reshape(*shape, *draws.shape[1:])


@eqx.filter_jit
def _log_acceptance_rate(distribution: AbstractRejection, key: PRNGKey) -> Scalar:
    propose = distribution.proposal()
    _, log_probability = jax.vmap(propose)(jax.random.split(key, _NUM_PILOTS))
    return jax.scipy.special.logsumexp(log_probability) - math.log(_NUM_PILOTS)


def _refusal(distribution: AbstractRejection, log_rate: float, max_proposals: int) -> str:
    return (
        f"{type(distribution).__name__}: with these parameters and {distribution.event_shape[1]} columns about one "
        f"proposal in 10^{-log_rate / math.log(10):.1f} would be accepted, too few for exact draws within "
        f"max_proposals = {max_proposals}. Use gibbs_sample(key, shape, num_sweeps=...), sample log_prob with geodax.nuts "
        "or geodax.hmc on Stiefel(), or raise max_proposals."
    )


def _value(x: Array) -> Any:
    """The value in NumPy, or None while it is traced."""
    return None if isinstance(x, jax.core.Tracer) else np.asarray(x)


def _real_array(name: str, value: Any, ndim: int, dtype: Any = None) -> Array:
    x = jnp.asarray(value)
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


def _require_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    if x.shape[-len(shape) :] != tuple(shape):
        raise ValueError(
            f"{name}: log_prob expects points of shape (..., {', '.join(map(str, shape))}), found {x.shape}."
        )
