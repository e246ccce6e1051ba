"""Estimators in scikit-learn's protocol."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from

if TYPE_CHECKING:
    from geodax.models.cca.estimator import HierarchicalCCA
    from geodax.models.eigenmodel.estimator import Eigenmodel
    from geodax.models.factorization.estimator import LowRankFactorization
    from geodax.models.mlp.classifier import BayesianMLPClassifier
    from geodax.models.mlp.regressor import BayesianMLPRegressor
    from geodax.models.network.estimator import NetworkHMM
    from geodax.models.pca.estimator import BayesianPCA
    from geodax.models.unit_network.estimator import UnitNetworkRegressor

__getattr__ = names_from(
    __name__,
    {
        "BayesianMLPClassifier": "mlp.classifier",
        "BayesianMLPRegressor": "mlp.regressor",
        "BayesianPCA": "pca.estimator",
        "Eigenmodel": "eigenmodel.estimator",
        "HierarchicalCCA": "cca.estimator",
        "LowRankFactorization": "factorization.estimator",
        "NetworkHMM": "network.estimator",
        "UnitNetworkRegressor": "unit_network.estimator",
    },
)

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
