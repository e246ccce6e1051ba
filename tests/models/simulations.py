"""Data drawn from the models, without a fit."""

import jax
import jax.numpy as jnp

from geodax.models.network import density


def network_counts(key, theta, num_windows, *, likelihood="poisson"):
    """Draw states and counts of some windows from the model."""
    key_first, key_states, key_counts = jax.random.split(key, 3)
    log_transition = jnp.log(jnp.asarray(theta.transition))
    first = jax.random.randint(key_first, (), 0, len(log_transition))

    def step(state, key):
        following = jax.random.categorical(key, log_transition[state]).astype(state.dtype)
        return following, state

    _, states = jax.lax.scan(step, first, jax.random.split(key_states, num_windows))
    return states, density.draw_counts(key_counts, theta, states, likelihood=likelihood)


def ppca_rows(key, theta, num_rows):
    """Draw rows from the model."""
    n, p = theta.components.shape
    key_score, key_noise = jax.random.split(key)
    scores = theta.scale[None, :] * jax.random.normal(key_score, (num_rows, p), theta.mean.dtype)
    noise = jnp.broadcast_to(theta.noise, (1, n)) * jax.random.normal(key_noise, (num_rows, n), theta.mean.dtype)
    return jnp.asarray(theta.mean[None, :] + scores @ theta.components.T + noise)
