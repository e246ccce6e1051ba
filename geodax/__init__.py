"""Bayesian inference on curved and structured parameter spaces, on JAX."""

import importlib
from typing import TYPE_CHECKING, Any

from geodax._version import __version__ as __version__

if TYPE_CHECKING:
    from geodax import data, diagnostics, models, nn, vi
    from geodax.geometry import distributions, transforms
    from geodax.geometry.manifolds import Euclidean
    from geodax.geometry.product import Product
    from geodax.geometry.sphere import Sphere
    from geodax.geometry.stiefel import Stiefel
    from geodax.mcmc.hmc import hmc
    from geodax.mcmc.nuts import nuts
    from geodax.posterior import Posterior
    from geodax.predict import conformal, predictive, scores
    from geodax.run.sample import sample
    from geodax.run.sharding import device_mesh
    from geodax.run.training import train_first
    from geodax.sgmcmc import metrics
    from geodax.sgmcmc.sghmc import sghmc
    from geodax.sgmcmc.sgrld import sgrld

_MODULES = {
    "conformal": "predict.conformal",
    "data": "data",
    "diagnostics": "diagnostics",
    "distributions": "geometry.distributions",
    "metrics": "sgmcmc.metrics",
    "models": "models",
    "nn": "nn",
    "predictive": "predict.predictive",
    "scores": "predict.scores",
    "transforms": "geometry.transforms",
    "vi": "vi",
}
_OBJECTS = {
    "Euclidean": "geometry.manifolds",
    "Posterior": "posterior",
    "Product": "geometry.product",
    "Sphere": "geometry.sphere",
    "Stiefel": "geometry.stiefel",
    "device_mesh": "run.sharding",
    "hmc": "mcmc.hmc",
    "nuts": "mcmc.nuts",
    "sample": "run.sample",
    "sghmc": "sgmcmc.sghmc",
    "sgrld": "sgmcmc.sgrld",
    "train_first": "run.training",
}


def __getattr__(name: str) -> Any:
    # Loaded on first access, so that `import geodax` and the command line start at once.
    if name in _MODULES:
        return importlib.import_module(f"geodax.{_MODULES[name]}")
    if name in _OBJECTS:
        found = getattr(importlib.import_module(f"geodax.{_OBJECTS[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'geodax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Euclidean",
    "Posterior",
    "Product",
    "Sphere",
    "Stiefel",
    "conformal",
    "data",
    "device_mesh",
    "diagnostics",
    "distributions",
    "hmc",
    "metrics",
    "models",
    "nn",
    "nuts",
    "predictive",
    "sample",
    "scores",
    "sghmc",
    "sgrld",
    "train_first",
    "transforms",
    "vi",
]
