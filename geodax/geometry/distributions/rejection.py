"""Compiled and vectorised rejection and Gibbs sampling, for any distribution."""

import abc
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Bool, Float, Inexact

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._random import log_uniform
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.distributions.arguments import points

MAX_PROPOSALS = 100_000
_NUM_PILOTS = 256
_LEAST_EXPECTED = 50.0  # acceptances within max_proposals; a draw then fails with probability exp(-50)
_AT_A_TIME = 1024
_OTHER_WAYS = (
    "Use gibbs_sample(key, shape, num_sweeps=...), in NumPyro num_sweeps=..., sample log_prob with geodax.nuts or "
    "geodax.hmc on Stiefel(), or raise max_proposals."
)

Proposal = Callable[[PRNGKey], tuple[Array, Scalar]]


def first_accepted(key: PRNGKey, propose: Proposal, max_proposals: int) -> Array:
    """Return the first accepted proposal, or NaN after ``max_proposals`` rejections.

    ``propose`` maps a key to a value and the logarithm of its acceptance probability.
    """
    like = jax.eval_shape(propose, key)[0]

    def is_open(carry: tuple[PRNGKey, Array, Bool[Array, ""], Array]) -> Bool[Array, ""]:
        _, _, is_accepted, count = carry
        return ~is_accepted & (count < max_proposals)

    def attempt(carry: tuple[PRNGKey, Array, Bool[Array, ""], Array]):
        key, _, _, count = carry
        key, key_proposal, key_uniform = jax.random.split(key, 3)
        value, log_probability = propose(key_proposal)
        return key, value, log_uniform(key_uniform, like.dtype) < log_probability, count + 1

    start = (key, jnp.zeros(like.shape, like.dtype), jnp.asarray(False), jnp.asarray(0))
    _, value, is_accepted, _ = jax.lax.while_loop(is_open, attempt, start)
    return jnp.where(is_accepted, value, jnp.nan)


def accepted(key: PRNGKey, propose: Proposal, num_draws: int, max_proposals: int) -> Array:
    """Return the first accepted proposals; NaN for those missing after ``max_proposals`` for each of them.

    Proposals are drawn in blocks. With a loop for each draw all would wait for the one that is rejected most often.
    """
    like = jax.eval_shape(propose, key)[0]
    size = max(1, min(num_draws, _AT_A_TIME))
    most = min(num_draws * max_proposals // size, 2**31 - 1)

    def is_open(carry: tuple[PRNGKey, Array, Array, Array]) -> Bool[Array, ""]:
        _, _, found, count = carry
        return (found < num_draws) & (count < most)

    def attempt(key: PRNGKey) -> tuple[Array, Bool[Array, ""]]:
        key_proposal, key_uniform = jax.random.split(key)
        value, log_probability = propose(key_proposal)
        return value, log_uniform(key_uniform, like.dtype) < log_probability

    def attempts(carry: tuple[PRNGKey, Array, Array, Array]):
        key, draws, found, count = carry
        key, key_block = jax.random.split(key)
        values, are_accepted = jax.vmap(attempt)(jax.random.split(key_block, size))
        numbers = found + jnp.cumsum(are_accepted, dtype=found.dtype)
        draws = draws.at[jnp.where(are_accepted, numbers - 1, num_draws)].set(values, mode="drop")
        return key, draws, numbers[-1], count + 1

    start = (key, jnp.full((num_draws, *like.shape), jnp.nan, like.dtype), jnp.asarray(0), jnp.asarray(0))
    return jax.lax.while_loop(is_open, attempts, start)[1]


@with_full_precision
class AbstractRejection(eqx.Module):
    """A distribution of orthonormal n x p matrices that is sampled by rejection."""

    @property
    @abc.abstractmethod
    def event_shape(self) -> tuple[int, int]:
        """Rows and columns of a draw."""

    @property
    @abc.abstractmethod
    def is_cheap(self) -> bool:
        """Whether the acceptance rate is known to be high enough for all parameters."""

    @property
    def is_normalized(self) -> bool:
        """Whether :meth:`log_prob` has the normalising constant."""
        return False

    def log_normalizer(self) -> Scalar:
        """Compute the logarithm of the mean of the unnormalised density over the uniform distribution.

        Raises:
            NotImplementedError: For distributions and numbers of columns of which it is not known.
        """
        name, columns = type(self).__name__, self.event_shape[1]
        raise NotImplementedError(
            f"{name}: the normalising constant is not implemented for {columns} columns; log_prob leaves it out."
        )

    @abc.abstractmethod
    def log_weight(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Compute the logarithm of the unnormalised density."""

    def log_prob(self, x: Float[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        """Compute the log density, of which the constant is left out unless :attr:`is_normalized`."""
        weight = self.log_weight(points(type(self).__name__, x, self.event_shape))
        if not self.is_normalized:
            return weight
        with jax.ensure_compile_time_eval():  # of fixed parameters the constant is not part of a traced program
            constant = _log_normalizer(self)
        return weight - constant

    @abc.abstractmethod
    def proposal(self) -> Proposal:
        """``key -> (matrix, logarithm of its acceptance probability)``."""

    @abc.abstractmethod
    def sweep(self, key: PRNGKey, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Run one sweep of a Gibbs sampler, which leaves the distribution invariant."""

    @abc.abstractmethod
    def start(self, key: PRNGKey) -> Float[Array, "n p"]:
        """Draw a random initial matrix for the Gibbs sampler."""

    def log_acceptance_rate(self, key: PRNGKey) -> Scalar:
        """Estimate the logarithm of the acceptance probability of :meth:`sample` from 256 proposals."""
        return _log_acceptance_rate(self, key)

    def sample(
        self, key: PRNGKey, shape: int | tuple[int, ...] = (), *, max_proposals: int = MAX_PROPOSALS
    ) -> Float[Array, "*shape n p"]:
        """Sample independently and exactly by rejection.

        Args:
            key: A PRNG key.
            shape: Shape of the stack of draws.
            max_proposals: Maximal number of proposals per draw, on average over the draws.

        Returns:
            The draws.

        Raises:
            ValueError: If the acceptance rate is so low that draws would exceed ``max_proposals``.
            RuntimeError: Under ``jit`` or ``vmap``, when draws had no accepted proposal.
        """
        owner = f"{type(self).__name__}.sample"
        key, shape = _checks.random_key(owner, key), _checks.shape(owner, shape)
        max_proposals = _checks.whole(owner, "max_proposals", max_proposals)
        key_pilot, key_draws = jax.random.split(key)
        is_concrete = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((key, self)))
        is_safe = self.is_cheap and max_proposals >= MAX_PROPOSALS
        if is_concrete and not is_safe:
            log_rate = float(self.log_acceptance_rate(key_pilot))
            if not log_rate + math.log(max_proposals) > math.log(_LEAST_EXPECTED):
                raise ValueError(_refusal(self, log_rate, max_proposals))
        draws = mapped_draws(self, key_draws, shape, max_proposals)
        if is_safe:
            return draws
        failure = f"{type(self).__name__}: some draws had no accepted proposal in max_proposals = {max_proposals}"
        if not is_concrete:
            return eqx.error_if(draws, ~jnp.isfinite(draws), f"{failure}. {_OTHER_WAYS}")
        if not bool(jnp.all(jnp.isfinite(draws))):
            raise ValueError(f"{failure}. {_OTHER_WAYS}")
        return draws

    def gibbs_sample(
        self, key: PRNGKey, shape: int | tuple[int, ...] = (), *, num_sweeps: int = 100
    ) -> Float[Array, "*shape n p"]:
        """Sample independently, each draw from its own Markov chain: approximate, at any concentration.

        Every step of a sweep draws exactly from a conditional distribution, so there is nothing to tune, but a chain
        may need many sweeps to cross between modes. Compare two values of ``num_sweeps``.

        Args:
            key: A PRNG key.
            shape: Shape of the stack of draws.
            num_sweeps: Number of sweeps over all columns in each chain.

        Returns:
            The draws.

        Raises:
            ValueError: Unless ``num_sweeps`` is at least 1.
        """
        owner = f"{type(self).__name__}.gibbs_sample"
        key, shape = _checks.random_key(owner, key), _checks.shape(owner, shape)
        num_sweeps = _checks.whole(owner, "num_sweeps", num_sweeps)
        return mapped_draws(self, key, shape, num_sweeps, is_gibbs=True)


def mapped_draws(
    distribution, key: PRNGKey, shape: tuple[int, ...], limit: int, is_gibbs: bool = False
) -> Inexact[Array, "..."]:
    """Sample a stack of independent draws, by rejection or by Gibbs chains, in one compiled program."""
    return _mapped_draws(distribution, key, shape, limit, is_gibbs)


@eqx.filter_jit
def _mapped_draws(distribution, key: PRNGKey, shape: tuple[int, ...], limit: int, is_gibbs: bool) -> Array:
    def chain(key: PRNGKey) -> Array:
        key_start, key = jax.random.split(key)
        return jax.lax.fori_loop(
            0, limit, lambda i, x: distribution.sweep(jax.random.fold_in(key, i), x), distribution.start(key_start)
        )

    number = math.prod(shape)
    if is_gibbs:
        draws = jax.vmap(chain)(jax.random.split(key, number))
    else:
        draws = accepted(key, distribution.proposal(), number, limit)
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
        f"max_proposals = {max_proposals}. {_OTHER_WAYS}"
    )


_log_normalizer = jax.jit(lambda distribution: distribution.log_normalizer())
