"""Running samplers and variational fits: the loop, draws, checkpoints, devices."""

from importlib.util import find_spec

if not __debug__ and find_spec("zarr") is not None:
    import geodax.run.without_asserts  # noqa: F401
