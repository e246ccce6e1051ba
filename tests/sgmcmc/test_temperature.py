"""The width of draws at a temperature, against the exact stationary covariance of the discretised chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

NUM_DATA, BATCH, TEMPERATURE = 40, 8, 0.25


def regression():
    """A linear regression with noise of variance one and a standard normal prior, neither centred nor isotropic."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(NUM_DATA, 2)) @ np.array([[1.5, 0.6], [0.0, 0.7]])
    return x, x @ np.array([1.0, -2.0]) + rng.normal(size=NUM_DATA)


def moments_of_batches(x, y):
    """Precision, mean, and covariances over batches (with replacement) of Hessian and of gradient at the mean."""
    precision = x.T @ x + np.eye(2)
    mean = np.linalg.solve(precision, x.T @ y)
    outer = x[:, :, None] * x[:, None, :]
    spread = outer - outer.mean(axis=0)
    slopes = x * (y - x @ mean)[:, None]
    weight = NUM_DATA**2 / BATCH / NUM_DATA
    hessians = weight * np.einsum("nab,ncd->acbd", spread, spread).reshape(4, 4)
    return precision, mean, hessians, weight * (slopes - slopes.mean(axis=0)).T @ (slopes - slopes.mean(axis=0))


def stationary(transition, into, out_of, injected, hessians, slopes):
    """Solve S = A S A^T + E[D C S C^T D^T] + Q for the state's covariance; D are the changes with the batch.

    ``into`` maps a change of the gradient to one of the state, ``out_of`` the state to the position.
    """
    size = len(transition)
    both = np.kron(transition, transition)
    both = both + np.kron(into, into) @ hessians @ np.kron(out_of, out_of)
    given = injected + into @ slopes @ into.T
    return np.linalg.solve(np.eye(size**2) - both, given.ravel()).reshape(size, size)


def langevin(h, precision, hessians, slopes):
    eye = np.eye(2)
    return stationary(eye - h * precision, h * eye, eye, 2 * TEMPERATURE * h * eye, hessians, slopes)


def hamiltonian(step, friction, precision, hessians, slopes):
    """Position moves first, then the momentum is kicked at the new position."""
    eye, zero = np.eye(2), np.zeros((2, 2))
    transition = np.block([[eye, step * eye], [-step * precision, (1 - friction) * eye - step**2 * precision]])
    injected = np.block([[zero, zero], [zero, 2 * friction * TEMPERATURE * eye]])
    return stationary(
        transition, np.vstack([zero, step * eye]), np.hstack([eye, step * eye]), injected, hessians, slopes
    )[:2, :2]


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["sgrld", "sghmc"])
def test_variances_below_temperature_one_are_those_of_the_closed_form(sampler, key):
    """Catches a temperature that also scales the noise of batches, and one that scales the wrong power of the noise."""
    x, y = regression()
    precision, mean, hessians, slopes = moments_of_batches(x, y)
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, batch: -0.5 * (batch[1] - batch[0] @ t) ** 2,
        num_data=NUM_DATA,
    )
    if sampler == "sgrld":
        algorithm = gx.sgrld(posterior, step_size=0.004, temperature=TEMPERATURE)
        expected = langevin(0.004, precision, hessians, slopes)
    else:
        algorithm = gx.sghmc(posterior, step_size=0.03, friction=0.2, temperature=TEMPERATURE)
        expected = hamiltonian(0.03, 0.2, precision, hessians, slopes)
    batches = gx.data.batches((jnp.asarray(x), jnp.asarray(y)), batch_size=BATCH)

    def chain(key):
        def step(state, i):
            key_step, key_batch = jax.random.split(jax.random.fold_in(key, i))
            return algorithm.step(key_step, state, batches.draw(key_batch, i))[0], None

        state = jax.lax.scan(step, algorithm.init(jnp.asarray(mean)), jnp.arange(600))[0]
        return state.position - mean

    draws = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(key, 4000)))
    products = draws[:, :, None] * draws[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(axis=0) - expected) < 4.5 * error), (products.mean(axis=0), expected)
    ideal = TEMPERATURE * np.linalg.inv(precision)
    assert np.all(np.diag(expected) > 1.15 * np.diag(ideal))  # so the noise of batches is not negligible here
