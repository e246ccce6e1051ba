"""Solving without pivoting, factors and solutions without LAPACK's threads, and the derivative of the polar factor."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.geometry import linalg
from geodax.geometry.linalg import cholesky, in_pieces, solve_accretive, solve_lower

ROOT = Path(__file__).resolve().parents[2]


def system(size: int, dtype=jnp.float64):
    rng = np.random.default_rng(size)
    skew = rng.normal(size=(3, size, size))
    matrix = np.eye(size) + 2.0 * (skew - np.swapaxes(skew, -1, -2))
    return jnp.asarray(matrix, dtype), jnp.asarray(rng.normal(size=(3, size, 5)), dtype)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 10, 11, 16, 37])  # unrolled, blocks with and without padding
def test_solves_systems_with_a_large_skew_part(size):
    matrix, right = system(size)
    found = jax.jit(solve_accretive)(matrix, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=1e-13)
    found = solve_accretive(*system(size, jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=2e-5)


@pytest.mark.thorough
def test_derivative():
    matrix, right = system(11)

    def energy(solve):
        return jax.grad(lambda m: jnp.sum(jnp.sin(solve(m, right))))(matrix)

    np.testing.assert_allclose(energy(solve_accretive), energy(jnp.linalg.solve), rtol=0, atol=1e-12)


def test_no_call_that_waits_for_other_threads():
    """Batches of LAPACK calls in the loop of several chains have been seen to wait for each other for ever."""
    text = jax.jit(jax.vmap(solve_accretive)).lower(*system(40)).compile().as_text()
    assert "custom-call" not in text


def positive(size: int, dtype=np.float64, batch: int = 3):
    rng = np.random.default_rng(size)
    m = rng.normal(size=(batch, size, size))
    if np.issubdtype(dtype, np.complexfloating):
        m = m + 1j * rng.normal(size=m.shape)
    return jnp.asarray(m @ np.conj(np.swapaxes(m, -1, -2)) + size * np.eye(size), dtype)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 7, 41])  # 41 is LAPACK's
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_triangular_factors_and_solutions(size, dtype):
    m, right = positive(size, dtype), jnp.asarray(np.random.default_rng(0).normal(size=(3, size, 2)), dtype)
    lower = jax.jit(cholesky)(m)
    np.testing.assert_allclose(lower, np.linalg.cholesky(m), rtol=0, atol=1e-12 * size)
    dirty = lower + jnp.triu(jnp.ones_like(lower), 1)
    found = jax.jit(solve_lower)(dirty, right)
    np.testing.assert_allclose(found, np.linalg.solve(lower, right), rtol=1e-11, atol=1e-12)
    found = jax.jit(lambda m, b: solve_lower(m, b, transpose=True))(dirty, right)
    np.testing.assert_allclose(found, np.linalg.solve(linalg.adjoint(lower), right), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("size", [1, 12, 41])  # 41 is LAPACK's
def test_systems_with_their_determinants(size):
    matrix, right = system(size)
    found, log_determinant = jax.jit(linalg.solve_accretive_and_log_det)(matrix, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrix)[1], rtol=1e-12, atol=1e-14)


@pytest.mark.thorough
def test_derivatives_of_triangular_factors_and_solutions():
    """Those of JAX's own, up to the second, in a function that uses all entries."""

    def energy(factor, solve, m):
        lower = factor(m)
        return jnp.sum(jnp.sin(solve(lower, m[..., :2]))) + jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)))

    def theirs(lower, b):
        half = jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True)
        return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)

    def ours(lower, b):
        return solve_lower(lower, solve_lower(lower, b), transpose=True)

    m = positive(5)
    gradients = [
        jax.jit(jax.grad(lambda m, f=f, s=s: energy(f, s, m)))
        for f, s in ((jnp.linalg.cholesky, theirs), (cholesky, ours))
    ]
    np.testing.assert_allclose(gradients[1](m), gradients[0](m), rtol=1e-10, atol=1e-12)
    changes = [jax.jvp(g, (m,), (m + 1.0,))[1] for g in gradients]
    np.testing.assert_allclose(changes[1], changes[0], rtol=1e-9, atol=1e-11)


def test_an_indefinite_matrix_has_no_factor():
    m = jnp.asarray([[[1.0, 2.0], [2.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]])
    found = cholesky(m)
    assert jnp.isnan(found[0, 1, 1])
    np.testing.assert_allclose(found[1], np.sqrt(2.0) * np.eye(2), rtol=1e-15)


def work_of_lapack_calls(function, *arguments) -> list[int]:
    """Multiplications, n p min(n, p) a matrix, that each call to LAPACK in a compiled program gets with a batch."""
    text = jax.jit(function).lower(*arguments).compile().as_text() or ""
    found = []
    for shape in re.findall(r"= \(f\d+\[([\d,]+)\].* custom-call\(.*lapack", text):
        *batch, n, p = (int(size) for size in shape.split(","))
        found.append(int(np.prod(batch)) * n * p * min(n, p) if np.prod(batch) > 1 else 0)
    return found


def test_large_batches_are_cut_and_small_ones_are_not():
    """Catches batches that JAX would share out to threads, of matrices that are there at once or come by vmap."""

    def values(m):
        return in_pieces(lambda m: tuple(jnp.linalg.eigh(m)), m)

    few, many, large = positive(5, batch=8), positive(5, batch=500), positive(30, batch=4)
    assert work_of_lapack_calls(jax.vmap(values), few) == [8 * 125]
    for function, m in (
        (values, many),
        (jax.vmap(values), many),
        (jax.vmap(jax.vmap(values)), many.reshape(5, 100, 5, 5)),
        (jax.vmap(values), many.reshape(5, 100, 5, 5)),
        (jax.vmap(values), large),
    ):
        works = work_of_lapack_calls(function, m)
        assert works
        assert max(works) <= 8_000
        for ours, theirs in zip(jax.jit(function)(m), jnp.linalg.eigh(m), strict=True):
            np.testing.assert_allclose(np.abs(ours), np.abs(theirs), rtol=0, atol=1e-9)


@pytest.mark.thorough
def test_pieces_have_the_derivatives_of_the_whole():
    """Twice in reverse mode, in two directions at once, and under vmap.

    The batch is one that is cut, and so small that JAX does not share it out to threads, which could deadlock.
    """
    m = positive(4, batch=130)
    directions = jnp.asarray(np.random.default_rng(1).normal(size=(2, *m.shape)))

    def derivatives(factor):
        def energy(m):
            return jnp.sum(jnp.sin(factor(m)))

        gradient = jax.grad(energy)
        second = jax.vmap(lambda d: jax.grad(lambda m: jnp.vdot(gradient(m), d))(m))(directions)
        return second, jax.vmap(lambda d: jax.jvp(jax.vmap(factor), (m,), (d,))[1])(directions)

    works = work_of_lapack_calls(lambda m: derivatives(jnp.linalg.cholesky), m)
    assert max(works) < 32_000
    cut = derivatives(lambda m: in_pieces(jnp.linalg.cholesky, m))
    for ours, theirs in zip(cut, derivatives(jnp.linalg.cholesky), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11)


TWO_AT_A_TIME = """
import jax
import jax.numpy as jnp
import numpy as np
from geodax.geometry.linalg import cholesky, inverse_root, solve_lower

rng = np.random.default_rng(0)


def positive(batch, size):
    m = rng.normal(size=(batch, size, size)).astype(np.float32)
    return jnp.asarray(m @ np.swapaxes(m, -1, -2) + size * np.eye(size, dtype=np.float32))


@jax.jit
def program(many, large):
    factors = [cholesky(m) for m in many]
    return [solve_lower(f, m) for f, m in zip(factors, many)], [inverse_root(m, 8, 1e-6) for m in large]


many, large = [positive(20_000, 3) for _ in range(4)], [positive(8, 60) for _ in range(5)]
for _ in range(60):
    jax.block_until_ready(program(many, large))
print("finished")
"""


@pytest.mark.parametrize(
    "spectrum", [(0.0, 0.0, 0.0), (1e-9, 3e-8, -1e-7), (-0.9, 0.5, 0.4), (0.9, 1.5, 2.0), (30.0, 5e3, -0.5)], ids=str
)
@pytest.mark.parametrize("is_complex", [False, True])
def test_correction_of_the_inverse_root(spectrum, is_complex):
    """Against the eigenvalues that the matrices were made of; what is small keeps its digits."""
    generator = np.random.default_rng(8)
    m = generator.normal(size=(2, 3, 3)) + (1j * generator.normal(size=(2, 3, 3)) if is_complex else 0)
    q, _ = np.linalg.qr(m)
    values = np.array(spectrum)

    def made_of(values):
        return (q * values) @ np.conj(np.swapaxes(q, -1, -2))

    found = jax.jit(linalg.sqrt_corrections)(made_of(values))
    scale = max(np.max(np.abs(values)), 1e-300)
    for sign, correction in zip((-1, 1), found, strict=True):
        expected = made_of(np.expm1(0.5 * sign * np.log1p(values)))
        atol = 2e-13 * min(scale, 1.0) * max(scale, 1.0) ** 2
        np.testing.assert_allclose(correction, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("scale", [3e-4, 3e-3, 2e-2, 3e-2, 5e-2])
def test_corrections_of_roots_in_single_precision(scale):
    """One product, two, or rounds: each where its entries are exact to ten roundings."""
    m = np.random.default_rng(4).normal(size=(60, 20))
    e = scale * (m.T @ m) / 60
    values, vectors = np.linalg.eigh(e)
    found = jax.jit(linalg.sqrt_corrections)(jnp.asarray(e, jnp.float32))
    for sign, correction in zip((-1, 1), found, strict=True):
        expected = (vectors * np.expm1(0.5 * sign * np.log1p(values))) @ vectors.T
        np.testing.assert_allclose(correction, expected, rtol=0, atol=10 * np.finfo(np.float32).eps)


def test_correction_of_the_inverse_root_of_what_is_not_finite():
    for correction in jax.jit(linalg.sqrt_corrections)(jnp.full((2, 2), jnp.nan)):
        assert not np.isfinite(correction).any()


@pytest.mark.thorough
def test_calls_that_do_not_depend_on_each_other_end():
    """Catches factorisations that wait for each other for ever where there are few cores."""
    process = subprocess.run(
        [sys.executable, "-c", TWO_AT_A_TIME], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert process.stdout == "finished\n"


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (2, 5)])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
@pytest.mark.parametrize("is_degenerate", [False, True])
def test_the_polar_factor_has_its_derivative(shape, dtype, is_degenerate):
    """Against central differences, also where singular values are equal; and reverse mode is the transpose of forward."""
    generator = np.random.default_rng(3)

    def drawn():
        parts = generator.standard_normal((2, *shape))
        return parts[0] + 1j * parts[1] if dtype == jnp.complex128 else parts[0]

    x, change, weights = drawn(), drawn(), drawn()
    if is_degenerate:
        x = 1.7 * np.asarray(linalg.polar_factor(jnp.asarray(x)))
    x, change, weights = (jnp.asarray(a) for a in (x, change, weights))
    tangent = jax.jit(lambda x: jax.jvp(linalg.polar_factor, (x,), (change,))[1])(x)
    step = 1e-5
    difference = (linalg.polar_factor(x + step * change) - linalg.polar_factor(x - step * change)) / (2 * step)
    np.testing.assert_allclose(tangent, difference, atol=1e-8)
    (pulled,) = jax.vjp(linalg.polar_factor, x)[1](weights)
    np.testing.assert_allclose(jnp.sum(pulled * change).real, jnp.sum(weights * tangent).real, rtol=1e-9)


@pytest.mark.thorough
def test_polar_factors_are_differentiated_on_several_devices():
    """Batched within ``shard_map`` on the devices of the tests, where LAPACK takes one matrix at a time."""
    devices = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.asarray(devices), ("chain",))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2 * len(devices), 4, 2)))

    def gradient(x):
        return jax.vmap(jax.grad(lambda m: jnp.sum(linalg.polar_factor(m)[0])))(x)

    spec = jax.sharding.PartitionSpec("chain")
    shared = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(x)
    np.testing.assert_allclose(shared, gradient(x), rtol=1e-10, atol=1e-12)
