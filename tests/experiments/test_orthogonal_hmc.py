"""The toys of orthogonal HMC: their density and coordinates, and its printed schemes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from experiments import render
from experiments.orthogonal_hmc import geometry_in_print, truth
from experiments.orthogonal_hmc.matrix_mixture import (
    MatrixMixture,
    coordinate_names,
    coordinates,
    exact_coordinates,
    log_density,
    position_of,
    triangle,
)
from experiments.orthogonal_hmc.printed import CONSISTENT, GEODESIC, LITERAL, algorithm_1
from experiments.orthogonal_hmc.samplers import problem
from geodax.diagnostics.findings import ess

EXPERIMENTS = render.experiments()
MIXTURES = {(n, p): MatrixMixture(n, p, 0.3, (1.0, 2.0)) for n, p in ((2, 2), (3, 2), (3, 3))}


@pytest.mark.thorough
@pytest.mark.parametrize("mixture", MIXTURES.values(), ids=str)
def test_positions_are_matrices(mixture, key):
    """A lost sign: Q R is the matrix, the coordinates are those of the exact draws."""
    x = np.asarray(jax.random.normal(key, (mixture.n, mixture.p)))
    position = position_of(mixture, x)
    np.testing.assert_allclose(position["q"] @ triangle(mixture, position), x, atol=1e-14)
    found = coordinates(mixture)(position)
    assert found.shape == (len(coordinate_names(mixture)),)
    q = np.linalg.qr(x)[0]
    np.testing.assert_allclose(np.abs(found[: q.size]), np.abs(q).ravel(), atol=1e-14)
    if mixture.n == mixture.p:
        assert np.linalg.det(np.reshape(found[: q.size], q.shape)) > 0
        mirrored = position | {"q": position["q"].at[:, -1].multiply(-1.0), "last": -position["last"]}
        mirrored["above"] = (
            position["above"].at[jnp.asarray(np.triu_indices(mixture.p, 1)[0] == mixture.p - 1)].multiply(-1.0)
        )
        np.testing.assert_allclose(coordinates(mixture)(mirrored), found, atol=1e-14)
        np.testing.assert_allclose(log_density(mixture)(mirrored), log_density(mixture)(position), rtol=1e-14)


def test_the_mixture_is_a_product_over_entries(key):
    """The sum over all 16 modes, with the volume element, by hand."""
    mixture = MIXTURES[2, 2]
    position = position_of(mixture, np.asarray(jax.random.normal(key, (2, 2))))
    x = np.asarray(position["q"] @ triangle(mixture, position))
    modes = np.stack(np.meshgrid(*[[1.0, 2.0]] * 4, indexing="ij"), -1).reshape(16, 2, 2)
    log_sum = np.log(np.exp(-((x - modes) ** 2).sum((1, 2)) / (2 * 0.3**2)).sum())
    # R_11 to the power n - 1, and once more because its logarithm is sampled
    expected = log_sum + 2 * position["log_diagonal"][0]
    np.testing.assert_allclose(log_density(mixture)(position), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("space", ["polar", "gHMC", "literal", "consistent"])
@pytest.mark.parametrize("size", [(2, 2), (3, 2)], ids=str)
def test_moments_agree_with_exact_draws(size, space):
    """A missing volume element moves the mean of R_11 by a third of its standard deviation and more."""
    mixture = MIXTURES[size]
    target = problem(mixture, space)
    step_size = 0.04 if space == "polar" else 0.08
    algorithm = gx.hmc(
        target.logdensity_fn, manifold=target.manifold, step_size=step_size, num_integration_steps=20, length_jitter=0.3
    )
    run = gx.sample(
        jax.random.key(sum(map(ord, space))),
        algorithm,
        target.start,
        num_samples=4000,
        num_warmup=500,
        num_chains=4,
        keep=target.keep,
        progress=False,
    )
    exact = truth.from_draws(truth.with_squares(exact_coordinates(mixture, np.random.default_rng(0), 1_000_000)))
    draws = run["posterior"]["position"].values
    found = truth.pooled([truth.worth(chain[None]) for chain in draws], exact._asdict())
    assert found["z"] < 4.5
    assert ess(draws, method="mean").min() > 400  # the estimate from one chain of this length is at times a tenth of it


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheme", "manifold"),
    [
        (LITERAL, gx.Stiefel(metric="literal")),
        (CONSISTENT, gx.Stiefel()),
        (GEODESIC, gx.Stiefel(metric="embedded", flow="geodesic")),
    ],
    ids=["literal", "consistent", "geodesic"],
)
def test_the_printed_algorithm_mended_is_ours(scheme, manifold, key):
    """Acceptance and average of the experiment's own loop against the library's, from exact draws."""
    target = gx.distributions.MatrixLangevin(jnp.asarray([[2.0, 0.3], [0.0, 1.0], [0.5, 0.0]]))
    key_start, key_ours, key_theirs = jax.random.split(key, 3)
    start = target.sample(key_start, (4096,))
    iterate = algorithm_1(scheme, target.log_prob)
    step = jax.jit(jax.vmap(lambda k, x: iterate(k, x, jnp.asarray(0.8), 3)))
    theirs = step(jax.random.split(key_theirs, len(start)), start)
    algorithm = gx.hmc(target.log_prob, manifold=manifold, step_size=0.8, num_integration_steps=3)
    _, ours = jax.jit(jax.vmap(lambda k, x: algorithm.step(k, algorithm.init(x))))(
        jax.random.split(key_ours, len(start)), start
    )
    difference = np.mean(theirs.acceptance) - np.mean(ours.acceptance_rate)
    error = np.sqrt((np.var(theirs.acceptance) + np.var(ours.acceptance_rate)) / len(start))
    assert abs(difference) < 4 * error
    moved = np.asarray(theirs.logdensity - jax.vmap(target.log_prob)(start))
    assert abs(moved.mean()) < 4 * moved.std() / np.sqrt(len(start))


@pytest.mark.thorough
def test_unstable_forms_are_right_for_one_step(key):
    """What loses the manifold in the end is no other map: one step agrees with the stable form to rounding."""
    x = gx.Stiefel().random_point(key, jnp.zeros((5, 2)))
    r = gx.Stiefel(metric="embedded").sample_momentum(jax.random.fold_in(key, 1), x)
    drifts = {name: scheme.drift(x, r, jnp.asarray(0.4)) for name, scheme in geometry_in_print.DRIFTS.items()}
    seven, skew, woodbury, gram = drifts.values()
    for one, other in ((seven, skew), (woodbury, gram)):
        np.testing.assert_allclose(one[0], other[0], atol=1e-13)
        np.testing.assert_allclose(one[1], other[1], atol=1e-13)
