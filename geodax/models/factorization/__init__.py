"""Low-rank factorisation of a matrix of which some entries are known."""

from geodax.models.factorization.estimator import LowRankFactorization

__all__ = ["LowRankFactorization"]
