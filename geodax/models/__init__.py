"""Estimators in scikit-learn's protocol."""

from geodax.models.pca import BayesianPCA

__all__ = ["BayesianPCA"]
