"""Variational inference: families, flows, the evidence lower bound, and methods that maximise it."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from
from geodax.vi.elbo import BoundInfo, VariationalAlgorithm, ascent, elbo
from geodax.vi.families import AbstractFamily, DiagonalGaussian, FullGaussian, LowRankGaussian, Point, gaussian
from geodax.vi.flows import Flowed, PlanarFlow, planar
from geodax.vi.ivon import ivon
from geodax.vi.kronecker import KroneckerOver
from geodax.vi.modules import AbstractLocal, AbstractVariational, AbstractWhole, draw, seeded, total_kl
from geodax.vi.noisy_kfac import noisy_kfac
from geodax.vi.optimizers import adam
from geodax.vi.positions import GaussianOver
from geodax.vi.prediction import predict, sample_functions
from geodax.vi.split_family import GaussianArrays
from geodax.vi.vogn import vogn

if TYPE_CHECKING:
    from geodax.run.fit import Fit, History, fit


# implemented in a layer above, and exposed here
__getattr__ = names_from(__name__, {".run.fit": ("Fit", "History", "fit")})


__all__ = [
    "AbstractFamily",
    "AbstractLocal",
    "AbstractVariational",
    "AbstractWhole",
    "BoundInfo",
    "DiagonalGaussian",
    "Fit",
    "Flowed",
    "FullGaussian",
    "GaussianArrays",
    "GaussianOver",
    "History",
    "KroneckerOver",
    "LowRankGaussian",
    "PlanarFlow",
    "Point",
    "VariationalAlgorithm",
    "adam",
    "ascent",
    "draw",
    "elbo",
    "fit",
    "gaussian",
    "ivon",
    "noisy_kfac",
    "planar",
    "predict",
    "sample_functions",
    "seeded",
    "total_kl",
    "vogn",
]
