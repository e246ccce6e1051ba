"""Running samplers and variational fits: the loop, draws, checkpoints, devices."""

from importlib.util import find_spec

from geodax._lazy import names_from

if not __debug__ and find_spec("zarr") is not None:
    import geodax.run.without_asserts  # noqa: F401

__getattr__ = names_from(__name__, {})
