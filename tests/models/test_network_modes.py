"""Modes of the hidden Markov network model: low-rank fits of counts, the search, and starts near a mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.app.network.modes import mode_findings
from geodax.models.network import density, low_rank_counts
from geodax.models.network.counts import COUNT_LIKELIHOODS, observations
from geodax.models.network.density import NetworkParameters, NetworkPrior
from geodax.models.network.low_rank_counts import Factors, WeightedCounts
from geodax.models.network.modes import find_modes, starting_point
from tests.models.simulations import network_counts

C, K, T = 5, 3, 60
PAIRS = np.triu_indices(C)


def _problem(generator, dispersion, intercept_scale):
    weights = generator.uniform(3, 6, len(PAIRS[0]))
    sums = weights * generator.uniform(0.2, 9, len(weights))
    return WeightedCounts(sums, weights, PAIRS, C, dispersion, 6.0, intercept_scale)


def _factors(generator, rank, num):
    vectors = np.linalg.qr(generator.standard_normal((num, C, rank)))[0]
    return Factors(vectors, 2 * generator.standard_normal((num, rank)), generator.standard_normal(num))


@pytest.mark.parametrize(("dispersion", "intercept_scale"), [(0.0, None), (0.4, 1.3)])
def test_information_of_low_rank_counts(dispersion, intercept_scale):
    """Gradient by automatic differentiation; information as the expected Hessian, which is that at sums = expected."""
    generator = np.random.default_rng(0)
    problem = _problem(generator, dispersion, intercept_scale)
    at = _factors(generator, 2, 1)
    if intercept_scale is None:
        at = at._replace(intercept=np.zeros(1))

    def value(step, sums):
        vectors = at.vectors[0] + step[: 2 * C].reshape(C, 2)
        eigenvalues = at.eigenvalues[0] + step[2 * C : 2 * C + 2]
        intercept = at.intercept[0] + (step[-1] if intercept_scale is not None else 0.0)
        form = vectors @ jnp.diag(eigenvalues) @ vectors.T
        eta = form[PAIRS] + intercept
        mean = jnp.exp(eta)
        if dispersion:
            log = jnp.log1p(dispersion * mean)
            total = sums @ (eta - log) - problem.weights @ log / dispersion
        else:
            total = sums @ eta - problem.weights @ mean
        total = total - 0.5 * jnp.sum(form**2) / 6.0**2
        return total - (0.5 * (intercept / intercept_scale) ** 2 if intercept_scale is not None else 0.0)

    zero = jnp.zeros(2 * C + 2 + (intercept_scale is not None))
    gradient, information = low_rank_counts.information(problem, at)
    np.testing.assert_allclose(gradient[0], jax.jit(jax.grad(value))(zero, problem.sums), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        low_rank_counts.objective(problem, at)[0], jax.jit(value)(zero, problem.sums), rtol=1e-12
    )

    # expected second derivatives of the likelihood have no curvature of the map to log rates in them
    form = (at.vectors[0] * at.eigenvalues[0]) @ at.vectors[0].T
    expected = problem.weights * np.exp(form[PAIRS] + at.intercept[0])
    flat = WeightedCounts(expected, problem.weights, PAIRS, C, dispersion, 1e12, 1e12 if intercept_scale else None)
    without_prior = low_rank_counts.information(flat, at)[1][0]
    hessian = jax.jit(jax.hessian(lambda step: value(step, expected) - _prior(step, at, intercept_scale)))(zero)
    np.testing.assert_allclose(without_prior, -hessian, rtol=1e-8, atol=1e-8)
    # and the prior's own part is that of |L|^2
    assert np.linalg.matrix_rank(information[0], tol=1e-8) == len(zero) - 3


def _prior(step, at, intercept_scale):
    vectors = at.vectors[0] + step[: 2 * C].reshape(C, 2)
    form = vectors @ jnp.diag(at.eigenvalues[0] + step[2 * C : 2 * C + 2]) @ vectors.T
    value = -0.5 * jnp.sum(form**2) / 6.0**2
    return value - (0.5 * ((at.intercept[0] + step[-1]) / intercept_scale) ** 2 if intercept_scale is not None else 0.0)


def test_fits_are_stationary():
    """Each climb, if it goes on, ends where the gradient vanishes, and no lower than it began."""
    generator = np.random.default_rng(1)
    problem = _problem(generator, 0.3, 2.0)
    begun = low_rank_counts.starts(problem, 2, generator.standard_normal((6, C, C)))
    found, values = low_rank_counts.fit(problem, begun)
    assert np.all(values >= low_rank_counts.objective(problem, begun))
    for _ in range(3):
        found, _ = low_rank_counts.fit(problem, found)
    gradient, matrix = low_rank_counts.information(problem, found)
    # in units of the log density: what a Newton step would still gain
    left = np.einsum("bd,bde,be->b", gradient, np.linalg.pinv(matrix, rcond=1e-10), gradient)
    assert left.max() < 1e-3
    np.testing.assert_allclose(
        np.swapaxes(found.vectors, 1, 2) @ found.vectors, np.broadcast_to(np.eye(2), (6, 2, 2)), atol=1e-12
    )


@pytest.fixture(scope="module", params=COUNT_LIKELIHOODS)
def found(request):
    """Three separate states, simulated, and the modes of their posterior."""
    generator = np.random.default_rng(2)
    vectors = np.linalg.qr(generator.standard_normal((K, C, 2)))[0]
    dispersion = np.full(K, 0.2 if request.param == "negative-binomial" else 0.0)
    transition = 0.8 * np.eye(K) + 0.2 / K
    truth = NetworkParameters(vectors, np.tile([5.0, 3.0], (K, 1)), np.array([-2.0, 0.5, 3.0]), transition, dispersion)
    with jax.enable_x64(True):
        states, counts = network_counts(np.random.default_rng(3), truth, T, likelihood=request.param)
    data = observations(counts, likelihood=request.param)
    prior = NetworkPrior(intercept_scale=5.0)
    return np.asarray(states), data, prior, find_modes(data, K, 2, prior, num_starts=6, seed=0)


def _position(theta, data):
    position = {
        "vectors": tuple(theta.vectors),
        "eigenvalues": theta.eigenvalues,
        "log_ratios": np.log(theta.transition[:, :-1] / theta.transition[:, -1:]),
        "intercept": theta.intercept,
    }
    return position | ({"log_dispersion": np.log(theta.dispersion)} if data.levels is not None else {})


@pytest.mark.thorough
def test_the_highest_mode_is_that_of_the_states(found):
    """It is above what the truth would give, at a stationary point of the density that is sampled."""
    states, data, prior, modes = found
    assert np.mean(modes[0].probabilities.argmax(axis=1) == states) > 0.95
    assert np.all(np.diff([mode.log_density for mode in modes]) <= 0)
    np.testing.assert_allclose(modes[0].moves.sum(), T - 1, rtol=1e-9)
    function = jax.jit(density.log_density(data, prior))
    position = jax.tree.map(jnp.asarray, _position(modes[0].theta, data))
    np.testing.assert_allclose(function(position), modes[0].log_density, rtol=1e-10)
    gradient = jax.jit(jax.grad(function))(position)
    for name in set(position) - {"vectors"}:
        # in units of the log density: a step of a tenth gains next to nothing
        assert float(jnp.abs(gradient[name]).max()) < 0.5, name
    for w, slope in zip(position["vectors"], gradient["vectors"], strict=True):
        inner = w.T @ slope
        assert float(jnp.abs(slope - w @ (inner + inner.T) / 2).max()) < 5.0


@pytest.mark.thorough
def test_starts_are_apart_and_as_high_as_draws_could_be(found):
    """Different for each key; lower than the mode by what twice the posterior's width in d directions costs."""
    _, data, prior, modes = found
    function = jax.jit(density.log_density(data, prior))
    falls = []
    for seed in range(12):
        start = starting_point(jax.random.key(seed), modes[0], data, prior)
        for w in start["vectors"]:
            np.testing.assert_allclose(w.T @ w, np.eye(2), atol=1e-10)
        falls.append(modes[0].log_density - float(function(jax.tree.map(jnp.asarray, start))))
    freedom = K * (2 * C - 3 + 2 + 1 + 2)
    assert min(falls) > 0
    assert 0.5 * freedom < np.mean(falls) < 8 * freedom
    assert np.std(falls) > 1


def test_findings_of_modes(found):
    """Near modes are noted, far ones are not; draws above the highest are a warning."""
    modes = found[3]
    top = modes[0].log_density
    far, near = (modes[0]._replace(log_density=top - gap) for gap in (300.0, 4.0))
    assert mode_findings([modes[0], far], np.array([[top - 20.0]])) == []
    (note,) = mode_findings([modes[0], near, far], np.array([[top - 20.0]]))
    assert note.severity == "note"
    assert "4.0 below" in note.detail
    (warning,) = mode_findings([modes[0], far], np.array([[top - 20.0, top + 3.0]]))
    assert warning.severity == "warning"
    assert "num_starts" in warning.advice
