"""Bayesian networks of dense layers as scikit-learn estimators."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from

if TYPE_CHECKING:
    from geodax.models.mlp.classifier import BayesianMLPClassifier
    from geodax.models.mlp.ensembles import NetworkEnsemble
    from geodax.models.mlp.inference import INFERENCES, AbstractInference, Form, NetworkProblem
    from geodax.models.mlp.laplace import LaplaceInference
    from geodax.models.mlp.regressor import BayesianMLPRegressor
    from geodax.models.mlp.stochastic import StochasticGradientMCMC
    from geodax.models.mlp.variational import MCDropout, MeanField, NaturalGradient, NoisyKFAC, VariationalInference

__getattr__ = names_from(
    __name__,
    {
        "classifier": ("BayesianMLPClassifier",),
        "ensembles": ("NetworkEnsemble",),
        "inference": ("AbstractInference", "Form", "INFERENCES", "NetworkProblem"),
        "laplace": ("LaplaceInference",),
        "regressor": ("BayesianMLPRegressor",),
        "stochastic": ("StochasticGradientMCMC",),
        "variational": ("MCDropout", "MeanField", "NaturalGradient", "NoisyKFAC", "VariationalInference"),
    },
)

__all__ = [
    "AbstractInference",
    "BayesianMLPClassifier",
    "BayesianMLPRegressor",
    "Form",
    "INFERENCES",
    "LaplaceInference",
    "MCDropout",
    "MeanField",
    "NaturalGradient",
    "NetworkEnsemble",
    "NetworkProblem",
    "NoisyKFAC",
    "StochasticGradientMCMC",
    "VariationalInference",
]
