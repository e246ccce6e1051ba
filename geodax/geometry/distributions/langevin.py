"""Von Mises-Fisher distributions of unit vectors, matrix Langevin distributions of orthonormal matrices."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.distributions.arguments import known_value, points, real_array, tall_matrix
from geodax.geometry.distributions.frames import propose_langevin, sweep_langevin
from geodax.geometry.distributions.hypergeometric import log_0f1, log_0f1_columns, mean_resultant_length
from geodax.geometry.distributions.rejection import MAX_PROPOSALS, AbstractRejection, Proposal, mapped_draws


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
        mean_direction = real_array(name, mean_direction, 1)
        if mean_direction.shape[0] < 2:
            raise ValueError(f"{name}: expected at least 2 entries, found {mean_direction.shape[0]}.")
        length = known_value(jnp.linalg.norm(mean_direction))
        if length is not None and abs(length - 1) > 1e3 * jnp.finfo(mean_direction.dtype).eps:
            raise ValueError(f"{name}: expected a vector of length 1, found length {length:.6g}; divide by it.")
        concentration = real_array("VonMisesFisher: concentration", concentration, 0, mean_direction.dtype)
        value = known_value(concentration)
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
        x = points("VonMisesFisher", x, self.mean_direction.shape)
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
        self.f = tall_matrix("MatrixLangevin: f", f)

    @property
    def event_shape(self) -> tuple[int, int]:
        return self.f.shape[0], self.f.shape[1]

    @property
    def is_normalized(self) -> bool:
        return self.f.shape[1] <= 2

    def log_normalizer(self) -> Scalar:
        n, p = self.event_shape
        if p == 1:
            return log_0f1(n, jnp.sum(self.f**2))
        return log_0f1_columns(self.f) if p == 2 else super().log_normalizer()

    def log_weight(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        return jnp.einsum("np,...np->...", self.f, x)

    @property
    def is_cheap(self) -> bool:
        return self.event_shape[1] <= 3

    def proposal(self) -> Proposal:
        return propose_langevin(self.f, self.f[:, :0], self.f.shape[0])

    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        return self.proposal()(key)[0]

    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return sweep_langevin(key, x, self.f)
