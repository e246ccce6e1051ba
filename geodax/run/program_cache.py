"""Compiled programs on disk, in JAX's persistent compilation cache.

The first program that geodax compiles in a process switches the cache on, with a folder ``geodax/programs`` in the
user's cache folder: at most 256 MiB and, when a process starts, the 500 programs used last. The settings of JAX take
precedence: ``JAX_COMPILATION_CACHE_DIR`` chooses another folder, ``JAX_ENABLE_COMPILATION_CACHE=0`` switches it off.
"""

import functools
import os
from pathlib import Path
from typing import Any

import filelock
import jax
import platformdirs

_NUM_KEPT = 500  # JAX looks at the times of all programs whenever it adds one: 0.1 ms of the processor for each
_SETTINGS = (  # name, JAX's default, ours
    ("jax_compilation_cache_max_size", -1, 1 << 28),
    ("jax_persistent_cache_min_compile_time_secs", 1.0, 0.02),
)


@functools.cache
def keep_on_disk() -> None:
    """Switch the cache on, unless the user has chosen a folder or none, or its folder is not the user's to write.

    Whoever can write to the folder can run code in the processes that read it.
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    folder = Path(platformdirs.user_cache_dir("geodax", appauthor=False)) / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_foreign = hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()
        if is_foreign or not os.access(folder, os.W_OK | os.X_OK):
            return
        with filelock.FileLock(folder / ".lockfile", timeout=1):  # the lock that JAX takes
            _tidy(folder)
    except (OSError, NotImplementedError):  # a lock not had in time is an OSError; some file systems have none
        return
    for name, default, ours in _SETTINGS:
        if getattr(config, name) == default:
            config.update(name, ours)
    config.update("jax_compilation_cache_dir", str(folder))


def _tidy(folder: Path) -> None:
    times = sorted(folder.glob("*-atime"), key=lambda time: time.stat().st_mtime_ns)
    kept = {time.name.removesuffix("-atime") for time in times[-_NUM_KEPT:]}
    for path in [*folder.glob("*-cache"), *times]:
        if path.name.removesuffix("-cache").removesuffix("-atime") not in kept:
            path.unlink()
