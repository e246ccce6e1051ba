"""What a metric has to fulfil, checked after some random gradients: for metrics of one's own."""

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._random import standard_normal
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.laws import flattened, matrix_of, relative_error
from geodax.sgmcmc.metrics.base import AbstractMetric, Frozen

_NUM_GRADIENTS = 6
_LAWS = {
    "root": "two applications of apply_inverse_sqrt equal apply_inverse",
    "symmetric": "apply_inverse_sqrt is symmetric (a Cholesky factor is not)",
    "positive": "apply_inverse is symmetric and positive definite",
    "drift": "drift is the divergence of apply_inverse, as has_exact_drift says",
}


def check_metric(metric: AbstractMetric, position: Position, rng_key: PRNGKey | None = None) -> None:
    """Check a metric of your own: its root, and its divergence against automatic differentiation.

    Use double precision. The divergence is compared if the metric has ``has_exact_drift`` and does not need the
    curvature, for which it may be a random estimate.

    Args:
        metric: The metric.
        position: A position, or any arrays of its shapes and dtypes, with at most some hundred entries.
        rng_key: A PRNG key for positions and gradients; None takes a fixed one.

    Raises:
        TypeError: If ``update`` changes the shapes or dtypes of the state.
        ValueError: If a law is broken; the message names all of them, with the largest relative error.
    """
    if not isinstance(metric, AbstractMetric):
        raise TypeError(f"check_metric: expected a metric, found {_checks.described(metric)}.")
    name = type(metric).__name__
    key = jax.random.key(0) if rng_key is None else _checks.random_key("check_metric", rng_key)
    here, *noise = (standard_normal(k, position) for k in jax.random.split(key, _NUM_GRADIENTS + 1))
    state = metric.init(here)
    for gradient in noise:
        kinds = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
        state = metric.update(state, here, gradient)
        found = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
        if found != kinds:
            raise TypeError(f"{name}.update: expected a state like the one before, {kinds}, found {found}.")
    errors = {law: float(error) for law, error in jax.jit(lambda x, s: _errors(metric, s, x))(here, state).items()}
    bound = 10.0 * float(jnp.finfo(_tree.real_dtype(here)).eps) ** 0.5
    broken = [f"{text} (error {errors[law]:.2g})" for law, text in _LAWS.items() if not errors.get(law, 0.0) <= bound]
    if broken:
        raise ValueError(f"check_metric: {name} breaks {len(broken)} of {len(errors)} laws: {'; '.join(broken)}.")


def _errors(metric: AbstractMetric, state: PyTree, x: Position) -> dict[str, Scalar]:
    def potential(x: Position) -> Array:
        vector = flattened(x)
        return 0.5 * vector @ vector + jnp.sum(jnp.sin(vector)) * jnp.sum(jnp.cos(vector))

    def used_at(x: Position) -> PyTree:
        return state if metric.is_lagged else metric.update(state, x, jax.grad(potential)(x))

    def inverse_at(x: Position) -> Array:
        used = used_at(x)
        return matrix_of(lambda u: metric.apply_inverse(used, u), x)

    used, inverse = used_at(x), inverse_at(x)
    root = matrix_of(lambda z: metric.apply_inverse_sqrt(used, z), x)
    found = {
        "root": relative_error(root @ root, inverse),
        "symmetric": relative_error(root, root.T),
        "positive": jnp.where(
            jnp.linalg.eigvalsh(inverse + inverse.T)[0] > 0, relative_error(inverse, inverse.T), jnp.inf
        ),
    }
    if metric.has_exact_drift and not metric.needs_curvature and not isinstance(metric, Frozen):
        # column j of the inverse, differentiated along entry j
        slopes = [flattened(leaf).reshape((*inverse.shape, -1)) for leaf in jax.tree.leaves(jax.jacfwd(inverse_at)(x))]
        divergence = jnp.einsum("ijj->i", jnp.concatenate(slopes, axis=-1))
        found["drift"] = relative_error(flattened(metric.drift(used, x, None)), divergence)
    return found
