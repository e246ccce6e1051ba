"""The public check of metrics: the library's own pass, and each planted fault is named."""

import re

import jax
import jax.numpy as jnp
import pytest

import geodax as gx

POSITION = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "metric",
    [
        gx.metrics.Identity(),
        gx.metrics.RMSProp(),
        gx.metrics.RMSProp(gamma="full"),
        gx.metrics.Wenzel(),
        gx.metrics.Monge(),
        gx.metrics.Shampoo(block_size=2, update_every=1, statistics_every=1, epsilon=1e-3),
        gx.metrics.Frozen(gx.metrics.RMSProp(), after=3),
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_metrics_of_the_library(metric):
    gx.metrics.check_metric(metric, POSITION)


class Quadratic(gx.metrics.AbstractMetric):
    """The inverse metric (1 + a . x)^2 I, whose divergence is 2 (1 + a . x) a."""

    has_exact_drift = True

    def init(self, position):
        return position

    def update(self, state, position, grad):
        return position

    def factor(self, state):
        return 1.0 + sum(jnp.sum(0.1 * leaf) for leaf in jax.tree.leaves(state))

    def apply_inverse(self, state, u):
        return jax.tree.map(lambda leaf: self.factor(state) ** 2 * leaf, u)

    def apply_inverse_sqrt(self, state, z):
        return jax.tree.map(lambda leaf: self.factor(state) * leaf, z)

    def drift(self, state, position, curvature=None):
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.2) * self.factor(state), position)


def test_a_metric_of_ones_own():
    gx.metrics.check_metric(Quadratic(), POSITION)
    gx.metrics.check_metric(Quadratic(), jnp.zeros(4), jax.random.key(1))


FACTOR = jnp.array([[2.0, 0.0], [1.0, 0.5]])
FAULTS = {
    "two applications": {"apply_inverse_sqrt": lambda self, state, z: self.apply_inverse(state, z)},
    "is the divergence": {"drift": lambda self, state, position, curvature=None: jnp.zeros_like(position)},
    "a Cholesky factor is not": {
        "apply_inverse": lambda self, state, u: FACTOR @ FACTOR.T @ u,
        "apply_inverse_sqrt": lambda self, state, z: FACTOR @ z,
        "drift": lambda self, state, position, curvature=None: jnp.zeros_like(position),
    },
    "positive definite": {"apply_inverse": lambda self, state, u: -u, "apply_inverse_sqrt": lambda self, state, z: z},
}


@pytest.mark.parametrize("law", FAULTS)
def test_faults_are_named(law):
    with pytest.raises(ValueError, match=re.escape(law)):
        gx.metrics.check_metric(type("Faulty", (Quadratic,), FAULTS[law])(), jnp.zeros(2))


def test_a_state_that_changes_its_shape():
    grown = {"update": lambda self, state, position, grad: state[None]}
    with pytest.raises(TypeError, match=r"Faulty.update: expected a state like the one before.*\(1, 2\)"):
        gx.metrics.check_metric(type("Faulty", (Quadratic,), grown)(), jnp.zeros(2))
