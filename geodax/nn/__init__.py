"""Networks for Bayesian inference: layers, geometry, priors, likelihoods."""

from equinox.nn import Conv2d, Linear

from geodax.nn.convolutional import VGG16, ResNet20
from geodax.nn.curvature import InputCurvature, input_curvature
from geodax.nn.densities import (
    AbstractPrior,
    AbstractStructuredPrior,
    CorrelatedNormal,
    Gaussian,
    Haar,
    Laplace,
    StudentT,
)
from geodax.nn.horseshoe import AbstractHierarchicalPrior, HierarchicalHorseshoe, Horseshoe
from geodax.nn.image_layers import FilterResponseNorm, OrthogonalConv2d
from geodax.nn.layers import BottleneckLinear, LowRankLinear, OrthogonalLinear
from geodax.nn.likelihoods import CategoricalLikelihood, GaussianLikelihood, WithNoise
from geodax.nn.networks import MLP
from geodax.nn.priors import Hierarchical, Priors, log_prior
from geodax.nn.singular_values import SingularValues
from geodax.nn.structure import AbstractStructured, geometry

__all__ = [
    "Linear",
    "Conv2d",
    "OrthogonalLinear",
    "OrthogonalConv2d",
    "LowRankLinear",
    "BottleneckLinear",
    "FilterResponseNorm",
    "MLP",
    "VGG16",
    "ResNet20",
    "AbstractStructured",
    "geometry",
    "Priors",
    "Hierarchical",
    "log_prior",
    "AbstractPrior",
    "AbstractStructuredPrior",
    "AbstractHierarchicalPrior",
    "Gaussian",
    "Laplace",
    "StudentT",
    "CorrelatedNormal",
    "Haar",
    "SingularValues",
    "Horseshoe",
    "HierarchicalHorseshoe",
    "CategoricalLikelihood",
    "GaussianLikelihood",
    "WithNoise",
    "input_curvature",
    "InputCurvature",
]
