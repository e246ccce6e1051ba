"""The fast Walsh-Hadamard transform: every back end against the matrix."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from geodax.geometry.hadamard import BACKENDS, fwht, gpu, hadamard_matrix, hadamard_size, is_native

HAS_KERNEL = is_native() and jax.default_backend() == "cpu"
without_kernel = pytest.mark.skipif(
    not HAS_KERNEL, reason="there is no C++ compiler here, or tests run on an accelerator"
)
NATIVE = pytest.param("native", marks=without_kernel)
ON_A_CPU = [None, "dense", "kronecker", NATIVE]
SIZES = {None: (1, 8, 16, 64), "dense": (2, 32), "kronecker": (2, 8, 64, 1024)}
NATIVE_SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # each has a program of its own in the kernel


def rows(shape, dtype=jnp.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def exact(x):
    return np.asarray(x, np.float64) @ scipy.linalg.hadamard(x.shape[-1]) / np.sqrt(x.shape[-1])


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ON_A_CPU)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_multiplies_by_sylvesters_matrix(backend, dtype):
    for size in SIZES.get(backend, NATIVE_SIZES):
        for count in (1, 37):  # 37: whole blocks of the kernel, groups of its vectors, and what is left over
            x = rows((count, size), dtype, size + count)
            found = fwht(x, backend=backend)
            assert found.dtype == x.dtype
            np.testing.assert_allclose(found, exact(x), rtol=0, atol=20 * np.sqrt(size) * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("backend", ["kronecker", NATIVE])
def test_long_rows(backend):
    for size in (2**11, 2**14, 2**17) if backend == "native" else (2**11,):
        x = rows((2, size), jnp.float64)
        np.testing.assert_allclose(fwht(fwht(x, backend=backend), backend=backend), x, rtol=0, atol=1e-12)
        first = fwht(jnp.eye(1, size, dtype=jnp.float64) * 1.0, backend=backend)
        np.testing.assert_allclose(first, np.full((1, size), size**-0.5), rtol=1e-12)
        last = fwht(jnp.eye(1, size, size - 1, dtype=jnp.float64), backend=backend)
        parity = np.array([1 - 2 * (i.bit_count() % 2) for i in range(size)])
        np.testing.assert_allclose(last[0], parity * size**-0.5, rtol=1e-12)


@without_kernel
def test_threads_take_every_row():
    x = rows((1031, 512))  # more than a megabyte, in pieces that do not divide the rows
    np.testing.assert_allclose(fwht(x, backend="native"), fwht(x, backend="dense"), rtol=0, atol=1e-5)


def test_products_take_every_row():
    x = rows((1031, 1024))  # more than fit the cache, in blocks that do not divide the rows
    np.testing.assert_allclose(fwht(x, backend="kronecker"), exact(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", [12, 20, 28])
def test_other_sizes_have_a_symmetric_matrix_of_plus_and_minus_one(order):
    for size in (order, 8 * order):
        matrix = hadamard_matrix(size)
        np.testing.assert_allclose(np.abs(matrix), size**-0.5, rtol=1e-12)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(matrix @ matrix, np.eye(size), rtol=0, atol=1e-12)
        x = rows((3, size), jnp.float64)
        np.testing.assert_allclose(fwht(x), x @ matrix, rtol=0, atol=1e-12)


def test_axis():
    x = rows((3, 16, 5), jnp.float64)
    expected = jnp.einsum("ij,ajb->aib", hadamard_matrix(16), x)
    np.testing.assert_allclose(fwht(x, axis=1), expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(fwht(x, axis=-2), expected, rtol=0, atol=1e-13)


def test_half_precision_is_summed_in_single():
    x = rows((4, 256), jnp.bfloat16)
    found = fwht(x)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float64), exact(x), rtol=2**-8, atol=2**-12)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["kronecker", NATIVE])
def test_derivatives_of_both_modes_and_batches(backend):
    matrix = jnp.asarray(hadamard_matrix(16))
    x = rows((3, 16), jnp.float64)

    def energy(multiply):
        return lambda x: jnp.sum(jnp.sin(multiply(x)) ** 2)

    ours, truth = energy(lambda x: fwht(x, backend=backend)), energy(lambda x: x @ matrix)
    np.testing.assert_allclose(jax.grad(ours)(x), jax.grad(truth)(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(jax.grad(ours))(x), jax.vmap(jax.grad(truth))(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.hessian(ours))(x[0]), jax.hessian(truth)(x[0]), rtol=0, atol=1e-12)
    tangent = rows((3, 16), jnp.float64, seed=1)
    np.testing.assert_allclose(
        jax.jvp(jax.grad(ours), (x,), (tangent,))[1], jax.jvp(jax.grad(truth), (x,), (tangent,))[1], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        jax.vmap(lambda x: fwht(x, backend=backend), in_axes=1, out_axes=1)(x.T), (x @ matrix).T, rtol=0, atol=1e-13
    )


@without_kernel
def test_rows_on_several_devices_stay_there():
    devices = jax.devices()[:2]
    mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))
    sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data", None))
    x = jax.device_put(rows((8, 64)), sharded)
    transform = jax.jit(fwht, out_shardings=sharded)
    assert "all-gather" not in transform.lower(x).compile().as_text()
    np.testing.assert_allclose(transform(x), exact(x), rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_gpu_kernel_computes_the_transform():
    for size in (256, 512, 1024, 2048):  # every smaller digit
        x = rows((5, size))
        np.testing.assert_allclose(gpu.transform(x, interpret=True), exact(x), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")  # JAX 0.12
def test_gpu_kernel_is_what_a_gpu_gets():
    x, device = rows((512, 1024)), jax.sharding.AbstractDevice("NVIDIA H100", 132, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ("x",), abstract_device=device)):
        lowered = jax.jit(fwht).trace(x).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()


def test_padding():
    assert [hadamard_size(n) for n in (1, 2, 3, 8, 9, 1000)] == [1, 2, 4, 8, 16, 1024]


def test_without_a_compiler_plain_jax_computes_it(tmp_path):
    program = (
        "import jax.numpy as jnp; from geodax.geometry.hadamard import fwht, is_native; "
        "print(is_native(), fwht(jnp.ones(64))[0])"
    )
    environment = {"PATH": str(tmp_path), "GEODAX_CACHE": str(tmp_path), "JAX_PLATFORMS": "cpu", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    was_native, first = done.stdout.split()
    assert was_native == "False"
    np.testing.assert_allclose(float(first), 8.0, rtol=1e-6)
    assert "no C++ compiler was found" in done.stderr


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (jnp.ones(48 + 2), {}, "pad with zeros to 64"),
        (jnp.ones(8, jnp.int32), {}, "convert them first"),
        (jnp.ones(8), {"axis": 1}, "found axis 1"),
        (jnp.ones(()), {}, "found axis -1"),
        (jnp.ones(8), {"backend": "fast"}, "must be None or one of"),
        (jnp.ones(8, jnp.bfloat16), {"backend": "native"}, "supports float32 and float64"),
    ],
)
def test_errors(x, options, message):
    with pytest.raises(ValueError, match=message):
        fwht(x, **options)


def test_the_native_kernel_elsewhere(monkeypatch):
    """JAX's message about a handler that is not registered."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(ValueError, match="found an array on gpu"):
        jax.eval_shape(lambda x: fwht(x, backend="native"), jnp.ones(8))


def test_back_ends_are_named():
    assert set(BACKENDS) == {"dense", "kronecker", "native", "gpu"}
