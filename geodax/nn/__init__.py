"""Networks for Bayesian inference: layers, geometry, priors, likelihoods."""

from equinox.nn import Conv2d, Linear

from geodax.nn.adaptation import Adapted, adapt
from geodax.nn.adapters import AdaptedLinear, BottleneckAdapter, PolarAdapter, SVDAdapter
from geodax.nn.convolutional import VGG16, AlexNet, ResNet18, ResNet20
from geodax.nn.curvature import InputCurvature, input_curvature
from geodax.nn.densities import (
    AbstractPrior,
    AbstractStructuredPrior,
    CorrelatedNormal,
    Gaussian,
    Haar,
    Laplace,
    SingularValues,
    StudentT,
)
from geodax.nn.dropout import DropoutConv2d, DropoutLinear
from geodax.nn.hadamard import HadamardWeight, WHVIConv2d, WHVILinear
from geodax.nn.hadamard_moments import LQ, RowColMoments, lq, row_col_moments
from geodax.nn.hadamard_posterior import hadamard_posterior, with_vectors
from geodax.nn.horseshoe import AbstractHierarchicalPrior, HierarchicalHorseshoe, Horseshoe
from geodax.nn.image_layers import FilterResponseNorm, OrthogonalConv2d
from geodax.nn.inducing_points import InducingPointGP
from geodax.nn.laplace import laplace_posterior, last_layer_laplace
from geodax.nn.laplace_layers import LaplacePosterior, LinearisedOutputs
from geodax.nn.layers import BottleneckLinear, LowRankLinear, OrthogonalLinear
from geodax.nn.likelihoods import (
    AbstractLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    WithCutPoints,
    WithNoise,
)
from geodax.nn.linearised import Linearised, linearised
from geodax.nn.mean_field import FullCovarianceLinear, MeanFieldConv2d, MeanFieldLinear
from geodax.nn.networks import MLP
from geodax.nn.number_likelihoods import (
    CustomLikelihood,
    HeteroscedasticLikelihood,
    NegativeBinomialLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
    Weighted,
)
from geodax.nn.orthogonalization import orthogonalize
from geodax.nn.priors import Hierarchical, Priors, log_prior
from geodax.nn.random_features import RandomFeatureGP, RandomFeatures
from geodax.nn.structure import AbstractStructured, geometry
from geodax.nn.variational_networks import realize, variational
from geodax.vi.modules import total_kl

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
    "AlexNet",
    "ResNet18",
    "adapt",
    "orthogonalize",
    "Adapted",
    "AdaptedLinear",
    "SVDAdapter",
    "PolarAdapter",
    "BottleneckAdapter",
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
    "HeteroscedasticLikelihood",
    "StudentTLikelihood",
    "PoissonLikelihood",
    "NegativeBinomialLikelihood",
    "CustomLikelihood",
    "AbstractLikelihood",
    "WithNoise",
    "WithCutPoints",
    "Weighted",
    "WHVILinear",
    "WHVIConv2d",
    "HadamardWeight",
    "row_col_moments",
    "RowColMoments",
    "lq",
    "hadamard_posterior",
    "with_vectors",
    "LQ",
    "MeanFieldLinear",
    "MeanFieldConv2d",
    "FullCovarianceLinear",
    "DropoutLinear",
    "DropoutConv2d",
    "RandomFeatures",
    "RandomFeatureGP",
    "InducingPointGP",
    "last_layer_laplace",
    "laplace_posterior",
    "LaplacePosterior",
    "LinearisedOutputs",
    "Linearised",
    "linearised",
    "variational",
    "realize",
    "total_kl",
    "input_curvature",
    "InputCurvature",
]
