r"""Hidden Markov chains: marginal likelihood, smoothing and sampling of the states, in log space.

With states :math:`s_t`, initial distribution :math:`\pi`, transition matrix :math:`A` and emission densities
:math:`f_k(y_t)`, the forward recursion

.. math::
    \alpha_1(k) = \log\pi_k + \log f_k(y_1), \qquad
    \alpha_{t+1}(k) = \log f_k(y_{t+1}) + \log\sum_j \exp(\alpha_t(j) + \log A_{jk})

gives :math:`\log p(y_{1:T}) = \log\sum_k \exp\alpha_T(k)` in :math:`O(T K^2)` instead of the sum over :math:`K^T`
sequences (Rabiner 1989).
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Float, Int

from geodax._types import Array, PRNGKey, Scalar


def log_likelihood(
    log_emission: Float[Array, "T K"], log_transition: Float[Array, "K K"], log_initial: Float[Array, " K"]
) -> Scalar:
    """Compute the log density of the observations, summed over all sequences of states.

    All functions take the log density of each observation in each state, log transition probabilities, from the row's
    state to the column's, and log probabilities of the first state.
    """
    return logsumexp(_forward(log_emission, log_transition, log_initial)[-1])


def smooth(
    log_emission: Float[Array, "T K"], log_transition: Float[Array, "K K"], log_initial: Float[Array, " K"]
) -> Float[Array, "T K"]:
    """Compute the probabilities of the states at each time given all observations (forward-backward)."""
    forward = _forward(log_emission, log_transition, log_initial)

    def step(later: Array, emission: Array) -> tuple[Array, Array]:
        now = logsumexp(log_transition + (emission + later)[None, :], axis=1)
        return now, now

    last = jnp.zeros_like(log_initial)
    _, backward = jax.lax.scan(step, last, log_emission[1:], reverse=True)
    return jax.nn.softmax(forward + jnp.concatenate([backward, last[None]]), axis=-1)


def draw_states(
    key: PRNGKey,
    log_emission: Float[Array, "T K"],
    log_transition: Float[Array, "K K"],
    log_initial: Float[Array, " K"],
) -> Int[Array, " T"]:
    """Draw a sequence of states given all observations (forward filtering, backward sampling)."""
    forward = _forward(log_emission, log_transition, log_initial)
    # the argmax of log probabilities plus Gumbel noise is a categorical draw
    noise = jax.random.gumbel(key, forward.shape, forward.dtype)
    last = jnp.argmax(forward[-1] + noise[-1])

    def step(later: Array, scores: Array) -> tuple[Array, Array]:
        now = jnp.argmax(scores + log_transition[:, later])
        return now, now

    _, earlier = jax.lax.scan(step, last, (forward + noise)[:-1], reverse=True)
    return jnp.concatenate([earlier, last[None]])


def _forward(log_emission: Array, log_transition: Array, log_initial: Array) -> Float[Array, "T K"]:
    first = log_initial + log_emission[0]

    def step(before: Array, emission: Array) -> tuple[Array, Array]:
        now = emission + logsumexp(before[:, None] + log_transition, axis=0)
        return now, now

    _, later = jax.lax.scan(step, first, log_emission[1:])
    return jnp.concatenate([first[None], later])
