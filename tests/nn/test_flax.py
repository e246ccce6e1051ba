"""Networks of Flax and Haiku: only their parameters are sampled, and priors by rule find them by their usual names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

pytestmark = [pytest.mark.relaxed, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def log_density(tree):
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree))


def refused(position, words):
    """By ``sample``, by ``init`` and by variational inference, in the same words."""
    algorithm = gx.sghmc(log_density, step_size=0.1)
    for attempt in (
        lambda: gx.sample(jax.random.key(0), algorithm, position, num_samples=2, num_chains=2, progress=False),
        lambda: gx.sample(
            jax.random.key(0), algorithm, lambda key: position, num_samples=2, num_chains=2, progress=False
        ),
        lambda: algorithm.init(position),
        lambda: gx.vi.GaussianOver(position),
    ):
        with pytest.raises(TypeError, match=words):
            attempt()


@pytest.fixture
def model():
    nnx = pytest.importorskip("flax.nnx", reason="needs Flax: pip install flax")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(3, 4, rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

    return Model(nnx.Rngs(0))


def test_collections_of_batch_statistics_are_refused():
    """They are floating-point arrays, which were sampled as if they had a prior and a likelihood."""
    position = {"params": {"kernel": jnp.ones((2, 2))}, "batch_stats": {"norm": {"mean": jnp.ones(2)}}}
    words = r"batch_stats\.norm\.mean is no parameter.*variables\[\"params\"\]"
    refused(position, words)
    parts = gx.Product({"batch_stats": gx.Euclidean()})
    with pytest.raises(TypeError, match=words):
        gx.hmc(log_density, manifold=parts, step_size=0.1, num_integration_steps=2).init(position)


def test_random_keys_are_refused():
    refused({"w": jnp.ones(2), "rng": jax.random.key(0)}, r"rng is no parameter \(but a PRNG key\)")


def test_parameters_with_names_of_statistics_are_sampled():
    """Catches a check that goes by names which parameters have, too."""
    position = {"mean": jnp.ones(2), "var": jnp.ones(2), "batch_stats_weight": jnp.ones(2)}
    algorithm = gx.sghmc(log_density, step_size=0.1)
    draws = gx.sample(jax.random.key(0), algorithm, position, num_samples=2, num_chains=1, progress=False)
    assert set(draws["posterior"]) == set(position)


@pytest.mark.thorough
def test_variables_of_nnx_are_refused_by_their_type(model):
    """The paths of their statistics and counters say nothing."""
    from flax import nnx

    _, params, statistics, rest = nnx.split(model, nnx.Param, nnx.BatchStat, ...)
    refused(statistics, r"norm\.mean is no parameter \(but BatchStat\).*nnx\.split\(model, nnx\.Param, \.\.\.\)")
    refused(rest, r"dropout\.rngs\.count is no parameter \(but RngCount\)")
    refused(nnx.split(model)[1], r"is no parameter \(but (RngCount|BatchStat)\)")
    with pytest.raises(TypeError, match=r"is no parameter \(but"):  # a module is callable
        gx.sample(jax.random.key(0), gx.sghmc(log_density, step_size=0.1), model, num_samples=2, num_chains=1)
    refused({"counts": nnx.to_pure_dict(rest)["dropout"]["rngs"]["count"]}, "floating-point|real")
    assert gx.sghmc(log_density, step_size=0.1).init(params).position is params


@pytest.mark.thorough
def test_rules_find_variables_of_nnx_and_parameters_of_linen(model, key):
    """Catches rules that must be written for the ending .value, and biases that have the scale of weights."""
    from flax import linen, nnx

    rules = gx.nn.Priors(
        [("*.kernel", gx.nn.Gaussian(0.3)), ("norm.*", gx.nn.Laplace(2.0)), ("*bias", gx.nn.Gaussian("fan_in"))]
    )
    params = nnx.split(model, nnx.Param, ...)[1]
    found = {path: (type(law).__name__, law.scale) for path, _, law in rules.describe(params)}
    assert found == {
        "dense.kernel.value": ("Gaussian", 0.3),
        "dense.bias.value": ("Gaussian", 1.0),
        "norm.bias.value": ("Laplace", 2.0),
        "norm.scale.value": ("Laplace", 2.0),
    }
    drawn = rules.sample(key, params)
    assert jax.tree.structure(drawn) == jax.tree.structure(params)
    linear = linen.Dense(4).init(key, jnp.ones((1, 3)))
    by_rule = gx.nn.Priors([("*.kernel", gx.nn.Gaussian(0.3)), ("*.bias", gx.nn.Gaussian(2.0))])
    expected = gx.nn.Gaussian(0.3).log_density(linear["params"]["kernel"]) + gx.nn.Gaussian(2.0).log_density(
        jnp.zeros(4)
    )
    np.testing.assert_allclose(by_rule(linear), expected, rtol=1e-6)


def test_the_last_axis_of_a_kernel_are_its_outputs(key):
    """Catches the fan-out of Flax's kernels in place of their fan-in, under the default priors."""
    kernels = {"dense": (64, 10), "conv": (3, 3, 4, 6), "pointwise": (1, 1, 1, 8), "to_one": (50, 1)}
    params = {name: {"kernel": jnp.zeros(shape), "bias": jnp.zeros(shape[-1:])} for name, shape in kernels.items()}
    scales = {path: law.scale for path, _, law in gx.nn.Priors().describe(params)}
    fan_in = {"dense": 64, "conv": 36, "pointwise": 1, "to_one": 50}
    assert scales == pytest.approx(
        {f"{name}.kernel": (2 / size) ** 0.5 for name, size in fan_in.items()}
        | {f"{name}.bias": 1.0 for name in fan_in}
    )
    drawn = gx.nn.Priors().sample(key, params)["dense"]["kernel"]
    assert np.std(drawn) == pytest.approx((2 / 64) ** 0.5, rel=0.15)


def test_a_bias_of_nnx_with_several_axes_is_a_bias(key):
    """Catches a role read from ``value`` instead of the name of the variable: the scale would be that of a weight."""
    nnx = pytest.importorskip("flax.nnx", reason="needs Flax: pip install flax")
    state = nnx.State({"norm": {"bias": nnx.Param(jnp.zeros((50, 40)))}})
    drawn = jax.tree.leaves(gx.nn.Priors().sample(key, state))[0]
    assert np.std(drawn) == pytest.approx(1.0, abs=0.1)


@pytest.mark.thorough
def test_the_state_of_haiku_is_refused_and_its_parameters_are_sampled(key):
    """The averages of batch normalisation are floating-point arrays; names of modules have slashes, which stores forbid."""
    haiku = pytest.importorskip("haiku", reason="needs Haiku: pip install dm-haiku")
    forward = haiku.transform_with_state(
        lambda x: haiku.BatchNorm(True, True, 0.9)(haiku.nets.MLP([4, 2])(x), is_training=True)
    )
    params, state = forward.init(key, jnp.ones((2, 3)))
    refused(state, r"mean_ema\.average is no parameter \(but a batch statistic\).*Haiku")
    algorithm = gx.sghmc(log_density, step_size=0.1)
    draws = gx.sample(jax.random.key(1), algorithm, params, num_samples=2, num_chains=1, progress=False)
    assert "mlp.~.linear_0.w" in draws["posterior"]
    found = gx.predictive.predict_classes(
        draws, params, np.ones((5, 3), np.float32), apply=lambda params, x: forward.apply(params, state, None, x)[0]
    )
    assert found.probabilities.shape == (5, 2)


@pytest.mark.thorough
def test_adapters_of_nnx_parameters(model):
    """The state keeps its variables; paths are without ``.value``, and statistics stay where they were."""
    from flax import nnx

    model.eval()
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    start = gx.nn.adapt(params, rank=2, where="*.kernel", key=jax.random.key(0))
    assert list(start.adapters) == ["dense.kernel"]

    def apply(adapted, x):
        whole = nnx.merge(graph, adapted.merged(), rest)
        return whole.norm(whole.dense(x))

    x = jnp.ones((2, 3))
    np.testing.assert_array_equal(apply(start, x), model.norm(model.dense(x)))
    drawn = gx.nn.Priors().sample(jax.random.key(1), start)
    expected = x @ (model.dense.kernel[...] + drawn.adapters["dense.kernel"].matrix) + model.dense.bias[...]
    np.testing.assert_allclose(jax.jit(apply)(drawn, x), model.norm(expected), rtol=1e-5, atol=1e-6)


def trainee():
    """A network of NNX: its graph, its parameters, and data for it."""
    nnx = pytest.importorskip("flax.nnx", reason="needs Flax: pip install flax")

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.hidden = nnx.Linear(3, 4, rngs=rngs)
            self.out = nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(nnx.tanh(self.hidden(x)))

    graph, params = nnx.split(Network(nnx.Rngs(0)), nnx.Param)
    x = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    return graph, params, (jnp.asarray(x), jnp.asarray((x[:, 0] > 0).astype(np.int32)))


@pytest.mark.parametrize("is_adapted", [False, True])
def test_geometry_of_nnx_parameters(is_adapted):
    """The tree of manifolds lost the nodes of the state, so that nothing that used it ran."""
    _, params, _ = trainee()
    position = {"body": gx.nn.adapt(params, rank=1, key=jax.random.key(0)), "head": params} if is_adapted else params
    manifold = gx.nn.geometry(position)
    adapters = (3 - 1) + (4 - 1) + 1 + (4 - 1) + (2 - 1) + 1
    assert manifold.dim(position) == 26 + (adapters if is_adapted else 0)
    assert jax.tree.structure(manifold.nearest(position)) == jax.tree.structure(position)


def test_orthonormal_parameters_of_nnx_stay_variables():
    """Catches an array in the place of the variable: draws had another name."""
    nnx = pytest.importorskip("flax.nnx", reason="needs Flax: pip install flax")
    params = trainee()[1]
    manifold = gx.Product({"out": {"kernel": gx.Stiefel()}})
    start = manifold.nearest(params)
    assert jax.tree.structure(start) == jax.tree.structure(params)
    algorithm = gx.sghmc(log_density, manifold=manifold, step_size=0.1)
    draws = gx.sample(jax.random.key(0), algorithm, start, num_samples=2, num_chains=1, progress=False)["posterior"]
    assert set(draws) == {f"{layer}.{name}.value" for layer in ("hidden", "out") for name in ("bias", "kernel")}
    kernel = draws["out.kernel.value"].values[0, -1]
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(2), atol=1e-5)
    assert isinstance(start["out"]["kernel"], nnx.Param)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["swag", "geometry", "temperature"])
def test_geometry_of_nnx_in_use_gives_what_dicts_give(method):
    """Runs of the same parameters as dicts of arrays are the reference; they have the same order of leaves."""
    from flax import nnx

    graph, params, data = trainee()
    empty = jax.tree.structure(params)

    def run(position):
        def logits(position, x):
            return nnx.merge(graph, jax.tree.unflatten(empty, jax.tree.leaves(position)))(x)

        posterior = gx.Posterior(
            log_prior=gx.nn.Priors([("*", gx.nn.Gaussian(0.5))]),
            log_likelihood=gx.nn.CategoricalLikelihood(logits),
            num_data=30,
        )
        feed = gx.data.batches(data, batch_size=10)
        options = {"batches": feed, "num_samples": 3, "num_chains": 1, "progress": False}
        if method == "swag":
            draws = gx.swag(
                jax.random.key(1),
                posterior,
                position,
                num_steps=5,
                num_collected=4,
                rank=2,
                learning_rate=0.01,
                **options,
            )
        else:
            manifold = gx.nn.geometry(position) if method == "geometry" else None
            algorithm = gx.sghmc(posterior, manifold=manifold, step_size=0.01)
            draws = gx.sample(jax.random.key(1), algorithm, position, **options)
        if method == "temperature":
            return [gx.diagnostics.configurational_temperature(draws, posterior.full(data), position)]
        return [values.values for values in draws["posterior"].data_vars.values()]

    found, expected = run(params), run(nnx.to_pure_dict(params))
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def predictions(network, apply, x):
    return gx.vi.predict(jax.random.key(3), network, x, apply=apply, num_samples=3)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["mean field", "ivon"])
@pytest.mark.parametrize("function", [gx.vi.predict, gx.vi.sample_functions])
def test_predictions_of_fits_of_nnx_parameters(method, function):
    """There was no way to apply the drawn parameters."""
    from flax import nnx

    graph, params, data = trainee()

    def apply(params, x):
        return nnx.merge(graph, params)(x)

    likelihood = gx.nn.CategoricalLikelihood(apply)
    if method == "ivon":
        chosen = {"algorithm": gx.vi.ivon(params, likelihood, 0.1, num_data=30)}
        start = params
    else:
        chosen, start = {}, gx.vi.GaussianOver(params)
    fit = gx.vi.fit(jax.random.key(2), start, likelihood, data, num_steps=3, batch_size=10, progress=False, **chosen)
    found = function(jax.random.key(3), fit.network, data[0], apply=apply, num_samples=3)
    drawn = [gx.vi.draw(fit.network, key) for key in jax.random.split(jax.random.key(3), 3)]
    np.testing.assert_allclose(found, [apply(params, data[0]) for params in drawn], rtol=1e-5, atol=1e-6)
    assert np.ptp(found, axis=0).min() > 0


def test_predictions_without_apply_say_what_is_missing():
    nnx = pytest.importorskip("flax.nnx", reason="needs Flax: pip install flax")
    graph, params, (x, _) = trainee()
    over = gx.vi.GaussianOver(params)
    for network in (params, over):
        with pytest.raises(TypeError, match="for other positions pass apply="):
            gx.vi.predict(jax.random.key(0), network, x)
    with pytest.raises(ValueError, match=r"over the 30 examples.*shape \(2,\).*jax\.vmap"):
        gx.vi.predict(jax.random.key(0), over, x, apply=lambda params, x: nnx.merge(graph, params)(x[0]))


@pytest.mark.thorough
def test_last_layer_of_nnx_parameters():
    """That of dicts is the reference; the entry of a state that ``where`` selects is not a node of the state."""
    from flax import nnx

    graph, params, data = trainee()
    structure = jax.tree.structure(params)

    def apply(params, x):
        assert jax.tree.structure(params) == structure
        return nnx.merge(graph, params)(x)

    def of_dicts(params, x):
        return apply(jax.tree.unflatten(structure, jax.tree.leaves(params)), x)

    found, expected = (
        gx.nn.last_layer_laplace(
            position, gx.nn.CategoricalLikelihood(function), data, where=lambda params: params["out"]
        )
        for position, function in ((params, apply), (nnx.to_pure_dict(params), of_dicts))
    )
    drawn = gx.vi.draw(found, jax.random.key(0))
    assert jax.tree.structure(drawn) == structure
    np.testing.assert_array_equal(drawn["hidden"]["kernel"][...], params["hidden"]["kernel"][...])
    assert np.all(np.asarray(drawn["out"]["kernel"][...]) != params["out"]["kernel"][...])
    np.testing.assert_array_equal(predictions(found, apply, data[0]), predictions(expected, of_dicts, data[0]))


def test_dense_layers_of_other_libraries_are_an_error_that_says_what_takes_them():
    _, params, data = trainee()
    for where in (None, lambda params: params["out"]):
        with pytest.raises(ValueError, match=r"found none in a State.*use gx.nn.last_layer_laplace"):
            gx.nn.laplace_posterior(params, gx.nn.CategoricalLikelihood(), data, where=where)


def test_forgotten_evaluation_of_nnx_is_named(model):
    from flax import nnx

    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def apply(params, x):
        whole = nnx.merge(graph, params, rest)
        return whole.norm(whole.dense(x))

    batch = (jnp.ones((2, 3), jnp.float32), jnp.zeros(2, int))
    with pytest.raises(Exception, match="Cannot mutate") as found:
        jax.grad(lambda params: jnp.sum(gx.nn.CategoricalLikelihood(apply)(params, batch)))(params)
    assert any("call model.eval() before nnx.split" in note for note in found.value.__notes__)
    model.eval()
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    assert gx.nn.CategoricalLikelihood(apply)(params, batch).shape == (2,)
