"""Bayesian inference on curved and structured parameter spaces, on JAX."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from
from geodax._version import __version__ as __version__

if TYPE_CHECKING:
    from geodax import data, diagnostics, models, nn, vi
    from geodax.geometry import distributions, transforms
    from geodax.geometry.laws import check_manifold
    from geodax.geometry.manifolds import Euclidean
    from geodax.geometry.product import Product
    from geodax.geometry.sphere import Sphere
    from geodax.geometry.stiefel import Stiefel
    from geodax.mcmc.hmc import hmc
    from geodax.mcmc.mclmc import adjusted_mclmc, mclmc
    from geodax.mcmc.nuts import nuts
    from geodax.posterior import Posterior
    from geodax.predict import conformal, predictive, scores
    from geodax.run.ensembles import train_ensemble
    from geodax.run.positions import last_positions
    from geodax.run.sample import sample
    from geodax.run.sharding import device_mesh
    from geodax.run.split import shard
    from geodax.run.swag import swag
    from geodax.run.training import train_first
    from geodax.sgmcmc import metrics
    from geodax.sgmcmc.sghmc import sghmc
    from geodax.sgmcmc.sgnht import sgnht
    from geodax.sgmcmc.sgrld import sgrld

# Loaded on first access, so that `import geodax` and the command line start fast.
__getattr__ = names_from(
    __name__,
    {
        "data": ("data",),
        "diagnostics": ("diagnostics",),
        "geometry.distributions": ("distributions",),
        "geometry.laws": ("check_manifold",),
        "geometry.manifolds": ("Euclidean",),
        "geometry.product": ("Product",),
        "geometry.sphere": ("Sphere",),
        "geometry.stiefel": ("Stiefel",),
        "geometry.transforms": ("transforms",),
        "mcmc.hmc": ("hmc",),
        "mcmc.mclmc": ("adjusted_mclmc", "mclmc"),
        "mcmc.nuts": ("nuts",),
        "models": ("models",),
        "nn": ("nn",),
        "posterior": ("Posterior",),
        "predict.conformal": ("conformal",),
        "predict.predictive": ("predictive",),
        "predict.scores": ("scores",),
        "run.ensembles": ("train_ensemble",),
        "run.positions": ("last_positions",),
        "run.sample": ("sample",),
        "run.sharding": ("device_mesh",),
        "run.split": ("shard",),
        "run.swag": ("swag",),
        "run.training": ("train_first",),
        "sgmcmc.metrics": ("metrics",),
        "sgmcmc.sghmc": ("sghmc",),
        "sgmcmc.sgnht": ("sgnht",),
        "sgmcmc.sgrld": ("sgrld",),
        "vi": ("vi",),
    },
)


__all__ = [
    "Euclidean",
    "Posterior",
    "Product",
    "Sphere",
    "Stiefel",
    "adjusted_mclmc",
    "check_manifold",
    "conformal",
    "data",
    "device_mesh",
    "diagnostics",
    "distributions",
    "hmc",
    "last_positions",
    "mclmc",
    "metrics",
    "models",
    "nn",
    "nuts",
    "predictive",
    "sample",
    "scores",
    "sghmc",
    "sgnht",
    "sgrld",
    "shard",
    "swag",
    "train_ensemble",
    "train_first",
    "transforms",
    "vi",
]
