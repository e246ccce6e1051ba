"""Every metric: its root, its divergence against autodiff, its scale, and what it does where there is no gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import geodax as gx
from geodax.geometry.linalg import inverse_root
from geodax.sgmcmc.metrics import Curvature
from geodax.sgmcmc.periodic import when

METRICS = {
    "identity": gx.metrics.Identity(),
    "rmsprop": gx.metrics.RMSProp(decay=0.9, epsilon=1e-3),
    "wenzel": gx.metrics.Wenzel(decay=0.9),
    "monge": gx.metrics.Monge(alpha2=0.7),
    "monge-normalized": gx.metrics.Monge(normalize=2.0, normalize_decay=0.9),
    "shampoo": gx.metrics.Shampoo(statistics_every=1, update_every=2, block_size=3, epsilon=1e-4),
    "shampoo-newton": gx.metrics.Shampoo(
        statistics_every=1, update_every=2, block_size=3, epsilon=1e-4, method="newton"
    ),
    "shampoo-diagonal": gx.metrics.Shampoo(
        statistics_every=1, update_every=2, block_size=3, epsilon=1e-4, vectors="diagonal"
    ),
    "shampoo-identity": gx.metrics.Shampoo(
        statistics_every=1, update_every=2, block_size=3, epsilon=1e-4, vectors="identity"
    ),
    "soap": gx.metrics.Shampoo(statistics_every=1, update_every=2, block_size=3, epsilon=1e-3, variant="soap"),
    "soap-diagonal": gx.metrics.Shampoo(
        statistics_every=1, update_every=2, block_size=3, epsilon=1e-3, variant="soap", vectors="diagonal"
    ),
    "frozen": gx.metrics.Frozen(gx.metrics.RMSProp(decay=0.9, epsilon=1e-3), after=3),
    "frozen-monge": gx.metrics.Frozen(gx.metrics.Monge(alpha2=0.7), after=3),
}
POSITION = {"w": jnp.zeros((5, 4)), "b": jnp.zeros(4), "s": jnp.zeros(()), "kernel": jnp.zeros((2, 3, 2))}


def draw(key, like=POSITION):
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)])


@functools.cache
def compiled(metric, name):
    """A method of a metric, compiled once for all tests."""
    return jax.jit(getattr(metric, name))


def learnt(metric, key, position=POSITION, steps=6):
    state = metric.init(position)
    for k in jax.random.split(key, steps):
        state = compiled(metric, "update")(state, position, draw(k, position))
    return state


def dense(function, like=POSITION):
    vector, unravel = ravel_pytree(like)
    return np.asarray(jax.jit(jax.vmap(lambda e: ravel_pytree(function(unravel(e)))[0]))(jnp.eye(vector.size))).T


@pytest.mark.thorough
@pytest.mark.parametrize("name", METRICS)
def test_the_root_is_symmetric_and_a_root_of_the_inverse(key, name):
    """Catches a root of the wrong power, blocks that mix, and a root that sghmc could not use."""
    metric = METRICS[name]
    state = learnt(metric, key)
    root = dense(lambda z: metric.apply_inverse_sqrt(state, z))
    inverse = dense(lambda z: metric.apply_inverse(state, z))
    scale = np.abs(inverse).max()
    np.testing.assert_allclose(root, root.T, atol=1e-10 * np.abs(root).max())
    np.testing.assert_allclose(root @ root.T, inverse, atol=1e-10 * scale)
    assert np.linalg.eigvalsh(inverse).min() > 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", METRICS)
def test_dtypes_are_kept_and_nothing_is_undefined_without_a_gradient(name, dtype, key):
    """Catches 0 / 0 in Monge's root, in RMSProp without epsilon, and in a normalised alpha."""
    metric = METRICS[name]
    position = jax.tree.map(lambda x: x.astype(dtype), POSITION)
    state = metric.init(position)
    noise = draw(key, position)
    for _ in range(3):
        after = compiled(metric, "update")(state, position, jax.tree.map(jnp.zeros_like, position))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
        state = after
        for name in ("apply_inverse", "apply_inverse_sqrt"):
            applied = compiled(metric, name)(state, noise)
            assert all(x.dtype == dtype and np.isfinite(x).all() for x in jax.tree.leaves(applied))


def test_rmsprop_without_epsilon_is_defined_at_zero():
    metric = gx.metrics.RMSProp(epsilon=0.0)
    state = metric.update(metric.init(jnp.zeros(2)), jnp.zeros(2), jnp.zeros(2))
    assert float(metric.apply_inverse(state, jnp.ones(2)).max()) == 1.0


FROM_ZERO = {
    "rmsprop": gx.metrics.RMSProp(),
    "rmsprop-without-epsilon": gx.metrics.RMSProp(epsilon=0.0),
    "frozen": gx.metrics.Frozen(gx.metrics.RMSProp(), after=5),
    "shampoo": gx.metrics.Shampoo(),
    "soap": gx.metrics.Shampoo(variant="soap"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FROM_ZERO)
def test_nothing_moves_before_the_first_gradient(name, key):
    """Catches the inverse of epsilon, hundreds of thousands, in the place of what is not yet known."""
    metric = FROM_ZERO[name]
    state, z = metric.init(POSITION), draw(key)
    for applied in (metric.apply_inverse(state, z), metric.apply_inverse_sqrt(state, z)):
        assert all(not bool(leaf.any()) for leaf in jax.tree.leaves(applied))


@pytest.mark.parametrize("lag", [False, True])
def test_before_the_first_gradient_there_is_no_divergence(key, lag):
    metric = gx.metrics.RMSProp(gamma="full", lag=lag)
    curvature = Curvature(jnp.ones(3), lambda v: 2.0 * v, key)
    np.testing.assert_array_equal(metric.drift(metric.init(jnp.zeros(3)), jnp.zeros(3), curvature), jnp.zeros(3))


@pytest.mark.parametrize("metric", [gx.metrics.RMSProp(), gx.metrics.Shampoo(variant="soap")], ids=["rmsprop", "soap"])
def test_the_first_gradients_count_as_much_as_they_should(metric):
    """A gradient that stays is its own average from the first step on; begun at zero G would be a tenth of it."""
    like, gradient = jnp.zeros((1, 1)), jnp.full((1, 1), 3.0)
    state = metric.init(like)
    for _ in range(20):
        state = compiled(metric, "update")(state, like, gradient)
        np.testing.assert_allclose(compiled(metric, "apply_inverse")(state, gradient)[0], 1.0, rtol=1e-4)


@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
def test_averages_of_half_precision_go_down_again(half):
    """Catches an average in the dtype of the gradient, whose unit is larger than a thousandth of it."""
    metric = gx.metrics.RMSProp(decay=0.999)
    like, state = jnp.zeros(2, half), metric.init(jnp.zeros(2, half))
    update = jax.jit(metric.update)
    for size in [1.0] * 10 + [0.0] * 90:
        state = update(state, like, jnp.full(2, size, half))
    expected = (0.999**90) * (1 - 0.999**10) / (1 - 0.999**100)
    np.testing.assert_allclose(metric.apply_inverse(state, jnp.ones(2, half)), expected**-0.5, rtol=0.01)
    assert metric.apply_inverse(state, jnp.ones(2, half)).dtype == half


def test_a_normalised_weight_beyond_half_precision():
    """Gradients of 1e-4 have a weight of 1e8 / 3."""
    like, gradient = jnp.zeros(3, jnp.float16), jnp.full(3, 1e-4, jnp.float16)
    metric = gx.metrics.Monge(decay=0.0)
    state = metric.update(metric.init(like), like, gradient)
    np.testing.assert_allclose(metric.apply_inverse(state, jnp.ones(3, jnp.float16)), 0.5, rtol=0.01)


class TestValues:
    def test_monge(self, key):
        metric = gx.metrics.Monge(alpha2=0.7)
        state = learnt(metric, key)
        m = ravel_pytree(state.mean)[0]
        g = np.eye(m.size) + 0.7 * np.outer(m, m)
        np.testing.assert_allclose(dense(lambda z: metric.apply_inverse(state, z)), np.linalg.inv(g), atol=1e-12)

    def test_rmsprop(self):
        metric = gx.metrics.RMSProp(decay=0.9, epsilon=0.5)
        state = metric.update(metric.init(jnp.zeros(2)), jnp.zeros(2), jnp.array([2.0, -1.0]))
        expected = 1 / (np.array([2.0, 1.0]) + 0.5)
        np.testing.assert_allclose(metric.apply_inverse(state, jnp.ones(2)), expected, rtol=1e-12)
        state = metric.update(state, jnp.zeros(2), jnp.array([0.0, 3.0]))
        squares = (0.9 * np.array([4.0, 1.0]) + np.array([0.0, 9.0])) / 1.9
        np.testing.assert_allclose(metric.apply_inverse(state, jnp.ones(2)), 1 / (np.sqrt(squares) + 0.5), rtol=1e-12)

    def test_rmsprop_forgets_at_its_decay(self, key):
        """The average of Li et al., over one less the share of its start that is left."""
        metric, plain = gx.metrics.RMSProp(decay=0.8), jnp.zeros(5)
        state = metric.init(plain)
        for i in range(30):
            gradient = jax.random.normal(jax.random.fold_in(key, i), (5,))
            state = compiled(metric, "update")(state, plain, gradient)
            plain = 0.8 * plain + 0.2 * gradient**2
            np.testing.assert_allclose(state.squares, plain / (1 - 0.8 ** (i + 1)), rtol=1e-10)

    def test_wenzel(self):
        metric = gx.metrics.Wenzel(decay=0.0, epsilon=1e-7)
        position = {"a": jnp.zeros(2), "b": jnp.zeros(3)}
        state = metric.update(metric.init(position), position, {"a": jnp.full(2, 3.0), "b": jnp.full(3, 1.5)})
        applied = metric.apply_inverse(state, jax.tree.map(jnp.ones_like, position))
        np.testing.assert_allclose(applied["a"], 0.5, rtol=1e-6)
        np.testing.assert_allclose(applied["b"], 1.0, rtol=1e-6)

    @pytest.mark.parametrize("method", ["eigh", "newton"])
    def test_shampoo_has_the_powers_of_its_sides(self, key, method):
        """G = L^(1/4) x R^(1/4) for a matrix (row-major Kronecker product), H^(1/2) for a vector."""
        metric = gx.metrics.Shampoo(
            decay=0.5, statistics_every=1, update_every=1, epsilon=1e-3, method=method, block_size=10
        )
        like = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(3)}
        state = learnt(metric, key, like, steps=5)

        def power(m, exponent):
            values, vectors = np.linalg.eigh(np.asarray(m))
            # the Newton iteration adds epsilon where eigh bounds by it
            values = np.maximum(values, 1e-3) if method == "eigh" else values + 1e-3
            return (vectors * values**exponent) @ vectors.T

        vector, matrix = state.leaves
        expected = np.kron(power(matrix.left[0, 0], -0.25), power(matrix.right[0, 0], -0.25))
        found = dense(lambda z: metric.apply_inverse(state, {"w": z, "b": jnp.zeros(3)})["w"], like["w"])
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        found = dense(lambda z: metric.apply_inverse(state, {"w": jnp.zeros((3, 2)), "b": z})["b"], like["b"])
        np.testing.assert_allclose(found, power(vector.left[0, 0], -0.5), rtol=1e-6, atol=1e-8)

    @pytest.mark.parametrize("vectors", ["full", "diagonal", "identity"])
    def test_what_shampoo_gives_vectors_and_scalars(self, key, vectors):
        """Catches vectors treated alike whatever is asked for, and matrices that change with it."""
        kind = {"decay": 0.5, "statistics_every": 1, "update_every": 1, "epsilon": 1e-3}
        state = learnt(metric := gx.metrics.Shampoo(**kind, vectors=vectors), key)
        full = learnt(reference := gx.metrics.Shampoo(**kind), jax.random.clone(key))
        z = draw(jax.random.fold_in(jax.random.clone(key), 1))
        applied = compiled(metric, "apply_inverse")(state, z)
        unchanged = compiled(reference, "apply_inverse")(full, z)
        for name in ("w", "kernel"):
            np.testing.assert_allclose(applied[name], unchanged[name], rtol=1e-10)

        h = 0.5**6 * 1e-3 * np.eye(4)  # from the definition: an average of outer products, and its root
        for i, k in enumerate(jax.random.split(jax.random.clone(key), 6)):
            g = np.asarray(draw(k)["b"])
            h += 0.5 ** (6 - i) * np.outer(g, g)
        if vectors == "diagonal":
            h = np.diag(np.diag(h))
        values, axes = np.linalg.eigh(h)
        root = np.eye(4) if vectors == "identity" else (axes * np.maximum(values, 1e-3) ** -0.5) @ axes.T
        np.testing.assert_allclose(applied["b"], root @ np.asarray(z["b"]), rtol=1e-8)
        if vectors == "identity":
            np.testing.assert_array_equal(applied["s"], z["s"])
        else:
            np.testing.assert_allclose(applied["s"], unchanged["s"], rtol=1e-10)

    def test_wenzel_passes_over_leaves_without_entries(self):
        """Catches the average of no entries, zero, as the least: all others would be divided by its root."""
        metric = gx.metrics.Wenzel(decay=0.0)
        position = {"a": jnp.zeros(2), "b": jnp.zeros(3), "empty": jnp.zeros((0, 4))}
        gradient = {"a": jnp.full(2, 3.0), "b": jnp.full(3, 1.5), "empty": jnp.zeros((0, 4))}
        applied = metric.apply_inverse(metric.update(metric.init(position), position, gradient), gradient)
        np.testing.assert_allclose(applied["a"], 1.5, rtol=1e-6)
        np.testing.assert_allclose(applied["b"], 1.5, rtol=1e-6)
        nothing = {"empty": jnp.zeros((0, 4))}
        state = metric.update(metric.init(nothing), nothing, nothing)
        assert metric.apply_inverse(state, nothing)["empty"].shape == (0, 4)

    @pytest.mark.thorough
    @pytest.mark.parametrize("settings", [{"method": "eigh"}, {"method": "newton"}, {"variant": "soap"}], ids=str)
    @pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5), (1, 1), (5, 2), (4, 1, 1), (1, 2, 3)], ids=str)
    def test_sides_of_one_entry_count_in_shampoo(self, key, shape, settings):
        """A column is a matrix: catches the exponent of a vector for it, and a right factor that never learns."""
        epsilon = 1e-3
        metric = gx.metrics.Shampoo(decay=0.5, statistics_every=1, update_every=1, epsilon=epsilon, **settings)
        like, is_matrix, is_soap = jnp.zeros(shape), len(shape) > 1, "variant" in settings
        gradients = [np.asarray(draw(k, like)).reshape(shape[0], -1) for k in jax.random.split(key, 30)]
        left, right = epsilon * np.eye(shape[0]), epsilon * np.eye(gradients[0].shape[1])
        axes_left, axes_right, squares = np.eye(len(left)), np.eye(len(right)), 0.0
        for g in gradients:
            left = 0.5 * left + 0.5 * g @ g.T
            right = 0.5 * right + 0.5 * g.T @ g
            squares = 0.5 * squares + 0.5 * (axes_left.T @ g @ axes_right) ** 2
            axes_left, axes_right = np.linalg.eigh(left)[1], np.linalg.eigh(right)[1]

        def power(m):
            values, vectors = np.linalg.eigh(m)
            values = values + epsilon if settings.get("method") == "newton" else np.maximum(values, epsilon)
            return (vectors * values ** (-1 / 8 if is_matrix else -1 / 4)) @ vectors.T

        z = np.asarray(draw(jax.random.fold_in(jax.random.clone(key), 1), like)).reshape(shape[0], -1)
        if is_soap:
            rotated = axes_left.T @ z @ axes_right / np.sqrt(np.sqrt(squares) + epsilon)
            expected = axes_left @ rotated @ axes_right.T
        else:
            expected = power(left) @ z @ power(right) if is_matrix else power(left) @ z
        update = jax.jit(lambda state, g: metric.update(state, like, g))
        state = metric.init(like)
        for g in gradients:
            state = update(state, jnp.asarray(g.reshape(shape)))
        found = compiled(metric, "apply_inverse_sqrt")(state, jnp.asarray(z.reshape(shape)))
        np.testing.assert_allclose(found.reshape(z.shape), expected, rtol=1e-6, atol=1e-8)

    def test_shampoo_in_blocks_of_one_entry(self, key):
        """L = R = h, the average of the squared entry: G^-1 = h^-1/4 * h^-1/4."""
        epsilon = 1e-3
        metric = gx.metrics.Shampoo(decay=0.5, statistics_every=1, update_every=1, epsilon=epsilon, block_size=1)
        like = jnp.zeros((3, 2))
        h = np.full((3, 2), epsilon)
        for k in jax.random.split(key, 6):
            h = 0.5 * h + 0.5 * np.asarray(draw(k, like)) ** 2
        found = metric.apply_inverse(learnt(metric, jax.random.clone(key), like), jnp.ones((3, 2)))
        np.testing.assert_allclose(found, h**-0.5, rtol=1e-6)

    def test_monge_is_normalised_unless_it_has_a_weight(self, key):
        """The average of alpha2 |m|^2 is 1, whatever the scale of the gradient."""
        metric = gx.metrics.Monge(decay=0.0)
        state, lengths = metric.init(jnp.zeros(3)), []
        for k in jax.random.split(key, 50):
            gradient = 1e3 * jax.random.normal(k, (3,))
            lengths.append(float(gradient @ gradient))
            state = compiled(metric, "update")(state, jnp.zeros(3), gradient)
        m = np.asarray(gradient)
        a = 1.0 / np.average(lengths, weights=0.9999 ** np.arange(49, -1, -1))
        expected = np.linalg.inv(np.eye(3) + a * np.outer(m, m))
        np.testing.assert_allclose(jax.vmap(lambda e: metric.apply_inverse(state, e))(jnp.eye(3)), expected, atol=1e-9)

    def test_a_frozen_metric_that_follows_the_gradient_waits(self, key):
        """The identity while it learns, the metric as it was learnt afterwards."""
        inner = gx.metrics.Monge(alpha2=0.7)
        metric = gx.metrics.Frozen(inner, after=3)
        z = draw(jax.random.fold_in(key, 1))
        for steps, is_learning in ((2, True), (3, False), (5, False)):
            state = learnt(metric, jax.random.clone(key), steps=steps)
            for name in ("apply_inverse", "apply_inverse_sqrt"):
                found = compiled(metric, name)(state, z)
                expected = z if is_learning else compiled(inner, name)(state.metric, z)
                jax.tree.map(np.testing.assert_array_equal, found, expected)

    @pytest.mark.thorough
    @pytest.mark.parametrize("steps", [7, 11])
    @pytest.mark.parametrize(
        "make",
        [
            lambda every: gx.metrics.Shampoo(statistics_every=1, update_every=every, block_size=2),
            lambda every: gx.metrics.Wenzel(update_every=every),
        ],
        ids=["shampoo", "wenzel"],
    )
    def test_what_is_frozen_knows_all_gradients(self, key, make, steps):
        """Catches roots of the first gradient alone, or scales of none, that stay for ever."""
        frozen = learnt(gx.metrics.Frozen(make(100), after=7), jax.random.clone(key), steps=steps)
        expected = learnt(make(1), jax.random.clone(key), steps=7)
        for found, wanted in zip(jax.tree.leaves(frozen.metric), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-12)

    def test_a_frozen_metric_stops_learning(self, key):
        metric = METRICS["frozen"]
        early = late = learnt(metric, key, steps=3)
        for i in range(5):
            late = compiled(metric, "update")(late, POSITION, draw(jax.random.fold_in(key, i)))
        np.testing.assert_array_equal(early.metric.squares["w"], late.metric.squares["w"])


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize("power", [2, 4, 8])
def test_inverse_roots(key, method, power, dtype):
    a = jax.random.normal(key, (4, 12, 20), dtype)
    m = a @ jnp.swapaxes(a, -1, -2)
    root = inverse_root(m, power, 1e-12, method)
    product = np.asarray(m, np.float64)
    raised = np.linalg.matrix_power(np.asarray(root, np.float64), power)
    tolerance = 1e-8 if dtype == jnp.float64 else 5e-3
    np.testing.assert_allclose(raised @ product, np.broadcast_to(np.eye(12), (4, 12, 12)), atol=tolerance)


class TestDivergence:
    """The drift against autodiff of the inverse metric, for metrics whose average is the gradient at the position."""

    def potential(self, x):
        return 0.5 * x @ jnp.array([[2.0, 0.4, 0.0], [0.4, 1.0, -0.3], [0.0, -0.3, 1.5]]) @ x + 0.1 * jnp.sum(x**4)

    def divergence(self, metric, x):
        def inverse(x):
            state = metric.update(metric.init(x), x, jax.grad(self.potential)(x))
            return jax.vmap(lambda e: metric.apply_inverse(state, e))(jnp.eye(3))

        return np.einsum("ijj->i", jax.jit(jax.jacfwd(inverse))(x))

    def curvature(self, x, key):
        gradient, product = jax.linearize(jax.grad(self.potential), x)
        return Curvature(gradient, product, key)

    def drift(self, metric, state, x, key, **changes):
        @jax.jit
        def found(state, x, key):
            return metric.drift(state, x, self.curvature(x, key)._replace(**changes))

        return found(state, x, key)

    def at(self, metric, x):
        """The state after the gradient there."""
        return jax.jit(lambda x: metric.update(metric.init(x), x, jax.grad(self.potential)(x)))(x)

    def test_monge(self, key):
        x = jnp.array([0.7, -1.1, 0.4])
        metric = gx.metrics.Monge(alpha2=0.8, decay=0.0, exact=True)
        found = self.drift(metric, self.at(metric, x), x, key)
        np.testing.assert_allclose(found, self.divergence(metric, x), rtol=1e-12)

    def test_share_of_the_papers_appendix(self, key):
        x = jnp.array([0.7, -1.1, 0.4])
        drifts = {}
        for gamma in ("full", "a2"):
            metric = gx.metrics.Monge(alpha2=0.8, decay=0.75, gamma=gamma, exact=True)
            drifts[gamma] = self.drift(metric, self.at(metric, x), x, jax.random.clone(key))
        np.testing.assert_allclose(drifts["a2"], 0.25 * drifts["full"], rtol=1e-12)

    @pytest.mark.parametrize(("decay", "lag"), [(0.0, False), (0.75, False), (0.75, True)])
    def test_share_that_an_average_follows(self, key, decay, lag):
        """1 / (1 + window * curvature); a window of no time follows at once, whatever the step."""
        x = jnp.array([0.7, -1.1, 0.4])
        metrics = {
            gamma: gx.metrics.Monge(alpha2=0.8, decay=decay, lag=lag, gamma=gamma, exact=True)
            for gamma in ("full", "averaged")
        }
        state, step_size = self.at(metrics["full"], x), 0.3
        drifts = {
            gamma: np.asarray(self.drift(metric, state, x, jax.random.clone(key), step_size=step_size))
            for gamma, metric in metrics.items()
        }
        hessian = np.asarray(jax.jit(jax.hessian(self.potential))(x))
        inverse = np.asarray(jax.jit(jax.vmap(lambda e: metrics["full"].apply_inverse(state, e)))(jnp.eye(3)))
        curvature = np.trace(hessian @ inverse @ hessian) / np.trace(hessian)
        window = step_size * (decay + lag * (1 - decay)) / (1 - decay)
        np.testing.assert_allclose(drifts["averaged"], drifts["full"] / (1 + window * curvature), rtol=1e-12)

    def test_no_curvature_at_all(self, key):
        """A linear potential: nothing is added, and nothing divided by zero."""
        x = jnp.ones(3)
        metric = gx.metrics.Monge()
        flat = Curvature(x, lambda v: 0.0 * v, key, jnp.asarray(0.1))
        state = metric.update(metric.init(x), x, x)
        np.testing.assert_array_equal(metric.drift(state, x, flat), jnp.zeros(3))

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", ["monge", "rmsprop"])
    def test_probes_are_unbiased(self, key, name):
        """All 8 sign vectors in 3 dimensions make the probe's expectation exact."""
        x = jnp.array([0.7, -1.1, 0.4])
        metric = {
            "monge": gx.metrics.Monge(alpha2=0.8, decay=0.0),
            "rmsprop": gx.metrics.RMSProp(decay=0.0, epsilon=0.3, gamma="full"),
        }[name]
        state = self.at(metric, x)
        keys = jax.random.split(key, 4000)
        drifts = np.asarray(jax.jit(jax.vmap(lambda k: metric.drift(state, x, self.curvature(x, k))))(keys))
        error = drifts.std(0) / np.sqrt(4000)
        assert np.all(np.abs(drifts.mean(0) - self.divergence(metric, x)) < 4.5 * error + 1e-12)

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", METRICS)
    def test_who_leaves_it_out_says_so(self, name, key):
        metric = METRICS[name]
        state = learnt(metric, key)
        if not metric.needs_curvature:
            assert all(not bool(x.any()) for x in jax.tree.leaves(metric.drift(state, POSITION)))
        assert metric.has_exact_drift == (name.split("-")[0] not in {"rmsprop", "wenzel", "shampoo", "soap"})


class TestPeriodicWork:
    def test_it_is_skipped_where_it_is_not_due(self):
        """Also under vmap, where lax.cond would compute both branches; a NaN that is computed would show in the flag."""
        calls = []

        def work(x):
            jax.debug.callback(lambda: calls.append(1))
            return x + 1.0

        run = jax.jit(jax.vmap(lambda due, x: when(due, work, x)))
        np.testing.assert_array_equal(run(jnp.array([False, False]), jnp.zeros(2)), [0.0, 0.0])
        jax.effects_barrier()
        assert not calls
        np.testing.assert_array_equal(run(jnp.array([False, True]), jnp.zeros(2)), [0.0, 1.0])
        jax.effects_barrier()
        assert calls

    def test_nested(self):
        run = jax.vmap(jax.vmap(lambda due, x: when(due, lambda x: 2.0 * x, x)))
        due = jnp.array([[True, False], [False, False]])
        np.testing.assert_array_equal(run(due, jnp.ones((2, 2))), [[2.0, 1.0], [1.0, 1.0]])
        shared = jax.vmap(lambda x: when(jnp.array(True), lambda x: 2.0 * x, x))
        np.testing.assert_array_equal(shared(jnp.ones(3)), 2.0 * np.ones(3))

    def test_derivatives(self):
        """Of which vmap batches the tangents alone: a rule that calls itself for them would never end."""
        derivative = jax.jacfwd(lambda x: when(x[0] > 0, lambda x: x * x, x))
        points = jnp.array([[1.0, 2.0], [-1.0, 2.0]])
        expected = [np.diag([2.0, 4.0]), np.eye(2)]
        np.testing.assert_array_equal(derivative(points[0]), expected[0])
        np.testing.assert_array_equal(jax.vmap(derivative)(points), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.metrics.Monge(gamma="half"), "gamma must be one of"),
        (lambda: gx.metrics.Monge(decay=1.0), "decay must be at least 0 and below 1"),
        (lambda: gx.metrics.Monge(alpha2=-1.0), "alpha2 must be at least 0"),
        (lambda: gx.metrics.Monge(alpha2=1.0, normalize=1.0), "give one of the two, found alpha2=1.0"),
        (lambda: gx.metrics.RMSProp(gamma="a2"), "gamma must be one of"),
        (lambda: gx.metrics.Shampoo(update_every=15), "multiple of statistics_every"),
        (lambda: gx.metrics.Shampoo(method="svd"), "method must be one of"),
        (lambda: gx.metrics.Shampoo(variant="kron"), "variant must be one of"),
        (lambda: gx.metrics.Shampoo(vectors="none"), "vectors must be one of"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda count: gx.metrics.Frozen(gx.metrics.RMSProp(), after=count), "after"),
        (lambda count: gx.metrics.Wenzel(update_every=count), "update_every"),
        (lambda count: gx.metrics.Shampoo(block_size=count), "block_size"),
        (lambda count: gx.metrics.Shampoo(statistics_every=count, update_every=20), "statistics_every"),
        (lambda count: gx.metrics.Shampoo(statistics_every=1, update_every=count), "update_every"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_of_gradients_are_whole(make, name):
    """Catches numbers that end in an error about the loop that a run is made of, and NumPy's numbers in a setting."""
    assert type(getattr(make(np.int64(10)), name)) is int
    for wrong in (10.0, 2.5, True):
        with pytest.raises(TypeError, match=rf"{name} must be an integer, found {wrong}"):
            make(wrong)
