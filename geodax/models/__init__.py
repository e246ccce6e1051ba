"""Estimators in scikit-learn's protocol."""

from geodax.models.cca.estimator import HierarchicalCCA
from geodax.models.eigenmodel.estimator import Eigenmodel
from geodax.models.factorization import LowRankFactorization
from geodax.models.mlp import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.models.network.estimator import NetworkHMM
from geodax.models.pca.estimator import BayesianPCA
from geodax.models.unit_network.estimator import UnitNetworkRegressor

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
