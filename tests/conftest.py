"""Settings that hold for every test, and the fixtures they share.

The environment is set before JAX is imported, the import hook before geodax is.
"""

import gc
import os
import tempfile
import time
import zlib
from pathlib import Path

STARTED = time.monotonic()
ROOT = Path(__file__).resolve().parents[1]
USER = os.getuid() if hasattr(os, "getuid") else 0
CACHE = (
    Path(tempfile.gettempdir()) / f"geodax-compilation-cache-{USER}" / os.environ.get("PYTEST_XDIST_WORKER", "alone")
)
CACHE_BYTES = 2**29
MOST_RESIDENT = 3 * 2**29  # bytes of a worker, beyond which it forgets its programs

# In the environment, so that the processes a test starts have them too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # JAX_PLATFORMS=cuda runs them on a GPU
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2".strip()
os.environ["MPLBACKEND"] = "agg"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of several workers would wait for each other
# A second run finds its programs compiled. Each worker has a folder (it inherits that of the process which starts it),
# since only with a size limit does JAX lock it, and then it looks at all files at every program that it adds.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

import hypothesis
import jax
import jax.numpy as jnp
import jaxtyping
import pytest

import tests.checked_types  # noqa: F401 (the import hook finds it by its name)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

jaxtyping.install_import_hook("geodax", "tests.checked_types.checked")

# The first example of a property compiles it: no deadline. The same examples on every run.
hypothesis.settings.register_profile(
    "geodax",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("geodax")


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="added to the seed that each test derives from its name")
    parser.addoption(
        "--minutes", type=float, default=float("inf"), help="tests that have not begun by then are skipped"
    )


def pytest_sessionstart():
    """Remove the oldest compiled programs where there are many."""
    size = 0
    for program in sorted(CACHE.glob("*-cache"), key=lambda path: -path.stat().st_mtime):
        size += program.stat().st_size
        if size > CACHE_BYTES:
            program.unlink()


def pytest_runtest_setup(item):
    """Keep the time that the tests may take."""
    if time.monotonic() - STARTED > 60.0 * item.config.getoption("--minutes"):
        pytest.skip("the minutes of the tests are over")


def pytest_collection_finish():
    """Look for cyclic garbage less often, and never among the modules and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs between two files, so that a worker stays near 2 GB."""
    resident = Path("/proc/self/statm")
    if nextitem is None or nextitem.path == item.path or not resident.exists():
        return
    if int(resident.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") > MOST_RESIDENT:
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def unchecked():
    """Without the type checks of the tests, as users have it."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def _strictness(request):
    """Lift the strict rules for tests marked `relaxed`."""
    if request.node.get_closest_marker("relaxed") is None:
        yield
        return
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.debug_key_reuse(False),
    ):
        yield


@pytest.fixture(params=[jnp.float32, jnp.float64], ids=["float32", "float64"])
def dtype(request):
    """Each of the two precisions."""
    return request.param


@pytest.fixture(scope="session")
def seed(request):
    """The number after ``--seed``, which changes all random keys of the tests."""
    return request.config.getoption("--seed")


@pytest.fixture
def key(request, seed):
    """A random key that is the test's own: the same on every run with a seed, another for every test."""
    return jax.random.key(zlib.crc32(request.node.nodeid.encode()) + seed)


@pytest.fixture
def compilations():
    """Names of the compilations by XLA."""
    names = []

    def listen(name, *_, **__):
        if name.endswith("backend_compile_duration"):
            names.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture
def geodax_data(monkeypatch):
    """The folder with the real data sets, also in the environment; skips where there is none."""
    named = os.environ.get("GEODAX_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        if named:
            pytest.fail(f"GEODAX_DATA is set to {named}, which is not a folder: correct it or unset it")
        pytest.skip("needs the real data sets: GEODAX_DATA is unset and ../shared/data does not exist")
    monkeypatch.setenv("GEODAX_DATA", str(folder))
    return folder
