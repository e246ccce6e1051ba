"""Deep ensembles and SWAG: their paths and moments beside plain loops, and their draws beside known distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax.run.errors import NonFiniteError, SamplingInterrupted
from geodax.run.swag import collected_moments

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

GENERATOR = np.random.default_rng(5)
INPUTS = GENERATOR.normal(size=(60, 3)) * np.array([1.0, 2.0, 0.5])
TARGETS = INPUTS @ np.array([1.0, -2.0, 3.0]) + 0.5 * GENERATOR.normal(size=60)
POSTERIOR = gx.Posterior(
    log_prior=lambda p: -0.5 * jnp.sum(p["w"] ** 2) - 0.5 * p["b"] ** 2,
    log_likelihood=lambda p, batch: -2.0 * (batch[1] - batch[0] @ p["w"] - p["b"]) ** 2,
    num_data=60,
)
WHOLE, PARTS = (gx.data.batches((INPUTS, TARGETS), batch_size=size) for size in (60, 12))
FEATURES = np.column_stack([np.ones(60), INPUTS])  # b, w
PRECISION = 4.0 * FEATURES.T @ FEATURES + np.eye(4)
MODE = np.linalg.solve(PRECISION, 4.0 * FEATURES.T @ TARGETS)


def start(key):
    return {"b": jnp.zeros(()), "w": jax.random.normal(key, (3,))}


def flat(tree, group="posterior"):
    """Draws as (chain, draw, 4)."""
    found = tree[group]
    return np.concatenate([found["b"].values[..., None], found["w"].values], axis=2)


def train(key, **options):
    options = {"batches": WHOLE, "num_steps": 30, "num_members": 3, "progress": False} | options
    return gx.train_ensemble(jax.random.clone(key), POSTERIOR, options.pop("position", start), **options)


def draw(key, **options):
    options = {"batches": PARTS, "num_steps": 0, "num_samples": 5, "learning_rate": 0.01, "progress": False} | options
    position = options.pop("position", {"b": jnp.array(MODE[0]), "w": jnp.array(MODE[1:])})
    return gx.swag(jax.random.clone(key), POSTERIOR, position, **options)


def test_progress_says_that_networks_are_trained(key):
    """Training was reported as warm-up, and its last step as sampling."""
    reports = []
    train(key, progress=reports.append)
    assert {(report.phase, report.num_warmup) for report in reports} == {("training", 0)}
    assert str(reports[-1]).startswith("training 30/30, ")


def test_members_follow_the_optimizer_on_the_mean_potential(key):
    """Catches a gradient of the sum in place of the mean, a missing or additional step, and equal starts."""
    starts = {"b": jnp.arange(3.0), "w": jnp.ones((3, 3)) * jnp.arange(3.0)[:, None]}
    found = flat(train(key, position=starts, stacked=True, optimizer=optax.sgd(0.05, momentum=0.9)))
    assert found.shape == (3, 1, 4)
    for member in range(3):
        here, velocity = np.concatenate([[member], np.full(3, member)]).astype(float), np.zeros(4)
        for _ in range(30):
            velocity = 0.9 * velocity + PRECISION @ (here - MODE) / 60
            here = here - 0.05 * velocity
        np.testing.assert_allclose(found[member, 0], here, rtol=1e-9)


def test_the_default_optimizer_reaches_the_mode_from_all_starts(key):
    """Catches members that stop early, and an ascent."""
    np.testing.assert_allclose(flat(train(key, num_steps=2000)), np.broadcast_to(MODE, (3, 1, 4)), atol=1e-4)


def test_members_are_those_of_the_highest_score(key):
    """Catches the last network returned in place of the best."""
    score = lambda p, batch: -((p["b"] - 0.1) ** 2)  # noqa: E731 - b passes 0.1 on its way to a mode beyond it
    assert abs(MODE[0]) < 0.1 or MODE[0] > 0.2 or MODE[0] < 0
    starts = {"b": jnp.array([0.4]), "w": jnp.array(MODE[1:])[None]}
    options = {"position": starts, "stacked": True, "num_members": 1, "optimizer": optax.sgd(0.01)}
    found = flat(train(key, **options, score=score, num_steps=200))[0, 0, 0]
    path = [flat(train(key, **options, num_steps=n))[0, 0, 0] for n in (1, 200)]
    assert abs(found - 0.1) < min(abs(path[0] - 0.1), abs(path[1] - 0.1))


@pytest.mark.parametrize("value", [jnp.nan, -jnp.inf])
def test_members_without_a_score_stop(key, value):
    """Catches networks of the start returned as the best ones; a score need not have a derivative."""

    def score(position, batch):
        return value + jax.pure_callback(lambda b: b, jax.ShapeDtypeStruct((), jnp.float64), position["b"])

    with pytest.raises(NonFiniteError, match="training score or its gradient is not finite even at the start"):
        train(key, score=score, num_members=1)


def test_collected_moments_are_those_of_the_points():
    """Catches deviations from the last mean in place of the running means, and moments of the last points only."""
    points = GENERATOR.normal(size=(9, 2, 3)) + 1e4  # large, so that squares lose digits
    found = collected_moments({"w": jnp.array(points)}, 4)
    mean, columns = np.zeros((2, 3)), []
    for i, point in enumerate(points):  # as in algorithm 1 of the paper
        mean = (i * mean + point) / (i + 1)
        columns.append(point - mean)
    np.testing.assert_allclose(found.mean["w"], points.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation["w"], points.std(axis=0), rtol=1e-7)
    np.testing.assert_allclose(found.columns["w"], np.array(columns[-4:]), atol=1e-9)


@pytest.mark.thorough
def test_draws_have_the_covariance_of_the_formula(key):
    """Catches missing factors 1/2 and K - 1, shared noise of the entries, and a mean that is the last point."""
    tree = draw(key, num_samples=40_000, num_collected=12, rank=5, learning_rate=0.02)
    points = flat(tree, "collected")[0]
    draws = flat(tree)[0]
    columns = np.array([points[i] - points[: i + 1].mean(axis=0) for i in range(12)])[-5:]
    expected = 0.5 * np.diag(points.var(axis=0)) + columns.T @ columns / (2 * 4)
    scale = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.05)
    assert np.all(np.abs(draws.mean(axis=0) - points.mean(axis=0)) < 4 * scale / 200)


@pytest.mark.thorough
def test_the_path_has_the_stationary_covariance_of_descent(key):
    """Catches a path with added noise, another learning rate, and points that are not a pass apart."""
    rate, momentum = 0.02, 0.8
    tree = draw(key, learning_rate=rate, momentum=momentum, num_collected=3000, rank=2, num_networks=4, collect_every=5)
    points = flat(tree, "collected")[:, 50:]
    assert tree.attrs["learning_rate"] == pytest.approx(rate)
    # x' = x + v', v' = momentum v - rate gradient / N, the gradient with the covariance of independent batches of 12
    slopes = 4.0 * FEATURES * (FEATURES @ MODE - TARGETS)[:, None]
    hessians = 4.0 * FEATURES[:, :, None] * FEATURES[:, None, :]
    hessians -= hessians.mean(axis=0)
    gain, covariance = rate / 60, np.zeros((4, 4))
    system = np.block([[np.eye(4) - gain * PRECISION, momentum * np.eye(4)], [-gain * PRECISION, momentum * np.eye(4)]])
    for _ in range(100):  # the noise grows with the distance from the mode, since Hessians of batches differ
        noise = 60**2 / 12 * (np.cov(slopes.T, ddof=0) + (hessians @ covariance @ hessians).mean(axis=0))
        drive = gain**2 * np.kron(np.ones((2, 2)), noise)
        both = np.linalg.solve(np.eye(64) - np.kron(system, system), drive.ravel()).reshape(8, 8)
        covariance = both[:4, :4]
    found = np.mean([np.cov(chain.T) for chain in points], axis=0)
    np.testing.assert_allclose(np.diag(found) / np.diag(covariance), 1.0, atol=0.1)


@pytest.mark.thorough
def test_without_a_rate_the_stiffest_direction_has_the_width_of_the_posterior(key):
    """Catches a rate of another temperature: without the factor ten the variance is a tenth."""
    tree = draw(key, learning_rate=None, num_collected=2000, rank=2, num_networks=4, collect_every=5)
    points = flat(tree, "collected")[:, 100:] - MODE
    curvature, directions = np.linalg.eigh(PRECISION)
    ratio = float(((points @ directions[:, -1]) ** 2).mean() * curvature[-1])
    assert 0.5 < ratio < 2.0


@pytest.mark.thorough
def test_networks_are_divided_among_the_chains(key):
    """Catches a draw from the distribution of another network, and one network for all chains of multi-SWAG."""
    starts = {"b": jnp.array([0.0, 50.0]), "w": jnp.zeros((2, 3))}
    options = {"position": starts, "stacked": True, "num_networks": 2, "num_chains": 4, "learning_rate": 1e-9}
    found = flat(draw(key, **options))[..., 0]
    np.testing.assert_allclose(found, np.broadcast_to([[0.0], [0.0], [50.0], [50.0]], (4, 5)), atol=1e-3)


@pytest.mark.thorough
def test_predictions_take_the_draws(key):
    """Catches draws in another layout than those of samplers."""
    tree = draw(key, num_steps=20, position=start, num_networks=2)
    apply = lambda p, x: x @ p["w"] + p["b"]  # noqa: E731
    found = gx.predictive.predict_numbers(tree, start(jax.random.key(8)), INPUTS, noise=0.5, apply=apply)
    assert found.num_draws == 10
    expected = (FEATURES @ flat(tree).reshape(-1, 4).T).mean(axis=1)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-9)


@pytest.mark.thorough
def test_interrupted_stages_resume(key, tmp_path):
    """Catches a stage that starts again, or is skipped, after an interruption."""
    options = {"num_steps": 40, "position": start, "num_networks": 2, "learning_rate": None}
    expected = flat(draw(key, **options))
    runs = 0

    def stop(progress):
        nonlocal runs
        if progress.iteration == progress.num_iterations:
            runs += 1
            if runs == 3:
                raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, SamplingInterrupted)):
        draw(key, **options, checkpoint=tmp_path / "swag", progress=stop)
    np.testing.assert_array_equal(flat(draw(key, **options, checkpoint=tmp_path / "swag")), expected)


def test_a_rate_that_is_too_large_stops(key):
    """Catches draws around a path that has diverged."""
    with pytest.raises(NonFiniteError, match="no longer finite"):
        draw(key, learning_rate=100.0, num_collected=400, collect_every=10)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda key: train(key, num_steps=0), ValueError, "num_steps must be at least 1"),
        (lambda key: train(key, num_members=0), ValueError, "num_members must be at least 1"),
        (lambda key: train(key, optimizer="adam"), TypeError, "init and update"),
        (
            lambda key: train(key, num_members=1, position=start(key) | {"steps": jnp.int32(0)}),
            TypeError,
            "position.steps: expected a floating-point array",
        ),
        (lambda key: train(key, objective=1.0), TypeError, "objective must be a function"),
        (lambda key: train(key, score=jnp.sum, score_every=31), ValueError, "score_every=31 is more than"),
        (lambda key: gx.train_ensemble(key, jnp.sum, start, batches=WHOLE, num_steps=1), TypeError, "gx.Posterior"),
        (lambda key: gx.swag(key, jnp.sum, start, batches=WHOLE, num_steps=1), TypeError, "gx.Posterior"),
        (lambda key: draw(key, rank=50), ValueError, "rank must be at most 40"),
        (lambda key: draw(key, momentum=1.0), ValueError, "momentum must be"),
        (lambda key: draw(key, num_networks=2, num_chains=3), ValueError, "multiple of num_networks=2"),
        (lambda key: draw(key, batches=gx.data.stream(lambda n: iter(()))), ValueError, "collect_every"),
    ],
)
def test_what_they_refuse(make, error, message, key):
    """Catches arguments that fail later, or inside a trace."""
    with pytest.raises(error, match=message):
        make(key)


@pytest.mark.thorough
def test_swag_refuses_manifolds_and_ensembles_keep_them(key):
    """Catches draws off a manifold, and members that leave theirs."""
    network = lambda k: gx.nn.MLP(3, "scalar", widths=(3, 3), orthogonal=True, dtype=jnp.float64, key=k)  # noqa: E731
    likelihood = gx.nn.GaussianLikelihood(0.5)
    posterior = gx.Posterior(
        log_prior=gx.nn.Priors([("*", gx.nn.Gaussian(1.0))]), log_likelihood=likelihood, num_data=60
    )
    with pytest.raises(ValueError, match="manifold"):
        gx.swag(key, posterior, network, batches=WHOLE, num_steps=1)
    space = gx.nn.geometry(network(jax.random.key(1)))
    found = gx.train_ensemble(
        jax.random.key(2),
        posterior,
        network,
        batches=WHOLE,
        num_steps=50,
        num_members=2,
        manifold=space,
        progress=False,
    )
    weights = found["posterior"]["layers.1.weight"].values[:, 0]
    np.testing.assert_allclose(weights.swapaxes(1, 2) @ weights, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-5)
