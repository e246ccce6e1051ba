"""Mistakes about batches that would give a wrong posterior without an error."""

import contextlib
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

MIXED = "depends on the others of its batch"


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((90, 3)).astype(np.float32)
    return x, x @ np.array([1.0, -2.0, 0.5], np.float32) + np.float32(3.0)


class Line(eqx.Module):
    slopes: jax.Array

    def __init__(self, key):
        self.slopes = jax.random.normal(key, (3,), jnp.float32)


def each(w, batch):
    x, y = batch[:2]
    return -0.5 * (y - x @ w.slopes) ** 2


def normalised(w, batch):
    x, y = batch
    return each(w, ((x - x.mean(0, keepdims=True)) / x.std(0, keepdims=True), y))


def crossed(w, batch):
    x, y = batch
    return (-0.5 * (y[None, :] - (x @ w.slopes)[:, None]) ** 2).sum(axis=1)


def centred_targets(w, batch):
    return each(w, (batch[0], batch[1] - batch[1].mean()))


def posterior_of(log_likelihood, num_data=90, **options):
    priors = gx.nn.Priors([("*", gx.nn.Gaussian(1.0))])
    return gx.Posterior(log_prior=priors, log_likelihood=log_likelihood, num_data=num_data, **options)


def sampled(posterior, batches, **options):
    algorithm = gx.sghmc(posterior, step_size=1e-3)
    return gx.sample(jax.random.key(0), algorithm, Line, num_samples=2, batches=batches, progress=False, **options)


@contextlib.contextmanager
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.thorough
@pytest.mark.parametrize("size", [3, 7, 20, 60, 89])
@pytest.mark.parametrize("log_likelihood", [normalised, crossed, centred_targets])
def test_examples_that_depend_on_others_are_named(rows, log_likelihood, size):
    """Batches of all sizes, drawn or streamed."""
    with pytest.warns(UserWarning, match=MIXED):
        sampled(posterior_of(log_likelihood), gx.data.batches(rows, batch_size=size))
    streamed = gx.data.stream(lambda first: (tuple(a[:size] for a in rows) for _ in range(10)))
    with pytest.warns(UserWarning, match=MIXED):
        sampled(posterior_of(log_likelihood), streamed)


@pytest.mark.thorough
def test_augmented_and_optimised_posteriors_are_looked_at(rows):
    batches = gx.data.batches(
        rows, batch_size=20, augment=lambda key, e: (e[0] + jax.random.normal(key, (3,), jnp.float32), e[1])
    )
    with pytest.warns(UserWarning, match=MIXED):
        sampled(posterior_of(normalised), batches)
    with pytest.warns(UserWarning, match="train_ensemble: the log likelihood of an example " + MIXED):
        gx.train_ensemble(
            jax.random.key(0), posterior_of(normalised), Line, batches=batches, num_steps=2, progress=False
        )
    with no_warnings():
        sampled(posterior_of(each), batches)


@pytest.mark.thorough
def test_nothing_is_said_of_separate_examples_or_whole_data(rows):
    """Also in half precision, with weights, in parts, and with scalars in the batch."""
    with no_warnings():
        for size in (1, 2, 45, 89, 90):
            sampled(posterior_of(each), gx.data.batches(rows, batch_size=size))
            sampled(posterior_of(each, compute_dtype=jnp.bfloat16), gx.data.batches(rows, batch_size=size))
        sampled(posterior_of(normalised), gx.data.batches(rows, batch_size=90))
        sampled(posterior_of(each, num_micro_batches=4), gx.data.batches(rows, batch_size=20))
        streamed = gx.data.stream(lambda first: ((rows[0][:9], rows[1][:9], np.float32(1.0)) for _ in range(10)))
        sampled(posterior_of(each), streamed)
        weighted = gx.data.batches((*rows, np.ones(90, np.float32)), batch_size=20)
        sampled(posterior_of(gx.nn.Weighted(each)), weighted)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["normal", "ivon", "stream"])
def test_fits_name_examples_that_depend_on_others(rows, method):
    """Catches a check of samplers only, and one of whole data or with other random numbers in each batch."""
    start = Line(jax.random.key(0))

    def fitted(log_likelihood, size):
        network, options = gx.vi.GaussianOver(start), {"batch_size": size}
        data = rows
        if method == "ivon":
            network = start
            options["algorithm"] = gx.vi.ivon(start, log_likelihood, 0.1, num_data=90)
        if method == "stream":
            data, options = gx.data.stream(lambda first: (tuple(a[:size] for a in rows) for _ in range(9))), {}
        options["num_data"] = 90
        gx.vi.fit(jax.random.key(1), network, log_likelihood, data, num_steps=2, progress=False, **options)

    for log_likelihood in (normalised, crossed, centred_targets):
        with pytest.warns(UserWarning, match=r"vi\.fit: the log likelihood of an example " + MIXED):
            fitted(log_likelihood, 20)
    with no_warnings():
        fitted(each, 20)
        fitted(crossed, 90)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["mean-field", "whvi", "mc-dropout"])
def test_layers_that_draw_for_each_example_do_not_mix_them(rows, kind):
    network = gx.nn.MLP(3, "scalar", widths=(4,), key=jax.random.key(0))
    layers = gx.nn.variational(network, kind, key=jax.random.key(1))
    with no_warnings():
        gx.vi.fit(
            jax.random.key(2), layers, gx.nn.GaussianLikelihood(1.0), rows, num_steps=2, batch_size=20, progress=False
        )


@pytest.mark.thorough
def test_a_likelihood_that_is_summed_is_an_error_that_says_so(rows):
    batches = gx.data.batches(rows, batch_size=20)
    with pytest.raises(ValueError, match="Leave out the sum or mean over the batch"):
        sampled(posterior_of(lambda w, batch: each(w, batch).sum()), batches)
    with pytest.raises(ValueError, match="sum over all axes but the first"):
        sampled(posterior_of(lambda w, batch: normalised(w, batch)[:, None]), batches)
    with pytest.raises(ValueError, match=r"shapes \(B, 1\) and \(B,\) were combined to \(B, B\)"):
        sampled(posterior_of(lambda w, batch: -((batch[1][:, None] - (batch[0] @ w.slopes)[None]) ** 2)), batches)


class Loader:
    """Batches of a pass, with or without a length."""

    def __init__(self, rows, size):
        self.parts = [tuple(a[k : k + size] for a in rows) for k in range(0, len(rows[0]) - size + 1, size)]

    def __iter__(self):
        return iter(self.parts)


class Counted(Loader):
    def __len__(self):
        return len(self.parts)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Loader, Counted])
def test_a_loader_of_other_data_is_named(rows, kind):
    """At once if it has a length, else at the end of a pass; a last batch may be left out or filled up."""
    wrong = r"num_data is {}, but a pass of the loader has 4 batches of 20, 80 examples"
    steps = {"num_warmup": 0} if kind is Counted else {"num_warmup": 6}
    for count in (900, 101, 60, 20):
        with pytest.warns(UserWarning, match=wrong.format(count)):
            sampled(posterior_of(each, count), gx.data.from_loader(kind(rows, 20)), **steps)
        with pytest.warns(UserWarning, match=wrong.format(count)):
            sampled(posterior_of(each, count), gx.data.from_loader(lambda number: kind(rows, 20)), **steps)
    with no_warnings():
        for count in (61, 80, 90, 99):
            sampled(posterior_of(each, count), gx.data.from_loader(kind(rows, 20)), **steps)


@pytest.mark.thorough
def test_members_that_would_be_equal_are_refused(rows):
    start, posterior = Line(jax.random.key(1)), posterior_of(each)
    whole, some = gx.data.batches(rows, batch_size=90), gx.data.batches(rows, batch_size=30)
    streamed = gx.data.stream(lambda first: (rows for _ in range(100)))

    def trained(position, batches, **options):
        options = {"num_steps": 3, "num_members": 3, "progress": False} | options
        found = gx.train_ensemble(jax.random.key(0), posterior, position, batches=batches, **options)
        return found["posterior"]["slopes"].values[:, 0]

    for batches in (whole, streamed):
        with pytest.raises(ValueError, match=r"3 members that start from one position .* key -> position"):
            trained(start, batches)
        assert len(trained(start, batches, num_members=1)) == 1
        assert np.ptp(trained(Line, batches), axis=0).min() > 1e-3
        three = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(Line, jax.random.split(jax.random.key(2), 3)))
        assert np.ptp(trained(three, batches, stacked=True), axis=0).min() > 1e-3
    assert np.ptp(trained(start, some), axis=0).min() > 0.0


def test_sampling_within_a_program_is_refused(rows):
    def mean(scale):
        found = gx.sample(
            jax.random.key(0), gx.nuts(lambda x: -jnp.sum(x**2) / scale), jnp.zeros(2), num_samples=2, progress=False
        )
        return found["posterior"]["x"].values.mean()

    with pytest.raises(TypeError, match=r"called inside jax\.jit, vmap, grad or scan, .* algorithm\.step"):
        jax.jit(mean)(1.0)


def test_vmap_around_a_run_is_refused(rows):
    """Catches tracers that are found only in a jitted program: under vmap alone errors were those of JAX."""
    posterior = posterior_of(each)
    batches = gx.data.batches(rows, batch_size=20)

    def sampled_with(key, slopes):
        algorithm = gx.sghmc(posterior, step_size=1e-3)
        return gx.sample(key, algorithm, slopes, num_samples=2, batches=batches, progress=False)

    starts = jnp.zeros((2, 3), jnp.float32)
    for axes in ((0, None), (None, 0)):
        key = jax.random.key(0) if axes[0] is None else jax.random.split(jax.random.key(0))
        start = starts[0] if axes[1] is None else starts
        with pytest.raises(TypeError, match=r"sample: called inside jax\.jit, vmap, .* num_chains"):
            jax.vmap(sampled_with, axes)(key, start)
    over = gx.vi.GaussianOver(starts[0])
    with pytest.raises(TypeError, match=r"vi\.fit: called inside jax\.jit, vmap, .* gx\.vi\.ascent"):
        jax.vmap(lambda key: gx.vi.fit(key, over, each, rows, num_steps=2, progress=False).history.elbo)(
            jax.random.split(jax.random.key(1))
        )
    network = gx.nn.MLP(3, "scalar", widths=(4,), key=jax.random.key(2))
    likelihood = gx.nn.GaussianLikelihood(1.0)
    for name, approximated in (
        ("laplace_posterior", lambda network: gx.nn.laplace_posterior(network, likelihood, rows)),
        (
            "last_layer_laplace",
            lambda network: gx.nn.last_layer_laplace(network, likelihood, rows, where=lambda net: net.layers[-1]),
        ),
    ):
        with pytest.raises(TypeError, match=f"{name}: called inside"):
            eqx.filter_jit(approximated)(network)


@pytest.mark.thorough
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_loss_in_place_of_a_log_likelihood_is_named(rows, sign, recwarn):
    """Catches silence where the density has no bound; the log likelihoods of far targets are none."""
    posterior = posterior_of(lambda w, batch: sign * each(w, batch))
    draws = gx.sample(
        jax.random.key(0),
        gx.sgrld(posterior),
        Line,
        num_samples=100,
        num_warmup=100,
        num_chains=2,
        batches=gx.data.batches(rows, batch_size=20),
        progress=False,
    )
    named = [str(found.message) for found in recwarn if "a loss in place of a log likelihood" in str(found.message)]
    assert len(named) == (sign < 0)
    still = [finding.advice for finding in gx.diagnostics.check(draws) if finding.title == "A chain that never moved"]
    assert all("a density without a bound" in advice for advice in still)


@pytest.mark.thorough
def test_a_prior_of_large_density_is_no_loss(rows):
    """Catches a potential that is taken for a log likelihood: wide networks have large log priors."""
    network = gx.nn.MLP(3, "scalar", widths=(300, 300), key=jax.random.key(0))
    posterior = gx.Posterior(
        log_prior=gx.nn.Priors(),
        log_likelihood=gx.nn.GaussianLikelihood(10.0, lambda w, x: jax.vmap(w)(x)),
        num_data=90,
    )
    algorithm = gx.sghmc(posterior, step_size=1e-4)
    batches = gx.data.batches(rows, batch_size=20)
    with no_warnings():
        draws = gx.sample(
            jax.random.key(0), algorithm, network, num_samples=2, num_chains=1, batches=batches, progress=False
        )
    assert -float(draws["sample_stats"]["potential"][0, -1]) / 90 > 400  # the bound for four numbers
