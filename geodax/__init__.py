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
        "Euclidean": "geometry.manifolds",
        "Posterior": "posterior",
        "Product": "geometry.product",
        "Sphere": "geometry.sphere",
        "Stiefel": "geometry.stiefel",
        "adjusted_mclmc": "mcmc.mclmc",
        "check_manifold": "geometry.laws",
        "conformal": "predict.conformal",
        "data": "data",
        "device_mesh": "run.sharding",
        "diagnostics": "diagnostics",
        "distributions": "geometry.distributions",
        "hmc": "mcmc.hmc",
        "last_positions": "run.positions",
        "mclmc": "mcmc.mclmc",
        "metrics": "sgmcmc.metrics",
        "models": "models",
        "nn": "nn",
        "nuts": "mcmc.nuts",
        "predictive": "predict.predictive",
        "sample": "run.sample",
        "scores": "predict.scores",
        "sghmc": "sgmcmc.sghmc",
        "sgnht": "sgmcmc.sgnht",
        "sgrld": "sgmcmc.sgrld",
        "shard": "run.split",
        "swag": "run.swag",
        "train_ensemble": "run.ensembles",
        "train_first": "run.training",
        "transforms": "geometry.transforms",
        "vi": "vi",
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
