"""The polar factor and its derivatives, where the textbook's derivative of an eigenvalue decomposition breaks down too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import geodax as gx
from geodax.geometry.transforms.polar import polar

SHAPES = [(1, 1), (4, 1), (3, 2), (7, 3), (4, 4), (20, 5)]


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_factor_is_that_of_the_polar_decomposition(shape, key, dtype):
    """SciPy's, which goes through a singular value decomposition."""
    x = jax.random.normal(key, shape, dtype)
    expected, _ = scipy.linalg.polar(np.asarray(x, np.float64))
    found = polar(x)
    assert found.dtype == dtype
    condition = np.linalg.cond(np.asarray(x, np.float64))
    np.testing.assert_allclose(found, expected, atol=30 * jnp.finfo(dtype).eps * condition)
    np.testing.assert_allclose(found.T @ found, np.eye(shape[1]), atol=100 * jnp.finfo(dtype).eps)


def repeated(n: int, p: int) -> jax.Array:
    """A matrix whose singular values are all the same."""
    return 2.0 * jnp.linalg.qr(jax.random.normal(jax.random.key(5), (n, p)))[0]


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(4, 1), (3, 2), (7, 3), (4, 4)])
@pytest.mark.parametrize("where", ["generic", "repeated"])
def test_derivatives_agree_with_differences(shape, where, key):
    """First derivatives in both modes, and second ones, at repeated singular values too."""
    key_x, key_f, key_v = jax.random.split(key, 3)
    x = jax.random.normal(key_x, shape) if where == "generic" else repeated(*shape)
    f, v = jax.random.normal(key_f, shape), jax.random.normal(key_v, shape)

    def value(x):
        return jnp.sum(f * polar(x) ** 2)

    both, step = jax.value_and_grad(value), 1e-5

    @jax.jit
    def derivatives(x, v):
        curvatures = jax.jvp(jax.grad(value), (x,), (v,))[1], jax.grad(lambda x: jnp.sum(jax.grad(value)(x) * v))(x)
        return both(x)[1], jax.jvp(value, (x,), (v,))[1], curvatures

    gradient, along, curvatures = derivatives(x, v)
    (value_up, value_down), (gradient_up, gradient_down) = jax.jit(jax.vmap(both))(
        jnp.stack([x + step * v, x - step * v])
    )
    by_differences = (value_up - value_down) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * v), by_differences, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(along, by_differences, rtol=1e-6, atol=1e-8)
    for curvature in curvatures:
        second = (gradient_up - gradient_down) / (2 * step)
        np.testing.assert_allclose(curvature, second, rtol=1e-5, atol=1e-7)


def test_gradient_is_accurate_in_single_precision_near_repeated_singular_values():
    """The derivative through eigh divides by differences of 1e-6 there."""
    x = repeated(6, 3) * (1 + 1e-6 * jnp.arange(3.0))[None, :]
    f = jnp.cos(jnp.arange(18.0)).reshape(6, 3)

    @jax.jit
    def gradient(x):
        return jax.grad(lambda x: jnp.sum(f.astype(x.dtype) * polar(x)))(x)

    np.testing.assert_allclose(gradient(x.astype(jnp.float32)), gradient(x), atol=1e-6)


def test_square_matrices_of_both_determinants(key):
    transform = gx.transforms.Polar(3, 3)
    z = jax.random.normal(key, (200, 9))
    signs = np.sign(np.linalg.det(np.asarray(jax.vmap(transform.forward)(z))))
    np.testing.assert_array_equal(signs, np.sign(np.linalg.det(np.asarray(z.reshape(200, 3, 3)))))
    assert set(signs) == {-1.0, 1.0}
