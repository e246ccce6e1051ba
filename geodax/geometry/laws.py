"""What a manifold has to fulfil, checked at random points: for manifolds of one's own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from geodax import _checks, _tree
from geodax._precision import full_precision
from geodax._random import standard_normal
from geodax._types import Array, Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold, FlowProperties

_NUM_STARTS = 4
_LAWS = {
    "random_point": "random_point, nearest, renormalize and reflect give points of residual 0, which nearest keeps",
    "project": "project is the orthogonal projection on a tangent space of dimension dim",
    "momentum": "momentum gives tangent momenta: project keeps them",
    "metric": "momentum draws from the density exp(-kinetic_energy)",
    "energy": "velocity is the gradient of kinetic_energy with respect to the momentum",
    "gradient": "gradient(x, g) and g have the same inner products with velocities",
    "noise": "noise has covariance variance * that of momentum - deducted * that of gradient",
    "at once": "flow does not move in no time, and starts with velocity",
    "stays": "flow stays on the manifold, and its momentum stays tangent",
    "reversible": "flow goes back with the momentum reversed, and in negative time",
    "symplectic": "flow preserves the symplectic form of positions and momenta, and so the volume",
    "exact": "flow conserves kinetic_energy, and two flows in a row are one of the whole time",
}


class _Point(NamedTuple):
    position: Position
    momentum: Momentum


def check_manifold(manifold: AbstractManifold, position: Position, rng_key: PRNGKey | None = None) -> None:
    """Check a manifold of your own: at random points, whether its methods fit together as samplers need.

    Positions, momenta and flows are compared as they stand, without a sampler; wrong constants and signs show as errors
    of order one. What ``properties`` does not claim is not checked. Use double precision.

    Args:
        manifold: The manifold; a :class:`~geodax.Product` checks its parts together.
        position: A position, or any arrays of its shapes and dtypes, with at most some hundred entries.
        rng_key: A PRNG key for the points; None takes a fixed one.

    Raises:
        TypeError: If a method returns another type, shape or dtype than it has to.
        ValueError: If a law is broken; the message names all of them, with the largest relative error.
    """
    if not isinstance(manifold, AbstractManifold):
        raise TypeError(f"check_manifold: expected a manifold, found {_checks.described(manifold)}.")
    key = jax.random.key(0) if rng_key is None else _checks.random_key("check_manifold", rng_key)
    position = jax.tree.map(jnp.asarray, position)
    manifold.validate(position, "check_manifold: position")
    _check_shapes(manifold, position)

    def errors(keys: Array) -> dict[str, Array]:
        found = jax.vmap(lambda key: _errors(manifold, position, key))(keys)
        return {law: jnp.max(error) for law, error in found.items()}

    with full_precision():
        run = jax.jit(errors, compiler_options={"xla_backend_optimization_level": 0})
        found = {law: float(error) for law, error in run(jax.random.split(key, _NUM_STARTS)).items()}
    bound = 10.0 * float(jnp.finfo(_tree.real_dtype(position)).eps) ** 0.5
    broken = [f"{text} (error {found[law]:.2g})" for law, text in _LAWS.items() if not found.get(law, 0.0) <= bound]
    if broken:
        raise ValueError(
            f"check_manifold: {type(manifold).__name__} breaks {len(broken)} of {len(found)} laws, at a relative "
            f"error above {bound:.1g}: {'; '.join(broken)}."
        )


def _check_shapes(manifold: AbstractManifold, x: Position) -> None:
    """Raise TypeError for a method that returns another type or shape."""
    name = type(manifold).__name__
    scale = jax.tree.map(jnp.asarray, manifold.initial_scale(x))
    time = jnp.ones((), _tree.real_dtype(x))
    number, like = time, x
    expected: dict[str, tuple[Callable[[], Any], Any]] = {
        "project": (lambda: manifold.project(x, x), like),
        "gradient": (lambda: manifold.gradient(x, x), like),
        "momentum": (lambda: manifold.momentum(x, x), like),
        "noise": (lambda: manifold.noise(x, x, time, 0 * time), like),
        "kinetic_energy": (lambda: manifold.kinetic_energy(x, x), number),
        "velocity": (lambda: manifold.velocity(x, x), like),
        "flow": (lambda: manifold.flow(x, x, jax.tree.map(lambda s: s * time.astype(s.dtype), scale)), (like, like)),
        "random_point": (lambda: manifold.random_point(jax.random.key(0), x), like),
        "nearest": (lambda: manifold.nearest(x), like),
        "renormalize": (lambda: manifold.renormalize(x), like),
        "residual": (lambda: manifold.residual(x), number),
        "degrees_of_freedom": (
            lambda: manifold.degrees_of_freedom(x),
            jax.tree.map(lambda s, a: s.astype(a.real.dtype), scale, x),
        ),
        "squares": (lambda: manifold.squares(x, x), scale),
        "scaled": (lambda: manifold.scaled(x, x, scale), like),
    }
    if not manifold.is_connected(x):
        expected |= {"reflect": (lambda: manifold.reflect(jax.random.key(0), x), like)}
    for method, (call, wanted) in expected.items():
        found = _returned(call)
        if _described(found) != _described(wanted):
            raise TypeError(f"{name}.{method}: expected {_described(wanted)}, found {_described(found)}.")
    facts: dict[str, tuple[Any, Any]] = {
        "dim": (manifold.dim(x), int),
        "is_connected": (manifold.is_connected(x), bool),
        "noise_capacity": (manifold.noise_capacity(x), float | int),
        "properties": (manifold.properties, FlowProperties),
    }
    for method, (fact, kind) in facts.items():
        if not isinstance(fact, kind):
            raise TypeError(f"{name}.{method}: expected {getattr(kind, '__name__', kind)}, found {fact!r:.100}.")
    flat = manifold.is_flat(x)
    if jax.tree.structure(flat) != jax.tree.structure(x) or not all(isinstance(f, bool) for f in jax.tree.leaves(flat)):
        raise TypeError(f"{name}.is_flat: expected a bool for each array of the position, found {flat!r:.100}.")


def _returned(call: Callable[[], PyTree]) -> PyTree:
    """What a method returns, without computing it; Python's numbers as they are."""
    found: list[PyTree] = []
    jax.eval_shape(lambda: found.append(call()))
    return found[0]


def _described(tree: PyTree) -> Any:
    return jax.tree.map(
        lambda leaf: f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else f"the number {leaf}", tree
    )


def _errors(manifold: AbstractManifold, like: Position, key: PRNGKey) -> dict[str, Scalar]:
    keys = jax.random.split(key, 7)
    x = manifold.random_point(keys[0], like)
    u, w = (standard_normal(k, like) for k in keys[1:3])
    r, s, q = (manifold.momentum(x, standard_normal(k, like)) for k in keys[3:6])
    dtype = _tree.real_dtype(like)
    one = jnp.ones((), dtype)
    time = jnp.minimum(one, jnp.asarray(manifold.max_time(x, manifold.initial_scale(x)), dtype))
    velocity, gradient = manifold.velocity(x, r), manifold.gradient(x, u)
    projection = matrix_of(lambda u: manifold.project(x, u), like)
    rebuild = _rebuild(like)
    slope = projection @ jax.grad(lambda r: jnp.asarray(manifold.kinetic_energy(x, rebuild(r)), dtype))(flattened(r))

    def times_slope(linear: Callable[[PyTree], PyTree]) -> Array:
        """B B^T times the slope of the kinetic energy, for a real linear map B."""
        columns = matrix_of(linear, like)
        return columns @ (columns.T @ slope)

    deducted = 0.5 * manifold.noise_capacity(x)
    kept = times_slope(lambda z: manifold.noise(x, z, one, deducted * one))
    taken = times_slope(lambda g: manifold.gradient(x, g))
    points = [x, manifold.nearest(_tree.add_scaled(x, jax.tree.map(lambda a: jnp.full((), 1e-3, a.dtype), x), u))]
    points += [manifold.renormalize(x)]
    points += [] if manifold.is_connected(x) else [manifold.reflect(keys[6], x)]
    found = {
        "random_point": [
            *(jnp.asarray(manifold.residual(point), dtype) for point in points),
            relative_error(manifold.nearest(x), x),
        ],
        "project": [
            relative_error(manifold.project(x, manifold.project(x, u)), manifold.project(x, u)),
            relative_error(projection, projection.T),
            jnp.abs(jnp.trace(projection) - manifold.dim(x)),
        ],
        "momentum": [
            relative_error(manifold.project(x, r), r),
            relative_error(manifold.project(x, gradient), gradient),
        ],
        "metric": [relative_error(times_slope(lambda z: manifold.momentum(x, z)), flattened(r))],
        "noise": [relative_error(kept + deducted * taken, flattened(r))],
    }
    if manifold.properties.is_symplectic:
        found["energy"] = [relative_error(velocity, slope)]
        found["gradient"] = [relative_error(_dot(gradient, velocity), _dot(u, velocity))]
    found |= _errors_of_flow(manifold, _Point(x, r), (s, u, q, w), time)
    return {law: jnp.max(jnp.stack(errors)) for law, errors in found.items()}


def _errors_of_flow(
    manifold: AbstractManifold, start: _Point, others: tuple[PyTree, ...], time: Scalar
) -> dict[str, list[Array]]:
    x, r = start
    properties = manifold.properties

    def flow(point: _Point, t: Scalar) -> _Point:
        return _Point(*manifold.flow(point.position, point.momentum, t))

    def reversed_(point: _Point) -> _Point:
        return _Point(point.position, jax.tree.map(jnp.negative, point.momentum))

    end = flow(start, time)
    speed = jax.jvp(lambda t: flow(start, t).position, (0 * time,), (jnp.ones_like(time),))[1]
    found = {
        "at once": [relative_error(flow(start, 0 * time), start), relative_error(speed, manifold.velocity(x, r))],
        "stays": [
            jnp.asarray(manifold.residual(end.position), time.dtype),
            relative_error(manifold.project(*end), end.momentum),
        ],
    }
    if properties.is_reversible:
        found["reversible"] = [
            relative_error(reversed_(flow(reversed_(end), time)), start),
            relative_error(flow(end, -time), start),
        ]
    if properties.is_symplectic:
        s, u, q, w = others

        def direction(s: Momentum, u: PyTree) -> _Point:
            """A direction along positions with tangent momenta."""

            def curve(t: Scalar) -> _Point:
                there = manifold.flow(x, s, t)[0]
                moved = jax.tree.map(lambda a, b: a + t.astype(b.dtype) * b, r, u)
                return _Point(there, manifold.project(there, moved))

            return jax.jvp(curve, (0 * time,), (jnp.ones_like(time),))[1]

        def form(a: _Point, b: _Point) -> Scalar:
            return _dot(a.position, b.momentum) - _dot(b.position, a.momentum)

        pair = direction(s, u), direction(q, w)
        after = [jax.jvp(lambda point: flow(point, time), (start,), (d,))[1] for d in pair]
        found["symplectic"] = [relative_error(form(*after), form(*pair))]
    if properties.order == float("inf"):
        energies = [jnp.asarray(manifold.kinetic_energy(*point), time.dtype) for point in (start, end)]
        found["exact"] = [relative_error(*energies), relative_error(flow(flow(start, 0.25 * time), 0.75 * time), end)]
    return found


def flattened(tree: PyTree) -> Array:
    """All real numbers of a tree."""
    parts = jax.tree.map(lambda leaf: (leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else leaf, tree)
    return ravel_pytree(parts)[0]


def _dot(a: PyTree, b: PyTree) -> Scalar:
    return jnp.dot(flattened(a), flattened(b))


def relative_error(found: PyTree, expected: PyTree) -> Array:
    """The largest difference relative to the largest entry, at least 1."""
    found, expected = flattened(found), flattened(expected)
    return jnp.max(jnp.abs(found - expected)) / jnp.maximum(jnp.max(jnp.abs(expected)), 1.0)


def _rebuild(like: PyTree) -> Callable[[Array], PyTree]:
    parts = jax.tree.map(lambda a: (a.real, a.imag) if jnp.iscomplexobj(a) else (a,), like)
    _, split = ravel_pytree(parts)

    def whole(a: Array, part: tuple[Array, ...]) -> Array:
        return (jax.lax.complex(*part) if len(part) == 2 else part[0]).astype(a.dtype)

    return lambda vector: jax.tree.map(whole, like, split(vector))


def matrix_of(linear: Callable[[PyTree], PyTree], like: PyTree) -> Array:
    """The matrix of a real linear map of trees."""
    vector, rebuild = flattened(like), _rebuild(like)
    return jax.vmap(lambda v: flattened(linear(rebuild(v))), out_axes=1)(jnp.eye(vector.size, dtype=vector.dtype))
