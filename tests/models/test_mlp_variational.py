"""Variational inferences of the network estimators: closed forms, draws as ordinary networks, resume, errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax._wording import named_by
from geodax.app.commands.entry import as_option
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.mlp import INFERENCES, MeanField, VariationalInference

nn = gx.nn
KINDS = ("whvi", "mean-field", "mc-dropout")
NATURAL = ("ivon", "noisy-kfac")


@pytest.fixture(scope="module")
def line():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((24, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]])
    return x, 2.0 * x[:, 0] - x[:, 2] + 0.8 * generator.standard_normal(24)


@pytest.mark.thorough
def test_mean_field_of_linear_regression_is_the_closed_form(line, tmp_path):
    """Of a normal posterior: its mean, and the inverse of the diagonal of its precision; more draws go on from there."""
    x, y = line
    options = {"noise": 0.8, "inference": MeanField(num_warmup=3000, num_samples=1500, num_chains=2), "random_state": 0}
    model = BayesianMLPRegressor((), checkpoint=tmp_path, **options).fit(x, y)
    design = np.concatenate([(x - x.mean(axis=0)) / x.std(axis=0), np.ones((24, 1))], axis=1)
    precision = design.T @ design / (0.8 / y.std()) ** 2 + np.diag([1.5, 1.5, 1.5, 1.0])
    weights = np.linalg.solve(precision, design.T @ ((y - y.mean()) / y.std()) / (0.8 / y.std()) ** 2)
    posterior = model.posterior_["posterior"].dataset
    drawn = np.concatenate(
        [
            posterior["layers.0.weight"].values.reshape(2, 1500, 3),
            posterior["layers.0.bias"].values.reshape(2, 1500, 1),
        ],
        axis=2,
    )
    variance = 1 / np.diag(precision)
    # the fits stop within a hundredth of a deviation, the draws have their Monte Carlo error
    assert (np.abs(drawn.mean(axis=(0, 1)) - weights) < (0.02 + 4.5 / np.sqrt(3000)) * np.sqrt(variance)).all()
    np.testing.assert_allclose(drawn.var(axis=(0, 1)), variance, rtol=0.02 + 5 * np.sqrt(2 / 3000))
    options["inference"] = MeanField(num_warmup=3000, num_samples=1600, num_chains=2)
    longer = BayesianMLPRegressor((), checkpoint=tmp_path, **options).fit(x, y)
    again = longer.posterior_["posterior"]["layers.0.weight"].values
    assert again.shape[:2] == (2, 1600)
    np.testing.assert_array_equal(again[:, :1500], posterior["layers.0.weight"].values)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ivon", "noisy-kfac"])
def test_a_curved_function_of_few_rows_is_learned(kind):
    """Catches learning rates, or a noise that is free at once, that end at a constant: 0.7 to 1.0 of the spread were left."""
    generator = np.random.default_rng(5)
    x = generator.standard_normal((350, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * generator.standard_normal(350)
    model = BayesianMLPRegressor(inference=kind, num_chains=1, num_samples=50, random_state=0).fit(x[:150], y[:150])
    assert np.sqrt(np.mean((model.predict(x[150:]) - y[150:]) ** 2)) < 0.5 * y.std()


def test_a_fit_that_diverges_names_the_option_of_the_estimator(line):
    """Its learning rate is ``step_size``, on the command line ``--step-size``."""
    model = BayesianMLPRegressor(
        (4,), inference="ivon", step_size=10.0, num_chains=1, num_samples=2, num_warmup=100, random_state=0
    )
    with pytest.warns(UserWarning, match=r"the fit diverged: .* is a step_size that is too large"):
        model.fit(*line)
    with named_by(as_option), pytest.warns(UserWarning, match=r"is a --step-size that is too large"):
        model.fit(*line)


@pytest.mark.parametrize("kind", ["noisy-kfac", "whvi"])
def test_a_fit_that_explains_nothing_warns(kind):
    generator = np.random.default_rng(6)
    x, y = generator.standard_normal((2, 60, 2))
    model = BayesianMLPRegressor(
        inference=kind, widths=(4,), num_chains=1, num_samples=10, num_warmup=1200, random_state=0
    )
    with pytest.warns(UserWarning, match="hardly better than their mean"):
        model.fit(x, y[:, 0])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_networks_are_ordinary(kind, key):
    """Without a key the ordinary network is the mean network; with keys its weights have the law of the layers'."""
    key_network, key_layers, key_draws = jax.random.split(key, 3)
    plain = nn.MLP(5, "scalar", widths=(3,), dtype=jnp.float64, key=key_network)
    if kind == "mc-dropout":
        fitted = nn.variational(plain, kind, key=key_layers, rate=0.3)
    else:
        fitted = nn.variational(plain, kind, key=key_layers)
    x = jnp.linspace(-1.0, 1.0, 5)
    mean = nn.realize(fitted, plain)
    assert jax.tree.structure(mean) == jax.tree.structure(plain)
    np.testing.assert_allclose(mean(x), fitted(x), rtol=1e-12)

    def first_layer(key):
        realized = nn.realize(fitted, plain, key)
        return realized.layers[0](x), fitted.layers[0](x, key=key)

    one, other = map(np.asarray, jax.jit(jax.vmap(first_layer))(jax.random.split(key_draws, 20_000)))
    for power in (1, 2):
        difference = (one**power).mean(axis=0) - (other**power).mean(axis=0)
        error = np.sqrt(((one**power).var(axis=0) + (other**power).var(axis=0)) / 20_000)
        assert (np.abs(difference) < 4.5 * error).all()


@pytest.mark.thorough
def test_priors_by_rule_reach_the_layers(key):
    keys = iter(jax.random.split(key, 7))
    plain = nn.MLP(8, 2, widths=(4,), key=next(keys))
    rules = nn.Priors([("layers.0.bias", nn.Gaussian(0.5)), ("*", nn.Gaussian("fan_in"))])
    for kind in ("mean-field", "mc-dropout"):
        first, last = nn.variational(plain, kind, key=next(keys), priors=rules).layers
        assert (first.prior_variance, first.bias_prior_variance) == pytest.approx((2 / 8, 0.25))
        assert (last.prior_variance, last.bias_prior_variance) == pytest.approx((2 / 4, 1.0))
    layer = nn.MeanFieldLinear(8, 2, prior_variance=0.25, bias_prior_variance=4.0, key=next(keys))
    assert layer.bias is not None
    apart = layer.weight.kl(0.25) + layer.bias.kl(4.0)
    np.testing.assert_allclose(layer.kl(), apart, rtol=1e-6)
    with pytest.raises(ValueError, match=r"nn\.Gaussian with mean 0"):
        nn.variational(plain, "mean-field", key=next(keys), priors=nn.Priors([("*", nn.Laplace(1.0))]))
    with pytest.raises(ValueError, match="expected a variational layer"):
        nn.realize(plain, plain)
    other = nn.variational(
        eqx.tree_at(lambda net: net.layers[1], plain, nn.Linear(9, 2, key=next(keys))), "whvi", key=next(keys)
    )
    with pytest.raises(ValueError, match="weights of shape"):
        nn.realize(other, plain)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS + NATURAL)
def test_each_learns(kind):
    """Three classes with names, near the rule that knows the law; batches smaller than the data."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, 240)
    x = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 6.0]])[labels] + generator.standard_normal((240, 2))
    y = np.array(["plum", "apple", "cherry"])[labels]
    model = BayesianMLPClassifier(
        (8,), inference=kind, num_warmup=1500, num_samples=20, num_chains=2, batch_size=60, random_state=0
    ).fit(x[:200], y[:200])
    assert model.score(x, y) > 0.9
    assert np.isfinite(model.posterior_["sample_stats"]["lp"].values).all()
    assert model.predict_parts(x).num_draws == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prior": "laplace"}, "nn.Gaussian with mean 0"),
        ({"prior": "hierarchical-horseshoe"}, "requires normal priors"),
        ({"orthogonal": True}, "use inference='mcmc'"),
        ({"temperature": 0.5}, "temperature must be 1"),
        ({"num_warmup": 0}, "num_warmup must be at least 1"),
        ({"step_size": -1.0}, "step_size must be a positive number"),
    ],
)
def test_errors(line, options, words):
    with pytest.raises(ValueError, match=words):
        BayesianMLPRegressor((4,), inference="mean-field", random_state=0, **options).fit(*line)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS + NATURAL)
@pytest.mark.parametrize(
    "prior",
    [
        "laplace",
        "student-t",
        "horseshoe",
        "local-horseshoe",
        [("*weight", nn.Gaussian(1.0, mean=2.0)), ("*", nn.Gaussian())],
        [("*bias", nn.Laplace(1.0)), ("*", nn.Gaussian("fan_in"))],
    ],
    ids=str,
)
def test_priors_that_are_not_normal_are_refused_by_all(line, kind, prior):
    """Also where the posterior of the weights does not depend on the variance of a normal one."""
    with pytest.raises(ValueError, match=r"nn\.Gaussian with mean 0"):
        BayesianMLPRegressor((4,), inference=kind, prior=prior, random_state=0).prepare(*line)
    BayesianMLPRegressor((4,), inference=kind, prior_scale=0.5, random_state=0).prepare(*line)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", NATURAL)
def test_natural_gradients_fit_a_line_and_its_noise(line, kind):
    """Catches draws of something else than the fitted posterior, and a noise that stays at its start."""
    x, y = line
    options = {"num_warmup": 800, "num_samples": 50, "num_chains": 1, "random_state": 0}
    model = BayesianMLPRegressor((), inference=kind, **options).fit(x, y)
    assert model.score(x, y) > 0.7
    posterior = model.posterior_["posterior"].dataset
    noise = float(np.exp(posterior["log_noise"].values.mean()))
    assert noise == pytest.approx(np.std(y - model.predict(x)) / y.std(), rel=0.4)
    assert (posterior["network.layers.0.weight"].values.std(axis=(0, 1)) > 0.01).all()
    missing = x.copy()
    missing[0, 0] = np.nan
    if kind == "noisy-kfac":
        with pytest.raises(ValueError, match="use inference='ivon'"):
            BayesianMLPRegressor((), inference=kind, **options).fit(missing, y)


def test_names():
    found = {kind: INFERENCES[kind]() for kind in KINDS + NATURAL}
    for kind, inference in found.items():
        assert isinstance(inference, VariationalInference)
        assert inference.kind == kind
