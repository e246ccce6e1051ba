"""Equinox networks of which a partition left the parameters: what the default ``apply`` says, and whole ones as like=."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Optional

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import geodax as gx

pytestmark = pytest.mark.relaxed
LIKELIHOOD = gx.nn.CategoricalLikelihood()
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
BATCH = (jnp.asarray(X), jnp.arange(6) % 3)


class Skipping(eqx.Module):
    """With the flag another function than without."""

    layer: eqx.nn.Linear
    skip: bool

    def __call__(self, x):
        return self.layer(x) + 10 * x[:3] if self.skip else self.layer(x)


class Whole(eqx.Module):
    """Flags, activations and dropout among the leaves."""

    skipping: Skipping
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    activation: Callable

    def __call__(self, x):
        return self.mlp(self.activation(self.dropout(self.skipping(x))))


class Sloppy(eqx.Module):
    """None where the annotation allows it, or says nothing that can be checked."""

    layer: eqx.nn.Linear
    a: Optional[bool]  # noqa: UP045
    b: Any
    c: object
    d: jaxtyping.PyTree
    e: Unknown  # pyright: ignore
    f: eqx.nn.Linear | None
    h: bool = None
    i: str = eqx.field(static=True, default="")

    def __call__(self, x):
        return self.layer(x)


@pytest.fixture
def skipping():
    return Skipping(eqx.nn.Linear(4, 3, key=jax.random.key(0)), True)


def lists(network):
    """What the warning names; nothing without a warning."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        LIKELIHOOD(network, BATCH)
    return [str(one.message) for one in found]


def test_a_lost_flag_is_named(skipping):
    """Without the flag another network was run without a word."""
    weights, rest = eqx.partition(skipping, eqx.is_inexact_array)
    with pytest.warns(UserWarning, match=r"the field skip of the network is None.*eqx\.combine\(w, rest\)") as found:
        LIKELIHOOD(weights, BATCH)
    assert [one.filename for one in found] == [__file__]
    with pytest.warns(UserWarning, match=r"network\.0\.skip"):
        LIKELIHOOD(Nested([weights]), BATCH)
    combined = gx.nn.CategoricalLikelihood(lambda w, x: jax.vmap(eqx.combine(w, rest))(x))
    np.testing.assert_array_equal(combined(weights, BATCH), LIKELIHOOD(skipping, BATCH))
    assert lists(skipping) == []


class Nested(eqx.Module):
    network: list[Skipping]

    def __call__(self, x):
        return self.network[0](x)


@pytest.mark.thorough
def test_a_lost_flag_is_named_once_in_a_run(skipping):
    weights, _ = eqx.partition(skipping, eqx.is_inexact_array)
    posterior = gx.Posterior(log_prior=gx.nn.Priors(), log_likelihood=LIKELIHOOD, num_data=6)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        gx.sample(
            jax.random.key(0),
            gx.sghmc(posterior, step_size=0.01),
            weights,
            batches=gx.data.batches(BATCH, batch_size=3),
            num_samples=2,
            num_chains=1,
            progress=False,
        )
    # equal texts at one line, which Python shows once; type checks in the tests make it forget what it has shown
    assert len({(str(one.message), one.lineno) for one in found}) == 1
    assert (found[0].filename, "field skip" in str(found[0].message)) == (__file__, True)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: eqx.nn.MLP(4, 3, 5, 1, key=jax.random.key(0)), "activation"),
        (
            lambda: eqx.nn.inference_mode(
                eqx.nn.Sequential([eqx.nn.Dropout(0.5), eqx.nn.Linear(4, 3, key=jax.random.key(0))])
            ),
            r"layers\.0\.p, layers\.0\.inference",
        ),
    ],
)
def test_calls_that_fail_say_what_was_lost(make, names):
    weights, _ = eqx.partition(make(), eqx.is_inexact_array)
    with pytest.raises(TypeError, match=rf"{names}.*eqx\.combine\(w, rest\).*the call failed"):
        LIKELIHOOD(weights, BATCH)


def test_errors_of_other_networks_stay_as_they_are(skipping):
    with pytest.raises(TypeError, match=r"dot_general|contracting"):
        LIKELIHOOD(skipping.layer, (BATCH[0][:, :2], BATCH[1]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "layer",
    [
        lambda key: eqx.nn.Linear(4, 3, use_bias=False, key=key),
        lambda key: eqx.nn.Sequential([eqx.nn.LayerNorm(4, use_bias=False), eqx.nn.Linear(4, 3, key=key)]),
        lambda key: eqx.nn.Sequential([eqx.nn.GroupNorm(2, 4, channelwise_affine=False), eqx.nn.Linear(4, 3, key=key)]),
        lambda key: eqx.nn.Sequential([eqx.nn.RMSNorm(4, use_bias=False), eqx.nn.Linear(4, 3, key=key)]),
        lambda key: eqx.nn.Sequential(
            [eqx.nn.Conv1d(4, 3, 1, use_bias=False, dtype=jnp.float32, key=key), eqx.nn.Lambda(jnp.ravel)]
        ),
        lambda key: eqx.nn.MLP(4, 3, 5, 1, use_bias=False, key=key),
        lambda key: gx.nn.MLP(4, 3, widths=(5,), key=key),
        lambda key: gx.nn.OrthogonalLinear(4, 3, key=key),
        lambda key: gx.nn.adapt(gx.nn.MLP(4, 3, widths=(5,), key=key), rank=1, key=key),
        lambda key: Sloppy(eqx.nn.Linear(4, 3, key=key), *[None] * 6),
        lambda key: gx.nn.WithNoise(eqx.nn.Linear(4, 3, use_bias=False, key=key)),
    ],
)
def test_whole_networks_give_no_warning(layer):
    network = layer(jax.random.key(0))
    batch = (BATCH[0][:, :, None], BATCH[1]) if "Conv1d" in repr(network) else BATCH
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LIKELIHOOD(network, batch)


@pytest.mark.thorough
def test_predictions_with_the_whole_network(skipping):
    """They are those with the partition and ``apply``; flags were traced and functions were no arrays."""
    key = jax.random.key(1)
    whole = Whole(skipping, eqx.nn.MLP(3, 2, 5, 1, key=key), eqx.nn.Dropout(0.5), jnp.tanh)
    whole = eqx.nn.inference_mode(whole)
    weights, rest = eqx.partition(whole, eqx.is_inexact_array)
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, leaf + 0.1])[None], weights)

    def combined(weights, x):
        return jax.vmap(eqx.combine(weights, rest))(x)

    expected = gx.predictive.predict_classes(draws, weights, X, apply=combined)
    assert len(np.unique(expected.probabilities)) == expected.probabilities.size
    for options in ({}, {"apply": combined}):
        found = gx.predictive.predict_classes(draws, whole, X, **options)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    numbers = gx.predictive.predict_numbers(draws, whole, X, noise=0.1)
    np.testing.assert_array_equal(
        numbers.mean, gx.predictive.predict_numbers(draws, weights, X, noise=0.1, apply=combined).mean
    )


def test_an_array_that_the_draws_lack_is_still_an_error(skipping):
    """Only what a partition by inexact arrays takes out is kept constant."""
    draws = {"layer.weight": np.ones((1, 2, 3, 4), np.float32)}
    with pytest.raises(ValueError, match=r"the position has an array layer\.bias"):
        gx.predictive.predict_classes(gx.run.draws.to_datatree({"posterior": draws}), skipping, X)
