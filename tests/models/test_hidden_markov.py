"""Hidden Markov chains against the sum over all sequences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.models.network import hidden_markov

T, K = 5, 3


@pytest.fixture
def chain(key):
    one, two, three = jax.random.split(key, 3)
    emission = 3.0 * jax.random.normal(one, (T, K))
    transition = jax.nn.log_softmax(jax.random.normal(two, (K, K)), axis=1)
    return emission, transition, jax.nn.log_softmax(jax.random.normal(three, (K,)))


def _enumerated(chain):
    """All sequences and their log joint densities."""
    emission, transition, initial = map(np.asarray, chain)
    sequences = np.array(list(itertools.product(range(K), repeat=T)))
    joint = initial[sequences[:, 0]] + emission[np.arange(T), sequences].sum(axis=1)
    return sequences, joint + transition[sequences[:, :-1], sequences[:, 1:]].sum(axis=1)


def test_likelihood_is_the_sum_over_sequences(chain):
    """A transposed transition matrix or a lost first state changes it."""
    _, joint = _enumerated(chain)
    np.testing.assert_allclose(hidden_markov.log_likelihood(*chain), np.logaddexp.reduce(joint), rtol=1e-12)
    short = (chain[0][:1], *chain[1:])
    expected = np.logaddexp.reduce(np.asarray(chain[2] + chain[0][0]))
    np.testing.assert_allclose(hidden_markov.log_likelihood(*short), expected, rtol=1e-12)


def test_smoothing_is_the_marginal_over_sequences(chain):
    """Filtered probabilities, which forget the future, differ."""
    sequences, joint = _enumerated(chain)
    weights = np.exp(joint - np.logaddexp.reduce(joint))
    expected = np.stack([np.bincount(sequences[:, t], weights, K) for t in range(T)])
    np.testing.assert_allclose(hidden_markov.smooth(*chain), expected, atol=1e-12)


def test_gradient_of_the_likelihood_is_the_smoothed_probability(chain):
    """Fisher's identity: the derivative by log emissions is the posterior probability."""
    gradient = jax.grad(lambda emission: hidden_markov.log_likelihood(emission, *chain[1:]))(chain[0])
    np.testing.assert_allclose(gradient, hidden_markov.smooth(*chain), atol=1e-12)


def test_drawn_sequences_have_the_law_of_the_posterior(chain, key):
    """Frequencies of neighbouring states against enumeration; independent draws of the states would have others."""
    sequences, joint = _enumerated(chain)
    weights = np.exp(joint - np.logaddexp.reduce(joint))
    number = 20_000
    keys = jax.random.split(jax.random.fold_in(key, 1), number)
    drawn = np.asarray(jax.jit(jax.vmap(lambda k: hidden_markov.draw_states(k, *chain)))(keys))
    for t in range(T - 1):
        exact = np.bincount(sequences[:, t] * K + sequences[:, t + 1], weights, K * K)
        found = np.bincount(drawn[:, t] * K + drawn[:, t + 1], minlength=K * K) / number
        error = np.sqrt(np.maximum(exact * (1 - exact), 1 / number) / number)
        assert np.abs((found - exact) / error).max() < 4.5


def test_improbable_observations_do_not_underflow(chain):
    """Log space holds densities of exp(-1e5), and the gradient stays finite."""
    emission, transition, initial = chain
    value, gradient = jax.value_and_grad(hidden_markov.log_likelihood)(emission - 1e5, transition, initial)
    np.testing.assert_allclose(value, hidden_markov.log_likelihood(*chain) - T * 1e5, rtol=1e-12)
    assert bool(jnp.isfinite(gradient).all())
