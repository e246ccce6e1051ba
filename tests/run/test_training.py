"""Training before sampling: the optimiser's own path, and the posterior afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax.run import driver
from geodax.run.errors import CheckpointError, NonFiniteError
from geodax.run.training import train_first
from tests.marks import slow

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

GENERATOR = np.random.default_rng(3)
NOISE, WIDTH = 0.01, 10.0  # of the targets, and of the prior
INPUTS = GENERATOR.normal(size=(400, 6)) * np.logspace(0, -3, 6)
TARGETS = INPUTS @ np.array([1.0, -1.0, 2.0, -3.0, 4.0, 5.0]) + NOISE * GENERATOR.normal(size=400)


def log_likelihood(w, batch):
    return -0.5 * ((batch[1] - batch[0] @ w) / NOISE) ** 2


REGRESSION = gx.Posterior(
    log_prior=lambda w: -0.5 * jnp.sum((w / WIDTH) ** 2), log_likelihood=log_likelihood, num_data=len(TARGETS)
)
PRECISION = INPUTS.T @ INPUTS / NOISE**2 + np.eye(6) / WIDTH**2
MEAN = np.linalg.solve(PRECISION, INPUTS.T @ TARGETS / NOISE**2)


def sampled(key, algorithm, batch_size=400, **settings):
    settings = {"num_samples": 400, "num_warmup": 1500, "num_chains": 8, "thinning": 5, "progress": False} | settings
    batches = gx.data.batches((INPUTS, TARGETS), batch_size=batch_size)
    start = settings.pop("start", jnp.zeros(6))
    return gx.sample(jax.random.clone(key), algorithm, start, batches=batches, **settings)


def values(tree):
    return np.asarray(tree["posterior"]["position"].values)


@pytest.mark.thorough
@pytest.mark.parametrize("is_found", [False, True])
def test_the_path_is_that_of_the_optimizer(key, is_found):
    """Catches steps of the sampler that are not undone, a wrong sign, and a gradient of another scale."""
    density = lambda x: -jnp.sum(jnp.cosh(x - jnp.arange(3.0)))  # noqa: E731
    algorithm = train_first(gx.sghmc(density, step_size=None if is_found else 0.1), 20, optimizer=optax.adam(0.1))
    adaptation, state = algorithm.adapt(60), algorithm.init(jnp.zeros(3))
    state = state if adaptation.begin is None else adaptation.begin(state)
    memory = adaptation.init(state)
    optimizer, here = optax.adam(0.1), jnp.zeros(3)
    expected, step, learn = optimizer.init(here), jax.jit(algorithm.step), jax.jit(adaptation.update)

    @jax.jit
    def descend(here, state):
        update, state = optimizer.update(jax.grad(lambda x: -density(x))(here), state, here)
        return optax.apply_updates(here, update), state

    for i, step_key in enumerate(jax.random.split(key, 20)):
        state, info = step(jax.random.clone(step_key), state)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            memory, state = learn(step_key, memory, state, info, jnp.int32(i))
            here, expected = descend(here, expected)
        np.testing.assert_allclose(state.position, here, rtol=1e-12, atol=1e-14)
    moves = []
    for i in range(20, 35):  # a sampler that finds its step size rests in the first ten iterations of its own warm-up
        before = state.position
        state, info = step(jax.random.fold_in(jax.random.key(1), i), state)
        moves.append(bool(jnp.any(state.position != before)))
        moved = state.position
        with jax.numpy_dtype_promotion("standard"):
            memory, state = learn(jax.random.key(2 + i), memory, state, info, jnp.int32(i))
        np.testing.assert_array_equal(state.position, moved)
    assert moves == [not is_found or i > 30 for i in range(20, 35)]


@pytest.mark.thorough
@pytest.mark.parametrize("chain_method", ["vectorized", "sequential"])
def test_the_sampler_waits_while_the_chain_trains(key, chain_method):
    """Catches steps that are computed to be undone, and a sampler that counts iterations from the end of training."""
    steps = lambda i: jnp.where(i < 40, jnp.inf, 1e-3)  # noqa: E731
    algorithm = train_first(gx.sghmc(REGRESSION, step_size=steps), 40)
    settings = {"num_warmup": 40, "num_samples": 3, "chain_method": chain_method}
    tree = sampled(key, algorithm, **settings)
    assert np.isfinite(values(tree)).all()
    with pytest.raises(NonFiniteError, match="iteration 39 of 55"):
        sampled(key, train_first(gx.sghmc(REGRESSION, step_size=steps), 39), **settings | {"num_warmup": 40})


@pytest.mark.parametrize(
    ("metric", "num_idle"),
    [(None, 40), (gx.metrics.Identity(), 40), (gx.metrics.Frozen(gx.metrics.RMSProp(), after=60), 0)],
)
def test_only_a_metric_that_learns_needs_steps_while_the_chain_trains(metric, num_idle):
    """Catches a metric that has seen one gradient when it is frozen."""
    assert train_first(gx.sghmc(REGRESSION, metric=metric), 40).adapt(60).num_idle == num_idle


@pytest.mark.thorough
def test_training_that_diverges_is_reported_where_it_does(key):
    """Catches a chain that is called finite until the sampler takes a step."""
    algorithm = train_first(gx.sghmc(REGRESSION), 1000, optimizer=optax.sgd(1.0))
    with jax.numpy_dtype_promotion("standard"), pytest.raises(NonFiniteError) as found:  # optax mixes types
        sampled(key, algorithm)
    assert found.value.iteration < 200


def trained(algorithm, start, num_training):
    """Where each iteration of the training leaves a chain."""
    adaptation, state = algorithm.adapt(num_training), algorithm.init(start)
    memory, places = adaptation.init(state), []
    step, learn = jax.jit(algorithm.step), jax.jit(adaptation.update)
    for i, step_key in enumerate(jax.random.split(jax.random.key(0), num_training)):
        state, info = step(jax.random.clone(step_key), state)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            memory, state = learn(step_key, memory, state, info, jnp.int32(i))
        places.append(float(state.position))
    return np.asarray(places)


def test_another_objective_and_a_score(key):
    """The objective has its maximum at 8, the density at 0; the chain begins where it passed 3, the score's maximum."""
    sampler = gx.sghmc(lambda x: -0.5 * x**2, step_size=0.1)
    options = {"optimizer": optax.sgd(0.1), "objective": lambda x, batch: -0.5 * (x - 8.0) ** 2}
    path = trained(train_first(sampler, 40, **options), jnp.zeros(()), 40)
    np.testing.assert_allclose(path, 8.0 * (1.0 - 0.9 ** np.arange(1, 41)), rtol=1e-12)
    nearest = path[np.abs(path - 3.0).argmin()]
    for score in (lambda x: -((x - 3.0) ** 2), lambda x: jnp.where(x < 4.0, -((x - 3.0) ** 2), jnp.nan)):
        scored = trained(train_first(sampler, 40, **options, score=lambda x, _, f=score: f(x)), jnp.zeros(()), 40)
        np.testing.assert_array_equal(scored, [*path[:-1], nearest])
    nowhere = trained(train_first(sampler, 40, **options, score=lambda x, _: jnp.nan * x), jnp.zeros(()), 40)
    assert np.isnan(nowhere[-1])  # not where it began, as if it were the best


@pytest.mark.parametrize("best", [3.0, 8.0])
def test_a_position_is_scored_on_the_batches_until_the_next(key, best):
    """What single batches add to a score must not decide: here the second, the fourth of each four stand out.

    Nor may scores of other positions, but for the last four, of a chain that hardly moves by then.
    """
    sampler = gx.sghmc(REGRESSION, step_size=0.1)
    options = {"optimizer": optax.sgd(0.1), "objective": lambda x, batch: -0.5 * jnp.sum((x - 8.0) ** 2)}

    def score(x, batch):
        return -jnp.sum((x - best) ** 2) + batch

    algorithm = train_first(sampler, 40, **options, score=score, score_every=4)
    adaptation, state = algorithm.adapt(40), algorithm.init(jnp.zeros(3))
    memory, path = adaptation.init(state), []
    info = jax.jit(algorithm.step)(jax.random.clone(key), state, (jnp.zeros((1, 3)), jnp.zeros(1)))[1]
    learn = jax.jit(adaptation.update)
    for i in range(40):
        batch = jnp.asarray([0.0, -1e4, 0.0, 1e4][i % 4])
        with jax.numpy_dtype_promotion("standard"):
            memory, state = learn(jax.random.key(i), memory, state, info, jnp.int32(i), batch)
        path.append(float(state.position[0]))
    exact = 8.0 * (1.0 - 0.9 ** np.arange(41))
    np.testing.assert_allclose(path[:-1], exact[1:-1], rtol=1e-12)
    compared = exact[[*range(0, 36, 4), 39]]
    np.testing.assert_allclose(path[-1], compared[np.abs(compared - best).argmin()], rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sghmc, slow(gx.sgrld)])
def test_a_far_posterior_is_found(key, sampler):
    """Inputs of very different scales: the sampler's own warm-up is not there in time, the optimiser is."""
    distance = {}
    for name, algorithm in (("alone", sampler(REGRESSION)), ("trained", train_first(sampler(REGRESSION), 1000))):
        draws = values(sampled(key, algorithm, num_samples=5, num_chains=2))
        distance[name] = np.einsum("...i,ij,...j->...", draws - MEAN, PRECISION, draws - MEAN).mean()
    assert distance["trained"] < 12  # 6 in equilibrium
    assert distance["alone"] > 100


@pytest.mark.thorough
@pytest.mark.parametrize("batch_size", [slow(400), 100])
def test_the_posterior_after_training(key, batch_size):
    """Catches a warm-up that begins anew at a wrong iteration, and momenta or steps that training leaves behind."""
    algorithm = train_first(gx.sghmc(REGRESSION, ordering="baoab"), 1000)
    draws = values(sampled(key, algorithm, batch_size, num_warmup=3000, num_samples=2000, thinning=20))
    stiff = np.linalg.eigh(PRECISION)[1][:, -2:]  # the directions in which chains mix
    scaled = (draws - MEAN) @ stiff * np.sqrt(np.linalg.eigvalsh(PRECISION)[-2:])
    np.testing.assert_allclose((scaled**2).mean((0, 1)), 1.0, atol=0.2)


@pytest.mark.thorough
def test_directions_stay_on_the_sphere_and_reach_the_mode(key):
    """Catches updates that are added to a point of a manifold."""
    mode = jnp.array([2.0, -1.0, 0.5, 1.0]) / 2.5
    algorithm = train_first(gx.sghmc(lambda x: 500.0 * x @ mode, manifold=gx.Sphere(), ordering="baoab"), 300)
    tree = gx.sample(
        key, algorithm, -mode + 0.0, num_samples=500, num_warmup=800, num_chains=8, thinning=10, progress=False
    )
    heights = values(tree) @ np.asarray(mode)
    assert float(tree["sample_stats"]["residual"].max()) < 1e-12
    errors = heights.mean(1).std(ddof=1) / np.sqrt(8)
    depth = 1.5 / 500.0  # (n - 1) / (2 kappa), for large kappa
    assert abs(1.0 - heights.mean() - depth) < 5 * errors + 0.1 * depth


@pytest.mark.thorough
def test_a_run_that_is_stopped_while_it_trains_goes_on(key, tmp_path, monkeypatch):
    """Catches an optimiser, or a best place, whose memory is not in the checkpoint."""
    algorithm = train_first(gx.sghmc(REGRESSION), 12, score=lambda w, batch: -jnp.sum((w - 0.2) ** 2))
    settings = {"num_warmup": 30, "num_samples": 10, "num_chains": 2}
    whole = values(sampled(key, algorithm, 100, **settings))
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)

    def stop(progress):
        if progress.iteration == 7:
            raise KeyboardInterrupt

    where = {"checkpoint": tmp_path / "run", "checkpoint_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        sampled(key, algorithm, 100, **settings, **where | {"progress": stop})
    resumed = []
    tree = sampled(key, algorithm, 100, **settings, **where | {"progress": lambda p: resumed.append(p.iteration)})
    assert 0 < resumed[0] < 12
    np.testing.assert_array_equal(values(tree), whole)
    with pytest.raises(CheckpointError, match="its num_training is 12, here it is 11"):
        sampled(key, train_first(gx.sghmc(REGRESSION), 11), 100, **settings, **where)


@pytest.mark.thorough
def test_a_checkpoint_of_another_training_is_refused(key, tmp_path):
    """Catches a resumed run whose draws belong to settings that nobody has given."""
    settings = {"num_warmup": 8, "num_samples": 2, "num_chains": 2, "thinning": 1, "checkpoint": tmp_path}

    def run(**training):
        given = {"optimizer": optax.adam(0.1), "objective": None, "score": lambda w, batch: -jnp.sum((w - 0.2) ** 2)}
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            return values(sampled(key, train_first(gx.sghmc(REGRESSION), 4, **given | training), 100, **settings))

    first = run()
    np.testing.assert_array_equal(run(), first)
    for training, words in (
        ({"optimizer": None}, "its optimizer"),
        ({"score": None}, "its training score is True, here it is False"),
        ({"score": lambda w, batch: -jnp.sum((w - 0.3) ** 2)}, "its training score at the starting points"),
        ({"objective": lambda w, batch: -jnp.sum(w**2)}, "its training objective is False, here it is True"),
    ):
        with pytest.raises(CheckpointError, match=words):
            run(**training)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: train_first(gx.nuts(lambda x: -x @ x), 10), TypeError, "expected a stochastic-gradient sampler"),
        (lambda: train_first(gx.sghmc(REGRESSION), 0), ValueError, "num_training must be at least 1"),
        (lambda: train_first(gx.sghmc(REGRESSION), 10, optimizer=0.1), TypeError, "functions init and update"),
        (lambda: train_first(gx.sghmc(REGRESSION), 10, score=0.1), TypeError, "score must be a function"),
        (lambda: train_first(gx.sghmc(REGRESSION), 10, score_every=0), ValueError, "score_every must be at least 1"),
        (
            lambda: train_first(gx.sghmc(REGRESSION), 10, score=lambda *_: 0.0, score_every=11),
            ValueError,
            "score_every=11 is more than the 10 iterations of training",
        ),
    ],
)
def test_what_it_refuses(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_warmup_that_is_too_short(key):
    with pytest.raises(ValueError, match="num_training=10 iterations of training need a num_warmup of at least 11"):
        sampled(key, train_first(gx.sghmc(REGRESSION), 10), num_warmup=10)
    fixed = train_first(gx.sghmc(REGRESSION, step_size=1e-3), 10)
    assert np.isfinite(values(sampled(key, fixed, num_warmup=10, num_samples=2))).all()
    with pytest.raises(ValueError, match="need a num_warmup of at least 10, found 9"):
        sampled(key, fixed, num_warmup=9)


def test_complex_arrays_are_refused(key):
    algorithm = train_first(gx.sghmc(lambda x: -jnp.sum(jnp.abs(x) ** 2), manifold=gx.Euclidean()), 3)
    with pytest.raises(TypeError, match="position is complex"):
        gx.sample(key, algorithm, jnp.ones(2, complex), num_samples=2, num_warmup=10, progress=False)
