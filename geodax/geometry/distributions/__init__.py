r"""Distributions of unit vectors and orthonormal matrices: densities and exact sampling.

===================================  ==============================================  ============================
distribution                         density, up to a constant                       constant known
===================================  ==============================================  ============================
:class:`StiefelUniform`              1                                               yes
:class:`VonMisesFisher`              :math:`\exp(\kappa \mu^T x)`                    yes
:class:`MatrixLangevin`              :math:`\exp \mathrm{tr}(f^T x)`                 for one or two columns
:class:`MatrixBingham`               :math:`\exp \sum_j b_j x_j^T a x_j`             for one column
:class:`BinghamVonMisesFisher`       the product of the last two                     no
===================================  ==============================================  ============================

Densities are with respect to the uniform (Haar) *probability* measure. If the constant is known, ``log_prob`` is
normalised and ``is_normalized`` is True; otherwise ``log_prob`` leaves it out. The distributions are pytrees:
``sample`` and ``log_prob`` work under ``jit`` and ``vmap``, and ``log_prob`` is differentiable in ``x`` and in the
parameters.

``sample`` is exact: rejection with the envelopes of Hoff (2009, Journal of Computational and Graphical Statistics 18,
438), Wood (1994) and Kent, Ganeiber and Mardia (2018). With many columns no envelope is tight, and ``sample`` raises
ValueError; then use ``gibbs_sample``, which runs a Markov chain for each draw, or a sampler of :mod:`geodax.mcmc`.
"""

from geodax.geometry.distributions.bingham import BinghamVonMisesFisher, MatrixBingham
from geodax.geometry.distributions.langevin import MatrixLangevin, VonMisesFisher
from geodax.geometry.distributions.rejection import AbstractRejection
from geodax.geometry.distributions.uniform import StiefelUniform

__all__ = [
    "AbstractRejection",
    "BinghamVonMisesFisher",
    "MatrixBingham",
    "MatrixLangevin",
    "StiefelUniform",
    "VonMisesFisher",
]
