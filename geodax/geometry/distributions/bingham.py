"""Matrix Bingham distributions, and Bingham-von Mises-Fisher distributions with a linear term."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from geodax._precision import with_full_precision
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.distributions.arguments import quadratic_parameters, tall_matrix
from geodax.geometry.distributions.directions import propose_bingham, propose_fisher_bingham
from geodax.geometry.distributions.frames import exponent, largest_exponent, propose_langevin, sweep_quadratic
from geodax.geometry.distributions.hypergeometric import log_1f1
from geodax.geometry.distributions.rejection import AbstractRejection, Proposal


@with_full_precision
class BinghamVonMisesFisher(AbstractRejection):
    r"""The matrix Bingham-von Mises-Fisher distribution, :math:`\exp(\mathrm{tr}(f^T x) + \sum_j b_j x_j^T a x_j)`.

    ``log_prob`` leaves the constant out. ``sample`` is exact: for one column at any concentration, with a Bingham
    envelope; for more it accepts proposals of :class:`MatrixLangevin` (Hoff 2009, section 3.2), which works if the
    spread of the eigenvalues of ``a`` times ``b`` is moderate. A sweep of ``gibbs_sample`` draws every column given
    the others (Hoff 2009, section 3.3, with exact draws instead of a Markov step), then rotates random pairs of columns
    in their planes. The rotations are needed for square matrices, in which each column is determined by the others up
    to sign.

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
        self.f = tall_matrix("BinghamVonMisesFisher: f", f)
        n, p = self.f.shape
        self.a, self.b = quadratic_parameters("BinghamVonMisesFisher", a, jnp.ones(p) if b is None else b, self.f.dtype)
        if self.a.shape[0] != n or self.b.shape[0] != p:
            raise ValueError(
                f"BinghamVonMisesFisher: with f of shape {(n, p)}, expected a of shape {(n, n)} and b of shape {(p,)}, "
                f"found {self.a.shape} and {self.b.shape}."
            )

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.f.shape[0], self.f.shape[1]

    def log_weight(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
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

    The constant is computed for one column, :math:`{}_1F_1(1/2; n/2; b_1 a)`; with more ``is_normalized`` is False and
    ``log_prob`` leaves it out. ``sample`` is exact, with the angular central Gaussian envelope of Kent,
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
        self.a, self.b = quadratic_parameters("MatrixBingham", a, jnp.ones(1) if b is None else b)

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.a.shape[0], self.b.shape[0]

    @property
    def is_normalized(self) -> bool:
        return self.b.shape[0] == 1

    def log_normalizer(self) -> Scalar:
        return log_1f1(jnp.linalg.eigvalsh(self.b[0] * self.a)) if self.is_normalized else super().log_normalizer()

    def log_weight(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
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
