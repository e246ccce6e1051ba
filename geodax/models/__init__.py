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
        "cca.estimator": ("HierarchicalCCA",),
        "eigenmodel.estimator": ("Eigenmodel",),
        "factorization.estimator": ("LowRankFactorization",),
        "mlp.classifier": ("BayesianMLPClassifier",),
        "mlp.regressor": ("BayesianMLPRegressor",),
        "network.estimator": ("NetworkHMM",),
        "pca.estimator": ("BayesianPCA",),
        "unit_network.estimator": ("UnitNetworkRegressor",),
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
