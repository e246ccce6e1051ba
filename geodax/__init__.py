"""Bayesian inference on curved and structured parameter spaces, on JAX."""

from typing import TYPE_CHECKING

from geodax import nn, vi
from geodax._version import __version__ as __version__
from geodax.geometry import distributions, transforms
from geodax.geometry.manifolds import Euclidean
from geodax.geometry.product import Product
from geodax.geometry.sphere import Sphere
from geodax.geometry.stiefel import Stiefel
from geodax.mcmc.hmc import hmc
from geodax.mcmc.nuts import nuts
from geodax.posterior import Posterior
from geodax.sgmcmc import metrics
from geodax.sgmcmc.sghmc import sghmc
from geodax.sgmcmc.sgrld import sgrld

if TYPE_CHECKING:
    from geodax import data, models
    from geodax.run import conformal, predictive, scores
    from geodax.run.loop import sample
    from geodax.run.sharding import device_mesh
    from geodax.run.training import train_first


def __getattr__(name: str):
    # what needs xarray is loaded when it is first asked for, so that the import stays light
    if name == "sample":
        from geodax.run.loop import sample

        return sample
    if name == "device_mesh":
        from geodax.run.sharding import device_mesh

        return device_mesh
    if name == "train_first":
        from geodax.run.training import train_first

        return train_first
    room = {"models": "models", "data": "data"} | {k: f"run.{k}" for k in ("conformal", "predictive", "scores")}
    if name in room:
        import importlib

        return importlib.import_module(f"geodax.{room[name]}")
    raise AttributeError(f"module 'geodax' has no attribute {name!r}")


__all__ = [
    "Euclidean",
    "Posterior",
    "Product",
    "Sphere",
    "Stiefel",
    "conformal",
    "data",
    "device_mesh",
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
