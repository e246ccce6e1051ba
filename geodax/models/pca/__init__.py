"""Bayesian principal component analysis."""
