"""Data drawn from the models, without a fit."""

import jax
import jax.numpy as jnp
import numpy as np

from geodax.models.network import density


def network_counts(generator, theta, num_windows, *, likelihood="poisson"):
    """Draw states and counts of some windows from the model."""
    transition = np.asarray(theta.transition)
    states = [generator.integers(len(transition))]
    for _ in range(num_windows - 1):
        states.append(generator.choice(len(transition), p=transition[states[-1]]))
    rates = np.exp(np.asarray(density.log_rates(theta)))
    dispersion = np.asarray(theta.dispersion) if likelihood == "negative-binomial" else None
    return np.array(states), density.draw_counts(generator, rates, np.array(states), dispersion)


def ppca_rows(key, theta, num_rows):
    """Draw rows from the model."""
    n, p = theta.components.shape
    key_score, key_noise = jax.random.split(key)
    scores = theta.scale[None, :] * jax.random.normal(key_score, (num_rows, p), theta.mean.dtype)
    noise = jnp.broadcast_to(theta.noise, (1, n)) * jax.random.normal(key_noise, (num_rows, n), theta.mean.dtype)
    return jnp.asarray(theta.mean[None, :] + scores @ theta.components.T + noise)
