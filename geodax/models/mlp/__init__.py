"""Bayesian networks of dense layers as scikit-learn estimators."""

from geodax.models.mlp.classifier import BayesianMLPClassifier
from geodax.models.mlp.inference import INFERENCES, AbstractInference, Form, NetworkProblem
from geodax.models.mlp.regressor import BayesianMLPRegressor
from geodax.models.mlp.stochastic import StochasticGradientMCMC
from geodax.models.mlp.variational import MCDropout, MeanField, VariationalInference

__all__ = [
    "BayesianMLPClassifier",
    "BayesianMLPRegressor",
    "AbstractInference",
    "StochasticGradientMCMC",
    "VariationalInference",
    "MeanField",
    "MCDropout",
    "INFERENCES",
    "NetworkProblem",
    "Form",
]
