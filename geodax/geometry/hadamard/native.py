"""The compiled CPU kernel: built from ``native.cc`` once per machine, and called through JAX's FFI.

The library is stored in the folder named by ``GEODAX_CACHE``, otherwise in the user's cache. It is built at the first
use, for the current processor. Without a C++ compiler, or with ``GEODAX_NATIVE=0``, :func:`is_native` is False, the log
gives the reason once, and the transform runs in plain JAX.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Float

from geodax._types import Array

_SOURCE = Path(__file__).with_name("native.cc")
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-w")
_MOST_SECONDS = 300
_TARGETS = {"float32": ("geodax_fwht_f32", "GeodaxFwhtF32"), "float64": ("geodax_fwht_f64", "GeodaxFwhtF64")}
_log = logging.getLogger(__name__)


@functools.cache
def is_native() -> bool:
    """Whether the compiled CPU kernel can be used; builds it on the first call."""
    if os.environ.get("GEODAX_NATIVE", "1") == "0":
        return False
    try:
        library = ctypes.CDLL(str(_built()))
        for name, symbol in _TARGETS.values():
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, symbol)), platform="cpu")
            jax.ffi.register_ffi_target_as_batch_partitionable(name)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        _log.warning(
            "The compiled Walsh-Hadamard kernel is not available (%s); plain JAX is used, which is 2 to 5 times slower "
            "on a CPU. Install a C++ compiler (Debian: g++) and restart, or set GEODAX_NATIVE=0 to use plain JAX "
            "without this message.",
            error,
        )
        return False
    return True


def native(x: Float[Array, "*rows d"]) -> Float[Array, "*rows d"]:
    """Compute the orthonormal transform of rows of 2^k numbers in single or double precision, on a CPU."""
    name, _ = _TARGETS[x.dtype.name]
    call = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")
    with set_xla_metadata(num_batch_dims=x.ndim - 1):  # rows on several devices are not moved
        return call(x, factor=np.float64(x.shape[-1] ** -0.5))


def _built() -> Path:
    """Path of the library for this source, processor and version of JAX's headers; compiled if it does not exist."""
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    identity = [_SOURCE.read_bytes(), jax.__version__.encode(), _processor().encode(), " ".join(_FLAGS).encode()]
    folder = Path(os.environ.get("GEODAX_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "geodax")
    library = folder.expanduser() / f"fwht-{hashlib.sha256(b'|'.join(identity)).hexdigest()[:20]}.so"
    if library.exists():
        return library
    if compiler is None:
        raise OSError("no C++ compiler was found")
    library.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=library.parent)
    os.close(handle)
    try:
        command = [compiler, *_FLAGS, "-isystem", jax.ffi.include_dir(), str(_SOURCE), "-o", unfinished]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.strip()[-500:]}")
        Path(unfinished).replace(library)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return library


def _processor() -> str:
    """The processor features that ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.system()} {platform.machine()} {platform.processor()} {flags}"
