"""Estimators in scikit-learn's protocol."""

from geodax.models.cca import HierarchicalCCA
from geodax.models.eigenmodel import Eigenmodel
from geodax.models.factorization import LowRankFactorization
from geodax.models.mlp import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.network import NetworkHMM
from geodax.models.pca import BayesianPCA
from geodax.models.unit_network import UnitNetworkRegressor

__all__ = [
    "BayesianMLPClassifier",
    "BayesianMLPRegressor",
    "BayesianPCA",
    "Eigenmodel",
    "HierarchicalCCA",
    "LowRankFactorization",
    "NetworkHMM",
    "UnitNetworkRegressor",
]
