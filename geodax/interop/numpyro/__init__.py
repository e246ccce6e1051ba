"""Orthonormal matrices in NumPyro models, and geodax's samplers for NumPyro models."""

from geodax.interop.numpyro.angles import AngleTransform, GivensAngles, angle_log_volume, angle_ranges
from geodax.interop.numpyro.constraints import StiefelTransform, stiefel
from geodax.interop.numpyro.distributions import (
    BinghamVonMisesFisher,
    MatrixBingham,
    MatrixLangevin,
    StiefelUniform,
    VonMisesFisher,
)
from geodax.interop.numpyro.multiview import hierarchical_cca
from geodax.interop.numpyro.networks import eigenmodel, network_hmm
from geodax.interop.numpyro.predictions import predictive
from geodax.interop.numpyro.reparam import CircleReparam, HouseholderReparam, PolarReparam
from geodax.interop.numpyro.sampling import sample
from geodax.interop.numpyro.translation import GeodaxModel, to_geodax
from geodax.interop.numpyro.unit_networks import unit_network

__all__ = [
    "stiefel",
    "StiefelTransform",
    "StiefelUniform",
    "MatrixLangevin",
    "VonMisesFisher",
    "MatrixBingham",
    "BinghamVonMisesFisher",
    "GivensAngles",
    "AngleTransform",
    "angle_log_volume",
    "angle_ranges",
    "PolarReparam",
    "HouseholderReparam",
    "CircleReparam",
    "sample",
    "predictive",
    "to_geodax",
    "GeodaxModel",
    "eigenmodel",
    "network_hmm",
    "unit_network",
    "hierarchical_cca",
]
