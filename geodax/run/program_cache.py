"""Compiled programs on disk, in JAX's persistent compilation cache.

The first program that geodax compiles in a process switches the cache on, with a folder ``geodax/programs`` in the
user's cache folder and at most 256 MiB. The settings of JAX take precedence: ``JAX_COMPILATION_CACHE_DIR`` chooses
another folder, ``JAX_ENABLE_COMPILATION_CACHE=0`` switches it off.
"""

import functools
import os
from pathlib import Path
from typing import Any

import filelock
import jax
import platformdirs

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
            _remove_halves(folder)
    except (OSError, NotImplementedError):  # a lock not had in time is an OSError; some file systems have none
        return
    for name, default, ours in _SETTINGS:
        if getattr(config, name) == default:
            config.update(name, ours)
    config.update("jax_compilation_cache_dir", str(folder))


def _remove_halves(folder: Path) -> None:
    """Remove what a killed process has left: JAX writes a program, then the time of its use, and needs both."""
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
            program.unlink()
